//! Objects without a cluster: the manifest folders, the state folder, status and deletions.

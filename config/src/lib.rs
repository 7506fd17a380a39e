//! Settings: flags, the providers file and manifests, with every fault of a document at once.

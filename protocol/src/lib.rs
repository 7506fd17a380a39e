//! What the parts say to each other and to the world: kinds, API types, the provider contract, messages.

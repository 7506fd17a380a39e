//! The state machine of one Proxy, its actor, and the directory of all of them.

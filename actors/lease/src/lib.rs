//! Leases: the pure book, its journal, and the broker that serves it.

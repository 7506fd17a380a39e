//! The local backend: forward proxies inside this process.

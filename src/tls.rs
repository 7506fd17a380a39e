//! The one crypto backend of the process (PC-106).

/// Makes ring the provider of every TLS client and server that names none. The first act of `main`, and of every test harness
/// that builds an HTTP client: without it a client's constructor panics. Later calls change nothing.
pub fn install() {
    // An error says that it was done before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

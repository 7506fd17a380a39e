//! What probes trust: the system's roots and those of `--check-ca-file`.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// Why there is nothing to verify targets with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The extra roots could not be read.
    #[error("no certificate can be read: {0}")]
    Pem(String),
    /// The crypto provider offers no protocol version; cannot be with the features we build with.
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
}

/// The one configuration that all probers share: the system's roots and the certificates in `extra_pem` (the content of
/// `--check-ca-file`). Nothing is resumed: each probe verifies the certificate it is shown, and no ticket lets a target
/// tell that two proxies belong together.
pub fn client_config(extra_pem: Option<&[u8]>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(system.certs);
    if added == 0 {
        tracing::warn!(
            errors = system.errors.len(),
            "WARNING: this system has no root certificates, so that probes of https URLs can only pass with --check-ca-file"
        );
    }
    if let Some(pem) = extra_pem {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| TlsError::Pem(error.to_string()))?;
            roots.add(certificate).map_err(|error| TlsError::Pem(error.to_string()))?;
        }
        if roots.len() == before {
            return Err(TlsError::Pem("there is none in PEM form".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

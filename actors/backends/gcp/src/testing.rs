//! What the tests of several modules share.

use std::process::Command;
use std::sync::{Arc, OnceLock};

use data_encoding::BASE64;
use egress_config::providers::gcp::{AddressMode, Credentials, METADATA_HOST};
use egress_protocol::provider::CreateRequest;
use egress_protocol::resource::Placement;
use egress_protocol::{InstallationId, InstanceName, Secret, Uid};

use crate::config::{Budgets, GcpConfig, Live};

/// As the process does at its start.
pub(crate) fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

pub(crate) fn config() -> GcpConfig {
    GcpConfig {
        entry: "gcp".into(),
        installation: InstallationId::new("inst"),
        project: "p-1".to_owned(),
        network: "global/networks/default".to_owned(),
        subnetwork: None,
        network_tag: "proxy-operator".to_owned(),
        address_mode: AddressMode::External,
        live: Live { disk_size_gb: 10, quota_regions: Vec::new() },
        endpoint: "https://compute.googleapis.com".to_owned(),
        credentials: Credentials::Metadata(METADATA_HOST.to_owned()),
        full_payloads: false,
        budgets: Budgets::default(),
    }
}

pub(crate) fn request(uid: &str, cloud_init: &[u8]) -> CreateRequest {
    let uid = Uid::new(uid);
    CreateRequest {
        name: InstanceName::of(&uid),
        uid,
        installation: InstallationId::new("inst"),
        namespace: "default".into(),
        proxy_name: "px".into(),
        placement: Placement {
            zone: Some("europe-west1-b".to_owned()),
            machine_type: Some("e2-small".to_owned()),
            image: Some("projects/p/global/images/family/f".to_owned()),
            ..Placement::default()
        },
        cloud_init: Arc::new(Secret::new(cloud_init.to_vec())),
        port: 3128,
    }
}

/// An RSA key that openssl made, once per test run.
pub(crate) struct RsaKey {
    pub(crate) pem: String,
    /// `RSAPublicKey` of PKCS #1, as ring verifies with.
    pub(crate) public_der: Vec<u8>,
}

pub(crate) fn rsa_key() -> &'static RsaKey {
    static KEY: OnceLock<RsaKey> = OnceLock::new();
    KEY.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let openssl = |args: &[&str]| {
            let output = Command::new("openssl").args(args).arg("-out").arg("/dev/stdout").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let pem = openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
        std::fs::write(&path, &pem).unwrap();
        let public = openssl(&["rsa", "-in", path.to_str().unwrap(), "-RSAPublicKey_out"]);
        let text = String::from_utf8(public).unwrap();
        let base64: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
        RsaKey { pem: String::from_utf8(pem).unwrap(), public_der: BASE64.decode(base64.as_bytes()).unwrap() }
    })
}

//! The Secrets that documents declare, as `egress_protocol::resource::secrets` asks for them.

use std::collections::BTreeMap;

use egress_protocol::ObjectKey;
use egress_protocol::resource::secrets::{KnownSecrets, SecretContent};

use crate::folder::decide::KnownSecret;

/// Of all files.
pub(crate) struct Declared<'a>(pub(crate) &'a BTreeMap<ObjectKey, KnownSecret>);

impl KnownSecrets for Declared<'_> {
    fn find(&self, key: &ObjectKey, label: &str) -> Result<&SecretContent, String> {
        let known = self.0.get(key).ok_or_else(|| format!("Secret {key} is missing"))?;
        if known.secret.carries(label) { Ok(&known.secret) } else { Err(format!("Secret {key} lacks the label {label}: \"true\"")) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use egress_protocol::resource::{LABEL_CLOUD_INIT, LABEL_CREDENTIALS};

    use super::*;
    use crate::folder::Home;

    #[test]
    fn a_missing_secret_is_told_from_one_that_lacks_the_label_op_21_he_12() {
        let secret = Arc::new(SecretContent { for_cloud_init: true, ..SecretContent::default() });
        let secrets = BTreeMap::from([(ObjectKey::new("default", "boot"), KnownSecret { home: Home::new("/m", "a.yaml"), secret })]);
        let find = |name: &str, label: &str| Declared(&secrets).find(&ObjectKey::new("default", name), label).cloned().unwrap_err();
        assert!(Declared(&secrets).find(&ObjectKey::new("default", "boot"), LABEL_CLOUD_INIT).is_ok());
        assert_eq!(find("other", LABEL_CLOUD_INIT), "Secret default/other is missing");
        assert_eq!(find("boot", LABEL_CREDENTIALS), "Secret default/boot lacks the label crawl.example.com/proxy-credentials: \"true\"");
    }
}

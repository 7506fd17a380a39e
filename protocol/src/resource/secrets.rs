//! What an object gets from the Secrets it names (operator.md §3.1, OP-21, HE-12). Pure, and the same for every source.
//!
//! What must stay true: a Secret without the label of the use is as good as none; no message holds what a Secret holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{LABEL_CLOUD_INIT, LABEL_CREDENTIALS, ProxySpec};
use crate::ids::ObjectKey;
use crate::object::{CloudInit, Credentials, CredentialsState};
use crate::secret::Secret;

/// The content of one key.
pub type Bytes = Arc<Secret<Vec<u8>>>;

/// A Secret as a source knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecretContent {
    /// It carries the label for user data.
    pub for_cloud_init: bool,
    /// It carries the label for credentials.
    pub for_credentials: bool,
    /// Empty when it carries neither: what nobody may see is not kept.
    pub data: BTreeMap<String, Bytes>,
}

impl SecretContent {
    /// Takes what may be kept of a Secret with these labels.
    pub fn new(labels: &BTreeMap<String, String>, data: impl IntoIterator<Item = (String, Bytes)>) -> Self {
        let carries = |label: &str| labels.get(label).is_some_and(|value| value == "true");
        let (for_cloud_init, for_credentials) = (carries(LABEL_CLOUD_INIT), carries(LABEL_CREDENTIALS));
        let data = if for_cloud_init || for_credentials { data.into_iter().collect() } else { BTreeMap::new() };
        Self { for_cloud_init, for_credentials, data }
    }

    /// Whether it carries that label with the value `"true"`.
    pub fn carries(&self, label: &str) -> bool {
        match label {
            LABEL_CLOUD_INIT => self.for_cloud_init,
            LABEL_CREDENTIALS => self.for_credentials,
            _ => false,
        }
    }
}

/// The Secrets a source knows.
pub trait KnownSecrets {
    /// The Secret of that name that carries the label, or why there is none.
    fn find(&self, key: &ObjectKey, label: &str) -> Result<&SecretContent, String>;
}

/// The Secrets a spec names, in its namespace.
pub fn named(spec: &ProxySpec, namespace: &Arc<str>) -> impl Iterator<Item = ObjectKey> {
    let cloud_init = spec.cloud_init.as_ref().and_then(|it| it.secret_ref.as_ref()).map(|it| it.name.as_str());
    let credentials = spec.endpoint.as_ref().and_then(|it| it.credentials_secret_ref.as_ref()).map(|it| it.name.as_str());
    [cloud_init, credentials].into_iter().flatten().map(|name| ObjectKey::new(Arc::clone(namespace), name))
}

/// The user data of an object.
pub fn cloud_init(spec: &ProxySpec, namespace: &Arc<str>, secrets: &impl KnownSecrets) -> CloudInit {
    let Some(declared) = &spec.cloud_init else { return CloudInit::None };
    if let Some(inline) = &declared.inline {
        return CloudInit::Resolved { bytes: Arc::new(Secret::new(inline.as_bytes().to_vec())), secret: None };
    }
    let Some(reference) = &declared.secret_ref else { return CloudInit::None };
    let key = ObjectKey::new(Arc::clone(namespace), reference.name.as_str());
    let bytes =
        secrets.find(&key, LABEL_CLOUD_INIT).and_then(|secret| text(&key, secret, &reference.key).map(|(bytes, _)| Arc::clone(bytes)));
    match bytes {
        Ok(bytes) => CloudInit::Resolved { bytes, secret: Some(reference.name.as_str().into()) },
        Err(message) => CloudInit::Unresolved { message },
    }
}

/// The credentials of an External proxy.
pub fn credentials(spec: &ProxySpec, namespace: &Arc<str>, secrets: &impl KnownSecrets) -> CredentialsState {
    let Some(reference) = spec.endpoint.as_ref().and_then(|endpoint| endpoint.credentials_secret_ref.as_ref()) else {
        return CredentialsState::NotNeeded;
    };
    let key = ObjectKey::new(Arc::clone(namespace), reference.name.as_str());
    let resolve = || {
        let secret = secrets.find(&key, LABEL_CREDENTIALS)?;
        let part = |name: &str| {
            let (_, text) = text(&key, secret, name)?;
            match credential_fault(name, text.as_bytes()) {
                None => Ok(Secret::new(text.to_owned())),
                Some(reason) => Err(format!("key {name} of Secret {key} {reason}")),
            }
        };
        let [username, password] = CREDENTIAL_KEYS.map(part);
        Ok(Credentials { username: username?, password: password? })
    };
    match resolve() {
        Ok(credentials) => CredentialsState::Resolved(Arc::new(credentials)),
        Err(message) => CredentialsState::Unresolved { message },
    }
}

/// The keys of a Secret with credentials.
pub const CREDENTIAL_KEYS: [&str; 2] = ["username", "password"];

/// Why no proxy can take the value of that key (RFC 7617), in words that hold nothing of it.
pub fn credential_fault(name: &str, value: &[u8]) -> Option<&'static str> {
    let Ok(text) = std::str::from_utf8(value) else { return Some("is not UTF-8") };
    if text.ends_with(['\r', '\n']) {
        Some("ends with a line break: write it without one, as kubectl create secret --from-literal and printf do")
    } else if text.contains(['\r', '\n']) {
        Some("has a line break in it, which no proxy takes")
    } else if text.contains(char::is_control) {
        Some("has a control character in it, which no proxy takes")
    } else if name == "username" && text.contains(':') {
        Some("has a colon in it: a proxy reads what follows as the password")
    } else {
        None
    }
}

fn text<'a>(key: &ObjectKey, secret: &'a SecretContent, name: &str) -> Result<(&'a Bytes, &'a str), String> {
    let bytes = secret.data.get(name).ok_or_else(|| format!("Secret {key} has no key {name}"))?;
    let text = std::str::from_utf8(bytes.expose()).map_err(|_| format!("key {name} of Secret {key} is not UTF-8"))?;
    Ok((bytes, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Known(BTreeMap<ObjectKey, SecretContent>);

    impl KnownSecrets for Known {
        fn find(&self, key: &ObjectKey, label: &str) -> Result<&SecretContent, String> {
            self.0.get(key).filter(|secret| secret.carries(label)).ok_or_else(|| format!("no {key} with {label}"))
        }
    }

    fn spec(value: serde_json::Value) -> ProxySpec {
        serde_json::from_value(value).unwrap()
    }

    fn managed() -> ProxySpec {
        spec(json!({"mode": "Managed", "provider": "lab", "cloudInit": {"secretRef": {"name": "boot"}}}))
    }

    fn external() -> ProxySpec {
        spec(json!({"mode": "External", "endpoint": {"host": "192.0.2.1", "credentialsSecretRef": {"name": "login"}}}))
    }

    fn known(name: &str, label: &str, data: &[(&str, &[u8])]) -> Known {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), Arc::new(Secret::new(value.to_vec()))));
        let secret = SecretContent::new(&BTreeMap::from([(label.to_owned(), "true".to_owned())]), data);
        Known(BTreeMap::from([(ObjectKey::new("default", name), secret)]))
    }

    fn why_no_user_data(secrets: &Known) -> String {
        match cloud_init(&managed(), &"default".into(), secrets) {
            CloudInit::Unresolved { message } => message,
            other => panic!("{other:?}"),
        }
    }

    fn why_no_credentials(secrets: &Known) -> String {
        match credentials(&external(), &"default".into(), secrets) {
            CredentialsState::Unresolved { message } => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unresolved_user_data_says_what_is_missing_op_21() {
        assert_eq!(why_no_user_data(&known("other", LABEL_CLOUD_INIT, &[])), "no default/boot with crawl.example.com/cloud-init");
        assert_eq!(
            why_no_user_data(&known("boot", LABEL_CREDENTIALS, &[("user-data", b"x")])),
            "no default/boot with crawl.example.com/cloud-init"
        );
        assert_eq!(why_no_user_data(&known("boot", LABEL_CLOUD_INIT, &[("other", b"x")])), "Secret default/boot has no key user-data");
        assert_eq!(
            why_no_user_data(&known("boot", LABEL_CLOUD_INIT, &[("user-data", &[0xff, 0xfe])])),
            "key user-data of Secret default/boot is not UTF-8"
        );
    }

    #[test]
    fn user_data_is_passed_on_byte_for_byte_with_the_secret_it_came_from() {
        let secrets = known("boot", LABEL_CLOUD_INIT, &[("user-data", b"#cloud-config\r\n ")]);
        let found = cloud_init(&managed(), &"default".into(), &secrets);
        let CloudInit::Resolved { bytes, secret } = found else { panic!("{found:?}") };
        assert_eq!((bytes.expose().as_slice(), secret.as_deref()), (b"#cloud-config\r\n ".as_slice(), Some("boot")));
        let inline = spec(json!({"mode": "Managed", "provider": "lab", "cloudInit": {"inline": "#!/bin/sh"}}));
        let CloudInit::Resolved { bytes, secret } = cloud_init(&inline, &"default".into(), &secrets) else { panic!() };
        assert_eq!((bytes.expose().as_slice(), secret), (b"#!/bin/sh".as_slice(), None));
    }

    #[test]
    fn unresolved_credentials_say_what_is_missing_he_12() {
        assert_eq!(why_no_credentials(&known("x", LABEL_CREDENTIALS, &[])), "no default/login with crawl.example.com/proxy-credentials");
        assert_eq!(
            why_no_credentials(&known("login", LABEL_CREDENTIALS, &[("username", b"u")])),
            "Secret default/login has no key password"
        );
        assert_eq!(
            why_no_credentials(&known("login", LABEL_CREDENTIALS, &[("username", b"u"), ("password", &[0xff])])),
            "key password of Secret default/login is not UTF-8"
        );
    }

    /// Issue 10, 24.
    #[test]
    fn credentials_that_no_proxy_takes_are_named_by_key_he_12() {
        for (username, password, why) in [
            ("u", "p\n", "key password of Secret default/login ends with a line break"),
            ("u", "p\r\n", "key password of Secret default/login ends with a line break"),
            ("u\n", "p", "key username of Secret default/login ends with a line break"),
            ("u\r\nx", "p", "key username of Secret default/login has a line break in it"),
            ("u", "p\u{1b}q", "key password of Secret default/login has a control character in it"),
            ("u:x", "p", "key username of Secret default/login has a colon in it"),
        ] {
            let said = why_no_credentials(&known(
                "login",
                LABEL_CREDENTIALS,
                &[("username", username.as_bytes()), ("password", password.as_bytes())],
            ));
            assert!(said.starts_with(why), "{said}");
        }
        let odd = known("login", LABEL_CREDENTIALS, &[("username", "Ünïcode user@x".as_bytes()), ("password", b"a:b c%")]);
        assert!(matches!(credentials(&external(), &"default".into(), &odd), CredentialsState::Resolved(_)), "odd, and fine");
        let none = known("login", LABEL_CREDENTIALS, &[("username", b"key"), ("password", b"")]);
        assert!(
            matches!(credentials(&external(), &"default".into(), &none), CredentialsState::Resolved(_)),
            "some give keys without a password"
        );
    }

    #[test]
    fn credentials_resolve_and_do_not_print() {
        let secrets = known("login", LABEL_CREDENTIALS, &[("username", b"u"), ("password", b"hunter2")]);
        let found = credentials(&external(), &"default".into(), &secrets);
        assert!(!format!("{found:?}").contains("hunter2"));
        let CredentialsState::Resolved(found) = found else { panic!("{found:?}") };
        assert_eq!((found.username.expose().as_str(), found.password.expose().as_str()), ("u", "hunter2"));
    }

    #[test]
    fn a_secret_of_another_namespace_is_not_seen_and_one_without_a_label_is_not_kept() {
        let secrets = known("boot", LABEL_CLOUD_INIT, &[("user-data", b"x")]);
        assert!(matches!(cloud_init(&managed(), &"other".into(), &secrets), CloudInit::Unresolved { .. }));
        assert!(known("boot", "other", &[("user-data", b"x")]).0.values().all(|secret| secret.data.is_empty()));
    }
}

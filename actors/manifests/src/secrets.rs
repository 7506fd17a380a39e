//! What an object gets from the Secrets it names (operator.md §3.1, OP-21, HE-12). Pure.
//!
//! What must stay true: a Secret without the label of the use is as good as none; no message holds what a Secret holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use egress_protocol::object::{CloudInit, Credentials, CredentialsState};
use egress_protocol::resource::{LABEL_CLOUD_INIT, LABEL_CREDENTIALS, ProxySpec};
use egress_protocol::{ObjectKey, Secret};

use crate::folder::DeclaredSecret;
use crate::folder::decide::KnownSecret;

type Secrets = BTreeMap<ObjectKey, KnownSecret>;
/// The content of one key.
type Bytes = Arc<Secret<Vec<u8>>>;

/// The Secrets a spec names, in its namespace.
pub(crate) fn named(spec: &ProxySpec, namespace: &Arc<str>) -> impl Iterator<Item = ObjectKey> {
    let cloud_init = spec.cloud_init.as_ref().and_then(|it| it.secret_ref.as_ref()).map(|it| it.name.as_str());
    let credentials = spec.endpoint.as_ref().and_then(|it| it.credentials_secret_ref.as_ref()).map(|it| it.name.as_str());
    [cloud_init, credentials].into_iter().flatten().map(|name| ObjectKey::new(Arc::clone(namespace), name))
}

/// The user data of an object.
pub(crate) fn cloud_init(spec: &ProxySpec, namespace: &Arc<str>, secrets: &Secrets) -> CloudInit {
    let Some(declared) = &spec.cloud_init else { return CloudInit::None };
    if let Some(inline) = &declared.inline {
        return CloudInit::Resolved { bytes: Arc::new(Secret::new(inline.as_bytes().to_vec())), secret: None };
    }
    let Some(reference) = &declared.secret_ref else { return CloudInit::None };
    let key = ObjectKey::new(Arc::clone(namespace), reference.name.as_str());
    let bytes = labelled(&key, secrets, LABEL_CLOUD_INIT, |secret| secret.for_cloud_init)
        .and_then(|secret| text(&key, secret, &reference.key).map(|(bytes, _)| Arc::clone(bytes)));
    match bytes {
        Ok(bytes) => CloudInit::Resolved { bytes, secret: Some(reference.name.as_str().into()) },
        Err(message) => CloudInit::Unresolved { message },
    }
}

/// The credentials of an External proxy.
pub(crate) fn credentials(spec: &ProxySpec, namespace: &Arc<str>, secrets: &Secrets) -> CredentialsState {
    let Some(reference) = spec.endpoint.as_ref().and_then(|endpoint| endpoint.credentials_secret_ref.as_ref()) else {
        return CredentialsState::NotNeeded;
    };
    let key = ObjectKey::new(Arc::clone(namespace), reference.name.as_str());
    let resolve = || {
        let secret = labelled(&key, secrets, LABEL_CREDENTIALS, |secret| secret.for_credentials)?;
        let part = |name: &str| text(&key, secret, name).map(|(_, text)| Secret::new(text.to_owned()));
        Ok(Credentials { username: part("username")?, password: part("password")? })
    };
    match resolve() {
        Ok(credentials) => CredentialsState::Resolved(Arc::new(credentials)),
        Err(message) => CredentialsState::Unresolved { message },
    }
}

fn labelled<'a>(
    key: &ObjectKey,
    secrets: &'a Secrets,
    label: &str,
    carries: impl Fn(&DeclaredSecret) -> bool,
) -> Result<&'a DeclaredSecret, String> {
    let known = secrets.get(key).ok_or_else(|| format!("Secret {key} is missing"))?;
    if carries(&known.secret) { Ok(&known.secret) } else { Err(format!("Secret {key} lacks the label {label}: \"true\"")) }
}

fn text<'a>(key: &ObjectKey, secret: &'a DeclaredSecret, name: &str) -> Result<(&'a Bytes, &'a str), String> {
    let bytes = secret.data.get(name).ok_or_else(|| format!("Secret {key} has no key {name}"))?;
    let text = std::str::from_utf8(bytes.expose()).map_err(|_| format!("key {name} of Secret {key} is not UTF-8"))?;
    Ok((bytes, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Home;
    use serde_json::json;

    fn spec(value: serde_json::Value) -> ProxySpec {
        serde_json::from_value(value).unwrap()
    }

    fn managed() -> ProxySpec {
        spec(json!({"mode": "Managed", "provider": "lab", "cloudInit": {"secretRef": {"name": "boot"}}}))
    }

    fn external() -> ProxySpec {
        spec(json!({"mode": "External", "endpoint": {"host": "192.0.2.1", "credentialsSecretRef": {"name": "login"}}}))
    }

    fn secrets(name: &str, cloud_init: bool, credentials: bool, data: &[(&str, &[u8])]) -> Secrets {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), Arc::new(Secret::new(value.to_vec())))).collect();
        let secret = Arc::new(DeclaredSecret { for_cloud_init: cloud_init, for_credentials: credentials, data });
        Secrets::from([(ObjectKey::new("default", name), KnownSecret { home: Home::new("/m", "a.yaml"), secret })])
    }

    fn why_no_user_data(secrets: &Secrets) -> String {
        match cloud_init(&managed(), &"default".into(), secrets) {
            CloudInit::Unresolved { message } => message,
            other => panic!("{other:?}"),
        }
    }

    fn why_no_credentials(secrets: &Secrets) -> String {
        match credentials(&external(), &"default".into(), secrets) {
            CredentialsState::Unresolved { message } => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unresolved_user_data_says_what_is_missing_op_21() {
        assert_eq!(why_no_user_data(&Secrets::new()), "Secret default/boot is missing");
        assert_eq!(
            why_no_user_data(&secrets("boot", false, true, &[("user-data", b"x")])),
            "Secret default/boot lacks the label crawl.example.com/cloud-init: \"true\""
        );
        assert_eq!(why_no_user_data(&secrets("boot", true, false, &[("other", b"x")])), "Secret default/boot has no key user-data");
        assert_eq!(
            why_no_user_data(&secrets("boot", true, false, &[("user-data", &[0xff, 0xfe])])),
            "key user-data of Secret default/boot is not UTF-8"
        );
    }

    #[test]
    fn user_data_is_passed_on_byte_for_byte_with_the_secret_it_came_from() {
        let found = cloud_init(&managed(), &"default".into(), &secrets("boot", true, false, &[("user-data", b"#cloud-config\r\n ")]));
        let CloudInit::Resolved { bytes, secret } = found else { panic!("{found:?}") };
        assert_eq!((bytes.expose().as_slice(), secret.as_deref()), (b"#cloud-config\r\n ".as_slice(), Some("boot")));
        let inline = spec(json!({"mode": "Managed", "provider": "lab", "cloudInit": {"inline": "#!/bin/sh"}}));
        let CloudInit::Resolved { bytes, secret } = cloud_init(&inline, &"default".into(), &Secrets::new()) else { panic!() };
        assert_eq!((bytes.expose().as_slice(), secret), (b"#!/bin/sh".as_slice(), None));
    }

    #[test]
    fn unresolved_credentials_say_what_is_missing_he_12() {
        assert_eq!(why_no_credentials(&Secrets::new()), "Secret default/login is missing");
        assert_eq!(
            why_no_credentials(&secrets("login", true, false, &[("username", b"u"), ("password", b"p")])),
            "Secret default/login lacks the label crawl.example.com/proxy-credentials: \"true\""
        );
        assert_eq!(why_no_credentials(&secrets("login", false, true, &[("username", b"u")])), "Secret default/login has no key password");
        assert_eq!(
            why_no_credentials(&secrets("login", false, true, &[("username", b"u"), ("password", &[0xff])])),
            "key password of Secret default/login is not UTF-8"
        );
    }

    #[test]
    fn credentials_resolve_and_do_not_print() {
        let found =
            credentials(&external(), &"default".into(), &secrets("login", false, true, &[("username", b"u"), ("password", b"hunter2")]));
        assert!(!format!("{found:?}").contains("hunter2"));
        let CredentialsState::Resolved(found) = found else { panic!("{found:?}") };
        assert_eq!((found.username.expose().as_str(), found.password.expose().as_str()), ("u", "hunter2"));
    }

    #[test]
    fn a_secret_of_another_namespace_is_not_seen() {
        let found = cloud_init(&managed(), &"other".into(), &secrets("boot", true, false, &[("user-data", b"x")]));
        assert_eq!(found, CloudInit::Unresolved { message: "Secret other/boot is missing".to_owned() });
    }
}

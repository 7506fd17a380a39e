//! The three kinds of credential files (GC-21): what each must say. Pure.
//!
//! An error names the key and never its value, which may be a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use egress_protocol::Secret;
use serde_json::{Map, Value};

/// What a credential file says.
pub(super) enum CredentialFile {
    /// `service_account`: a key that signs.
    ServiceAccount { email: String, key_id: Option<String>, key_pem: Secret, token_uri: String },
    /// `authorized_user`: a person's refresh token.
    AuthorizedUser { client_id: String, client_secret: Secret, refresh_token: Secret, token_uri: String },
    /// `external_account`: another issuer's token is exchanged (federation).
    External(Box<External>),
}

/// `external_account`.
pub(super) struct External {
    pub(super) audience: String,
    pub(super) subject_token_type: String,
    pub(super) token_url: String,
    pub(super) impersonation_url: Option<String>,
    pub(super) subject: Subject,
}

/// Where the other issuer's token is.
pub(super) struct Subject {
    pub(super) from: SubjectSource,
    /// The key of a JSON document that holds it; `None`: it is the whole text.
    pub(super) field: Option<String>,
}

/// A file or a URL.
pub(super) enum SubjectSource {
    File(PathBuf),
    Url { url: String, headers: BTreeMap<String, Secret> },
}

impl fmt::Debug for CredentialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServiceAccount { .. } => "service_account",
            Self::AuthorizedUser { .. } => "authorized_user",
            Self::External(_) => "external_account",
        })
    }
}

const GOOGLE_TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

impl CredentialFile {
    /// Reads a file's content. The error is for people and holds no value of the file but its `type`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| {
            // The error of serde_json names line and column only.
            format!("is no JSON (line {}, column {})", error.line(), error.column())
        })?;
        let Value::Object(file) = value else { return Err("is no JSON object".to_owned()) };
        match text(&file, "type")?.as_str() {
            "service_account" => Ok(Self::ServiceAccount {
                email: text(&file, "client_email")?,
                key_id: optional(&file, "private_key_id")?,
                key_pem: Secret::new(text(&file, "private_key")?),
                token_uri: url(&file, "token_uri")?.unwrap_or_else(|| GOOGLE_TOKEN_URI.to_owned()),
            }),
            "authorized_user" => Ok(Self::AuthorizedUser {
                client_id: text(&file, "client_id")?,
                client_secret: Secret::new(text(&file, "client_secret")?),
                refresh_token: Secret::new(text(&file, "refresh_token")?),
                token_uri: url(&file, "token_uri")?.unwrap_or_else(|| GOOGLE_TOKEN_URI.to_owned()),
            }),
            "external_account" => external(&file).map(|external| Self::External(Box::new(external))),
            other => Err(format!("has type {other:?}, which is not supported: service_account, authorized_user and external_account are")),
        }
    }
}

fn external(file: &Map<String, Value>) -> Result<External, String> {
    let Some(Value::Object(source)) = file.get("credential_source") else {
        return Err("credential_source: is required and must be an object".to_owned());
    };
    let from = match (optional(source, "file")?, url(source, "url")?) {
        (Some(path), None) => SubjectSource::File(PathBuf::from(path)),
        (None, Some(url)) => SubjectSource::Url { url, headers: headers(source)? },
        (Some(_), Some(_)) => return Err("credential_source: names both a file and a url".to_owned()),
        (None, None) => {
            return Err(
                "credential_source: needs file or url; environment_id (AWS), executable and certificate are not supported".to_owned()
            );
        }
    };
    let field = match source.get("format") {
        None => None,
        Some(Value::Object(format)) => match optional(format, "type")?.as_deref() {
            None | Some("text") => None,
            Some("json") => Some(text(format, "subject_token_field_name")?),
            Some(other) => return Err(format!("credential_source.format.type: {other:?} is neither text nor json")),
        },
        Some(_) => return Err("credential_source.format: must be an object".to_owned()),
    };
    Ok(External {
        audience: text(file, "audience")?,
        subject_token_type: text(file, "subject_token_type")?,
        token_url: url(file, "token_url")?.ok_or("token_url: is required")?,
        impersonation_url: url(file, "service_account_impersonation_url")?,
        subject: Subject { from, field },
    })
}

fn headers(source: &Map<String, Value>) -> Result<BTreeMap<String, Secret>, String> {
    match source.get("headers") {
        None => Ok(BTreeMap::new()),
        Some(Value::Object(headers)) => {
            headers.keys().map(|name| Ok((name.clone(), Secret::new(text(headers, name)?)))).collect::<Result<_, String>>()
        }
        Some(_) => Err("credential_source.headers: must be an object".to_owned()),
    }
}

fn optional(object: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{key}: must be text")),
    }
}

fn text(object: &Map<String, Value>, key: &str) -> Result<String, String> {
    optional(object, key)?.ok_or_else(|| format!("{key}: is required"))
}

/// A URL that a secret is sent to or read from: https, or http on this machine or at the metadata server's address.
fn url(object: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    let Some(text) = optional(object, key)? else { return Ok(None) };
    let parsed = reqwest::Url::parse(&text).map_err(|_| format!("{key}: is no URL"))?;
    let host = parsed.host_str().unwrap_or_default();
    let near = host == "localhost" || host == "169.254.169.254" || host == "metadata.google.internal" || loopback(host);
    match parsed.scheme() {
        "https" => Ok(Some(text)),
        "http" if near => Ok(Some(text)),
        _ => Err(format!("{key}: must be https (http only on this machine or at the metadata server)")),
    }
}

fn loopback(host: &str) -> bool {
    host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: &Value) -> Result<CredentialFile, String> {
        CredentialFile::parse(value.to_string().as_bytes())
    }

    fn service_account() -> Value {
        json!({"type": "service_account", "client_email": "a@p", "private_key_id": "k1", "private_key": "sentinel-key", "token_uri": "https://t.example/token"})
    }

    fn external() -> Value {
        json!({
            "type": "external_account",
            "audience": "//iam.googleapis.com/x",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": "https://sts.example/v1/token",
            "credential_source": {"file": "/var/run/token"},
        })
    }

    #[test]
    fn the_three_kinds_are_read() {
        assert!(matches!(parse(&service_account()), Ok(CredentialFile::ServiceAccount { email, .. }) if email == "a@p"));
        let user = json!({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"});
        assert!(matches!(parse(&user), Ok(CredentialFile::AuthorizedUser { token_uri, .. }) if token_uri == GOOGLE_TOKEN_URI));
        let Ok(CredentialFile::External(file)) = parse(&external()) else { panic!("external_account") };
        assert!(matches!(file.subject.from, SubjectSource::File(path) if path.as_os_str() == "/var/run/token"));
        let mut by_url = external();
        by_url["credential_source"] = json!({"url": "http://127.0.0.1:1/t", "headers": {"X": "y"}, "format": {"type": "json", "subject_token_field_name": "id_token"}});
        let Ok(CredentialFile::External(file)) = parse(&by_url) else { panic!("external_account by URL") };
        assert_eq!(file.subject.field.as_deref(), Some("id_token"));
    }

    #[test]
    fn what_a_file_lacks_is_named_by_its_key_and_nothing_secret_is_said() {
        let without = |mut value: Value, key: &str| {
            value.as_object_mut().unwrap().remove(key);
            value
        };
        let with = |mut value: Value, key: &str, new: Value| {
            value[key] = new;
            value
        };
        for (value, says) in [
            (json!([]), "no JSON object"),
            (json!({}), "type: is required"),
            (json!({"type": "gdch_service_account"}), "gdch_service_account"),
            (without(service_account(), "client_email"), "client_email: is required"),
            (without(service_account(), "private_key"), "private_key: is required"),
            (with(service_account(), "private_key", json!(7)), "private_key: must be text"),
            (with(service_account(), "token_uri", json!("http://t.example/token")), "token_uri: must be https"),
            (with(service_account(), "token_uri", json!("sentinel-key")), "token_uri: is no URL"),
            (json!({"type": "authorized_user", "client_id": "c", "client_secret": "s"}), "refresh_token: is required"),
            (without(external(), "credential_source"), "credential_source: is required"),
            (with(external(), "credential_source", json!({"executable": {}})), "needs file or url"),
            (with(external(), "credential_source", json!({"file": "/a", "url": "https://b"})), "both a file and a url"),
            (
                with(external(), "credential_source", json!({"file": "/a", "format": {"type": "json"}})),
                "subject_token_field_name: is required",
            ),
            (with(external(), "credential_source", json!({"file": "/a", "format": {"type": "xml"}})), "\"xml\""),
            (without(external(), "token_url"), "token_url: is required"),
            (with(external(), "service_account_impersonation_url", json!("ftp://x")), "service_account_impersonation_url: must be https"),
        ] {
            let error = parse(&value).unwrap_err();
            assert!(error.contains(says), "{error}");
            assert!(!error.contains("sentinel"), "{error}");
        }
        let error = CredentialFile::parse(b"{\"private_key\": sentinel-key").unwrap_err();
        assert!(error.contains("is no JSON (line 1") && !error.contains("sentinel"), "{error}");
    }
}

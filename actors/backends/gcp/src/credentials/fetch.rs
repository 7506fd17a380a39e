//! Asks for a token, each way of GC-21. The budget of all steps together is the caller's (GC-27).

use std::path::Path;
use std::time::Duration;

use egress_config::open;
use egress_config::providers::gcp::Credentials;
use egress_protocol::{Clock, Secret};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::file::{CredentialFile, External, SubjectSource};
use super::{SCOPE, Token, jwt};
use crate::error::TokenError;

/// Federation asks for the wide scope and the impersonated account for the narrow one, as STS demands.
const STS_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// More than any answer of a token endpoint is.
const ANSWER_LIMIT: usize = 64 * 1024;
/// A token whose lifetime is not said counts as this long.
const UNKNOWN_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Fetches tokens from one source.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    pub(crate) http: reqwest::Client,
    pub(crate) source: Credentials,
    pub(crate) clock: Clock,
}

/// The answer of a token endpoint (RFC 6749 §5.1).
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    expires_in: Option<u64>,
}

/// The answer of an impersonation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Impersonated {
    access_token: String,
}

impl Fetcher {
    /// A new token. Reads the file anew.
    pub(crate) async fn fetch(&self) -> Result<Token, TokenError> {
        match &self.source {
            Credentials::Metadata(host) => self.ask_metadata(host).await,
            Credentials::File { path, .. } => {
                let bytes = read(path).await?;
                let unreadable = |why: String| TokenError::Unreadable(format!("{}: {why}", path.display()));
                match CredentialFile::parse(&bytes).map_err(unreadable)? {
                    CredentialFile::ServiceAccount { email, key_id, key_pem, token_uri } => {
                        let assertion =
                            jwt::assertion(&email, key_id.as_deref(), &key_pem, &token_uri, SCOPE, self.clock.now()).map_err(unreadable)?;
                        let form = [("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"), ("assertion", assertion.expose())];
                        Ok(token(self.post_form(&token_uri, &form).await?, Some(email)))
                    }
                    CredentialFile::AuthorizedUser { client_id, client_secret, refresh_token, token_uri } => {
                        let form = [
                            ("grant_type", "refresh_token"),
                            ("client_id", &client_id),
                            ("client_secret", client_secret.expose()),
                            ("refresh_token", refresh_token.expose()),
                        ];
                        Ok(token(self.post_form(&token_uri, &form).await?, None))
                    }
                    CredentialFile::External(external) => self.exchange(&external).await,
                }
            }
        }
    }

    async fn ask_metadata(&self, host: &str) -> Result<Token, TokenError> {
        let account = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default");
        let get = |path: &str| self.http.get(format!("{account}/{path}")).header("Metadata-Flavor", "Google");
        let answer: TokenAnswer = json(&answer(get(&format!("token?scopes={SCOPE}")), host).await?, host)?;
        // For show only: a server without it gives tokens all the same.
        let email = self::answer(get("email"), host).await.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        Ok(token(answer, email.map(|email| email.trim().to_owned()).filter(|email| email.contains('@'))))
    }

    /// RFC 8693, then the impersonation of a service account where the file asks for one.
    async fn exchange(&self, external: &External) -> Result<Token, TokenError> {
        let subject = self.subject_token(external).await?;
        let scope = if external.impersonation_url.is_some() { STS_SCOPE } else { SCOPE };
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("audience", &external.audience),
            ("scope", scope),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("subject_token_type", &external.subject_token_type),
            ("subject_token", subject.expose()),
        ];
        let federated: TokenAnswer = self.post_form(&external.token_url, &form).await?;
        let Some(url) = &external.impersonation_url else { return Ok(token(federated, None)) };
        let lifetime = Duration::from_secs(60 * 60);
        let body = serde_json::json!({ "scope": [SCOPE], "lifetime": format!("{}s", lifetime.as_secs()) });
        let request = self
            .http
            .post(url)
            .header(AUTHORIZATION, bearer(&federated.access_token)?)
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .body(body.to_string());
        let Impersonated { access_token } = json(&answer(request, &shown(url)).await?, &shown(url))?;
        let email = url.rsplit('/').next().and_then(|last| last.strip_suffix(":generateAccessToken")).map(str::to_owned);
        Ok(token(TokenAnswer { access_token, expires_in: Some(lifetime.as_secs()) }, email))
    }

    async fn subject_token(&self, external: &External) -> Result<Secret, TokenError> {
        let (bytes, from) = match &external.subject.from {
            SubjectSource::File(path) => (read(path).await?, path.display().to_string()),
            SubjectSource::Url { url, headers } => {
                let mut map = HeaderMap::new();
                for (name, value) in headers {
                    let bad = || TokenError::Unreadable(format!("credential_source.headers: {name:?} is no header"));
                    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
                    map.insert(header, HeaderValue::from_str(value.expose()).map_err(|_| bad())?);
                }
                (answer(self.http.get(url).headers(map), &shown(url)).await?, shown(url))
            }
        };
        let unreadable = |why: &str| TokenError::Unreadable(format!("{from}: {why}"));
        let text = String::from_utf8(bytes).map_err(|_| unreadable("is not text"))?;
        let subject = match &external.subject.field {
            None => text.trim().to_owned(),
            Some(field) => {
                let value: serde_json::Value = serde_json::from_str(&text).map_err(|_| unreadable("is no JSON"))?;
                value
                    .get(field)
                    .and_then(serde_json::Value::as_str)
                    .ok_or_else(|| unreadable(&format!("has no text {field:?}")))?
                    .to_owned()
            }
        };
        if subject.is_empty() { Err(unreadable("is empty")) } else { Ok(Secret::new(subject)) }
    }

    async fn post_form<T: DeserializeOwned>(&self, url: &str, form: &[(&str, &str)]) -> Result<T, TokenError> {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.http.post(url).header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        json(&answer(request, &shown(url)).await?, &shown(url))
    }
}

fn token(answer: TokenAnswer, account: Option<String>) -> Token {
    let lasts = answer.expires_in.map_or(UNKNOWN_LIFETIME, Duration::from_secs);
    Token { secret: Secret::new(answer.access_token), lasts, account }
}

/// A header of a secret, marked so that nothing prints it.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, TokenError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| TokenError::Refused("the token that was given is no text that a header can hold".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn read(path: &Path) -> Result<Vec<u8>, TokenError> {
    let at = path.to_owned();
    let read = tokio::task::spawn_blocking(move || open::read(&at)).await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    read.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => TokenError::Missing(format!("{}: {error}", path.display())),
        _ => TokenError::Unreadable(format!("{}: {error}", path.display())),
    })
}

/// The body of a success. What a refusal says is not told on: it may hold what was sent.
async fn answer(request: reqwest::RequestBuilder, from: &str) -> Result<Vec<u8>, TokenError> {
    let refused = |why: String| TokenError::Refused(format!("{from}: {why}"));
    let mut response = request.send().await.map_err(|error| refused(crate::client::cause(error)))?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| refused(crate::client::cause(error)))? {
        if body.len() + chunk.len() > ANSWER_LIMIT {
            return Err(refused(format!("the answer is longer than {ANSWER_LIMIT} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    if status.is_success() {
        return Ok(body);
    }
    Err(refused(match error_code(&body) {
        Some(code) => format!("HTTP {}, {code}", status.as_u16()),
        None => format!("HTTP {}", status.as_u16()),
    }))
}

/// `error` of RFC 6749 §5.2, if it is one of its plain words.
fn error_code(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = value.get("error")?;
    let word = error.as_str().or_else(|| error.get("status")?.as_str())?;
    (word.len() <= 64 && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')).then(|| word.to_owned())
}

fn json<T: DeserializeOwned>(bytes: &[u8], from: &str) -> Result<T, TokenError> {
    serde_json::from_slice(bytes).map_err(|_| TokenError::Refused(format!("{from}: the answer is no token")))
}

/// Only the host of a URL is shown (PC-75).
fn shown(url: &str) -> String {
    reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| "the token endpoint".to_owned())
}

#[cfg(test)]
mod tests;

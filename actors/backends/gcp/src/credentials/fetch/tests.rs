//! Each source of tokens against token endpoints on loopback (GC-21, GC-22).

use std::sync::{Arc, Mutex};

use egress_protocol::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::config::Budgets;
use crate::testing::rsa_key;

/// Answers each request by the part of its path that is listed; keeps what was asked, head and body.
struct Endpoint {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Endpoint {
    #[expect(clippy::disallowed_methods, reason = "a test's server, whose handle ends it")]
    async fn new(answers: &[(&'static str, u16, Value)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answers) = (Arc::clone(&asked), answers.to_vec());
        let task = tokio::spawn(async move {
            loop {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let mut request = Vec::new();
                while !complete(&request) {
                    let mut chunk = [0; 4096];
                    match stream.read(&mut chunk).await {
                        Ok(n) if n > 0 => request.extend_from_slice(&chunk[..n]),
                        _ => break,
                    }
                }
                let request = String::from_utf8(request).unwrap();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                kept.lock().unwrap().push(request);
                let found = answers.iter().find(|(part, ..)| path.contains(part));
                let (status, body) = found.map_or((404, "no".to_owned()), |(_, status, body)| {
                    (*status, body.as_str().map_or_else(|| body.to_string(), str::to_owned))
                });
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, asked, task }
    }

    fn host(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn fetcher(source: Credentials) -> Fetcher {
    crate::testing::install_crypto();
    let http = crate::client::http(&Budgets::default()).unwrap();
    Fetcher { http, source, clock: Clock::starting_at(Timestamp::parse("2026-12-01T12:00:00Z").unwrap()) }
}

fn token_answer(token: &str) -> Value {
    json!({"access_token": token, "expires_in": 3599, "token_type": "Bearer"})
}

/// A credential file, which lives as long as its folder.
fn file(content: &Value) -> (tempfile::TempDir, Credentials) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("credentials.json");
    std::fs::write(&path, content.to_string()).unwrap();
    (folder, Credentials::File { path, named_by: "credentialsFile" })
}

#[tokio::test]
async fn the_metadata_server_is_asked_with_its_header() {
    let server = Endpoint::new(&[("/token", 200, token_answer("of-metadata")), ("/email", 200, json!("sa@p.example"))]).await;
    let token = fetcher(Credentials::Metadata(server.host().to_owned())).fetch().await.unwrap();
    assert_eq!((token.secret.expose().as_str(), token.lasts), ("of-metadata", Duration::from_secs(3599)));
    assert_eq!(token.account.as_deref(), Some("sa@p.example"));
    assert!(server.asked().iter().all(|asked| asked.to_ascii_lowercase().contains("metadata-flavor: google")), "{:?}", server.asked());
}

#[tokio::test]
async fn a_service_account_exchanges_its_assertion_at_its_token_uri() {
    let server = Endpoint::new(&[("/token", 200, token_answer("of-key"))]).await;
    let uri = format!("{}/token", server.url);
    let (_folder, source) =
        file(&json!({"type": "service_account", "client_email": "a@p", "private_key": rsa_key().pem, "token_uri": uri}));
    let token = fetcher(source).fetch().await.unwrap();
    assert_eq!((token.secret.expose().as_str(), token.account.as_deref()), ("of-key", Some("a@p")));
    let asked = server.asked().remove(0);
    assert!(asked.contains("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=ey"), "{asked}");
}

#[tokio::test]
async fn a_persons_refresh_token_is_exchanged() {
    let server = Endpoint::new(&[("/token", 200, token_answer("of-user"))]).await;
    let uri = format!("{}/token", server.url);
    let (_folder, source) =
        file(&json!({"type": "authorized_user", "client_id": "c", "client_secret": "s&", "refresh_token": "r", "token_uri": uri}));
    assert_eq!(fetcher(source).fetch().await.unwrap().secret.expose(), "of-user");
    let asked = server.asked().remove(0);
    assert!(asked.ends_with("grant_type=refresh_token&client_id=c&client_secret=s%26&refresh_token=r"), "{asked}");
}

/// Federation: the other issuer's token comes from a file or a URL, is exchanged, and may speak for a service account.
#[tokio::test]
async fn another_issuers_token_is_exchanged_and_impersonates() {
    let server = Endpoint::new(&[
        ("/subject", 200, json!({"id_token": "of-issuer"})),
        ("/sts", 200, token_answer("federated")),
        (":generateAccessToken", 200, json!({"accessToken": "impersonated", "expireTime": "2026-12-01T13:00:00Z"})),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("subject"), "of-file\n").unwrap();
    let base = json!({
        "type": "external_account", "audience": "//iam/x", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{}/sts", server.url),
    });
    let mut by_file = base.clone();
    by_file["credential_source"] = json!({"file": folder.path().join("subject")});
    let (_one, source) = file(&by_file);
    assert_eq!(fetcher(source).fetch().await.unwrap().secret.expose(), "federated");
    assert!(server.asked()[0].ends_with("subject_token=of-file"), "{:?}", server.asked());
    let mut by_url = base;
    let format = json!({"type": "json", "subject_token_field_name": "id_token"});
    by_url["credential_source"] = json!({"url": format!("{}/subject", server.url), "headers": {"X-Own": "h"}, "format": format});
    by_url["service_account_impersonation_url"] = json!(format!("{}/v1/sa@p:generateAccessToken", server.url));
    let (_two, source) = file(&by_url);
    let token = fetcher(source).fetch().await.unwrap();
    assert_eq!((token.secret.expose().as_str(), token.account.as_deref()), ("impersonated", Some("sa@p")));
    let asked = server.asked();
    assert!(asked[1].to_ascii_lowercase().contains("x-own: h") && asked[2].ends_with("subject_token=of-issuer"), "{asked:?}");
    assert!(asked[3].to_ascii_lowercase().contains("authorization: bearer federated"), "{asked:?}");
}

/// GC-22, PC-57, PC-75: what is missing may land, what cannot be read is no use, and no answer is told on.
#[tokio::test]
async fn each_failure_has_its_kind_and_none_says_a_secret() {
    let missing = Credentials::File { path: "/nowhere/credentials.json".into(), named_by: "credentialsFile" };
    assert!(matches!(fetcher(missing).fetch().await, Err(TokenError::Missing(_))));
    let (_folder, unknown) = file(&json!({"type": "gdch_service_account"}));
    assert!(matches!(fetcher(unknown).fetch().await, Err(TokenError::Unreadable(_))));
    for (status, body, says) in [
        (400, json!({"error": "invalid_grant", "error_description": "sentinel"}), "HTTP 400, invalid_grant"),
        (500, json!("sentinel"), "HTTP 500"),
        (200, json!("sentinel"), "is no token"),
        (302, json!({}), "HTTP 302"),
    ] {
        let server = Endpoint::new(&[("/token", status, body)]).await;
        let uri = format!("{}/token", server.url);
        let (_folder, source) = file(
            &json!({"type": "authorized_user", "client_id": "c", "client_secret": "sentinel", "refresh_token": "sentinel", "token_uri": uri}),
        );
        match fetcher(source).fetch().await {
            Err(TokenError::Refused(text)) => assert!(text.contains(says) && !text.contains("sentinel"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Issue 10, 9: reading a FIFO would wait for somebody who writes to it.
#[tokio::test]
async fn what_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let fetcher = fetcher(Credentials::File { path, named_by: "credentialsFile" });
    let read = tokio::time::timeout(Duration::from_secs(5), fetcher.fetch()).await.expect("it does not wait");
    assert!(matches!(&read, Err(TokenError::Unreadable(text)) if text.contains("it is a FIFO")), "{read:?}");
}

/// PC-74: the file is read for each token.
#[tokio::test]
async fn a_file_that_is_replaced_is_used_by_the_next_fetch() {
    let server = Endpoint::new(&[("/one", 200, token_answer("one")), ("/two", 200, token_answer("two"))]).await;
    let user = |path: &str| json!({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "token_uri": format!("{}/{path}", server.url)});
    let (folder, source) = file(&user("one"));
    let fetcher = fetcher(source);
    assert_eq!(fetcher.fetch().await.unwrap().secret.expose(), "one");
    std::fs::write(folder.path().join("credentials.json"), user("two").to_string()).unwrap();
    assert_eq!(fetcher.fetch().await.unwrap().secret.expose(), "two");
}

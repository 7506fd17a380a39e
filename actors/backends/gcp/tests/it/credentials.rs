//! What a call comes to when its token cannot be had, and that the next one needs no restart (GC-21, GC-22, GC-27, PC-57, PC-74).

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_config::providers::gcp::Credentials;
use egress_protocol::provider::ErrorClass;
use egress_provider::Backend;
use serde_json::json;
use tokio::time::Instant;

use crate::{Bed, call, request};

/// What a token endpoint does.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Token,
    Hangs,
    Answers(u16, &'static str),
}

/// A token endpoint in threads of its own, which end with the process.
struct Endpoint {
    address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    asked: Arc<AtomicUsize>,
}

impl Endpoint {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Self { address: listener.local_addr().unwrap(), manner: Arc::new(Mutex::new(Manner::Token)), asked: Arc::default() };
        let (manner, asked) = (Arc::clone(&endpoint.manner), Arc::clone(&endpoint.asked));
        std::thread::spawn(move || {
            let mut hanging = Vec::new();
            for mut stream in listener.incoming().map_while(Result::ok) {
                asked.fetch_add(1, Ordering::Relaxed);
                let head = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).count();
                assert!(head > 0);
                let (status, body) = match *manner.lock().unwrap() {
                    Manner::Token => (200, json!({"access_token": "token-1", "expires_in": 3600}).to_string()),
                    Manner::Answers(status, body) => (status, body.to_owned()),
                    Manner::Hangs => {
                        hanging.push(stream);
                        continue;
                    }
                };
                let _ = write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            }
        });
        endpoint
    }

    fn is(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// A person's credentials, whose refresh token is exchanged here.
    fn write(&self, path: &Path) {
        let file = json!({
            "type": "authorized_user", "client_id": "c", "client_secret": "sentinel-secret", "refresh_token": "sentinel-refresh",
            "token_uri": format!("http://{}/token", self.address),
        });
        std::fs::write(path, file.to_string()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_credential_has_its_class_and_the_next_call_sees_it_mended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.json");
    let endpoint = Endpoint::new();
    let file = Credentials::File { path: path.clone(), named_by: "gcp.credentialsFile" };
    let bed = Bed::new(|config| {
        config.credentials = file;
        config.budgets.token = Duration::from_millis(300);
    })
    .await;
    let fails = async |class: ErrorClass, says: &str| {
        let started = Instant::now();
        let error = bed.backend.create(&request("u-1", ""), &call()).await.unwrap_err();
        assert_eq!(error.class, class, "{says}: {}", error.message);
        assert!(error.message.contains(says) && !error.message.contains("sentinel"), "{says}: {}", error.message);
        assert_eq!(error.environment, class == ErrorClass::Permanent, "{says}: what is Permanent is no fault of the Proxy");
        assert!(started.elapsed() < Duration::from_secs(5), "{says}: {:?}", started.elapsed());
    };
    fails(ErrorClass::Transient, "key.json").await;
    std::fs::write(&path, "no JSON").unwrap();
    fails(ErrorClass::Permanent, "is no JSON").await;
    std::fs::write(&path, r#"{"type": "gdch_service_account"}"#).unwrap();
    fails(ErrorClass::Permanent, "gdch_service_account").await;
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    fails(ErrorClass::Permanent, "key.json").await;
    std::fs::remove_dir(&path).unwrap();
    endpoint.write(&path);
    for (manner, says) in [
        (Manner::Hangs, "no answer within 300ms"),
        (Manner::Answers(500, "sentinel"), "HTTP 500"),
        (Manner::Answers(200, "sentinel"), "is no token"),
        (Manner::Answers(400, r#"{"error": "invalid_grant", "error_description": "sentinel"}"#), "invalid_grant"),
    ] {
        endpoint.is(manner);
        fails(ErrorClass::Transient, says).await;
    }
    assert!(bed.fake.take_log().is_empty(), "without a token nothing is sent");

    // Mended: the next calls work, with one fetch for all of them.
    endpoint.is(Manner::Token);
    endpoint.asked.store(0, Ordering::Relaxed);
    let requests: Vec<_> = (0..20).map(|n| request(&format!("u-{n}"), "")).collect();
    let calls: Vec<_> = (0..20).map(|_| call()).collect();
    let made = futures::future::join_all(requests.iter().zip(&calls).map(|(request, call)| bed.backend.create(request, call))).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    assert_eq!((bed.fake.instances().len(), endpoint.asked.load(Ordering::Relaxed)), (20, 1));
}

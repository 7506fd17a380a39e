//! The two review endpoints over plain HTTP, keep-alive included.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{RwLock, RwLockWriteGuard, watch};
use tokio::task::JoinSet;

/// How it answers.
#[derive(Debug, Clone)]
pub(super) enum Manner {
    /// As its world says.
    Answers,
    /// This to everything.
    Says(u16, String),
    /// Not at all to that kind.
    Silent(&'static str),
    /// By closing the connection.
    HangsUp,
}

/// What it knows.
pub(super) struct World {
    pub(super) users: HashMap<&'static str, &'static str>,
    pub(super) may: HashSet<&'static str>,
    pub(super) manner: Manner,
    asked: Vec<Asked>,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) body: Value,
}

/// See the module; ends when dropped.
pub(super) struct Api {
    world: Arc<Mutex<World>>,
    count: watch::Receiver<usize>,
    gate: &'static RwLock<()>,
    folder: TempDir,
    _task: JoinSet<()>,
}

impl Api {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "our-own"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(folder.path().join("kubeconfig"), config.to_string()).unwrap();
        let world = Arc::new(Mutex::new(World {
            users: [("scraper-token", "scraper"), ("stranger-token", "stranger")].into(),
            may: ["scraper"].into(),
            manner: Manner::Answers,
            asked: Vec::new(),
        }));
        let (counted, count) = watch::channel(0);
        let gate: &'static RwLock<()> = Box::leak(Box::default());
        let (shared, mut task) = (Arc::clone(&world), JoinSet::new());
        task.spawn(async move {
            let (counted, mut connections) = (Arc::new(counted), JoinSet::new());
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&shared), Arc::clone(&counted), gate));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { world, count, gate, folder, _task: task }
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.world.lock().unwrap());
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.world.lock().unwrap().asked.clone()
    }

    /// The tokens it was asked about, in order.
    pub(super) fn tokens(&self) -> Vec<String> {
        self.asked().iter().filter_map(|asked| asked.body["spec"]["token"].as_str().map(str::to_owned)).collect()
    }

    /// Waits until that many requests have come.
    pub(super) async fn wait_for(&self, requests: usize) {
        self.count.clone().wait_for(|count| *count >= requests).await.unwrap();
    }

    /// Answers nothing more until this is dropped; notes what comes.
    pub(super) fn hold(&self) -> RwLockWriteGuard<'static, ()> {
        self.gate.try_write().unwrap()
    }
}

async fn serve(mut stream: TcpStream, world: Arc<Mutex<World>>, counted: Arc<watch::Sender<usize>>, gate: &'static RwLock<()>) {
    let mut bytes = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        assert!(head.to_ascii_lowercase().contains("authorization: bearer our-own"), "{head}");
        let length: usize = head.to_ascii_lowercase().split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        while bytes.len() < end + length {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "cut off");
        }
        let body: Value = serde_json::from_slice(&bytes[end..end + length]).unwrap();
        bytes.drain(..end + length);
        let path = head.split(' ').nth(1).unwrap().trim_end_matches('?').to_owned();
        let answer = {
            let mut world = world.lock().unwrap();
            world.asked.push(Asked { path, body: body.clone() });
            answer(&world, &body)
        };
        counted.send_modify(|count| *count += 1);
        drop(gate.read().await);
        let Some((code, text)) = answer else {
            if matches!(world.lock().unwrap().manner, Manner::Silent(_)) {
                std::future::pending::<()>().await;
            }
            return;
        };
        let head = format!("HTTP/1.1 {code} Said\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", text.len());
        if stream.write_all(&[head.as_bytes(), text.as_bytes()].concat()).await.is_err() {
            return;
        }
    }
}

fn answer(world: &World, body: &Value) -> Option<(u16, String)> {
    let (kind, spec) = (body["kind"].as_str().unwrap(), &body["spec"]);
    match &world.manner {
        Manner::Says(code, text) => return Some((*code, text.clone())),
        Manner::HangsUp => return None,
        Manner::Silent(to) if *to == kind => return None,
        Manner::Silent(_) | Manner::Answers => {}
    }
    let status = if kind == "TokenReview" {
        match world.users.get(spec["token"].as_str().unwrap()) {
            Some(user) => json!({"authenticated": true, "user": {
                "username": user, "uid": format!("uid-of-{user}"), "groups": ["system:authenticated"], "extra": {"example.com/id": ["1", "2"]},
            }}),
            None => json!({"user": {}, "error": "[invalid bearer token, token lookup failed]"}),
        }
    } else {
        json!({"allowed": world.may.contains(spec["user"].as_str().unwrap()), "reason": ""})
    };
    let mut whole = body.clone();
    whole["metadata"] = json!({"creationTimestamp": null});
    whole["status"] = status;
    Some((201, whole.to_string()))
}

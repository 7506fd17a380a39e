//! Someone who may do everything at an API server, for arranging and looking; blocks, on a runtime of its own.

use std::path::Path;
use std::sync::Arc;

use egress_kube::ApiClient;
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};

use super::kit::access;
use super::outside;

/// See the module.
#[derive(Clone)]
pub struct Admin {
    pub client: Client,
}

/// The two sorts of patches we send.
const MERGE: &str = "application/merge-patch+json";

impl Admin {
    pub fn new(kubeconfig: &Path) -> Self {
        let client = ApiClient::new(access(kubeconfig));
        let link = outside(async move { client.link().await }).unwrap();
        Self { client: link.client.clone() }
    }

    /// Code, `Retry-After` and body, whatever that is.
    pub fn raw(&self, method: &str, path: &str, body: &str) -> (u16, Option<String>, String) {
        self.at_once(1, method, path, body).remove(0)
    }

    /// The same request several times at once.
    pub fn at_once(&self, times: usize, method: &str, path: &str, body: &str) -> Vec<(u16, Option<String>, String)> {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(body.as_bytes().to_vec()).unwrap();
        let ask = |client: Client, request: Request<Vec<u8>>| async move {
            let response = client.send(request.map(Into::into)).await.unwrap();
            let after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (code, after, String::from_utf8(body.to_vec()).unwrap())
        };
        let all: Vec<_> = (0..times).map(|_| ask(self.client.clone(), request.clone())).collect();
        outside(futures::future::join_all(all))
    }

    /// Code and body.
    pub fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        let client = self.client.clone();
        outside(async move { ask(&client, request).await }).unwrap()
    }

    /// The object, if it is there.
    pub fn get(&self, path: &str) -> Option<Value> {
        match self.send("GET", path, "application/json", &Value::Null) {
            (200, body) => Some(body),
            (404, _) => None,
            other => panic!("GET {path}: {other:?}"),
        }
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("POST", path, "application/json", body)
    }

    /// Made, or there already.
    pub fn ensure(&self, path: &str, body: &Value) {
        let (code, answer) = self.post(path, body);
        assert!(matches!(code, 200 | 201 | 409), "POST {path}: {code} {answer}");
    }

    pub fn patch(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("PATCH", path, MERGE, body)
    }

    pub fn delete(&self, path: &str, grace: Option<i64>) -> (u16, Value) {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace});
        self.send("DELETE", path, "application/json", &options)
    }
}

async fn ask(client: &Client, request: Request<Vec<u8>>) -> Result<(u16, Value), kube::Error> {
    let response = client.send(request.map(Into::into)).await?;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((code, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

/// What tests do to Pods, at either API server.
#[derive(Clone)]
pub struct Hands {
    pub admin: Admin,
    pub namespace: Arc<str>,
    /// Where Pods are bound to.
    pub node: &'static str,
}

impl Hands {
    pub fn path(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{name}", self.namespace)
    }

    pub fn pods(&self) -> Vec<Value> {
        let list = self.admin.get(&format!("/api/v1/namespaces/{}/pods", self.namespace)).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    pub fn pod(&self, name: &str) -> Option<Value> {
        self.admin.get(&self.path(name))
    }

    /// As a scheduler and a kubelet would have it: on a node, running, with an address.
    pub fn start(&self, name: &str) {
        self.bind(name);
        let octets = name.bytes().rev().take(2).map(u32::from).map(|byte| byte % 250 + 1).collect::<Vec<_>>();
        let ip = format!("10.77.{}.{}", octets[0], octets[1]);
        self.set_status(name, &json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}));
    }

    pub fn bind(&self, name: &str) {
        if self.pod(name).is_some_and(|pod| pod["spec"]["nodeName"].is_string()) {
            return;
        }
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": &*self.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node}});
        let (code, answer) = self.admin.post(&format!("{}/binding", self.path(name)), &binding);
        assert!(matches!(code, 200 | 201), "binding {name}: {code} {answer}");
    }

    pub fn set_status(&self, name: &str, status: &Value) {
        let (code, answer) = self.admin.patch(&format!("{}/status", self.path(name)), &json!({"status": status}));
        assert_eq!(code, 200, "status of {name}: {answer}");
    }

    /// `false`: the API server refuses such a label.
    pub fn label(&self, name: &str, key: &str, value: Option<&str>) -> bool {
        let (code, answer) = self.admin.patch(&self.path(name), &json!({"metadata": {"labels": {key: value}}}));
        assert!(matches!(code, 200 | 422), "labels of {name}: {code} {answer}");
        code == 200
    }

    /// As a kubelet would end it, at once.
    pub fn end(&self, name: &str) {
        let (code, answer) = self.admin.delete(&self.path(name), Some(0));
        assert!(matches!(code, 200 | 404), "end of {name}: {code} {answer}");
    }
}

//! A transport under the backend's client that hands requests on to a real one; what happens to which call is the suite's
//! [`egress_conformance::Relay`].

use std::ops::Deref;

use egress_conformance::{Fault, Relay as Core};
use egress_kube::ApiClient;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tower::BoxError;

use super::outside;

/// See the module. Clones are one.
#[derive(Clone)]
pub struct Relay {
    core: Core,
    real: Client,
    server: String,
}

impl Deref for Relay {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Relay {
    pub fn new(real: Client, server: impl Into<String>) -> Self {
        Self { core: Core::new(), real, server: server.into() }
    }

    /// A client over it, for the runtime it is called in.
    pub fn client(&self) -> ApiClient {
        let relay = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let relay = relay.clone();
            async move { relay.hand_on(request).await }
        });
        ApiClient::over(Client::new(service, "default"), self.server.clone())
    }

    async fn hand_on(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let call = name(request.method(), request.uri().path());
        let (parts, body) = request.into_parts();
        // In memory already.
        let body = body.collect_bytes().await?;
        let real = self.real.clone();
        let send = move || -> Result<Response<Body>, BoxError> {
            let answered = outside(async move {
                let response = real.send(Request::from_parts(parts, Body::from(body))).await?;
                let (parts, body) = response.into_parts();
                Ok::<_, kube::Error>(Response::from_parts(parts, body.collect_bytes().await?))
            });
            Ok(answered?.map(Body::from))
        };
        self.core.carry(call, |fault| failure(fault, call), send).await
    }
}

/// The call of the seam that a request is.
fn name(method: &Method, path: &str) -> &'static str {
    let pod = path.rsplit_once('/').is_some_and(|(before, _)| before.ends_with("/pods"));
    match (method.as_str(), path) {
        (_, "/version") => "version",
        ("POST", _) => "create_pod",
        ("DELETE", _) => "delete_pod",
        ("GET", _) if pod => "get_pod",
        ("GET", _) => "list_pods",
        other => panic!("the backend makes no such call: {other:?}"),
    }
}

fn failure(fault: Fault, call: &str) -> Result<Response<Body>, BoxError> {
    let status = |code: u16, reason: &str, message: &str| {
        let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code});
        Ok(Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))?)
    };
    match fault {
        Fault::Unreachable => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()),
        Fault::LinkDown => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
        Fault::Unauthorised => status(401, "Unauthorized", "Unauthorized"),
        Fault::Erring => status(500, "InternalError", "Internal error occurred: etcdserver: leader changed"),
        Fault::Quota if call == "create_pod" => {
            status(403, "Forbidden", "pods \"p\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1")
        }
        Fault::Quota => status(429, "TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    }
}

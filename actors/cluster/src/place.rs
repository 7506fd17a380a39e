//! Which cluster this is: the installation's identity (PC-51) and the API server's addresses (HE-10).

use std::net::IpAddr;

use egress_kube::{AccessError, ApiClient, ApiError, REQUEST, Request};
use egress_protocol::InstallationId;
use serde::Deserialize;

/// The Namespace whose UID is the cluster's identity.
const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";

#[derive(Deserialize)]
struct Namespace {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
}

/// The default identity of an operator in that namespace (PC-51). It needs `get` on the one Namespace `kube-system`.
pub async fn installation(client: &ApiClient, operator_namespace: &str) -> Result<InstallationId, ApiError> {
    let answer = client.send(REQUEST, || Ok(()), &Request::get("namespaces", KUBE_SYSTEM)).await?;
    let unreadable = |error: &dyn std::fmt::Display| ApiError::Transport(format!("the Namespace kube-system cannot be read: {error}"));
    let namespace: Namespace = serde_json::from_str(&answer).map_err(|error| unreadable(&error))?;
    if namespace.metadata.uid.is_empty() {
        return Err(unreadable(&"it has no UID"));
    }
    Ok(InstallationId::derived(&namespace.metadata.uid, operator_namespace))
}

/// Where the API server is as we reach it: no endpoint and no check URL may lead there (HE-10).
pub async fn server_addresses(client: &ApiClient) -> Result<Vec<IpAddr>, AccessError> {
    let link = client.link().await?;
    let unknown = |error: &dyn std::fmt::Display| AccessError(format!("the address of the API server {}: {error}", link.server));
    let server: http::Uri = link.server.parse().map_err(|error| unknown(&error))?;
    let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let found = tokio::time::timeout(REQUEST, tokio::net::lookup_host((host, 0))).await;
    let found = found.map_err(|_| unknown(&"its name is not resolved in time"))?.map_err(|error| unknown(&error))?;
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

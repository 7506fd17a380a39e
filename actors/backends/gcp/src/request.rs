//! The requests of the API, as data: one function per call. Pure.
//!
//! What is not a plain segment is percent-encoded by the URL type. A request is sent as it is, so that the one repeat after
//! a refused token has the same `requestId` (GC-5).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::{InstanceName, Secret};
use rand::Rng;
use reqwest::{Method, Url};

use crate::body::InsertBody;
use crate::config::GcpConfig;
use crate::id::VmRef;

/// What every instance of ours has, for lists (GC-15).
const MANAGED_FILTER: &str = "labels.proxy-operator-managed = true";

/// The calls of the client seam.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SeamCall {
    Insert,
    Get,
    Delete,
    List,
    GetOperation,
    ListOperations,
    GetRegion,
}

impl SeamCall {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Get => "get",
            Self::Delete => "delete",
            Self::List => "list",
            Self::GetOperation => "get_operation",
            Self::ListOperations => "list_operations",
            Self::GetRegion => "get_region",
        }
    }
}

/// One request without its token.
#[derive(Clone)]
pub(crate) struct ApiRequest {
    pub(crate) call: SeamCall,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) body: Option<Arc<Secret<Vec<u8>>>>,
    /// How long it may take (GC-27).
    pub(crate) budget: Duration,
    /// The zone it is about, if one.
    pub(crate) zone: Option<String>,
    /// The instance it is about, if one.
    pub(crate) name: Option<InstanceName>,
}

impl fmt::Debug for ApiRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiRequest").field("call", &self.call).field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

/// Makes the requests of one entry.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    project: Url,
    config: Arc<GcpConfig>,
}

impl Requests {
    /// The error is a fault of the configuration (PC-73).
    pub(crate) fn new(config: Arc<GcpConfig>) -> Result<Self, String> {
        let text = format!("{}/compute/v1/projects/{}", config.endpoint.trim_end_matches('/'), config.project);
        let project = Url::parse(&text).ok().filter(|url| url.host_str().is_some() && !url.cannot_be_a_base());
        Ok(Self { project: project.ok_or_else(|| format!("endpoint: {:?} is no URL", config.endpoint))?, config })
    }

    /// The host that is asked.
    pub(crate) fn host(&self) -> &str {
        self.project.host_str().unwrap_or_default()
    }

    pub(crate) fn insert(&self, at: &VmRef, body: &InsertBody) -> ApiRequest {
        let mut request = self.of(SeamCall::Insert, Method::POST, &["zones", &at.zone, "instances"], Some(at));
        request.url.query_pairs_mut().append_pair("requestId", &request_id());
        request.body = Some(Arc::new(body.to_bytes()));
        request
    }

    pub(crate) fn get(&self, at: &VmRef) -> ApiRequest {
        self.of(SeamCall::Get, Method::GET, &["zones", &at.zone, "instances", at.name.as_str()], Some(at))
    }

    pub(crate) fn delete(&self, at: &VmRef) -> ApiRequest {
        let mut request = self.of(SeamCall::Delete, Method::DELETE, &["zones", &at.zone, "instances", at.name.as_str()], Some(at));
        request.url.query_pairs_mut().append_pair("requestId", &request_id());
        request
    }

    /// One page of all instances with the managed label, in all zones (GC-15).
    pub(crate) fn list(&self, page_size: u32, token: Option<&str>) -> ApiRequest {
        self.aggregated(MANAGED_FILTER, page_size, token)
    }

    /// The instances of that name, in all zones (GC-14).
    pub(crate) fn find(&self, name: &InstanceName) -> ApiRequest {
        self.aggregated(&format!("name = {name}"), self.config.budgets.page_size, None)
    }

    fn aggregated(&self, filter: &str, page_size: u32, token: Option<&str>) -> ApiRequest {
        let mut request = self.of(SeamCall::List, Method::GET, &["aggregated", "instances"], None);
        request.budget = self.config.budgets.page;
        let mut query = request.url.query_pairs_mut();
        query.append_pair("filter", filter);
        query.append_pair("maxResults", &page_size.to_string());
        query.append_pair("returnPartialSuccess", "true");
        if let Some(token) = token {
            query.append_pair("pageToken", token);
        }
        drop(query);
        request
    }

    pub(crate) fn operation(&self, at: &VmRef, operation: &str) -> ApiRequest {
        self.of(SeamCall::GetOperation, Method::GET, &["zones", &at.zone, "operations", operation], Some(at))
    }

    /// The newest operation on an instance (GC-11).
    pub(crate) fn newest_operation(&self, at: &VmRef) -> ApiRequest {
        let mut request = self.of(SeamCall::ListOperations, Method::GET, &["zones", &at.zone, "operations"], Some(at));
        request
            .url
            .query_pairs_mut()
            .append_pair("filter", &format!("targetLink eq .*/zones/{}/instances/{}", at.zone, at.name))
            .append_pair("orderBy", "creationTimestamp desc")
            .append_pair("maxResults", "1");
        request
    }

    pub(crate) fn region(&self, region: &str) -> ApiRequest {
        self.of(SeamCall::GetRegion, Method::GET, &["regions", region], None)
    }

    fn of(&self, call: SeamCall, method: Method, path: &[&str], at: Option<&VmRef>) -> ApiRequest {
        let mut url = self.project.clone();
        // The project's URL can be a base: `new` saw to it.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        ApiRequest {
            call,
            method,
            url,
            body: None,
            budget: self.config.budgets.request,
            zone: at.map(|at| at.zone.clone()),
            name: at.map(|at| at.name.clone()),
        }
    }
}

/// A random UUID (RFC 9562 §5.4). Never derived from the Proxy: a used one would swallow a later insert (GC-5).
fn request_id() -> String {
    let mut bytes: [u8; 16] = rand::rng().random();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use egress_protocol::Uid;

    use super::*;
    use crate::testing::config;

    fn requests() -> Requests {
        Requests::new(Arc::new(config())).unwrap()
    }

    fn at() -> VmRef {
        VmRef { zone: "europe-west1-b".to_owned(), name: InstanceName::of(&Uid::new("u-1")) }
    }

    #[test]
    fn each_call_has_its_path() {
        let (requests, at) = (requests(), at());
        let base = "https://compute.googleapis.com/compute/v1/projects/p-1";
        let zone = format!("{base}/zones/europe-west1-b");
        assert_eq!(requests.get(&at).url.as_str(), format!("{zone}/instances/{}", at.name));
        assert_eq!(requests.operation(&at, "operation-1").url.as_str(), format!("{zone}/operations/operation-1"));
        assert_eq!(requests.region("europe-west1").url.as_str(), format!("{base}/regions/europe-west1"));
        let deletes = requests.delete(&at);
        assert!(deletes.url.as_str().starts_with(&format!("{zone}/instances/{}?requestId=", at.name)) && deletes.method == Method::DELETE);
        let list = requests.list(500, Some("token/with space"));
        let query: Vec<_> = list.url.query_pairs().into_owned().collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(list.url.path(), "/compute/v1/projects/p-1/aggregated/instances");
        assert_eq!(
            query,
            [
                pair("filter", "labels.proxy-operator-managed = true"),
                pair("maxResults", "500"),
                pair("returnPartialSuccess", "true"),
                pair("pageToken", "token/with space"),
            ]
        );
    }

    /// GC-5: a UUID that is new for each delete and each insert.
    #[test]
    fn a_request_id_is_a_random_uuid() {
        let (one, other) = (request_id(), request_id());
        assert_ne!(one, other);
        let parts: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(one.as_bytes()[14], b'4');
        assert!(matches!(one.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
    }

    /// A domain-scoped project is one path segment, and an operation's name cannot leave its path.
    #[test]
    fn what_is_put_into_a_path_stays_one_segment() {
        let request = requests().operation(&at(), "../../x?y#z");
        assert!(request.url.path().ends_with("/operations/..%2F..%2Fx%3Fy%23z"), "{}", request.url.path());
        assert!(request.url.query().is_none() && request.url.fragment().is_none());
    }
}

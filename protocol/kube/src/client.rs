//! A client that is made when it is first needed, and anew after a 401.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use kube::Client;
use tokio::time::Instant;

use crate::{Access, AccessError, ApiError};

/// A connection is made within this (K8-14).
pub const CONNECT: Duration = Duration::from_secs(5);
/// An ordinary call is answered within this (OP-29).
pub const REQUEST: Duration = Duration::from_secs(10);
/// Credentials are not read again more often than this after a 401.
const RENEWAL: Duration = Duration::from_secs(5);

/// One made client, and what is known of its other end.
pub struct Link {
    /// The client.
    pub client: Client,
    /// The API server's URL.
    pub server: String,
    /// The namespace of the kubeconfig's context or of the Pod.
    pub namespace: String,
    made: Instant,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.server).field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Of one user; clones share the connection.
#[derive(Clone)]
pub struct ApiClient {
    /// `None`: the link was given and stays.
    access: Option<Access>,
    link: Arc<ArcSwapOption<Link>>,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").field("access", &self.access).finish_non_exhaustive()
    }
}

impl ApiClient {
    /// Reads and sends nothing.
    pub fn new(access: Access) -> Self {
        Self { access: Some(access), link: Arc::default() }
    }

    /// Over a client that somebody made, for tests with a transport of their own. Its credentials are never read again.
    pub fn over(client: Client, server: impl Into<String>) -> Self {
        let namespace = client.default_namespace().to_owned();
        let link = Link { client, server: server.into(), namespace, made: Instant::now() };
        Self { access: None, link: Arc::new(ArcSwapOption::from_pointee(link)) }
    }

    /// The client, made if there is none. Reads files, sends nothing.
    pub async fn link(&self) -> Result<Arc<Link>, AccessError> {
        match self.link.load_full() {
            Some(link) => Ok(link),
            None => self.make().await,
        }
    }

    /// Reads the credentials again and drops the connections, unless that was done a moment ago.
    pub async fn renew(&self) -> Result<Arc<Link>, AccessError> {
        match self.link.load_full() {
            Some(link) if self.access.is_none() || link.made.elapsed() < RENEWAL => Ok(link),
            _ => self.make().await,
        }
    }

    async fn make(&self) -> Result<Arc<Link>, AccessError> {
        let access = self.access.as_ref().ok_or_else(|| AccessError("there is no other client than the one given".to_owned()))?;
        let config = access.load().await?;
        let (server, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| AccessError(format!("no client for {server}: {error}")))?;
        let link = Arc::new(Link { client, server, namespace, made: Instant::now() });
        self.link.store(Some(Arc::clone(&link)));
        Ok(link)
    }

    /// Calls within `deadline`; a 401 is tried once more with the credentials read again. `call` may run twice.
    pub async fn call<T, F>(&self, deadline: Duration, call: impl Fn(Client) -> F + Send + Sync) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, kube::Error>> + Send,
    {
        let calls = async {
            let link = self.link().await?;
            let error = match call(link.client.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => ApiError::from(error),
            };
            if error.code() != Some(401) {
                return Err(error);
            }
            let renewed = self.renew().await?;
            if Arc::ptr_eq(&renewed, &link) {
                return Err(error);
            }
            Ok(call(renewed.client.clone()).await?)
        };
        tokio::time::timeout(deadline, calls).await.unwrap_or(Err(ApiError::Timeout(deadline)))
    }
}

//! A client that is made when it is first needed, and anew after a 401 or when its connections seem dead.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::{AsyncBufRead, FutureExt};
use kube::Client;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::{Access, AccessError, ApiError, Request};

/// A connection is made within this (K8-14).
pub const CONNECT: Duration = Duration::from_secs(5);
/// An ordinary call is answered within this (OP-29).
pub const REQUEST: Duration = Duration::from_secs(10);
/// A page of a list is answered within this (OP-29).
pub const LIST_PAGE: Duration = Duration::from_secs(60);
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

/// Of one user; clones share the connections.
#[derive(Clone)]
pub struct ApiClient {
    /// `None`: the link was given and stays.
    access: Option<Access>,
    link: Arc<ArcSwapOption<Link>>,
    /// Held while one is made: many that need one at once make one.
    making: Arc<Mutex<()>>,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").field("access", &self.access).finish_non_exhaustive()
    }
}

/// The span of one of our own calls (OB-3): below the span it is part of, and none without one.
pub fn span(verb: &'static str, kind: &'static str) -> Span {
    if Span::current().is_none() {
        return Span::none();
    }
    tracing::info_span!(target: "otel", "kube", otel.name = format!("kube.{verb}.{kind}"), otel.kind = "client")
}

impl ApiClient {
    /// Reads and sends nothing.
    pub fn new(access: Access) -> Self {
        Self { access: Some(access), link: Arc::default(), making: Arc::default() }
    }

    /// A client of the same user with no connection of this one, unless it was made [`ApiClient::over`] another.
    #[must_use]
    pub fn afresh(&self) -> Self {
        self.access.clone().map_or_else(|| self.clone(), Self::new)
    }

    /// Over a client that somebody made, for tests with a transport of their own. Its credentials are never read again.
    pub fn over(client: Client, server: impl Into<String>) -> Self {
        let namespace = client.default_namespace().to_owned();
        let link = Link { client, server: server.into(), namespace, made: Instant::now() };
        Self { access: None, link: Arc::new(ArcSwapOption::from_pointee(link)), making: Arc::default() }
    }

    /// The client, made if there is none. Reads files, sends nothing.
    pub async fn link(&self) -> Result<Arc<Link>, AccessError> {
        match self.link.load_full() {
            Some(link) => Ok(link),
            None => self.make(None).await,
        }
    }

    /// Reads the credentials again and drops the connections, unless that was done a moment ago.
    pub async fn renew(&self) -> Result<Arc<Link>, AccessError> {
        let link = self.link.load_full();
        self.make(link).await
    }

    /// Another one than `used`, unless that is fresh: its credentials are as new as can be.
    async fn make(&self, used: Option<Arc<Link>>) -> Result<Arc<Link>, AccessError> {
        let _held = self.making.lock().await;
        if let Some(link) = self.link.load_full()
            && (self.access.is_none() || used.is_none_or(|used| !Arc::ptr_eq(&used, &link)) || link.made.elapsed() < RENEWAL)
        {
            return Ok(link);
        }
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
        self.guarded(deadline, || Ok(()), call).await
    }

    /// As [`Self::call`]; `guard` is asked right before anything is sent, and nothing is when it refuses (SV-4).
    pub async fn guarded<T, F>(
        &self,
        deadline: Duration,
        guard: impl Fn() -> Result<(), ApiError> + Send + Sync,
        call: impl Fn(Client) -> F + Send + Sync,
    ) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, kube::Error>> + Send,
    {
        let mut used = None;
        let calls = async {
            let link = self.link().await?;
            used = Some(Arc::clone(&link));
            guard()?;
            let error = match call(link.client.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => ApiError::from(error),
            };
            if error.code() != Some(401) {
                return Err(error);
            }
            let renewed = self.make(Some(Arc::clone(&link))).await?;
            if Arc::ptr_eq(&renewed, &link) {
                return Err(error);
            }
            guard()?;
            Ok(call(renewed.client.clone()).await?)
        };
        let answer = tokio::time::timeout(deadline, calls).await.unwrap_or(Err(ApiError::Timeout(deadline)));
        if let (Err(ApiError::Timeout(_)), Some(used), Some(_)) = (&answer, used, &self.access) {
            // Its idle connections may be half open as well: the next call begins with new ones.
            self.link.compare_and_swap(&used, None);
        }
        answer
    }

    /// Sends a request within `deadline`; the answer is JSON. A span of its own stands below the current one (OB-3).
    pub async fn send(
        &self,
        deadline: Duration,
        guard: impl Fn() -> Result<(), ApiError> + Send + Sync,
        request: &Request,
    ) -> Result<String, ApiError> {
        let ask = |client: Client| {
            let request = request.inner.clone();
            async move { client.request_text(request).await }
        };
        self.guarded(deadline, guard, ask).instrument(span(request.verb, request.kind)).await
    }

    /// Opens an answer that does not end; within `deadline` it begins. Never makes a span (OB-3).
    pub async fn open(&self, deadline: Duration, request: &Request) -> Result<impl AsyncBufRead + Send + Unpin + use<>, ApiError> {
        let ask = |client: Client| {
            let request = request.inner.clone();
            async move { client.request_stream(request).await }.boxed()
        };
        Ok(Box::pin(self.call(deadline, ask).await?))
    }
}

//! The calls to the API server, over the link that the host owns. Each request is one span `kubernetes.<call>` below the
//! operation's and one line in the log (K8-18, K8-19); nothing else of this crate does either.
//!
//! What must stay true: the fence is checked right before each request, and one that closes while a request is on its way
//! out (a connection is being made) stops it (SV-4); every request ends within its budget (K8-14), its caller's deadline,
//! and at once when it is cancelled (PC-64).

mod answer;

use std::sync::Arc;
use std::time::Duration;

use egress_kube::{ApiClient, ApiError};
use egress_protocol::leadership::Fenced;
use egress_provider::{Call, Ground, Host};
use http::Request;
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, GetParams, ListParams, PostParams, Preconditions};
use kube::core::{ObjectList, Status};
use kube::{Client, Resource};
use serde::Deserialize;
use tokio::time::Instant;
use tracing::{Instrument, Span, field};

pub(crate) use answer::{Answer, CallError};

use crate::config::Budgets;
use crate::host::{self, HostArgs, HostMessage};
use crate::id::PodRef;

/// More than any page is.
const ANSWER_LIMIT: usize = 64 * 1024 * 1024;
/// Reading the credentials, which are files or the output of a command.
const CREDENTIALS: Duration = Duration::from_secs(5);
/// Who made the Pods, as the API server remembers it.
const FIELD_MANAGER: &str = "egress-proxies-operator";

/// What every Pod of ours has, for the list (K8-5).
const SELECTOR: &str = "proxy-operator-managed=true";

/// The calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeamCall {
    CreatePod,
    GetPod,
    DeletePod,
    ListPods,
    Version,
}

impl SeamCall {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::CreatePod => "create_pod",
            Self::GetPod => "get_pod",
            Self::DeletePod => "delete_pod",
            Self::ListPods => "list_pods",
            Self::Version => "version",
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::CreatePod => "create",
            Self::GetPod | Self::Version => "get",
            Self::DeletePod => "delete",
            Self::ListPods => "list",
        }
    }
}

/// What a request is about.
#[derive(Debug, Clone, Default)]
struct About {
    namespace: Option<String>,
    name: Option<String>,
}

impl From<&PodRef> for About {
    fn from(at: &PodRef) -> Self {
        Self { namespace: Some(at.namespace.clone()), name: Some(at.name.clone()) }
    }
}

/// One call as data.
#[derive(Debug)]
pub(crate) struct Ask {
    what: SeamCall,
    about: About,
    request: Request<Vec<u8>>,
    budget: Duration,
}

/// The API server, as one entry sees it: the calls, each sent by the entry's host.
pub(crate) struct Api {
    entry: Arc<str>,
    host: Host<HostMessage>,
    pub(crate) budgets: Budgets,
}

/// Carries one entry's calls over one client.
#[derive(Debug, Clone)]
pub(crate) struct Carrier {
    entry: Arc<str>,
    client: ApiClient,
}

impl Api {
    /// Starts the host `host/<entry>/api`, which dials nothing before the first call (PC-73).
    pub(crate) fn new(entry: Arc<str>, client: ApiClient, budgets: Budgets, ground: &Ground) -> Self {
        let host = ground.start_host::<host::Host>("api", HostArgs { entry: Arc::clone(&entry), client });
        Self { entry, host, budgets }
    }

    /// The API server's URL, without user info; `None` while nobody knows it.
    pub(crate) async fn server(&self, call: &Call) -> Option<String> {
        self.host.ask(call, |caller, reply_to| HostMessage::Server { caller, reply_to }).await.ok().flatten()
    }

    pub(crate) async fn create_pod(&self, at: &PodRef, pod: &Pod, call: &Call) -> Result<(), CallError> {
        let body = serde_json::to_vec(pod).map_err(|error| CallError::Garbled(error.to_string()))?;
        tracing::trace!(provider = %self.entry, namespace = at.namespace, name = at.name, pod = shown(pod), "Pod to create");
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let request = pods(Some(&at.namespace)).create(&params, body);
        self.ask(SeamCall::CreatePod, at.into(), request, self.budgets.request, call).await.map(drop)
    }

    pub(crate) async fn get_pod(&self, at: &PodRef, call: &Call) -> Result<Pod, CallError> {
        let request = pods(Some(&at.namespace)).get(&at.name, &GetParams::default());
        let pod = self.ask(SeamCall::GetPod, at.into(), request, self.budgets.request, call).await?.read()?;
        tracing::trace!(provider = %self.entry, namespace = at.namespace, name = at.name, pod = shown(&pod), "Pod read");
        Ok(pod)
    }

    /// Only the Pod with that UID, never a namesake.
    pub(crate) async fn delete_pod(&self, at: &PodRef, uid: &str, call: &Call) -> Result<(), CallError> {
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let request = pods(Some(&at.namespace)).delete(&at.name, &DeleteParams { preconditions, ..DeleteParams::default() });
        self.ask(SeamCall::DeletePod, at.into(), request, self.budgets.request, call).await.map(drop)
    }

    /// One page of all Pods with the managed mark.
    pub(crate) async fn list_pods(
        &self,
        namespace: Option<&str>,
        limit: u32,
        token: Option<&str>,
        call: &Call,
    ) -> Result<ObjectList<Pod>, CallError> {
        let mut params = ListParams::default().labels(SELECTOR).limit(limit);
        params.continue_token = token.map(str::to_owned);
        let about = About { namespace: namespace.map(str::to_owned), name: None };
        self.ask(SeamCall::ListPods, about, pods(namespace).list(&params), self.budgets.list_page, call).await?.read()
    }

    /// The server's version.
    pub(crate) async fn version(&self, call: &Call) -> Result<String, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Info {
            git_version: String,
        }
        let request = Request::get("/version").body(Vec::new()).map_err(kube::core::request::Error::BuildRequest);
        let info: Info = self.ask(SeamCall::Version, About::default(), request, self.budgets.version, call).await?.read()?;
        Ok(info.git_version)
    }

    /// Asks through the host.
    async fn ask(
        &self,
        what: SeamCall,
        about: About,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
        budget: Duration,
        call: &Call,
    ) -> Result<Answer, CallError> {
        let request = request.map_err(|error| CallError::Garbled(error.to_string()))?;
        let ask = Box::new(Ask { what, about, request, budget });
        self.host.ask(call, |caller, reply_to| HostMessage::Ask { ask, caller, reply_to }).await?
    }
}

impl Carrier {
    pub(crate) const fn new(entry: Arc<str>, client: ApiClient) -> Self {
        Self { entry, client }
    }

    /// The API server's URL, without user info; `None` while nobody knows it.
    pub(crate) async fn server(&self) -> Option<String> {
        let link = self.client.link().await.ok()?;
        let url = link.server.trim_end_matches('/');
        let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
        let host = rest.split_once('@').map_or(rest, |(_, host)| host);
        Some(format!("{scheme}://{host}"))
    }

    /// Asks, and once more with the credentials read again if they were refused.
    pub(crate) async fn ask(&self, ask: &Ask, call: &Call) -> Result<Answer, CallError> {
        let budget = ask.budget;
        let attempt = |client: Client| async move {
            let answer = self.attempt(ask, client, call).await;
            match answer {
                Ok(answer) if answer.code == 401 => {
                    Err(kube::Error::Api(answer.status().unwrap_or_else(|| Status::failure("", "Unauthorized").with_code(401).boxed())))
                }
                ended => Ok(ended),
            }
        };
        // An attempt watches caller and budget itself; what is left to watch here is the reading of credentials.
        let longest = budget * 2 + CREDENTIALS;
        let answer = tokio::select! {
            biased;
            ended = self.client.call(longest, attempt) => match ended {
                Ok(Err(error @ CallError::OutOfBudget(_))) => {
                    self.reconnect().await;
                    return Err(error);
                }
                Ok(ended) => ended?,
                Err(ApiError::Status(status)) => return Err(CallError::Refused { status, retry_after: None }),
                Err(error) => return Err(error.into()),
            },
            end = call.ended() => return Err(end.into()),
        };
        answer.refused().map_or(Ok(answer), Err)
    }

    /// A connection that does not answer may be half open, and the idle ones beside it as well: the next call has new ones.
    async fn reconnect(&self) {
        if let Ok(Err(error)) = tokio::time::timeout(CREDENTIALS, self.client.renew()).await {
            tracing::debug!(provider = %self.entry, %error, "no new client, the old one stays");
        }
    }

    /// One request.
    async fn attempt(&self, ask: &Ask, client: Client, call: &Call) -> Result<Answer, CallError> {
        call.fence.check()?;
        let span = span(ask.what, &ask.about);
        let started = Instant::now();
        let answer = async {
            // In this order, so that a process that was frozen while it connected sends nothing when it wakes.
            tokio::select! {
                biased;
                () = call.fence.until_closed() => Err(Fenced.into()),
                end = call.ended() => Err(end.into()),
                () = tokio::time::sleep(ask.budget) => Err(CallError::OutOfBudget(ask.budget)),
                answer = send(&client, ask.request.clone()) => answer,
            }
        }
        .instrument(span.clone())
        .await;
        self.note(ask, &span, started, &answer);
        answer
    }

    fn note(&self, ask: &Ask, span: &Span, started: Instant, answer: &Result<Answer, CallError>) {
        let code = answer.as_ref().map_or(None, |answer| Some(answer.code));
        let error = match answer {
            Ok(answer) => answer.refused().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(code) = code {
            span.record("status", code);
        }
        // That something is not there is an answer as good as any.
        if error.is_some() && code != Some(404) {
            span.record("otel.status_code", "ERROR");
        }
        let say = || {
            tracing::debug!(
                provider = %self.entry,
                call = ask.what.as_str(),
                namespace = ask.about.namespace,
                name = ask.about.name,
                duration = started.elapsed().as_secs_f64(),
                httpStatus = code,
                error,
                "kubernetes call"
            );
        };
        // Without a span of its own the line belongs to the operation's.
        if span.is_none() { say() } else { span.in_scope(say) }
    }
}

fn pods(namespace: Option<&str>) -> kube::core::Request {
    kube::core::Request::new(Pod::url_path(&(), namespace))
}

async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<Answer, CallError> {
    let unanswered = |error: kube::Error| CallError::from(ApiError::from(error));
    let response = client.send(request.map(Into::into)).await.map_err(unanswered)?;
    let code = response.status().as_u16();
    let seconds = response.headers().get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let retry_after = seconds.map(Duration::from_secs);
    let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
    let body = body.map_err(|error| CallError::Unanswered(ApiError::Transport(format!("the answer broke off: {error}"))))?.to_bytes();
    Ok(Answer { code, retry_after, body })
}

/// Only below a span: what nobody asked for begins no trace (K8-19). The name of a span is part of its type.
fn span(what: SeamCall, about: &About) -> Span {
    macro_rules! kubernetes_span {
        ($name:literal) => {
            tracing::info_span!(
                target: "otel",
                $name,
                otel.kind = "client",
                otel.status_code = field::Empty,
                verb = what.verb(),
                namespace = about.namespace,
                name = about.name,
                status = field::Empty,
            )
        };
    }
    if Span::current().is_none() {
        return Span::none();
    }
    match what {
        SeamCall::CreatePod => kubernetes_span!("kubernetes.create_pod"),
        SeamCall::GetPod => kubernetes_span!("kubernetes.get_pod"),
        SeamCall::DeletePod => kubernetes_span!("kubernetes.delete_pod"),
        SeamCall::ListPods => kubernetes_span!("kubernetes.list_pods"),
        SeamCall::Version => kubernetes_span!("kubernetes.version"),
    }
}

/// A Pod without what may be secret in it: others add containers and variables to our Pods (K8-18).
fn shown(pod: &Pod) -> String {
    if !tracing::enabled!(tracing::Level::TRACE) {
        return String::new();
    }
    let mut pod = pod.clone();
    pod.metadata.managed_fields = None;
    if let Some(spec) = &mut pod.spec {
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            for variable in container.env.iter_mut().flatten() {
                variable.value = None;
            }
        }
    }
    serde_json::to_string(&pod).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;

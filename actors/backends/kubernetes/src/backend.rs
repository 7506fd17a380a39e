//! The provider contract over the calls. The link is the host's, and nothing is remembered between operations (K8-17): what
//! is is what the API server says, which is consistent, so that a Pod that was made is there for whoever asks next (PC-17).

use std::fmt;
use std::sync::Arc;

use egress_kube::ApiClient;
use egress_protocol::provider::{CreateRequest, DeleteOutcome, Instance, InstanceKey, ListResult, TargetVerdict};
use egress_protocol::{InstallationId, InstanceId, InstanceName, Uid};
use egress_provider::ownership::Ownership;
use egress_provider::{Backend, BackendError, Call, Ground, Location, Subject};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;

use crate::api::Api;
use crate::class::{self, failed, not_created};
use crate::config::KubernetesConfig;
use crate::id::PodRef;
use crate::{check, pod, state};
use egress_config::providers::CloudInitPolicy;

/// The slots of a create, a get and a delete are all at one place.
const LOCATION: &str = "apiserver";

/// Squid Pods at one API server.
pub struct KubernetesBackend {
    config: KubernetesConfig,
    pub(crate) api: Api,
}

impl fmt::Debug for KubernetesBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesBackend").field("entry", &self.config.entry).finish_non_exhaustive()
    }
}

impl KubernetesBackend {
    /// Reads and sends nothing (K8-4, PC-73).
    pub fn new(config: KubernetesConfig, client: ApiClient, ground: &Ground) -> Self {
        Self { api: Api::new(Arc::clone(&config.entry), client, config.budgets, ground), config }
    }

    async fn make(&self, request: &CreateRequest, call: &Call) -> Result<InstanceId, BackendError> {
        if request.uid.as_str().trim().is_empty() {
            return Err(BackendError::permanent("the UID is empty"));
        }
        let at = PodRef::new(&request.namespace, request.name.as_str())?;
        self.cloud_init(request)?;
        match self.api.create_pod(&at, &pod::pod(request, &self.config), call).await {
            Ok(()) => Ok(at.id()),
            Err(error) if class::is_taken(&error) => self.adopt(&at, request, call).await,
            Err(error) => Err(not_created(format_args!("making Pod {at}"), error)),
        }
    }

    /// A Pod has no use for it (K8-3).
    fn cloud_init(&self, request: &CreateRequest) -> Result<(), BackendError> {
        let bytes = request.cloud_init.expose().len();
        match self.config.cloud_init {
            _ if bytes == 0 => Ok(()),
            CloudInitPolicy::Reject => Err(BackendError::permanent(format!(
                "cloudInit: has {bytes} bytes, and this provider's cloudInitPolicy is Reject: a Pod runs its image, not cloud-init"
            ))),
            CloudInitPolicy::Ignore => {
                tracing::warn!(
                    provider = %self.config.entry,
                    instance = %request.name,
                    namespace = %request.namespace,
                    bytes,
                    "WARNING: a Pod has no use for cloud-init, it is ignored"
                );
                Ok(())
            }
        }
    }

    /// The name is taken: by our own Pod, by one on its way out, or by somebody else's (K8-9). Port or image may differ:
    /// the spec's hash replaces it.
    async fn adopt(&self, at: &PodRef, request: &CreateRequest, call: &Call) -> Result<InstanceId, BackendError> {
        let pod = match self.api.get_pod(at, call).await {
            Ok(pod) => pod,
            Err(error) if class::is_absent(&error) => {
                return Err(BackendError::transient(format!("Pod {at} vanished while it was made")).caused_by(error));
            }
            Err(error) => return Err(not_created(format_args!("reading Pod {at}, whose name is taken"), error)),
        };
        if pod.metadata.deletion_timestamp.is_some() {
            return Err(BackendError::transient(format!("Pod {at} is still being deleted: {}", state::observe(&pod).detail)).about(at.id()));
        }
        match Ownership::of(pod.metadata.labels.as_ref()).differs(&request.uid, &request.installation) {
            None => Ok(at.id()),
            Some(mark) => Err(BackendError::permanent(format!("Pod {at} is not ours: its mark {mark} differs")).about(at.id())),
        }
    }

    async fn read(&self, key: &InstanceKey, call: &Call) -> Result<Instance, BackendError> {
        let id = key.id.as_ref().ok_or_else(|| BackendError::permanent("get needs an id"))?;
        let at = PodRef::parse(id)?;
        let pod = self.api.get_pod(&at, call).await.map_err(|error| failed(format_args!("reading Pod {at}"), error).about(id.clone()))?;
        if let Some(mark) = Ownership::of(pod.metadata.labels.as_ref()).differs(&key.uid, &key.installation) {
            self.warn_foreign(&at, mark);
            return Err(BackendError::not_found(format!("Pod {at} is not ours: its mark {mark} differs")).about(id.clone()));
        }
        report(&at, &pod)
    }

    async fn remove(&self, key: &InstanceKey, call: &Call) -> Result<DeleteOutcome, BackendError> {
        let at = match &key.id {
            Some(id) => PodRef::parse(id)?,
            None => PodRef::new(&key.namespace, key.name.as_str())?,
        };
        if key.uid.as_str().trim().is_empty() {
            // Only leftovers would be removed, and this type makes none (PC-40).
            return Ok(DeleteOutcome::Gone);
        }
        match self.remove_once(&at, key, call).await? {
            Some(outcome) => Ok(outcome),
            // Another Pod took its place between the read and the delete: whose is it? (K8-11)
            None => match self.remove_once(&at, key, call).await? {
                Some(outcome) => Ok(outcome),
                None => Err(BackendError::transient(format!("Pod {at} changed under its delete twice")).about(at.id())),
            },
        }
    }

    /// `None`: it is another Pod by now.
    async fn remove_once(&self, at: &PodRef, key: &InstanceKey, call: &Call) -> Result<Option<DeleteOutcome>, BackendError> {
        let pod = match self.api.get_pod(at, call).await {
            Ok(pod) => pod,
            Err(error) if class::is_absent(&error) => return Ok(Some(DeleteOutcome::Gone)),
            Err(error) => return Err(failed(format_args!("reading Pod {at}"), error).about(at.id())),
        };
        if let Some(mark) = Ownership::of(pod.metadata.labels.as_ref()).differs(&key.uid, &key.installation) {
            self.warn_foreign(at, mark);
            return Ok(Some(DeleteOutcome::Gone));
        }
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(Some(DeleteOutcome::InProgress));
        }
        let uid = pod.metadata.uid.ok_or_else(|| BackendError::transient(format!("Pod {at} was read without its UID")).about(at.id()))?;
        match self.api.delete_pod(at, &uid, call).await {
            Ok(()) => Ok(Some(DeleteOutcome::InProgress)),
            Err(error) if class::is_absent(&error) => Ok(Some(DeleteOutcome::Gone)),
            Err(error) if class::is_conflict(&error) => Ok(None),
            Err(error) => Err(failed(format_args!("deleting Pod {at}"), error).about(at.id())),
        }
    }

    async fn list(&self, call: &Call) -> Result<ListResult, BackendError> {
        let mut pods: Vec<Instance> = Vec::new();
        let mut token: Option<String> = None;
        let mut anew = false;
        loop {
            let size = self.config.budgets.page_size;
            let page = match self.api.list_pods(self.config.namespace.as_deref(), size, token.as_deref(), call).await {
                Ok(page) => page,
                // Too old by now: once more from the beginning, for pages of two moments would be no list.
                Err(error) if token.is_some() && !anew && class::is_expired(&error) => {
                    (token, anew) = (None, true);
                    pods.clear();
                    continue;
                }
                Err(error) => return Err(failed("listing Pods", error)),
            };
            for pod in page.items {
                pods.extend(self.ours(&pod)?);
            }
            token = page.metadata.continue_.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(ListResult { instances: pods, ..ListResult::default() });
            }
        }
    }

    /// As an instance, if it is one of this installation's (PC-43).
    fn ours(&self, pod: &Pod) -> Result<Option<Instance>, BackendError> {
        if !Ownership::of(pod.metadata.labels.as_ref()).is_of(&self.config.installation) {
            return Ok(None);
        }
        let of = |part: &Option<String>| part.clone().unwrap_or_default();
        let at = PodRef::new(&of(&pod.metadata.namespace), &of(&pod.metadata.name))?;
        report(&at, pod).map(Some)
    }

    fn warn_foreign(&self, at: &PodRef, mark: &'static str) {
        tracing::warn!(
            provider = %self.config.entry,
            instance = at.name,
            namespace = at.namespace,
            mark,
            "WARNING: a Pod of that name is not ours, it is left alone"
        );
    }
}

/// A Pod as an instance; its marks were looked at before.
fn report(at: &PodRef, pod: &Pod) -> Result<Instance, BackendError> {
    let seen = state::observe(pod);
    let marks = Ownership::of(pod.metadata.labels.as_ref());
    // The only way to a name that was not derived here: as its text.
    let name: InstanceName = serde_json::from_value(serde_json::Value::String(at.name.clone()))?;
    Ok(Instance {
        id: at.id(),
        name,
        state: seen.state,
        state_detail: Some(seen.detail),
        deleting: seen.deleting,
        ip: seen.ip,
        uid: Uid::new(marks.uid),
        installation: InstallationId::new(marks.installation),
        created_at: state::created_at(pod),
    })
}

impl Backend for KubernetesBackend {
    fn type_name(&self) -> &'static str {
        crate::TYPE
    }

    fn location_of(&self, _subject: Subject<'_>) -> Location {
        Location::new(LOCATION)
    }

    fn create<'a>(&'a self, request: &'a CreateRequest, call: &'a Call) -> BoxFuture<'a, Result<InstanceId, BackendError>> {
        Box::pin(self.make(request, call))
    }

    fn get<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<Instance, BackendError>> {
        Box::pin(self.read(key, call))
    }

    fn delete<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<DeleteOutcome, BackendError>> {
        Box::pin(self.remove(key, call))
    }

    fn list_managed<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<ListResult, BackendError>> {
        Box::pin(self.list(call))
    }

    fn check<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Vec<TargetVerdict>>> {
        Some(Box::pin(check::check(&self.api, self.config.namespace.as_deref(), call)))
    }
}

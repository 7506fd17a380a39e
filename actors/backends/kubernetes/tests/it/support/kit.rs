//! Requests, keys and calls without the ceremony.

use std::path::Path;
use std::sync::Arc;

use egress_backend_kubernetes::{KubernetesBackend, KubernetesConfig};
use egress_kube::{Access, ApiClient};
use egress_protocol::leadership::Fence;
use egress_protocol::provider::{CreateRequest, DeleteOutcome, Instance, InstanceKey, ListResult, Op, TargetVerdict};
use egress_protocol::resource::Placement;
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Secret, Uid};
use egress_provider::{Backend, BackendError, Call};
use egress_supervision::System;

/// In every cloud-init.
pub const CLOUD_INIT: &str = "SENTINEL-cloud-init-0d3c";

pub fn installation() -> InstallationId {
    InstallationId::new("it-ours")
}

pub fn config() -> KubernetesConfig {
    KubernetesConfig { owned: false, ..KubernetesConfig::new("pods", installation()) }
}

pub fn access(kubeconfig: &Path) -> Access {
    Access { kubeconfig: Some(kubeconfig.to_owned()) }
}

/// A backend on a ground of its own, which lasts as long as the test's runtime.
pub async fn backend(config: KubernetesConfig, kubeconfig: &Path) -> Arc<KubernetesBackend> {
    over(config, ApiClient::new(access(kubeconfig))).await
}

pub async fn over(config: KubernetesConfig, client: ApiClient) -> Arc<KubernetesBackend> {
    standing(config, client).await.0
}

/// The host of [`standing`].
pub const HOST: &str = "host/pods/api";

/// The same with the tree that it stands in, where its host can be killed.
pub async fn standing(config: KubernetesConfig, client: ApiClient) -> (Arc<KubernetesBackend>, System) {
    let build = move |ground: &_| Ok(Arc::new(KubernetesBackend::new(config.clone(), client.clone(), ground)));
    let (backend, system, root) = egress_conformance::lend("pods", Clock::system(), Fence::open(), build).await.unwrap();
    // The tree ends with its root, and is to last as long as the test.
    std::mem::forget(root);
    (backend, system)
}

pub fn request(namespace: &str, uid: &str) -> CreateRequest {
    CreateRequest {
        name: InstanceName::of(&Uid::new(uid)),
        uid: Uid::new(uid),
        installation: installation(),
        namespace: namespace.into(),
        proxy_name: "px".into(),
        placement: Placement::default(),
        cloud_init: Arc::new(Secret::new(CLOUD_INIT.as_bytes().to_vec())),
        port: 3128,
    }
}

pub fn key(request: &CreateRequest) -> InstanceKey {
    InstanceKey {
        id: Some(InstanceId::new(format!("{}/{}", request.namespace, request.name))),
        name: request.name.clone(),
        uid: request.uid.clone(),
        installation: request.installation.clone(),
        namespace: Arc::clone(&request.namespace),
        placement: Placement::default(),
    }
}

pub fn call() -> Call {
    Call::until(tokio::time::Instant::now() + Op::Get.deadline())
}

/// The contract with a call of its own each time.
pub trait Calls: Backend {
    async fn made(&self, request: &CreateRequest) -> Result<InstanceId, BackendError> {
        self.create(request, &call()).await
    }
    async fn read(&self, key: &InstanceKey) -> Result<Instance, BackendError> {
        self.get(key, &call()).await
    }
    async fn gone(&self, key: &InstanceKey) -> Result<DeleteOutcome, BackendError> {
        self.delete(key, &call()).await
    }
    async fn all(&self) -> Result<ListResult, BackendError> {
        self.list_managed(&call()).await
    }
    async fn checked(&self) -> TargetVerdict {
        let mut verdicts = self.check(&call()).unwrap().await;
        assert_eq!(verdicts.len(), 1);
        verdicts.remove(0)
    }
}

impl Calls for KubernetesBackend {}

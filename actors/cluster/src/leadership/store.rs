//! Where the Lease is kept: the API server, or a test's double.

use std::sync::Arc;
use std::time::Duration;

use egress_kube::{ApiClient, ApiError};
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};

use super::LeaderSettings;

/// An answer, or why there is none.
pub type Call<T> = BoxFuture<'static, Result<T, ApiError>>;

/// One Lease. Every call ends within its own deadline; dropping it gives up waiting.
pub trait LeaseStore: Send + Sync + 'static {
    /// Reads it.
    fn get(&self) -> Call<Option<Lease>>;
    /// Makes it; 409 when there is one.
    fn create(&self, lease: Lease) -> Call<Lease>;
    /// Writes it over its `resourceVersion`; 409 when it has another, 404 when there is none.
    fn replace(&self, lease: Lease) -> Call<Lease>;
}

/// The API server's.
#[derive(Debug)]
pub(super) struct ApiLeases {
    client: ApiClient,
    namespace: Arc<str>,
    name: Arc<str>,
    deadline: Duration,
}

impl ApiLeases {
    pub(super) fn new(client: ApiClient, settings: &LeaderSettings) -> Self {
        let (namespace, name) = (settings.namespace.as_str().into(), settings.name.as_str().into());
        Self { client, namespace, name, deadline: settings.attempt() }
    }

    fn call<T, F>(&self, ask: impl Fn(Api<Lease>, Arc<str>) -> F + Send + Sync + 'static) -> Call<T>
    where
        T: 'static,
        F: Future<Output = Result<T, kube::Error>> + Send + 'static,
    {
        let (client, namespace, name, deadline) = (self.client.clone(), Arc::clone(&self.namespace), Arc::clone(&self.name), self.deadline);
        Box::pin(async move { client.call(deadline, |client| ask(Api::namespaced(client, &namespace), Arc::clone(&name))).await })
    }
}

fn ours() -> PostParams {
    PostParams { field_manager: Some("egress-proxies-operator".to_owned()), ..PostParams::default() }
}

impl LeaseStore for ApiLeases {
    fn get(&self) -> Call<Option<Lease>> {
        self.call(|api, name| async move { api.get_opt(&name).await })
    }

    fn create(&self, lease: Lease) -> Call<Lease> {
        self.call(move |api, _| {
            let lease = lease.clone();
            async move { api.create(&ours(), &lease).await }
        })
    }

    fn replace(&self, lease: Lease) -> Call<Lease> {
        self.call(move |api, name| {
            let lease = lease.clone();
            async move { api.replace(&name, &ours(), &lease).await }
        })
    }
}

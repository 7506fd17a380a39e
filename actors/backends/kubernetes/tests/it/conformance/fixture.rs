//! An API server, double or real, and what somebody can do to the Pods there.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use egress_backend_kubernetes::{Budgets, KubernetesBackend, KubernetesConfig, TYPE};
use egress_conformance::{
    Alter, AsyncOps, BackendTest, BadPlacement, ChildSpans, Classified, ClientKind, CreateReturn, CreatedAt, Credentials, DeleteReturn,
    Entry, Fault, Fixture, GcMark, Hook, Intervention, IpSource, ListPartial, Logging, NotApplicable, NotFound, Object, PrimaryKey,
    Profiles, ProvisioningState, Quota, Readiness, SecondaryResources, Timeouts, Tls, World, cut_by_blocking,
};
use egress_protocol::provider::{CreateRequest, InstanceState};
use egress_protocol::resource::Placement;
use egress_protocol::{InstallationId, InstanceId, InstanceName, Uid};
use egress_provider::{Backend, Call, Ground};
use egress_supervision::Failure;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::support::admin::{Admin, Hands};
use crate::support::bed::{Bed, NODE};
use crate::support::double::{Double, TOKEN};
use crate::support::relay::Relay;

/// The namespace of the suite's requests.
const NAMESPACE: &str = "suite";
const PORT: u16 = 3128;
const PAGE: u32 = 3;

fn not<T>(why: &str) -> Hook<T> {
    Err(NotApplicable::because(why))
}

/// The kubernetes backend, at one sort of API server.
pub struct KubernetesFixture {
    real: Option<Bed>,
}

impl KubernetesFixture {
    /// Each test has a double of its own.
    pub fn over_doubles() -> Self {
        Self { real: None }
    }

    /// One after another, in the suite's namespace.
    pub fn at(bed: Bed) -> Self {
        Self { real: Some(bed) }
    }
}

impl Fixture for KubernetesFixture {
    fn type_name(&self) -> &'static str {
        TYPE
    }

    fn profiles(&self) -> Profiles {
        Profiles {
            readiness: Readiness::Immediate,
            create_return: CreateReturn::Submit,
            delete_return: DeleteReturn::ReturnsEarly,
            ip_source: IpSource::AssignedAtCreate,
            gc_mark: GcMark::NativeLabels,
            created_at: CreatedAt::BackendTimestamp,
            list_partial: ListPartial::FailWhole,
            quota: Quota::Detected,
            not_found: NotFound::Status404,
            primary_key: PrimaryKey::NameIsKey,
            provisioning_state: ProvisioningState::Native,
            async_ops: AsyncOps::None,
            secondary_resources: SecondaryResources::None,
            credentials: Credentials::WorkloadIdentity,
            tls: Tls::CaFile,
            client_kind: ClientKind::VendorSdk,
            timeouts: Timeouts::PerCall,
            logging: Logging::Tiered,
            child_spans: ChildSpans::TransportWrapper,
            backend_test: BackendTest::ClusterE2e,
        }
    }

    fn world(&self) -> Box<dyn World> {
        let (hands, double) = match &self.real {
            Some(bed) => (bed.namespace(NAMESPACE, &json!({})), None),
            None => {
                let double = Double::start();
                let admin = Admin::new(&double.kubeconfig());
                (Hands { admin, namespace: NAMESPACE.into(), node: NODE }, Some(double))
            }
        };
        let relay = Relay::new(hands.admin.client.clone(), "https://api.example:6443/");
        Box::new(KubernetesWorld { hands, relay, _double: double })
    }

    fn classified(&self) -> Hook<Vec<Classified>> {
        static TABLE: LazyLock<Vec<Classified>> = LazyLock::new(crate::classes::table);
        Ok(TABLE.clone())
    }
}

struct KubernetesWorld {
    hands: Hands,
    relay: Relay,
    _double: Option<Double>,
}

impl KubernetesWorld {
    fn named(&self, name: &InstanceName) -> Hook<Value> {
        self.hands.pod(name.as_str()).ok_or_else(|| NotApplicable::because(format!("there is no Pod {name}")))
    }
}

fn instance(name: &str) -> InstanceName {
    serde_json::from_value(name.into()).unwrap()
}

impl World for KubernetesWorld {
    fn build(&self, entry: &Entry, ground: &Ground) -> Result<Arc<dyn Backend>, Failure> {
        let config = KubernetesConfig {
            budgets: Budgets { page_size: PAGE, ..Budgets::default() },
            // The Proxies of the suite are no objects: a real collector would delete their Pods at once.
            owned: false,
            ..KubernetesConfig::new(Arc::clone(&entry.name), entry.installation.clone())
        };
        Ok(Arc::new(KubernetesBackend::new(config, self.relay.client(), ground)))
    }

    fn placement(&self) -> (Placement, u16) {
        (Placement::default(), PORT)
    }

    /// A scheduler and a kubelet.
    fn settle(&self) -> BoxFuture<'_, ()> {
        self.relay.wait();
        for pod in self.hands.pods() {
            let name = pod["metadata"]["name"].as_str().unwrap();
            if pod["metadata"]["deletionTimestamp"].is_string() {
                self.hands.end(name);
            } else if pod["status"]["phase"] == "Pending" {
                self.hands.start(name);
            }
        }
        Box::pin(std::future::ready(()))
    }

    fn objects(&self) -> Vec<Object> {
        self.relay.wait();
        let object = |pod: &Value| {
            let name = pod["metadata"]["name"].as_str().unwrap();
            // Not what controllers say beside us.
            let parts = ["uid", "labels", "annotations", "deletionTimestamp", "ownerReferences", "finalizers"];
            let metadata: Value = parts.into_iter().map(|part| pod["metadata"][part].clone()).collect();
            let content = format!("{metadata} {} {}", pod["spec"], pod["status"]["phase"]);
            Object { kind: Object::INSTANCE, name: format!("{NAMESPACE}/{name}"), instance: instance(name), content }
        };
        self.hands.pods().iter().map(object).collect()
    }

    fn calm(&self) {
        self.relay.calm();
    }

    fn bad_placements(&self) -> Hook<Vec<BadPlacement>> {
        not("K8-2: all of placement is ignored")
    }

    fn malformed_ids(&self) -> Vec<String> {
        ["suite/", "/x", "suite", "suite/a/b", "Suite/x", "suite/X", "suite/..", "suite/proxy_x", "a.b/x"].map(str::to_owned).to_vec()
    }

    fn unconfigured_id(&self, _: &InstanceName) -> Hook<InstanceId> {
        not("there is one location, the API server; its namespaces are not configured")
    }

    fn calls(&self) -> Hook<Vec<String>> {
        Ok(self.relay.calls())
    }

    fn intervene(&self, n: usize, what: Intervention) -> Hook {
        self.relay.intervene(n, what);
        Ok(())
    }

    fn during(&self, n: usize, then: Box<dyn FnOnce() + Send>) -> Hook {
        self.relay.before(n, then);
        Ok(())
    }

    fn fail_all(&self, fault: Fault) -> Hook {
        self.relay.fail_all(fault);
        Ok(())
    }

    fn cut_create<'a>(
        &'a self,
        backend: &'a dyn Backend,
        request: &'a CreateRequest,
        call: &'a Call,
        step: usize,
    ) -> BoxFuture<'a, Hook<bool>> {
        Box::pin(cut_by_blocking(self, backend, request, call, step))
    }

    fn marks(&self, name: &InstanceName) -> Hook<Option<BTreeMap<String, String>>> {
        self.relay.wait();
        Ok(self.hands.pod(name.as_str()).map(|pod| serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap_or_default()))
    }

    fn alter(&self, name: &InstanceName, change: &Alter) -> Hook {
        self.named(name)?;
        let taken = match change {
            Alter::Strip(mark) => self.hands.label(name.as_str(), mark.key(), None),
            Alter::Set(mark, value) => self.hands.label(name.as_str(), mark.key(), Some(value)),
            Alter::Corrupt | Alter::Unreadable => {
                return not("labels come with their Pod and are text: they cannot be unreadable by themselves");
            }
        };
        if taken { Ok(()) } else { not("Kubernetes refuses white space in a label") }
    }

    fn states(&self) -> Hook<Vec<(&'static str, InstanceState)>> {
        not(
            "no Pod is ever paused; the table is held by `every_row_of_the_table`, and at a real API server by `every_row_of_the_state_table_k8_10`",
        )
    }

    fn set_state(&self, _: &InstanceName, _: &str) -> Hook {
        not("see the states")
    }

    fn lock(&self, _: &InstanceName, _: bool) -> Hook {
        not("async-ops is none")
    }

    fn fail_task(&self, _: &InstanceName, _: &str) -> Hook {
        not("async-ops is none")
    }

    fn begin_delete(&self, name: &InstanceName) -> Hook {
        self.hands.admin.delete(&self.hands.path(name.as_str()), None);
        Ok(())
    }

    fn hide_address(&self, name: &InstanceName) -> Hook {
        self.hands.set_status(name.as_str(), &json!({"podIP": null, "podIPs": null}));
        Ok(())
    }

    fn fail_address_sources(&self, _: Fault) -> Hook {
        not("ip-source is assigned-at-create")
    }

    fn drop_secondary(&self, _: &InstanceName) -> Hook {
        not("secondary-resources is none")
    }

    fn mismatch_disk(&self, _: &InstanceName) -> Hook {
        not("secondary-resources is none")
    }

    fn add_leftover(&self, _: &InstanceName, _: Option<&InstallationId>) -> Hook {
        not("secondary-resources is none")
    }

    fn add_other_type(&self, _: &InstanceName, _: &Uid, _: &InstallationId) -> Hook {
        not("no other type makes Pods")
    }

    fn cut_off_part(&self) -> Hook<String> {
        self.relay.fail_all(Fault::Unreachable);
        Ok("apiserver".to_owned())
    }

    fn more_than_two_pages(&self) -> usize {
        2 * usize::try_from(PAGE).unwrap() + 1
    }

    fn remove_credentials(&self, _: bool) -> Hook {
        not("credentials is workload-identity; `a_refused_token_is_read_again_once` has the token")
    }

    fn rotate_credentials(&self) -> Hook {
        not("credentials is workload-identity; `a_refused_token_is_read_again_once` has the token")
    }

    fn targets(&self) -> Hook<Vec<String>> {
        Ok(vec!["apiserver".to_owned()])
    }

    fn secrets(&self) -> Vec<String> {
        vec![TOKEN.to_owned()]
    }

    fn host(&self) -> Hook<String> {
        Ok("api".to_owned())
    }

    fn elsewhere(&self) -> Hook<Placement> {
        not("one API server is all there is")
    }

    fn hold_outside(&self, _held: bool) -> Hook {
        not("nothing is waited for outside")
    }
}

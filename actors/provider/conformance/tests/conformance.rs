//! The suite proves itself: the reference backend passes all of it in each of its styles, and each mutant of it fails the
//! test named for the rule it breaks (PC-91). The mutants of OP-28 are none of a backend: they are with the proxy's machine,
//! in `actors/proxy/src/machine/tests/proven.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests are tests, and `--nocapture` shows the report"
)]

use std::collections::BTreeSet;

use egress_conformance::reference::{Mutation, ReferenceFixture, Style};
use egress_conformance::{self as conformance, Report};

fn show(report: &Report) {
    println!("{report}");
}

#[test]
fn the_reference_backend_passes_everything() {
    let report = conformance::run(&ReferenceFixture::new(Style::Early));
    show(&report);
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.not_applicable, [], "it offers every hook");
    assert_eq!(report.passed.len(), conformance::statements().count());
}

#[test]
fn the_reference_backend_passes_in_its_other_style() {
    let report = conformance::run(&ReferenceFixture::new(Style::Plain));
    show(&report);
    assert!(report.is_ok(), "{report}");
    let not: Vec<_> = report.not_applicable.iter().map(|(id, _)| *id).collect();
    assert_eq!(not, ["CT-13"], "its addresses are not discovered");
}

#[test]
fn every_mutant_is_caught_by_the_test_named_for_it() {
    let escaped: Vec<_> = Mutation::ALL
        .iter()
        .filter(|mutation| {
            let report = conformance::run_one(&ReferenceFixture::broken(**mutation), mutation.caught_by());
            let caught = report.failed.iter().any(|(id, _)| *id == mutation.caught_by());
            !caught
        })
        .collect();
    assert!(escaped.is_empty(), "not caught: {escaped:?}");
}

#[test]
fn every_contract_test_has_a_mutant() {
    let with: BTreeSet<_> = Mutation::ALL.iter().map(|mutation| mutation.caught_by()).collect();
    let without: Vec<_> = conformance::statements().map(|(id, _)| id).filter(|id| !with.contains(id)).collect();
    assert!(without.is_empty(), "no mutant for {without:?}");
}

#[test]
fn the_authors_guide_lists_every_test() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/provider-contract.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    for (id, says) in conformance::statements() {
        assert!(guide.contains(&format!("| {id} | {says} |\n")), "{id}: {says}");
    }
}

mod callers {
    //! Those who call providers, on the reference backend (PC-95).

    use std::sync::Arc;
    use std::time::Duration;

    use egress_conformance::reference::{Cloud, ReferenceBackend, ReferenceConfig, Style};
    use egress_protocol::metrics::Metrics;
    use egress_protocol::provider::{
        self, CallContext, CreateRequest, DeleteOutcome, ErrorClass, InstanceKey, ListResult, Op, ProviderError, ProviderMessage,
    };
    use egress_protocol::resource::Placement;
    use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Timestamp, Uid};
    use egress_provider::{ProviderActor, ProviderArgs};
    use egress_supervision::{Address, ChildSpec, Root, System};
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    const LONG: Duration = Duration::from_secs(100_000);

    /// A provider of one operator.
    struct Operator {
        provider: Address<ProviderMessage>,
        installation: InstallationId,
        _root: Root,
    }

    impl Operator {
        async fn start(cloud: &Cloud, installation: &str) -> Self {
            let clock = Clock::starting_at(Timestamp::from_millis(0));
            let config = ReferenceConfig {
                entry: "cloud".into(),
                installation: InstallationId::new(installation),
                clock,
                style: Style::Early,
                mutation: None,
            };
            let (cloud, installation) = (cloud.clone(), config.installation.clone());
            let args = ProviderArgs {
                name: "cloud".into(),
                max_concurrent_creates: 4,
                stop_grace: Duration::ZERO,
                fence: egress_protocol::leadership::Fence::open(),
                build: Arc::new(move |ground| Ok(Arc::new(ReferenceBackend::new(cloud.clone(), config.clone(), ground)))),
            };
            let system = System::new(clock, Metrics::default().shared());
            let id = provider::actor_id("cloud");
            let root = system.start_root(ChildSpec::<ProviderActor>::retried(id.clone(), args)).await.unwrap();
            Self { provider: system.address(&id), installation, _root: root }
        }

        fn request(&self, uid: &str) -> CreateRequest {
            CreateRequest {
                name: InstanceName::of(&Uid::new(uid)),
                uid: Uid::new(uid),
                installation: self.installation.clone(),
                namespace: "default".into(),
                proxy_name: "px".into(),
                placement: Placement::default(),
                cloud_init: Arc::default(),
                port: 3128,
            }
        }

        fn key(&self, uid: &str, id: Option<InstanceId>) -> InstanceKey {
            let CreateRequest { name, uid, installation, namespace, placement, .. } = self.request(uid);
            InstanceKey { id, name, uid, installation, namespace, placement }
        }

        async fn create(&self, uid: &str) -> Result<InstanceId, ProviderError> {
            let request = self.request(uid);
            let call = CallContext::new(Op::Create, CancellationToken::new());
            self.provider.call(LONG, |reply_to| ProviderMessage::Create { request, call, reply_to }).await.unwrap()
        }

        async fn delete(&self, key: InstanceKey) -> Result<DeleteOutcome, ProviderError> {
            let call = CallContext::new(Op::Delete, CancellationToken::new());
            self.provider.call(LONG, |reply_to| ProviderMessage::Delete { key, call, reply_to }).await.unwrap()
        }

        async fn list(&self) -> ListResult {
            let call = CallContext::new(Op::List, CancellationToken::new());
            self.provider.call(LONG, |reply_to| ProviderMessage::List { call, reply_to }).await.unwrap().unwrap()
        }
    }

    /// PC-54: two operators, one cloud, and the same UIDs besides their own.
    #[tokio::test(start_paused = true)]
    async fn two_installations_on_one_backend_do_not_touch_each_others_instances() {
        let cloud = Cloud::new();
        let (one, two) = (Operator::start(&cloud, "one").await, Operator::start(&cloud, "two").await);
        let id = one.create("shared").await.unwrap();
        one.create("only-one").await.unwrap();
        two.create("only-two").await.unwrap();
        cloud.settle();
        let before = cloud.machines();
        assert_eq!(before.len(), 3);
        let names = |listed: ListResult| listed.instances.into_iter().map(|i| i.uid.to_string()).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(names(one.list().await), ["only-one", "shared"].map(str::to_owned).into());
        assert_eq!(names(two.list().await), ["only-two"].map(str::to_owned).into());
        assert!(two.list().await.leftovers.is_empty(), "the volumes of one are none of two's leftovers");
        assert_eq!(two.create("shared").await.unwrap_err().class, ErrorClass::Permanent, "not adopted");
        for id in [Some(id.clone()), None] {
            assert_eq!(two.delete(two.key("shared", id)).await.unwrap(), DeleteOutcome::Gone);
        }
        assert_eq!(cloud.machines(), before, "not deleted");
        assert_eq!(one.delete(one.key("shared", Some(id))).await.unwrap(), DeleteOutcome::InProgress);
        cloud.settle();
        two.create("shared").await.expect("the name is free");
        assert_eq!(names(one.list().await), ["only-one".to_owned()].into());
    }

    /// PC-67: hundreds of calls hang at one provider; the other's take as long as they would.
    #[tokio::test(start_paused = true)]
    async fn a_provider_that_hangs_on_every_call_does_not_delay_a_healthy_one() {
        let (sick, well) = (Cloud::new(), Cloud::new());
        let (hangs, works) = (Operator::start(&sick, "one").await, Operator::start(&well, "one").await);
        sick.hang();
        let uids: Vec<_> = (0..300).map(|n| n.to_string()).collect();
        let stuck = futures::future::join_all(uids.iter().map(|uid| hangs.create(uid)));
        let work = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let started = Instant::now();
            for uid in &uids {
                works.create(uid).await.unwrap();
            }
            assert_eq!(works.list().await.instances.len(), uids.len());
            started.elapsed()
        };
        tokio::select! {
            _ = stuck => panic!("what hangs was answered first"),
            took = work => assert_eq!(took, Duration::ZERO, "nobody waited"),
        }
    }
}

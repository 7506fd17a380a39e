//! What the backend says over HTTP, held against the discovery document of Compute Engine (GC-30): each method, path and
//! parameter exists there, each body has no field that it does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use egress_config::providers::gcp::AddressMode;
use egress_fake_gce::{Answer, FakeGce, Fault, Hold, official};
use egress_protocol::provider::{DeleteOutcome, ErrorClass, InstanceKey, InstanceState};
use egress_protocol::resource::Placement;
use egress_provider::Backend;

use crate::{Bed, PROJECT, ZONE, call, key, request};

/// What was said since the last look is held against the document; and which methods it was.
fn judged(fake: &FakeGce, python: &Path) -> BTreeSet<String> {
    let log = fake.take_log();
    println!("{}", official::judge(python, &log).unwrap_or_else(|faults| panic!("{faults}")));
    let shape = |path: &str| {
        let path = path.split('?').next().unwrap_or_default().to_owned();
        path.split('/').skip(5).step_by(2).collect::<Vec<_>>().join("/")
    };
    log.iter().map(|exchange| format!("{} {}", exchange.method, shape(&exchange.path))).collect()
}

/// All that the backend can ask for, with answers of each kind.
#[tokio::test]
async fn every_request_and_every_answer_is_as_the_discovery_document_says() {
    let Some(python) = official::python_or_skip("gcp::every_request_and_every_answer_is_as_the_discovery_document_says") else { return };
    let bed = Bed::new(|_| {}).await;
    bed.fake.set_quotas(&[
        ("CPUS", 4.0, 24.0),
        ("INSTANCES", 3.0, 720.0),
        ("IN_USE_ADDRESSES", 3.0, 8.0),
        ("DISKS_TOTAL_GB", 30.5, 4096.0),
    ]);
    bed.fake.hold(Hold::UntilSettled);
    bed.create("u-1", "#cloud-config\npackages: [squid]\n").await;
    bed.create("u-1", "#cloud-config\npackages: [squid]\n").await;
    bed.create("u-2", "").await;
    bed.fake.settle();
    assert!(matches!(bed.state("u-1").await, Ok((InstanceState::Running, Some(_)))));
    // Late failures, of which the process that began them knows, and of which only Compute Engine does.
    bed.fake.fail_next_insert("ZONE_RESOURCE_POOL_EXHAUSTED", "no room in the zone");
    bed.create("u-3", "").await;
    assert_eq!(bed.state("u-3").await, Ok((InstanceState::Provisioning, None)));
    bed.fake.settle();
    assert_eq!(bed.state("u-3").await, Err(ErrorClass::QuotaExceeded));
    assert_eq!(bed.state("u-3").await, Err(ErrorClass::NotFound));
    assert_eq!(bed.state("u-9").await, Err(ErrorClass::NotFound));
    // Pages, a zone that is dark, a delete with and without an id.
    for n in 0..501 {
        let (uid, name) = (format!("m-{n}"), request(&format!("m-{n}"), "").name);
        let labels = [("proxy-operator-managed", "true"), ("proxy-operator-uid", uid.as_str()), ("proxy-operator-installation", "inst")];
        bed.fake.place("us-central1-a", name.as_str(), &labels, "RUNNING");
    }
    assert_eq!(bed.backend.list_managed(&call()).await.unwrap().instances.len(), 503);
    bed.fake.darken("us-central1-a", true);
    let listed = bed.backend.list_managed(&call()).await.unwrap();
    assert_eq!((listed.instances.len(), listed.left_out.len()), (2, 1));
    assert_eq!(bed.delete("u-1").await, DeleteOutcome::InProgress);
    assert_eq!(bed.delete("u-1").await, DeleteOutcome::InProgress);
    let by_name = InstanceKey { id: None, placement: Placement::default(), ..key("u-2") };
    assert_eq!(bed.backend.delete(&by_name, &call()).await.unwrap(), DeleteOutcome::InProgress);
    bed.fake.settle();
    assert_eq!(bed.delete("u-1").await, DeleteOutcome::Gone);
    // A check with quotas, one of them of a region that is not there; refusals.
    let verdict = bed.backend.check(&call()).unwrap().await.remove(0);
    assert!(verdict.ready && verdict.details.contains(&("quota.mars-north1".to_owned(), "unavailable".to_owned())), "{verdict:?}");
    for (status, reason) in [(403, "rateLimitExceeded"), (403, "accessNotConfigured"), (429, "rateLimitExceeded"), (503, "backendError")] {
        let answer = Answer::error(status, reason, "refused");
        bed.fake.fault(Fault { method: "GET", path: "aggregated".to_owned(), times: 1, answer, carried_out: false });
        assert!(bed.backend.list_managed(&call()).await.is_err());
    }
    let asked = judged(&bed.fake, &python);
    let all =
        ["DELETE zones/instances", "GET aggregated", "GET regions", "GET zones/instances", "GET zones/operations", "POST zones/instances"];
    assert_eq!(asked.iter().map(String::as_str).collect::<Vec<_>>(), all, "the whole of the client seam was asked");

    let internal = Bed::new(|config| {
        config.address_mode = AddressMode::Internal;
        config.network = format!("projects/{PROJECT}/global/networks/crawl");
        config.subnetwork = Some("regions/europe-west1/subnetworks/crawl".to_owned());
        config.live.disk_size_gb = 65_536;
    })
    .await;
    internal.create("u-1", "#cloud-config\n").await;
    internal.fake.settle();
    let (state, ip) = internal.state("u-1").await.unwrap();
    assert!(state == InstanceState::Running && ip.is_some_and(|ip| ip.is_private()), "{state:?} {ip:?}");
    judged(&internal.fake, &python);
}

/// GC-8: the words are those of the document, so that one which Google adds fails here; and one that is invented.
#[tokio::test]
async fn every_status_that_the_discovery_document_knows_has_its_row() {
    let Some(python) = official::python_or_skip("gcp::every_status_that_the_discovery_document_knows_has_its_row") else { return };
    use InstanceState::{Paused, Provisioning, Running, Stopped, Terminated};
    let rows: BTreeMap<&str, (InstanceState, InstanceState)> = [
        ("PENDING", (Provisioning, Provisioning)),
        ("PROVISIONING", (Provisioning, Provisioning)),
        ("STAGING", (Provisioning, Provisioning)),
        ("REPAIRING", (Provisioning, Provisioning)),
        ("RUNNING", (Provisioning, Running)),
        ("STOPPING", (Stopped, Stopped)),
        ("PENDING_STOP", (Stopped, Stopped)),
        ("STOPPED", (Stopped, Stopped)),
        ("SUSPENDING", (Paused, Paused)),
        ("SUSPENDED", (Paused, Paused)),
        ("TERMINATED", (Terminated, Terminated)),
        ("DEPROVISIONING", (Terminated, Terminated)),
    ]
    .into();
    let known = official::values(&python, "Instance", "status").unwrap();
    assert_eq!(known.iter().map(String::as_str).collect::<BTreeSet<_>>(), rows.keys().copied().collect());
    for mode in [AddressMode::External, AddressMode::Internal] {
        let bed = Bed::new(|config| config.address_mode = mode).await;
        bed.create("u-1", "").await;
        bed.fake.settle();
        let name = request("u-1", "").name;
        for (status, (_, with)) in rows.iter().map(|(status, row)| (*status, *row)).chain([("DREAMING", (Stopped, Stopped))]) {
            bed.fake.alter(ZONE, name.as_str(), Some(&|vm| vm["status"] = status.into()));
            let read = bed.backend.get(&key("u-1"), &call()).await.unwrap();
            assert_eq!((read.state, read.state_detail.as_deref()), (with, Some(status)), "{mode:?}");
        }
        let no_address = |vm: &mut serde_json::Map<String, serde_json::Value>| {
            vm["networkInterfaces"] = serde_json::json!([{"network": "global/networks/default"}]);
        };
        bed.fake.alter(ZONE, name.as_str(), Some(&no_address));
        for (status, (without, _)) in &rows {
            bed.fake.alter(ZONE, name.as_str(), Some(&|vm| vm["status"] = (*status).into()));
            assert_eq!(bed.state("u-1").await, Ok((*without, None)), "{mode:?} {status}");
        }
    }
}

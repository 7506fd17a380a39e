use std::time::Duration;

use egress_libvirt::procedures::DomainLookupByName;
use egress_libvirt::{Client, Options, connect};
use tokio::io::DuplexStream;
use tokio::time::Instant;

use super::{ORDINARY, Rpc as _, Wire};
use crate::class::{During, class};
use egress_protocol::provider::ErrorClass;

/// A link whose other end says nothing.
fn silent() -> (Client, DuplexStream, tokio::task::JoinSet<()>) {
    let (ours, theirs) = tokio::io::duplex(4096);
    let (client, connection) = connect(ours, &Options { keepalive: None });
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(async move { drop(connection.await) });
    (client, theirs, driver)
}

fn lookup() -> DomainLookupByName {
    DomainLookupByName { name: "proxy-ck4to7f6pzojj2fh".into() }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_budget_or_at_its_callers_deadline_and_says_which_lv_88() {
    let (client, _theirs, _driver) = silent();
    let wire = Wire::new(client, "host-a");
    let began = Instant::now();
    let spent = wire.domain_lookup_by_name(lookup(), began + Duration::from_secs(3600)).await.unwrap_err();
    assert_eq!(
        (began.elapsed(), spent.to_string()),
        (ORDINARY, "libvirt call DomainLookupByName on host-a exceeded its 30s budget".to_owned())
    );
    let began = Instant::now();
    let abandoned = wire.domain_lookup_by_name(lookup(), began + Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(
        (began.elapsed(), abandoned.to_string()),
        (Duration::from_secs(5), "libvirt call DomainLookupByName on host-a abandoned".to_owned())
    );
    let late = wire.domain_lookup_by_name(lookup(), Instant::now()).await.unwrap_err();
    assert_eq!(late.to_string(), "libvirt call DomainLookupByName on host-a not started");
    for error in [spent, abandoned, late] {
        assert_eq!(class(&error.error, During::Other), ErrorClass::Transient);
        assert!(error.said().is_none() && !error.is(42));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_link_is_told_from_an_answer_lv_83() {
    let (client, theirs, _driver) = silent();
    let wire = Wire::new(client, "host-a");
    drop(theirs);
    let lost = wire.domain_lookup_by_name(lookup(), Instant::now() + Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(lost.to_string(), "libvirt call DomainLookupByName on host-a: connection closed: the other side closed it");
    assert!(lost.said().is_none() && lost.error.is_closed());
}

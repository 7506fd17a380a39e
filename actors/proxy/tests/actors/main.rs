//! The directory and its proxies as a tree, through their messages: a scripted store, backend, broker and prober around
//! them, and a paused clock.
#![expect(clippy::expect_used, clippy::panic, reason = "a test bed: what fails here fails the test")]

mod bed;

use std::time::Duration;

use bed::{Bed, key, managed};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_protocol::proxy::ProxyMessage;
use egress_protocol::resource::{Phase, Placement, ProxySpec};
use egress_protocol::source::EventReason;
use egress_protocol::{InstanceName, Uid};
use std::sync::Arc;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn an_object_becomes_ready_and_its_deletion_leaves_nothing_op_6_op_11() {
    let bed = Bed::start().await;
    bed.apply(managed("px-1"));
    bed.until("Ready", |world| world.phase("px-1") == Some(Phase::Ready)).await;
    assert!(bed.world(|world| world.book[&key("px-1")].healthy && world.vms.len() == 1));
    bed.delete("px-1");
    bed.until("gone", |world| world.objects.is_empty()).await;
    assert!(bed.world(|world| world.vms.is_empty() && world.book.is_empty()), "neither an instance nor an entry in the book");
    assert!(bed.world(|world| world.events.contains(&(key("px-1"), EventReason::Deleted))));
    tokio::time::sleep(seconds(1)).await;
    assert!(bed.node_of("proxy/default/px-1").await.is_none());
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_proxy_deleted_during_a_create_of_a_minute_leaves_nothing_o1() {
    let bed = Bed::start().await;
    bed.world(|world| world.create_takes = seconds(60));
    bed.apply(managed("px-1"));
    bed.until("the create runs", |world| world.creates == 1).await;
    tokio::time::sleep(seconds(20)).await;
    bed.delete("px-1");
    bed.until("gone", |world| world.objects.is_empty()).await;
    tokio::time::sleep(seconds(120)).await;
    assert!(bed.world(|world| world.vms.is_empty()));
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stale_objects_after_every_write_make_one_instance_o2_m2() {
    let bed = Bed::start().await;
    bed.apply(managed("px-1"));
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        bed.send(ProxiesMessage::Apply { object: Arc::new(managed("px-1")) });
    }
    bed.until("Ready", |world| world.phase("px-1") == Some(Phase::Ready)).await;
    assert_eq!(bed.world(|world| world.creates), 1);
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_leaves_one_instance_o3() {
    for moment in 0..40 {
        let bed = Bed::start().await;
        bed.world(|world| world.create_takes = Duration::from_millis(900));
        bed.apply(managed("px-1"));
        tokio::time::sleep(Duration::from_millis(moment * 100)).await;
        bed.system.crash("proxy/default/px-1");
        bed.until("Ready", |world| world.phase("px-1") == Some(Phase::Ready)).await;
        bed.edit("px-1", |object| object.spec = Arc::new(ProxySpec { port: 3129, ..(*object.spec).clone() }));
        tokio::time::sleep(Duration::from_millis(moment * 100)).await;
        bed.system.crash("proxy/default/px-1");
        bed.until("replaced", |world| world.vms.values().all(|vm| vm.port == 3129) && world.phase("px-1") == Some(Phase::Ready)).await;
        assert_eq!(bed.world(|world| world.vms.len()), 1);
        bed.delete("px-1");
        bed.until("gone", |world| world.objects.is_empty()).await;
        assert!(bed.world(|world| world.vms.is_empty()));
        bed.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_given_up_proxy_is_shown_as_failed_and_comes_back_sv_2() {
    let bed = Bed::start().await;
    bed.apply(managed("px-1"));
    bed.until("Ready", |world| world.phase("px-1") == Some(Phase::Ready)).await;
    for _ in 0..6 {
        while !bed.system.crash("proxy/default/px-1") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bed.until("Failed", |world| world.phase("px-1") == Some(Phase::Failed)).await;
    assert!(bed.world(|world| !world.book[&key("px-1")].healthy && world.book[&key("px-1")].phase == Phase::Failed));
    assert_eq!(bed.world(|world| world.vms.len()), 1, "its instance runs on");
    tokio::time::sleep(seconds(310)).await;
    bed.until("Ready again", |world| world.phase("px-1") == Some(Phase::Ready) && world.book[&key("px-1")].healthy).await;
    assert_eq!(bed.world(|world| world.creates), 1);
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_crashed_gets_everything_again_sv_2() {
    let bed = Bed::start().await;
    for name in ["px-1", "px-2"] {
        bed.apply(managed(name));
    }
    bed.until("Ready", |world| ["px-1", "px-2"].iter().all(|name| world.phase(name) == Some(Phase::Ready))).await;
    assert!(bed.system.crash(proxies::ACTOR_ID));
    // One object goes while nobody listens.
    bed.world(|world| world.objects.remove(&key("px-2")));
    tokio::time::sleep(seconds(5)).await;
    bed.until("back", |world| world.book.get(&key("px-1")).is_some_and(|entry| entry.healthy)).await;
    assert!(bed.world(|world| !world.book.contains_key(&key("px-2"))), "withdrawn when the source is in step again");
    assert_eq!(bed.world(|world| world.creates), 2, "adopted, its provider still known");
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_forgot_hears_of_every_proxy_again() {
    let bed = Bed::start().await;
    bed.apply(managed("px-1"));
    bed.until("Ready", |world| world.phase("px-1") == Some(Phase::Ready)).await;
    assert_eq!(bed.world(|world| world.expected), Some(0), "as the source said when it was in step");
    bed.world(|world| world.book.clear());
    bed.send(ProxiesMessage::Republish);
    bed.until("known again", |world| world.book.get(&key("px-1")).is_some_and(|entry| entry.healthy)).await;
    assert_eq!(bed.world(|world| world.expected), Some(1));
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_the_source_does_not_have_lose_their_actors() {
    let bed = Bed::start().await;
    bed.apply(managed("px-1"));
    bed.until("Ready", |world| world.phase("px-1") == Some(Phase::Ready)).await;
    bed.send(ProxiesMessage::Synced { live: Vec::new() });
    bed.until("withdrawn", |world| world.book.is_empty()).await;
    tokio::time::sleep(seconds(10)).await;
    assert!(bed.node_of("proxy/default/px-1").await.is_none());
    assert!(bed.world(|world| world.book.is_empty()), "no late word brings it back");
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hung_backend_delays_no_other_proxy_op_23_o22() {
    let bed = Bed::start().await;
    bed.world(|world| {
        world.hang.insert("px-1".to_owned());
    });
    bed.apply(managed("px-1"));
    bed.until("the create hangs", |world| world.creates == 1).await;
    let begin = tokio::time::Instant::now();
    bed.apply(managed("px-2"));
    bed.until("Ready", |world| world.phase("px-2") == Some(Phase::Ready)).await;
    assert!(begin.elapsed() < seconds(10), "{:?}", begin.elapsed());
    let answer = bed.explain("px-1").await;
    assert_eq!(answer["step"], "Creating");
    assert!(answer["call"]["forMillis"].as_u64().is_some_and(|millis| millis >= 1000), "{answer}");
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_provider_is_waited_for_and_a_known_one_may_come_later_op_20() {
    let bed = Bed::start().await;
    bed.send(ProxiesMessage::ProviderChanged { name: "lab".into(), fingerprint: None });
    bed.apply(managed("px-1"));
    bed.until("said", |world| world.reason("px-1", "Provisioned").as_deref() == Some("ProviderNotConfigured")).await;
    bed.send(ProxiesMessage::ProviderChanged { name: "lab".into(), fingerprint: Some("f2".into()) });
    bed.until("Ready", |world| world.phase("px-1") == Some(Phase::Ready)).await;
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edited_secret_replaces_its_proxies_one_quarter_at_a_time_op_16() {
    let bed = Bed::start().await;
    let names: Vec<String> = (0..8).map(|n| format!("px-{n}")).collect();
    for name in &names {
        bed.apply(bed::from_secret(managed(name), "a"));
    }
    bed.until("all Ready", |world| names.iter().all(|name| world.phase(name) == Some(Phase::Ready))).await;
    for name in &names {
        bed.edit(name, |object| *object = bed::from_secret(object.clone(), "b"));
    }
    let mut least = names.len();
    let begin = tokio::time::Instant::now();
    while bed.world(|world| world.deletes) < 8 || bed.world(|world| world.ready()) < 8 {
        least = least.min(bed.world(|world| world.book.values().filter(|entry| entry.healthy).count()));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(begin.elapsed() < seconds(600));
    }
    assert_eq!(least, 6, "at most two of eight were out of rotation");
    assert_eq!(bed.world(|world| (world.creates, world.vms.len())), (16, 8));
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bad_edit_stops_with_the_first_and_says_so_once_op_16() {
    let bed = Bed::start().await;
    let names: Vec<String> = (0..4).map(|n| format!("px-{n}")).collect();
    for name in &names {
        bed.apply(bed::from_secret(managed(name), "a"));
    }
    bed.until("all Ready", |world| names.iter().all(|name| world.phase(name) == Some(Phase::Ready))).await;
    bed.world(|world| world.probes_fail.insert("bad".to_owned()));
    for name in &names {
        bed.edit(name, |object| *object = bed::from_secret(object.clone(), "bad"));
    }
    bed.until("one is broken", |world| world.phase("px-0") == Some(Phase::Unhealthy)).await;
    bed.world(|world| world.events.clear());
    tokio::time::sleep(seconds(900)).await;
    assert_eq!(bed.world(|world| (world.deletes, world.ready())), (1, 3));
    let said = bed.world(|world| world.events.iter().filter(|(_, reason)| *reason == EventReason::Replacing).count());
    assert_eq!(said, 1, "one Event for the whole rollout");
    let message = bed.world(|world| world.message("px-3", "Provisioned")).unwrap_or_default();
    assert!(message.contains("behind default/px-0"), "{message}");
    // A newer edit starts again with the broken one.
    for name in &names {
        bed.edit(name, |object| *object = bed::from_secret(object.clone(), "good"));
    }
    bed.until("all Ready", |world| world.deletes >= 5 && world.ready() == 4).await;
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_proxy_is_not_replaced_while_the_target_it_is_on_is_down_op_33() {
    let bed = Bed::start().await;
    let told = |a: bool, b: bool| {
        let targets = [("host-a", a), ("host-b", b)].map(|(name, ready)| (Arc::from(name), ready));
        ProxiesMessage::ProviderHealth { name: "lab".into(), targets: targets.into() }
    };
    bed.send(told(false, true));
    bed.world(|world| world.probes_fail.insert("sick".to_owned()));
    for name in ["a", "b"] {
        let mut object = bed::from_secret(managed(name), "sick");
        let mut spec = ProxySpec::clone(&object.spec);
        spec.health_check.replace_after_seconds = 300;
        spec.placement = Some(Placement { zone: Some(format!("host-{name}")), ..Placement::default() });
        object.spec = Arc::new(spec);
        bed.apply(object);
    }
    tokio::time::sleep(seconds(300)).await;
    bed.until("the one on the other host is replaced", |world| world.deletes == 1).await;
    tokio::time::sleep(seconds(200)).await;
    let vm = |name: &str| InstanceName::of(&Uid::new(format!("uid-of-{name}"))).to_string();
    assert!(bed.world(|world| world.events.iter().all(|(of, reason)| *reason != EventReason::Replacing || *of == key("b"))));
    assert!(bed.world(|world| world.vms.contains_key(&vm("a"))));
    assert!(bed.system.crash(proxies::ACTOR_ID));
    tokio::time::sleep(seconds(600)).await;
    let replaced = |world: &mut bed::World| world.events.contains(&(key("a"), EventReason::Replacing));
    assert!(!bed.world(replaced), "the directory remembers");
    bed.send(told(true, true));
    bed.until("replaced as soon as it is up", |world| world.events.contains(&(key("a"), EventReason::Replacing))).await;
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_machine_explains_itself_ob_4() {
    let bed = Bed::start().await;
    bed.apply(managed("px-1"));
    bed.until("Ready", |world| world.phase("px-1") == Some(Phase::Ready)).await;
    let answer = bed.explain("px-1").await;
    assert_eq!((&answer["phase"], &answer["step"]), (&"Ready".into(), &"Idle".into()));
    assert!(answer["nextTimer"].is_string() && answer["providerID"].is_string(), "{answer}");
    assert!(answer["transitions"].as_array().is_some_and(|list| list.len() >= 4));
    bed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn reports_of_failing_leases_reach_the_prober_ls_7() {
    let bed = Bed::start().await;
    bed.apply(managed("px-1"));
    bed.until("Ready", |world| world.phase("px-1") == Some(Phase::Ready)).await;
    assert!(bed.proxy("px-1").send(ProxyMessage::ProbeNow).is_ok());
    bed.until("asked", |world| world.urgent == 1).await;
    bed.stop().await;
}

//! One sentence of the specification each.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::judge::Suspicion;
use egress_protocol::object::{CloudInit, CredentialsState, ProxyObject};
use egress_protocol::prober::{ProbeFailure, ProbeOutcome, ProbeReport};
use egress_protocol::provider::{ErrorClass, Op};
use egress_protocol::resource::conditions::{Status, find, kind, status};
use egress_protocol::resource::{Endpoint, HealthCheck, Mode, Phase, ProxySpec, ProxyStatus};
use egress_protocol::source::{EventReason, SourceError};
use egress_protocol::{ObjectKey, Secret, Timestamp};

use super::world::{Vm1, World, fault, installation, object, settings};
use crate::machine::{Fault, Input};
use crate::rollout::{Place, Want};

pub(super) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Lets writes through, without answering calls.
fn flush(world: &mut World) {
    for _ in 0..10 {
        if world.write.is_some() {
            world.written();
        } else if world.finalizer.is_some() {
            world.finalizer_written();
        } else if world.stale {
            world.deliver();
        } else if world.call.is_none() && world.timer.is_some_and(|at| at.since(world.now) <= seconds(1)) {
            world.pass(seconds(1));
        } else {
            return;
        }
    }
}

/// A new proxy whose create is running.
pub(super) fn creating() -> World {
    let mut world = World::new(object(), settings());
    flush(&mut world);
    assert_eq!(op(&world), Some(Op::Create));
    world
}

/// A new proxy that has an id and waits for its address.
pub(super) fn provisioning() -> World {
    let mut world = creating();
    world.answer();
    world.answer();
    flush(&mut world);
    world
}

pub(super) fn op(world: &World) -> Option<Op> {
    world.call.as_ref().map(|(_, call, _)| call.op())
}

fn reason(world: &World) -> &'static str {
    world.provisioned().1
}

pub(super) fn has_event(world: &World, reason: EventReason) -> bool {
    world.events.iter().any(|(event, _)| *event == reason)
}

fn with_spec(change: impl FnOnce(&mut ProxySpec)) -> ProxyObject {
    let mut object = object();
    let mut spec = ProxySpec::clone(&object.spec);
    change(&mut spec);
    object.spec = Arc::new(spec);
    object
}

fn external(host: &str) -> ProxyObject {
    with_spec(|spec| {
        spec.mode = Mode::External;
        spec.provider = None;
        spec.endpoint = Some(Endpoint { host: host.into(), credentials_secret_ref: None });
    })
}

fn from_secret(object: &mut ProxyObject, text: &str) {
    object.cloud_init = CloudInit::Resolved { bytes: Arc::new(Secret::new(text.as_bytes().to_vec())), secret: Some("pool".into()) };
}

#[test]
fn a_new_proxy_goes_through_finalizer_record_create_id_in_this_order_op_11_op_12_op_16() {
    let mut world = World::new(object(), settings());
    assert_eq!(world.phase(), Phase::Pending);
    assert_eq!((world.finalizer, op(&world)), (Some(true), None));
    if world.write.is_some() {
        world.written();
    }
    world.finalizer_written();
    world.pass(seconds(1));
    assert_eq!(op(&world), None, "the hash is on its way to the store, not yet there");
    let hash = world.write.as_ref().expect("the record is written").1.spec_hash.clone();
    assert!(hash.expect("with a hash").starts_with("v1:"));
    world.written();
    assert_eq!(op(&world), Some(Op::Create));
    world.answer();
    assert_eq!(op(&world), Some(Op::Get), "the first poll follows at once (OP-10)");
    world.pass(seconds(1));
    assert_eq!(world.write.as_ref().expect("the id is written").1.provider_id.as_deref(), Some(world.id().as_str()));
}

#[test]
fn polls_follow_at_once_then_after_one_second_then_every_ten_op_10() {
    let mut world = provisioning();
    let mut waits = Vec::new();
    for _ in 0..3 {
        flush(&mut world);
        let before = world.now;
        while op(&world).is_none() {
            let at = world.timer.expect("a timer");
            world.pass(at.since(world.now));
            if world.write.is_some() {
                world.written();
            }
        }
        waits.push(world.now.since(before).as_secs());
        world.answer();
    }
    assert!(waits[0] <= 1, "{waits:?}");
    assert!(waits[1..].iter().all(|wait| (9..=10).contains(wait)), "{waits:?}");
}

#[test]
fn an_edit_during_a_long_create_ends_in_one_instance_of_the_new_kind_op_16() {
    let mut world = creating();
    world.set_port(3129);
    world.deliver();
    assert!(world.call.as_ref().is_some_and(|call| call.2), "the running create is cancelled");
    world.fail(fault(ErrorClass::Transient), true);
    assert_eq!(world.vm.as_ref().map(|vm| vm.port), Some(3128), "it had gone through all the same");
    world.settle();
    assert_eq!(world.vm.as_ref().map(|vm| vm.port), Some(3129));
}

#[test]
fn an_edit_that_the_record_tells_of_first_is_waited_for_op_16() {
    let mut world = World::new(object(), settings());
    // The object is edited between the machine's look and its write: the answer names a newer generation.
    world.set_port(3129);
    while op(&world).is_none() && (world.write.is_some() || world.finalizer.is_some()) {
        if world.finalizer.is_some() {
            world.finalizer_written();
        } else {
            world.written();
        }
    }
    for _ in 0..5 {
        world.pass(seconds(1));
        if world.write.is_some() {
            world.written();
        }
        assert_eq!(op(&world), None, "no create of a definition that is no more");
    }
    world.settle();
    assert_eq!(world.vm.as_ref().map(|vm| vm.port), Some(3129));
}

#[test]
fn a_proxy_deleted_while_its_create_runs_leaves_nothing_o1_op_11() {
    let mut world = creating();
    world.object.deleting = true;
    world.deliver();
    assert!(world.call.as_ref().is_some_and(|call| call.2));
    world.fail(fault(ErrorClass::Transient), true);
    assert_eq!(op(&world), Some(Op::Delete), "without an id, by name (PC-40)");
    world.settle();
    assert!(world.is_gone() && world.vm.is_none());
    assert!(has_event(&world, EventReason::Deleted));
}

#[test]
fn deletion_polls_until_not_found_and_repeats_delete_once_a_minute_op_11_pc_41() {
    let mut world = World::ready();
    world.object.deleting = true;
    world.deliver();
    assert_eq!(world.phase(), Phase::Deleting);
    let mut deletes = Vec::new();
    let begin = world.now;
    for _ in 0..200 {
        if op(&world) == Some(Op::Delete) {
            deletes.push(world.now.since(begin).as_secs());
        }
        if op(&world).is_some() {
            world.answer();
        } else if world.write.is_some() {
            world.written();
        } else {
            world.pass(seconds(5));
        }
        if world.now.since(begin) > seconds(150) {
            break;
        }
    }
    assert_eq!(deletes.len(), 3, "{deletes:?}");
    assert!(deletes.windows(2).all(|pair| pair[1] - pair[0] >= 60), "{deletes:?}");
    assert!(world.object.finalizer, "as long as it is there");
    world.settle();
    assert!(world.is_gone());
}

#[test]
fn a_permanent_read_still_leads_to_delete_and_a_gone_after_it_is_the_end_pc_42_pc_56() {
    let mut world = World::ready();
    world.object.deleting = true;
    world.deliver();
    assert_eq!(op(&world), Some(Op::Delete), "deletion does not begin with a read");
    world.vm = None;
    world.answer();
    assert_eq!(op(&world), Some(Op::Get));
    world.fail(fault(ErrorClass::Permanent), false);
    assert_eq!(world.finalizer, Some(false));
}

#[test]
fn deletion_retries_forever_and_is_never_latched_pc_56() {
    let mut world = World::ready();
    world.object.deleting = true;
    world.deliver();
    for class in [ErrorClass::Permanent, ErrorClass::Transient, ErrorClass::QuotaExceeded, ErrorClass::Permanent] {
        while op(&world) != Some(Op::Delete) {
            assert!(world.timer.is_some() || world.write.is_some(), "it goes on");
            if world.write.is_some() {
                world.written();
            }
            world.pass(seconds(300));
        }
        world.fail(fault(class), false);
        assert_eq!(world.phase(), Phase::Deleting);
    }
    assert_eq!(reason(&world), "PermanentError");
    world.settle();
    assert!(world.is_gone());
}

#[test]
fn deletion_waits_for_a_provider_that_is_not_configured_and_says_so_pc_60() {
    let mut world = World::ready();
    world.set_provider(None);
    world.object.deleting = true;
    world.deliver();
    world.pass(seconds(3600));
    assert!(world.object.finalizer && world.calls.is_empty());
    assert_eq!((world.phase(), reason(&world)), (Phase::Deleting, "ProviderNotConfigured"));
    world.set_provider(Some("f2"));
    world.settle();
    assert!(world.is_gone() && world.vm.is_none());
}

#[test]
fn skip_cleanup_releases_the_proxy_without_touching_the_backend_op_11() {
    let mut world = World::ready();
    world.object.annotations.skip_cleanup = true;
    world.object.deleting = true;
    world.deliver();
    assert_eq!((op(&world), world.finalizer), (None, Some(false)));
    world.finalizer_written();
    assert!(world.vm.is_some() && world.calls.is_empty());
    assert!(has_event(&world, EventReason::CleanupSkipped) && !has_event(&world, EventReason::Deleted));
}

#[test]
fn a_finalizer_taken_away_by_hand_is_put_back_op_11() {
    let mut world = World::ready();
    world.object.finalizer = false;
    world.deliver();
    assert_eq!(world.finalizer, Some(true));
}

#[test]
fn a_changed_port_replaces_the_instance_under_the_same_name_op_16() {
    let mut world = World::ready();
    world.set_port(3129);
    world.deliver();
    assert_eq!((world.phase(), reason(&world)), (Phase::Provisioning, "Replacing"));
    assert!(world.availability.as_ref().is_some_and(|entry| entry.draining && !entry.healthy), "no new grant from now on");
    assert_eq!(op(&world), None, "nothing is deleted before the record says so");
    world.settle();
    assert_eq!(world.vm.as_ref().map(|vm| vm.port), Some(3129));
    assert_eq!(world.calls.iter().filter(|op| **op != Op::Get).collect::<Vec<_>>(), [&Op::Delete, &Op::Create]);
    assert!(has_event(&world, EventReason::Replacing));
}

#[test]
fn attributes_limits_and_health_settings_never_churn_an_instance_op_16() {
    let mut world = World::ready();
    world.edit(|object| {
        let mut spec = ProxySpec::clone(&object.spec);
        spec.attributes.insert("geo".into(), "de".into());
        spec.max_leases = 9;
        spec.health_check.interval_seconds = 7;
        object.spec = Arc::new(spec);
    });
    world.settle();
    assert!(world.calls.iter().all(|op| *op == Op::Get));
    let entry = world.availability.as_ref().expect("published");
    assert_eq!((entry.max_leases, entry.attributes.len(), entry.healthy), (9, 1, true));
    assert_eq!(world.target.as_ref().map(|target| target.prior), Some(Some(true)), "the verdict stands");
}

#[test]
fn an_edit_taken_back_before_anything_was_done_deletes_nothing_op_16() {
    let mut world = World::ready();
    world.set_port(3129);
    world.deliver();
    world.set_port(3128);
    world.deliver();
    world.settle();
    assert!(world.calls.iter().all(|op| *op == Op::Get), "{:?}", world.calls);
    assert_eq!(world.phase(), Phase::Running, "its health is found out anew");
}

#[test]
fn members_of_a_secret_wait_for_their_place_and_hold_it_until_healthy_op_16() {
    let mut first = object();
    from_secret(&mut first, "a");
    let mut world = World::new(first, settings());
    world.settle();
    world.probe(true, false);
    world.settle();
    world.calls.clear();
    world.edit(|object| from_secret(object, "b"));
    world.unwanted = true;
    world.settle_writes();
    assert_eq!(world.member.wants, Some(Want::Rollout));
    assert_eq!((world.phase(), world.provisioned().0), (Phase::Ready, "True"), "it serves on");
    let behind = ObjectKey::new("default", "px-0");
    world.input(Input::Place(Place::Waiting { behind: Some(behind) }));
    assert!(world.provisioned().2.contains("behind default/px-0"), "{}", world.provisioned().2);
    assert!(world.calls.iter().all(|op| *op == Op::Get));
    world.input(Input::Place(Place::Granted(Want::Rollout)));
    assert_eq!(reason(&world), "Replacing");
    world.settle();
    assert_eq!(world.member.wants, Some(Want::Rollout), "held until it is Healthy");
    world.probe(true, false);
    assert_eq!((world.member.wants, world.member.healthy), (None, true));
}

#[test]
fn a_broken_member_is_replaced_first_and_without_a_place_op_16() {
    let mut first = object();
    from_secret(&mut first, "a");
    let mut world = World::new(first, settings());
    world.settle();
    world.probe(false, false);
    world.settle();
    world.edit(|object| from_secret(object, "b"));
    world.deliver();
    assert_eq!((reason(&world), world.member.wants), ("Replacing", None));
}

#[test]
fn the_replace_annotation_replaces_once_and_survives_a_crash_op_33() {
    let mut world = World::ready();
    world.ask_for_replacement();
    world.deliver();
    world.pass(seconds(1));
    world.written();
    assert_eq!(op(&world), Some(Op::Delete));
    world.crash(false, false);
    world.settle();
    assert_eq!(world.calls.iter().filter(|op| **op == Op::Create).count(), 1, "{:?}", world.calls);
    assert!(world.runs());
    world.calls.clear();
    world.deliver();
    world.crash(false, false);
    world.settle();
    assert!(world.calls.iter().all(|op| *op == Op::Get), "once");
}

#[test]
fn one_that_stays_unhealthy_is_replaced_when_its_turn_comes_op_33() {
    let check = HealthCheck { replace_after_seconds: 300, ..HealthCheck::default() };
    let mut world = World::new(with_spec(|spec| spec.health_check = check), settings());
    world.settle();
    world.probe(true, false);
    world.probe(false, false);
    world.settle();
    world.calls.clear();
    for _ in 0..4 {
        world.pass(seconds(60));
        world.settle();
    }
    assert_eq!(world.member.wants, None, "not yet");
    for _ in 0..10 {
        world.pass(seconds(20));
        world.settle();
    }
    assert_eq!(world.member.wants, Some(Want::Repair));
    assert!(world.calls.iter().all(|op| *op == Op::Get), "not without a place");
    world.input(Input::Place(Place::Granted(Want::Repair)));
    assert_eq!(reason(&world), "Replacing");
    world.unwanted = true;
    world.settle();
    assert!(world.calls.contains(&Op::Create));
    assert_eq!(world.member.wants, Some(Want::Repair), "until it is known whether it helped");
    world.probe(false, false);
    assert_eq!(world.member.wants, None);
}

#[test]
fn nothing_is_replaced_for_being_unhealthy_while_paused_or_while_its_check_url_is_suspect_op_33_he_9() {
    let check = HealthCheck { replace_after_seconds: 300, ..HealthCheck::default() };
    let mut world = World::new(with_spec(|spec| spec.health_check = check.clone()), settings());
    world.settle();
    world.probe(false, false);
    let since = world.now;
    world.settle();
    world.input(Input::CheckUrl(Suspicion::Suspect {
        url: check.url.as_str().into(),
        since: since + seconds(1),
        until: since + seconds(99_999),
        speaks: true,
    }));
    for _ in 0..20 {
        world.pass(seconds(60));
        world.settle();
    }
    assert_eq!(world.member.wants, None);
    assert!(has_event(&world, EventReason::CheckUrlSuspect));
    world.input(Input::CheckUrl(Suspicion::Cleared { url: check.url.as_str().into() }));
    assert_eq!(world.member.wants, Some(Want::Repair));
    world.vm.as_mut().expect("a vm").state = Vm1::Paused;
    for _ in 0..5 {
        world.pass(seconds(60));
        flush(&mut world);
        if world.call.is_some() {
            world.answer();
        }
    }
    assert_eq!(world.member.wants, None);
}

#[test]
fn nothing_is_replaced_for_being_unhealthy_while_its_provider_s_target_is_down_op_33() {
    let check = HealthCheck { replace_after_seconds: 300, ..HealthCheck::default() };
    let mut world = World::new(with_spec(|spec| spec.health_check = check), settings());
    world.settle();
    world.probe(false, false);
    world.input(Input::ProviderDown(true));
    for _ in 0..20 {
        world.pass(seconds(60));
        world.settle();
    }
    assert_eq!(world.member.wants, None);
    world.input(Input::ProviderDown(false));
    assert_eq!(world.member.wants, Some(Want::Repair));
    world.input(Input::ProviderDown(true));
    assert_eq!(world.member.wants, None, "the place is given back");
    world.calls.clear();
    world.input(Input::Place(Place::Granted(Want::Repair)));
    world.settle();
    assert!(world.calls.iter().all(|op| *op == Op::Get), "a place that was granted meanwhile is not used");
}

#[test]
fn a_stopped_instance_is_replaced_and_a_young_one_only_after_a_pause_op_14() {
    let mut world = World::ready();
    world.pass(seconds(60));
    let mut pauses = Vec::new();
    for _ in 0..6 {
        world.vm.as_mut().expect("a vm").state = Vm1::Stopped;
        while op(&world) != Some(Op::Create) {
            assert!(world.go_on());
            if world.vm.is_none() && world.call.is_none() && world.write.is_none() && reason(&world) == "Provisioning" {
                pauses.extend(world.timer.map(|at| at.since(world.now)));
            }
        }
        world.settle();
    }
    assert!(world.provisioned().2.is_empty() || world.runs());
    assert_eq!(world.machine.tries.failed, 6);
    assert!(pauses.iter().any(|pause| *pause > seconds(1)), "{pauses:?}");
    // One that lived for long is made anew at once, and the count starts again.
    world.live(seconds(1200));
    assert_eq!(world.machine.tries.failed, 0);
}

#[test]
fn the_condition_says_how_the_last_instances_ended_op_14() {
    let mut world = provisioning();
    world.vm.as_mut().expect("a vm").state = Vm1::Stopped;
    while world.machine.id.is_some() {
        assert!(world.go_on());
    }
    let (status, reason, message) = world.provisioned();
    assert_eq!((status, reason), ("False", "Provisioning"));
    assert!(message.contains("one instance ended soon") && message.contains("stopped by itself (Stopped)"), "{message}");
}

/// A Pod on a lost node stays so for as long as nobody deletes it by force (K8-20): what it waits for must show.
#[test]
fn an_instance_that_somebody_else_deletes_is_waited_for_and_its_detail_shows_op_7() {
    let mut world = World::ready();
    world.vm.as_mut().expect("a vm").state = Vm1::Deleting;
    world.pass(seconds(120));
    world.answer();
    let (status, reason, message) = world.provisioned();
    assert_eq!((status, reason), ("False", "Provisioning"));
    assert_eq!(message, "the instance is being deleted at the backend; it is replaced: Deleting");
}

#[test]
fn a_paused_instance_is_reported_and_never_destroyed_op_14_pc_31() {
    let mut world = World::ready();
    world.vm.as_mut().expect("a vm").state = Vm1::Paused;
    world.pass(seconds(120));
    world.answer();
    world.settle_writes();
    assert_eq!((world.provisioned().0, reason(&world), world.phase()), ("False", "Paused", Phase::Unhealthy));
    assert!(world.availability.as_ref().is_some_and(|entry| !entry.healthy && !entry.draining));
    world.probe(true, false);
    assert_eq!(world.phase(), Phase::Unhealthy, "whatever the last probe said");
    for _ in 0..100 {
        world.pass(seconds(120));
        if world.call.is_some() {
            world.answer();
        }
        world.settle_writes();
    }
    assert!(world.calls.iter().all(|op| *op == Op::Get));
    world.vm.as_mut().expect("a vm").state = Vm1::Running;
    world.live(seconds(130));
    assert_eq!(world.phase(), Phase::Ready);
}

#[test]
fn one_that_vanished_is_created_again_op_15() {
    let mut world = World::ready();
    world.vm = None;
    world.settle();
    world.pass(seconds(120));
    world.settle();
    assert!(world.runs());
    assert_eq!(world.calls.iter().filter(|op| **op == Op::Delete).count(), 0, "there is nothing to delete");
}

#[test]
fn a_permanent_error_latches_until_generation_annotation_or_provider_change_op_17_pc_59() {
    for release in 0..3 {
        let mut world = creating();
        world.fail(fault(ErrorClass::Permanent), false);
        assert_eq!((world.phase(), reason(&world)), (Phase::Failed, "PermanentError"));
        assert!(has_event(&world, EventReason::Failed));
        world.settle_writes();
        world.calls.clear();
        world.pass(seconds(86_400));
        assert!(world.calls.is_empty(), "no more calls");
        match release {
            0 => world.edit(|object| object.annotations.skip_cleanup = true),
            1 => {
                world.object.annotations.retry = Some("1".into());
                world.stale = true;
            }
            _ => world.set_provider(Some("f2")),
        }
        world.settle();
        assert!(world.runs(), "release {release}");
    }
}

#[test]
fn an_environment_error_is_tried_again_every_five_minutes_and_stays_failed_meanwhile_pc_59() {
    let mut world = creating();
    let environment = Fault { environment: true, ..fault(ErrorClass::Permanent) };
    world.fail(environment.clone(), false);
    world.settle_writes();
    let begin = world.now;
    let mut tries = Vec::new();
    for class in [ErrorClass::Permanent, ErrorClass::Transient, ErrorClass::QuotaExceeded] {
        world.pass(seconds(400));
        assert_eq!((op(&world), world.phase()), (Some(Op::Create), Phase::Failed));
        tries.push(world.now.since(begin).as_secs());
        world.fail(Fault { class, ..environment.clone() }, false);
        assert_eq!(world.phase(), Phase::Failed);
        world.settle_writes();
    }
    assert!(tries.iter().zip([300, 600, 900]).all(|(at, due)| due - at <= 3), "{tries:?}");
    world.pass(seconds(400));
    world.answer();
    assert_eq!(world.phase(), Phase::Provisioning);
    world.settle();
    assert!(world.runs());
}

#[test]
fn quota_is_no_error_and_is_released_early_by_freed_capacity_op_18_lo_3() {
    let mut world = creating();
    world.fail(fault(ErrorClass::QuotaExceeded), false);
    assert_eq!((world.phase(), reason(&world)), (Phase::Provisioning, "QuotaExceeded"));
    world.settle_writes();
    world.pass(seconds(290));
    assert_eq!(op(&world), None);
    world.input(Input::CapacityFreed);
    assert_eq!(op(&world), Some(Op::Create));
    world.fail(Fault { retry_after: Some(seconds(10)), ..fault(ErrorClass::QuotaExceeded) }, false);
    world.settle_writes();
    let begin = world.now;
    world.pass(seconds(299));
    assert_eq!((op(&world), world.now.since(begin) <= seconds(10)), (Some(Op::Create), true), "the provider's own wait counts");
}

#[test]
fn a_transient_failure_backs_off_and_is_shown_without_churn_op_19_pc_58() {
    let mut world = creating();
    let mut writes = 0;
    for n in 0..12 {
        world.fail(fault(ErrorClass::Transient), false);
        assert_eq!((world.phase(), reason(&world)), (Phase::Provisioning, "TransientError"));
        world.settle_writes();
        if n == 2 {
            writes = world.writes;
        }
        let begin = world.now;
        while op(&world).is_none() {
            world.pass(seconds(300));
            world.settle_writes();
        }
        assert!(world.now.since(begin) <= seconds(300));
    }
    assert_eq!(world.writes, writes, "the condition is not rewritten for a counter");
    world.answer();
    assert_eq!(world.machine.failures, 0, "reset by success");
}

#[test]
fn an_unknown_provider_is_not_latched_and_makes_no_call_op_20() {
    let mut world = World::with(object(), settings(), None);
    world.settle_writes();
    assert_eq!((world.phase(), reason(&world)), (Phase::Pending, "ProviderNotConfigured"));
    assert!(world.calls.is_empty() && !world.object.finalizer, "nothing to clean up yet");
    world.set_provider(Some("f1"));
    world.settle();
    assert!(world.runs());
}

#[test]
fn unresolved_cloud_init_is_named_and_resolved_the_moment_it_appears_op_21() {
    let mut first = object();
    first.cloud_init = CloudInit::Unresolved { message: "there is no Secret pool".into() };
    let mut world = World::new(first, settings());
    world.settle_writes();
    assert_eq!((world.phase(), reason(&world)), (Phase::Pending, "CloudInitUnresolved"));
    assert_eq!(world.provisioned().2, "there is no Secret pool");
    world.touch(|object| from_secret(object, "a"));
    world.settle();
    assert!(world.runs());
    world.object.cloud_init = CloudInit::Unresolved { message: "there is no Secret pool".into() };
    world.deliver();
    world.settle_writes();
    assert_eq!((world.provisioned().0, reason(&world)), ("True", "CloudInitUnresolved"), "a running instance is kept (OP-28)");
    world.touch(|object| from_secret(object, "a"));
    world.calls.clear();
    world.settle_writes();
    assert_eq!(reason(&world), "Provisioned");
    world.live(seconds(300));
    assert!(world.calls.iter().all(|op| *op == Op::Get), "back with the same content, nothing is replaced");
}

#[test]
fn one_that_never_reports_an_address_is_replaced_once_then_latched_op_22() {
    let mut world = provisioning();
    let wait_for = |world: &mut World, what: &dyn Fn(&World) -> bool| {
        for _ in 0..2_000 {
            if what(world) {
                return;
            }
            // The guest never gets an address.
            if world.write.is_some() {
                world.written();
            } else if world.call.is_some() {
                world.answer();
                if world.vm.as_ref().is_some_and(|vm| vm.state == Vm1::Deleting) && op(world) == Some(Op::Get) {
                    world.vm = None;
                }
            } else {
                world.pass(seconds(60));
            }
        }
        panic!("{:#}", world.machine.explain(world.now));
    };
    let born = world.now;
    world.unwanted = true;
    wait_for(&mut world, &|world| reason(world) == "ProvisioningTimeout");
    assert!(world.now.since(born) >= seconds(1790) && world.now.since(born) <= seconds(1860));
    assert!(world.provisioned().2.contains("Starting"), "the provider's last facts: {}", world.provisioned().2);
    wait_for(&mut world, &|world| world.calls.iter().filter(|op| **op == Op::Create).count() == 2);
    assert_eq!(world.phase(), Phase::Provisioning);
    wait_for(&mut world, &|world| world.phase() == Phase::Failed);
    assert_eq!(reason(&world), "ProvisioningTimeout");
    let latched = world.now;
    world.unwanted = true;
    wait_for(&mut world, &|world| op(world) == Some(Op::Delete));
    assert!(world.now.since(latched) >= seconds(299), "an environment cause is tried again");
}

/// Has the running instance report no address at each of its next reads.
fn hiccups(world: &mut World, reads: u32) {
    for _ in 0..reads {
        while op(world).is_none() {
            world.pass(seconds(120));
            world.settle_writes();
        }
        world.vm.as_mut().expect("a vm").state = Vm1::Starting;
        world.answer();
        world.settle_writes();
    }
}

#[test]
fn an_address_is_kept_for_three_polls_and_as_long_as_probes_pass_op_13_pc_62_he_11() {
    let mut world = World::ready();
    hiccups(&mut world, 5);
    assert_eq!(world.phase(), Phase::Ready, "its probes pass");
    world.probe(false, false);
    assert_eq!(world.phase(), Phase::Provisioning, "they do not any more");
    let mut world = World::ready();
    world.probe(false, false);
    hiccups(&mut world, 2);
    assert_eq!(world.phase(), Phase::Unhealthy, "three polls");
    hiccups(&mut world, 1);
    assert_eq!(world.phase(), Phase::Provisioning);
    assert_eq!(world.machine.healthy().status, Status::Unknown, "no host, no verdict (HE-2)");
}

#[test]
fn a_changed_address_replaces_the_old_one_at_once_and_probes_start_anew_op_13_he_2() {
    let mut world = World::ready();
    let epoch = world.target.as_ref().expect("probed").epoch;
    world.ip = 8;
    world.pass(seconds(120));
    world.answer();
    let target = world.target.clone().expect("probed");
    assert_eq!((&*target.host, target.prior, world.phase()), ("192.0.2.8", None, Phase::Running));
    assert!(target.epoch > epoch, "late results of the old address are told by their epoch");
}

#[test]
fn a_result_of_an_old_configuration_does_not_count_and_has_the_prober_told_again_he_2() {
    let mut world = World::ready();
    let target = world.target.take().expect("probed");
    let outcome = ProbeOutcome::Failed { failure: ProbeFailure::ConnectFailed, message: "refused".to_owned(), target_side: false };
    let (started_at, ended_at) = (world.now, world.now);
    let report = ProbeReport { epoch: target.epoch + 1, started_at, ended_at, outcome, healthy: false, flipped: true, contradicting: 0 };
    world.input(Input::Probed(report));
    assert_eq!(world.phase(), Phase::Ready);
    assert_eq!(world.target, Some(target));
}

#[test]
fn a_turn_to_unhealthy_asks_for_one_poll_out_of_turn_at_most_one_a_minute_op_13() {
    let mut world = World::ready();
    world.probe(false, false);
    assert_eq!(op(&world), Some(Op::Get));
    world.answer();
    world.settle_writes();
    world.probe(true, false);
    world.settle_writes();
    world.probe(false, false);
    assert_eq!(op(&world), None);
}

#[test]
fn the_last_written_verdict_stands_after_a_restart_and_leasing_waits_for_the_instance_he_2() {
    let mut world = World::ready();
    world.crash(false, false);
    assert_eq!((world.phase(), world.target.as_ref().map(|target| target.prior)), (Phase::Ready, Some(Some(true))));
    assert!(world.availability.as_ref().is_some_and(|entry| !entry.healthy && entry.awaited), "not yet known to run");
    world.answer();
    assert!(world.availability.as_ref().is_some_and(|entry| entry.healthy && !entry.awaited));
    world.settle_writes();
    assert_eq!(world.writes, 0, "nothing changed, nothing is written (OP-24)");
    world.crash(false, false);
    world.fail(fault(ErrorClass::Transient), false);
    assert!(world.availability.as_ref().is_some_and(|entry| !entry.healthy));
    world.probe(true, false);
    assert!(world.availability.as_ref().is_some_and(|entry| entry.healthy), "traffic proves it, whatever the provider says (HE-11)");
}

#[test]
fn leasing_learns_of_a_turn_before_it_is_written_he_5() {
    let mut world = World::ready();
    world.probe(false, false);
    assert!(world.availability.as_ref().is_some_and(|entry| !entry.healthy));
    assert_eq!(condition(&world.object.status, kind::HEALTHY), Status::True, "not yet written");
}

fn condition(of: &ProxyStatus, kind: &str) -> Status {
    status(&of.conditions, kind)
}

#[test]
fn verdicts_that_a_suspect_check_url_flipped_are_restored_and_held_he_9_m10() {
    let mut world = World::ready();
    let url: Arc<str> = world.object.spec.health_check.url.as_str().into();
    let since = world.now;
    world.pass(seconds(1));
    world.probe(false, true);
    assert_eq!(world.phase(), Phase::Unhealthy);
    world.input(Input::CheckUrl(Suspicion::Suspect { url: Arc::clone(&url), since, until: since + seconds(1800), speaks: false }));
    assert_eq!(world.phase(), Phase::Ready, "restored");
    world.probe(false, true);
    assert_eq!(world.phase(), Phase::Ready, "held");
    assert!(!has_event(&world, EventReason::CheckUrlSuspect), "another speaks for the namespace");
    world.probe(false, false);
    assert_eq!(world.phase(), Phase::Unhealthy, "a fault of its own condemns it all the same (M8)");
    world.input(Input::CheckUrl(Suspicion::Cleared { url }));
    world.probe(true, false);
    assert_eq!(world.phase(), Phase::Ready);
}

#[test]
fn an_external_proxy_goes_from_pending_to_ready_or_unhealthy_op_6() {
    let mut world = World::new(external("198.51.100.7"), settings());
    world.settle_writes();
    assert_eq!((world.phase(), world.calls.len(), world.object.finalizer), (Phase::Pending, 0, false));
    assert_eq!(world.object.status.ip.as_deref(), Some("198.51.100.7"));
    world.probe(true, false);
    world.settle_writes();
    assert_eq!(world.phase(), Phase::Ready);
    assert!(world.availability.as_ref().is_some_and(|entry| entry.healthy));
    assert!(find(&world.object.status.conditions, kind::PROVISIONED).is_none(), "Managed only (OP-7)");
    assert_eq!(condition(&world.object.status, kind::READY), Status::True);
    world.probe(false, false);
    assert_eq!(world.phase(), Phase::Unhealthy);
    let named = World::new(external("proxy.example"), settings());
    assert_eq!(named.availability.as_ref().map(|entry| (entry.host.as_deref(), entry.ip.clone())), Some((Some("proxy.example"), None)));
}

#[test]
fn an_external_proxy_without_its_credentials_is_not_probed_he_12() {
    let mut first = external("proxy.example");
    first.credentials = CredentialsState::Unresolved { message: "there is no Secret shop".into() };
    let mut world = World::new(first, settings());
    world.settle_writes();
    assert!(world.target.is_none());
    let healthy = find(&world.object.status.conditions, kind::HEALTHY).expect("a condition").clone();
    assert_eq!((&*healthy.status, &*healthy.reason, &*healthy.message), ("False", "CredentialsUnresolved", "there is no Secret shop"));
    world.object.credentials = CredentialsState::NotNeeded;
    world.deliver();
    assert!(world.target.is_some(), "it heals the moment they appear");
}

#[test]
fn suspended_objects_are_left_as_they_are_and_drained_op_30() {
    let mut world = World::ready();
    let before = Arc::clone(&world.object.status);
    world.object.suspended = true;
    world.deliver();
    for _ in 0..10 {
        world.pass(seconds(3600));
    }
    assert!(world.calls.is_empty() && world.write.is_none() && world.target.is_none());
    assert!(world.availability.as_ref().is_some_and(|entry| entry.draining && !entry.healthy && entry.phase == Phase::Ready));
    world.object.suspended = false;
    world.deliver();
    world.settle();
    assert!(world.runs() && Arc::ptr_eq(&before, &world.object.status), "as it was");
}

#[test]
fn an_object_of_another_installation_is_left_alone_until_the_field_is_cleared_op_34() {
    let mut first = object();
    first.status = Arc::new(ProxyStatus { installation: Some("theirs".into()), ..ProxyStatus::default() });
    let mut world = World::new(first, settings());
    world.pass(seconds(3600));
    world.deliver();
    assert_eq!((world.foreign, world.calls.len(), world.write.is_some(), world.finalizer), (1, 0, false, None), "one WARNING");
    world.touch(|object| object.status = Arc::default());
    world.settle();
    assert!(world.runs());
    assert_eq!(world.object.status.installation.as_deref(), Some(installation().as_str()));
}

#[test]
fn a_steady_proxy_writes_nothing_op_24() {
    let mut world = World::ready();
    for _ in 0..100 {
        world.pass(seconds(30));
        if world.call.is_some() {
            world.answer();
        }
        world.probe(true, false);
    }
    assert_eq!(world.writes, 0);
    assert!(world.calls.len() >= 20, "while it is read and probed");
}

#[test]
fn status_writes_are_at_most_one_a_second_op_24() {
    let mut world = World::ready();
    let mut last = world.now;
    let mut count = 0;
    for n in 0..200 {
        world.probe(n % 2 == 0, false);
        world.pass(Duration::from_millis(100));
        if world.call.is_some() {
            world.answer();
        }
        if world.write.is_some() {
            assert!(count == 0 || world.now.since(last) >= Duration::from_millis(900), "{:?}", world.now.since(last));
            (last, count) = (world.now, count + 1);
            world.written();
        }
    }
    assert!(count > 5);
}

#[test]
fn a_conflict_is_decided_anew_and_a_store_that_is_away_is_retried_op_24_op_29() {
    let mut world = World::new(object(), settings());
    for error in [SourceError::Conflict, SourceError::Unavailable("no space".into()), SourceError::Conflict] {
        while world.write.is_none() {
            if world.finalizer.is_some() {
                world.finalizer_written();
            }
            world.pass(seconds(300));
        }
        world.not_written(error, false);
        assert!(world.calls.is_empty(), "nothing is done that is not recorded");
    }
    world.settle();
    assert!(world.runs());
}

#[test]
fn an_object_that_is_gone_is_not_written_to_any_more_op_24() {
    let mut world = World::ready();
    world.probe(false, false);
    world.answer();
    world.pass(seconds(2));
    world.not_written(SourceError::Gone, false);
    for _ in 0..10 {
        world.pass(seconds(600));
    }
    assert!(world.write.is_none() && world.call.is_none() && world.target.is_none());
}

#[test]
fn a_text_that_differs_only_in_numbers_is_rewritten_every_five_minutes_at_most_op_7() {
    let mut world = creating();
    world.settle_writes();
    let writes = world.writes;
    for n in 0..1000_u32 {
        let epoch = world.call.as_ref().expect("a create").0;
        world.input(Input::Progress { epoch, text: format!("fetching image x on h1: {n} of 2000 MiB") });
        world.pass(Duration::from_millis(300));
        world.settle_writes();
    }
    // 300 s of progress, at most every 30 s (LV-103).
    assert!((9..=13).contains(&(world.writes - writes)), "{}", world.writes - writes);
    assert!(find(&world.object.status.conditions, kind::PROVISIONED).is_some_and(|c| c.message.starts_with("fetching image")));
}

#[test]
fn ready_says_what_holds_it_back_and_repeats_the_provider_while_unhealthy_op_7() {
    let mut world = World::new(object(), settings());
    world.settle_writes();
    world.settle();
    let ready = |world: &World| find(&world.object.status.conditions, kind::READY).expect("Ready").clone();
    assert_eq!(ready(&world).reason, "NotProbed");
    world.probe(false, false);
    world.settle_writes();
    assert_eq!((&*ready(&world).status, &*ready(&world).reason), ("False", "ProbeFailed"));
    assert!(ready(&world).message.starts_with("ConnectFailed: connection refused"));
    world.probe(true, false);
    world.settle_writes();
    assert_eq!((&*ready(&world).status, &*ready(&world).reason), ("True", "Ready"));
}

#[test]
fn twenty_stale_objects_in_a_row_make_one_instance_m2_o2() {
    let mut world = World::new(object(), settings());
    let old = Arc::new(object());
    for _ in 0..20 {
        world.go_on();
        world.input(Input::Object(Arc::clone(&old)));
    }
    world.settle();
    assert_eq!(world.calls.iter().filter(|op| **op == Op::Create).count(), 1, "{:?}", world.calls);
}

#[test]
fn no_text_of_ours_holds_user_data_or_credentials_s7() {
    let mut first = object();
    from_secret(&mut first, "sentinel-user-data");
    let mut world = World::new(first, settings());
    world.settle();
    let told = format!("{:?} {} {:?}", world.machine, world.machine.explain(world.now), world.object.status);
    assert!(!told.contains("sentinel"));
}

fn leased() -> World {
    World { leased: true, ..World::ready() }
}

fn drain_by(world: &World) -> Option<Timestamp> {
    world.availability.as_ref().and_then(|entry| entry.drain_by)
}

/// LS-16, issue 10, 27: it was deleted at once, under its holders.
#[test]
fn a_leased_proxy_that_is_deleted_or_replaced_waits_for_its_leases_ls_16() {
    let changes: [fn(&mut World); 3] =
        [|world| world.touch(|object| object.deleting = true), |world| world.set_port(3129), World::ask_for_replacement];
    for change in changes {
        let mut world = leased();
        change(&mut world);
        world.deliver();
        let by = world.now + Duration::from_secs(300);
        let entry = world.availability.clone().unwrap();
        assert_eq!((entry.draining, entry.drain_by), (true, Some(by)), "no new grants, and the holders are told");
        world.live(Duration::from_secs(200));
        assert!(!world.calls.contains(&Op::Delete) && world.vm.is_some(), "it waits");
        assert_eq!(world.target.as_ref().map(|target| target.port), Some(3128), "and is probed where it listens all the while");
        assert_eq!(world.availability.as_ref().map(|entry| entry.port), Some(3128));
        let mut released = world.clone();
        released.release();
        released.settle_writes();
        assert!(released.calls.contains(&Op::Delete), "until the last lease has ended");
        world.live(Duration::from_secs(105));
        assert!(world.calls.contains(&Op::Delete), "at most for the drain timeout");
    }
}

#[test]
fn a_proxy_without_leases_goes_at_once_ls_16() {
    let mut world = World::ready();
    let began = world.now;
    world.touch(|object| object.deleting = true);
    world.settle();
    assert!(world.is_gone() && world.vm.is_none());
    assert!(world.now.since(began) < Duration::from_secs(60));
}

#[test]
fn an_instance_that_is_unhealthy_or_gone_is_not_waited_for_ls_16() {
    let mut world = leased();
    world.probe(false, false);
    world.touch(|object| object.deleting = true);
    world.deliver();
    assert_eq!(drain_by(&world), None);
    world.live(Duration::from_secs(2));
    assert!(world.calls.contains(&Op::Delete));
    // It turns unhealthy, or vanishes, while it drains.
    for vanishes in [false, true] {
        let mut world = leased();
        world.touch(|object| object.deleting = true);
        world.deliver();
        world.live(Duration::from_secs(10));
        assert!(drain_by(&world).is_some());
        if vanishes {
            world.vm = None;
        } else {
            world.probe(false, false);
        }
        world.live(Duration::from_secs(130));
        assert!(world.is_gone() && world.vm.is_none(), "{vanishes}: {:#}", world.machine.explain(world.now));
    }
}

#[test]
fn an_edit_that_is_taken_back_ends_the_wait_ls_16() {
    let mut world = leased();
    world.set_port(3129);
    world.deliver();
    let first = drain_by(&world).unwrap();
    world.live(Duration::from_secs(10));
    world.set_port(3128);
    world.deliver();
    let entry = world.availability.clone().unwrap();
    assert_eq!((entry.draining, entry.drain_by), (false, None));
    world.live(Duration::from_secs(10));
    world.set_port(3129);
    world.deliver();
    world.input(Input::Drained(first));
    world.live(Duration::from_secs(10));
    assert!(!world.calls.contains(&Op::Delete), "a word about the wait before says nothing");
}

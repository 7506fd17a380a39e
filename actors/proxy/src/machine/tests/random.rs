//! Random lives with real intervals: whatever happens, the invariants of `world` hold after every step, and once the
//! trouble is over the proxy comes to where its object wants it.

use std::time::Duration;

use egress_protocol::object::CloudInit;
use egress_protocol::provider::ErrorClass;
use egress_protocol::source::SourceError;
use proptest::prelude::*;

use super::world::{Vm1, World, fault, object, settings};
use crate::machine::{Fault, Input};

#[derive(Debug, Clone)]
enum Happening {
    GoOn,
    Pass(u32),
    Answer,
    Fail(ErrorClass, bool, bool, Option<u8>),
    Written,
    NotWritten(u8, bool),
    FinalizerWritten,
    Deliver,
    State(Vm1),
    Vanish,
    OtherAddress,
    Probe(bool),
    Port(u16),
    Replace,
    Retry,
    Suspend(bool),
    CloudInit(bool),
    Provider(Option<u8>),
    Delete,
    CapacityFreed,
    ProviderDown(bool),
    Crash(bool, bool),
    Lease(bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening as H;
    let class = prop_oneof![
        4 => Just(ErrorClass::Transient),
        2 => Just(ErrorClass::QuotaExceeded),
        1 => Just(ErrorClass::Permanent),
    ];
    let state = prop_oneof![Just(Vm1::Starting), Just(Vm1::Running), Just(Vm1::Paused), Just(Vm1::Stopped), Just(Vm1::Deleting)];
    prop_oneof![
        30 => Just(H::GoOn),
        8 => (0..400_u32).prop_map(H::Pass),
        8 => Just(H::Answer),
        4 => (class, any::<bool>(), any::<bool>(), prop::option::of(0..20_u8)).prop_map(|(c, d, e, r)| H::Fail(c, d, e, r)),
        6 => Just(H::Written),
        2 => (0..2_u8, any::<bool>()).prop_map(|(e, a)| H::NotWritten(e, a)),
        4 => Just(H::FinalizerWritten),
        6 => Just(H::Deliver),
        3 => state.prop_map(H::State),
        1 => Just(H::Vanish),
        1 => Just(H::OtherAddress),
        4 => any::<bool>().prop_map(H::Probe),
        2 => (3128..3131_u16).prop_map(H::Port),
        1 => Just(H::Replace),
        1 => Just(H::Retry),
        1 => any::<bool>().prop_map(H::Suspend),
        1 => any::<bool>().prop_map(H::CloudInit),
        2 => prop::option::of(0..3_u8).prop_map(H::Provider),
        1 => Just(H::Delete),
        1 => Just(H::CapacityFreed),
        1 => any::<bool>().prop_map(H::ProviderDown),
        3 => (any::<bool>(), any::<bool>()).prop_map(|(c, w)| H::Crash(c, w)),
        3 => any::<bool>().prop_map(H::Lease),
    ]
}

fn happen(world: &mut World, what: &Happening) {
    if world.is_gone() {
        return;
    }
    match what.clone() {
        Happening::GoOn => {
            world.go_on();
        }
        Happening::Pass(seconds) => world.pass(Duration::from_secs(seconds.into())),
        Happening::Answer if world.call.is_some() => world.answer(),
        Happening::Fail(class, environment, carried_out, retry_after) if world.call.is_some() => {
            let retry_after = retry_after.map(|seconds| Duration::from_secs(seconds.into()));
            world.fail(Fault { environment, retry_after, ..fault(class) }, carried_out);
        }
        Happening::Written if world.write.is_some() => world.written(),
        Happening::NotWritten(error, arrives) if world.write.is_some() => {
            let error = if error == 0 { SourceError::Conflict } else { SourceError::Unavailable("no space".into()) };
            world.not_written(error, arrives);
        }
        Happening::FinalizerWritten if world.finalizer.is_some() => world.finalizer_written(),
        Happening::Deliver => world.deliver(),
        Happening::State(state) => {
            if let Some(vm) = world.vm.as_mut().filter(|vm| vm.state != Vm1::Deleting) {
                vm.state = state;
            }
        }
        Happening::Vanish => world.vm = None,
        Happening::OtherAddress => world.ip = 3 + world.ip % 5,
        Happening::Probe(healthy) => world.probe(healthy, false),
        Happening::Port(port) if !world.object.deleting => world.set_port(port),
        Happening::Replace => world.ask_for_replacement(),
        Happening::Retry => world.touch(|object| object.annotations.retry = Some(object.generation.to_string())),
        Happening::Suspend(suspended) => world.touch(|object| object.suspended = suspended),
        Happening::CloudInit(resolved) => world.touch(|object| {
            object.cloud_init = if resolved { CloudInit::None } else { CloudInit::Unresolved { message: "gone".into() } };
        }),
        Happening::Provider(fingerprint) => world.set_provider(fingerprint.map(|n| ["f1", "f2", "f3"][usize::from(n)])),
        Happening::Delete => world.touch(|object| object.deleting = true),
        Happening::CapacityFreed => world.input(Input::CapacityFreed),
        Happening::ProviderDown(down) => world.input(Input::ProviderDown(down)),
        Happening::Crash(call, write) => world.crash(call, write),
        // A draining proxy is not granted.
        Happening::Lease(true) => world.leased |= world.availability.as_ref().is_some_and(|entry| entry.healthy && !entry.draining),
        Happening::Lease(false) => world.release(),
        Happening::Answer
        | Happening::Fail(..)
        | Happening::Written
        | Happening::NotWritten(..)
        | Happening::FinalizerWritten
        | Happening::Port(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_invariants_hold_and_the_object_gets_its_way_in_the_end(
        happenings in prop::collection::vec(happening(), 1..120),
    ) {
        let mut world = World::new(object(), settings());
        // What replaces without an edit has its own tests: here only edits, accidents and deadlines do.
        for what in &happenings {
            // A deadline missed (OP-22) is a reason of its own to replace what runs.
            world.unwanted |= world.now.since(world.born) > Duration::from_secs(1_700);
            happen(&mut world, what);
        }
        world.unwanted = true;
        if world.is_gone() {
            prop_assert!(world.vm.is_none());
            return Ok(());
        }
        // The trouble is over.
        if let Some(vm) = world.vm.as_mut().filter(|vm| vm.state == Vm1::Paused) {
            vm.state = Vm1::Running;
        }
        world.touch(|object| {
            object.suspended = false;
            object.cloud_init = CloudInit::None;
            object.generation += 1;
        });
        world.set_provider(Some("healed"));
        world.settle();
        let gone = world.is_gone() && world.vm.is_none();
        prop_assert!((world.object.deleting && gone) || world.runs());
    }
}

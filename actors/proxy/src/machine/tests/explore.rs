//! Every short life of one proxy: all orders of answers, faults, crashes, edits and a deletion, breadth first. The machine
//! is impatient (every wait is over at once), so that time multiplies nothing; the invariants are in `world`.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use egress_protocol::provider::{ErrorClass, Op};
use egress_protocol::resource::ProxyStatus;
use egress_protocol::resource::conditions::{find, kind};
use egress_protocol::source::SourceError;

use super::world::{Vm1, World, fault, impatient, object};
use crate::machine::Settings;
use crate::machine::drain::SLACK;

/// What may still go wrong or change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    faults: u8,
    crashes: u8,
    edits: u8,
    deletions: u8,
    replacements: u8,
    /// The instance stops or vanishes by itself.
    accidents: u8,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Answer,
    Fail(ErrorClass, bool),
    Written,
    NotWritten(bool),
    FinalizerWritten,
    Deliver,
    Start,
    Vanish,
    Stop,
    Edit(u16),
    DeleteObject,
    Replace,
    Crash(bool, bool),
    /// The last lease ends.
    Release,
    /// A probe ends the other way.
    Turn,
    /// The time comes at which leases are revoked.
    Time,
}

/// All that can happen now, with what is left of the budget afterwards.
fn actions(world: &World, budget: Budget) -> Vec<(Action, Budget)> {
    let mut list = Vec::new();
    if world.is_gone() {
        return list;
    }
    let mut add = |action, budget| list.push((action, budget));
    if let Some((_, call, cancelled)) = &world.call {
        add(Action::Answer, budget);
        if *cancelled {
            add(Action::Fail(ErrorClass::Transient, false), budget);
            add(Action::Fail(ErrorClass::Transient, true), budget);
        } else if budget.faults > 0 {
            let less = Budget { faults: budget.faults - 1, ..budget };
            add(Action::Fail(ErrorClass::Transient, false), less);
            add(Action::Fail(ErrorClass::Permanent, false), less);
            if call.op() != Op::Get {
                add(Action::Fail(ErrorClass::Transient, true), less);
                add(Action::Fail(ErrorClass::QuotaExceeded, false), less);
            }
        }
    }
    if world.write.is_some() {
        add(Action::Written, budget);
        if budget.faults > 0 {
            let less = Budget { faults: budget.faults - 1, ..budget };
            add(Action::NotWritten(false), less);
            add(Action::NotWritten(true), less);
        }
    }
    if world.finalizer.is_some() {
        add(Action::FinalizerWritten, budget);
    }
    if world.stale {
        add(Action::Deliver, budget);
    }
    match world.vm.as_ref().map(|vm| vm.state) {
        Some(Vm1::Starting) => add(Action::Start, budget),
        Some(Vm1::Deleting) => add(Action::Vanish, budget),
        Some(Vm1::Running) if budget.accidents > 0 => {
            let less = Budget { accidents: budget.accidents - 1, ..budget };
            add(Action::Stop, less);
            add(Action::Vanish, less);
        }
        _ => {}
    }
    if budget.edits > 0 && !world.object.deleting {
        let port = if world.object.spec.port == 3128 { 3129 } else { 3128 };
        add(Action::Edit(port), Budget { edits: budget.edits - 1, ..budget });
    }
    if budget.deletions > 0 {
        add(Action::DeleteObject, Budget { deletions: budget.deletions - 1, ..budget });
    }
    if budget.replacements > 0 && world.machine.id.is_some() && !world.object.deleting {
        add(Action::Replace, Budget { replacements: budget.replacements - 1, ..budget });
    }
    if world.leased {
        add(Action::Release, budget);
        if world.machine.drains() {
            add(Action::Time, budget);
        }
        if budget.accidents > 0 && world.target.is_some() && world.machine.health.verdict() == Some(true) {
            add(Action::Turn, Budget { accidents: budget.accidents - 1, ..budget });
        }
    }
    if budget.crashes > 0 {
        let less = Budget { crashes: budget.crashes - 1, ..budget };
        add(Action::Crash(false, false), less);
        if world.call.is_some() {
            add(Action::Crash(true, false), less);
        }
        if world.write.is_some() || world.finalizer.is_some() {
            add(Action::Crash(false, true), less);
        }
    }
    list
}

fn act(world: &mut World, action: Action) {
    match action {
        Action::Answer => world.answer(),
        Action::Fail(class, carried_out) => world.fail(fault(class), carried_out),
        Action::Written => world.written(),
        Action::NotWritten(arrives) => world.not_written(SourceError::Unavailable("disk full".into()), arrives),
        Action::FinalizerWritten => world.finalizer_written(),
        Action::Deliver => world.deliver(),
        Action::Start => world.vm.as_mut().expect("a vm").state = Vm1::Running,
        Action::Stop => world.vm.as_mut().expect("a vm").state = Vm1::Stopped,
        Action::Vanish => world.vm = None,
        Action::Edit(port) => world.set_port(port),
        Action::DeleteObject => {
            world.object.deleting = true;
            world.object.generation += 1;
            world.stale = true;
        }
        Action::Replace => world.ask_for_replacement(),
        Action::Crash(call, write) => world.crash(call, write),
        Action::Release => world.release(),
        Action::Turn => world.probe(false, false),
        Action::Time => {
            let by = world.machine.drain_by().expect("it drains");
            world.pass(by.since(world.now) + SLACK);
        }
    }
    world.machine.history.clear();
    world.events.clear();
    world.calls.clear();
}

/// What of a world decides how it can go on.
fn key(world: &World, budget: Budget) -> u64 {
    let mut h = DefaultHasher::new();
    budget.hash(&mut h);
    let object = |o: &egress_protocol::object::ProxyObject, h: &mut DefaultHasher| {
        (o.generation, o.spec.port, o.deleting, o.finalizer, &o.annotations.replace).hash(h);
    };
    let status = |s: &ProxyStatus, h: &mut DefaultHasher| {
        (&s.spec_hash, &s.provider_id, &s.ip, s.phase, s.observed_generation).hash(h);
        let provisioned = find(&s.conditions, kind::PROVISIONED);
        provisioned.map(|c| (&c.status, &c.reason, without_times(&c.message))).hash(h);
        find(&s.conditions, kind::HEALTHY).map(|c| &c.status).hash(h);
    };
    object(&world.object, &mut h);
    status(&world.object.status, &mut h);
    (world.stale, &world.vm, world.unwanted, world.is_gone()).hash(&mut h);
    world.call.as_ref().map(|(_, call, cancelled)| (call.op(), *cancelled)).hash(&mut h);
    if let Some((_, writing)) = &world.write {
        status(writing, &mut h);
    }
    (world.write.is_some(), world.finalizer, world.target.is_some(), world.timer.is_some()).hash(&mut h);
    let m = &world.machine;
    object(&m.object, &mut h);
    (&m.hash, m.id.is_some(), m.finalizer.held, m.finalizer.shown, m.replacing, m.absent, m.released, m.gone).hash(&mut h);
    (m.sight.address, m.sight.confirmed, &m.sight.detail, m.sight.born.is_some(), m.polls.min(2)).hash(&mut h);
    (m.doom.as_ref().map(|d| (d.reason, &d.message, d.pause)), m.purge.as_ref().map(|p| p.gone)).hash(&mut h);
    (m.trouble.as_ref().map(|t| &t.message), m.latch.as_ref().map(|l| l.trying), m.timeouts, m.tries.failed.min(2)).hash(&mut h);
    (m.record.spec_hash(), m.record.confirms(&m.object, m.hash.as_deref(), m.id.as_ref()), m.record.in_flight()).hash(&mut h);
    (world.leased, m.drain.is_some(), m.drains(), world.drain_by.map(|by| by <= world.now), m.health.verdict()).hash(&mut h);
    h.finish()
}

/// When leases are revoked is another time in each life.
fn without_times(message: &str) -> &str {
    message.split(", at ").next().unwrap_or(message)
}

/// Without further trouble it comes to rest; what was met on the way does too.
fn heals(world: &World, good: &mut HashSet<u64>) {
    let calm = Budget { faults: 0, crashes: 0, edits: 0, deletions: 0, replacements: 0, accidents: 0 };
    let mut world = world.clone();
    let mut met = Vec::new();
    for _ in 0..300 {
        let here = key(&world, calm);
        if good.contains(&here) || world.is_at_rest() {
            good.extend(met);
            good.insert(here);
            return;
        }
        met.push(here);
        assert!(world.go_on(), "nothing left to happen: {:#}", world.machine.explain(world.now));
        world.machine.history.clear();
    }
    panic!("does not come to rest: {:#}\n{:?}", world.machine.explain(world.now), world.vm);
}

/// Explores everything within the budget; answers how many different states there were.
fn explore(budget: Budget) -> usize {
    explore_from(World::new(object(), impatient()), budget)
}

fn explore_from(mut start: World, budget: Budget) -> usize {
    start.machine.history.clear();
    let (mut seen, mut good) = (HashSet::new(), HashSet::new());
    let mut queue = VecDeque::from([(start, budget)]);
    while let Some((world, budget)) = queue.pop_front() {
        for (action, budget) in actions(&world, budget) {
            let mut next = world.clone();
            act(&mut next, action);
            if seen.insert(key(&next, budget)) {
                heals(&next, &mut good);
                assert!(seen.len() < 300_000, "the world is not small any more");
                queue.push_back((next, budget));
            }
        }
    }
    seen.len()
}

const NOTHING: Budget = Budget { faults: 0, crashes: 0, edits: 0, deletions: 0, replacements: 0, accidents: 0 };

#[test]
fn every_life_with_a_crash_and_two_edits_ends_well_o3_op_12_op_16() {
    let states = explore(Budget { crashes: 1, edits: 2, ..NOTHING });
    assert!(states > 5_000, "explored only {states}");
}

#[test]
fn every_life_with_two_crashes_an_edit_and_a_deletion_ends_well_o1_o3_op_11_op_16() {
    let states = explore(Budget { crashes: 2, edits: 1, deletions: 1, ..NOTHING });
    assert!(states > 5_000, "explored only {states}");
}

#[test]
fn every_life_with_a_fault_a_crash_and_a_deletion_ends_well_o1_o3_pc_12() {
    let states = explore(Budget { faults: 1, crashes: 1, deletions: 1, ..NOTHING });
    assert!(states > 1_000, "explored only {states}");
}

#[test]
fn every_life_with_two_faults_and_an_edit_ends_well_op_16_pc_12() {
    let states = explore(Budget { faults: 2, edits: 1, ..NOTHING });
    assert!(states > 1_000, "explored only {states}");
}

#[test]
fn every_life_with_an_accident_a_replacement_and_a_crash_ends_well_op_14_op_15_op_33() {
    let states = explore(Budget { crashes: 1, replacements: 1, accidents: 1, ..NOTHING });
    assert!(states > 1_000, "explored only {states}");
}

/// LS-16, issue 10, 27: a proxy that serves and is leased, in an otherwise impatient world. That nothing is removed before
/// its leases have ended or `drainBy` has come is an invariant of the world.
fn leased() -> World {
    let (drain_timeout, poll_drift) = (Duration::from_secs(5), Duration::from_secs(2));
    let settings = Settings { drain_timeout, poll_drift, ..impatient() };
    let mut world = World::new(object(), settings);
    world.settle();
    world.probe(true, false);
    world.settle();
    world.leased = true;
    world
}

#[test]
fn every_life_of_a_leased_proxy_with_an_edit_a_deletion_and_a_crash_ends_well_ls_16() {
    let states = explore_from(leased(), Budget { crashes: 1, edits: 1, deletions: 1, ..NOTHING });
    assert!(states > 1_000, "explored only {states}");
}

#[test]
fn every_life_of_a_leased_proxy_with_an_accident_a_replacement_and_a_deletion_ends_well_ls_16() {
    let states = explore_from(leased(), Budget { accidents: 1, replacements: 1, deletions: 1, ..NOTHING });
    assert!(states > 1_000, "explored only {states}");
}

#[test]
fn every_life_of_a_leased_proxy_with_two_faults_and_a_deletion_ends_well_ls_16() {
    let states = explore_from(leased(), Budget { faults: 2, deletions: 1, ..NOTHING });
    assert!(states > 100, "explored only {states}");
}

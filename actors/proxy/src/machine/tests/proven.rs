//! What was proven stays (OP-28, PC-58), clause by clause, and for each clause a machine that breaks it: what keeps a
//! running proxy in rotation while its backend cannot be read is worth a proof that its tests can fail.

use std::fmt::Debug;
use std::time::Duration;

use egress_protocol::object::CloudInit;
use egress_protocol::provider::{ErrorClass, Op};
use egress_protocol::resource::Phase;

use super::world::{Breaks, World, fault};
use crate::machine::{Answer, Fault, Input, Latch, Machine};

/// `Err` says what was seen instead.
type Holds = Result<(), String>;

/// A clause of OP-28, of a world whose proxy is Ready.
struct Clause {
    says: &'static str,
    holds: fn(World) -> Holds,
}

const KEEPS_ITS_PLACE: Clause = Clause { says: "a failing read leaves status, phase, address and rotation", holds: keeps_its_place };
const READS_GO_ON: Clause = Clause { says: "reads go on at the drift interval, after quota and Permanent every 5 m", holds: reads_go_on };
const NOTHING_LATCHED: Clause = Clause { says: "nothing is latched, and a read that works clears the reason", holds: nothing_latched };
const UNKNOWN_PROVIDER: Clause = Clause { says: "an unknown provider shows as reason only", holds: unknown_provider };
const UNRESOLVED: Clause = Clause { says: "an unresolved cloud-init shows as reason only", holds: unresolved };
const CLAUSES: [&Clause; 5] = [&KEEPS_ITS_PLACE, &READS_GO_ON, &NOTHING_LATCHED, &UNKNOWN_PROVIDER, &UNRESOLVED];

/// How a read can fail; how long until the next.
const FAILURES: [(ErrorClass, &str, u64); 3] = [
    (ErrorClass::Transient, "TransientError", 120),
    (ErrorClass::QuotaExceeded, "QuotaExceeded", 300),
    (ErrorClass::Permanent, "PermanentError", 300),
];

fn same<T: PartialEq + Debug>(what: impl Debug, seen: T, expected: T) -> Holds {
    if seen == expected { Ok(()) } else { Err(format!("{what:?}: {seen:?}, not {expected:?}")) }
}

/// Says `reason`, and is as it was.
fn in_its_place(world: &World, before: &World, reason: &str) -> Holds {
    let (status, said, _) = world.provisioned();
    same(reason, (status, said, world.phase()), ("True", reason, Phase::Ready))?;
    let host = |world: &World| world.availability.as_ref().map(|entry| (entry.healthy, entry.draining, entry.host.clone()));
    same("in the book", host(world), host(before))?;
    same("the recorded address", &world.object.status.ip, &before.object.status.ip)?;
    same("what is probed", &world.target, &before.target)
}

/// The next read fails.
fn fails(world: &mut World, class: ErrorClass) {
    while world.call.is_none() {
        world.pass(Duration::from_secs(1000));
        world.settle_writes();
    }
    world.fail(fault(class), false);
    world.settle_writes();
}

fn keeps_its_place(world: World) -> Holds {
    for (class, reason, _) in FAILURES {
        let (mut world, before) = (world.clone(), &world);
        for _ in 0..5 {
            fails(&mut world, class);
            in_its_place(&world, before, reason)?;
        }
    }
    Ok(())
}

fn reads_go_on(world: World) -> Holds {
    for (class, _, wait) in FAILURES {
        let mut world = world.clone();
        fails(&mut world, class);
        let failed = world.now;
        while world.call.is_none() {
            world.pass(Duration::from_secs(1000));
            world.settle_writes();
        }
        let waited = world.now.since(failed).as_secs();
        if waited.abs_diff(wait) > 2 {
            return Err(format!("{class:?}: the next read came after {waited} s, not {wait}"));
        }
    }
    Ok(())
}

fn nothing_latched(world: World) -> Holds {
    for (class, ..) in FAILURES {
        let mut world = world.clone();
        fails(&mut world, class);
        same(class, world.machine.latch.is_some(), false)?;
        while world.provisioned().1 != "Provisioned" {
            if !world.go_on() {
                return Err(format!("{class:?}: waits for nothing, and says {:?}", world.provisioned()));
            }
        }
        same(class, world.calls.iter().all(|op| *op == Op::Get), true)?;
    }
    Ok(())
}

fn unknown_provider(world: World) -> Holds {
    let (mut world, before) = (world.clone(), world);
    world.set_provider(None);
    world.settle_writes();
    in_its_place(&world, &before, "ProviderNotConfigured")
}

fn unresolved(world: World) -> Holds {
    let (mut world, before) = (world.clone(), world);
    world.touch(|object| object.cloud_init = CloudInit::Unresolved { message: "there is no Secret pool".into() });
    world.settle_writes();
    in_its_place(&world, &before, "CloudInitUnresolved")
}

#[test]
fn a_running_proxy_keeps_its_place_whatever_reads_say_op_28_pc_58() {
    for clause in CLAUSES {
        (clause.holds)(World::ready()).unwrap_or_else(|seen| panic!("{}: {seen}", clause.says));
    }
}

/// The fault of a read that did not tell that the instance is gone.
fn failed_read(input: &mut Input) -> Option<&mut Fault> {
    match input {
        Input::Answered { answer: Answer::Got(Err(fault)), .. } if fault.class != ErrorClass::NotFound => Some(fault),
        _ => None,
    }
}

fn forgets_the_address(machine: &mut Machine, mut input: Input) -> Input {
    if failed_read(&mut input).is_some() {
        machine.sight.address = None;
    }
    input
}

fn takes_it_out_of_rotation(machine: &mut Machine, mut input: Input) -> Input {
    if failed_read(&mut input).is_some() {
        machine.sight.confirmed = false;
    }
    input
}

fn takes_it_for_gone(_: &mut Machine, mut input: Input) -> Input {
    if let Some(fault) = failed_read(&mut input) {
        fault.class = ErrorClass::NotFound;
    }
    input
}

fn hurries(_: &mut Machine, mut input: Input) -> Input {
    if let Some(fault) = failed_read(&mut input) {
        fault.retry_after = Some(Duration::from_secs(1));
    }
    input
}

fn latches(machine: &mut Machine, mut input: Input) -> Input {
    if let Some(fault) = failed_read(&mut input).filter(|fault| fault.class == ErrorClass::Permanent) {
        machine.latch = Some(Latch { reason: "PermanentError", message: fault.message.clone(), retry_at: None, trying: false });
    }
    input
}

fn needs_its_provider(machine: &mut Machine, input: Input) -> Input {
    if matches!(input, Input::Provider(None)) {
        machine.sight.address = None;
    }
    input
}

fn needs_its_cloud_init(machine: &mut Machine, input: Input) -> Input {
    if matches!(&input, Input::Object(object) if matches!(object.cloud_init, CloudInit::Unresolved { .. })) {
        machine.sight.address = None;
    }
    input
}

#[test]
fn every_mutant_of_op_28_is_caught_by_the_clause_named_for_it() {
    let mutants: [(&str, Breaks, &Clause); 7] = [
        ("a failing read demotes a running proxy", forgets_the_address, &KEEPS_ITS_PLACE),
        ("a failing read takes it out of rotation", takes_it_out_of_rotation, &KEEPS_ITS_PLACE),
        ("a failing read counts as NotFound", takes_it_for_gone, &KEEPS_ITS_PLACE),
        ("a failing read is repeated at once", hurries, &READS_GO_ON),
        ("a Permanent read latches", latches, &NOTHING_LATCHED),
        ("an unknown provider demotes", needs_its_provider, &UNKNOWN_PROVIDER),
        ("an unresolved cloud-init demotes", needs_its_cloud_init, &UNRESOLVED),
    ];
    for (mutant, breaks, clause) in mutants {
        let world = World { breaks: Some(breaks), ..World::ready() };
        assert!((clause.holds)(world).is_err(), "{mutant}: not caught by {:?}", clause.says);
    }
    let without = CLAUSES.iter().find(|clause| !mutants.iter().any(|(.., caught_by)| caught_by.says == clause.says));
    assert!(without.is_none_or(|clause| panic!("no mutant for {:?}", clause.says)));
}

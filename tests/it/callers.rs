//! Those who call providers, against the provider's real actor and the reference backend (PC-95): the reconciler, the
//! collection of orphans, two installations on one backend, a provider that hangs beside a healthy one.
//!
//! Time is paused; a cloud does nothing but what it is asked for until a test lets it work.

mod bed;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bed::{Cloud, Operator, ROUND, cloud, instance, instances, key, uid};
use egress_conformance::{Alter, Fault, Intervention, Mark, Object};
use egress_protocol::InstallationId;
use egress_protocol::provider;
use egress_protocol::resource::Phase;

const MINUTE: Duration = Duration::from_secs(60);

fn ready(name: &'static str) -> impl Fn(&bed::Store) -> bool {
    move |store| store.phase(name) == Some(Phase::Ready)
}

fn gone(name: &'static str) -> impl Fn(&bed::Store) -> bool {
    move |store| !store.0.contains_key(&key(name))
}

fn says(operator: &Operator, name: &str, status: &str, reason: &str) {
    assert_eq!(operator.look(|store| store.provisioned(name)), (status.to_owned(), reason.to_owned()));
}

fn calls(cloud: &Cloud) -> usize {
    cloud.calls().expect("a reference cloud counts").len()
}

/// Never two, wherever a look happens to fall.
fn at_most_one(cloud: &Cloud, name: &'static str) -> impl Fn() {
    let cloud = Arc::clone(cloud);
    move || {
        let there = cloud.objects().into_iter().filter(|object| object.kind == Object::INSTANCE && object.instance == instance(name));
        assert!(there.count() <= 1, "two instances of one proxy: {:?}", instances(&cloud));
    }
}

/// Comes up, moves to the other zone, goes; nothing is left.
async fn a_life(cloud: &Cloud, operator: &Operator) {
    operator.declare("px", "lab");
    operator.until_watched("Ready", ready("px"), at_most_one(cloud, "px")).await;
    operator.move_to("px", "zone-b");
    let moved = |cloud: &Cloud| instances(cloud) == [format!("zone-b/{}", instance("px"))];
    let there = |store: &bed::Store| moved(cloud) && store.phase("px") == Some(Phase::Ready);
    operator.until_watched("Ready in the other zone", there, at_most_one(cloud, "px")).await;
    operator.delete("px");
    operator.until_watched("gone", gone("px"), at_most_one(cloud, "px")).await;
    operator.pass(Duration::from_secs(20)).await;
    assert_eq!(cloud.objects(), [], "neither an instance nor a volume is left");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_comes_up_is_replaced_when_it_changes_and_leaves_nothing_op_11_op_16() {
    let cloud = cloud();
    let operator = Operator::start("ours", &[("lab", &cloud)]).await;
    a_life(&cloud, &operator).await;
    operator.stop().await;
}

/// OP-12, PC-11, PC-12, SV-2: whoever dies during whichever call, the life goes on with one instance and ends with none.
#[tokio::test(start_paused = true)]
async fn a_crash_of_the_reconciler_or_of_the_provider_in_any_call_leaves_one_instance_and_then_none_op_12() {
    for victim in ["proxy/default/px".to_owned(), provider::actor_id("lab")] {
        for n in 1.. {
            let cloud = cloud();
            let operator = Operator::start("ours", &[("lab", &cloud)]).await;
            let (system, id, struck) = (operator.system.clone(), victim.clone(), Arc::new(AtomicBool::new(false)));
            let strike = Arc::clone(&struck);
            let then = move || strike.store(system.crash(&id), Ordering::Relaxed);
            cloud.during(n, Box::new(then)).expect("a reference cloud can");
            a_life(&cloud, &operator).await;
            operator.stop().await;
            if !struck.load(Ordering::Relaxed) {
                assert!(n > 15, "a life takes more than {n} calls");
                break;
            }
        }
    }
}

/// PC-56: what can be tried again is, in whichever call it struck.
#[tokio::test(start_paused = true)]
async fn a_fault_in_any_call_is_got_over_and_leaves_nothing_op_18_op_19() {
    for fault in [Fault::Unreachable, Fault::Erring, Fault::LinkDown, Fault::Quota] {
        for n in 1..=20 {
            let cloud = cloud();
            let operator = Operator::start("ours", &[("lab", &cloud)]).await;
            cloud.intervene(n, Intervention::Fail(fault)).expect("a reference cloud can");
            a_life(&cloud, &operator).await;
            operator.stop().await;
        }
    }
}

/// OP-28 end to end; OP-17 for one that never ran.
#[tokio::test(start_paused = true)]
async fn a_backend_that_fails_demotes_nobody_who_runs_and_a_permanent_error_latches_a_new_one_op_17_op_28() {
    for (fault, reason) in
        [(Fault::Unreachable, "TransientError"), (Fault::Quota, "QuotaExceeded"), (Fault::Unauthorised, "PermanentError")]
    {
        let cloud = cloud();
        let operator = Operator::start("ours", &[("lab", &cloud)]).await;
        operator.declare("runs", "lab");
        operator.until("Ready", ready("runs")).await;
        let before = instances(&cloud);
        cloud.fail_all(fault).expect("a reference cloud can");
        operator.declare("new", "lab");
        operator.pass(30 * MINUTE).await;
        says(&operator, "runs", "True", reason);
        assert_eq!(operator.look(|store| store.phase("runs")), Some(Phase::Ready));
        says(&operator, "new", "False", reason);
        assert_eq!(operator.look(|store| store.phase("new")) == Some(Phase::Failed), fault == Fault::Unauthorised, "{fault:?}");
        assert_eq!(instances(&cloud), before, "nothing is made and nothing goes");
        cloud.calm();
        operator.edit("new", |object| object.annotations.retry = Some("now".to_owned()));
        let both = |store: &bed::Store| ["runs", "new"].iter().all(|name| store.provisioned(name).1 == "Provisioned");
        operator.until("both run and say so", both).await;
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_ended_by_itself_is_replaced_and_what_is_suspended_is_kept_op_14_op_15_pc_31() {
    let cloud = cloud();
    let operator = Operator::start("ours", &[("lab", &cloud)]).await;
    operator.declare("px", "lab");
    operator.until("Ready", ready("px")).await;
    let content = |cloud: &Cloud| {
        let found = cloud.objects().into_iter().find(|object| object.kind == Object::INSTANCE);
        found.map(|object| object.content).unwrap_or_default()
    };
    let first = content(&cloud);

    cloud.set_state(&instance("px"), "suspended").expect("a reference cloud can");
    operator.until("said", |store| store.provisioned("px").1 == "Paused").await;
    operator.pass(60 * MINUTE).await;
    assert_eq!(content(&cloud), first.replace("running", "suspended"), "never touched for being paused");
    cloud.set_state(&instance("px"), "running").expect("a reference cloud can");
    operator.until("Ready", ready("px")).await;
    assert_eq!(content(&cloud), first);

    cloud.set_state(&instance("px"), "off").expect("a reference cloud can");
    operator.until("another runs", |store| content(&cloud) != first && store.phase("px") == Some(Phase::Ready)).await;
    let second = content(&cloud);
    assert!(!second.is_empty() && instances(&cloud).len() == 1);

    // Somebody deletes it: first it is dying, then it is not there.
    operator.pass(20 * MINUTE).await;
    cloud.begin_delete(&instance("px")).expect("a reference cloud can");
    operator.until("a third runs", |store| content(&cloud) != second && store.phase("px") == Some(Phase::Ready)).await;
    assert_eq!(instances(&cloud).len(), 1);
    operator.stop().await;
}

/// OG-2, OG-4, OG-6, with everything that an instance is made of.
#[tokio::test(start_paused = true)]
async fn of_twenty_live_and_twenty_orphans_exactly_the_twenty_go_ten_a_round_og_4() {
    let cloud = cloud();
    let operator = Operator::start("ours", &[("lab", &cloud)]).await;
    let names: Vec<String> = (0..20).map(|n| format!("live-{n}")).collect();
    names.iter().for_each(|name| operator.declare(name, "lab"));
    operator.until("all Ready", bed::Store::all_ready).await;
    for n in 0..20 {
        operator.orphan("lab", &format!("orphan-{n}"), if n % 2 == 0 { "zone-a" } else { "zone-b" }).await;
    }
    let live: BTreeSet<_> = names.iter().map(|name| instance(name)).collect();
    let of_live = |cloud: &Cloud| cloud.objects().into_iter().filter(|object| live.contains(&object.instance)).collect::<Vec<_>>();
    operator.pass(Duration::from_secs(1)).await;
    let untouched = of_live(&cloud);
    let mut counts = Vec::new();
    for _ in 0..5 {
        counts.push(instances(&cloud).len());
        operator.pass(ROUND).await;
    }
    assert_eq!(counts, [40, 40, 40, 30, 20], "too young, then evidence, then ten a round");
    assert_eq!(cloud.objects(), untouched, "no volume of an orphan is left, and nobody else was touched");
    assert!(operator.look(bed::Store::all_ready));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_certainly_an_orphan_of_ours_is_never_collected_og_2_og_5_pc_53() {
    let cloud = cloud();
    let operator = Operator::start("ours", &[("lab", &cloud)]).await;
    let altered = [
        ("another-uid", Alter::Set(Mark::Uid, "somebody-else".to_owned())),
        ("no-uid", Alter::Set(Mark::Uid, String::new())),
        ("unmarked", Alter::Strip(Mark::Managed)),
        ("foreign", Alter::Set(Mark::Installation, "theirs".to_owned())),
        ("no-installation", Alter::Strip(Mark::Installation)),
        ("corrupt", Alter::Corrupt),
        ("unreadable", Alter::Unreadable),
    ];
    for (name, change) in &altered {
        operator.orphan("lab", name, "zone-a").await;
        cloud.alter(&instance(name), change).expect("a reference cloud can");
    }
    let (ours, theirs) = (InstallationId::new("ours"), InstallationId::new("theirs"));
    cloud.add_other_type(&instance("other-type"), &uid("other-type"), &ours).expect("a reference cloud can");
    for (name, owner) in [("left-by-them", Some(&theirs)), ("left-by-nobody", None), ("left-by-us", Some(&ours))] {
        cloud.add_leftover(&instance(name), owner).expect("a reference cloud can");
    }
    operator.orphan("lab", "orphan", "zone-a").await;
    let of = |name: &str| cloud.objects().into_iter().filter(|object| object.instance == instance(name)).count();
    let before = cloud.objects().len();
    operator.pass(6 * ROUND).await;
    assert_eq!((of("orphan"), of("left-by-us")), (0, 0), "rounds were held");
    assert_eq!(cloud.objects().len(), before - 4, "an instance with its two volumes, and a leftover: {:#?}", cloud.objects());
    for (name, _) in &altered {
        assert_eq!(of(name), 3, "{name} with its volumes");
    }
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_cannot_be_read_proves_nothing_about_what_is_in_it_og_6() {
    let cloud = cloud();
    let operator = Operator::start("ours", &[("lab", &cloud)]).await;
    let (far, near) = (operator.orphan("lab", "far", "zone-a").await, operator.orphan("lab", "near", "zone-b").await);
    cloud.cut_off_part().expect("zone-a");
    operator.pass(5 * ROUND).await;
    let left = |id: &egress_protocol::InstanceId| instances(&cloud).iter().any(|name| id.as_str().ends_with(name));
    assert_eq!((left(&far), left(&near)), (true, false));
    cloud.calm();
    operator.pass(ROUND).await;
    assert!(left(&far), "the rounds before were no evidence");
    operator.pass(ROUND).await;
    assert!(!left(&far));
    operator.stop().await;
}

/// PC-14, PC-26, PC-38, PC-54, OG-2: reconcilers and collections of both, and one UID that both have.
#[tokio::test(start_paused = true)]
async fn two_installations_on_one_backend_leave_each_others_instances_alone_pc_54() {
    let cloud = cloud();
    let one = Operator::start("one", &[("lab", &cloud)]).await;
    let two = Operator::start("two", &[("lab", &cloud)]).await;
    one.declare("both", "lab");
    one.declare("of-one", "lab");
    one.until("Ready", bed::Store::all_ready).await;
    two.declare("of-two", "lab");
    two.declare("both", "lab");
    let failed = |store: &bed::Store| store.phase("of-two") == Some(Phase::Ready) && store.phase("both") == Some(Phase::Failed);
    two.until("its own runs, and what is another's is refused", failed).await;
    says(&two, "both", "False", "PermanentError");
    let before = cloud.objects();
    // Neither's objects are live to the other.
    one.pass(4 * ROUND).await;
    assert_eq!(cloud.objects(), before);
    two.delete("both");
    two.until("released", gone("both")).await;
    assert_eq!(cloud.objects(), before, "and hands off");
    one.delete("both");
    one.until("gone", gone("both")).await;
    two.declare("both", "lab");
    two.until("the name is free", bed::Store::all_ready).await;
    assert_eq!(instances(&cloud).len(), 3);
    one.stop().await;
    two.stop().await;
}

/// PC-47, PC-67, OP-23: neither proxies nor collection of a provider notice that another hangs on every call.
#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_on_every_call_delays_neither_proxies_nor_collection_of_another_pc_67() {
    let mut took = Vec::new();
    for hangs in [false, true] {
        let (sick, well) = (cloud(), cloud());
        if hangs {
            for n in 1..=2_000 {
                sick.intervene(n, Intervention::BlockBefore).expect("a reference cloud can");
            }
        }
        let operator = Operator::start("ours", &[("sick", &sick), ("well", &well)]).await;
        if hangs {
            (0..100).for_each(|n| operator.declare(&format!("sick-{n}"), "sick"));
            operator.pass(MINUTE).await;
        }
        let names: Vec<String> = (0..30).map(|n| format!("well-{n}")).collect();
        names.iter().for_each(|name| operator.declare(name, "well"));
        let all = |store: &bed::Store| names.iter().all(|name| store.phase(name) == Some(Phase::Ready));
        took.push(operator.until("all Ready", all).await);
        operator.orphan("well", "orphan", "zone-b").await;
        operator.pass(3 * ROUND).await;
        assert_eq!(instances(&well).len(), 30, "the orphan is collected");
        if hangs {
            assert_eq!(instances(&sick), Vec::<String>::new());
            assert!(calls(&sick) >= 4, "it was called, and lets nobody go");
        }
        operator.stop().await;
    }
    assert_eq!(took[0], took[1], "nobody waited for it");
}

/// SV-4: who does not lead makes no call, and goes on where it was when it leads again.
#[tokio::test(start_paused = true)]
async fn without_leadership_neither_reconciler_nor_collection_calls_and_with_it_both_go_on_sv_4() {
    let cloud = cloud();
    let operator = Operator::start("ours", &[("lab", &cloud)]).await;
    operator.declare("runs", "lab");
    operator.until("Ready", ready("runs")).await;
    operator.orphan("lab", "orphan", "zone-b").await;
    operator.fence.close();
    let before = calls(&cloud);
    operator.declare("new", "lab");
    operator.move_to("runs", "zone-b");
    operator.pass(6 * ROUND).await;
    assert_eq!(calls(&cloud), before);
    operator.fence.extend(tokio::time::Instant::now() + Duration::from_secs(1 << 30));
    operator.until("both Ready", bed::Store::all_ready).await;
    operator.pass(3 * ROUND).await;
    let expected: BTreeSet<_> = [format!("zone-a/{}", instance("new")), format!("zone-b/{}", instance("runs"))].into();
    assert_eq!(instances(&cloud).into_iter().collect::<BTreeSet<_>>(), expected);
    operator.stop().await;
}

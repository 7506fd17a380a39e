//! CT-27 to CT-31, CT-34, CT-36: what holds for every call.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use egress_protocol::provider::{CallContext, ErrorClass, Op, actor_id};
use futures::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::trial::{Door, ENTRY, OPS, Trial, key, ok, refused, until_stuck};
use crate::{Credentials, Intervention, Miss, NotApplicable, Object, Verdict, class, ensure};
use egress_provider::CLEANUP_BUDGET;

/// PC-64.
const PROMPT: Duration = Duration::from_secs(1);
/// When the caller gives up.
const GIVES_UP: Duration = Duration::from_secs(5);

/// How a call ends before its backend does.
#[derive(Debug, Clone, Copy)]
enum Ends {
    Cancelled,
    Expired,
}

/// The id of what an operation is to work on, made if it is not there.
async fn made_id(t: &Trial, door: &Door, uid: &str) -> Verdict<Option<egress_protocol::InstanceId>> {
    let request = t.request(uid);
    Ok(Some(ok(door.create(&request).await, "create")?))
}

pub(super) async fn cancelled(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    before_it_began(t, &door).await?;
    for op in OPS {
        for ends in [Ends::Cancelled, Ends::Expired] {
            for n in 1..32 {
                let uid = format!("{}-{ends:?}-{n}", op.as_str());
                let template = t.request(&uid);
                if !blocked(t, &door, op, &uid, ends, n).await? {
                    break;
                }
                if op == Op::Create {
                    cleared_up(t, &door, &template, ends, n).await?;
                }
            }
        }
    }
    Ok(())
}

/// One operation with its `n`-th call blocked; `false`: it has no such call, or the fixture blocks none.
async fn blocked(t: &Trial, door: &Door, op: Op, uid: &str, ends: Ends, n: usize) -> Verdict<bool> {
    let request = t.request(uid);
    let id = if matches!(op, Op::Get | Op::Delete) { made_id(t, door, uid).await? } else { None };
    if t.part("blocked in each call", t.world.intervene(n, Intervention::BlockBefore)).is_none() {
        return Ok(false);
    }
    let key = key(&request, id);
    let cancel = CancellationToken::new();
    let mut context = CallContext::new(op, cancel.clone());
    if matches!(ends, Ends::Expired) {
        context.deadline = GIVES_UP;
    }
    let started = Instant::now();
    let gives_up = async {
        if matches!(ends, Ends::Cancelled) {
            tokio::time::sleep(GIVES_UP).await;
            cancel.cancel();
        }
        std::future::pending::<()>().await;
    };
    let error = tokio::select! {
        error = door.op(op, &request, &key, context) => error,
        () = gives_up => None,
    };
    let took = started.elapsed();
    let was_blocked = took >= GIVES_UP;
    if was_blocked {
        ensure!(took <= GIVES_UP + PROMPT, "{ends:?} in call {n}, {op:?} took {:?} to answer", took - GIVES_UP);
        let Some(error) = error else { return Err(Miss::Failed(format!("{ends:?} in call {n}, {op:?} succeeded"))) };
        ensure!(error.class == ErrorClass::Transient, "{ends:?} in call {n}, {op:?} is {:?}: {error}", error.class);
    }
    if op != Op::Create || !was_blocked {
        t.world.calm();
    }
    Ok(was_blocked)
}

/// PC-23: a create that was given up removes what it made, in ten seconds, by itself.
async fn cleared_up(t: &Trial, door: &Door, request: &egress_protocol::provider::CreateRequest, ends: Ends, n: usize) -> Verdict {
    tokio::time::sleep(CLEANUP_BUDGET + PROMPT).await;
    let left = t.objects_of(&request.name);
    let exists = left.iter().any(|object| object.kind == Object::INSTANCE);
    ensure!(exists || left.is_empty(), "a create {ends:?} in call {n} left {left:?}");
    t.world.calm();
    t.gone(door, &key(request, None)).await?;
    ensure!(t.objects_of(&request.name).is_empty(), "after a create {ends:?} in call {n} and a delete: {:?}", t.objects_of(&request.name));
    Ok(())
}

/// A call that was cancelled before it came makes no backend call.
async fn before_it_began(t: &Trial, door: &Door) -> Verdict {
    let key = t.made(door, "before").await?;
    let calls = t.world.calls();
    for op in OPS {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let error = door.op(op, &t.request("before"), &key, CallContext::new(op, cancel)).await;
        ensure!(error.as_ref().is_some_and(|error| error.class == ErrorClass::Transient), "{op:?}, cancelled before: {error:?}");
    }
    if let Some(calls) = t.part("no call after cancellation", calls) {
        let after = t.world.calls()?;
        ensure!(after.len() == calls.len(), "calls that were cancelled before cost {:?}", &after[calls.len()..]);
    }
    ok(door.get(&key).await, "get")?;
    Ok(())
}

pub(super) async fn at_once(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let whole = t.made(&door, "alone").await?;
    let whole = t.objects_of(&whole.name).len();
    let request = t.request("at-once");
    let (one, two) = tokio::join!(door.create(&request), door.create(&request));
    let (one, two) = (ok(one, "one create")?, ok(two, "the other create")?);
    ensure!(one == two, "two creates of one name answered {one} and {two}");
    t.world.settle().await;
    let objects = t.objects_of(&request.name);
    ensure!(objects.len() == whole, "two creates of one name made {objects:?}");
    let listed = ok(door.list().await, "list")?.instances.iter().filter(|instance| instance.uid == request.uid).count();
    ensure!(listed == 1, "two creates of one name list {listed} instances");
    // Different names at once, without an order above them.
    let backend = t.backend().await?;
    let requests = ["beside-1", "beside-2", "beside-3"].map(|uid| t.request(uid));
    let ids = futures::future::join_all(requests.iter().map(|request| backend.create(request))).await;
    let ids = ids.into_iter().map(|id| ok(id, "create beside others")).collect::<Verdict<std::collections::BTreeSet<_>>>()?;
    ensure!(ids.len() == requests.len(), "creates beside each other share ids: {ids:?}");
    Ok(())
}

pub(super) async fn aborted(t: &Trial) -> Verdict {
    let door = t.backend().await?;
    let others = t.made(&door, "others").await?;
    let victim = t.request("victim");
    let gone = key(&victim, None);
    let run = |op| {
        let about = if op == Op::Delete { &gone } else { &others };
        door.op(op, &victim, about, CallContext::new(op, CancellationToken::new()))
    };
    for op in OPS {
        for n in 1..8 {
            if t.part("while a call hangs", t.world.intervene(n, Intervention::BlockBefore)).is_none() {
                break;
            }
            let hung = until_stuck(run(op)).await.is_none();
            if hung {
                others_work(t, &door, &others, &format!("a {op:?} aborted in call {n}")).await?;
            }
            t.world.calm();
            if !hung {
                break;
            }
        }
    }
    // Wherever it waits: dropped after each of its first polls.
    for polls in 0..12 {
        for op in OPS {
            let mut call = Box::pin(run(op));
            for _ in 0..polls {
                if futures::poll!(call.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(call);
            others_work(t, &door, &others, &format!("a {op:?} dropped after {polls} polls")).await?;
        }
        t.world.settle().await;
    }
    Ok(())
}

/// Each call works, or fails once as Transient.
async fn others_work(t: &Trial, door: &Door, key: &egress_protocol::provider::InstanceKey, after: &str) -> Verdict {
    let mut failures = 0;
    for op in [Op::Get, Op::List] {
        let mut error = door.op(op, &t.request("others"), key, CallContext::new(op, CancellationToken::new())).await;
        if let Some(first) = &error {
            failures += 1;
            ensure!(first.class == ErrorClass::Transient, "after {after}, {op:?} is {:?}: {first}", first.class);
            error = door.op(op, &t.request("others"), key, CallContext::new(op, CancellationToken::new())).await;
        }
        ensure!(error.is_none(), "after {after}, {op:?} fails again: {error:?}");
    }
    ensure!(failures <= 1, "after {after}, more than one call failed");
    Ok(())
}

pub(super) async fn constructor(t: &Trial) -> Verdict {
    let calls = t.world.calls();
    let built = AssertUnwindSafe(t.build()).catch_unwind().await;
    let backend = built.map_err(|_| Miss::Failed("the constructor panicked".to_owned()))??;
    if let Some(calls) = t.part("counted calls", calls) {
        let after = t.world.calls()?;
        ensure!(after.len() == calls.len(), "the constructor cost the calls {:?}", &after[calls.len()..]);
    }
    ensure!(t.world.objects().is_empty(), "the constructor made {:?}", t.world.objects());
    drop(backend);
    if t.profiles.credentials != Credentials::MountedFiles {
        t.part::<()>("missing credential files", Err(NotApplicable(format!("credentials is {}", t.profiles.credentials))));
        return Ok(());
    }
    t.world.remove_credentials(true)?;
    let built = AssertUnwindSafe(t.build()).catch_unwind().await;
    built.map_err(|_| Miss::Failed("the constructor panicked without credential files".to_owned()))??;
    let door = t.provider().await?;
    refused(door.create(&t.request("early")).await, ErrorClass::Transient, "create without the credential file (PC-57)")?;
    t.world.remove_credentials(false)?;
    ok(door.create(&t.request("early")).await, "create when the credential file has landed")?;
    Ok(())
}

pub(super) async fn credentials(t: &Trial) -> Verdict {
    if t.profiles.credentials != Credentials::MountedFiles {
        return Err(NotApplicable::because(format!("credentials is {}", t.profiles.credentials)).into());
    }
    let door = t.provider().await?;
    let key = t.made(&door, "rotated").await?;
    t.world.rotate_credentials()?;
    if let Err(error) = door.get(&key).await {
        ensure!(error.class == ErrorClass::Transient, "the first call after a rotation is {:?}: {error}", error.class);
        ok(door.get(&key).await, "the second call after a rotation")?;
    }
    ok(door.list().await, "list after a rotation")?;
    Ok(())
}

pub(super) async fn check(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let key = t.made(&door, "checked").await?;
    let free = || CallContext::new(Op::List, CancellationToken::new());
    let answer = door.check(free()).await.map_err(|error| Miss::Failed(format!("no verdicts: {error:?}")))?;
    let Some(verdicts) = answer else { return Err(NotApplicable::because("this type implements no check").into()) };
    let expected = t.world.targets()?;
    let names: Vec<_> = verdicts.iter().map(|verdict| verdict.name.clone()).collect();
    ensure!(names == expected, "the targets are {names:?}, not {expected:?}");
    for verdict in &verdicts {
        ensure!(
            verdict.ready == (verdict.reason == "Reachable"),
            "PH-31: {} is ready {} for {}",
            verdict.name,
            verdict.ready,
            verdict.reason
        );
        ensure!(verdict.ready == verdict.message.is_empty(), "PH-27: {} has the message {:?}", verdict.name, verdict.message);
        ensure!(!verdict.address.contains('@'), "PH-27: user info in {}", verdict.address);
        ensure!(verdict.details.iter().all(|(_, value)| !value.is_empty()), "PH-34: an empty detail in {:?}", verdict.details);
    }
    ok(door.get(&key).await, "the first get after a check")?;
    for n in 1..=expected.len() {
        if t.part("a check that hangs", t.world.intervene(n, Intervention::BlockBefore)).is_none() {
            break;
        }
        let cancel = CancellationToken::new();
        let context = CallContext::new(Op::List, cancel.clone());
        let started = Instant::now();
        let (verdicts, ()) = tokio::join!(door.check(context), async {
            tokio::time::sleep(PROMPT).await;
            cancel.cancel();
        });
        let took = started.elapsed();
        t.world.calm();
        let answered = matches!(&verdicts, Ok(Some(verdicts)) if verdicts.iter().map(|v| &v.name).eq(expected.iter()));
        ensure!(answered, "a check that was ended in call {n} answered {verdicts:?}");
        ensure!(took < PROMPT * 2, "a check that was ended in call {n} took {took:?}");
        ok(door.get(&key).await, "the first get after an ended check")?;
    }
    Ok(())
}

pub(super) async fn panics(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let key = t.made(&door, "panics").await?;
    let mut panicked = false;
    for op in OPS {
        let request = t.request(if op == Op::Create { "panics-2" } else { "panics" });
        if t.part(&format!("a panic in {}", op.as_str()), t.world.intervene(1, Intervention::Panic)).is_none() {
            continue;
        }
        let error = door.op(op, &request, &key, CallContext::new(op, CancellationToken::new())).await;
        t.world.calm();
        let Some(error) = error else {
            // No call of the backend in it that could have panicked.
            continue;
        };
        panicked = true;
        ensure!(error.class == ErrorClass::Transient, "a panic in {op:?} is {:?}: {error}", error.class);
        let again = door.op(op, &request, &key, CallContext::new(op, CancellationToken::new())).await;
        ensure!(again.is_none(), "after a panic in {op:?} the next fails: {again:?}");
    }
    ensure!(panicked || class(&door.get(&key).await).is_none_or(|class| class == ErrorClass::NotFound), "get fails");
    if !panicked {
        return Err(NotApplicable::because("nothing panicked").into());
    }
    let Some(system) = door.system() else { return Ok(()) };
    let node = system.inspect(Some(&actor_id(ENTRY)), None).await;
    ensure!(node.as_ref().is_some_and(|node| node.restarts == 0), "the provider's actor did not survive: {node:?}");
    Ok(())
}

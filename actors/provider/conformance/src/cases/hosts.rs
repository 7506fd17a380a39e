//! CT-39, CT-40: hosts that die, and calls that wait outside.

use std::time::Duration;

use egress_protocol::provider::{CallContext, CreateRequest, ErrorClass, Op, actor_id};
use egress_provider::HOST_KIND;
use egress_supervision::{ActorStatus, System};
use futures::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::trial::{Door, ENTRY, SLOTS, Trial, key, ok, refused};
use crate::{Intervention, Miss, Verdict, ensure};

/// Longer than a first restart waits.
const RESTARTED: Duration = Duration::from_secs(1);
/// PC-64.
const PROMPT: Duration = Duration::from_secs(1);
/// How long a base image may take to come.
const LONG: Duration = Duration::from_secs(2 * 3600);
/// What a create may take that waits outside for much longer.
const ALLOWED: Duration = Duration::from_secs(60);

fn tree(door: &Door) -> Verdict<&System> {
    door.system().ok_or_else(|| Miss::Failed("the provider has no actor".to_owned()))
}

pub(super) async fn killed(t: &Trial) -> Verdict {
    let host = format!("{HOST_KIND}/{ENTRY}/{}", t.world.host()?);
    let door = t.provider().await?;
    let system = tree(&door)?;
    let carried = t.made(&door, "carried").await?;
    let beside = match t.part("another host", t.world.elsewhere()) {
        None => None,
        Some(placement) => {
            let request = CreateRequest { placement, ..t.request("beside") };
            let id = ok(door.create(&request).await, "create at the other host")?;
            Some(key(&request, Some(id)))
        }
    };
    t.world.settle().await;
    t.world.intervene(1, Intervention::BlockBefore)?;
    let death = async {
        tokio::time::sleep(RESTARTED).await;
        let killed = system.kill(&host);
        (killed, Instant::now())
    };
    let (answer, (killed, at)) = tokio::join!(door.get(&carried), death);
    ensure!(killed, "there is no host {host}");
    let took = at.elapsed();
    t.world.calm();
    refused(answer, ErrorClass::Transient, "a get whose host is killed")?;
    ensure!(took < PROMPT, "a get whose host is killed took {took:?} to answer");
    if let Some(beside) = &beside {
        ok(door.get(beside).await, "a get at the other host, right after")?;
    }
    tokio::time::sleep(RESTARTED).await;
    ok(door.get(&carried).await, "the next get")?;
    let node = system.inspect(Some(&host), None).await;
    let restarts = node.as_ref().map(|node| (node.restarts, node.status));
    ensure!(restarts == Some((1, ActorStatus::Running)), "after its death the host shows {restarts:?}");
    let provider = system.inspect(Some(&actor_id(ENTRY)), None).await;
    ensure!(provider.is_some_and(|node| node.restarts == 0), "the provider's actor did not survive its host");
    Ok(())
}

/// What the provider shows of itself.
async fn shows(door: &Door, key: &str) -> Verdict<u64> {
    let node = tree(door)?.inspect(Some(&actor_id(ENTRY)), None).await;
    let state = node.and_then(|node| node.state).unwrap_or_default();
    state.get(key).and_then(serde_json::Value::as_u64).ok_or_else(|| Miss::Failed(format!("the provider shows no {key}: {state}")))
}

pub(super) async fn outside(t: &Trial) -> Verdict {
    t.world.hold_outside(true)?;
    let door = t.provider().await?;
    let requests: Vec<_> = (0..SLOTS * 2).map(|n| t.request(&format!("outside-{n}"))).collect();
    let cancel = CancellationToken::new();
    let create = |n: usize| {
        let mut context = CallContext::new(Op::Create, if n == 0 { cancel.clone() } else { CancellationToken::new() });
        context.deadline = ALLOWED;
        door.create_with(&requests[n], context)
    };
    let others = join_all((1..requests.len()).map(create));
    let watch = async {
        for after in [PROMPT, LONG] {
            tokio::time::sleep(after).await;
            let (waiting, all) = (shows(&door, "outside").await?, requests.len() as u64);
            ensure!(waiting == all, "after {after:?}, {waiting} of {all} creates wait outside, with {SLOTS} slots");
        }
        Ok(())
    };
    let first = async { (create(0).await, Instant::now()) };
    let script = async {
        let (seen, at) = (watch.await, Instant::now());
        cancel.cancel();
        tokio::time::sleep(PROMPT * 2).await;
        // Whatever was seen: what is held up would hang the test.
        (seen, at, t.world.hold_outside(false))
    };
    let (others, (answer, answered), (seen, at, released)) = tokio::join!(others, first, script);
    released?;
    seen?;
    refused(answer, ErrorClass::Transient, "a create that is cancelled outside")?;
    let took = answered.saturating_duration_since(at);
    ensure!(took < PROMPT, "a create that is cancelled outside took {took:?} to answer");
    for answer in others {
        ok(answer, "a create that waited outside")?;
    }
    its_time_goes_on(t, &door).await
}

/// A call that came back has what was left of its time, and no more.
async fn its_time_goes_on(t: &Trial, door: &Door) -> Verdict {
    t.world.hold_outside(true)?;
    let request = t.request("outside-late");
    let mut context = CallContext::new(Op::Create, CancellationToken::new());
    context.deadline = ALLOWED;
    let release = async {
        tokio::time::sleep(LONG).await;
        let blocked = t.part("a call that hangs after it came back", t.world.intervene(1, Intervention::BlockBefore));
        (blocked, t.world.hold_outside(false), Instant::now())
    };
    let create = async { (door.create_with(&request, context).await, Instant::now()) };
    let ((answer, answered), (blocked, released, at)) = tokio::join!(create, release);
    released?;
    if blocked.is_none() {
        return Ok(());
    }
    t.world.calm();
    refused(answer, ErrorClass::Transient, "a create whose call hangs after it came back")?;
    let took = answered.saturating_duration_since(at);
    ensure!(took <= ALLOWED + PROMPT, "a create that came back took {took:?} of the {ALLOWED:?} that it may");
    Ok(())
}

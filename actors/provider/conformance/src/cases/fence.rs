//! SV-4: whoever does not lead any more starts no call, not even to finish or to clear up what it began.

use egress_protocol::provider::{CallContext, ErrorClass, Op};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use crate::trial::{Door, OPS, Trial, key, ok};
use crate::{FOREVER, Miss, Verdict, ensure};
use egress_provider::CLEANUP_BUDGET;

/// More calls than any operation makes.
const CALLS: usize = 64;
/// What an operation may go on with after its answer ends within this.
const BEHIND_THE_ANSWER: Duration = CLEANUP_BUDGET.saturating_add(Duration::from_secs(1));

fn free(op: Op) -> CallContext {
    CallContext::new(op, CancellationToken::new())
}

fn leads_again(t: &Trial) {
    t.fence.extend(Instant::now() + FOREVER);
}

pub(super) async fn closed(t: &Trial) -> Verdict {
    before_it_began(t).await?;
    for op in OPS {
        for made in [false, true] {
            if !(op == Op::Get && !made || op == Op::List && made) {
                in_the_middle(t, op, made).await?;
            }
        }
    }
    during_a_check(t).await
}

/// Through the actor nothing begins; past it, the backend refuses by itself.
async fn before_it_began(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let made = t.made(&door, "fenced").await?;
    let (objects, calls) = (t.world.objects(), t.world.calls());
    t.fence.close();
    refuses(t, &door, &made).await?;
    ensure!(t.world.objects() == objects, "behind a closed fence there were {objects:?}, and now {:?}", t.world.objects());
    if let Some(before) = t.part("no call behind a closed fence", calls) {
        let backend = t.backend().await?;
        refuses(t, &backend, &made).await?;
        for door in [&door, &backend] {
            // A check has no answer that anybody could use.
            drop(door.check(free(Op::List)).await);
        }
        let after = t.world.calls()?;
        ensure!(after.len() == before.len(), "calls behind a closed fence: {:?}", &after[before.len()..]);
    }
    leads_again(t);
    ok(door.get(&made).await, "get of one that leads again")?;
    Ok(())
}

async fn refuses(t: &Trial, door: &Door, made: &egress_protocol::provider::InstanceKey) -> Verdict {
    for op in OPS {
        let request = t.request(if op == Op::Create { "fenced-new" } else { "fenced" });
        let error = door.op(op, &request, made, free(op)).await;
        let transient = error.as_ref().is_some_and(|error| error.class == ErrorClass::Transient);
        ensure!(transient, "{op:?} behind a closed fence: {error:?}");
    }
    Ok(())
}

/// Leadership ends while one call after the other is served: of an operation on an instance that is `made`, or is not.
async fn in_the_middle(t: &Trial, op: Op, made: bool) -> Verdict {
    let maker = t.provider().await?;
    let mut answered_in = None;
    for n in 1..CALLS {
        let request = t.request(&format!("{}-{made}-{n}", op.as_str()));
        let id = if made { Some(ok(maker.create(&request).await, "create")?) } else { None };
        t.world.settle().await;
        let key = key(&request, id);
        // Of its own, so that its link is dialled in the operation.
        let door = t.provider().await?;
        let fence = t.fence.clone();
        if t.part("lost in the middle of an operation", t.world.during(n, Box::new(move || fence.close()))).is_none() {
            return Ok(());
        }
        let before = t.world.calls()?.len();
        let error = door.op(op, &request, &key, free(op)).await;
        tokio::time::sleep(BEHIND_THE_ANSWER).await;
        t.world.calm();
        if t.fence.holds() {
            // It has no such call.
            ensure!(error.is_none(), "{op:?} by one that leads: {error:?}");
            return Ok(());
        }
        let calls = t.world.calls()?;
        ensure!(calls.len() == before + n, "{op:?} went on behind call {n}, in which leadership was lost: {:?}", &calls[before + n..]);
        let class = error.as_ref().map(|error| error.class);
        ensure!(matches!(class, None | Some(ErrorClass::Transient)), "{op:?}, leadership lost in call {n}: {error:?}");
        if let Some(n) = answered_in {
            return Err(Miss::Failed(format!("{op:?} answered well, though leadership was lost in call {n} and it has more")));
        }
        answered_in = error.is_none().then_some(n);
        leads_again(t);
        if op == Op::Create {
            ok(door.create(&request).await, "create by one that leads again")?;
        }
        t.gone(&door, &key).await?;
        ensure!(t.objects_of(&key.name).is_empty(), "fenced in call {n} of {op:?}, then deleted: {:?}", t.objects_of(&key.name));
    }
    Err(Miss::Failed(format!("{op:?} makes more than {CALLS} calls")))
}

/// A check is a call as well.
async fn during_a_check(t: &Trial) -> Verdict {
    for n in 1..CALLS {
        let door = t.provider().await?;
        let fence = t.fence.clone();
        if t.part("lost in the middle of a check", t.world.during(n, Box::new(move || fence.close()))).is_none() {
            break;
        }
        let before = t.world.calls()?.len();
        drop(door.check(free(Op::List)).await);
        t.world.calm();
        if t.fence.holds() {
            break;
        }
        let calls = t.world.calls()?;
        ensure!(calls.len() == before + n, "a check went on behind call {n}, in which leadership was lost: {:?}", &calls[before + n..]);
        leads_again(t);
    }
    Ok(())
}

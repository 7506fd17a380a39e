//! Tasks and timers live and die with their incarnation.

use std::time::Duration;

use egress_supervision::{ChildSpec, Context, TASK_GRACE};
use tokio::sync::oneshot;

use crate::puppet::*;

/// A root and a child `a` to play with.
macro_rules! stage {
    ($diary:ident, $system:ident, $root:ident, $a:ident) => {
        let $diary = Diary::default();
        let ($system, $root) = root(Play::new(&$diary)).await;
        let $a = child(&$system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("a", Play::new(&$diary))).await;
    };
}

#[tokio::test(start_paused = true)]
async fn a_task_tells_its_actor_and_a_dropped_one_does_not() {
    stage!(diary, system, root, a);
    have(&a, |puppet, ctx| {
        ctx.spawn(async { Heard("the kept task") }).keep();
        puppet.kept.push(Box::new(ctx.spawn(async { Heard("the held task") })));
        drop(ctx.spawn(async { Heard("the dropped task") }));
    })
    .await;
    pause(10).await;
    assert_eq!(diary.read()[2..], ["a hears the kept task", "a hears the held task"]);
    drop((system, root));
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_task_crashes_the_actor() {
    stage!(diary, system, root, a);
    have(&a, |_, ctx| ctx.spawn(async { panic!("out of cheese") }).keep()).await;
    pause(10).await;
    let node = system.inspect(Some("a"), None).await.expect("it is there");
    assert_eq!(node.last_error.map(|error| error.message), Some("a task panicked: out of cheese".to_owned()));
    pause(150).await;
    assert_eq!(diary.count("a starts"), 2);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_that_is_an_answer_does_not() {
    // PC-8
    stage!(diary, system, root, a);
    have(&a, |_, ctx| {
        ctx.spawn_catching(async { panic!("out of cheese") }, |text| {
            assert_eq!(text, "out of cheese");
            Heard("a panic")
        })
        .keep();
    })
    .await;
    pause(1000).await;
    assert_eq!(diary.read(), ["root starts", "a starts", "a hears a panic"]);
    assert_eq!(system.inspect(Some("a"), None).await.expect("it is there").restarts, 0);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_timer_rings_once_in_time_and_a_dropped_one_never() {
    stage!(diary, system, root, a);
    have(&a, |puppet, ctx| {
        puppet.kept.push(Box::new(ctx.after(Duration::from_secs(60), Heard("the timer"))));
        drop(ctx.after(Duration::from_secs(30), Heard("the dropped timer")));
    })
    .await;
    pause(59_990).await;
    assert_eq!(diary.read().len(), 2);
    pause(100_000).await;
    assert_eq!(diary.read()[2..], ["a hears the timer"]);
    drop((system, root));
}

#[tokio::test(start_paused = true)]
async fn timers_and_results_of_a_former_life_never_arrive() {
    stage!(diary, system, root, a);
    let (late, result) = oneshot::channel();
    have(&a, move |_, ctx| {
        // Held by nobody but the task itself, so that only the end of the life can cancel them.
        let timer = ctx.after(Duration::from_secs(5), Heard("a stale timer"));
        ctx.spawn(async move {
            let _timer = timer;
            let _ = result.await;
            Heard("a stale result")
        })
        .keep();
    })
    .await;
    assert!(system.crash("a"));
    pause(1).await;
    assert!(late.send(()).is_err(), "the task is gone at once");
    pause(60_000).await;
    assert_eq!(diary.read(), ["root starts", "a starts", "a starts"]);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_former_life_tells_itself_never_arrives() {
    stage!(diary, system, root, a);
    let former: Context<Puppet> = have(&a, |_, ctx| ctx.clone()).await;
    assert!(system.kill("a"));
    pause(1).await;
    former.tell(Heard("a ghost"));
    let ghost = diary.note_when_dropped("the ghost's task ended");
    former
        .spawn(async move {
            let _ghost = ghost;
            std::future::pending().await
        })
        .keep();
    pause(1).await;
    assert_eq!(diary.count("the ghost's task ended"), 1, "a life that is over starts no task");
    drop(former);
    pause(60_000).await;
    assert_eq!(diary.count("a hears a ghost"), 0);
    assert_eq!(diary.count("a starts"), 2);
    root.stop().await;
}

/// Two tasks: one ends some time after it was asked to, one ignores that.
async fn two_tasks(a: &egress_supervision::Address<Tell>, diary: &Diary) {
    let diary = diary.clone();
    have(a, move |_, ctx| {
        let (polite, cancelled) = (diary.clone(), ctx.cancelled());
        let guard = diary.note_when_dropped("polite is gone");
        ctx.spawn(async move {
            let _guard = guard;
            cancelled.cancelled().await;
            tokio::time::sleep(TASK_GRACE / 2).await;
            polite.note("polite said goodbye");
            Heard("nothing")
        })
        .keep();
        let guard = diary.note_when_dropped("deaf is gone");
        ctx.spawn(async move {
            let _guard = guard;
            std::future::pending().await
        })
        .keep();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn on_a_crash_or_a_kill_tasks_end_at_once() {
    for kill in [true, false] {
        stage!(diary, system, root, a);
        two_tasks(&a, &diary).await;
        assert!(if kill { system.kill("a") } else { system.crash("a") });
        pause(1).await;
        assert_eq!((diary.count("polite is gone"), diary.count("deaf is gone")), (1, 1));
        assert_eq!(diary.count("polite said goodbye"), 0);
        root.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_stop_tasks_get_their_grace_and_not_more() {
    stage!(diary, system, root, a);
    two_tasks(&a, &diary).await;
    let begun = tokio::time::Instant::now();
    have(&system.address::<Tell>("root"), |_, ctx| ctx.stop_child("a")).await;
    pause(400).await;
    assert_eq!(diary.read().len(), 2, "both still run");
    pause(590).await;
    assert_eq!(diary.read()[2..], ["polite said goodbye", "polite is gone"]);
    pause(20).await;
    assert_eq!(diary.count("deaf is gone"), 1);
    assert!(begun.elapsed() < TASK_GRACE + Duration::from_millis(20));
    root.stop().await;
}

/// A rollout's gap is made of stops (OP-5, O9): an actor that only waits for its next tick ends at once.
#[tokio::test(start_paused = true)]
async fn an_orderly_stop_does_not_wait_for_a_timer() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary).slow_to_stop(0)).await;
    let top = system.address::<Tell>("root");
    have(&top, |puppet, ctx| puppet.kept.push(Box::new(ctx.after(Duration::from_secs(60), Heard("the timer"))))).await;
    let begun = tokio::time::Instant::now();
    root.stop().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_comes_for_an_actor_that_still_starts_is_handled_in_order_when_it_runs() {
    let diary = Diary::default();
    let noted = diary.clone();
    let play = Play::new(&diary).start(move |ctx: Context<Puppet>| {
        let noted = noted.clone();
        async move {
            ctx.spawn(async { Heard("a task") }).keep();
            pause(10).await;
            for heard in ["one", "two", "three"] {
                ctx.tell(Heard(heard));
            }
            pause(10).await;
            noted.note("has started");
            Ok(())
        }
    });
    let (_, root) = root(play).await;
    pause(1).await;
    assert_eq!(diary.read(), ["root starts", "has started", "root hears a task", "root hears one", "root hears two", "root hears three"]);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_task_crashes_an_actor_that_still_starts_when_it_runs() {
    let diary = Diary::default();
    let play = Play::new(&diary).start(|ctx: Context<Puppet>| async move {
        ctx.spawn(async { panic!("out of cheese") }).keep();
        pause(10).await;
        Ok(())
    });
    let (_, mut root) = root(play).await;
    assert_eq!(root.failed().await.0, "a task panicked: out of cheese");
}

//! CT-19 to CT-23, CT-37.

use egress_protocol::provider::{DeleteOutcome, ErrorClass};
use egress_protocol::{InstallationId, InstanceName, Uid};

use super::create::strangers;
use super::get::warned;
use crate::trial::{OURS, THEIRS, Trial, key, ok, refused};
use crate::{Alter, Fault, Intervention, SecondaryResources, Verdict, class, ensure};

pub(super) async fn repeated(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let key = t.made(&door, "twice").await?;
    ok(door.delete(&key).await, "delete")?;
    ok(door.delete(&key).await, "delete during a delete or after it")?;
    t.world.settle().await;
    t.gone(&door, &key).await?;
    ensure!(ok(door.delete(&key).await, "delete of what is gone")? == DeleteOutcome::Gone, "what is gone is not Gone");
    for door in t.both().await? {
        let key = t.made(&door, &format!("at-once-{}", door.system().is_some())).await?;
        let (one, two) = tokio::join!(door.delete(&key), door.delete(&key));
        ok(one, "one of two deletes at once")?;
        ok(two, "the other of two deletes at once")?;
        t.world.settle().await;
        t.gone(&door, &key).await?;
    }
    Ok(())
}

pub(super) async fn foreign(t: &Trial) -> Verdict {
    for door in t.both().await? {
        for (n, (change, mark)) in strangers().iter().enumerate() {
            let made = t.made(&door, &format!("foreign-{n}-{}", door.system().is_some())).await?;
            t.world.alter(&made.name, change)?;
            for id in [made.id.clone(), None] {
                let mut key = made.clone();
                key.id = id;
                let (before, heard) = (t.world.objects(), t.capture.now());
                let outcome = ok(door.delete(&key).await, format_args!("delete over {change:?}"))?;
                ensure!(outcome == DeleteOutcome::Gone, "a delete over {change:?} came to {outcome:?}");
                ensure!(t.world.objects() == before, "a delete over {change:?} touched it (id: {:?})", key.id);
                ensure!(warned(t, heard, *mark), "no WARNING names {} after a delete over {change:?}", mark.key());
            }
        }
    }
    let door = t.provider().await?;
    let key = t.made(&door, "unreadable").await?;
    if t.part("unreadable marks", t.world.alter(&key.name, &Alter::Unreadable)).is_some() {
        let before = t.world.objects();
        refused(door.delete(&key).await, ErrorClass::Transient, "delete over unreadable marks")?;
        ensure!(t.world.objects() == before, "a delete over unreadable marks touched it");
    }
    Ok(())
}

pub(super) async fn complete(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let before = t.world.objects();
    let key = t.made(&door, "complete").await?;
    t.gone(&door, &key).await?;
    ensure!(t.world.objects() == before, "after Gone there is {:?}", t.objects_of(&key.name));
    // A delete that fails in each of its calls, repeated, comes to the same.
    for n in 1..32 {
        let key = t.made(&door, &format!("complete-{n}")).await?;
        if t.part("a delete that fails in each call", t.world.intervene(n, Intervention::Fail(Fault::Erring))).is_none() {
            break;
        }
        let failed = door.delete(&key).await;
        t.world.calm();
        t.gone(&door, &key).await?;
        ensure!(t.objects_of(&key.name).is_empty(), "after a failure in call {n} and Gone there is {:?}", t.objects_of(&key.name));
        if failed.is_ok() {
            break;
        }
    }
    Ok(())
}

pub(super) async fn by_name(t: &Trial) -> Verdict {
    for door in t.both().await? {
        let mut key = t.made(&door, &format!("by-name-{}", door.system().is_some())).await?;
        key.id = None;
        t.gone(&door, &key).await?;
        ensure!(t.objects_of(&key.name).is_empty(), "a delete without an id left {:?}", t.objects_of(&key.name));
        ensure!(ok(door.delete(&key).await, "delete without an id, again")? == DeleteOutcome::Gone, "what is gone is not Gone");
    }
    // What a cut create left.
    let door = t.provider().await?;
    for step in 0.. {
        let Some(Some(request)) = t.part("leftovers of a cut create", t.cut(step).await?) else { break };
        t.world.settle().await;
        t.gone(&door, &key(&request, None)).await?;
        ensure!(t.objects_of(&request.name).is_empty(), "what a cut in step {step} left: {:?}", t.objects_of(&request.name));
    }
    Ok(())
}

pub(super) async fn unconfigured(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let mut key = t.made(&door, "unconfigured").await?;
    key.id = Some(t.world.unconfigured_id(&key.name)?);
    let before = t.world.objects();
    refused(door.get(&key).await, ErrorClass::Permanent, "get in a location that is not configured")?;
    let outcome = ok(door.delete(&key).await, "delete in a location that is not configured")?;
    ensure!(outcome == DeleteOutcome::Gone, "delete in a location that is not configured came to {outcome:?}");
    ensure!(t.world.objects() == before, "a delete in a location that is not configured touched something");
    Ok(())
}

pub(super) async fn leftovers(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let whole = t.made(&door, "whole").await?;
    let nameless = |name: &InstanceName| {
        let mut key = whole.clone();
        (key.id, key.name, key.uid) = (None, name.clone(), Uid::new(""));
        key
    };
    let before = t.world.objects();
    let outcome = ok(door.delete(&nameless(&whole.name)).await, "delete with an empty uid")?;
    ensure!(outcome == DeleteOutcome::Gone && t.world.objects() == before, "a delete with an empty uid touched an instance ({outcome:?})");
    let listed = ok(door.list().await, "list")?;
    ensure!(listed.leftovers.is_empty(), "what an instance uses is listed as a leftover: {:?}", listed.leftovers);
    if t.profiles.secondary_resources != SecondaryResources::Explicit {
        let why = format!("secondary-resources is {}", t.profiles.secondary_resources);
        t.part::<()>("leftovers", Err(crate::NotApplicable(why)));
        return Ok(());
    }
    let [ours, theirs, nobodys] = ["ours", "theirs", "nobodys"].map(|uid| InstanceName::of(&Uid::new(uid)));
    t.world.add_leftover(&ours, Some(&InstallationId::new(OURS)))?;
    t.world.add_leftover(&theirs, Some(&InstallationId::new(THEIRS)))?;
    t.world.add_leftover(&nobodys, None)?;
    let listed = ok(door.list().await, "list")?;
    let names: Vec<_> = listed.leftovers.iter().map(|leftover| leftover.name.clone()).collect();
    ensure!(names == [ours.clone()], "of the leftovers of {ours} (ours), {theirs} and {nobodys} the list names {names:?}");
    for name in [&ours, &theirs, &nobodys] {
        let outcome = door.delete(&nameless(name)).await;
        ensure!(class(&outcome).is_none(), "delete of a leftover failed: {outcome:?}");
    }
    ensure!(t.objects_of(&ours).is_empty(), "a leftover of ours stayed");
    ensure!(!t.objects_of(&theirs).is_empty() && !t.objects_of(&nobodys).is_empty(), "a leftover that is not ours was removed");
    Ok(())
}

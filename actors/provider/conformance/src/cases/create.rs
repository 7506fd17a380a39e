//! CT-01 to CT-07, CT-35, CT-38.

use egress_protocol::provider::{CreateRequest, ErrorClass};
use egress_protocol::{InstanceName, Uid};

use crate::trial::{Door, THEIRS, Trial, key, ok, refused};
use crate::{Alter, CreatedAt, Fault, GcMark, Intervention, Mark, NotApplicable, Object, SecondaryResources, Verdict, ensure};

pub(super) async fn repeated(t: &Trial) -> Verdict {
    for door in t.both().await? {
        let uid = if door.system().is_some() { "repeated-a" } else { "repeated-b" };
        let request = t.request(uid);
        let id = ok(door.create(&request).await, "create")?;
        ensure!(
            id.as_str().len() <= 512 && !id.as_str().is_empty() && id.as_str().bytes().all(|b| b.is_ascii_graphic()),
            "PC-9: the id {id:?} is not 1 to 512 printable ASCII characters"
        );
        let census = t.census();
        for when in ["at once", "after it started", "after a restart"] {
            let again = if when == "after a restart" {
                ok(t.provider().await?.create(&request).await, when)?
            } else {
                ok(door.create(&request).await, when)?
            };
            ensure!(again == id, "a create repeated {when} answered {again}, not {id}");
            ensure!(t.census() == census, "a create repeated {when} left {:?}, not {census:?}", t.census());
            t.world.settle().await;
        }
    }
    Ok(())
}

/// How many objects an undisturbed create makes.
async fn whole(t: &Trial, door: &Door) -> Verdict<usize> {
    let key = t.made(door, "whole").await?;
    Ok(t.objects_of(&key.name).len())
}

pub(super) async fn cut(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let whole = whole(t, &door).await?;
    for step in 0.. {
        let Some(request) = t.cut(step).await?? else { break };
        let request = &request;
        // Resumed by the provider that ran all the while, or by one that has just started.
        let door = if step % 4 < 2 { t.provider().await? } else { t.backend().await? };
        let id = ok(door.create(request).await, format_args!("the create cut in step {step}, repeated,"))?;
        t.world.settle().await;
        one_whole(t, &door, request, whole, &format!("after a cut in step {step}")).await?;
        t.gone(&door, &key(request, Some(id))).await?;
        ensure!(t.objects_of(&request.name).is_empty(), "after a cut in step {step} and a delete: {:?}", t.objects_of(&request.name));
    }
    failed(t, &door, whole).await
}

async fn one_whole(t: &Trial, door: &Door, request: &CreateRequest, whole: usize, when: &str) -> Verdict {
    let objects = t.objects_of(&request.name);
    let instances = objects.iter().filter(|object| object.kind == Object::INSTANCE).count();
    ensure!(instances == 1 && objects.len() == whole, "{when} there are {objects:?}, but an undisturbed create makes {whole}");
    let listed = ok(door.list().await, "list")?.instances.iter().filter(|instance| instance.uid == request.uid).count();
    ensure!(listed == 1, "{when} {listed} instances of that UID are listed");
    Ok(())
}

/// PC-23: a create that fails before the instance exists leaves nothing; repeated, it is whole.
async fn failed(t: &Trial, door: &Door, whole: usize) -> Verdict {
    for n in 1.. {
        let request = t.request(&format!("failed-{n}"));
        if t.part("a create that fails in each call, PC-23", t.world.intervene(n, Intervention::Fail(Fault::Erring))).is_none() {
            return Ok(());
        }
        let failed = door.create(&request).await;
        t.world.calm();
        let left = t.objects_of(&request.name);
        let exists = left.iter().any(|object| object.kind == Object::INSTANCE);
        if failed.is_ok() && n > 1 {
            return Ok(());
        }
        ensure!(exists || left.is_empty(), "PC-23: a create that failed in its call {n} left {left:?}");
        ok(door.create(&request).await, format_args!("the create that failed in its call {n}, repeated,"))?;
        t.world.settle().await;
        one_whole(t, door, &request, whole, &format!("after a failure in call {n}")).await?;
    }
    Ok(())
}

pub(super) async fn marked(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let key = t.made(&door, "marked").await?;
    let marks = t.world.marks(&key.name)?;
    ensure!(marks.is_some(), "the fixture knows no marks of what was made");
    whole_marks(t, &t.request("marked"), "after a create")?;
    if t.profiles.gc_mark == GcMark::MarkWindow {
        return Ok(());
    }
    for step in 0.. {
        let Some(request) = t.cut(step).await?? else { break };
        whole_marks(t, &request, &format!("after a cut in step {step}"))?;
    }
    Ok(())
}

/// Where there is an instance there are its marks.
fn whole_marks(t: &Trial, request: &CreateRequest, when: &str) -> Verdict {
    let Some(marks) = t.world.marks(&request.name)? else { return Ok(()) };
    let expected = [(Mark::Managed, "true"), (Mark::Uid, request.uid.as_str()), (Mark::Installation, request.installation.as_str())];
    for (mark, value) in expected {
        ensure!(
            marks.get(mark.key()).is_some_and(|seen| seen == value),
            "{when} {} is {:?}, not {value}",
            mark.key(),
            marks.get(mark.key())
        );
    }
    if t.profiles.created_at == CreatedAt::WrittenAtCreate {
        let at = marks.get(Mark::CreatedAt.key()).map_or("", String::as_str);
        let whole = at.len() == "2026-01-02T03:04:05Z".len() && at.ends_with('Z');
        ensure!(whole && egress_protocol::Timestamp::parse(at).is_some(), "{when} the creation time is {at:?}, not whole seconds of UTC");
    }
    Ok(())
}

/// The ways in which an instance is not ours, and the mark that says so.
pub(super) fn strangers() -> [(Alter, Mark); 5] {
    [
        (Alter::Set(Mark::Uid, "somebody-else".to_owned()), Mark::Uid),
        (Alter::Set(Mark::Uid, String::new()), Mark::Uid),
        (Alter::Set(Mark::Installation, THEIRS.to_owned()), Mark::Installation),
        (Alter::Strip(Mark::Installation), Mark::Installation),
        (Alter::Strip(Mark::Managed), Mark::Managed),
    ]
}

pub(super) async fn over_foreign(t: &Trial) -> Verdict {
    for door in t.both().await? {
        for (n, (change, mark)) in strangers().iter().enumerate() {
            let uid = format!("over-{n}-{}", door.system().is_some());
            let key = t.made(&door, &uid).await?;
            t.world.alter(&key.name, change)?;
            let before = t.world.objects();
            let error = refused(door.create(&t.request(&uid)).await, ErrorClass::Permanent, format_args!("a create over {change:?}"))?;
            let names = error.message.contains(mark.key()) && error.message.contains(key.name.as_str());
            ensure!(names, "a create over {change:?} does not name instance and mark: {}", error.message);
            ensure!(t.world.objects() == before, "a create over {change:?} touched it");
        }
        let uid = format!("unreadable-{}", door.system().is_some());
        let key = t.made(&door, &uid).await?;
        if t.part("unreadable marks", t.world.alter(&key.name, &Alter::Unreadable)).is_some() {
            refused(door.create(&t.request(&uid)).await, ErrorClass::Transient, "a create over unreadable marks")?;
        }
    }
    Ok(())
}

pub(super) async fn over_dying(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let key = t.made(&door, "dying").await?;
    t.dying(&door, &key).await?;
    let before = t.census();
    refused(door.create(&t.request("dying")).await, ErrorClass::Transient, "a create over a dying instance")?;
    ensure!(t.census() == before, "a create over a dying instance left {:?}, not {before:?}", t.census());
    t.world.settle().await;
    t.gone(&door, &key).await?;
    ok(door.create(&t.request("dying")).await, "create after the death")?;
    Ok(())
}

pub(super) async fn visible(t: &Trial) -> Verdict {
    for door in t.both().await? {
        let request = t.request(&format!("visible-{}", door.system().is_some()));
        let key = key(&request, Some(ok(door.create(&request).await, "create")?));
        let read = ok(door.get(&key).await, "get right after create")?;
        ensure!(Some(&read.id) == key.id.as_ref() && read.name == key.name, "get answered {} {}", read.id, read.name);
        ok(t.provider().await?.get(&key).await, "get by another process right after create")?;
    }
    Ok(())
}

pub(super) async fn bad_placement(t: &Trial) -> Verdict {
    let bad = t.world.bad_placements()?;
    for door in t.both().await? {
        for (n, bad) in bad.iter().enumerate() {
            let mut request = t.request(&format!("bad-{n}"));
            request.placement = bad.placement.clone();
            let (calls, objects) = (t.world.calls(), t.world.objects());
            let error = refused(door.create(&request).await, ErrorClass::Permanent, format_args!("{} {:?}", bad.field, bad.value))?;
            let names = error.message.contains(bad.field) && error.message.contains(&bad.value);
            ensure!(names, "the refusal of {} {:?} does not name both: {}", bad.field, bad.value, error.message);
            ensure!(t.world.objects() == objects, "{} {:?} changed something", bad.field, bad.value);
            if let Some(calls) = t.part("zero backend calls", calls) {
                let after = t.world.calls()?;
                ensure!(calls.len() == after.len(), "{} {:?} cost the calls {:?}", bad.field, bad.value, &after[calls.len()..]);
            }
        }
    }
    Ok(())
}

pub(super) async fn names(t: &Trial) -> Verdict {
    let door = t.backend().await?;
    for (uid, name) in [
        ("00000000-0000-0000-0000-000000000000", "proxy-ck4to7f6pzojj2fh"),
        ("3f1c2a9e-0000-4000-8000-000000000001", "proxy-qbhtrucak6szambe"),
        ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "proxy-4wcv75ehthcszhgp"),
        ("a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d", "proxy-kpgi7vzj2uz6yiak"),
    ] {
        ensure!(InstanceName::of(&Uid::new(uid)).as_str() == name, "the name of {uid} is {}", InstanceName::of(&Uid::new(uid)));
        let key = t.made(&door, uid).await?;
        let read = ok(door.get(&key).await, "get")?;
        ensure!(read.name.as_str() == name, "get names the instance of {uid} {}, not {name}", read.name);
        let listed = ok(door.list().await, "list")?;
        ensure!(listed.instances.iter().any(|instance| instance.name.as_str() == name), "list does not name {name}");
    }
    Ok(())
}

pub(super) async fn adoption(t: &Trial) -> Verdict {
    if t.profiles.secondary_resources != SecondaryResources::Explicit {
        return Err(NotApplicable::because(format!("secondary-resources is {}", t.profiles.secondary_resources)).into());
    }
    let door = t.provider().await?;
    let key = t.made(&door, "adopted").await?;
    let whole = t.census();
    t.world.drop_secondary(&key.name)?;
    ensure!(t.census() != whole, "the fixture dropped nothing");
    ok(door.create(&t.request("adopted")).await, "create over an instance without a secondary resource")?;
    t.world.settle().await;
    ensure!(t.census() == whole, "an adoption left {:?}, not {whole:?}", t.census());
    t.world.mismatch_disk(&key.name)?;
    let before = t.world.objects();
    refused(door.create(&t.request("adopted")).await, ErrorClass::Permanent, "adoption of a mismatched disk")?;
    ensure!(t.world.objects() == before, "a refused adoption changed something");
    Ok(())
}

//! CT-24 to CT-26.

use std::collections::BTreeSet;

use egress_protocol::{InstallationId, InstanceName, Uid};

use crate::trial::{OURS, THEIRS, Trial, ok};
use crate::{Alter, Fault, Intervention, ListPartial, Mark, Verdict, ensure};

pub(super) async fn ours(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let normal = t.made(&door, "normal").await?;
    let nobodys = t.made(&door, "without-uid").await?;
    t.world.alter(&nobodys.name, &Alter::Set(Mark::Uid, String::new()))?;
    for (uid, change) in [
        ("unmarked", Alter::Strip(Mark::Managed)),
        ("theirs", Alter::Set(Mark::Installation, THEIRS.to_owned())),
        ("of-nobody", Alter::Strip(Mark::Installation)),
    ] {
        let key = t.made(&door, uid).await?;
        t.world.alter(&key.name, &change)?;
    }
    let other = Uid::new("other-type");
    t.part("other type", t.world.add_other_type(&InstanceName::of(&other), &other, &InstallationId::new(OURS)));
    for door in t.both().await? {
        let listed = ok(door.list().await, "list")?;
        ensure!(listed.left_out.is_empty(), "a complete list left out {:?}", listed.left_out);
        let seen: BTreeSet<_> = listed.instances.iter().map(|i| (i.name.clone(), i.uid.as_str().to_owned())).collect();
        let expected = BTreeSet::from([(normal.name.clone(), "normal".to_owned()), (nobodys.name.clone(), String::new())]);
        ensure!(seen == expected, "the list holds {seen:?}, not {expected:?}");
        let whole = listed.instances.iter().all(|i| i.created_at.is_some() && i.installation.as_str() == OURS);
        ensure!(whole, "a listed instance lacks its creation time or our installation: {:?}", listed.instances);
    }
    Ok(())
}

pub(super) async fn pages(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let many = t.world.more_than_two_pages();
    let mut made = Vec::new();
    for n in 0..many {
        made.push(t.made(&door, &format!("page-{n}")).await?);
    }
    let listed = ok(door.list().await, "list")?;
    let names: BTreeSet<_> = listed.instances.iter().map(|instance| &instance.name).collect();
    ensure!(names.len() == many && listed.instances.len() == many, "of {many} instances {} are listed", names.len());
    for instance in &listed.instances {
        let Some(mut key) = made.iter().find(|key| key.name == instance.name).cloned() else { continue };
        key.id = Some(instance.id.clone());
        t.gone(&door, &key).await?;
    }
    ensure!(t.world.objects().is_empty(), "after deletes by listed ids there is {:?}", t.world.objects());
    Ok(())
}

pub(super) async fn partial(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    for n in 0..2 {
        t.made(&door, &format!("part-{n}")).await?;
    }
    if let Some(part) = t.part("a part that cannot be reached", t.world.cut_off_part()) {
        for door in t.both().await? {
            match (door.list().await, t.profiles.list_partial) {
                (Ok(listed), ListPartial::OmitUnreachable) => {
                    let named = listed.left_out.iter().any(|(name, why)| *name == part && !why.is_empty());
                    ensure!(named, "{part} cannot be reached, but left out is {:?}", listed.left_out);
                }
                (Ok(listed), ListPartial::FailWhole) => {
                    ensure!(false, "list-partial is fail-whole, but a list without {part} answered {} instances", listed.instances.len());
                }
                (Err(error), ListPartial::OmitUnreachable) => ensure!(false, "list-partial is omit-unreachable, but: {error}"),
                (Err(_), ListPartial::FailWhole) => {}
            }
        }
        t.world.calm();
        let _ = door.list().await;
    }
    for fault in [Fault::LinkDown, Fault::Erring] {
        for n in 1..16 {
            if t.part("the link dies mid-list", t.world.intervene(n, Intervention::Fail(fault))).is_none() {
                return Ok(());
            }
            let listed = door.list().await;
            t.world.calm();
            if let Ok(listed) = listed {
                let whole = listed.instances.len() == 2;
                ensure!(whole || !listed.left_out.is_empty(), "{fault:?} in call {n} makes a short list: {:?}", listed.instances);
            }
            let _ = door.list().await;
        }
    }
    let listed = ok(door.list().await, "list when all is well again")?;
    ensure!(listed.instances.len() == 2 && listed.left_out.is_empty(), "list when all is well again: {listed:?}");
    Ok(())
}

//! CT-08 to CT-18.

use egress_protocol::provider::{ErrorClass, InstanceState};
use egress_protocol::{InstallationId, InstanceId, InstanceName, Timestamp, Uid};
use tracing::Level;

use super::create::strangers;
use crate::trial::{THEIRS, Trial, key, ok, refused};
use crate::{
    Alter, AsyncOps, CreatedAt, Fault, Intervention, IpSource, Mark, Miss, NotApplicable, ProvisioningState, Verdict, class, ensure,
};

pub(super) async fn after_delete(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let key = t.made(&door, "deleted").await?;
    t.gone(&door, &key).await?;
    refused(door.get(&key).await, ErrorClass::NotFound, "get after a finished delete")?;
    refused(t.backend().await?.get(&key).await, ErrorClass::NotFound, "get after a finished delete and a restart")?;
    Ok(())
}

pub(super) async fn never_not_found(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let there = t.made(&door, "there").await?;
    let absent = {
        let key = t.made(&door, "absent").await?;
        t.gone(&door, &key).await?;
        key
    };
    for fault in Fault::ALL {
        if t.part(&format!("every call fails: {fault:?}"), t.world.fail_all(fault)).is_none() {
            continue;
        }
        for (key, which) in [(&there, "there"), (&absent, "not there")] {
            let answer = door.get(key).await;
            ensure!(answer.is_err(), "with every call failing ({fault:?}) get answered {answer:?}");
            ensure!(class(&answer) != Some(ErrorClass::NotFound), "{fault:?} reads NotFound where the instance is {which}");
        }
        t.world.calm();
        // A link that broke is dialled again.
        let _ = door.get(&there).await;
        for n in 1..8 {
            if t.part("each call of get fails", t.world.intervene(n, Intervention::Fail(fault))).is_none() {
                break;
            }
            let answer = door.get(&there).await;
            t.world.calm();
            ensure!(class(&answer) != Some(ErrorClass::NotFound), "{fault:?} in call {n} of get reads NotFound");
            let _ = door.get(&there).await;
        }
    }
    ok(door.get(&there).await, "get when all is well again")?;
    Ok(())
}

/// A WARN line says that something is not ours.
pub(super) fn warned(t: &Trial, since: (usize, usize), mark: Mark) -> bool {
    let (_, lines) = t.capture.since(since);
    lines.iter().any(|line| {
        line.level == Level::WARN
            && line.fields.get("message").is_some_and(|message| message.starts_with("WARNING:"))
            && line.fields.values().any(|value| value.contains(mark.key()))
    })
}

pub(super) async fn foreign(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    for (n, (change, mark)) in strangers().iter().enumerate() {
        let key = t.made(&door, &format!("foreign-{n}")).await?;
        t.world.alter(&key.name, change)?;
        let (before, heard) = (t.world.objects(), t.capture.now());
        refused(door.get(&key).await, ErrorClass::NotFound, format_args!("get over {change:?}"))?;
        ensure!(warned(t, heard, *mark), "no WARNING names {} after a get over {change:?}", mark.key());
        ensure!(t.world.objects() == before, "a get over {change:?} touched it");
    }
    for (change, expected) in [(Alter::Unreadable, ErrorClass::Transient), (Alter::Corrupt, ErrorClass::Permanent)] {
        let key = t.made(&door, &format!("marks-{change:?}")).await?;
        if t.part(&format!("marks {change:?}"), t.world.alter(&key.name, &change)).is_some() {
            refused(door.get(&key).await, expected, format_args!("get over {change:?} marks"))?;
        }
    }
    Ok(())
}

pub(super) async fn dying(t: &Trial) -> Verdict {
    for door in t.both().await? {
        let key = t.made(&door, &format!("dying-{}", door.system().is_some())).await?;
        t.dying(&door, &key).await?;
        let read = ok(door.get(&key).await, "get during a delete")?;
        ensure!(read.deleting, "get during a delete does not say `deleting`");
        ensure!(read.state != InstanceState::Running, "an instance that is being deleted reads Running");
        t.gone(&door, &key).await?;
        refused(door.get(&key).await, ErrorClass::NotFound, "get when its name is free")?;
    }
    Ok(())
}

pub(super) async fn address(t: &Trial) -> Verdict {
    for door in t.both().await? {
        let key = t.made(&door, &format!("address-{}", door.system().is_some())).await?;
        let read = ok(door.get(&key).await, "get")?;
        ensure!(read.state == InstanceState::Running, "a started instance reads {:?} ({:?})", read.state, read.state_detail);
        let Some(ip) = read.ip else { return Err(Miss::Failed("Running without an address".to_owned())) };
        if t.profiles.ip_source == IpSource::Discovered {
            let routable = !(ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || ip.is_multicast());
            ensure!(routable, "the discovered address {ip} is not routable");
        }
        if t.part("running without an address", t.world.hide_address(&key.name)).is_some() {
            let read = ok(door.get(&key).await, "get without an address")?;
            ensure!(
                (read.state, read.ip) == (InstanceState::Provisioning, None),
                "without an address it reads {:?} {:?}",
                read.state,
                read.ip
            );
            ensure!(read.state_detail.is_some(), "PC-61: no detail while Provisioning");
        }
    }
    Ok(())
}

pub(super) async fn sources(t: &Trial) -> Verdict {
    if t.profiles.ip_source != IpSource::Discovered {
        return Err(NotApplicable::because(format!("ip-source is {}", t.profiles.ip_source)).into());
    }
    let door = t.provider().await?;
    let key = t.made(&door, "sources").await?;
    for fault in [Fault::Unreachable, Fault::Erring, Fault::LinkDown] {
        t.world.fail_address_sources(fault)?;
        refused(door.get(&key).await, ErrorClass::Transient, format_args!("get with every address source failing ({fault:?})"))?;
        t.world.calm();
        // Once, for a link that broke.
        let _ = door.get(&key).await;
        let read = ok(door.get(&key).await, "get with sources again")?;
        ensure!(read.state == InstanceState::Running, "with its sources again it reads {:?}", read.state);
    }
    Ok(())
}

pub(super) async fn states(t: &Trial) -> Verdict {
    let mut table = t.world.states()?;
    ensure!(table.iter().any(|(_, state)| *state == InstanceState::Paused), "the state table has no Paused");
    table.push(("a-word-that-nobody-knows", InstanceState::Stopped));
    for door in t.both().await? {
        let key = t.made(&door, &format!("states-{}", door.system().is_some())).await?;
        for (word, state) in &table {
            t.world.set_state(&key.name, word)?;
            let read = ok(door.get(&key).await, format_args!("get of {word:?}"))?;
            ensure!(read.state == *state, "{word:?} reads {:?}, not {state:?}", read.state);
            let tells = *state != InstanceState::Paused || read.state_detail.as_deref().is_some_and(|detail| detail.contains(word));
            ensure!(tells, "PC-31: the detail of a paused instance is {:?}", read.state_detail);
        }
    }
    Ok(())
}

pub(super) async fn not_started(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let request = t.request("fresh");
    let fresh = key(&request, Some(ok(door.create(&request).await, "create")?));
    let read = ok(door.get(&fresh).await, "get before the start")?;
    let down = |state| matches!(state, InstanceState::Stopped | InstanceState::Terminated);
    ensure!(!down(read.state), "right after its create an instance reads {:?}", read.state);
    if t.profiles.provisioning_state == ProvisioningState::CreateBlocks {
        return Ok(());
    }
    // What a cut create left behind is not down either.
    for step in 0.. {
        let Some(Some(request)) = t.part("after a cut create", t.cut(step).await?) else { break };
        let id = InstanceId::new(fresh.id.as_ref().map_or("", |id| id.as_str()).replace(fresh.name.as_str(), request.name.as_str()));
        if let Ok(read) = door.get(&key(&request, Some(id))).await {
            ensure!(!down(read.state), "an instance whose create was cut in step {step} reads {:?}", read.state);
        }
    }
    Ok(())
}

pub(super) async fn busy(t: &Trial) -> Verdict {
    if t.profiles.async_ops == AsyncOps::None {
        return Err(NotApplicable::because("async-ops is none").into());
    }
    let door = t.provider().await?;
    let key = t.made(&door, "busy").await?;
    let before = ok(door.get(&key).await, "get")?.state;
    if t.part("locked", t.world.lock(&key.name, true)).is_some() {
        let answer = door.get(&key).await;
        let fine = answer.as_ref().map_or_else(|error| error.class == ErrorClass::Transient, |read| read.state == before);
        ensure!(fine, "get of a locked instance answers {answer:?}");
        let answer = door.delete(&key).await;
        let fine = answer.as_ref().map_or_else(|error| error.class == ErrorClass::Transient, |_| true);
        ensure!(fine, "delete of a locked instance answers {answer:?}");
        t.world.lock(&key.name, false)?;
        ok(door.get(&key).await, "get after the lock")?;
    }
    let key = t.made(&door, "task").await?;
    if t.part("a failed task", t.world.fail_task(&key.name, "no host has room")).is_some() {
        let answer = door.get(&key).await;
        ensure!(class(&answer) != Some(ErrorClass::NotFound), "a failed task reads NotFound");
        let told = match &answer {
            Ok(read) => read.state_detail.clone().unwrap_or_default(),
            Err(error) => error.message.clone(),
        };
        ensure!(told.contains("no host has room"), "a failed task's message does not surface: {told:?}");
    }
    Ok(())
}

pub(super) async fn follows(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let key = t.made(&door, "follows").await?;
    let read = ok(door.get(&key).await, "get")?;
    ensure!((&read.uid, &read.installation) == (&key.uid, &key.installation), "get answers {} {}", read.uid, read.installation);
    ensure!(read.created_at.is_some(), "get answers no creation time");
    if t.profiles.created_at == CreatedAt::WrittenAtCreate {
        let at = "2020-02-02T02:02:02Z";
        t.world.alter(&key.name, &Alter::Set(Mark::CreatedAt, at.to_owned()))?;
        let read = ok(door.get(&key).await, "get")?;
        ensure!(read.created_at == Timestamp::parse(at), "the creation time was remembered: {:?}", read.created_at);
    }
    t.world.alter(&key.name, &Alter::Set(Mark::Uid, "follows-2".to_owned()))?;
    refused(door.get(&key).await, ErrorClass::NotFound, "get after the UID mark changed")?;
    let mut other = key.clone();
    other.uid = Uid::new("follows-2");
    ensure!(ok(door.get(&other).await, "get by the UID that is there now")?.uid == other.uid, "the UID was remembered");
    t.world.alter(&key.name, &Alter::Set(Mark::Installation, THEIRS.to_owned()))?;
    refused(door.get(&other).await, ErrorClass::NotFound, "get after the installation mark changed")?;
    other.installation = InstallationId::new(THEIRS);
    ensure!(ok(door.get(&other).await, "get by the installation that is there now")?.installation == other.installation, "remembered");
    // PC-34: white space and case do not count.
    for (text, part) in [("FOLLOWS-2", "a mark in other case"), (" FOLLOWS-2\n", "a mark with white space")] {
        if t.part(part, t.world.alter(&key.name, &Alter::Set(Mark::Uid, text.to_owned()))).is_some() {
            ok(door.get(&other).await, format_args!("get by {part}"))?;
        }
    }
    Ok(())
}

pub(super) async fn malformed(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let key = t.made(&door, "malformed").await?;
    let before = t.world.objects();
    let good = key.id.as_ref().map_or("", |id| id.as_str());
    let made = [String::new(), format!("{good}/x"), format!("/{good}"), format!(" {good}"), format!("{good}\n"), good.replace('/', "")];
    let names_it = |text: &str| text == good || InstanceName::of(&key.uid).as_str() == text;
    for text in t.world.malformed_ids().into_iter().chain(made.into_iter().filter(|text| !names_it(text))) {
        let mut key = key.clone();
        key.id = Some(InstanceId::new(text.as_str()));
        refused(door.get(&key).await, ErrorClass::Permanent, format_args!("get of the id {text:?}"))?;
        refused(door.delete(&key).await, ErrorClass::Permanent, format_args!("delete of the id {text:?}"))?;
        ensure!(t.world.objects() == before, "the id {text:?} changed something");
    }
    Ok(())
}

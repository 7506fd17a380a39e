//! What may be deleted: a diff between what a provider lists and which objects exist, over two rounds.
//!
//! What must stay true of everything that is chosen: the provider lists it as ours; its name is the one that is derived
//! from its UID; no live object has that UID or that name; it is old enough; it was an orphan in the round before, too. A
//! live set that is not complete, or was read before the list returned, makes nothing an orphan. A list proves something
//! about what is in it and about nothing else: what it left out is neither an orphan nor gone. At most so many are chosen
//! per provider and round.
//!
//! That an instance carries the managed mark is the list's promise (PC-43); everything else is looked at again here.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use egress_protocol::provider::ListResult;
use egress_protocol::source::LiveSet;
use egress_protocol::{InstallationId, InstanceId, InstanceName, Timestamp, Uid};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

/// A creation time further ahead of us than this is no time at all (PC-46).
const FUTURE: Duration = Duration::from_secs(300);

/// What the rounds go by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Who we are.
    pub installation: InstallationId,
    /// `--gc-min-age`.
    pub min_age: Duration,
    /// `--gc-max-deletes`, per provider and round.
    pub max_deletes: usize,
}

/// What one provider's round found out, in this order: the list, then the live set (OG-3).
#[derive(Debug, Clone)]
pub struct Survey {
    /// What the provider has of ours.
    pub list: ListResult,
    /// When the list was complete.
    pub listed_at: Timestamp,
    /// Which objects exist.
    pub live: LiveSet,
}

/// Something that no object has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Orphan {
    /// None: a secondary resource without an instance (OG-5).
    pub id: Option<InstanceId>,
    /// Of the instance, or of the one it was made for.
    pub name: InstanceName,
    /// Of the object it was made for; empty for a secondary resource.
    pub uid: Uid,
}

/// When an orphan was first seen as one, without a gap since, and how often its deletion was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sighting {
    first: Timestamp,
    tries: u32,
}

/// The orphans of a provider's last round: nothing is deleted that is not among them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence(BTreeMap<Orphan, Sighting>);

impl Evidence {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An orphan that may be deleted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Which.
    pub orphan: Orphan,
    /// `None`: when it was made is not known.
    pub age: Option<Duration>,
}

/// What a round comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// To be deleted, at most [`Rules::max_deletes`].
    pub chosen: Vec<Chosen>,
    /// Orphans that had to wait for a later round: seen for the first time, or more than may go at once.
    pub waiting: usize,
}

/// Why a round proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// See [`LiveSet::complete`].
    #[error("the objects could not be read completely")]
    Incomplete,
    /// It was read before the list returned.
    #[error("the objects were read before the instances were listed")]
    Stale,
}

/// Decides. The evidence is that of the provider's round before, and what comes back is this round's; a round that is
/// refused, or did not take place, leaves none.
pub fn sweep(rules: &Rules, before: &Evidence, survey: &Survey) -> Result<(Plan, Evidence), Refusal> {
    let live = &survey.live;
    if !live.complete {
        return Err(Refusal::Incomplete);
    }
    if live.as_of < survey.listed_at {
        return Err(Refusal::Stale);
    }
    let now = survey.listed_at;
    let mut found: Vec<(Orphan, Sighting, Option<Timestamp>)> = Vec::new();
    let mut evidence = Evidence::default();
    let mut waiting = 0;
    for (orphan, created) in orphans(rules, survey) {
        if evidence.0.contains_key(&orphan) {
            continue;
        }
        if created.is_some_and(|created| now.since(created) < rules.min_age) {
            continue;
        }
        let seen = before.0.get(&orphan);
        let sighting = seen.copied().unwrap_or(Sighting { first: now, tries: 0 });
        evidence.0.insert(orphan.clone(), sighting);
        // Without a time, only we know how old a secondary resource is at least (PC-46).
        let known_for = seen.map(|seen| now.since(seen.first));
        let proven = known_for.is_some_and(|known| orphan.id.is_some() || created.is_some() || known >= rules.min_age);
        if proven {
            found.push((orphan, sighting, created));
        } else {
            waiting += 1;
        }
    }
    // What was tried before does not keep the others from their turn; of equals the oldest first.
    found.sort_by(|a, b| (a.1.tries, a.2, &a.0).cmp(&(b.1.tries, b.2, &b.0)));
    waiting += found.len().saturating_sub(rules.max_deletes);
    found.truncate(rules.max_deletes);
    for (orphan, _, _) in &found {
        if let Some(sighting) = evidence.0.get_mut(orphan) {
            sighting.tries += 1;
        }
    }
    let chosen = found.into_iter().map(|(orphan, _, created)| Chosen { orphan, age: created.map(|at| now.since(at)) }).collect();
    Ok((Plan { chosen, waiting }, evidence))
}

/// What is listed and ours and belongs to no live object, with the time it was made if that can be believed.
fn orphans(rules: &Rules, survey: &Survey) -> Vec<(Orphan, Option<Timestamp>)> {
    let live = &survey.live.uids;
    let names: HashSet<InstanceName> = live.iter().map(InstanceName::of).collect();
    let instances = survey.list.instances.iter().filter(|instance| {
        !instance.uid.as_str().trim().is_empty()
            && !live.contains(&instance.uid)
            && !names.contains(&instance.name)
            && instance.installation == rules.installation
            && instance.name == InstanceName::of(&instance.uid)
            // On its way already: it goes, or is listed again without this.
            && !instance.deleting
    });
    let instances = instances.map(|instance| {
        let orphan = Orphan { id: Some(instance.id.clone()), name: instance.name.clone(), uid: instance.uid.clone() };
        (orphan, instance.created_at)
    });
    // What an instance still has goes with the instance.
    let listed: HashSet<&InstanceName> = survey.list.instances.iter().map(|instance| &instance.name).collect();
    let leftovers = survey.list.leftovers.iter().filter(|leftover| !names.contains(&leftover.name) && !listed.contains(&leftover.name));
    let leftovers = leftovers.map(|leftover| {
        let orphan = Orphan { id: None, name: leftover.name.clone(), uid: Uid::new("") };
        (orphan, leftover.created_at)
    });
    let believable = |created: &Timestamp| *created <= survey.listed_at + FUTURE;
    instances.chain(leftovers).map(|(orphan, created)| (orphan, created.filter(believable))).collect()
}

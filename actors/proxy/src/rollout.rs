//! Who may be replaced now: at most a share of the proxies of one Secret (OP-16) and of one provider (OP-33) at a time.
//! Pure; the directory keeps the book and tells each proxy its place.
//!
//! What must stay true: of the members of a group, those that are not Healthy and those that hold a place are together
//! never made more than the share by a grant; a place is held until its holder asks for none any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egress_protocol::ObjectKey;
use egress_protocol::proxies::Share;

/// Why a proxy asks for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Want {
    /// Its definition changed (OP-16): one of its Secret's places.
    Rollout,
    /// It has been unhealthy for too long (OP-33): one of its provider's places.
    Repair,
}

/// What a proxy says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Member {
    /// The Secret its cloud-init comes from.
    pub secret: Option<Arc<str>>,
    /// Its provider entry.
    pub provider: Option<Arc<str>>,
    /// Running, probed healthy and as declared or waiting for its turn.
    pub healthy: bool,
    /// The place it asks for or holds.
    pub wants: Option<Want>,
}

/// What a proxy is told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Place {
    /// None, and none asked for.
    #[default]
    None,
    /// Wait.
    Waiting {
        /// A member that stands in the way and is not Healthy.
        behind: Option<ObjectKey>,
    },
    /// Go on.
    Granted(Want),
}

/// Who is to be told a new place.
pub type News = Vec<(ObjectKey, Place)>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Secret(Arc<str>, Arc<str>),
    Provider(Arc<str>),
}

/// What the book knows of one group.
#[derive(Debug, Default)]
struct Tally {
    members: usize,
    /// Not Healthy, or holding a place.
    counting: BTreeSet<ObjectKey>,
    /// Asking for a place of this group.
    waiting: BTreeSet<ObjectKey>,
}

/// The book. A report costs the same whatever the size of its groups.
#[derive(Debug, Default)]
pub struct Rollout {
    members: BTreeMap<ObjectKey, (Member, Place)>,
    groups: BTreeMap<Group, Tally>,
}

impl Rollout {
    /// A proxy says where it stands; answers who is to be told a new place.
    pub fn put(&mut self, share: Share, key: &ObjectKey, member: Member) -> News {
        let (old, place) = self.members.remove(key).unwrap_or_default();
        let mut touched = self.tally(key, &old, &place, false);
        // One that asks for nothing has no place, and one whose wish changed starts anew.
        let fits = match (&place, member.wants) {
            (Place::Granted(kind), Some(want)) => *kind == want,
            (Place::Waiting { .. }, Some(_)) | (Place::None, None) => true,
            (Place::None, Some(_)) | (Place::Granted(_) | Place::Waiting { .. }, None) => false,
        };
        let mut news = BTreeMap::new();
        let place = match (fits, member.wants) {
            (true, _) => place,
            (false, None) => Place::None,
            (false, Some(_)) => Place::Waiting { behind: None },
        };
        if !fits {
            news.insert(key.clone(), place.clone());
        }
        touched.extend(self.tally(key, &member, &place, true));
        self.members.insert(key.clone(), (member, place));
        self.settle(share, &touched, news)
    }

    /// A proxy is gone.
    pub fn remove(&mut self, share: Share, key: &ObjectKey) -> News {
        let Some((member, place)) = self.members.remove(key) else { return Vec::new() };
        let touched = self.tally(key, &member, &place, false);
        self.settle(share, &touched, BTreeMap::new())
    }

    /// Whether anybody waits for a place.
    pub fn anybody_waits(&self) -> bool {
        self.groups.values().any(|tally| !tally.waiting.is_empty())
    }

    /// Nobody moved for long: tells every waiting member behind whom it waits, and answers with the first of each
    /// group, which speaks for it.
    pub fn stand_still(&mut self) -> (News, Vec<(ObjectKey, Option<ObjectKey>)>) {
        let (mut news, mut speakers) = (Vec::new(), Vec::new());
        for tally in self.groups.values() {
            let unhealthy = |key: &&ObjectKey| self.members.get(*key).is_some_and(|(member, _)| !member.healthy);
            let behind = tally.counting.iter().find(unhealthy).or(tally.counting.first()).cloned();
            speakers.extend(tally.waiting.first().map(|key| (key.clone(), behind.clone())));
            news.extend(tally.waiting.iter().map(|key| (key.clone(), Place::Waiting { behind: behind.clone() })));
        }
        news.retain(|(key, place)| match self.members.get_mut(key) {
            Some((_, now)) if now != place => {
                *now = place.clone();
                true
            }
            _ => false,
        });
        (news, speakers)
    }

    /// Adds a member to the tallies of its groups, or takes it out of them.
    fn tally(&mut self, key: &ObjectKey, member: &Member, place: &Place, add: bool) -> BTreeSet<Group> {
        let groups: BTreeSet<_> = groups_of(key, member).collect();
        for group in &groups {
            let want = group.want();
            let tally = self.groups.entry(group.clone()).or_default();
            // Whoever asks for repair is unhealthy by nature: there, only those being replaced count.
            let counts = *place == Place::Granted(want) || (want == Want::Rollout && !member.healthy);
            let waits = matches!(place, Place::Waiting { .. }) && member.wants == Some(want);
            if !add {
                tally.members = tally.members.saturating_sub(1);
                tally.counting.remove(key);
                tally.waiting.remove(key);
                if tally.members == 0 {
                    self.groups.remove(group);
                }
                continue;
            }
            tally.members += 1;
            if counts {
                tally.counting.insert(key.clone());
            }
            if waits {
                tally.waiting.insert(key.clone());
            }
        }
        groups
    }

    fn settle(&mut self, share: Share, groups: &BTreeSet<Group>, mut news: BTreeMap<ObjectKey, Place>) -> News {
        for group in groups {
            let Some(tally) = self.groups.get_mut(group) else { continue };
            let allowed = share.of(tally.members);
            while tally.counting.len() < allowed
                && let Some(key) = tally.waiting.pop_first()
            {
                let place = Place::Granted(group.want());
                if let Some(entry) = self.members.get_mut(&key) {
                    entry.1 = place.clone();
                }
                tally.counting.insert(key.clone());
                news.insert(key, place);
            }
        }
        news.into_iter().collect()
    }
}

impl Group {
    /// What its places are for.
    const fn want(&self) -> Want {
        match self {
            Self::Secret(..) => Want::Rollout,
            Self::Provider(_) => Want::Repair,
        }
    }
}

fn groups_of(key: &ObjectKey, member: &Member) -> impl Iterator<Item = Group> {
    let secret = member.secret.clone().map(|secret| Group::Secret(key.namespace.clone(), secret));
    let provider = member.provider.clone().map(Group::Provider);
    secret.into_iter().chain(provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> ObjectKey {
        ObjectKey::new("default", format!("px-{n:03}"))
    }

    fn member(healthy: bool, wants: Option<Want>) -> Member {
        Member { secret: Some("pool".into()), provider: Some("lab".into()), healthy, wants }
    }

    fn granted(news: &[(ObjectKey, Place)]) -> Vec<ObjectKey> {
        news.iter().filter(|(_, place)| matches!(place, Place::Granted(_))).map(|(key, _)| key.clone()).collect()
    }

    fn fleet(size: usize) -> Rollout {
        let mut rollout = Rollout::default();
        for n in 0..size {
            assert!(rollout.put(Share::Percent(25), &key(n), member(true, None)).is_empty());
        }
        rollout
    }

    #[test]
    fn the_share_rounds_down_and_is_at_least_one_op_16() {
        for (share, members, places) in [
            (Share::Percent(25), 3, 1),
            (Share::Percent(25), 8, 2),
            (Share::Percent(25), 11, 2),
            (Share::Percent(0), 11, 1),
            (Share::Percent(100), 11, 11),
            (Share::Count(3), 11, 3),
            (Share::Count(0), 11, 1),
        ] {
            assert_eq!(share.of(members), places, "{share:?} of {members}");
        }
    }

    #[test]
    fn at_most_a_quarter_of_a_secrets_proxies_is_replaced_at_a_time_op_16() {
        let share = Share::Percent(25);
        let mut rollout = fleet(8);
        let mut places = Vec::new();
        for n in 0..8 {
            places.extend(granted(&rollout.put(share, &key(n), member(true, Some(Want::Rollout)))));
        }
        assert_eq!(places, [key(0), key(1)]);
        assert!(rollout.put(share, &key(0), member(false, Some(Want::Rollout))).is_empty(), "being replaced, it keeps its place");
        let news = rollout.put(share, &key(0), member(true, None));
        assert_eq!(granted(&news), [key(2)], "healthy again, it passes the place on");
        let news = rollout.remove(share, &key(1));
        assert_eq!(granted(&news), [], "of seven, one place, and px-002 holds it");
        let news = rollout.remove(share, &key(2));
        assert_eq!(granted(&news), [key(3)], "deleted, it passes the place on");
    }

    #[test]
    fn members_that_are_unhealthy_for_other_reasons_count_op_16() {
        let share = Share::Percent(25);
        let mut rollout = fleet(8);
        rollout.put(share, &key(6), member(false, None));
        rollout.put(share, &key(7), member(false, None));
        let news = rollout.put(share, &key(0), member(true, Some(Want::Rollout)));
        assert_eq!(news, [(key(0), Place::Waiting { behind: None })]);
        let news = rollout.put(share, &key(6), member(true, None));
        assert_eq!(granted(&news), [key(0)]);
    }

    #[test]
    fn a_bad_edit_stops_with_those_that_hold_a_place_op_16() {
        let share = Share::Percent(25);
        let mut rollout = fleet(4);
        for n in 0..4 {
            rollout.put(share, &key(n), member(true, Some(Want::Rollout)));
        }
        rollout.put(share, &key(0), member(false, Some(Want::Rollout)));
        let (news, speakers) = rollout.stand_still();
        assert_eq!(news, [1, 2, 3].map(|n| (key(n), Place::Waiting { behind: Some(key(0)) })), "each says behind whom it waits");
        assert_eq!(speakers, [(key(1), Some(key(0)))], "one Event for all");
        assert!(rollout.stand_still().0.is_empty(), "said once");
        // A newer edit: the broken one goes first and needs no new place; healed, it lets the next go.
        let news = rollout.put(share, &key(0), member(true, None));
        assert_eq!(granted(&news), [key(1)]);
    }

    #[test]
    fn repairs_are_bounded_per_provider_op_33() {
        let share = Share::Percent(25);
        let mut rollout = fleet(8);
        let mut places = Vec::new();
        for n in 0..8 {
            places.extend(granted(&rollout.put(share, &key(n), member(false, Some(Want::Repair)))));
        }
        assert_eq!(places, [key(0), key(1)]);
        assert_eq!(granted(&rollout.put(share, &key(0), member(false, None))), [key(2)]);
    }

    #[test]
    fn other_namespaces_and_secrets_do_not_count_op_16() {
        let share = Share::Percent(25);
        let mut rollout = Rollout::default();
        for namespace in ["a", "b"] {
            for name in ["x", "y"] {
                let news = rollout.put(share, &ObjectKey::new(namespace, name), member(true, Some(Want::Rollout)));
                assert_eq!(granted(&news).len(), usize::from(name == "x"));
            }
        }
    }
}

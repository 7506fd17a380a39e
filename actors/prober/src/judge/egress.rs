//! Who shares an egress address with another proxy of its provider (HE-7): pure.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use egress_protocol::ObjectKey;

/// The egress address of every proxy that reports one.
#[derive(Debug, Default)]
pub struct Egress {
    of: HashMap<ObjectKey, (Arc<str>, IpAddr)>,
    holders: HashMap<(Arc<str>, IpAddr), BTreeSet<ObjectKey>>,
    sharing: HashMap<Arc<str>, i64>,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Providers whose number of sharing proxies changed.
    pub providers: BTreeSet<Arc<str>>,
    /// The proxy came to share its address with this one (the first of them by name).
    pub shares_with: Option<ObjectKey>,
}

impl Egress {
    /// The proxy was seen behind this address (none: it reports none any more).
    pub fn observe(&mut self, key: &ObjectKey, provider: &Arc<str>, address: Option<IpAddr>) -> Change {
        let place = address.map(|address| (Arc::clone(provider), address));
        if self.of.get(key) == place.as_ref() {
            return Change::default();
        }
        let mut change = self.forget(key);
        let Some(place) = place else { return change };
        let holders = self.holders.entry(place.clone()).or_default();
        let before = sharing(holders.len());
        change.shares_with = holders.first().cloned();
        holders.insert(key.clone());
        let gained = sharing(holders.len()) - before;
        self.of.insert(key.clone(), place);
        self.add(provider, gained, &mut change);
        change
    }

    /// The proxy is gone.
    pub fn forget(&mut self, key: &ObjectKey) -> Change {
        let mut change = Change::default();
        let Some(place) = self.of.remove(key) else { return change };
        let Some(holders) = self.holders.get_mut(&place) else { return change };
        let before = sharing(holders.len());
        holders.remove(key);
        let lost = sharing(holders.len()) - before;
        if holders.is_empty() {
            self.holders.remove(&place);
        }
        self.add(&place.0, lost, &mut change);
        change
    }

    /// How many proxies of the provider share an address with another of it; `None` when it has no proxy that reports one.
    pub fn sharing(&self, provider: &str) -> Option<i64> {
        self.sharing.get(provider).copied()
    }

    fn add(&mut self, provider: &Arc<str>, difference: i64, change: &mut Change) {
        let new = !self.sharing.contains_key(provider);
        *self.sharing.entry(Arc::clone(provider)).or_default() += difference;
        if new || difference != 0 {
            change.providers.insert(Arc::clone(provider));
        }
    }
}

/// Of so many holders of one address, how many share it.
fn sharing(holders: usize) -> i64 {
    if holders < 2 { 0 } else { i64::try_from(holders).unwrap_or(i64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(n: u8) -> ObjectKey {
        ObjectKey::new("default", format!("px-{n}"))
    }

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    #[test]
    fn two_proxies_of_one_provider_behind_one_address_are_flagged() {
        let mut egress = Egress::default();
        let (lab, other): (Arc<str>, Arc<str>) = ("lab".into(), "other".into());
        egress.observe(&key(1), &lab, Some(ip(1)));
        assert_eq!(egress.sharing("lab"), Some(0));
        assert_eq!(egress.observe(&key(2), &other, Some(ip(1))).shares_with, None, "of another provider");
        let change = egress.observe(&key(3), &lab, Some(ip(1)));
        assert_eq!((change.shares_with, egress.sharing("lab")), (Some(key(1)), Some(2)));
        assert_eq!(egress.observe(&key(3), &lab, Some(ip(1))), Change::default(), "said once");
        egress.observe(&key(3), &lab, Some(ip(9)));
        assert_eq!(egress.sharing("lab"), Some(0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Invariant `the gauge is what counting would give`.
        #[test]
        fn the_gauge_is_what_counting_would_give(steps in proptest::collection::vec((0_u8..8, 0_u8..2, 0_u8..5), 0..80)) {
            let providers: [Arc<str>; 2] = ["a".into(), "b".into()];
            let mut egress = Egress::default();
            let mut world: HashMap<u8, (u8, u8)> = HashMap::new();
            for (proxy, provider, address) in steps {
                if address == 0 {
                    egress.forget(&key(proxy));
                    world.remove(&proxy);
                } else {
                    egress.observe(&key(proxy), &providers[usize::from(provider)], Some(ip(address)));
                    world.insert(proxy, (provider, address));
                }
                for (n, name) in (0_u8..).zip(&providers) {
                    let shares = |(p, place): (&u8, &(u8, u8))| place.0 == n && world.iter().any(|(q, other)| q != p && other == place);
                    let expected = world.iter().filter(|(p, place)| shares((p, place))).count();
                    prop_assert_eq!(egress.sharing(name).unwrap_or(0), i64::try_from(expected).unwrap());
                }
            }
        }
    }
}

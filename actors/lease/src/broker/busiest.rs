//! Which targets have a series of their own: the 100 busiest, the rest is `other` (OB-1).

use std::sync::Arc;

use hashbrown::HashMap;

/// Series with a name of their own.
const NAMED: usize = 100;
/// Targets counted on the side, to see whether one of them is busier.
const WATCHED: usize = 1000;
/// A newcomer must have so many times the reports of the one it replaces, so that two do not take turns.
const MARGIN: u64 = 2;

#[derive(Debug, Default)]
pub(super) struct Busiest {
    named: HashMap<Arc<str>, u64>,
    watched: HashMap<Arc<str>, u64>,
}

/// Under which name a report counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name {
    Own,
    /// Its own from now on, instead of this one's.
    OwnInsteadOf(Arc<str>),
    Other,
}

impl Busiest {
    pub(super) fn count(&mut self, target: &Arc<str>) -> Name {
        if let Some(count) = self.named.get_mut(target) {
            *count += 1;
            return Name::Own;
        }
        if self.named.len() < NAMED {
            self.named.insert(Arc::clone(target), 1);
            return Name::Own;
        }
        if self.watched.len() >= WATCHED && !self.watched.contains_key(target) {
            // Old counts fade, so that the table is never full of targets nobody visits any more.
            self.watched.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
            self.named.values_mut().for_each(|count| *count = (*count / 2).max(1));
        }
        let count = self.watched.entry(Arc::clone(target)).or_default();
        *count += 1;
        let count = *count;
        let Some((least, fewest)) = self.named.iter().min_by_key(|(_, count)| **count).map(|(name, count)| (Arc::clone(name), *count))
        else {
            return Name::Other;
        };
        if count < fewest.saturating_mul(MARGIN) {
            return Name::Other;
        }
        self.watched.remove(target);
        self.named.remove(&least);
        self.named.insert(Arc::clone(target), count);
        Name::OwnInsteadOf(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_targets_have_a_name_and_a_busier_one_takes_the_place_of_the_least_busy_ob_1() {
        let mut busiest = Busiest::default();
        for n in 0..100 {
            let target: Arc<str> = format!("t{n}").into();
            for _ in 0..=n + 1 {
                assert_eq!(busiest.count(&target), Name::Own);
            }
        }
        let newcomer: Arc<str> = "new".into();
        for _ in 0..3 {
            assert_eq!(busiest.count(&newcomer), Name::Other);
        }
        assert_eq!(busiest.count(&newcomer), Name::OwnInsteadOf("t0".into()));
        assert_eq!(busiest.count(&newcomer), Name::Own);
        for n in 0..10_000 {
            busiest.count(&format!("x{n}").into());
        }
        assert!(busiest.named.len() <= NAMED && busiest.watched.len() <= WATCHED);
    }
}

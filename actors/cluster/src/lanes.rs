//! Who may send now: one at a time per object, in order, and a bounded number of objects at once, each in its turn. Pure.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// A lane per object.
#[derive(Debug)]
pub(crate) struct Lanes<K, J> {
    limit: usize,
    running: HashSet<K>,
    waiting: HashMap<K, VecDeque<J>>,
    /// Lanes with somebody waiting and nobody running.
    ready: VecDeque<K>,
}

impl<K: Clone + Eq + Hash, J> Lanes<K, J> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, running: HashSet::new(), waiting: HashMap::new(), ready: VecDeque::new() }
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Gets in line. Those of its lane for whom `keep` says no leave it.
    pub(crate) fn push(&mut self, key: K, job: J, keep: impl FnMut(&J) -> bool) {
        let lane = self.waiting.entry(key.clone()).or_default();
        let was_empty = lane.is_empty();
        lane.retain(keep);
        lane.push_back(job);
        if was_empty && !self.running.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// The next one, if one may run; [`Lanes::done`] when it has ended.
    pub(crate) fn next(&mut self) -> Option<(K, J)> {
        if self.running.len() >= self.limit {
            return None;
        }
        let key = self.ready.pop_front()?;
        let lane = self.waiting.get_mut(&key)?;
        let job = lane.pop_front()?;
        if lane.is_empty() {
            self.waiting.remove(&key);
        }
        self.running.insert(key.clone());
        Some((key, job))
    }

    pub(crate) fn done(&mut self, key: &K) {
        if self.running.remove(key) && self.waiting.contains_key(key) {
            self.ready.push_back(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_runs_one_at_a_time_in_order_and_delays_nobody_else() {
        let mut lanes = Lanes::new(2);
        for (key, job) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5)] {
            lanes.push(key, job, |_| true);
        }
        assert_eq!((lanes.next(), lanes.next(), lanes.next()), (Some(("a", 1)), Some(("b", 4)), None));
        lanes.done(&"a");
        assert_eq!(lanes.next(), Some(("c", 5)), "its second waits behind those who have not had a turn");
        lanes.done(&"b");
        assert_eq!((lanes.next(), lanes.next()), (Some(("a", 2)), None));
        lanes.done(&"c");
        assert_eq!(lanes.next(), None, "the object has one under way");
        lanes.done(&"a");
        assert_eq!(lanes.next(), Some(("a", 3)));
        lanes.done(&"a");
        assert_eq!((lanes.next(), lanes.running(), lanes.waiting()), (None, 0, 0));
    }

    #[test]
    fn whoever_gave_up_leaves_the_lane() {
        let mut lanes = Lanes::new(1);
        lanes.push("a", 1, |_| true);
        lanes.push("a", 2, |_| true);
        lanes.push("a", 3, |job| *job == 1);
        assert_eq!(lanes.next(), Some(("a", 1)));
        lanes.push("a", 4, |_| false);
        lanes.done(&"a");
        assert_eq!((lanes.next(), lanes.waiting()), (Some(("a", 4)), 0));
    }
}

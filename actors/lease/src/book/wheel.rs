//! When leases end: a hashed timer wheel over lease slots. Scheduling and cancelling are O(1), and what was released
//! early leaves nothing behind.
//!
//! What must stay true: a slot is in at most one bucket; a slot is never handed out before its time, and at most one
//! [`TICK`] after it once the wheel is asked.

use egress_protocol::Timestamp;

/// The wheel's grain in milliseconds: instants are rounded up to it.
const TICK: i64 = 20;
/// One turn is 22 minutes; later instants wait in their bucket for another turn. (Tests turn faster.)
const BUCKETS: usize = if cfg!(test) { 1 << 9 } else { 1 << 16 };
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    tick: i64,
    prev: u32,
    next: u32,
    scheduled: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Wheel {
    heads: Vec<u32>,
    nodes: Vec<Node>,
    /// Every bucket of an earlier tick holds later turns only.
    cursor: i64,
    /// What of the cursor's bucket was not looked at yet.
    scan: u32,
}

fn tick_at_or_after(at: Timestamp) -> i64 {
    at.as_millis().saturating_add(TICK - 1).div_euclid(TICK)
}

fn bucket(tick: i64) -> usize {
    usize::try_from(tick.rem_euclid(BUCKETS as i64)).unwrap_or(0)
}

impl Wheel {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { heads: vec![NONE; BUCKETS], nodes: Vec::new(), cursor: now.as_millis().div_euclid(TICK), scan: NONE }
    }

    /// Schedules a slot, or moves it when it is scheduled already.
    pub(crate) fn schedule(&mut self, slot: u32, at: Timestamp) {
        let index = slot as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, Node { tick: 0, prev: NONE, next: NONE, scheduled: false });
        }
        self.cancel(slot);
        let tick = tick_at_or_after(at).max(self.cursor);
        let head = self.heads[bucket(tick)];
        self.nodes[index] = Node { tick, prev: NONE, next: head, scheduled: true };
        if head != NONE {
            self.nodes[head as usize].prev = slot;
        }
        self.heads[bucket(tick)] = slot;
        if bucket(tick) == bucket(self.cursor) {
            self.scan = slot;
        }
    }

    pub(crate) fn cancel(&mut self, slot: u32) {
        let Some(node) = self.nodes.get(slot as usize).copied().filter(|node| node.scheduled) else { return };
        if node.prev == NONE {
            self.heads[bucket(node.tick)] = node.next;
        } else {
            self.nodes[node.prev as usize].next = node.next;
        }
        if node.next != NONE {
            self.nodes[node.next as usize].prev = node.prev;
        }
        if self.scan == slot {
            self.scan = node.next;
        }
        self.nodes[slot as usize].scheduled = false;
    }

    /// Takes out one slot whose time has come.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<u32> {
        let now_tick = now.as_millis().div_euclid(TICK);
        let oldest = now_tick - BUCKETS as i64 + 1;
        if self.cursor < oldest {
            self.move_to(oldest);
        }
        loop {
            while self.scan != NONE {
                let slot = self.scan;
                let node = self.nodes[slot as usize];
                self.scan = node.next;
                if node.tick <= now_tick {
                    self.cancel(slot);
                    return Some(slot);
                }
            }
            if self.cursor >= now_tick {
                return None;
            }
            self.move_to(self.cursor + 1);
        }
    }

    fn move_to(&mut self, tick: i64) {
        self.cursor = tick;
        self.scan = self.heads[bucket(tick)];
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Schedule(u32, i64),
        Cancel(u32),
        Advance(i64, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let turn = TICK * BUCKETS as i64;
        proptest::collection::vec(
            prop_oneof![
                4 => (0u32..40, prop_oneof![0i64..3000, 0..3 * turn]).prop_map(|(slot, after)| Step::Schedule(slot, after)),
                1 => (0u32..40).prop_map(Step::Cancel),
                2 => (prop_oneof![0i64..500, 0..2 * turn], 0usize..50).prop_map(|(by, limit)| Step::Advance(by, limit)),
            ],
            1..80,
        )
    }

    proptest! {
        #[test]
        fn a_slot_comes_out_once_never_early_and_at_most_a_tick_late(steps in steps()) {
            let mut now = Timestamp::from_millis(1_000_003);
            let mut wheel = Wheel::new(now);
            let mut model: BTreeMap<u32, i64> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Schedule(slot, after) => {
                        wheel.schedule(slot, Timestamp::from_millis(now.as_millis() + after));
                        model.insert(slot, now.as_millis() + after);
                    }
                    Step::Cancel(slot) => {
                        wheel.cancel(slot);
                        model.remove(&slot);
                    }
                    Step::Advance(by, limit) => {
                        now = Timestamp::from_millis(now.as_millis() + by);
                        let mut popped = 0;
                        while popped < limit {
                            let Some(slot) = wheel.pop_due(now) else { break };
                            let due = model.remove(&slot);
                            prop_assert!(due.is_some_and(|due| due <= now.as_millis()), "{slot} came early or twice");
                            popped += 1;
                        }
                        if popped < limit {
                            prop_assert!(model.values().all(|due| *due > now.as_millis() - TICK), "left behind: {model:?} at {now}");
                        }
                    }
                }
            }
        }
    }
}

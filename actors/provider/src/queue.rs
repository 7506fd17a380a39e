//! Which call may run: order per instance name and admission per location, pure (PC-66, PC-67).
//!
//! A create or delete first waits for its name, then for a slot, so that what waits for a name holds no slot. Both queues
//! are served in order of arrival. A call that runs may go outside (PC-100): it keeps its name and gives its slot back;
//! coming back it goes to the end of its place's line. What must stay true after every step:
//!
//! - of one name at most one create or delete runs, in order of arrival
//! - of one location and lane at most the limit runs
//! - outside, a call holds its name and nothing else
//! - a call that may run does run: nothing waits for nothing
//! - a location's calls never wait for another location's
//! - the tables hold what is in them now, not every name ever seen

use std::collections::{HashMap, VecDeque};

use egress_protocol::InstanceName;

use crate::Location;

/// A call, by the number it came with.
pub(crate) type CallId = u64;

/// Which slots a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    Create,
    Delete,
    Get,
}

/// Slots per location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub creates: usize,
    pub deletes: usize,
    pub gets: usize,
}

impl Limits {
    pub(crate) const fn with_creates(creates: usize) -> Self {
        Self { creates, deletes: 4, gets: 8 }
    }

    const fn of(self, lane: Lane) -> usize {
        match lane {
            Lane::Create => self.creates,
            Lane::Delete => self.deletes,
            Lane::Get => self.gets,
        }
    }
}

/// What a call needs before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Held alone while it runs.
    pub name: Option<InstanceName>,
    /// One of the slots of that place; `None` for what is exempt.
    pub slot: Option<(Location, Lane)>,
}

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    AwaitsName,
    AwaitsSlot,
    Runs,
    /// It waits for what is not its own work (PC-100).
    Outside,
}

#[derive(Debug, Default)]
struct Slots {
    running: usize,
    waiting: VecDeque<CallId>,
}

#[derive(Debug)]
pub(crate) struct Queue {
    limits: Limits,
    calls: HashMap<CallId, (Ticket, Stage)>,
    /// The first of each holds the name.
    names: HashMap<InstanceName, VecDeque<CallId>>,
    slots: HashMap<(Location, Lane), Slots>,
}

impl Queue {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, calls: HashMap::new(), names: HashMap::new(), slots: HashMap::new() }
    }

    /// A call arrived; `true` when it runs at once.
    pub(crate) fn arrive(&mut self, id: CallId, ticket: Ticket) -> bool {
        let first = ticket.name.as_ref().is_none_or(|name| {
            let line = self.names.entry(name.clone()).or_default();
            line.push_back(id);
            line.len() == 1
        });
        self.calls.insert(id, (ticket, Stage::AwaitsName));
        first && self.take_slot(id)
    }

    /// A call ended, or gave up waiting. Answers with the calls that run now.
    pub(crate) fn leave(&mut self, id: CallId) -> Vec<CallId> {
        let Some((ticket, stage)) = self.calls.remove(&id) else { return Vec::new() };
        let mut started = Vec::new();
        if let Some(place) = ticket.slot {
            started.extend(self.free_slot(&place, id, stage));
        }
        if let Some(next) = ticket.name.and_then(|name| self.free_name(&name, id))
            && self.take_slot(next)
        {
            started.push(next);
        }
        started
    }

    /// A call that runs waits outside from now on. Answers with the call that gets its slot.
    pub(crate) fn go_outside(&mut self, id: CallId) -> Option<CallId> {
        let (ticket, stage) = self.calls.get_mut(&id)?;
        if *stage != Stage::Runs {
            return None;
        }
        *stage = Stage::Outside;
        let place = ticket.slot.clone()?;
        self.free_slot(&place, id, Stage::Runs)
    }

    /// A call that was outside is to run again; `true` when it does at once.
    pub(crate) fn come_back(&mut self, id: CallId) -> bool {
        self.stage(id) == Some(Stage::Outside) && self.take_slot(id)
    }

    /// A call that came back gives up waiting for a slot, and keeps its name.
    pub(crate) fn stay_outside(&mut self, id: CallId) {
        let Some((ticket, stage)) = self.calls.get_mut(&id) else { return };
        if *stage == Stage::AwaitsSlot {
            *stage = Stage::Outside;
            if let Some(place) = ticket.slot.clone() {
                self.free_slot(&place, id, Stage::AwaitsSlot);
            }
        }
    }

    /// Where a call stands.
    pub(crate) fn stage(&self, id: CallId) -> Option<Stage> {
        self.calls.get(&id).map(|(_, stage)| *stage)
    }

    /// Calls that wait for their name or a slot.
    pub(crate) fn waiting(&self) -> usize {
        self.calls.values().filter(|(_, stage)| matches!(stage, Stage::AwaitsName | Stage::AwaitsSlot)).count()
    }

    /// Calls that wait outside.
    pub(crate) fn outside(&self) -> usize {
        self.calls.values().filter(|(_, stage)| *stage == Stage::Outside).count()
    }

    /// The call has its name: it runs when there is a slot.
    fn take_slot(&mut self, id: CallId) -> bool {
        let Some((ticket, stage)) = self.calls.get_mut(&id) else { return false };
        let runs = match &ticket.slot {
            None => true,
            Some(place) => {
                let limit = self.limits.of(place.1);
                let slots = self.slots.entry(place.clone()).or_default();
                let free = slots.running < limit;
                if free {
                    slots.running += 1;
                } else {
                    slots.waiting.push_back(id);
                }
                free
            }
        };
        *stage = if runs { Stage::Runs } else { Stage::AwaitsSlot };
        runs
    }

    /// Takes `id` out of a place; the call that gets its slot, if it had one.
    fn free_slot(&mut self, place: &(Location, Lane), id: CallId, stage: Stage) -> Option<CallId> {
        let slots = self.slots.get_mut(place)?;
        let next = match stage {
            Stage::AwaitsName | Stage::Outside => None,
            Stage::AwaitsSlot => {
                slots.waiting.retain(|waiting| *waiting != id);
                None
            }
            Stage::Runs => {
                slots.running -= 1;
                let next = slots.waiting.pop_front();
                slots.running += usize::from(next.is_some());
                next
            }
        };
        if slots.running == 0 && slots.waiting.is_empty() {
            self.slots.remove(place);
        }
        if let Some((_, stage)) = next.and_then(|next| self.calls.get_mut(&next)) {
            *stage = Stage::Runs;
        }
        next
    }

    /// Takes `id` out of a name's line; the call that holds the name from now on, if `id` held it.
    fn free_name(&mut self, name: &InstanceName, id: CallId) -> Option<CallId> {
        let line = self.names.get_mut(name)?;
        let held = line.front() == Some(&id);
        line.retain(|waiting| *waiting != id);
        let next = line.front().copied().filter(|_| held);
        if line.is_empty() {
            self.names.remove(name);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use egress_protocol::Uid;
    use proptest::prelude::*;

    use super::*;

    /// What really happened, kept apart from the queue.
    struct Watcher {
        queue: Queue,
        next: CallId,
        /// In order of arrival.
        present: Vec<(CallId, Ticket)>,
        running: Vec<CallId>,
        outside: Vec<CallId>,
        /// In the order in which they came to their place's line: arrivals with their name, and those who came back.
        returned: Vec<CallId>,
    }

    impl Watcher {
        fn new() -> Self {
            Self {
                queue: Queue::new(Limits { creates: 2, deletes: 1, gets: 2 }),
                next: 0,
                present: Vec::new(),
                running: Vec::new(),
                outside: Vec::new(),
                returned: Vec::new(),
            }
        }

        fn arrive(&mut self, ticket: Ticket) {
            let id = self.next;
            self.next += 1;
            self.present.push((id, ticket.clone()));
            if self.queue.arrive(id, ticket) {
                self.running.push(id);
            }
        }

        fn leave(&mut self, id: CallId) {
            self.present.retain(|(present, _)| *present != id);
            for list in [&mut self.running, &mut self.outside, &mut self.returned] {
                list.retain(|listed| *listed != id);
            }
            let started = self.queue.leave(id);
            self.runs(started);
        }

        fn runs(&mut self, started: impl IntoIterator<Item = CallId>) {
            for id in started {
                self.returned.retain(|returned| *returned != id);
                self.running.push(id);
            }
        }

        /// In turn: a running call goes outside, one that is outside comes back, one that came back and waits gives up.
        fn move_outside(&mut self, id: CallId) {
            if self.running.contains(&id) {
                self.running.retain(|running| *running != id);
                self.outside.push(id);
                let next = self.queue.go_outside(id);
                self.runs(next);
            } else if self.outside.contains(&id) {
                self.outside.retain(|outside| *outside != id);
                if self.queue.come_back(id) { self.running.push(id) } else { self.returned.push(id) }
            } else if self.returned.contains(&id) {
                self.returned.retain(|returned| *returned != id);
                self.outside.push(id);
                self.queue.stay_outside(id);
            }
        }

        fn ticket(&self, id: CallId) -> &Ticket {
            &self.present.iter().find(|(present, _)| *present == id).unwrap().1
        }

        fn check(&self) {
            for (id, _) in &self.present {
                let runs = self.running.contains(id);
                assert_eq!(self.queue.stage(*id) == Some(Stage::Runs), runs, "the queue says what it told");
            }
            for id in &self.outside {
                assert_eq!(self.queue.stage(*id), Some(Stage::Outside), "outside_a_call_holds_its_name_and_nothing_else");
            }
            let holding = self.running.iter().chain(&self.outside).chain(&self.returned);
            let mut names: Vec<_> = holding.filter_map(|id| self.ticket(*id).name.clone()).collect();
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all, "one_running_call_per_name");
            let in_place =
                |place: &(Location, Lane)| self.running.iter().filter(|id| self.ticket(**id).slot.as_ref() == Some(place)).count();
            for (id, ticket) in &self.present {
                let Some(place) = &ticket.slot else { continue };
                let limit = self.queue.limits.of(place.1);
                assert!(in_place(place) <= limit, "the_limit_of_a_place_holds");
                let holds_name = ticket.name.is_none()
                    || self.present.iter().find(|(_, other)| other.name == ticket.name).is_some_and(|(first, _)| first == id);
                if self.running.contains(id) || self.outside.contains(id) {
                    assert!(holds_name, "a_name_is_served_in_order_of_arrival");
                } else if holds_name {
                    assert_eq!(in_place(place), limit, "what_may_run_runs");
                }
            }
            let names: std::collections::HashSet<_> = self.present.iter().filter_map(|(_, ticket)| ticket.name.clone()).collect();
            assert_eq!(self.queue.names.len(), names.len(), "the_tables_hold_what_is_there");
            let places = self.present.iter().filter_map(|(_, ticket)| ticket.slot.clone()).collect::<std::collections::HashSet<_>>();
            assert!(self.queue.slots.len() <= places.len(), "the_tables_hold_what_is_there");
            assert_eq!(self.queue.calls.len(), self.present.len(), "the_tables_hold_what_is_there");
        }
    }

    fn ticket() -> impl Strategy<Value = Ticket> {
        let place = (0..3u8).prop_map(|n| Location::new(format!("host-{n}")));
        let name = (0..4u8).prop_map(|n| InstanceName::of(&Uid::new(format!("uid-{n}"))));
        (place, name, 0..4u8).prop_map(|(place, name, kind)| match kind {
            0 => Ticket { name: Some(name), slot: Some((place, Lane::Create)) },
            1 => Ticket { name: Some(name), slot: Some((place, Lane::Delete)) },
            2 => Ticket { name: None, slot: Some((place, Lane::Get)) },
            _ => Ticket { name: None, slot: None },
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// PC-66, PC-67: the invariants of the module's documentation, after every step, and an empty queue at the end.
        #[test]
        fn calls_are_ordered_bounded_and_never_stuck(
            steps in prop::collection::vec((ticket(), any::<Option<(bool, prop::sample::Index)>>()), 1..80)
        ) {
            let mut watcher = Watcher::new();
            for (ticket, step) in steps {
                match step {
                    Some((leaves, index)) if !watcher.present.is_empty() => {
                        let id = watcher.present[index.index(watcher.present.len())].0;
                        if leaves { watcher.leave(id) } else { watcher.move_outside(id) }
                    }
                    _ => watcher.arrive(ticket),
                }
                watcher.check();
            }
            while let Some(id) = watcher.outside.first().copied() {
                watcher.move_outside(id);
                watcher.check();
            }
            while let Some(id) = watcher.running.first().copied() {
                watcher.leave(id);
                watcher.check();
            }
            prop_assert!(watcher.present.is_empty(), "every call got its turn");
            prop_assert!(watcher.queue.names.is_empty() && watcher.queue.slots.is_empty() && watcher.queue.calls.is_empty());
        }
    }

    /// PC-100: who comes back waits behind those who were there.
    #[test]
    fn a_call_that_comes_back_goes_to_the_end_of_its_places_line() {
        let mut queue = Queue::new(Limits::with_creates(1));
        let create =
            |n: u64| Ticket { name: Some(InstanceName::of(&Uid::new(n.to_string()))), slot: Some((Location::new("host"), Lane::Create)) };
        assert!(queue.arrive(0, create(0)));
        assert!(!queue.arrive(1, create(1)) && !queue.arrive(2, create(2)));
        assert_eq!(queue.go_outside(0), Some(1), "the slot goes to the next");
        assert!(!queue.come_back(0));
        assert_eq!((queue.leave(1), queue.leave(2)), (vec![2], vec![0]));
    }

    /// O22, PC-67: a full place delays nobody elsewhere.
    #[test]
    fn a_full_place_does_not_delay_another() {
        let mut queue = Queue::new(Limits::with_creates(4));
        let create = |n: u64, place: &str| Ticket {
            name: Some(InstanceName::of(&Uid::new(n.to_string()))),
            slot: Some((Location::new(place), Lane::Create)),
        };
        let running = (0..100).filter(|n| queue.arrive(*n, create(*n, "full"))).count();
        assert_eq!((running, queue.waiting()), (4, 96));
        assert!((100..104).all(|n| queue.arrive(n, create(n, "idle"))));
    }
}

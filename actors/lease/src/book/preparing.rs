//! Which proxies a new selector names, found out in bites: a client with ever new selectors must not keep others waiting
//! (issue 10, 12; LS-12). The broker asks before it grants or explains, and gives one bite between two other messages.
//!
//! What must stay true: what is found is what the fleet is when the last bite ends, whatever happened between the bites.

use std::collections::VecDeque;

use egress_protocol::Timestamp;
use egress_protocol::lease::{Caller, GrantRequest, Selector};
use hashbrown::HashSet;

use super::choosing::DIRECT;
use super::fleet::matches;
use super::selectors::Wanted;
use super::{Book, Hash};

/// Comparisons in one bite. What takes no more is done at once.
pub(crate) const BITE_OF_A_MATCH: usize = 2048;
/// Selectors that are being looked at.
const MOST: usize = 256;

/// Whether a request can be decided now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// It can.
    Ready,
    /// When the work of this number has ended.
    Waits(u64),
    /// Too many new selectors wait already.
    Busy,
}

/// What a bite did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worked {
    /// The work that has ended with it.
    pub finished: Option<u64>,
    /// How many comparisons it took at most.
    pub compared: usize,
}

/// A selector that is being looked at.
#[derive(Debug, Clone)]
struct Matching {
    id: u64,
    selector: Selector,
    caller: Caller,
    candidates: Vec<u32>,
    at: usize,
    found: Vec<u32>,
    /// Proxies that came, went or changed meanwhile.
    touched: HashSet<u32, Hash>,
}

impl Matching {
    fn is_for(&self, selector: &Selector, caller: &Caller) -> bool {
        let (a, b) = (&self.selector, selector);
        self.caller.anonymous == caller.anonymous
            && self.caller.namespaces == caller.namespaces
            && (&a.attributes, &a.provider, &a.namespace, &a.name) == (&b.attributes, &b.provider, &b.namespace, &b.name)
    }
}

/// All that are, each in its turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preparing {
    queue: VecDeque<Matching>,
    last: u64,
}

impl Preparing {
    /// A proxy came, went, or has other attributes.
    pub(crate) fn touched(&mut self, slot: u32) {
        for matching in &mut self.queue {
            matching.touched.insert(slot);
        }
    }
}

/// What one candidate costs.
fn cost(selector: &Selector) -> usize {
    1 + selector.attributes.len()
}

impl Book {
    /// Before [`Book::grant`] and [`Book::explain_prepared`]: a request that would take long begins its work here.
    pub fn prepare(&mut self, request: &GrantRequest, caller: &Caller, now: Timestamp) -> Prepared {
        let selector = &request.selector;
        let any_target = Wanted { selector, caller, target: None };
        let known = self.selectors.find(&any_target, now).is_some()
            || (request.target.is_some() && self.selectors.find(&Wanted { target: request.target.as_ref(), ..any_target }, now).is_some());
        let (candidates, size) = self.fleet.candidates(selector, caller);
        if known || size <= DIRECT || size * cost(selector) <= BITE_OF_A_MATCH {
            return Prepared::Ready;
        }
        if let Some(matching) = self.preparing.queue.iter().find(|matching| matching.is_for(selector, caller)) {
            return Prepared::Waits(matching.id);
        }
        if self.preparing.queue.len() >= MOST {
            return Prepared::Busy;
        }
        let candidates = self.fleet.of(&candidates);
        self.preparing.last += 1;
        let id = self.preparing.last;
        let selector = Selector { exclude: Vec::new(), ..selector.clone() };
        let (found, touched) = (Vec::new(), HashSet::default());
        self.preparing.queue.push_back(Matching { id, selector, caller: caller.clone(), candidates, at: 0, found, touched });
        Prepared::Waits(id)
    }

    /// The work whose turn is next.
    pub fn next_work(&self) -> Option<u64> {
        self.preparing.queue.front().map(|matching| matching.id)
    }

    /// Nobody waits for the work whose turn is next.
    pub fn abandon_work(&mut self) {
        self.preparing.queue.pop_front();
    }

    /// One bite of the work whose turn is next.
    pub fn work(&mut self, now: Timestamp) -> Worked {
        let Some(mut matching) = self.preparing.queue.pop_front() else { return Worked { finished: None, compared: 0 } };
        let each = cost(&matching.selector);
        let end = (matching.at + (BITE_OF_A_MATCH / each).max(1)).min(matching.candidates.len());
        let compared = (end - matching.at) * each;
        for slot in &matching.candidates[matching.at..end] {
            if self.fleet.is_named(*slot, &matching.selector, &matching.caller) {
                matching.found.push(*slot);
            }
        }
        matching.at = end;
        if end < matching.candidates.len() {
            self.preparing.queue.push_back(matching);
            return Worked { finished: None, compared };
        }
        let Matching { id, selector, caller, mut found, touched, .. } = matching;
        found.retain(|slot| !touched.contains(slot));
        found.extend(touched.into_iter().filter(|slot| self.fleet.is_named(*slot, &selector, &caller)));
        let wanted = Wanted { selector: &selector, caller: &caller, target: None };
        if self.selectors.find(&wanted, now).is_none() {
            self.selectors.keep(&wanted, found, &mut self.fleet, now);
        }
        Worked { finished: Some(id), compared }
    }
}

impl super::fleet::Fleet {
    /// Whether the slot holds a published proxy that the selector names, for that caller.
    fn is_named(&self, slot: u32, selector: &Selector, caller: &Caller) -> bool {
        let published = self.get(slot).and_then(|cold| cold.published.as_ref());
        published.is_some_and(|proxy| matches(selector, caller.namespaces.as_deref(), proxy))
    }
}

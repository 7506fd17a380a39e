//! Finding the best proxy for a request (LS-3) without a look at the rest of the fleet (LS-12).
//!
//! A selector that names a handful is answered from the postings. Any other has an index; a target for which much of it
//! is blocked has an index of its own, made when passing over one by one takes too long.

use std::sync::Arc;

use egress_protocol::Timestamp;
use egress_protocol::lease::{Caller, GrantRequest};

use super::Book;
use super::fleet::matches;
use super::index::{Found, Look};
use super::selectors::{FleetOrder, Selectors, Wanted};

/// A selector that can name at most so many proxies needs no index.
pub(crate) const DIRECT: usize = 32;
/// A search passes over so many proxies blocked for the target before an index without them is made.
const PATIENCE: usize = 16;

impl Book {
    /// The best proxy for a request, without a look at the rest of the fleet (LS-12).
    pub(crate) fn choose(&mut self, request: &GrantRequest, caller: &Caller, now: Timestamp) -> Option<u32> {
        let blocked_for = request.target.as_ref().filter(|target| self.targets.blocked(target) > 0);
        let narrow = Wanted { selector: &request.selector, caller, target: blocked_for };
        if blocked_for.is_some()
            && let Some(index) = self.selectors.find(&narrow, now)
        {
            return self.search(index, request);
        }
        let wanted = Wanted { target: None, ..narrow };
        let index = match self.selectors.find(&wanted, now) {
            Some(index) => index,
            None => {
                let (candidates, size) = self.fleet.candidates(&request.selector, caller);
                let slots = self.fleet.of(&candidates);
                if size <= DIRECT {
                    return self.best_of(&slots, request, caller);
                }
                self.selectors.build(&wanted, slots, &mut self.fleet, now)
            }
        };
        match self.look_up(index, PATIENCE, request, blocked_for) {
            Found::Proxy(proxy) => Some(proxy),
            Found::Nothing => None,
            Found::GaveUp => {
                let slots = self.selectors.entry(index).index.members().to_vec();
                let narrow = self.selectors.build(&narrow, slots, &mut self.fleet, now);
                self.search(narrow, request)
            }
        }
    }

    fn search(&mut self, index: u32, request: &GrantRequest) -> Option<u32> {
        match self.look_up(index, usize::MAX, request, None) {
            Found::Proxy(proxy) => Some(proxy),
            Found::Nothing | Found::GaveUp => None,
        }
    }

    fn look_up(&mut self, index: u32, patience: usize, request: &GrantRequest, pass_over: Option<&Arc<str>>) -> Found {
        let excluded = self.excluded(request);
        let fleet = &self.fleet;
        let entry = self.selectors.entry(index);
        let order = FleetOrder { fleet, anonymous: entry.anonymous, target: entry.target.as_ref() };
        entry.index.first(Selectors::LIMIT, patience, &order, |proxy| {
            if excluded.binary_search(&proxy).is_ok() {
                Look::Skip
            } else if pass_over.is_some_and(|target| fleet.cold(proxy).blocked_for(target)) {
                Look::SkipCounted
            } else {
                Look::Take
            }
        })
    }

    /// The best of a handful.
    fn best_of(&self, slots: &[u32], request: &GrantRequest, caller: &Caller) -> Option<u32> {
        let fit = |slot: &u32| {
            let cold = self.fleet.cold(*slot);
            cold.published.as_ref().is_some_and(|proxy| matches(&request.selector, caller.namespaces.as_deref(), proxy))
                && self.fleet.hot(*slot).key(caller.anonymous) < Selectors::LIMIT
                && !request.target.as_ref().is_some_and(|target| cold.blocked_for(target))
                && !request.selector.exclude.contains(&cold.key)
        };
        let key = |slot: &u32| (self.fleet.hot(*slot).key(caller.anonymous), &self.fleet.cold(*slot).key);
        slots.iter().copied().filter(fit).min_by(|a, b| key(a).cmp(&key(b)))
    }
}

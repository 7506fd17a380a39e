//! What a grant would do, and the rule that keeps each other proxy out (LS-17). Changes nothing.

use std::sync::Arc;

use egress_protocol::Timestamp;
use egress_protocol::lease::{Caller, Candidate, ExcludedBy, Explain, GrantRequest};

use super::Book;
use super::fleet::matches;
use super::refusal::Class;

const MAX_CANDIDATES: usize = 100;

impl Book {
    /// Candidates with a rank come first, in their order; the others by name.
    pub fn explain(&self, request: &GrantRequest, caller: &Caller) -> Explain {
        self.explained(&self.matched(request, caller), request, caller)
    }

    /// As [`Book::explain`], from the kept order where there is one.
    pub fn explain_prepared(&mut self, request: &GrantRequest, caller: &Caller, now: Timestamp) -> Explain {
        let kept = self.kept_order(request, caller, now);
        let matched = self.named(kept, request, caller);
        self.explained(&matched, request, caller)
    }

    fn explained(&self, matched: &[u32], request: &GrantRequest, caller: &Caller) -> Explain {
        let target = request.target.as_ref();
        let (mut ranked, mut others): (Vec<_>, Vec<_>) = matched
            .iter()
            .map(|slot| (*slot, self.classify(*slot, target, caller.anonymous)))
            .partition(|(_, class)| *class == Class::Available);
        let excluded: Vec<u32> = request
            .selector
            .exclude
            .iter()
            .filter_map(|key| self.fleet.by_key(key))
            .filter(|slot| {
                let published = &self.fleet.cold(*slot).published;
                published.as_ref().is_some_and(|proxy| matches(&request.selector, caller.namespaces.as_deref(), proxy))
            })
            .collect();
        let total = ranked.len() + others.len() + excluded.len();
        let would_grant = !ranked.is_empty();
        let key = |slot: u32| (self.fleet.hot(slot).key(caller.anonymous), &self.fleet.cold(slot).key);
        keep_first(&mut ranked, |a, b| key(a.0).cmp(&key(b.0)));
        keep_first(&mut others, |a, b| self.fleet.cold(a.0).key.cmp(&self.fleet.cold(b.0).key));
        let mut candidates: Vec<Candidate> = Vec::with_capacity(total.min(MAX_CANDIDATES));
        for (rank, (slot, _)) in ranked.iter().enumerate() {
            candidates.push(Candidate { rank: Some(rank as u32 + 1), ..self.candidate(*slot) });
        }
        candidates.extend(others.iter().map(|(slot, class)| self.kept_out(*slot, *class, target)));
        candidates.extend(excluded.iter().map(|slot| Candidate { excluded_by: Some(ExcludedBy::Excluded), ..self.candidate(*slot) }));
        candidates.truncate(MAX_CANDIDATES);
        Explain { matched: matched.len() as u32, would_grant, candidates, truncated: total > MAX_CANDIDATES }
    }

    fn candidate(&self, slot: u32) -> Candidate {
        let (hot, cold) = (self.fleet.hot(slot), self.fleet.cold(slot));
        Candidate {
            namespace: Arc::clone(&cold.key.namespace),
            name: Arc::clone(&cold.key.name),
            rank: None,
            excluded_by: None,
            active_leases: hot.active,
            max_leases: hot.max,
            detail: None,
            until: None,
        }
    }

    fn kept_out(&self, slot: u32, class: Class, target: Option<&Arc<str>>) -> Candidate {
        let candidate = self.candidate(slot);
        let (rule, detail, until): (_, Option<String>, Option<Timestamp>) = match class {
            Class::Available => return candidate,
            Class::Drained(ExcludedBy::Cordoned) => {
                let cordons = &self.fleet.cold(slot).cordons;
                let cordon = cordons.general.as_ref().or_else(|| cordons.by_target.get(target?));
                (ExcludedBy::Cordoned, cordon.map(|c| c.reason.to_string()), cordon.and_then(|c| c.until))
            }
            Class::Drained(rule) => (rule, None, None),
            Class::Unhealthy => {
                let phase = self.fleet.cold(slot).published.as_ref().map(|proxy| format!("phase {}", proxy.phase.as_str()));
                (ExcludedBy::Unhealthy, phase, None)
            }
            Class::Cooling(cooling) => {
                let general = self.fleet.cold(slot).cooling.general == Some(cooling);
                let reason = cooling.reason.as_str();
                let words = match target {
                    Some(target) if !general => format!("{reason} for {target}"),
                    Some(_) | None => format!("{reason} in general"),
                };
                (ExcludedBy::CoolingDown, Some(words), Some(cooling.until))
            }
            Class::AtCapacity => (ExcludedBy::AtCapacity, None, self.leases.first_end(self.fleet.cold(slot).first_lease)),
        };
        Candidate { excluded_by: Some(rule), detail, until, ..candidate }
    }
}

/// Keeps the first 100 in order, without sorting the rest.
fn keep_first<T>(items: &mut Vec<T>, mut order: impl FnMut(&T, &T) -> std::cmp::Ordering) {
    if items.len() > MAX_CANDIDATES {
        items.select_nth_unstable_by(MAX_CANDIDATES, &mut order);
        items.truncate(MAX_CANDIDATES);
    }
    items.sort_unstable_by(order);
}

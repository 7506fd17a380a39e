//! Why no proxy qualifies, in numbers (LS-4): each matching proxy counts once, under the first rule that applies.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::{Caller, ExcludedBy, GrantRequest, LeaseError, ProblemCode, Refusal};
use egress_protocol::{ObjectKey, Timestamp};

use super::Book;
use super::fleet::{Cooling, matches};
use super::selectors::Wanted;

/// For so long the numbers of one selector and target are given again (LS-12).
const COUNT_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Nobody is told to come back later than so: a cordon may end in the year 9999, and be lifted today.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Counts kept for one selector.
const MAX_COUNTED: usize = 32;

/// Numbers and when something frees up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) matched: u32,
    pub(crate) available: u32,
    pub(crate) drained: u32,
    pub(crate) unhealthy: u32,
    pub(crate) cooling_down: u32,
    pub(crate) at_capacity: u32,
    pub(crate) soonest: Option<Timestamp>,
}

/// Numbers as they were a moment ago.
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    target: Option<Arc<str>>,
    exclude: Vec<ObjectKey>,
    at: Timestamp,
    numbers: Numbers,
}

/// What a published proxy is for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Available,
    /// Drained in the sense of LS-4, with the rule of LS-17.
    Drained(ExcludedBy),
    Unhealthy,
    Cooling(Cooling),
    AtCapacity,
}

impl Book {
    /// The first rule of LS-4 that applies to a published proxy.
    pub(crate) fn classify(&self, slot: u32, target: Option<&Arc<str>>, anonymous: bool) -> Class {
        let (hot, cold) = (self.fleet.hot(slot), self.fleet.cold(slot));
        let Some(proxy) = &cold.published else { return Class::Unhealthy };
        let cordoned = cold.cordons.general.is_some() || target.is_some_and(|t| cold.cordons.by_target.contains_key(t));
        let cooling = match (cold.cooling.general, target.and_then(|t| cold.cooling.by_target.get(t)).copied()) {
            (Some(a), Some(b)) => Some(if a.until >= b.until { a } else { b }),
            (one, None) | (None, one) => one,
        };
        match cooling {
            _ if hot.max == 0 => Class::Drained(ExcludedBy::Drained),
            _ if cordoned => Class::Drained(ExcludedBy::Cordoned),
            _ if proxy.draining => Class::Drained(ExcludedBy::Draining),
            _ if anonymous && hot.needs_credentials => Class::Drained(ExcludedBy::CredentialsWithheld),
            _ if !proxy.healthy => Class::Unhealthy,
            Some(cooling) => Class::Cooling(cooling),
            None if hot.active >= hot.max => Class::AtCapacity,
            None => Class::Available,
        }
    }

    /// The published proxies that a request names, those it excludes left out.
    pub(crate) fn matched(&self, request: &GrantRequest, caller: &Caller) -> Vec<u32> {
        let (candidates, _) = self.fleet.candidates(&request.selector, caller);
        let mut slots = self.fleet.of(&candidates);
        let excluded = self.excluded(request);
        slots.retain(|slot| {
            let cold = self.fleet.cold(*slot);
            cold.published.as_ref().is_some_and(|proxy| matches(&request.selector, caller.namespaces.as_deref(), proxy))
                && excluded.binary_search(slot).is_err()
        });
        slots
    }

    /// The proxies that a request does not want, in order.
    pub(super) fn excluded(&self, request: &GrantRequest) -> Vec<u32> {
        let mut excluded: Vec<u32> = request.selector.exclude.iter().filter_map(|key| self.fleet.by_key(key)).collect();
        excluded.sort_unstable();
        excluded
    }

    fn count(&mut self, slots: &[u32], request: &GrantRequest, caller: &Caller) -> Numbers {
        let mut numbers = Numbers { matched: slots.len() as u32, ..Numbers::default() };
        for slot in slots.iter().copied() {
            let frees_at = match self.classify(slot, request.target.as_ref(), caller.anonymous) {
                Class::Available => {
                    numbers.available += 1;
                    None
                }
                Class::Drained(rule) => {
                    numbers.drained += 1;
                    if rule == ExcludedBy::Cordoned { self.uncordoned_at(slot, request.target.as_ref()) } else { None }
                }
                Class::Unhealthy => {
                    numbers.unhealthy += 1;
                    None
                }
                Class::Cooling(cooling) => {
                    numbers.cooling_down += 1;
                    let full = self.fleet.hot(slot).active >= self.fleet.hot(slot).max;
                    let soonest = if full { self.leases.soonest(slot, &mut self.fleet) } else { None };
                    Some(soonest.map_or(cooling.until, |soonest| soonest.max(cooling.until)))
                }
                Class::AtCapacity => {
                    numbers.at_capacity += 1;
                    self.leases.soonest(slot, &mut self.fleet)
                }
            };
            numbers.soonest = match (numbers.soonest, frees_at) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, None) | (None, one) => one,
            };
        }
        numbers
    }

    /// When the last of the cordons that keep a proxy out ends by itself.
    fn uncordoned_at(&self, slot: u32, target: Option<&Arc<str>>) -> Option<Timestamp> {
        let cordons = &self.fleet.cold(slot).cordons;
        let holding = cordons.general.iter().chain(target.and_then(|target| cordons.by_target.get(target)));
        holding.map(|cordon| cordon.until).reduce(|a, b| Some(a?.max(b?))).flatten()
    }

    /// The order that is kept for a request's selector, whatever its target.
    pub(super) fn kept_order(&mut self, request: &GrantRequest, caller: &Caller, now: Timestamp) -> Option<u32> {
        self.selectors.find(&Wanted { selector: &request.selector, caller, target: None }, now)
    }

    /// As [`Book::matched`], from the kept order where there is one.
    pub(super) fn named(&mut self, kept: Option<u32>, request: &GrantRequest, caller: &Caller) -> Vec<u32> {
        let Some(index) = kept else { return self.matched(request, caller) };
        let mut slots = self.selectors.entry(index).index.members().to_vec();
        let excluded = self.excluded(request);
        if !excluded.is_empty() {
            slots.retain(|slot| excluded.binary_search(slot).is_err());
        }
        slots
    }

    /// Counts the matched set, or gives the numbers of a moment ago again.
    fn numbers(&mut self, request: &GrantRequest, caller: &Caller, now: Timestamp) -> Numbers {
        let kept = self.kept_order(request, caller, now);
        if let Some(index) = kept {
            let entry = self.selectors.entry(index);
            entry.refusals.retain(|counted| now.since(counted.at) < COUNT_AGAIN_AFTER);
            let same = |counted: &&Counted| counted.target == request.target && counted.exclude == request.selector.exclude;
            if let Some(counted) = entry.refusals.iter().find(same) {
                return counted.numbers;
            }
        }
        let slots = self.named(kept, request, caller);
        let numbers = self.count(&slots, request, caller);
        let Some(index) = kept else { return numbers };
        let entry = self.selectors.entry(index);
        if entry.refusals.len() < MAX_COUNTED {
            let exclude = request.selector.exclude.clone();
            entry.refusals.push(Counted { target: request.target.clone(), exclude, at: now, numbers });
        }
        numbers
    }

    /// The refusal of a request for which no proxy was found. `spread` is random: clients that were refused together
    /// come back apart.
    pub(crate) fn refuse(&mut self, request: &GrantRequest, caller: &Caller, spread: u32, now: Timestamp) -> LeaseError {
        if self.is_opening(request, caller, now) {
            return LeaseError::Opening;
        }
        let numbers = self.numbers(request, caller, now);
        let code = if numbers.matched == 0 {
            ProblemCode::NoMatch
        } else if numbers.drained + numbers.unhealthy == numbers.matched {
            ProblemCode::NoneHealthy
        } else {
            ProblemCode::NoCapacity
        };
        let retry_after = numbers.soonest.map(|at| {
            let wait = at.since(now).min(LONGEST_WAIT).as_millis() as u64;
            let spread_out = wait + ((u128::from(wait) * u128::from(spread)) >> 32) as u64;
            spread_out.div_ceil(1000).max(1)
        });
        LeaseError::Refused(Box::new(Refusal {
            code,
            target: request.target.clone(),
            matched: numbers.matched,
            available: numbers.available,
            drained: numbers.drained,
            unhealthy: numbers.unhealthy,
            cooling_down: numbers.cooling_down,
            at_capacity: numbers.at_capacity,
            retry_after_seconds: retry_after,
        }))
    }
}

//! The time after a start, or after another replica has become the leader: which proxies there are is not known yet, and
//! those that were healthy have to be seen running once more (HE-2). Whoever is refused then is told to try again, which a
//! 409 does not say.

use std::time::Duration;

use egress_protocol::lease::{Caller, GrantRequest};
use egress_protocol::{Timestamp, Uid};
use hashbrown::HashSet;

use super::refusal::Class;
use super::{Book, Hash};

/// After that it is as it is.
const OPENING: Duration = Duration::from_secs(10);

/// What is not known yet.
#[derive(Debug, Clone)]
pub(crate) struct Opening {
    until: Timestamp,
    /// Those that nobody published; `None`: nobody has said which there are.
    silent: Option<HashSet<Uid, Hash>>,
}

impl Book {
    /// The proxies are yet to be published.
    pub fn open(&mut self, now: Timestamp) {
        self.opening = Some(Opening { until: now + OPENING, silent: None });
    }

    /// Every proxy there is.
    pub fn expect(&mut self, live: Vec<Uid>) {
        let Some(opening) = &mut self.opening else { return };
        let published = |uid: &Uid| self.fleet.by_uid(uid).is_some_and(|slot| self.fleet.cold(slot).published.is_some());
        opening.silent = Some(live.into_iter().filter(|uid| !published(uid)).collect());
    }

    /// It was published, or is gone.
    pub(super) fn heard_of(&mut self, uid: &Uid) {
        if let Some(silent) = self.opening.as_mut().and_then(|opening| opening.silent.as_mut()) {
            silent.remove(uid);
        }
    }

    /// It is over in any case.
    pub(super) fn open_no_longer_than(&mut self, now: Timestamp) {
        if self.opening.as_ref().is_some_and(|opening| opening.until <= now) {
            self.opening = None;
        }
    }

    /// Whether a request that is refused now may be granted in a moment. Looked at afresh: the numbers of a refusal may be
    /// those of a moment ago.
    pub(super) fn is_opening(&mut self, request: &GrantRequest, caller: &Caller, now: Timestamp) -> bool {
        self.open_no_longer_than(now);
        let Some(opening) = &self.opening else { return false };
        opening.silent.as_ref().is_none_or(|silent| !silent.is_empty()) || self.awaits_a_match(request, caller, now)
    }

    /// Whether a proxy that the request names was healthy and has to be seen running once more.
    fn awaits_a_match(&mut self, request: &GrantRequest, caller: &Caller, now: Timestamp) -> bool {
        let kept = self.kept_order(request, caller, now);
        self.named(kept, request, caller).into_iter().any(|slot| {
            self.fleet.cold(slot).published.as_ref().is_some_and(|proxy| proxy.awaited)
                && self.classify(slot, request.target.as_ref(), caller.anonymous) == Class::Unhealthy
        })
    }
}

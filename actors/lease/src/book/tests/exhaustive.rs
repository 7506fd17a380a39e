//! A small world explored to its end, breadth first: two proxies, one target, every order of events. In every state the
//! invariants hold, and the broker may crash: what the journal kept makes the same book.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::{CordonRequest, LeaseError, LeaseFilter, ProxyAvailability, ReportResult};
use egress_protocol::{Timestamp, Uid};

use super::world::{START, any, for_target, key, lasting, proxy, saying};
use crate::book::{Book, BookSettings, Entropy, LeaseWalk};
use crate::journal::{JournalArgs, Kept};

const DEPTH: usize = 7;
const MAX_STATES: usize = 6_000;

#[derive(Debug, Clone, Copy)]
enum Event {
    Grant,
    GrantForTarget,
    ReleaseFirst,
    BlockFirst,
    FailLast,
    Sick,
    Well,
    Cordon,
    Withdraw,
    Replace,
    Wait,
}

const EVENTS: [Event; 11] = [
    Event::Grant,
    Event::GrantForTarget,
    Event::ReleaseFirst,
    Event::BlockFirst,
    Event::FailLast,
    Event::Sick,
    Event::Well,
    Event::Cordon,
    Event::Withdraw,
    Event::Replace,
    Event::Wait,
];

#[derive(Debug, Clone)]
struct State {
    book: Book,
    kept: Kept,
    now: Timestamp,
    ids: u128,
    fence: u64,
    published: Vec<ProxyAvailability>,
}

impl State {
    fn start() -> Self {
        let now = Timestamp::from_millis(START);
        let settings = BookSettings::default();
        let mut state = Self {
            book: Book::new(settings, now),
            kept: Kept::new(JournalArgs::from(&settings)),
            now,
            ids: 0,
            fence: 0,
            published: Vec::new(),
        };
        state.publish(proxy("a", 1));
        state.publish(proxy("b", 2));
        state
    }

    fn publish(&mut self, proxy: ProxyAvailability) {
        self.published.retain(|other| other.key != proxy.key);
        self.published.push(proxy.clone());
        self.book.publish(Arc::new(proxy), self.now);
    }

    fn running(&self) -> Vec<egress_protocol::lease::LeaseView> {
        let mut walk = LeaseWalk::new(LeaseFilter::default(), None, 100, caller());
        std::iter::repeat_with(|| self.book.walk_leases(&mut walk, self.now)).flatten().next().unwrap().0
    }

    fn a(&self) -> Option<ProxyAvailability> {
        self.published.iter().find(|proxy| proxy.key == key("a")).cloned()
    }

    /// One event; what a grant must fulfil is checked here.
    fn happen(&mut self, event: Event) {
        match event {
            Event::Grant | Event::GrantForTarget => {
                let mut request = if matches!(event, Event::Grant) { lasting(20) } else { for_target("t") };
                request.ttl = Some(Duration::from_secs(20));
                let items: Vec<_> = self.published.iter().filter_map(|proxy| self.book.proxy(&proxy.key, &caller())).collect();
                self.ids += 1;
                match self.book.grant(&request, &caller(), Entropy { id: self.ids.to_be_bytes(), spread: 0 }, self.now) {
                    Ok(view) => {
                        let item = items.iter().find(|item| item.name == view.record.proxy.proxy().name).unwrap();
                        assert!(item.healthy && item.active_leases < Some(item.max_leases), "only the fit, capacity: {item:?}");
                        let applies = |target: &Option<Arc<str>>| target.is_none() || *target == request.target;
                        assert!(!item.cooling_down.iter().flatten().any(|cooling| applies(&cooling.target)), "only the fit: {item:?}");
                        assert!(!item.cordons.iter().flatten().any(|cordon| applies(&cordon.target)), "only the fit: {item:?}");
                        assert!(view.record.fence > self.fence, "fence grows");
                        self.fence = view.record.fence;
                    }
                    Err(LeaseError::Refused(r)) => {
                        assert_eq!(r.available + r.drained + r.unhealthy + r.cooling_down + r.at_capacity, r.matched, "numbers add up");
                        assert_eq!(r.available, 0, "a refusal with something available");
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            Event::ReleaseFirst => {
                if let Some(view) = self.running().first() {
                    self.book.release(view.record.id, &caller(), self.now);
                }
            }
            Event::BlockFirst => {
                if let Some(view) = self.running().first() {
                    self.book.report(view.record.id, &saying(ReportResult::RateLimited), &caller(), self.now).unwrap();
                }
            }
            Event::FailLast => {
                if let Some(view) = self.running().last() {
                    self.book.report(view.record.id, &saying(ReportResult::Error), &caller(), self.now).unwrap();
                }
            }
            Event::Sick => {
                if let Some(a) = self.a() {
                    self.publish(ProxyAvailability { healthy: false, ..a });
                }
            }
            Event::Well => {
                if let Some(a) = self.a() {
                    self.publish(ProxyAvailability { healthy: true, ..a });
                }
            }
            Event::Cordon => {
                let request =
                    CordonRequest { target: Some("t".into()), until: Some(self.now + Duration::from_secs(15)), reason: "test".into() };
                // There may be no such proxy now.
                let _ = self.book.cordon(&key("b"), &request, &caller(), self.now);
            }
            Event::Withdraw => {
                if let Some(a) = self.a() {
                    self.published.retain(|other| other.key != a.key);
                    self.book.withdraw(&a.key, &a.uid, self.now);
                }
            }
            Event::Replace => {
                let uid = if self.a().is_some_and(|a| a.uid == Uid::new("uid-a")) { "uid-a2" } else { "uid-a" };
                self.publish(ProxyAvailability { uid: Uid::new(uid), ..proxy("a", 1) });
            }
            Event::Wait => {
                self.now = self.now + Duration::from_secs(10);
                while self.book.advance(self.now) {}
            }
        }
        for entry in self.book.take_effects().entries {
            self.kept.fold(entry);
        }
        self.book.check().unwrap();
    }

    /// What a caller can see, times counted from now, ids and fences by order.
    fn seen(&self, trust: bool) -> String {
        let mut proxies = self.published.clone();
        proxies.sort_by(|a, b| a.key.cmp(&b.key));
        let items: Vec<String> = proxies
            .iter()
            .map(|proxy| {
                let item = self.book.proxy(&proxy.key, &caller()).unwrap();
                let cooling: Vec<_> =
                    item.cooling_down.iter().flatten().map(|c| (c.target.clone(), c.until.since(self.now), c.reason.clone())).collect();
                let cordons: Vec<_> =
                    item.cordons.iter().flatten().map(|c| (c.target.clone(), c.until.map(|u| u.since(self.now)))).collect();
                format!("{} {} {} {:?} {cooling:?} {cordons:?}", proxy.uid, item.name, item.healthy, item.active_leases)
            })
            .collect();
        let leases: Vec<_> = self
            .running()
            .iter()
            .map(|view| (view.record.uid.clone(), view.record.target.clone(), view.expires_at.since(self.now), view.proxy_unhealthy))
            .collect();
        // Which comes first is part of what is seen; trust is not journalled.
        let order = if trust {
            let candidates = self.book.explain(&any(), &caller()).candidates;
            format!("{:?}", candidates.iter().map(|c| (Arc::clone(&c.name), c.rank)).collect::<Vec<_>>())
        } else {
            String::new()
        };
        format!("{items:?} {leases:?} {order}")
    }

    /// The broker crashes, starts from the journal, and everybody publishes again.
    fn crashed(&self) -> Self {
        let mut book = Book::restore(BookSettings::default(), self.kept.snapshot(), self.now);
        for proxy in &self.published {
            book.publish(Arc::new(proxy.clone()), self.now);
        }
        while book.advance(self.now) {}
        book.check().unwrap();
        Self { book, ..self.clone() }
    }
}

fn caller() -> egress_protocol::lease::Caller {
    egress_protocol::lease::Caller::admin("t")
}

#[test]
fn every_order_of_events_in_a_small_world_keeps_the_invariants_and_survives_a_crash() {
    let mut visited = HashSet::new();
    let mut level = vec![State::start()];
    let mut states = 0;
    for _ in 0..DEPTH {
        let mut next = Vec::new();
        for state in &level {
            for event in EVENTS {
                let mut state = state.clone();
                state.happen(event);
                let internal = format!("{} {:?}", state.seen(true), state.kept.snapshot().cooldowns.len());
                if states < MAX_STATES && visited.insert(internal) {
                    states += 1;
                    assert_eq!(state.crashed().seen(false), state.seen(false), "after {event:?}: a crash changes nothing that is seen");
                    next.push(state);
                }
            }
        }
        level = next;
    }
    assert!(states > 1000, "only {states} states");
}

//! A book, the journal it writes, and short names for what tests do with them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::{
    Caller, GrantRequest, LeaseError, LeaseId, LeaseView, ProxyAvailability, Refusal, ReportRequest, ReportResult, Selector,
    SelectorAttribute,
};
use egress_protocol::object::Credentials;
use egress_protocol::resource::{Mode, Phase};
use egress_protocol::{ObjectKey, Secret, Timestamp, Uid};

use crate::book::{Book, BookSettings, Entropy, Reported};
use crate::journal::{JournalArgs, Kept};

pub(crate) const START: i64 = 1_767_323_045_000;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) book: Book,
    pub(crate) kept: Kept,
    pub(crate) now: Timestamp,
    pub(crate) ids: u128,
    pub(crate) probes: Vec<String>,
    pub(crate) testimony: Vec<bool>,
    /// Whose actors were told that no lease runs.
    pub(crate) drained: Vec<(String, Timestamp)>,
    pub(crate) caller: Caller,
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::parse(name).unwrap_or_else(|| ObjectKey::new("default", name))
}

pub(crate) fn proxy(name: &str, max_leases: u32) -> ProxyAvailability {
    ProxyAvailability {
        key: key(name),
        uid: Uid::new(format!("uid-{name}")),
        mode: Mode::Managed,
        provider: Some("lab".into()),
        phase: Phase::Ready,
        healthy: true,
        awaited: false,
        unready: None,
        check_url_suspect: false,
        draining: false,
        drain_by: None,
        host: Some("192.0.2.7".into()),
        ip: None,
        egress_ip: None,
        port: 3128,
        attributes: Arc::new(BTreeMap::new()),
        max_leases,
        latency_millis: Some(12),
        checked_at: None,
        credentials: None,
    }
}

pub(crate) fn with_attributes(proxy: ProxyAvailability, pairs: &[(&str, &str)]) -> ProxyAvailability {
    let attributes = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ProxyAvailability { attributes: Arc::new(attributes), ..proxy }
}

pub(crate) fn credentials() -> Option<Arc<Credentials>> {
    Some(Arc::new(Credentials { username: Secret::new("u".to_owned()), password: Secret::new("p".to_owned()) }))
}

pub(crate) fn any() -> GrantRequest {
    GrantRequest::default()
}

pub(crate) fn for_target(target: &str) -> GrantRequest {
    GrantRequest { target: Some(target.into()), ..any() }
}

pub(crate) fn lasting(seconds: u64) -> GrantRequest {
    GrantRequest { ttl: Some(Duration::from_secs(seconds)), ..any() }
}

pub(crate) fn selecting(pairs: &[(&str, &[&str])]) -> GrantRequest {
    let attributes = pairs
        .iter()
        .map(|(key, values)| SelectorAttribute { key: (*key).into(), values: values.iter().map(|value| (*value).into()).collect() })
        .map(|mut attribute: SelectorAttribute| {
            attribute.values.sort();
            attribute
        })
        .collect();
    GrantRequest { selector: Selector { attributes, ..Selector::default() }, ..any() }
}

pub(crate) fn saying(result: ReportResult) -> ReportRequest {
    ReportRequest { result, target: None, cooldown: None, message: None }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(BookSettings::default())
    }

    pub(crate) fn with(settings: BookSettings) -> Self {
        let now = Timestamp::from_millis(START);
        Self {
            book: Book::new(settings, now),
            kept: Kept::new(JournalArgs::from(&settings)),
            now,
            ids: 0,
            probes: Vec::new(),
            testimony: Vec::new(),
            drained: Vec::new(),
            caller: Caller::admin("default"),
        }
    }

    /// With these proxies.
    pub(crate) fn of(proxies: &[ProxyAvailability]) -> Self {
        let mut world = Self::new();
        for proxy in proxies {
            world.publish(proxy.clone());
        }
        world
    }

    /// After every call: the invariants hold, and the journal has what happened.
    fn settle(&mut self) {
        let effects = self.book.take_effects();
        for entry in effects.entries {
            self.kept.fold(entry);
        }
        self.testimony.extend(effects.testimony.iter().map(|said| said.failed));
        self.probes.extend(effects.probes.iter().map(ToString::to_string));
        self.drained.extend(effects.drained.iter().map(|(key, by)| (key.to_string(), *by)));
        if let Err(broken) = self.book.check() {
            panic!("{broken}");
        }
    }

    pub(crate) fn publish(&mut self, proxy: ProxyAvailability) {
        self.book.publish(Arc::new(proxy), self.now);
        self.settle();
    }

    pub(crate) fn withdraw(&mut self, name: &str) {
        self.book.withdraw(&key(name), &Uid::new(format!("uid-{name}")), self.now);
        self.settle();
    }

    pub(crate) fn try_grant(&mut self, request: &GrantRequest) -> Result<LeaseView, LeaseError> {
        let caller = self.caller.clone();
        self.try_grant_to(request, &caller)
    }

    pub(crate) fn try_grant_to(&mut self, request: &GrantRequest, caller: &Caller) -> Result<LeaseView, LeaseError> {
        self.ids += 1;
        let granted = self.book.grant(request, caller, Entropy { id: self.ids.to_be_bytes(), spread: 0 }, self.now);
        self.settle();
        granted
    }

    pub(crate) fn grant(&mut self, request: &GrantRequest) -> LeaseView {
        self.try_grant(request).unwrap_or_else(|error| panic!("refused: {:?}", error.problem().detail))
    }

    pub(crate) fn refused(&mut self, request: &GrantRequest) -> Refusal {
        match self.try_grant(request) {
            Err(LeaseError::Refused(refusal)) => {
                let sum = refusal.available + refusal.drained + refusal.unhealthy + refusal.cooling_down + refusal.at_capacity;
                assert_eq!(sum, refusal.matched, "LS-4: the numbers add up");
                *refusal
            }
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(crate) fn report(&mut self, id: LeaseId, request: &ReportRequest) -> Reported {
        let caller = self.caller.clone();
        let reported = self.book.report(id, request, &caller, self.now).unwrap();
        self.settle();
        reported
    }

    pub(crate) fn release(&mut self, id: LeaseId) {
        let caller = self.caller.clone();
        self.book.release(id, &caller, self.now);
        self.settle();
    }

    /// Time passes, and what is due happens.
    pub(crate) fn pass(&mut self, seconds: f64) {
        self.now = self.now + Duration::from_secs_f64(seconds);
        while self.book.advance(self.now) {}
        self.settle();
    }

    /// The broker crashed and starts from the journal; nobody has published yet.
    pub(crate) fn crash(&mut self) {
        self.book = Book::restore(BookSettings::default(), self.kept.snapshot(), self.now);
        self.settle();
    }

    pub(crate) fn name(view: &LeaseView) -> &str {
        &view.record.proxy.proxy().name
    }

    pub(crate) fn names(&mut self, request: &GrantRequest, times: usize) -> Vec<String> {
        (0..times).map(|_| Self::name(&self.grant(request)).to_owned()).collect()
    }
}

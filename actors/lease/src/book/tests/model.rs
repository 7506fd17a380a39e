//! The book against a naive one that scans everything, over random steps (LS-3, LS-4, LS-8, LS-12). After each step the
//! two agree on the choice or on the numbers of the refusal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::{
    Caller, CordonRequest, GrantRequest, LeaseError, LeaseId, ProxyAvailability, ReportRequest, ReportResult, Selector,
};
use egress_protocol::{ObjectKey, Timestamp, Uid};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::world::{START, any, key, proxy, saying, selecting, with_attributes};
use crate::book::{Book, BookSettings, Entropy};

const PROXIES: u32 = 120;
const STEPS: usize = 50_000;

#[derive(Debug)]
struct Plain {
    proxy: ProxyAvailability,
    last_fence: u64,
    distrusted: bool,
    strikes: Vec<LeaseId>,
    cooling: BTreeMap<Option<Arc<str>>, Timestamp>,
    cordons: BTreeMap<Option<Arc<str>>, Option<Timestamp>>,
}

#[derive(Debug)]
struct PlainLease {
    uid: Uid,
    number: usize,
    expires_at: Timestamp,
    target: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Naive {
    proxies: BTreeMap<ObjectKey, Plain>,
    leases: BTreeMap<LeaseId, PlainLease>,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Granted(ObjectKey),
    Refused { matched: u32, drained: u32, unhealthy: u32, cooling_down: u32, at_capacity: u32 },
}

impl Naive {
    /// Running leases by the proxy's number.
    fn active(&self) -> [u32; PROXIES as usize] {
        let mut active = [0; PROXIES as usize];
        for lease in self.leases.values() {
            active[lease.number] += 1;
        }
        active
    }

    fn pass(&mut self, now: Timestamp) {
        self.leases.retain(|_, lease| lease.expires_at > now);
        for plain in self.proxies.values_mut() {
            plain.cooling.retain(|_, until| *until > now);
            plain.cordons.retain(|_, until| until.is_none_or(|until| until > now));
        }
    }

    fn outcome(&self, request: &GrantRequest, caller: &Caller) -> Outcome {
        let s = &request.selector;
        let running = self.active();
        let (mut matched, mut drained, mut unhealthy, mut cooling_down, mut at_capacity) = (0, 0, 0, 0, 0);
        let mut best: Option<((bool, u64, u64), &ObjectKey)> = None;
        for (key, plain) in &self.proxies {
            let p = &plain.proxy;
            let fits = s.namespace.as_ref().is_none_or(|n| **n == *key.namespace)
                && s.provider.as_ref().is_none_or(|n| p.provider.as_deref() == Some(&**n))
                && s.attributes.iter().all(|a| p.attributes.get(&*a.key).is_some_and(|v| a.values.iter().any(|w| **w == **v)))
                && caller.sees_namespace(&key.namespace)
                && !s.exclude.contains(key);
            if !fits {
                continue;
            }
            matched += 1;
            let has =
                |present: &dyn Fn(&Option<Arc<str>>) -> bool| present(&None) || (request.target.is_some() && present(&request.target));
            let active = running[number(key)];
            if p.max_leases == 0 || p.draining || has(&|t| plain.cordons.contains_key(t)) || (caller.anonymous && p.credentials.is_some()) {
                drained += 1;
            } else if !p.healthy {
                unhealthy += 1;
            } else if has(&|t| plain.cooling.contains_key(t)) {
                cooling_down += 1;
            } else if active >= p.max_leases {
                at_capacity += 1;
            } else {
                let load = u64::from(active) * 1_000_000_000 / u64::from(p.max_leases);
                let rank = ((plain.distrusted, load, plain.last_fence), key);
                if best.is_none_or(|best| rank < best) {
                    best = Some(rank);
                }
            }
        }
        match best {
            Some((_, key)) => Outcome::Granted(key.clone()),
            None => Outcome::Refused { matched, drained, unhealthy, cooling_down, at_capacity },
        }
    }
}

fn number(key: &ObjectKey) -> usize {
    key.name[1..].parse().unwrap()
}

fn random_proxy(n: u32, random: &mut StdRng) -> ProxyAvailability {
    let namespace = if n.is_multiple_of(3) { "shop" } else { "default" };
    let geo = *["de", "fr", "es"].choose(random).unwrap();
    let tier = *["x", "y"].choose(random).unwrap();
    let base = proxy(&format!("{namespace}/p{n:03}"), random.random_range(0..4));
    let credentials = if n.is_multiple_of(17) { super::world::credentials() } else { None };
    ProxyAvailability { credentials, ..with_attributes(base, &[("geo", geo), ("tier", tier)]) }
}

fn random_request(random: &mut StdRng) -> GrantRequest {
    let mut request = match random.random_range(0..6) {
        0 | 1 => any(),
        2 => selecting(&[("geo", &["de", "fr"])]),
        3 => selecting(&[("geo", &["de"]), ("tier", &["x"])]),
        4 => selecting(&[("tier", &["y"])]),
        _ => GrantRequest { selector: Selector { namespace: Some("shop".into()), ..Selector::default() }, ..any() },
    };
    if random.random_bool(0.6) {
        request.target = Some((*["a.example", "b.example"].choose(random).unwrap()).into());
    }
    if random.random_bool(0.1) {
        let names = (0..random.random_range(1..5)).map(|_| random.random_range(0..PROXIES));
        request.selector.exclude =
            names.map(|n| key(&format!("{}/p{n:03}", if n.is_multiple_of(3) { "shop" } else { "default" }))).collect();
    }
    request.ttl = Some(Duration::from_secs(random.random_range(1..120)));
    request
}

fn compare(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut now = Timestamp::from_millis(START);
    let mut book = Book::new(BookSettings::default(), now);
    let mut naive = Naive::default();
    let (mut grants, mut refusals, mut last_fence) = (0, 0, 0);
    let callers = [Caller::admin("t"), Caller::anonymous(), Caller::named("t", Some(vec!["shop".into()].into()))];
    for step in 0..STEPS {
        match random.random_range(0..100) {
            0..45 => {
                let request = random_request(&mut random);
                let caller = &callers[if random.random_bool(0.8) { 0 } else { random.random_range(1..3) }];
                // The numbers of a refusal may be 100 ms old: ask when they are not.
                now = now + Duration::from_millis(100);
                while book.advance(now) {}
                naive.pass(now);
                let expected = naive.outcome(&request, caller);
                let mut id = [0; 16];
                random.fill(&mut id);
                match book.grant(&request, caller, Entropy { id, spread: 0 }, now) {
                    Ok(view) => {
                        let proxy = view.record.proxy.proxy();
                        let granted = ObjectKey::new(Arc::clone(&proxy.namespace), Arc::clone(&proxy.name));
                        assert_eq!(Outcome::Granted(granted.clone()), expected, "step {step}");
                        assert!(view.record.fence > last_fence, "fence grows");
                        last_fence = view.record.fence;
                        let plain = naive.proxies.get_mut(&granted).unwrap();
                        plain.last_fence = last_fence;
                        let uid = plain.proxy.uid.clone();
                        let max = plain.proxy.max_leases;
                        let target = view.record.target.clone();
                        naive
                            .leases
                            .insert(view.record.id, PlainLease { uid, number: number(&granted), expires_at: view.expires_at, target });
                        assert!(naive.active()[number(&granted)] <= max, "capacity");
                        grants += 1;
                    }
                    Err(LeaseError::Refused(r)) => {
                        let (matched, drained, unhealthy) = (r.matched, r.drained, r.unhealthy);
                        let (cooling_down, at_capacity) = (r.cooling_down, r.at_capacity);
                        assert_eq!(Outcome::Refused { matched, drained, unhealthy, cooling_down, at_capacity }, expected, "step {step}");
                        assert_eq!(r.available + drained + unhealthy + cooling_down + at_capacity, matched, "numbers add up");
                        refusals += 1;
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            45..60 => {
                let Some(id) = naive.leases.keys().nth(random.random_range(0..naive.leases.len().max(1))).copied() else { continue };
                book.release(id, &callers[0], now);
                naive.leases.remove(&id);
            }
            60..70 => now = now + Duration::from_millis(random.random_range(1..200) * 20),
            70..85 => {
                let n = random.random_range(0..PROXIES);
                let mut next = random_proxy(n, &mut random);
                let known = naive.proxies.get(&next.key).map(|plain| plain.proxy.clone());
                if let Some(known) = &known
                    && random.random_bool(0.7)
                {
                    next.attributes = Arc::clone(&known.attributes);
                    next.max_leases = known.max_leases;
                }
                next.healthy = random.random_bool(0.85);
                next.draining = random.random_bool(0.05);
                next.uid = match known {
                    Some(known) if random.random_bool(0.95) => known.uid,
                    Some(_) | None => Uid::new(format!("uid-{step}")),
                };
                book.publish(Arc::new(next.clone()), now);
                match naive.proxies.get_mut(&next.key) {
                    Some(plain) if plain.proxy.uid == next.uid => {
                        if next.healthy && !plain.proxy.healthy {
                            plain.distrusted = false;
                            plain.strikes.clear();
                        }
                        plain.proxy = next;
                    }
                    other => {
                        if let Some(old) = other {
                            let uid = old.proxy.uid.clone();
                            naive.leases.retain(|_, lease| lease.uid != uid);
                        }
                        let (cooling, cordons) = (BTreeMap::new(), BTreeMap::new());
                        let plain = Plain { proxy: next.clone(), last_fence: 0, distrusted: false, strikes: Vec::new(), cooling, cordons };
                        naive.proxies.insert(next.key.clone(), plain);
                    }
                }
            }
            85..87 => {
                let Some(key) = naive.proxies.keys().nth(random.random_range(0..naive.proxies.len().max(1))).cloned() else { continue };
                let plain = naive.proxies.remove(&key).unwrap();
                naive.leases.retain(|_, lease| lease.uid != plain.proxy.uid);
                book.withdraw(&key, &plain.proxy.uid, now);
            }
            87..95 => {
                while book.advance(now) {}
                naive.pass(now);
                let Some((id, lease)) = naive.leases.iter().nth(random.random_range(0..naive.leases.len().max(1))) else { continue };
                let (id, target) = (*id, lease.target.clone());
                let plain = naive.proxies.values_mut().find(|plain| plain.proxy.uid == lease.uid).unwrap();
                // Failures without a target, so that no target becomes suspect.
                let fails = target.is_none() && random.random_bool(0.7);
                let result = if fails { ReportResult::Error } else { ReportResult::Blocked };
                let explicit = Some(Duration::from_secs(random.random_range(0..60))).filter(|_| !fails && random.random_bool(0.8));
                let request = ReportRequest { cooldown: explicit, ..saying(result) };
                let answer = book.report(id, &request, &callers[0], now).unwrap().answer;
                assert!(answer.counted);
                if fails {
                    if !plain.strikes.contains(&id) {
                        plain.strikes.push(id);
                    }
                    if plain.strikes.len() == 3 {
                        plain.strikes.clear();
                        plain.distrusted = true;
                    }
                } else {
                    plain.strikes.clear();
                }
                if let Some(cooldown) = answer.cooldown {
                    assert!(cooldown.until >= plain.cooling.get(&target).copied().unwrap_or(now), "the later end wins");
                    plain.cooling.insert(target, cooldown.until);
                }
            }
            95..98 => {
                let Some(key) = naive.proxies.keys().nth(random.random_range(0..naive.proxies.len().max(1))).cloned() else { continue };
                let target: Option<Arc<str>> = Some("a.example".into()).filter(|_| random.random_bool(0.5));
                let until = Some(now + Duration::from_secs(random.random_range(1..100))).filter(|_| random.random_bool(0.7));
                let request = CordonRequest { target: target.clone(), until, reason: "test".into() };
                book.cordon(&key, &request, &callers[0], now).unwrap();
                naive.proxies.get_mut(&key).unwrap().cordons.insert(target, until);
            }
            _ => {
                let Some(key) = naive.proxies.keys().nth(random.random_range(0..naive.proxies.len().max(1))).cloned() else { continue };
                let plain = naive.proxies.get_mut(&key).unwrap();
                if random.random_bool(0.5) {
                    plain.cordons.clear();
                    for target in [None, Some("a.example".into())] {
                        book.uncordon(&key, target.as_ref(), &callers[0]).unwrap();
                    }
                } else {
                    plain.distrusted = false;
                    plain.strikes.clear();
                    book.probe_passed(&key, &plain.proxy.uid);
                }
            }
        }
        if step % 1999 == 0 {
            book.check().unwrap();
        }
    }
    assert!(grants > STEPS / 10 && refusals > STEPS / 200, "{grants} grants, {refusals} refusals: not much of a test");
}

#[test]
fn the_book_chooses_as_a_naive_scan_does_over_50_000_random_steps() {
    compare(1);
}

#[test]
fn the_book_chooses_as_a_naive_scan_does_over_another_50_000_random_steps() {
    compare(20_261_130);
}

//! The book alone: grant and release pairs per CPU second, half full (Linux only), released in random order, with short leases that are
//! expired on the way. `cargo run --release -p egress-lease --example book`
//!
//! Prints a table for 100, 10,000 and 100,000 proxies with 1 and 50 selectors, without and with 90 % of the proxies
//! cooling for the target.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_lease::{Book, BookSettings, Entropy};
use egress_protocol::lease::{Caller, GrantRequest, LeaseId, ProxyAvailability, ReportRequest, ReportResult, Selector, SelectorAttribute};
use egress_protocol::resource::{Mode, Phase};
use egress_protocol::{ObjectKey, Timestamp, Uid};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const PAIRS: usize = 200_000;

fn proxy(n: usize, random: &mut SmallRng) -> ProxyAvailability {
    let mut attributes = BTreeMap::new();
    for (key, kinds) in [("geo", 10), ("tier", 5), ("class", 10), ("asn", 20), ("os", 3)] {
        attributes.insert(key.to_owned(), format!("{key}{}", random.random_range(0..kinds)));
    }
    ProxyAvailability {
        key: ObjectKey::new("default", format!("px-{n:06}")),
        uid: Uid::new(format!("uid-{n}")),
        mode: Mode::Managed,
        provider: Some("lab".into()),
        phase: Phase::Ready,
        healthy: true,
        draining: false,
        host: Some("192.0.2.7".into()),
        ip: Some("192.0.2.7".into()),
        egress_ip: None,
        port: 3128,
        attributes: Arc::new(attributes),
        max_leases: random.random_range(1..40),
        latency_millis: Some(12),
        checked_at: None,
        credentials: None,
    }
}

fn requests(selectors: usize, target: Option<&str>) -> Vec<GrantRequest> {
    let attribute = |key: &str, value: String| SelectorAttribute { key: key.into(), values: [value.into_boxed_str()].into() };
    (0..selectors)
        .map(|n| {
            let attributes = if selectors == 1 {
                Vec::new()
            } else {
                vec![attribute("geo", format!("geo{}", n % 10)), attribute("tier", format!("tier{}", n / 10))]
            };
            GrantRequest {
                selector: Selector { attributes, ..Selector::default() },
                target: target.map(Into::into),
                ttl: Some(Duration::from_secs(60)),
                owner: None,
            }
        })
        .collect()
}

struct Bench {
    book: Book,
    now: Timestamp,
    caller: Caller,
    random: SmallRng,
}

impl Bench {
    fn grant(&mut self, request: &GrantRequest) -> Option<LeaseId> {
        let entropy = Entropy { id: self.random.random(), spread: self.random.random() };
        let granted = self.book.grant(request, &self.caller, entropy, self.now).ok().map(|view| view.record.id);
        self.book.take_effects();
        granted
    }
}

/// Seconds this thread was on a CPU: a busy machine changes little.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Pairs per CPU second, and how many of the grants were refused.
fn run(proxies: usize, selectors: usize, cooling: bool) -> (f64, usize) {
    let mut random = SmallRng::seed_from_u64(7);
    let now = Timestamp::from_millis(1_767_323_045_000);
    let mut book = Book::new(BookSettings { remember_at_most: 100_000, ..BookSettings::default() }, now);
    let mut capacity = 0;
    for n in 0..proxies {
        let proxy = proxy(n, &mut random);
        capacity += proxy.max_leases as usize;
        book.publish(Arc::new(proxy), now);
    }
    let requests = requests(selectors, cooling.then_some("shop.example"));
    let mut bench = Bench { book, now, caller: Caller::admin("bench"), random };
    if cooling {
        // 9 of 10 cool for the target: each is leased by name and reported.
        for n in (0..proxies).filter(|n| n % 10 != 0) {
            let mut request = requests[0].clone();
            request.selector = Selector { name: Some(format!("px-{n:06}").into()), ..Selector::default() };
            if let Some(id) = bench.grant(&request) {
                let cooldown = Some(Duration::from_secs(24 * 3600));
                let report = ReportRequest { result: ReportResult::Blocked, target: None, cooldown, message: None };
                let _counted = bench.book.report(id, &report, &bench.caller, bench.now);
                bench.book.release(id, &bench.caller, bench.now);
            }
        }
    }
    let wanted = (capacity / if cooling { 20 } else { 2 }).min(200_000);
    let mut held: Vec<LeaseId> = Vec::with_capacity(wanted);
    for n in 0..wanted {
        held.extend(bench.grant(&requests[n % selectors]));
    }
    bench.now = bench.now + Duration::from_secs(1);
    let start = cpu_seconds();
    let mut refused = 0;
    for n in 0..PAIRS {
        if n % 100 == 0 {
            bench.now = bench.now + Duration::from_millis(1);
            bench.book.advance(bench.now);
        }
        if !held.is_empty() {
            let at = bench.random.random_range(0..held.len());
            bench.book.release(held.swap_remove(at), &bench.caller, bench.now);
        }
        match bench.grant(&requests[n % selectors]) {
            Some(id) => held.push(id),
            None => refused += 1,
        }
    }
    (PAIRS as f64 / (cpu_seconds() - start), refused)
}

#[expect(clippy::print_stdout, reason = "a table for a person")]
fn main() {
    println!("{:>8} {:>10} {:>8} {:>12} {:>8} {:>8}", "proxies", "selectors", "cooling", "pairs/s", "ns/pair", "refused");
    for cooling in [false, true] {
        for selectors in [1, 50] {
            for proxies in [100, 10_000, 100_000] {
                let (rate, refused) = run(proxies, selectors, cooling);
                let share = if cooling { "90 %" } else { "0 %" };
                println!("{proxies:>8} {selectors:>10} {share:>8} {rate:>12.0} {:>8.0} {refused:>8}", 1e9 / rate);
            }
        }
    }
}

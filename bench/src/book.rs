//! The book alone: grant and release pairs per second of a CPU, half full, released in random order, with time passing.

use std::sync::Arc;
use std::time::Duration;

use egress_lease::{Book, BookSettings, Entropy};
use egress_protocol::Timestamp;
use egress_protocol::lease::{Caller, GrantRequest, LeaseId, parse_grant};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::fleet::{Shape, Wish, blocked, by_name};
use crate::process::own_cpu;
use crate::rounds::{self, Slice};
use crate::table::{Table, thousands};
use crate::{Outcome, progress};

/// Of one slice.
const PAIRS: u32 = 50_000;
/// Until a book remembers as many ended leases as it ever does.
const WARM_UP: u32 = 500_000;
const SIZES: [u32; 3] = [100, 10_000, 100_000];

struct Bench {
    book: Book,
    now: Timestamp,
    caller: Caller,
    random: SmallRng,
    requests: Arc<[GrantRequest]>,
    held: Vec<LeaseId>,
    asked: usize,
    refused: u32,
}

impl Bench {
    fn new(shape: Shape, wish: Wish) -> Outcome<Self> {
        let now = Timestamp::from_millis(1_767_323_045_000);
        let mut book = Book::new(BookSettings::default(), now);
        for proxy in shape.fleet() {
            book.publish(proxy, now);
        }
        let requests = wish.bodies("60s").iter().map(|body| parse(body)).collect::<Outcome<_>>()?;
        let (caller, random) = (Caller::admin("bench"), SmallRng::seed_from_u64(7));
        let mut bench = Self { book, now, caller, random, requests, held: Vec::new(), asked: 0, refused: 0 };
        for n in (0..shape.proxies).filter(|n| shape.cools(*n)) {
            let Some(id) = bench.grant(&parse(&by_name(n))?) else { return Err("a proxy could not be leased by name".into()) };
            let reported = bench.book.report(id, &blocked(), &bench.caller, bench.now).map_err(|error| format!("{error:?}"))?;
            if !reported.answer.counted {
                return Err("a report was not counted".into());
            }
            bench.book.release(id, &bench.caller, bench.now);
        }
        // A tenth of the places is what is left while nine proxies in ten cool.
        let places = if shape.cooling { shape.places / 10 } else { shape.places };
        for _ in 0..places / 2 {
            bench.ask();
        }
        bench.pairs(WARM_UP);
        bench.refused = 0;
        Ok(bench)
    }

    fn grant(&mut self, request: &GrantRequest) -> Option<LeaseId> {
        let entropy = Entropy { id: self.random.random(), spread: self.random.random() };
        let granted = self.book.grant(request, &self.caller, entropy, self.now).ok().map(|view| view.record.id);
        self.book.take_effects();
        granted
    }

    fn ask(&mut self) {
        let requests = Arc::clone(&self.requests);
        match self.grant(&requests[self.asked % requests.len()]) {
            Some(id) => self.held.push(id),
            None => self.refused += 1,
        }
        self.asked += 1;
    }

    fn pairs(&mut self, pairs: u32) {
        for n in 0..pairs {
            if n % 100 == 0 {
                self.now = self.now + Duration::from_millis(1);
                self.book.advance(self.now);
            }
            if !self.held.is_empty() {
                let at = self.random.random_range(0..self.held.len());
                self.book.release(self.held.swap_remove(at), &self.caller, self.now);
            }
            self.ask();
        }
    }
}

fn parse(body: &str) -> Outcome<GrantRequest> {
    parse_grant(body.as_bytes()).map_err(|faults| format!("{faults:?}").into())
}

pub(crate) fn run(rounds: u32) -> Outcome<Vec<Table>> {
    let mut table = Table::new(
        "book",
        format!("The book alone, grant + release pairs per CPU-second, one thread: median of {rounds} rounds [quartiles]"),
        &["requests", "100 proxies", "10,000", "100,000", "cost, 10,000 / 100", "cost, 100,000 / 10,000"],
    );
    for (what, wish, cooling) in
        [("1 selector", Wish::Any, false), ("50 selectors", Wish::Fifty, false), ("10 selectors, 90 % cool", Wish::Uncooled, true)]
    {
        progress(&format!("the book alone, {what}"));
        let shape = |proxies: u32| Shape { proxies, places: (proxies * 20).clamp(4000, 400_000), cooling };
        let mut benches = SIZES.map(|proxies| Bench::new(shape(proxies), wish)).into_iter().collect::<Outcome<Vec<_>>>()?;
        let slices = rounds::run(rounds, SIZES.len(), |n| {
            let before = own_cpu()?;
            benches[n].pairs(PAIRS);
            Ok(Slice { done: f64::from(PAIRS), cpu: own_cpu()? - before })
        })?;
        let rate = |n: usize| thousands(rounds::rate(&slices, n).median);
        let growth = |from: usize, to: usize| rounds::ratio(&slices, from, to).ratio();
        table.row([what.to_owned(), rate(0), rate(1), rate(2), growth(0, 1), growth(1, 2)]);
        let refused: u32 = benches.iter().map(|bench| bench.refused).sum();
        if refused > 0 {
            table.note(format!("**{what}: {refused} of the grants were refused.**"));
        }
    }
    Ok(vec![table])
}

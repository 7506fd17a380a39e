//! Prober and judge as actors, black-box through their messages (HE-2, HE-4, HE-6, HE-9, LS-7), on a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use egress_prober::{ProbeSettings, judge_actor, spec};
use egress_protocol::judge::Suspicion;
use egress_protocol::message::Never;
use egress_protocol::metrics::{Host, Metrics, ProviderLabel, ProxyLabel};
use egress_protocol::prober::{self, ProbeReport, ProbeTarget, ProberMessage};
use egress_protocol::proxy::ProxyMessage;
use egress_protocol::{Clock, ObjectKey, Timestamp, Uid};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Root, System};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};

use crate::zoo::{Peer, head, serve, settings, target};

const START: Timestamp = Timestamp::from_millis(1_767_323_045_000);
const PASS: u8 = 0;
const TARGET_FAILS: u8 = 1;
const PROXY_FAILS: u8 = 2;
const SILENT: u8 = 3;

#[derive(Debug)]
enum Told {
    Probed(ProbeReport),
    CheckUrl(Suspicion),
    EgressShared(ObjectKey),
}

type Tells = UnboundedSender<(ObjectKey, Told)>;

/// Stands for a proxy's actor: starts the prober, passes on what it is told, ends the prober on `ProbeNow`.
struct FakeProxy {
    key: ObjectKey,
    tells: Tells,
}

impl Actor for FakeProxy {
    type Message = ProxyMessage;
    type Internal = Never;
    type Args = (Vec<Arc<ProbeTarget>>, Arc<ProbeSettings>, Tells);
    const KIND: &'static str = "proxy";

    async fn start(ctx: &Context<Self>, (targets, settings, tells): Self::Args) -> Result<Self, Failure> {
        let key = targets[0].key.clone();
        for target in targets {
            ctx.start_child(spec(target, Arc::clone(&settings)));
        }
        Ok(Self { key, tells })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProxyMessage) -> Result<(), Failure> {
        let told = match message {
            ProxyMessage::Probed { report } => Told::Probed(report),
            ProxyMessage::CheckUrl { suspicion } => Told::CheckUrl(suspicion),
            ProxyMessage::EgressShared { other, .. } => Told::EgressShared(other),
            _ => {
                ctx.stop_child(&prober::actor_id(&self.key));
                return Ok(());
            }
        };
        let _ = self.tells.send((self.key.clone(), told));
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

struct Tree;

impl Actor for Tree {
    type Message = Never;
    type Internal = Never;
    type Args = (Vec<Vec<Arc<ProbeTarget>>>, Arc<ProbeSettings>, Tells);
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, (proxies, settings, tells): Self::Args) -> Result<Self, Failure> {
        ctx.start_child_and_wait(judge_actor::spec()).await?;
        for targets in proxies {
            let id = targets[0].key.actor_id();
            ctx.start_child_and_wait(ChildSpec::<FakeProxy>::retried(id, (targets, Arc::clone(&settings), tells.clone()))).await?;
        }
        Ok(Self)
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// A proxy whose behaviour a test sets, the tree, and what the proxies' actors were told.
struct Bed {
    mode: Arc<AtomicU8>,
    peer: Peer,
    system: System,
    metrics: Arc<Metrics>,
    told: UnboundedReceiver<(ObjectKey, Told)>,
    root: Option<Root>,
    settings: Arc<ProbeSettings>,
}

impl Bed {
    async fn new() -> (Self, Tells) {
        let mode = Arc::new(AtomicU8::new(PASS));
        let shared = Arc::clone(&mode);
        let peer = serve(move |mut stream, seen| {
            let mode = Arc::clone(&shared);
            async move {
                head(&mut stream, &seen).await;
                let answer: &[u8] = match mode.load(Ordering::Relaxed) {
                    PASS => b"HTTP/1.1 204 No Content\r\n\r\n",
                    TARGET_FAILS => b"HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n",
                    PROXY_FAILS => b"HTTP/1.1 407 Auth\r\nContent-Length: 0\r\n\r\n",
                    _ => return std::future::pending().await,
                };
                let _ = stream.write_all(answer).await;
            }
        })
        .await;
        let metrics = Metrics::new(true).shared();
        let system = System::new(Clock::starting_at(START), Arc::clone(&metrics));
        let (tells, told) = unbounded_channel();
        (Self { mode, peer, system, metrics, told, root: None, settings: Arc::new(settings()) }, tells)
    }

    /// One tree with these proxies, each with the targets that its prober is started with.
    async fn with(change: impl Fn(u16) -> Vec<Vec<ProbeTarget>>) -> Self {
        let (mut bed, tells) = Self::new().await;
        let proxies = change(bed.peer.port).into_iter().map(|targets| targets.into_iter().map(Arc::new).collect()).collect();
        let args = (proxies, Arc::clone(&bed.settings), tells);
        bed.root = Some(bed.system.start_root(ChildSpec::<Tree>::essential("root", args)).await.unwrap());
        bed
    }

    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::Relaxed);
    }

    fn tell(&self, message: ProberMessage) {
        self.system.address(&prober::actor_id(&key(1))).send(message).unwrap();
    }

    async fn next(&mut self) -> (ObjectKey, Told) {
        timeout(Duration::from_secs(7200), self.told.recv()).await.expect("nobody was told anything").unwrap()
    }

    /// The next report; the judge's words in between are skipped.
    async fn report(&mut self) -> ProbeReport {
        loop {
            if let (_, Told::Probed(report)) = self.next().await {
                return report;
            }
        }
    }

    async fn stop(mut self) {
        self.root.take().unwrap().stop().await;
    }
}

fn key(n: usize) -> ObjectKey {
    ObjectKey::new(if n < 3 { "default" } else { "other" }, format!("px-{n}"))
}

fn proxy(n: usize, port: u16, interval: u32) -> ProbeTarget {
    let mut target = target(port, "http://192.0.2.1/");
    target.key = key(n);
    target.uid = Uid::new(format!("6ba7b810-9dad-11d1-80b4-{n:012}"));
    target.health_check.interval_seconds = interval;
    target
}

/// HE-1, HE-2: the first probe is at once and decides; the next ones come in their slots, and it takes three to flip.
#[tokio::test(start_paused = true)]
async fn the_first_probe_is_at_once_and_three_failures_flip() {
    let mut bed = Bed::with(|port| vec![vec![proxy(1, port, 10)]]).await;
    let first = bed.report().await;
    assert!(first.healthy && first.flipped && first.epoch == 1);
    assert!(first.started_at.since(START) < Duration::from_millis(10), "{}", first.started_at);
    bed.set(PROXY_FAILS);
    let mut last = first.started_at;
    for (contradicting, healthy) in [(1, true), (2, true), (0, false)] {
        let report = bed.report().await;
        assert_eq!((report.contradicting, report.healthy, report.flipped), (contradicting, healthy, !healthy));
        let gap = report.started_at.since(last);
        assert!(gap >= Duration::from_secs(5) && gap <= Duration::from_secs(16), "{gap:?}");
        last = report.started_at;
    }
    bed.set(PASS);
    let back = bed.report().await;
    assert!(back.healthy && back.flipped, "one pass is enough by default");
    bed.stop().await;
}

/// LS-7: urgent probes follow each other every second until the threshold decides; a pass ends it.
#[tokio::test(start_paused = true)]
async fn urgent_probes_come_every_second_until_decided() {
    let mut bed = Bed::with(|port| vec![vec![proxy(1, port, 3600)]]).await;
    assert!(bed.report().await.healthy);
    bed.tell(ProberMessage::Urgent);
    assert!(bed.report().await.outcome.passed(), "asked while healthy: one probe, which passes");
    let asked = Instant::now();
    bed.set(PROXY_FAILS);
    bed.tell(ProberMessage::Urgent);
    let mut last: Option<Timestamp> = None;
    for healthy in [true, true, false] {
        let report = bed.report().await;
        assert_eq!(report.healthy, healthy);
        if let Some(last) = last {
            let gap = report.started_at.since(last);
            assert!(gap >= Duration::from_secs(1) && gap < Duration::from_millis(1100), "{gap:?}");
        }
        last = Some(report.started_at);
    }
    assert!(asked.elapsed() < Duration::from_secs(3));
    let regular = bed.report().await;
    assert!(regular.started_at.since(last.unwrap()) > Duration::from_secs(1800), "decided: no more hurry");
    bed.stop().await;
}

/// HE-2: what was asked before a change is not answered after it, and a silent proxy does not hold the new target up.
#[tokio::test(start_paused = true)]
async fn a_change_discards_the_probe_in_flight() {
    let mut bed = Bed::with(|port| vec![vec![proxy(1, port, 10)]]).await;
    assert!(bed.report().await.healthy);
    bed.set(SILENT);
    bed.tell(ProberMessage::Now);
    while bed.peer.heads().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bed.set(PASS);
    let mut changed = proxy(1, bed.peer.port, 10);
    (changed.epoch, changed.prior) = (2, None);
    let at = Instant::now();
    bed.tell(ProberMessage::Configure { target: Arc::new(changed.clone()) });
    bed.tell(ProberMessage::Configure { target: Arc::new(changed) });
    let report = bed.report().await;
    assert!(report.epoch == 2 && report.healthy && report.flipped);
    assert!(at.elapsed() < Duration::from_secs(1));
    let next = bed.report().await;
    assert!(next.started_at.since(report.started_at) >= Duration::from_secs(5), "a repeated message probes only once");
    bed.stop().await;
}

/// HE-1: a proxy that never answers has one probe in flight, whatever is asked meanwhile.
#[tokio::test(start_paused = true)]
async fn a_stalled_probe_never_piles_up() {
    let mut bed = Bed::with(|port| vec![vec![proxy(1, port, 5)]]).await;
    bed.set(SILENT);
    for n in 1..=3 {
        for _ in 0..100 {
            let _ = bed.system.address(&prober::actor_id(&key(1))).send(ProberMessage::Now);
        }
        let report = bed.report().await;
        assert_eq!(report.ended_at.since(report.started_at).as_secs(), 5);
        assert!(bed.peer.heads().len() <= n + 1, "{} connections after {n} probes", bed.peer.heads().len());
    }
    bed.stop().await;
}

/// HE-2, HE-4: a crash keeps verdict, target and series; an end takes the series along.
#[tokio::test(start_paused = true)]
async fn a_crash_keeps_what_an_end_removes() {
    let mut bed = Bed::with(|port| vec![vec![proxy(1, port, 10)]]).await;
    assert!(bed.report().await.healthy);
    let mut changed = proxy(1, bed.peer.port, 20);
    (changed.epoch, changed.prior) = (2, Some(true));
    bed.tell(ProberMessage::Configure { target: Arc::new(changed) });
    assert_eq!(bed.report().await.epoch, 2);
    let label = ProxyLabel { proxy: Some(key(1).to_string()) };
    assert!(bed.metrics.healthcheck_duration.get(&label).is_some());
    bed.set(PROXY_FAILS);
    assert!(bed.system.crash(&prober::actor_id(&key(1))));
    let report = bed.report().await;
    assert_eq!((report.epoch, report.healthy, report.contradicting), (2, true, 1), "the verdict stands, counting starts from zero");
    assert!(bed.metrics.healthcheck_duration.get(&label).is_some());
    bed.system.address(&key(1).actor_id()).send(ProxyMessage::ProbeNow).unwrap();
    while bed.metrics.healthcheck_duration.get(&label).is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bed.stop().await;
}

/// A target placed while the prober could not be told (it was starting) is the one that is probed.
#[tokio::test(start_paused = true)]
async fn a_target_placed_while_the_prober_starts_is_not_lost() {
    let mut bed = Bed::with(|port| {
        let (old, mut new) = (proxy(1, 1, 10), proxy(1, port, 10));
        new.epoch = 2;
        vec![vec![old, new]]
    })
    .await;
    let report = bed.report().await;
    assert_eq!((report.epoch, report.healthy), (2, true));
    bed.stop().await;
}

/// M10, HE-9: a check URL that answers 503 to everyone condemns nobody: what it flipped is restored, the first of each
/// namespace is told to speak, a metric says so, and a pass ends it.
#[tokio::test(start_paused = true)]
async fn a_check_url_that_fails_for_everyone_condemns_nobody() {
    let mut bed = Bed::with(|port| {
        let one = |n| {
            let mut target = proxy(n, port, 10);
            target.health_check.failure_threshold = 1;
            vec![target]
        };
        (1..=4).map(one).collect()
    })
    .await;
    for _ in 0..4 {
        assert!(bed.report().await.healthy);
    }
    let host = Host { host: "192.0.2.1".to_owned() };
    assert!(bed.metrics.check_url_suspect.get(&host).is_none());
    bed.set(TARGET_FAILS);
    let (mut speakers, mut told, mut fell) = (Vec::new(), 0, 0);
    while told < 4 {
        match bed.next().await {
            (key, Told::CheckUrl(Suspicion::Suspect { speaks, since, .. })) => {
                told += 1;
                assert!(since > START);
                if speaks {
                    speakers.push(key);
                }
            }
            (_, Told::CheckUrl(cleared)) => panic!("{cleared:?}"),
            (_, Told::Probed(report)) => fell += u32::from(report.flipped),
            (of, Told::EgressShared(other)) => panic!("{of} and {other} share nothing"),
        }
    }
    speakers.sort();
    assert_eq!(speakers, [key(1), key(3)]);
    assert!(fell >= 3, "with a threshold of 1 they fell before the judge could know");
    assert_eq!(bed.metrics.check_url_suspect.get(&host).map(|gauge| gauge.get()), Some(1));
    for _ in 0..12 {
        let report = bed.report().await;
        assert!(report.healthy || report.flipped, "{report:?}");
    }
    bed.set(PASS);
    let mut cleared = 0;
    while cleared < 4 {
        if let (_, Told::CheckUrl(Suspicion::Cleared { .. })) = bed.next().await {
            cleared += 1;
        }
    }
    assert!(bed.metrics.check_url_suspect.get(&host).is_none());
    assert!(bed.report().await.healthy);
    bed.stop().await;
}

/// HE-7: two proxies of one provider behind one address are counted, until one of them ends.
#[tokio::test(start_paused = true)]
async fn a_shared_egress_address_is_counted_and_told() {
    let peer = crate::zoo::script("HTTP/1.1 200 OK\r\n\r\n198.51.100.7").await;
    let port = peer.port;
    let mut bed = Bed::with(|_| {
        let one = |n| {
            let mut target = proxy(n, port, 10);
            target.provider = Some("lab".into());
            (target.health_check.expected_status, target.health_check.reports_address) = (200, true);
            vec![target]
        };
        vec![one(1), one(2)]
    })
    .await;
    for _ in 0..2 {
        assert!(bed.report().await.healthy);
    }
    let label = ProviderLabel { provider: "lab".to_owned() };
    let shared = |bed: &Bed| bed.metrics.egress_shared.get(&label).map(|gauge| gauge.get());
    while shared(&bed) != Some(2) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let told = loop {
        if let (of, Told::EgressShared(other)) = bed.next().await {
            break (of, other);
        }
    };
    assert!(told == (key(1), key(2)) || told == (key(2), key(1)), "{told:?}");
    bed.system.address(&key(1).actor_id()).send(ProxyMessage::ProbeNow).unwrap();
    while shared(&bed) != Some(0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bed.stop().await;
}

/// The state for people names no secret and no path of the check URL.
#[tokio::test(start_paused = true)]
async fn a_prober_describes_itself_without_secrets() {
    let mut bed = Bed::with(|port| {
        let mut target = proxy(1, port, 10);
        target.health_check.url = "http://192.0.2.1/s3nt1nel?key=s3nt1nel".to_owned();
        vec![vec![target]]
    })
    .await;
    bed.report().await;
    let node = bed.system.inspect(Some(&prober::actor_id(&key(1))), None).await.unwrap();
    let state = node.state.unwrap();
    assert_eq!(state["checkUrlHost"], "192.0.2.1");
    assert_eq!(state["lastResult"], "Passed");
    assert!(!state.to_string().contains(crate::zoo::SENTINEL));
    bed.stop().await;
}

//! A provider whose every call hangs, beside one that works (PC-67): the process with it and the process without it, in
//! turn; the 99th percentile of the other one's creates and of lease grants over HTTP.
//!
//! The provider that works answers at once, so that what is timed is what the two could share: the runtime, the tree, the
//! broker, the listener. The one that hangs has a thousand calls that nobody answers, with the deadlines of the contract.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use egress_protocol::leadership::Fence;
use egress_protocol::metrics::Metrics;
use egress_protocol::provider::{
    CallContext, CreateRequest, DeleteOutcome, Instance, InstanceKey, ListResult, Op, ProviderMessage, TargetVerdict, actor_id,
};
use egress_protocol::resource::Placement;
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Uid};
use egress_provider::{Backend, BackendError, Call, Location, ProviderArgs, ProviderEntry, ProvidersArgs, Subject};
use egress_proxies_operator::logging;
use egress_supervision::{Address, System};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fleet::{Shape, Wish};
use crate::grants::{SETTLE, Scripts, Server, TTL, WARM_UP, server};
use crate::rounds::{self, Spread};
use crate::table::{Table, thousands};
use crate::{Outcome, Role, load, process, progress, runtime};

const WELL: &str = "well";
const SICK: &str = "sick";
/// Calls that hang at any time: creates, reads, deletes and lists in equal parts.
const HANGING: usize = 1000;
/// Creates at a time, as an entry has by default.
const CREATORS: usize = 4;
const SLICE: Duration = Duration::from_secs(1);
/// Beyond every deadline of the contract.
const LONG: Duration = Duration::from_secs(4 * 3600);
const FLEET: Shape = Shape { proxies: 10_000, places: 400_000, cooling: false };

pub(crate) fn run(rounds: u32) -> Outcome<Vec<Table>> {
    let scripts = Scripts::new()?;
    let grants = scripts.add("grants", &load::grants(&Wish::Fifty.bodies(TTL)))?;
    let mut servers = [Server::start(&Role::Neighbours(false))?, Server::start(&Role::Neighbours(true))?];
    for server in &mut servers {
        load::run(&grants, server.address, 64, WARM_UP)?;
        server.helper.ask("create")?;
    }
    let mut table = Table::new(
        "neighbours",
        format!("Beside a provider with {HANGING} calls that hang: median of {rounds} rounds [quartiles]"),
        &["what", "p99 µs without it", "p99 µs beside it", "ratio"],
    );
    for (what, connections) in
        [("create of the other provider", None), ("grant, 1 connection", Some(1)), ("grant, 64 connections", Some(64))]
    {
        progress(what);
        let mut p99 = Vec::new();
        for round in 0..rounds {
            let mut of_round = [0.0; 2];
            for n in rounds::order(round, 2) {
                let server = &mut servers[n];
                of_round[n] = match connections {
                    Some(connections) => load::run(&grants, server.address, connections, 1)?.p99,
                    None => server.helper.ask("create")?.parse()?,
                };
                // Else the leases of this slice would end in the next one, which is the other process's.
                sleep(SETTLE);
            }
            p99.push(of_round);
        }
        let of = |n: usize| thousands(Spread::of(p99.iter().map(|round| round[n])).median);
        table.row([what.to_owned(), of(0), of(1), Spread::of(p99.iter().map(|round| round[1] / round[0])).ratio()]);
    }
    Ok(vec![table])
}

/// The process, until the benchmark ends: for each line a slice of creates, answered by its 99th percentile.
pub(crate) fn serve(hangs: bool) -> Outcome<()> {
    logging::install(logging::Format::Json, "info", None)?;
    let runtime = runtime()?;
    let system = System::new(Clock::system(), Metrics::new(true).shared());
    let mut entries = vec![entry(WELL, Arc::new(Well))];
    if hangs {
        entries.push(entry(SICK, Arc::new(Sick)));
    }
    let (address, _root) = runtime.block_on(server::start(&system, FLEET, Some(ProvidersArgs::new(entries))))?;
    let (well, sick) = (system.address(&actor_id(WELL)), system.address(&actor_id(SICK)));
    let mut hanging = JoinSet::new();
    for n in (0..HANGING).filter(|_| hangs) {
        hanging.spawn_on(hang(sick.clone(), n), runtime.handle());
    }
    process::say(&address.to_string())?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let answer = runtime.block_on(creates(&well));
        process::say(&answer.map_or_else(|error| error.to_string(), |p99| p99.to_string()))?;
    }
    Ok(())
}

fn entry(name: &str, backend: Arc<dyn Backend>) -> ProviderEntry {
    ProviderEntry {
        type_: "bench",
        fingerprint: name.to_owned(),
        foundation: name.to_owned(),
        settings: Arc::new(()),
        args: ProviderArgs {
            name: name.into(),
            max_concurrent_creates: CREATORS,
            stop_grace: Duration::ZERO,
            fence: Fence::open(),
            build: Arc::new(move |_| Ok(Arc::clone(&backend))),
        },
    }
}

/// Creates for a slice; the 99th percentile in microseconds.
async fn creates(well: &Address<ProviderMessage>) -> Outcome<f64> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let until = Instant::now() + SLICE;
    let mut loops = JoinSet::new();
    for _ in 0..CREATORS {
        let well = well.clone();
        loops.spawn(async move {
            let mut took = Vec::new();
            while Instant::now() < until {
                let request = request(NEXT.fetch_add(1, Ordering::Relaxed));
                let call = CallContext::new(Op::Create, CancellationToken::new());
                let begin = Instant::now();
                well.call(LONG, |reply_to| ProviderMessage::Create { request, call, reply_to }).await??;
                took.push(begin.elapsed().as_secs_f64() * 1e6);
            }
            Ok(took)
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = loops.join_next().await {
        let took: Outcome<Vec<f64>> = ended?;
        all.extend(took?);
    }
    all.sort_by(f64::total_cmp);
    all.get(all.len() * 99 / 100).copied().ok_or_else(|| "nothing was created".into())
}

/// A caller that asks again whenever it was answered, which is when its deadline has passed.
async fn hang(sick: Address<ProviderMessage>, n: usize) {
    let request = request(n as u64);
    loop {
        let key = InstanceKey {
            id: Some(InstanceId::new(format!("sick/{n}"))),
            name: request.name.clone(),
            uid: request.uid.clone(),
            installation: request.installation.clone(),
            namespace: Arc::clone(&request.namespace),
            placement: request.placement.clone(),
        };
        let call = |op| CallContext::new(op, CancellationToken::new());
        let request = request.clone();
        let up = match n % 4 {
            0 => sick.call(LONG, |reply_to| ProviderMessage::Create { request, call: call(Op::Create), reply_to }).await.is_ok(),
            1 => sick.call(LONG, |reply_to| ProviderMessage::Get { key, call: call(Op::Get), reply_to }).await.is_ok(),
            2 => sick.call(LONG, |reply_to| ProviderMessage::Delete { key, call: call(Op::Delete), reply_to }).await.is_ok(),
            _ => sick.call(LONG, |reply_to| ProviderMessage::List { call: call(Op::List), reply_to }).await.is_ok(),
        };
        if !up {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn request(n: u64) -> CreateRequest {
    let uid = Uid::new(format!("6ba7b810-9dad-11d1-80b4-{n:012}"));
    CreateRequest {
        name: InstanceName::of(&uid),
        uid,
        installation: InstallationId::new("bench"),
        namespace: "default".into(),
        proxy_name: "px".into(),
        placement: Placement::default(),
        cloud_init: Arc::default(),
        port: 3128,
    }
}

type Answer<'a, T> = futures::future::BoxFuture<'a, T>;

/// Answers as soon as it is asked.
struct Well;

impl Backend for Well {
    fn type_name(&self) -> &'static str {
        "well"
    }

    fn location_of(&self, _: Subject<'_>) -> Location {
        Location::new("here")
    }

    fn create<'a>(&'a self, request: &'a CreateRequest, _: &'a Call) -> Answer<'a, Result<InstanceId, BackendError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(InstanceId::new(format!("here/{}", request.name)))
        })
    }

    fn get<'a>(&'a self, _: &'a InstanceKey, _: &'a Call) -> Answer<'a, Result<Instance, BackendError>> {
        Box::pin(async { Err(BackendError::not_found("nothing is kept")) })
    }

    fn delete<'a>(&'a self, _: &'a InstanceKey, _: &'a Call) -> Answer<'a, Result<DeleteOutcome, BackendError>> {
        Box::pin(async { Ok(DeleteOutcome::Gone) })
    }

    fn list_managed<'a>(&'a self, _: &'a Call) -> Answer<'a, Result<ListResult, BackendError>> {
        Box::pin(async { Ok(ListResult::default()) })
    }
}

/// Never answers.
struct Sick;

impl Backend for Sick {
    fn type_name(&self) -> &'static str {
        "sick"
    }

    fn location_of(&self, _: Subject<'_>) -> Location {
        Location::new("nowhere")
    }

    fn create<'a>(&'a self, _: &'a CreateRequest, _: &'a Call) -> Answer<'a, Result<InstanceId, BackendError>> {
        Box::pin(std::future::pending())
    }

    fn get<'a>(&'a self, _: &'a InstanceKey, _: &'a Call) -> Answer<'a, Result<Instance, BackendError>> {
        Box::pin(std::future::pending())
    }

    fn delete<'a>(&'a self, _: &'a InstanceKey, _: &'a Call) -> Answer<'a, Result<DeleteOutcome, BackendError>> {
        Box::pin(std::future::pending())
    }

    fn list_managed<'a>(&'a self, _: &'a Call) -> Answer<'a, Result<ListResult, BackendError>> {
        Box::pin(std::future::pending())
    }

    fn check<'a>(&'a self, _: &'a Call) -> Option<Answer<'a, Vec<TargetVerdict>>> {
        Some(Box::pin(std::future::pending()))
    }
}

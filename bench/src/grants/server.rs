//! The discovery API with the broker and the journal, as the process runs them, and a fleet that is published to the
//! broker instead of being run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use egress_lease::{BookSettings, BrokerActor, BrokerArgs, JournalActor, JournalArgs};
use egress_protocol::Clock;
use egress_protocol::leadership::{Standing, StandingCell};
use egress_protocol::lease::{BROKER_ID, BrokerMessage, Caller, JOURNAL_ID, parse_grant};
use egress_protocol::message::Never;
use egress_protocol::metrics::Metrics;
use egress_provider::ProvidersArgs;
use egress_proxies_operator::http::actor::HttpArgs;
use egress_proxies_operator::http::auth::Tokens;
use egress_proxies_operator::http::connection::Limits;
use egress_proxies_operator::http::discovery::Discovery;
use egress_proxies_operator::http::listener::ListenerArgs;
use egress_proxies_operator::http::server::Site;
use egress_proxies_operator::lifecycle::Lifecycle;
use egress_proxies_operator::logging;
use egress_supervision::{Actor, Address, ChildSpec, Context, Failure, System};

use crate::fleet::{Shape, blocked, by_name};
use crate::{Outcome, process, runtime};

/// As the process sets it.
const BACKLOG: u64 = 10_000;
const ANSWER: Duration = Duration::from_secs(60);

/// What the process would start, as far as a lease needs it.
#[derive(Debug)]
struct Root;

#[derive(Debug, Clone)]
struct RootArgs {
    http: HttpArgs,
    /// Not beside a bare handler.
    leases: Option<BookSettings>,
    providers: Option<ProvidersArgs>,
}

impl Actor for Root {
    type Message = Never;
    type Internal = Never;
    type Args = RootArgs;
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, args: RootArgs) -> Result<Self, Failure> {
        ctx.start_child_and_wait(args.http.spec()).await?;
        if let Some(providers) = args.providers {
            ctx.start_child_and_wait(providers.spec()).await?;
        }
        if let Some(settings) = args.leases {
            let journal = ChildSpec::<JournalActor>::irreplaceable(JOURNAL_ID, JournalArgs::from(&settings));
            ctx.start_child_and_wait(journal).await?;
            ctx.start_child_and_wait(ChildSpec::<BrokerActor>::essential(BROKER_ID, BrokerArgs { settings })).await?;
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

/// Runs until the benchmark ends.
pub(crate) fn run(shape: Shape) -> Outcome<()> {
    logging::install(logging::Format::Json, "info", None)?;
    let runtime = runtime()?;
    let system = System::new(Clock::system(), Metrics::new(true).shared());
    let (address, _root) = runtime.block_on(start(&system, shape, None))?;
    process::ready_until_told(&address.to_string())
}

/// The discovery API over a fleet, and providers that nobody of it speaks to.
pub(crate) async fn start(
    system: &System,
    shape: Shape,
    providers: Option<ProvidersArgs>,
) -> Outcome<(SocketAddr, egress_supervision::Root)> {
    let lifecycle = Lifecycle::default();
    lifecycle.set_started();
    let api = Discovery::new(system, Tokens::open(), lifecycle, StandingCell::new(Standing::Alone), Limits::default().body, BACKLOG);
    let started = serve(system, api.routes(), Some(BookSettings::default()), providers).await?;
    fill(system.address(BROKER_ID), shape).await?;
    Ok(started)
}

/// Routes on the operator's own listener.
pub(super) async fn serve(
    system: &System,
    routes: Router,
    leases: Option<BookSettings>,
    providers: Option<ProvidersArgs>,
) -> Outcome<(SocketAddr, egress_supervision::Root)> {
    let socket = TcpListener::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    let site = Site::new(routes, address, Limits::default());
    let http = HttpArgs { listeners: vec![ListenerArgs { name: "discovery", socket: Arc::new(socket), site }], token_file: None };
    let root = system.start_root(ChildSpec::<Root>::essential("root", RootArgs { http, leases, providers })).await?;
    Ok((address, root))
}

/// Publishes the fleet; those that cool are leased by name, and reported.
async fn fill(broker: Address<BrokerMessage>, shape: Shape) -> Outcome<()> {
    for proxy in shape.fleet() {
        broker.send(BrokerMessage::Publish { proxy })?;
    }
    for n in (0..shape.proxies).filter(|n| shape.cools(*n)) {
        let request = Box::new(parse_grant(by_name(n).as_bytes()).map_err(|faults| format!("{faults:?}"))?);
        let caller = Caller::anonymous;
        let granted = broker.call(ANSWER, |reply_to| BrokerMessage::Grant { request, caller: caller(), reply_to }).await?;
        let id = granted.map_err(|error| format!("{error:?}"))?.record.id;
        let request = Box::new(blocked());
        let reported = broker.call(ANSWER, |reply_to| BrokerMessage::Report { id, request, caller: caller(), reply_to }).await?;
        if !reported.map_err(|error| format!("{error:?}"))?.counted {
            return Err("a report was not counted".into());
        }
        broker.call(ANSWER, |reply_to| BrokerMessage::Release { id, caller: caller(), reply_to }).await?.map_err(|e| format!("{e:?}"))?;
    }
    // Answered after everything before it.
    broker.call(ANSWER, |reply_to| BrokerMessage::Stats { reply_to }).await?;
    Ok(())
}

/// How large a server's answer is to one request.
pub(super) fn answer_size(server: SocketAddr, body: &str) -> Outcome<usize> {
    let mut stream = TcpStream::connect(server)?;
    let length = body.len();
    write!(
        stream,
        "POST /v1/leases HTTP/1.1\r\nHost: {server}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 201") => Ok(body.len()),
        _ => Err(format!("not a grant: {answer}").into()),
    }
}

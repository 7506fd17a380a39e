//! One listener as an actor.
//!
//! Role: accepts on a socket that was bound before the tree was started, and owns its connections. Supervised by
//! [`crate::http::actor::Http`]; supervises nobody. Receives nothing. States: accepting, draining. Failure policy:
//! essential, and a restart accepts on the same socket, so that the port is never lost; an incarnation's connections
//! end with it. Over TLS it looks once an hour whether its certificate ends soon. On an orderly stop it stops accepting and gives running requests [`DRAIN`] (OP-5).

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::message::{Message, Never};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Timer};
use serde_json::json;

use crate::http::server::{Connections, Site, accept};
use crate::http::tls::Tls;

/// How long running requests may take to end.
pub const DRAIN: Duration = Duration::from_secs(10);
/// How often the certificate is looked at.
const LOOK: Duration = Duration::from_secs(3600);

/// What a listener is started from.
#[derive(Debug, Clone)]
pub struct ListenerArgs {
    /// Such as `discovery`.
    pub name: &'static str,
    /// Bound and listening.
    pub socket: Arc<TcpListener>,
    /// What to serve.
    pub site: Site,
}

impl ListenerArgs {
    /// The same over TLS.
    #[must_use]
    pub fn secured(mut self, tls: Tls) -> Self {
        self.site = self.site.secured(tls);
        self
    }

    /// The child of the http actor.
    pub fn spec(self) -> ChildSpec<Listener> {
        let mut spec = ChildSpec::essential(format!("http/{}", self.name), self);
        spec.policy.stop_timeout = DRAIN + Duration::from_secs(2);
        spec
    }
}

/// See the module.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    connections: Connections,
    tls: Option<Tls>,
    next: Option<Timer>,
}

/// What its task tells it.
#[derive(Debug)]
pub enum Internal {
    /// The accept loop ended, which it does only when asked to.
    AcceptEnded,
    /// Time to look at the certificate.
    Look,
}

impl Message for Internal {
    fn kind(&self) -> &'static str {
        match self {
            Self::AcceptEnded => "AcceptEnded",
            Self::Look => "Look",
        }
    }
}

impl Actor for Listener {
    type Message = Never;
    type Internal = Internal;
    type Args = ListenerArgs;
    const KIND: &'static str = "listener";

    async fn start(ctx: &Context<Self>, args: ListenerArgs) -> Result<Self, Failure> {
        let socket = args.socket.try_clone().map_err(Failure::new)?;
        let address = socket.local_addr().map_err(Failure::new)?;
        let socket = tokio::net::TcpListener::from_std(socket).map_err(Failure::new)?;
        let connections = Connections::default();
        let tls = args.site.tls.clone();
        if tls.is_some() {
            ctx.tell(Internal::Look);
        }
        let (opener, cancelled) = (connections.opener(), ctx.cancelled());
        let site = args.site.counted(args.name, Arc::clone(ctx.system().metrics()));
        ctx.spawn(async move {
            accept(socket, site, opener, cancelled).await;
            Internal::AcceptEnded
        })
        .keep();
        Ok(Self { address, connections, tls, next: None })
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: Internal) -> Result<(), Failure> {
        match message {
            Internal::AcceptEnded if ctx.cancelled().is_cancelled() => Ok(()),
            Internal::AcceptEnded => Err(Failure::new("the accept loop ended")),
            Internal::Look => {
                self.look(ctx);
                Ok(())
            }
        }
    }

    fn describe(&self) -> serde_json::Value {
        let mut state = json!({ "address": self.address.to_string(), "connections": self.connections.open() });
        if let Some(tls) = &self.tls {
            state["certificateUntil"] = json!(tls.valid_until());
        }
        state
    }

    async fn stopping(&mut self, _: &Context<Self>) {
        self.connections.drain(DRAIN).await;
    }
}

impl Listener {
    /// Takes another certificate in time; one that cannot be made now is tried again at the next look.
    fn look(&mut self, ctx: &Context<Self>) {
        let Some(tls) = &self.tls else { return };
        let listener = ctx.id();
        match tls.renew_if_due(ctx.now()) {
            Ok(true) => tracing::info!(listener, until = %tls.valid_until(), "certificate renewed"),
            Ok(false) => {}
            Err(error) => tracing::warn!(listener, %error, until = %tls.valid_until(), "WARNING: certificate not renewed"),
        }
        self.next = Some(ctx.after(LOOK, Internal::Look));
    }
}

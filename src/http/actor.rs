//! The parent of the listeners.
//!
//! Role: starts every listener, and keeps the tokens of a file current. Supervised by the root; supervises
//! `http/<name>`. Receives nothing. States: one. Failure policy: essential; the sockets are bound before the tree is
//! started and outlive every restart. It is the first to be started and the last to be stopped, so that readiness can
//! be read all the while and calls end after everything else did (OP-5).

use std::path::PathBuf;
use std::time::Duration;

use egress_config::tokens;
use egress_protocol::message::{Message, Never};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Timer};
use serde_json::json;

use crate::http::auth::Tokens;
use crate::http::listener::{DRAIN, ListenerArgs};

/// The id of this actor.
pub const ACTOR_ID: &str = "http";
/// How often the token file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What it is started from.
#[derive(Debug, Clone)]
pub struct HttpArgs {
    /// All that is served.
    pub listeners: Vec<ListenerArgs>,
    /// The table, and the file it comes from.
    pub token_file: Option<(PathBuf, Tokens)>,
}

impl HttpArgs {
    /// The child of the root.
    pub fn spec(self) -> ChildSpec<Http> {
        let mut spec = ChildSpec::essential(ACTOR_ID, self);
        spec.policy.stop_timeout = DRAIN + Duration::from_secs(4);
        spec
    }
}

/// See the module.
#[derive(Debug)]
pub struct Http {
    token_file: Option<(PathBuf, Tokens)>,
    /// Told once, not every second.
    complaint: Option<String>,
    next: Option<Timer>,
}

/// Its ticks and results.
#[derive(Debug)]
pub enum Internal {
    /// Look at the token file.
    Look,
    /// What it holds, or why it cannot be read.
    Read(Result<tokens::Tokens, Vec<String>>),
}

impl Message for Internal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Look => "Look",
            Self::Read(_) => "Read",
        }
    }
}

impl Actor for Http {
    type Message = Never;
    type Internal = Internal;
    type Args = HttpArgs;
    const KIND: &'static str = "http";

    async fn start(ctx: &Context<Self>, args: HttpArgs) -> Result<Self, Failure> {
        for listener in args.listeners {
            ctx.start_child_and_wait(listener.spec()).await?;
        }
        let next = args.token_file.is_some().then(|| ctx.after(LOOK, Internal::Look));
        Ok(Self { token_file: args.token_file, complaint: None, next })
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: Internal) -> Result<(), Failure> {
        let Some((path, tokens)) = &self.token_file else { return Ok(()) };
        match message {
            Internal::Look => {
                let path = path.clone();
                let read = move || tokens::load(&path);
                ctx.spawn(
                    async move { Internal::Read(tokio::task::spawn_blocking(read).await.unwrap_or_else(|e| Err(vec![e.to_string()]))) },
                )
                .keep();
            }
            Internal::Read(content) => {
                let complaint = content.map(|content| tokens.replace(content)).map_err(|faults| faults.join("; ")).err();
                match (&complaint, &self.complaint) {
                    (Some(reason), before) if Some(reason) != before.as_ref() => {
                        tracing::warn!(file = %path.display(), reason, "WARNING: token file refused, the last good one stays");
                    }
                    (None, Some(_)) => tracing::info!(file = %path.display(), "token file is in force again"),
                    _ => {}
                }
                self.complaint = complaint;
                self.next = Some(ctx.after(LOOK, Internal::Look));
            }
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        let mut state = serde_json::Map::new();
        if let Some((path, _)) = &self.token_file {
            state.insert("tokenFile".to_owned(), json!(path.display().to_string()));
        }
        if let Some(fault) = &self.complaint {
            state.insert("tokenFileFault".to_owned(), json!(fault));
        }
        state.into()
    }
}

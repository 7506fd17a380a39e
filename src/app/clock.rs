//! Follows the system clock.
//!
//! Role: notices that the system clock was set, so that times are right again without a restart. Supervised by the root;
//! supervises nobody. Id `clock`. Receives nothing but its own tick; sends `ClockSet` to the lease broker. States: one. Failure policy: a crash loses nothing, the
//! next look sees the same.

use std::time::Duration;

use egress_protocol::lease::{BROKER_ID, BrokerMessage};
use egress_protocol::message::{Message, Never};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Timer};
use serde_json::json;

/// How often it looks: reading two clocks costs less than a microsecond.
const LOOK: Duration = Duration::from_secs(5);

/// The child of the root.
pub(super) fn spec() -> ChildSpec<ClockActor> {
    ChildSpec::retried("clock", ())
}

/// See the module.
#[derive(Debug)]
pub(super) struct ClockActor {
    steps: u32,
    /// Milliseconds that the lease broker has not been told of yet.
    untold: i64,
    next: Timer,
}

/// Time to look.
#[derive(Debug)]
pub(super) struct Look;

impl Message for Look {
    fn kind(&self) -> &'static str {
        "Look"
    }
}

impl Actor for ClockActor {
    type Message = Never;
    type Internal = Look;
    type Args = ();
    const KIND: &'static str = "clock";

    async fn start(ctx: &Context<Self>, (): ()) -> Result<Self, Failure> {
        Ok(Self { steps: 0, untold: 0, next: ctx.after(LOOK, Look) })
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, Look: Look) -> Result<(), Failure> {
        if let Some(millis) = ctx.system().clock().follow() {
            self.steps = self.steps.saturating_add(1);
            self.untold = self.untold.saturating_add(millis);
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            let seconds = millis as f64 / 1000.0;
            tracing::warn!(
                seconds,
                "WARNING: the system clock was set; times are written by it from now on, leases, timers and deadlines keep their length"
            );
        }
        if self.untold != 0 {
            // One that is down hears of it at the next look.
            let told = ctx.system().address::<BrokerMessage>(BROKER_ID).send(BrokerMessage::ClockSet { millis: self.untold });
            self.untold = if told.is_ok() { 0 } else { self.untold };
        }
        self.next = ctx.after(LOOK, Look);
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        json!({ "steps": self.steps })
    }
}

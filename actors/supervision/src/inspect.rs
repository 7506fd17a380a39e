//! What `/debug/actors` shows of an actor (operator.md §12). Everything but `state` is read from counters beside the
//! mailbox, so that a busy actor is shown as busy and never waited for.

use egress_protocol::Timestamp;
use serde::Serialize;

/// A node of the tree; the answer is the root node.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Such as `proxy/default/px-1`.
    pub id: String,
    /// [`crate::Actor::KIND`].
    pub kind: &'static str,
    /// What it is doing.
    pub status: ActorStatus,
    /// Since when it is in this status.
    pub since: Timestamp,
    /// [`crate::Actor::describe`]; absent when busy or down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<serde_json::Value>,
    /// Since it was first started.
    pub restarts: u64,
    /// Messages sent and not yet handled.
    pub mailbox_depth: u64,
    /// The message in hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handling: Option<Handling>,
    /// Why it last crashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// In start order.
    pub children: Vec<Node>,
}

/// What an actor is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ActorStatus {
    /// Building its state.
    Starting,
    /// Serving.
    Running,
    /// Did not answer a question within 250 ms.
    Busy,
    /// Crashed, waiting for its restart.
    BackingOff,
    /// Its budget is spent; tried again per its policy.
    GaveUp,
    /// On its way out.
    Stopping,
}

/// The message in hand.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Handling {
    /// [`egress_protocol::Message::kind`].
    pub message: &'static str,
    /// For how long.
    pub for_millis: u64,
}

/// A crash.
#[derive(Debug, Clone, Serialize)]
pub struct LastError {
    /// When.
    pub at: Timestamp,
    /// The panic's text or the failure.
    pub message: String,
}

//! What `/debug/actors` shows of an actor (operator.md §12). Everything but `state` is read from counters beside the
//! mailbox, so that a busy actor is shown as busy and never waited for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use egress_protocol::Timestamp;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::System;
use crate::face::{Face, Words};

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
    /// Since its parent started it.
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

/// How long an actor may take to describe itself.
const PATIENCE: Duration = Duration::from_millis(250);

/// Asks one actor; `None` when it is down, has such a question waiting, or does not answer in time.
async fn ask(face: &Face) -> Option<serde_json::Value> {
    let probe = face.probe.load_full()?;
    let (reply, answer) = oneshot::channel();
    if !probe.describe(reply) {
        return None;
    }
    // One that is not answered in time goes on waiting in the mailbox, and no other is asked until it is handled.
    tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
}

impl System {
    /// The subtree under `id` (the root without one), `depth` levels of children deep (all without one). Actors are
    /// asked for their state concurrently; one that does not answer in 250 ms is busy and has at most one question
    /// waiting (OB-4).
    pub async fn inspect(&self, id: Option<&str>, depth: Option<usize>) -> Option<Node> {
        let faces: Vec<(Arc<Face>, Words)> = self.faces().into_iter().map(|face| (Arc::clone(&face), face.words())).collect();
        let mut below: HashMap<Option<Arc<str>>, Vec<usize>> = HashMap::new();
        for (index, (_, words)) in faces.iter().enumerate() {
            below.entry(words.above.as_ref().map(|line| Arc::clone(&line.id))).or_default().push(index);
        }
        for children in below.values_mut() {
            children.sort_unstable_by_key(|index| faces[*index].1.order);
        }
        let top = match id {
            Some(id) => faces.iter().position(|(face, _)| &*face.id == id)?,
            None => *below.get(&None)?.first()?,
        };
        // The chosen ones, level by level, so that they can be asked together.
        let mut chosen = vec![(top, 0)];
        let mut next = 0;
        while let Some(&(index, level)) = chosen.get(next) {
            next += 1;
            if depth.is_none_or(|depth| level < depth)
                && let Some(children) = below.get(&Some(Arc::clone(&faces[index].0.id)))
            {
                chosen.extend(children.iter().map(|child| (*child, level + 1)));
            }
        }
        let states = futures::future::join_all(chosen.iter().map(|(index, _)| ask(&faces[*index].0))).await;
        let now = self.now();
        let mut nodes: HashMap<usize, Node> = HashMap::new();
        // From the leaves up, so that children are there when their parent is made.
        for ((index, _), state) in chosen.iter().zip(states).rev() {
            let (face, words) = &faces[*index];
            let mut children: Vec<Node> = below
                .get(&Some(Arc::clone(&face.id)))
                .map(|children| children.iter().filter_map(|child| nodes.remove(child)).collect())
                .unwrap_or_default();
            children.shrink_to_fit();
            nodes.insert(*index, node(face, words, state, now, children));
        }
        nodes.remove(&top)
    }
}

fn node(face: &Face, words: &Words, state: Option<serde_json::Value>, now: Timestamp, children: Vec<Node>) -> Node {
    let busy = state.is_none() && words.status == ActorStatus::Running;
    let probe = face.probe.load();
    // One that answered was handling nothing but the question.
    let handling = probe.as_ref().filter(|_| busy).and_then(|probe| probe.handling());
    let handling = handling.map(|(message, since)| (message, since.elapsed()));
    Node {
        id: face.id.to_string(),
        kind: words.kind,
        status: if busy { ActorStatus::Busy } else { words.status },
        since: handling.map_or(words.since, |(_, elapsed)| now - elapsed),
        state,
        restarts: face.restarts.load(Ordering::Relaxed),
        mailbox_depth: probe.as_ref().map_or(0, |probe| probe.depth() as u64),
        handling: handling
            .map(|(message, elapsed)| Handling { message, for_millis: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX) }),
        last_error: words.last_error.clone(),
        children,
    }
}

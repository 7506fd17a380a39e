//! May the bearer of a token do that? Asked by whoever serves something that the cluster's own rules guard (OB-1), answered
//! by the actor that may ask the API server.

use std::sync::Arc;

use crate::{Message, Reply, Secret};

/// The id of the actor that answers.
pub const ACTOR_ID: &str = "metrics-reviewer";

/// What the reviewer receives. Every message may be repeated: an answer is kept for a few seconds.
#[derive(Debug)]
pub enum ReviewMessage {
    /// May the bearer of this token do this?
    Review {
        /// As it was presented.
        token: Secret,
        /// Such as `get`.
        verb: &'static str,
        /// Of what is no resource of the API server: `/metrics`.
        path: &'static str,
        /// Where to answer.
        reply_to: Reply<Verdict>,
    },
}

impl Message for ReviewMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Review { .. } => "Review",
        }
    }
}

/// What the API server says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Allowed {
        /// Whom the token stands for.
        user: Arc<str>,
    },
    /// It knows the bearer, and says no.
    Forbidden {
        /// Whom the token stands for.
        user: Arc<str>,
    },
    /// It does not know the token.
    Unknown,
    /// It could not be asked; ask again in a moment.
    Unavailable {
        /// Why, without anything secret.
        reason: Arc<str>,
    },
}

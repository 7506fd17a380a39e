//! One write to one object, from what is known of it to the answer. What it found out on the way goes back to the store.

use std::sync::Arc;

use egress_kube::kube::core::Status;
use egress_kube::{ApiClient, ApiError, PatchKind, REQUEST, Request};
use egress_protocol::leadership::Fence;
use egress_protocol::message::Reply;
use egress_protocol::resource::ProxyStatus;
use egress_protocol::source::SourceError;
use egress_protocol::{ObjectKey, Uid};
use serde_json::Value;
use tracing::Span;

use super::decode::{self, Meta, Seen};
use super::patches;
use crate::paths::{PROXIES, proxy_path};
use crate::sending::unless_fenced;

/// So often an object's finalizers are read and patched anew when somebody changes them meanwhile.
const TRIES: usize = 3;

/// Who waits.
#[derive(Debug)]
pub(crate) enum Waiter {
    Status(Reply<Result<i64, SourceError>>),
    Finalizer(Reply<Result<(), SourceError>>),
}

impl Waiter {
    pub(crate) fn gave_up(&self) -> bool {
        match self {
            Self::Status(reply_to) => reply_to.is_closed(),
            Self::Finalizer(reply_to) => reply_to.is_closed(),
        }
    }

    /// Whoever gave up hears nothing.
    pub(crate) fn answer(self, result: Result<i64, SourceError>) {
        let _gave_up = match self {
            Self::Status(reply_to) => reply_to.send(result).is_err(),
            Self::Finalizer(reply_to) => reply_to.send(result.map(|_| ())).is_err(),
        };
    }
}

/// What is to be written.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Status(Arc<ProxyStatus>),
    AddFinalizer,
    RemoveFinalizer,
}

/// A write that waits for its turn.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) uid: Uid,
    pub(crate) change: Change,
    pub(crate) span: Span,
    pub(crate) waiter: Waiter,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// The generation at the write.
    pub(crate) result: Result<i64, SourceError>,
    /// The object as it is now, where that was learned.
    pub(crate) seen: Option<Seen>,
    /// Why the API server takes nothing from us, or cannot be asked.
    pub(crate) trouble: Option<Trouble>,
}

/// Whose fault it is that a write did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It does not take this: nothing changes until the object or the program does.
    Refused(String),
    /// It takes nothing, or does not answer.
    Away(String),
}

/// The hands.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) client: ApiClient,
    pub(crate) fence: Fence,
    pub(crate) key: ObjectKey,
    pub(crate) uid: Uid,
}

/// What a single read found.
enum Found {
    Object(Box<Seen>),
    /// None of that name and UID.
    Gone,
}

impl Writer {
    pub(crate) async fn perform(&self, change: &Change, known: Option<Meta>) -> Done {
        match change {
            Change::Status(status) => self.status(status, known).await,
            Change::AddFinalizer => self.finalizer(true, known).await,
            Change::RemoveFinalizer => self.finalizer(false, known).await,
        }
    }

    async fn status(&self, status: &ProxyStatus, known: Option<Meta>) -> Done {
        let version = match known {
            Some(meta) => meta.version,
            None => match self.read().await {
                Ok(Found::Object(seen)) => seen.meta.version,
                Ok(Found::Gone) => return Done::gone(),
                Err(error) => return Done::failed(&error),
            },
        };
        let path = format!("{}/status", proxy_path(&self.key));
        match self.patch(&path, PatchKind::Merge, &patches::status(status, &version)).await {
            Ok(seen) => Done { result: Ok(seen.generation), seen: Some(seen), trouble: None },
            Err(error) if error.code() == Some(404) => Done::gone(),
            Err(error) if error.code() == Some(409) => match self.read().await {
                Ok(Found::Object(seen)) => Done { result: Err(SourceError::Conflict), seen: Some(*seen), trouble: None },
                Ok(Found::Gone) => Done::gone(),
                Err(_) => Done { result: Err(SourceError::Conflict), seen: None, trouble: None },
            },
            Err(error) => Done::failed(&error),
        }
    }

    /// Idempotent. The object gone is what a removal wants.
    async fn finalizer(&self, add: bool, mut known: Option<Meta>) -> Done {
        let gone = || if add { Done::gone() } else { Done { result: Ok(0), ..Done::gone() } };
        let mut found: Option<Seen> = None;
        let mut refusal: Option<ApiError> = None;
        for _ in 0..TRIES {
            let meta = match known.take() {
                Some(meta) => meta,
                None => match self.read().await {
                    Ok(Found::Object(seen)) => {
                        // The same object is refused as it was before.
                        let same = found.as_ref().is_some_and(|before| before.meta.version == seen.meta.version);
                        if let Some(refusal) = refusal.take_if(|_| same) {
                            return Done::failed(&refusal);
                        }
                        let meta = seen.meta.clone();
                        found = Some(*seen);
                        meta
                    }
                    Ok(Found::Gone) => return gone(),
                    Err(error) => return Done::failed(&error),
                },
            };
            if add && meta.deleting && !meta.finalizer() {
                return Done { seen: found, ..Done::gone() };
            }
            let operations = if add {
                patches::add_finalizer(&self.uid, &meta.finalizers)
            } else {
                patches::remove_finalizer(&self.uid, &meta.finalizers)
            };
            let Some(operations) = operations else { return Done { result: Ok(0), seen: found, trouble: None } };
            match self.patch(&proxy_path(&self.key), PatchKind::Json, &operations).await {
                Ok(seen) => return Done { result: Ok(seen.generation), seen: Some(seen), trouble: None },
                Err(error) if error.code() == Some(404) => return gone(),
                // A test that fails is answered 422, and so is what the schema refuses.
                Err(error) if matches!(error.code(), Some(409 | 422)) => refusal = Some(error),
                Err(error) => return Done::failed(&error),
            }
        }
        Done { result: Err(SourceError::Conflict), seen: found, trouble: None }
    }

    async fn patch(&self, path: &str, kind: PatchKind, body: &Value) -> Result<Seen, ApiError> {
        let guard = || unless_fenced(&self.fence);
        let answer = self.client.send(REQUEST, guard, &Request::patch(PROXIES, path, kind, body)).await?;
        read_answer(&answer)
    }

    async fn read(&self) -> Result<Found, ApiError> {
        match self.client.send(REQUEST, || Ok(()), &Request::get(PROXIES, &proxy_path(&self.key))).await {
            Ok(answer) => {
                let seen = read_answer(&answer)?;
                Ok(if seen.meta.uid == self.uid { Found::Object(Box::new(seen)) } else { Found::Gone })
            }
            Err(error) if error.code() == Some(404) => Ok(Found::Gone),
            Err(error) => Err(error),
        }
    }
}

fn read_answer(answer: &str) -> Result<Seen, ApiError> {
    let unreadable = |why: String| ApiError::Transport(format!("the answer cannot be read: {why}"));
    let value = serde_json::from_str(answer).map_err(|error| unreadable(format!("{:?} at {}", error.classify(), error.column())))?;
    decode::proxy(value).map_err(unreadable)
}

/// Of a 403 only the words tell whether it is about this object (admission) or about us (the authorizer).
fn refuses_this(status: &Status) -> bool {
    match status.code {
        400 | 413 | 422 => true,
        403 => !status.message.contains("is forbidden: User "),
        _ => false,
    }
}

impl Done {
    const fn gone() -> Self {
        Self { result: Err(SourceError::Gone), seen: None, trouble: None }
    }

    fn failed(error: &ApiError) -> Self {
        let text = error.to_string();
        let trouble = match error {
            ApiError::Withheld(_) => None,
            ApiError::Status(status) if refuses_this(status) => Some(Trouble::Refused(text.clone())),
            ApiError::Status(_) | ApiError::Timeout(_) | ApiError::Transport(_) | ApiError::Access(_) => Some(Trouble::Away(text.clone())),
        };
        Self { result: Err(SourceError::Unavailable(text)), seen: None, trouble }
    }
}

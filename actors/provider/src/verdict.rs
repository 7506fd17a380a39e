//! What a failed call comes to, and how it is told: the part that the classifications of all backends share.

use std::fmt::Display;
use std::time::Duration;

use egress_protocol::provider::ErrorClass;

use crate::BackendError;

/// A `Retry-After` is honoured up to this long: longer waits are the reconciler's.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a failure comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What happens next.
    pub class: ErrorClass,
    /// The cause lies in the environment (PC-59).
    pub environment: bool,
}

impl Verdict {
    /// Of that class, whose cause lies in the call itself.
    pub const fn of(class: ErrorClass) -> Self {
        Self { class, environment: false }
    }

    /// The error of a step that failed so. What the backend asks to be waited counts where the call is tried again soon.
    pub fn told<E>(self, step: impl Display, error: E, retry_after: Option<Duration>) -> BackendError
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let mut told = BackendError::new(self.class, format!("{step}: {error}"));
        told.environment = self.environment;
        if self.class == ErrorClass::Transient {
            told.retry_after = retry_after.map(|after| after.clamp(Duration::from_secs(1), PATIENCE));
        }
        told.caused_by(error)
    }
}

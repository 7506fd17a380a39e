//! Why a probe failed, in words that hold no secret and nothing a target or proxy chose to say.

use std::io;

use egress_protocol::prober::{ProbeFailure, ProbeOutcome};

/// A failed probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) failure: ProbeFailure,
    pub(super) message: String,
    pub(super) target_side: bool,
}

impl Fault {
    /// The proxy's fault, as far as the probe can tell.
    pub(super) fn of_proxy(failure: ProbeFailure, message: impl Into<String>) -> Self {
        Self { failure, message: message.into(), target_side: false }
    }

    /// The target's fault, as far as the probe can tell (HE-9).
    pub(super) fn of_target(failure: ProbeFailure, message: impl Into<String>) -> Self {
        Self { failure, message: message.into(), target_side: true }
    }
}

impl From<Fault> for ProbeOutcome {
    fn from(fault: Fault) -> Self {
        Self::Failed { failure: fault.failure, message: fault.message, target_side: fault.target_side }
    }
}

/// This machine could not even try (no descriptor, no memory, no port left): that says nothing about any proxy.
#[derive(Debug, thiserror::Error)]
#[error("this machine cannot open a connection: {0}")]
pub struct OwnFault(pub(super) io::Error);

/// Why a stage ended early.
#[derive(Debug)]
pub(super) enum Stop {
    Fault(Fault),
    Own(OwnFault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<OwnFault> for Stop {
    fn from(fault: OwnFault) -> Self {
        Self::Own(fault)
    }
}

/// An I/O error in words: its kind where it has one.
pub(super) fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::Other => error.to_string(),
        kind => kind.to_string(),
    }
}

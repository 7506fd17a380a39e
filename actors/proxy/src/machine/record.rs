//! The status as it is written (OP-24): only when something changed, one write at a time, at most one a second.

use std::sync::Arc;

use egress_protocol::object::ProxyObject;
use egress_protocol::provider::Op;
use egress_protocol::resource::ProxyStatus;
use egress_protocol::resource::conditions::{self, Status, kind};
use egress_protocol::source::SourceError;
use egress_protocol::{InstanceId, Timestamp};

use super::{Effect, Machine};
use crate::status;

/// What is known to be written.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    written: Arc<ProxyStatus>,
    /// The generation that was current at the last write of this machine.
    generation: Option<i64>,
    in_flight: Option<(u64, Arc<ProxyStatus>)>,
    not_before: Option<Timestamp>,
    failures: u32,
    /// When the texts of the conditions were last written.
    texts_at: Option<Timestamp>,
    /// The next step waits for the record.
    pub(super) confirm: bool,
}

impl Record {
    pub(super) fn adopt(&mut self, written: Arc<ProxyStatus>) {
        self.written = written;
        self.generation = None;
    }

    pub(super) fn spec_hash(&self) -> Option<&str> {
        self.written.spec_hash.as_deref()
    }

    pub(super) fn provisioned(&self) -> Status {
        conditions::status(&self.written.conditions, kind::PROVISIONED)
    }

    /// Whether hash and id are written, and were by this machine, at a generation that it has seen (OP-16, O2).
    pub(super) fn confirms(&self, object: &ProxyObject, hash: Option<&str>, id: Option<&InstanceId>) -> bool {
        self.written.spec_hash.as_deref() == hash
            && self.written.provider_id.as_deref() == id.map(InstanceId::as_str)
            && self.generation.is_some_and(|generation| generation <= object.generation)
    }

    #[cfg(test)]
    pub(super) const fn in_flight(&self) -> bool {
        self.in_flight.is_some()
    }
}

impl Machine {
    pub(super) fn status_written(&mut self, now: Timestamp, epoch: u64, result: Result<i64, SourceError>) {
        let Some((_, status)) = self.record.in_flight.take_if(|(writing, _)| *writing == epoch) else { return };
        match result {
            Ok(generation) => {
                self.record.written = status;
                self.record.generation = Some(generation);
                self.record.failures = 0;
            }
            Err(SourceError::Gone) => self.gone = true,
            // What is stored now is not known: nothing that relies on it is done before the next answer.
            Err(SourceError::Conflict) => self.record.generation = None,
            Err(SourceError::Unavailable(_)) => {
                self.record.generation = None;
                let wait = self.dice.backoff(&self.settings, self.record.failures).max(self.settings.write_interval);
                self.record.not_before = Some(now + wait);
                self.record.failures = (self.record.failures + 1).min(30);
            }
        }
    }

    /// Writes the status if it has to be.
    pub(super) fn write_status(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        if self.gone || self.released || self.parked() || self.record.in_flight.is_some() {
            return;
        }
        let mut want = self.facts().status(&self.record.written, now);
        let slow = self.hold_texts(now, &mut want);
        let unconfirmed = self.record.confirm && !self.record.confirms(&self.object, self.hash.as_deref(), self.id.as_ref());
        if !unconfirmed && !status::differs(&want, &self.record.written) {
            return;
        }
        if let Some(at) = self.record.not_before.filter(|at| now < *at) {
            self.wake_at(at);
            return;
        }
        if !slow {
            self.record.texts_at = Some(now);
        }
        self.epochs += 1;
        let status = Arc::new(want);
        self.record.in_flight = Some((self.epochs, Arc::clone(&status)));
        self.record.not_before = Some(now + self.settings.write_interval);
        out.push(Effect::WriteStatus { epoch: self.epochs, status });
    }

    /// Keeps texts that differ only in numbers for a while (OP-7); says whether one was kept.
    fn hold_texts(&self, now: Timestamp, want: &mut ProxyStatus) -> bool {
        let creating = self.flight.as_ref().is_some_and(|flight| flight.op == Op::Create);
        let interval = if creating { self.settings.progress_interval } else { self.settings.text_interval };
        if self.record.texts_at.is_none_or(|at| now.since(at) >= interval) {
            return false;
        }
        let mut held = false;
        for condition in &mut want.conditions {
            let Some(old) = conditions::find(&self.record.written.conditions, &condition.type_) else { continue };
            let alike = (&old.status, &old.reason) == (&condition.status, &condition.reason);
            if alike && old.message != condition.message && conditions::same_but_for_numbers(&old.message, &condition.message) {
                condition.message.clone_from(&old.message);
                held = true;
            }
        }
        held
    }
}

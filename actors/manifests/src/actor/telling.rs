//! What the directory is told: every object as it is recorded, with its Secrets resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egress_protocol::object::ProxyObject;
use egress_protocol::proxies::ProxiesMessage;
use egress_protocol::resource::secrets;
use egress_protocol::source::LiveSet;
use egress_protocol::{ObjectKey, Timestamp};

use super::ManifestsActor;
use crate::secrets::Declared;
use crate::state::Record;

impl ManifestsActor {
    pub(super) fn tell_of_secrets(&mut self, changed: &BTreeSet<ObjectKey>) {
        if changed.is_empty() {
            return;
        }
        let names = |record: &&Arc<Record>| secrets::named(&record.spec, &record.key.namespace).any(|name| changed.contains(&name));
        let concerned: Vec<ObjectKey> = self.ledger.recorded().filter(names).map(|record| record.key.clone()).collect();
        concerned.iter().for_each(|key| self.tell(key));
    }

    /// Tells the directory of an object as it is recorded, if that is news.
    pub(super) fn tell(&mut self, key: &ObjectKey) {
        if !self.synced {
            return;
        }
        let Some(object) = self.ledger.recorded_of(key).map(|record| self.object(record)) else { return };
        if self.ledger.tell(&object) {
            self.send(ProxiesMessage::Apply { object });
        }
    }

    /// Every object, once the folders were understood.
    pub(super) fn objects(&self) -> Option<Vec<Arc<ProxyObject>>> {
        self.synced.then(|| self.ledger.recorded().map(|record| self.object(record)).collect())
    }

    fn object(&self, record: &Record) -> Arc<ProxyObject> {
        Arc::new(ProxyObject {
            key: record.key.clone(),
            uid: record.uid.clone(),
            generation: record.generation,
            spec: Arc::clone(&record.spec),
            status: Arc::clone(&record.status),
            annotations: record.annotations.clone(),
            deleting: record.deleting,
            finalizer: record.finalizer,
            suspended: !self.args.folders.contain(&record.home.folder),
            cloud_init: secrets::cloud_init(&record.spec, &record.key.namespace, &Declared(&self.secrets)),
            credentials: secrets::credentials(&record.spec, &record.key.namespace, &Declared(&self.secrets)),
        })
    }

    /// Tells everything; once more when the directory was down meanwhile.
    pub(super) fn resend(&mut self) {
        if !self.synced {
            return;
        }
        self.untold = false;
        self.ledger.forget_told();
        let keys: Vec<ObjectKey> = self.ledger.recorded().map(|record| record.key.clone()).collect();
        keys.iter().for_each(|key| self.tell(key));
        let live = self.ledger.recorded().map(|record| record.uid.clone()).collect();
        self.send(ProxiesMessage::Synced { live });
    }

    pub(super) fn send(&mut self, message: ProxiesMessage) {
        self.untold |= self.proxies.send(message).is_err();
    }

    /// Whatever has a record is live: deleting, suspended, its document unreadable, its record not written yet (OG-2). The
    /// ledger is the truth itself, so a reading of it is never stale; before the folders were understood it is not vouched for.
    pub(super) fn live(&self, now: Timestamp) -> LiveSet {
        let uids = self.ledger.decided().map(|(record, _)| record.uid.clone()).collect();
        LiveSet { uids: Arc::new(uids), complete: self.synced, as_of: now }
    }

    pub(super) fn warn_of_suspended(&self) {
        let mut suspended: BTreeMap<&str, usize> = BTreeMap::new();
        for (record, _) in self.ledger.decided().filter(|(record, _)| !self.args.folders.contain(&record.home.folder)) {
            *suspended.entry(&record.home.folder).or_default() += 1;
        }
        for (folder, count) in suspended {
            tracing::warn!(folder, count, "WARNING: objects are suspended because their folder was not given");
        }
    }
}

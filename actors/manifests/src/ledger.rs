//! The objects as they are decided and as they are recorded, and the writes between the two. Pure: what to write is
//! taken out as a batch, what became of it is put back in.
//!
//! What must stay true: an answer leaves only after what it confirms is recorded; the changes of one object are
//! recorded in order, a later one takes the place of one that still waits; an object is told of only as recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egress_protocol::object::ProxyObject;
use egress_protocol::source::SourceError;
use egress_protocol::{ObjectKey, Uid};

use crate::state::{Change, Record};

/// Every object of the process. `W` is who waits for a write.
#[derive(Debug)]
pub(crate) struct Ledger<W> {
    objects: BTreeMap<ObjectKey, Entry<W>>,
    /// Changed since they were last put into a batch.
    dirty: BTreeSet<ObjectKey>,
    /// Those of the batch that is being written.
    writing: Vec<(ObjectKey, Change)>,
}

/// One object.
#[derive(Debug)]
struct Entry<W> {
    decided: Arc<Record>,
    recorded: Option<Arc<Record>>,
    /// It is gone as soon as that is written.
    removing: bool,
    waiting: Vec<W>,
    writing: Vec<W>,
    /// As the directory was last told.
    told: Option<Arc<ProxyObject>>,
}

/// What became of one object of a batch.
#[derive(Debug)]
pub(crate) struct Written<W> {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Uid,
    /// The generation on disk, or why there is none.
    pub(crate) result: Result<i64, SourceError>,
    /// The object is gone for good.
    pub(crate) removed: bool,
    /// Who waited for it.
    pub(crate) waiters: Vec<W>,
}

/// What a request for a write comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<W> {
    /// It is recorded already: answer now, with this generation.
    Already(W, i64),
    /// There is no such object, or no longer.
    Gone(W),
    /// The answer follows the write.
    Waits,
}

impl<W> Ledger<W> {
    /// From what is recorded.
    pub(crate) fn new(records: Vec<Record>) -> Self {
        let entry = |record: Record| {
            let record = Arc::new(record);
            let recorded = Some(Arc::clone(&record));
            (record.key.clone(), Entry { decided: record, recorded, removing: false, waiting: Vec::new(), writing: Vec::new(), told: None })
        };
        Self { objects: records.into_iter().map(entry).collect(), dirty: BTreeSet::new(), writing: Vec::new() }
    }

    /// A new object, to be recorded before anybody hears of it.
    pub(crate) fn create(&mut self, record: Record) {
        let key = record.key.clone();
        let entry =
            Entry { decided: Arc::new(record), recorded: None, removing: false, waiting: Vec::new(), writing: Vec::new(), told: None };
        self.objects.entry(key.clone()).or_insert(entry);
        self.dirty.insert(key);
    }

    /// Changes an object; one that is deleted and held by nothing is on its way out.
    pub(crate) fn change(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Record)) {
        if let Some(entry) = self.objects.get_mut(key) {
            change(Arc::make_mut(&mut entry.decided));
            entry.removing |= entry.decided.deleting && !entry.decided.finalizer;
            self.dirty.insert(key.clone());
        }
    }

    /// A request to change exactly this object; `waiter` is answered when the outcome is recorded.
    pub(crate) fn request(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        waiter: W,
        change: impl FnOnce(&mut Record) -> Result<(), SourceError>,
    ) -> Taken<W> {
        let Some(entry) = self.objects.get_mut(key).filter(|entry| entry.decided.uid == *uid && !entry.removing) else {
            return Taken::Gone(waiter);
        };
        let mut wanted = Arc::clone(&entry.decided);
        if change(Arc::make_mut(&mut wanted)).is_err() {
            return Taken::Gone(waiter);
        }
        if entry.recorded.as_ref() == Some(&wanted) && entry.decided == wanted && !self.writing.iter().any(|(other, _)| other == key) {
            return Taken::Already(waiter, wanted.generation);
        }
        entry.removing |= wanted.deleting && !wanted.finalizer;
        entry.decided = wanted;
        entry.waiting.push(waiter);
        self.dirty.insert(key.clone());
        Taken::Waits
    }

    /// What has to be written, unless a batch is being written still.
    pub(crate) fn take_batch(&mut self) -> Option<Vec<Change>> {
        if !self.writing.is_empty() || self.dirty.is_empty() {
            return None;
        }
        for key in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.objects.get_mut(&key) else { continue };
            entry.writing.append(&mut entry.waiting);
            let change = if entry.removing { Change::Remove(entry.decided.uid.clone()) } else { Change::Put(Arc::clone(&entry.decided)) };
            self.writing.push((key, change));
        }
        Some(self.writing.iter().map(|(_, change)| change.clone()).collect())
    }

    /// What became of the batch, in its order. What failed stays to be written: with the next batch.
    pub(crate) fn finish_batch(&mut self, results: Vec<Result<(), String>>) -> Vec<Written<W>> {
        let lost = std::iter::repeat_with(|| Err("the writer gave no answer".to_owned()));
        let mut finished = Vec::new();
        for ((key, change), result) in std::mem::take(&mut self.writing).into_iter().zip(results.into_iter().chain(lost)) {
            let Some(entry) = self.objects.get_mut(&key) else { continue };
            let uid = entry.decided.uid.clone();
            let mut waiters = std::mem::take(&mut entry.writing);
            match (result, change) {
                (Err(reason), _) => {
                    self.dirty.insert(key.clone());
                    finished.push(Written { key, uid, result: Err(SourceError::Unavailable(reason)), removed: false, waiters });
                }
                (Ok(()), Change::Remove(_)) => {
                    let generation = entry.decided.generation;
                    waiters.append(&mut entry.waiting);
                    self.objects.remove(&key);
                    self.dirty.remove(&key);
                    finished.push(Written { key, uid, result: Ok(generation), removed: true, waiters });
                }
                (Ok(()), Change::Put(record)) => {
                    let generation = record.generation;
                    entry.recorded = Some(record);
                    finished.push(Written { key, uid, result: Ok(generation), removed: false, waiters });
                }
            }
        }
        finished
    }

    /// Somebody waits for a write that is not under way.
    pub(crate) fn is_awaited(&self) -> bool {
        self.dirty.iter().any(|key| self.objects.get(key).is_some_and(|entry| !entry.waiting.is_empty()))
    }

    /// Something waits to be written.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Every object as decided, with whether it is on its way out.
    pub(crate) fn decided(&self) -> impl Iterator<Item = (&Record, bool)> {
        self.objects.values().map(|entry| (&*entry.decided, entry.removing))
    }

    /// Every object that is recorded, as recorded.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.objects.values().filter_map(|entry| entry.recorded.as_ref())
    }

    /// One of them; none that is on its way out.
    pub(crate) fn recorded_of(&self, key: &ObjectKey) -> Option<&Arc<Record>> {
        self.objects.get(key).filter(|entry| !entry.removing).and_then(|entry| entry.recorded.as_ref())
    }

    /// Notes what the directory is told; `false` when that is no news (a status alone is none: it came from there).
    pub(crate) fn tell(&mut self, object: &Arc<ProxyObject>) -> bool {
        let Some(entry) = self.objects.get_mut(&object.key) else { return false };
        if entry.told.as_ref().is_some_and(|told| same_but_status(told, object)) {
            return false;
        }
        entry.told = Some(Arc::clone(object));
        true
    }

    /// The directory has forgotten everything.
    pub(crate) fn forget_told(&mut self) {
        self.objects.values_mut().for_each(|entry| entry.told = None);
    }
}

fn same_but_status(a: &ProxyObject, b: &ProxyObject) -> bool {
    a == &ProxyObject { status: Arc::clone(&a.status), ..b.clone() }
}

#[cfg(test)]
mod tests;

//! What each prober is to probe, kept where its next incarnation and its starter both find it.
//!
//! A prober that is starting or waits for its restart has no mailbox: a new target would be lost. So whoever starts a
//! prober places the target here, and the prober looks before each probe whether it still has the latest.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use dashmap::DashMap;
use egress_protocol::ObjectKey;
use egress_protocol::prober::ProbeTarget;
use egress_supervision::Latest;

/// The slots of all probers that exist.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    slots: DashMap<ObjectKey, Weak<Latest<ProbeTarget>>>,
    placed: AtomicUsize,
}

/// One prober's target.
#[derive(Debug, Clone)]
pub(crate) struct Slot(Arc<Latest<ProbeTarget>>);

impl Targets {
    /// Puts the target into the object's slot, a new one if no prober of it exists.
    pub(crate) fn place(&self, target: Arc<ProbeTarget>) -> Slot {
        if self.placed.fetch_add(1, Ordering::Relaxed) % 1024 == 1023 {
            self.slots.retain(|_, slot| slot.strong_count() > 0);
        }
        let mut entry = self.slots.entry(target.key.clone()).or_default();
        if let Some(slot) = entry.upgrade() {
            slot.put(target);
            return Slot(slot);
        }
        let slot = Arc::new(Latest::from(target));
        *entry = Arc::downgrade(&slot);
        Slot(slot)
    }
}

impl Slot {
    pub(crate) fn load(&self) -> Arc<ProbeTarget> {
        self.0.look()
    }

    pub(crate) fn store(&self, target: Arc<ProbeTarget>) {
        self.0.put(target);
    }

    /// Notes the verdict that stands on `target`, unless there is a newer one by now.
    pub(crate) fn remember(&self, target: &ProbeTarget, verdict: Option<bool>) {
        let noted = Arc::new(ProbeTarget { prior: verdict, ..target.clone() });
        self.0.update(|latest| {
            let same = latest.epoch == target.epoch && latest.uid == target.uid;
            same.then(|| Arc::clone(&noted))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egress_protocol::Uid;
    use egress_protocol::resource::HealthCheck;

    fn target(epoch: u64) -> Arc<ProbeTarget> {
        Arc::new(ProbeTarget {
            key: ObjectKey::new("default", "px-1"),
            uid: Uid::new("u"),
            epoch,
            host: "192.0.2.7".into(),
            port: 3128,
            credentials: None,
            external: false,
            provider: None,
            health_check: HealthCheck::default(),
            prior: None,
        })
    }

    #[test]
    fn a_slot_lives_as_long_as_its_prober() {
        let targets = Targets::default();
        let first = targets.place(target(1));
        let second = targets.place(target(2));
        assert_eq!(first.load().epoch, 2, "the prober that exists sees what was placed later");
        drop((first, second));
        for n in 3..2000 {
            assert_eq!(targets.place(target(n)).load().epoch, n);
        }
        assert!(targets.slots.len() <= 1);
    }

    /// HE-2: a verdict on an older target does not stick to a newer one.
    #[test]
    fn a_late_verdict_does_not_displace_a_newer_target() {
        let slot = Targets::default().place(target(2));
        slot.remember(&target(1), Some(false));
        assert_eq!((slot.load().epoch, slot.load().prior), (2, None));
        slot.remember(&target(2), Some(true));
        assert_eq!((slot.load().epoch, slot.load().prior), (2, Some(true)));
    }
}

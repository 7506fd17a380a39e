//! What the directory and one proxy's actor leave for each other: the latest counts, and a doorbell rings once for all
//! that came since (SV-3). It outlives the incarnations of the actor, so that a restart starts from what was last known.
//!
//! What must stay true: the directory alone writes `orders`, the actor alone writes `recorded` and `member` (but for a
//! given-up actor's status, SV-2); a doorbell that found nobody is forgotten, so that the next one rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use egress_protocol::object::ProxyObject;
use egress_protocol::proxy::ProxyMessage;
use egress_protocol::resource::ProxyStatus;
use egress_supervision::{Address, Latest};

use crate::rollout::{Member, Place};

/// What the directory tells.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub(crate) object: Arc<ProxyObject>,
    pub(crate) provider: Option<Arc<str>>,
    /// The target at the provider that this proxy depends on is down (OP-33).
    pub(crate) provider_down: bool,
    pub(crate) place: Place,
    /// Counts up when the provider freed capacity.
    pub(crate) freed: u64,
    /// Counts up when the broker asks again.
    pub(crate) republish: u64,
}

/// Between the directory and one proxy's actor.
#[derive(Debug)]
pub(crate) struct Desk {
    orders: Latest<Orders>,
    dismissed: AtomicBool,
    recorded: Latest<Option<Arc<ProxyStatus>>>,
    member: Latest<Member>,
}

impl Desk {
    pub(crate) fn new(object: Arc<ProxyObject>, provider: Option<Arc<str>>, provider_down: bool) -> Self {
        Self {
            orders: Latest::new(Orders { object, provider, provider_down, place: Place::None, freed: 0, republish: 0 }),
            dismissed: AtomicBool::new(false),
            recorded: Latest::default(),
            member: Latest::default(),
        }
    }

    /// The directory changes its orders and rings.
    pub(crate) fn order(&self, actor: &Address<ProxyMessage>, change: impl FnOnce(&mut Orders)) {
        self.orders.change(change);
        let _ = self.orders.ring(|| actor.send(ProxyMessage::Wake));
    }

    /// The directory looks at what it ordered.
    pub(crate) fn object(&self) -> Arc<ProxyObject> {
        Arc::clone(&self.orders.look().object)
    }

    /// The directory looks at what it ordered.
    pub(crate) fn provider_down(&self) -> bool {
        self.orders.look().provider_down
    }

    /// The directory ends the actor because the object is gone.
    pub(crate) fn dismiss(&self) {
        self.dismissed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::SeqCst)
    }

    /// The actor reads its orders.
    pub(crate) fn read(&self) -> Arc<Orders> {
        self.orders.read()
    }

    /// The status known to be written last, if it is newer than the object's own.
    pub(crate) fn recorded(&self) -> Option<Arc<ProxyStatus>> {
        self.recorded.look().as_ref().clone()
    }

    /// It was written.
    pub(crate) fn record(&self, status: Arc<ProxyStatus>) {
        self.recorded.put(Arc::new(Some(status)));
    }

    /// What the actor says of itself.
    pub(crate) fn member(&self) -> Member {
        Member::clone(&self.member.look())
    }

    pub(crate) fn set_member(&self, member: Member) {
        self.member.put(Arc::new(member));
    }
}

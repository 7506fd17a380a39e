//! What proxies' actors and people say about proxies: published, gone, probed, cordoned (HE-5, LS-8, LS-16).

use std::sync::Arc;

use egress_protocol::lease::{
    Caller, Cordon, CordonRequest, Entry, FieldError, LeaseError, LeaseState, ProxyAvailability, ProxyFragment, ProxyItem,
};
use egress_protocol::{ObjectKey, Timestamp, Uid};

use super::passing::Ends;
use super::{Book, CordonChange, CordonTurn, PerTarget};

/// Cordons of one proxy at most: each is shown in its item.
const MOST_CORDONS: usize = 100;

impl Book {
    /// A proxy as it is now; the latest counts. Another UID under a known name ends the old object's leases.
    pub fn publish(&mut self, proxy: Arc<ProxyAvailability>, now: Timestamp) {
        self.heard_of(&proxy.uid);
        if self.fleet.by_uid(&proxy.uid).is_some_and(|slot| self.fleet.cold(slot).leaving) {
            // A last word of an actor whose object is gone.
            return;
        }
        let slot = match self.fleet.by_key(&proxy.key) {
            Some(slot) if self.fleet.cold(slot).uid == proxy.uid => slot,
            other => {
                if let Some(old) = other {
                    self.remove_proxy(old, now);
                }
                self.fleet.insert(proxy.key.clone(), proxy.uid.clone(), Arc::new(ProxyFragment::of(&proxy)))
            }
        };
        let old = self.fleet.cold(slot).published.clone();
        let same_choice = old.as_ref().is_some_and(|old| old.attributes == proxy.attributes && old.provider == proxy.provider);
        if !same_choice {
            self.preparing.touched(slot);
            self.selectors.leave(slot, &mut self.fleet);
            self.fleet.unpost(slot);
        }
        let fragment = ProxyFragment::of(&proxy);
        let cold = self.fleet.cold_mut(slot);
        if *cold.fragment != fragment {
            cold.fragment = Arc::new(fragment);
        }
        cold.published = Some(Arc::clone(&proxy));
        if old.is_none() {
            self.introduce(slot, now);
        }
        self.adopt_address(slot, &proxy, now);
        if proxy.healthy && old.is_some_and(|old| !old.healthy) {
            // It can only have become healthy by a probe that passed.
            self.trust(slot);
        }
        let hot = self.fleet.hot_mut(slot);
        let changed = hot.max != proxy.max_leases || hot.needs_credentials != proxy.credentials.is_some();
        hot.max = proxy.max_leases;
        hot.needs_credentials = proxy.credentials.is_some();
        let reopened = self.reopen(slot);
        self.mind_drain(slot, &proxy, now);
        if !same_choice {
            self.fleet.post(slot);
            self.selectors.join(slot, &mut self.fleet);
        } else if changed && !reopened {
            self.selectors.changed(slot, &self.fleet);
        }
    }

    /// First sight of an object: what the journal kept for it holds again.
    fn introduce(&mut self, slot: u32, now: Timestamp) {
        let uid = self.fleet.cold(slot).uid.clone();
        if let Some(cordons) = self.waiting_cordons.remove(&uid) {
            for (target, cordon) in cordons.iter() {
                self.place(slot, &target.cloned(), cordon.clone(), now);
            }
        }
        for target in self.cooldown_targets(&uid) {
            self.refresh_cooling(slot, &target, now);
        }
    }

    /// A probe passed: three failing reports no longer count (LS-7).
    pub fn probe_passed(&mut self, key: &ObjectKey, uid: &Uid) {
        if let Some(slot) = self.fleet.by_key(key).filter(|slot| self.fleet.cold(*slot).uid == *uid) {
            self.trust(slot);
        }
    }

    pub(crate) fn trust(&mut self, slot: u32) {
        self.fleet.cold_mut(slot).strikes.clear();
        if std::mem::take(&mut self.fleet.hot_mut(slot).distrusted) {
            self.selectors.changed(slot, &self.fleet);
        }
    }

    /// The object is gone: its leases are revoked. Ignored for another UID than the known one.
    pub fn withdraw(&mut self, key: &ObjectKey, uid: &Uid, now: Timestamp) {
        self.heard_of(uid);
        if let Some(slot) = self.fleet.by_key(key).filter(|slot| self.fleet.cold(*slot).uid == *uid) {
            if self.goes_before_its_leases(slot) { self.leave_with_leases(slot, now) } else { self.remove_proxy(slot, now) }
        }
    }

    pub(crate) fn remove_proxy(&mut self, slot: u32, now: Timestamp) {
        self.preparing.touched(slot);
        self.selectors.leave(slot, &mut self.fleet);
        self.set_drain(slot, None);
        let running: Vec<u32> = self.leases.of(self.fleet.cold(slot).first_lease).collect();
        for lease in running {
            self.end(lease, LeaseState::Revoked, "deleted", now);
        }
        self.drop_cooldowns(slot, now);
        let cordons: Vec<Option<Arc<str>>> = self.fleet.cold(slot).cordons.iter().map(|(target, _)| target.cloned()).collect();
        if !cordons.is_empty() {
            self.effects.entries.push(Entry::CordonsDropped { uid: self.fleet.cold(slot).uid.clone() });
        }
        for target in cordons {
            self.set_cordon(slot, &target, None);
        }
        self.fleet.remove(slot);
    }

    /// Proxies that only the journal knows and nobody published for 10 minutes: they are gone.
    pub(crate) fn drop_unknown(&mut self, now: Timestamp) {
        let silent = |slot: &u32| self.fleet.cold(*slot).published.is_none() && !self.fleet.cold(*slot).leaving;
        let unknown: Vec<u32> = self.fleet.slots().filter(silent).collect();
        for slot in unknown {
            self.remove_proxy(slot, now);
        }
        for (uid, _) in std::mem::take(&mut self.waiting_cordons) {
            self.effects.entries.push(Entry::CordonsDropped { uid });
        }
    }

    fn cordonable(&self, key: &ObjectKey, caller: &Caller) -> Result<u32, LeaseError> {
        if caller.anonymous {
            return Err(LeaseError::Unauthorized);
        }
        if !caller.all {
            return Err(LeaseError::Forbidden);
        }
        self.seen(key, caller).ok_or(LeaseError::UnknownProxy)
    }

    /// A published proxy that the caller may see.
    pub(crate) fn seen(&self, key: &ObjectKey, caller: &Caller) -> Option<u32> {
        let slot = self.fleet.by_key(key)?;
        (caller.sees_namespace(&key.namespace) && self.fleet.cold(slot).published.is_some()).then_some(slot)
    }

    /// Takes a proxy out by hand (LS-16); running leases stay.
    pub fn cordon(&mut self, key: &ObjectKey, request: &CordonRequest, caller: &Caller, now: Timestamp) -> Result<ProxyItem, LeaseError> {
        let slot = self.cordonable(key, caller)?;
        let cordons = &self.fleet.cold(slot).cordons;
        if cordons.len() >= MOST_CORDONS && cordons.get(request.target.as_ref()).is_none() {
            let message = format!("the proxy is cordoned for {MOST_CORDONS} targets already: lift one, or cordon it for every target");
            return Err(LeaseError::Invalid(vec![FieldError::new("target", message)]));
        }
        let cordon = Cordon { until: request.until, reason: Arc::clone(&request.reason), by: Arc::clone(&caller.token_name) };
        let uid = self.fleet.cold(slot).uid.clone();
        self.effects.entries.push(Entry::Cordoned { uid, target: request.target.clone(), cordon: cordon.clone() });
        self.tell_of_cordon(slot, &request.target, CordonTurn::Placed(cordon.clone()));
        self.place(slot, &request.target, cordon, now);
        self.item(slot).ok_or(LeaseError::UnknownProxy)
    }

    /// The system clock was set forward by so many milliseconds, or back: cordons that end at a time of day still end then. What has a
    /// length (leases, cooldowns, drains) keeps it.
    pub fn clock_set(&mut self, millis: i64, now: Timestamp) {
        let moved = |cordon: &Cordon| {
            let until = Timestamp::from_millis(cordon.until?.as_millis().saturating_sub(millis));
            Some(Cordon { until: Some(until), ..cordon.clone() })
        };
        let of = |cordons: &PerTarget<Cordon>| -> Vec<(Option<Arc<str>>, Cordon)> {
            cordons.iter().filter_map(|(target, cordon)| Some((target.cloned(), moved(cordon)?))).collect()
        };
        for (uid, cordons) in &mut self.waiting_cordons {
            for (target, cordon) in of(cordons) {
                self.effects.entries.push(Entry::Cordoned { uid: uid.clone(), target: target.clone(), cordon: cordon.clone() });
                cordons.set(target.as_ref(), Some(cordon));
            }
        }
        let slots: Vec<u32> = self.fleet.slots().collect();
        for slot in slots {
            for (target, cordon) in of(&self.fleet.cold(slot).cordons) {
                if cordon.until.is_some_and(|until| until <= now) {
                    self.lift(slot, &target, None);
                    continue;
                }
                let uid = self.fleet.cold(slot).uid.clone();
                self.effects.entries.push(Entry::Cordoned { uid, target: target.clone(), cordon: cordon.clone() });
                self.set_cordon(slot, &target, Some(cordon));
            }
        }
    }

    /// Lifts a cordon; one that is not there is lifted too.
    pub fn uncordon(&mut self, key: &ObjectKey, target: Option<&Arc<str>>, caller: &Caller) -> Result<(), LeaseError> {
        let slot = self.cordonable(key, caller)?;
        if self.fleet.cold(slot).cordons.get(target).is_some() {
            self.lift(slot, &target.cloned(), Some(&caller.token_name));
        }
        Ok(())
    }

    fn place(&mut self, slot: u32, target: &Option<Arc<str>>, cordon: Cordon, now: Timestamp) {
        if cordon.until.is_some_and(|until| until <= now) {
            let uid = self.fleet.cold(slot).uid.clone();
            self.effects.entries.push(Entry::Uncordoned { uid, target: target.clone() });
            return;
        }
        self.set_cordon(slot, target, Some(cordon));
    }

    fn set_cordon(&mut self, slot: u32, target: &Option<Arc<str>>, cordon: Option<Cordon>) {
        let was_blocked = self.is_blocked(slot, target);
        let ends = cordon.as_ref().and_then(|cordon| cordon.until);
        let old = self.fleet.cold_mut(slot).cordons.set(target.as_ref(), cordon);
        self.deadlines.moved(Ends::Cordon, slot, target, old.and_then(|old| old.until), ends);
        self.reblock(slot, target, was_blocked);
    }

    /// `by`: who lifts it; `None`: its time is over.
    pub(crate) fn lift(&mut self, slot: u32, target: &Option<Arc<str>>, by: Option<&Arc<str>>) {
        let uid = self.fleet.cold(slot).uid.clone();
        self.effects.entries.push(Entry::Uncordoned { uid, target: target.clone() });
        self.tell_of_cordon(slot, target, by.map_or(CordonTurn::Over, |by| CordonTurn::Lifted(Arc::clone(by))));
        self.set_cordon(slot, target, None);
    }

    fn tell_of_cordon(&mut self, slot: u32, target: &Option<Arc<str>>, what: CordonTurn) {
        let cold = self.fleet.cold(slot);
        self.effects.cordons.push(CordonChange { key: cold.key.clone(), uid: cold.uid.clone(), target: target.clone(), what });
    }

    /// Lifts a cooldown of a proxy and of its address; one that is not there is lifted too. Whether there was one is for
    /// the log.
    pub fn lift_cooldown(
        &mut self,
        key: &ObjectKey,
        target: Option<&Arc<str>>,
        caller: &Caller,
        now: Timestamp,
    ) -> Result<bool, LeaseError> {
        let slot = self.cordonable(key, caller)?;
        Ok(self.warm(slot, &target.cloned(), now))
    }

    pub(crate) fn is_blocked(&self, slot: u32, target: &Option<Arc<str>>) -> bool {
        target.as_ref().is_some_and(|target| self.fleet.cold(slot).blocked_for(target))
    }

    /// After a cooldown or a cordon came or went: the indexes and the count of the target follow.
    pub(crate) fn reblock(&mut self, slot: u32, target: &Option<Arc<str>>, was_blocked: bool) {
        let Some(target) = target else {
            self.reopen(slot);
            return;
        };
        match (was_blocked, self.fleet.cold(slot).blocked_for(target)) {
            (false, true) => self.targets.block(target),
            (true, false) => self.targets.unblock(target),
            (true, true) | (false, false) => return,
        }
        self.selectors.changed(slot, &self.fleet);
    }

    fn is_open(&self, slot: u32) -> bool {
        let cold = self.fleet.cold(slot);
        cold.is_well() && self.fleet.hot(slot).max > 0 && cold.cordons.general.is_none() && cold.cooling.general.is_none()
    }

    /// Brings [`super::fleet::Hot::open`] up to date; whether it changed.
    pub(super) fn reopen(&mut self, slot: u32) -> bool {
        let open = self.is_open(slot);
        let changed = self.fleet.hot(slot).open != open;
        if changed {
            self.fleet.hot_mut(slot).open = open;
            self.selectors.changed(slot, &self.fleet);
        }
        changed
    }

    #[cfg(test)]
    pub(crate) fn check_deadlines(&self) -> Result<(), String> {
        let mut wanted = 0;
        for slot in self.fleet.slots() {
            let cold = self.fleet.cold(slot);
            let cooling = cold.cooling.iter().map(|(target, cooling)| (Ends::Cooling, target, Some(cooling.until)));
            let cordons = cold.cordons.iter().map(|(target, cordon)| (Ends::Cordon, target, cordon.until));
            let drain = cold.drain_by.map(|by| (Ends::Drain, None, Some(by)));
            for (what, target, until) in cooling.chain(cordons).chain(drain) {
                let Some(until) = until else { continue };
                wanted += 1;
                if !self.deadlines.has(until, what, slot, target) {
                    return Err(format!("{what:?} of {} for {target:?} ends without a deadline", cold.key));
                }
            }
        }
        if wanted == self.deadlines.len() { Ok(()) } else { Err(format!("{wanted} deadlines wanted, {} wait", self.deadlines.len())) }
    }

    #[cfg(test)]
    pub(crate) fn check_openness(&self) -> Result<(), String> {
        for slot in self.fleet.slots() {
            if self.fleet.hot(slot).open != self.is_open(slot) {
                return Err(format!("{} is not as open as it says", self.fleet.cold(slot).key));
            }
        }
        Ok(())
    }
}

//! Cooldowns: how long, whose, and what they close (LS-7).
//!
//! What must stay true: `Cold::cooling` holds the later of the proxy's own cooldown and its address's, for every target
//! where one is in force; the journal is told of every change; no token's name holds more than its share.

mod table;

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::{Cooldown, CooldownOwner, Entry, ProxyAvailability, ReportResult};
use egress_protocol::net::globally_reachable;
use egress_protocol::{Timestamp, Uid};

use super::Book;
use super::fleet::Cooling;
use super::passing::Ends;
pub(crate) use table::Cooldowns;

/// After so long without a report that cools, the next one starts from the beginning; an address that nobody holds is
/// remembered as long.
const FORGIVEN_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Cooldowns remembered at most, of a fleet that is not large; half of them for one token's name.
const MAX_COOLDOWNS: usize = 200_000;
/// Of a large fleet: as many for each proxy.
const COOLDOWNS_PER_PROXY: usize = 4;

/// First and longest cooldown by result.
const fn scale(result: ReportResult) -> (Duration, Duration) {
    match result {
        ReportResult::RateLimited => (Duration::from_secs(60), Duration::from_secs(30 * 60)),
        ReportResult::Success | ReportResult::Blocked | ReportResult::Captcha | ReportResult::Timeout | ReportResult::Error => {
            (Duration::from_secs(10 * 60), Duration::from_secs(6 * 3600))
        }
    }
}

/// What a report makes of the cooldown before it: it doubles only when the reporting lease was granted after that one
/// had ended; `explicit` is taken as given; the later end wins.
pub(crate) fn next(
    before: Option<Cooldown>,
    result: ReportResult,
    explicit: Option<Duration>,
    granted_at: Timestamp,
    now: Timestamp,
) -> Cooldown {
    let recent = before.filter(|before| now.since(before.reported_at) < FORGIVEN_AFTER || before.until > now);
    let level = recent.and_then(|before| before.level);
    let (level, length) = match (explicit, level, recent) {
        (Some(length), level, _) => (level, length),
        (None, Some(level), Some(before)) if granted_at < before.until => (Some(level), doubled(result, level)),
        (None, Some(level), _) => (Some(level.saturating_add(1)), doubled(result, level.saturating_add(1))),
        (None, None, _) => (Some(0), doubled(result, 0)),
    };
    let until = now + length;
    match recent {
        Some(before) if before.until > until => Cooldown { until: before.until, level, reported_at: now, reason: before.reason },
        Some(_) | None => Cooldown { until, level, reported_at: now, reason: result },
    }
}

fn doubled(result: ReportResult, level: u8) -> Duration {
    let (first, longest) = scale(result);
    first.saturating_mul(1 << level.min(20)).min(longest)
}

fn later(a: Option<Cooldown>, b: Option<Cooldown>) -> Option<Cooldown> {
    match (a, b) {
        (Some(a), Some(b)) => {
            let (last, other) = if a.until >= b.until { (a, b) } else { (b, a) };
            Some(Cooldown { level: last.level.max(other.level), reported_at: last.reported_at.max(other.reported_at), ..last })
        }
        (one, None) | (None, one) => one,
    }
}

impl Book {
    fn owners(&self, slot: u32) -> (CooldownOwner, Option<CooldownOwner>) {
        let cold = self.fleet.cold(slot);
        (CooldownOwner::Object(cold.uid.clone()), cold.address().cloned().map(CooldownOwner::Address))
    }

    /// What holds for a proxy and a target: its own or its address's.
    pub(crate) fn cooldown(&self, slot: u32, target: &Option<Arc<str>>) -> Option<Cooldown> {
        let (own, address) = self.owners(slot);
        later(self.cooldowns.get(&own, target), address.and_then(|address| self.cooldowns.get(&address, target)))
    }

    /// Whether a report of `by` may begin a cooldown of a proxy and of its address.
    pub(crate) fn may_cool(&mut self, slot: u32, target: &Option<Arc<str>>, by: &Arc<str>, now: Timestamp) -> bool {
        let most = MAX_COOLDOWNS.max(self.fleet.len() * COOLDOWNS_PER_PROXY);
        let (own, address) = self.owners(slot);
        std::iter::once(own).chain(address).all(|owner| self.cooldowns.has_room(&owner, target, by, most, now, &mut self.effects.entries))
    }

    /// Sets the cooldown of a proxy and of its address, and closes whoever has that address.
    pub(crate) fn cool(&mut self, slot: u32, target: &Option<Arc<str>>, cooldown: Cooldown, by: &Arc<str>, now: Timestamp) {
        let (own, address) = self.owners(slot);
        self.store(own, target, cooldown, by);
        if let Some(address) = address {
            self.store(address, target, cooldown, by);
        }
        for holder in self.sharing(slot) {
            self.refresh_cooling(holder, target, now);
        }
    }

    /// The proxies that cool together with one, itself included.
    fn sharing(&self, slot: u32) -> Vec<u32> {
        let address = self.fleet.cold(slot).address().cloned().map(CooldownOwner::Address);
        address.and_then(|address| self.cooldowns.holders(&address)).map_or_else(|| vec![slot], <[u32]>::to_vec)
    }

    fn store(&mut self, owner: CooldownOwner, target: &Option<Arc<str>>, cooldown: Cooldown, by: &Arc<str>) {
        let by = self.cooldowns.set(owner.clone(), target.clone(), cooldown, by);
        self.effects.entries.push(Entry::Cooled { owner, target: target.clone(), cooldown, by });
    }

    /// Ends the cooldown of a proxy and of its address, and what is remembered for the next one; whether there was any.
    pub(crate) fn warm(&mut self, slot: u32, target: &Option<Arc<str>>, now: Timestamp) -> bool {
        let (own, address) = self.owners(slot);
        let mut was_there = false;
        for owner in std::iter::once(own).chain(address) {
            if self.cooldowns.drop_one(&owner, target) {
                was_there = true;
                self.effects.entries.push(Entry::CooldownDropped { owner, target: target.clone() });
            }
        }
        for holder in self.sharing(slot) {
            self.refresh_cooling(holder, target, now);
        }
        was_there
    }

    /// A success: the next cooldown for that target starts from the beginning.
    pub(crate) fn forgive(&mut self, slot: u32, target: &Option<Arc<str>>, by: &Arc<str>) {
        let (own, address) = self.owners(slot);
        for owner in std::iter::once(own).chain(address) {
            if let Some(cooldown) = self.cooldowns.get(&owner, target)
                && cooldown.level.is_some()
            {
                self.store(owner, target, Cooldown { level: None, ..cooldown }, by);
            }
        }
    }

    /// Brings what a proxy shows for a target up to date with what its owners have.
    pub(crate) fn refresh_cooling(&mut self, slot: u32, target: &Option<Arc<str>>, now: Timestamp) {
        let force = self.cooldown(slot, target).filter(|cooldown| cooldown.until > now);
        let cooling = force.map(|cooldown| Cooling { until: cooldown.until, reason: cooldown.reason });
        let old = self.fleet.cold(slot).cooling.get(target.as_ref()).copied();
        if old == cooling {
            return;
        }
        self.set_cooling(slot, target, cooling);
    }

    fn set_cooling(&mut self, slot: u32, target: &Option<Arc<str>>, cooling: Option<Cooling>) {
        let was_blocked = self.is_blocked(slot, target);
        let old = self.fleet.cold_mut(slot).cooling.set(target.as_ref(), cooling);
        self.deadlines.moved(Ends::Cooling, slot, target, old.map(|old| old.until), cooling.map(|new| new.until));
        self.reblock(slot, target, was_blocked);
    }

    /// A published proxy's addresses: a changed one ends the object's own cooldowns, the new one brings its own.
    pub(crate) fn adopt_address(&mut self, slot: u32, proxy: &ProxyAvailability, now: Timestamp) {
        let global_ip = proxy.ip.as_ref().filter(|ip| ip.parse().is_ok_and(globally_reachable));
        let cold = self.fleet.cold(slot);
        let before = cold.address().cloned();
        let differs = |old: &Option<Arc<str>>, new: Option<&Arc<str>>| matches!((old, new), (Some(old), Some(new)) if old != new);
        let changed = match (&cold.egress, &proxy.egress_ip) {
            (None, None) => differs(&cold.global_ip, global_ip),
            (old, new) => differs(old, new.as_ref()),
        };
        let cold = self.fleet.cold_mut(slot);
        if proxy.egress_ip.is_some() {
            cold.egress.clone_from(&proxy.egress_ip);
        }
        if global_ip.is_some() {
            cold.global_ip = global_ip.cloned();
        }
        let after = cold.address().cloned();
        if before == after && !changed {
            return;
        }
        let own = CooldownOwner::Object(cold.uid.clone());
        let mut touched = self.cooldowns.targets(&own);
        if changed && self.cooldowns.drop_all(&own) {
            self.effects.entries.push(Entry::CooldownsDropped { owner: own.clone() });
        }
        if before != after {
            touched.extend(self.change_address(slot, &own, before, after, now));
        }
        for target in touched {
            self.refresh_cooling(slot, &target, now);
        }
    }

    /// The targets of which something may have changed.
    fn change_address(
        &mut self,
        slot: u32,
        own: &CooldownOwner,
        before: Option<Arc<str>>,
        after: Option<Arc<str>>,
        now: Timestamp,
    ) -> Vec<Option<Arc<str>>> {
        let mut touched = Vec::new();
        if let Some(before) = before {
            touched.extend(self.leave_address(slot, &before, now));
        }
        if let Some(after) = after {
            let address = CooldownOwner::Address(after);
            // Learnt, not changed: what the object has, its address has.
            for target in self.cooldowns.targets(own) {
                if let Some(cooldown) = later(self.cooldowns.get(own, &target), self.cooldowns.get(&address, &target)) {
                    let by = self.cooldowns.begun_by(own, &target);
                    self.store(address.clone(), &target, cooldown, &by);
                }
            }
            self.cooldowns.hold(&address, slot);
            touched.extend(self.cooldowns.targets(&address));
        }
        touched
    }

    fn leave_address(&mut self, slot: u32, address: &Arc<str>, now: Timestamp) -> Vec<Option<Arc<str>>> {
        let address = CooldownOwner::Address(Arc::clone(address));
        let targets = self.cooldowns.targets(&address);
        self.cooldowns.let_go(&address, slot, now);
        targets
    }

    /// The object is gone: its own cooldowns end, its address keeps its.
    pub(crate) fn drop_cooldowns(&mut self, slot: u32, now: Timestamp) {
        let (own, _) = self.owners(slot);
        if self.cooldowns.drop_all(&own) {
            self.effects.entries.push(Entry::CooldownsDropped { owner: own });
        }
        if let Some(address) = self.fleet.cold(slot).address().cloned() {
            self.leave_address(slot, &address, now);
        }
        let targets: Vec<Option<Arc<str>>> = self.fleet.cold(slot).cooling.iter().map(|(target, _)| target.cloned()).collect();
        for target in targets {
            self.set_cooling(slot, &target, None);
        }
    }

    /// The targets for which the journal kept a cooldown of an object.
    pub(crate) fn cooldown_targets(&self, uid: &Uid) -> Vec<Option<Arc<str>>> {
        self.cooldowns.targets(&CooldownOwner::Object(uid.clone()))
    }

    pub(crate) fn sweep_cooldowns(&mut self, now: Timestamp) {
        let fleet = &self.fleet;
        let waiting = self.unknown_until.is_some();
        self.cooldowns.sweep(now, |uid| waiting || fleet.by_uid(uid).is_some(), &mut self.effects.entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn blocked(before: Option<Cooldown>, granted: i64, now: i64) -> Cooldown {
        next(before, ReportResult::Blocked, None, at(granted), at(now))
    }

    #[test]
    fn a_cooldown_doubles_up_to_six_hours_ls_7() {
        let mut cooldown = blocked(None, 0, 0);
        let mut now = 0;
        for minutes in [10, 20, 40, 80, 160, 320, 360, 360] {
            assert_eq!(cooldown.until, at(now + minutes * 60));
            now += minutes * 60;
            cooldown = blocked(Some(cooldown), now, now);
        }
    }

    #[test]
    fn ten_holders_who_meet_one_ban_count_once_ls_7() {
        let mut cooldown = blocked(None, 0, 0);
        for second in 1..10 {
            cooldown = blocked(Some(cooldown), 0, second);
        }
        assert_eq!((cooldown.level, cooldown.until), (Some(0), at(609)));
        let late = blocked(Some(cooldown), 0, 700);
        assert_eq!((late.level, late.until), (Some(0), at(1300)), "a lease from before the cooldown does not double it after its end");
        let doubled = blocked(Some(cooldown), 609, 700);
        assert_eq!((doubled.level, doubled.until), (Some(1), at(1900)));
    }

    #[test]
    fn rate_limits_cool_from_a_minute_to_half_an_hour_ls_7() {
        let mut now = 0;
        let mut cooldown = None;
        for seconds in [60, 120, 240, 480, 960, 1800, 1800] {
            let next = next(cooldown, ReportResult::RateLimited, None, at(now), at(now));
            assert_eq!(next.until, at(now + seconds));
            now += seconds;
            cooldown = Some(next);
        }
    }

    #[test]
    fn an_explicit_cooldown_is_taken_as_given_and_the_later_end_wins_ls_7() {
        let long = next(None, ReportResult::Blocked, Some(Duration::from_secs(3600)), at(0), at(0));
        assert_eq!((long.until, long.level), (at(3600), None));
        let short = next(Some(long), ReportResult::Captcha, Some(Duration::from_secs(1)), at(0), at(10));
        assert_eq!((short.until, short.reason), (at(3600), ReportResult::Blocked));
        let none = next(None, ReportResult::Blocked, Some(Duration::ZERO), at(0), at(5));
        assert_eq!(none.until, at(5));
    }

    #[test]
    fn a_success_or_a_day_without_reports_starts_from_the_beginning_ls_7() {
        let cooldown = blocked(Some(blocked(None, 0, 0)), 600, 600);
        assert_eq!(cooldown.level, Some(1));
        assert_eq!(blocked(Some(Cooldown { level: None, ..cooldown }), 1800, 1800).level, Some(0));
        let day = 24 * 3600;
        assert_eq!(blocked(Some(cooldown), 600 + day - 1, 600 + day - 1).level, Some(2));
        assert_eq!(blocked(Some(cooldown), 600 + day, 600 + day).level, Some(0));
    }
}

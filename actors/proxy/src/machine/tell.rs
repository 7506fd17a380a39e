//! What the world is told of the machine's state: prober, lease book, rollout, status and the timer, in this order
//! (HE-5: leasing learns of a change before it is written).

use std::sync::Arc;

use egress_protocol::Timestamp;
use egress_protocol::lease::ProxyAvailability;
use egress_protocol::object::CloudInit;
use egress_protocol::prober::ProbeTarget;
use egress_protocol::provider::Op;
use egress_protocol::resource::conditions::{cut_bytes, reason};
use egress_protocol::source::EventReason;

use super::{Effect, Machine};
use crate::rollout::{Member, Place, Want};
use crate::status::{Facts, Said};

/// What was said last.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    availability: Option<Arc<ProxyAvailability>>,
    target: Option<Arc<ProbeTarget>>,
    member: Option<Member>,
    timer: Option<Timestamp>,
    announced: Option<(EventReason, String)>,
    foreign: Option<String>,
}

impl Told {
    pub(super) fn forget_availability(&mut self) {
        self.availability = None;
    }

    pub(super) const fn forget_timer(&mut self) {
        self.timer = None;
    }

    pub(super) const fn timer(&self) -> Option<Timestamp> {
        self.timer
    }

    pub(super) const fn target(&self) -> Option<&Arc<ProbeTarget>> {
        self.target.as_ref()
    }

    pub(super) fn set_target(&mut self, target: Option<Arc<ProbeTarget>>) {
        self.target = target;
    }
}

impl Machine {
    pub(super) fn tell(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        let owner = self.owner_of(&self.object).map(str::to_owned);
        if let Some(owner) = &owner
            && self.told.foreign.as_ref() != Some(owner)
        {
            out.push(Effect::Foreign { owner: owner.clone() });
        }
        self.told.foreign = owner;
        self.mind_prober(out);
        let availability = self.facts().availability();
        if self.told.availability.as_deref() != Some(&availability) {
            let availability = Arc::new(availability);
            self.told.availability = Some(Arc::clone(&availability));
            out.push(Effect::Publish(availability));
        }
        let member = self.member();
        if self.told.member.as_ref() != Some(&member) {
            self.told.member = Some(member.clone());
            out.push(Effect::Member(member));
        }
        self.write_status(now, out);
        if self.told.timer != self.wake {
            self.told.timer = self.wake;
            out.push(Effect::SetTimer(self.wake));
        }
    }

    fn member(&self) -> Member {
        if !self.object.is_managed() || self.parked() {
            return Member::default();
        }
        Member {
            secret: self.secret(),
            provider: self.object.spec.provider.as_deref().map(Arc::from),
            healthy: self.serving() && !self.object.deleting,
            wants: self.wants(),
        }
    }

    /// Says a transition once.
    pub(super) fn announce(&mut self, reason: EventReason, note: String, out: &mut Vec<Effect>) {
        let note = cut_bytes(&note, 1024).to_owned();
        if self.told.announced.as_ref() == Some(&(reason, note.clone())) {
            return;
        }
        self.told.announced = Some((reason, note.clone()));
        out.push(Effect::Announce { reason, note });
    }

    /// The finalizer is about to be released.
    pub(super) fn announce_end(&mut self, out: &mut Vec<Effect>) {
        if !self.object.is_managed() {
            return;
        }
        if self.object.annotations.skip_cleanup && !self.absent {
            let note = match &self.id {
                Some(id) => format!("instance {id} was left as it is, as the annotation asks"),
                None => "whatever exists was left as it is, as the annotation asks".to_owned(),
            };
            self.announce(EventReason::CleanupSkipped, note, out);
        } else {
            self.announce(EventReason::Deleted, "nothing of it is left".to_owned(), out);
        }
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        Facts {
            object: &self.object,
            attributes: &self.attributes,
            installation: &self.installation,
            hash: self.hash.as_deref(),
            id: self.id.as_ref(),
            address: self.address(),
            port: self.port,
            provisioned: self.object.is_managed().then(|| self.provisioned()),
            healthy: self.healthy(),
            latest: self.health.latest(),
            check_url_suspect: self.health.suspect(),
            failed: self.latch.is_some(),
            paused: self.sight.paused.is_some(),
            draining: self.object.deleting
                || self.replacing
                || self.drains()
                || self.doom.is_some()
                || self.purge.is_some()
                || self.parked(),
            drain_by: self.drain_by(),
            confirmed: self.sight.confirmed && !self.parked(),
            egress: self.health.egress,
            latency_millis: self.health.latency_millis,
            checked_at: self.health.checked_at,
            turned_at: self.health.turned_at.as_ref(),
        }
    }

    /// The condition `Provisioned` (OP-7).
    fn provisioned(&self) -> Said {
        let no = |reason, message: String| Said::new(false, reason, message);
        let detail = || self.sight.detail.clone().unwrap_or_default();
        if self.object.deleting {
            if let Some(by) = self.drain_by() {
                return no(reason::PROVISIONING, format!("the instance is deleted when its leases have ended, at {by} at the latest"));
            }
            return match (&self.provider, &self.trouble) {
                (None, _) => no(reason::PROVIDER_NOT_CONFIGURED, self.not_configured()),
                (_, Some(trouble)) => no(trouble.reason, trouble.message.clone()),
                _ => no(reason::PROVISIONING, with_detail("the instance is being deleted", &detail())),
            };
        }
        if let Some(latch) = &self.latch {
            return no(latch.reason, latch.message.clone());
        }
        if self.provider.is_none() {
            let status = self.sight.address.is_some() && !self.replacing;
            return Said::new(status, reason::PROVIDER_NOT_CONFIGURED, self.not_configured());
        }
        if self.replacing {
            let why = self.trouble.as_ref().map_or_else(detail, |trouble| trouble.message.clone());
            return no(reason::REPLACING, with_detail("the instance is being replaced", &why));
        }
        if let Some(doom) = &self.doom {
            return match &self.trouble {
                Some(trouble) => no(trouble.reason, trouble.message.clone()),
                None => {
                    let (why, detail) = (format!("{}; it is replaced", doom.message), detail());
                    let said = if doom.message.contains(&detail) { why } else { with_detail(&why, &detail) };
                    no(doom.reason, said)
                }
            };
        }
        if let Some(cause) = &self.sight.paused {
            return no(reason::PAUSED, cause.clone());
        }
        let runs = self.sight.address.is_some();
        if let CloudInit::Unresolved { message } = &self.object.cloud_init
            && (runs || self.id.is_none())
        {
            return Said::new(runs, reason::CLOUD_INIT_UNRESOLVED, message.clone());
        }
        if let Some(trouble) = &self.trouble {
            return Said::new(runs, trouble.reason, trouble.message.clone());
        }
        if runs {
            let message = if self.outdated() { self.waits_for_its_turn() } else { detail() };
            return Said::new(true, reason::PROVISIONED, message);
        }
        self.provisioning(&detail())
    }

    /// Nothing stands in the way; it is not there yet.
    fn provisioning(&self, detail: &str) -> Said {
        let creating = self.flight.as_ref().is_some_and(|flight| flight.op == Op::Create);
        let waits = match &self.progress {
            Some(progress) if creating => progress.as_str(),
            _ if !detail.is_empty() => detail,
            _ => "waiting for the instance to run",
        };
        if self.timeouts > 0 {
            return Said::new(false, reason::PROVISIONING_TIMEOUT, format!("the instance before had no address in time; {waits}"));
        }
        let message = match (&self.tries.last, self.tries.failed) {
            (Some(last), 1) => format!("one instance ended soon after its creation: it {last}; {waits}"),
            (Some(last), failed @ 2..) => format!("{failed} instances ended soon after their creation, the last one {last}; {waits}"),
            _ => waits.to_owned(),
        };
        Said::new(false, reason::PROVISIONING, message)
    }

    fn not_configured(&self) -> String {
        format!("there is no provider {} in the providers file", self.object.spec.provider.as_deref().unwrap_or_default())
    }

    fn waits_for_its_turn(&self) -> String {
        if let Some(by) = self.drain_by() {
            return format!("its definition changed; it is replaced when its leases have ended, at {by} at the latest");
        }
        match &self.place {
            Place::Waiting { behind: Some(behind) } => {
                format!("its definition changed; it waits for its turn to be replaced, behind {behind}, which is not Healthy")
            }
            Place::Granted(Want::Rollout) => "its definition changed; its turn to be replaced has come".to_owned(),
            _ => "its definition changed; it waits for its turn to be replaced".to_owned(),
        }
    }
}

fn with_detail(text: &str, detail: &str) -> String {
    if detail.is_empty() { text.to_owned() } else { format!("{text}: {detail}") }
}

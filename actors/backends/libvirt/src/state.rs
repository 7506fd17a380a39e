//! What libvirt says of a domain's state, and what it means (§10, LV-135). Pure.

use egress_libvirt::procedures::DomainState;
use egress_protocol::provider::InstanceState;

const NO_STATE: i32 = 0;
const RUNNING: i32 = 1;
const BLOCKED: i32 = 2;
const PAUSED: i32 = 3;
const SHUTTING_DOWN: i32 = 4;
const SHUT_OFF: i32 = 5;
const CRASHED: i32 = 6;
const SUSPENDED: i32 = 7;

/// Why a domain is paused, of those reasons that matter.
mod paused {
    pub(super) const CRASHED: i32 = 10;
    pub(super) const STARTING_UP: i32 = 11;
    pub(super) const POSTCOPY_FAILED: i32 = 13;
}

/// A domain as the contract sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Not usable yet.
    Provisioning,
    /// Up: with an address it is `Running`, without one `Provisioning`.
    Up,
    /// Frozen with its memory kept: by a full pool, or by an admin. To delete it would destroy it for nothing (LV-153).
    Paused(String),
    /// Down unless someone acts.
    Stopped,
}

impl Seen {
    /// The contract's word, once the address is known or known to be absent.
    pub fn instance_state(&self, address: bool) -> InstanceState {
        match self {
            Self::Up if address => InstanceState::Running,
            Self::Up | Self::Provisioning => InstanceState::Provisioning,
            Self::Paused(_) => InstanceState::Paused,
            Self::Stopped => InstanceState::Stopped,
        }
    }
}

/// What a domain in this state is. A state that libvirt has invented since counts as stopped.
pub fn seen(DomainState { state, reason }: DomainState) -> Seen {
    match (state, reason) {
        (NO_STATE, _) => Seen::Provisioning,
        (RUNNING | BLOCKED, _) => Seen::Up,
        (PAUSED, paused::CRASHED | paused::POSTCOPY_FAILED) => Seen::Stopped,
        (PAUSED, reason) => Seen::Paused(format!("paused: {}", paused_because(reason))),
        (SUSPENDED, _) => Seen::Paused("suspended by its guest".to_owned()),
        _ => Seen::Stopped,
    }
}

/// Whether a domain has to be asked for its address, and counts as running where an adopted one is looked at.
pub fn is_active(DomainState { state, .. }: DomainState) -> bool {
    matches!(state, RUNNING | BLOCKED | PAUSED | SHUTTING_DOWN | SUSPENDED)
}

/// What a start has to do with a domain in this state (LV-135).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforeStart {
    /// It runs.
    Done,
    /// Start it.
    Start,
    /// A person has to resume or destroy it: it would come back with what it has in memory.
    Refuse(&'static str),
}

/// Before the start.
pub fn before_start(DomainState { state, .. }: DomainState) -> BeforeStart {
    match state {
        RUNNING | BLOCKED => BeforeStart::Done,
        PAUSED => BeforeStart::Refuse("paused"),
        SUSPENDED => BeforeStart::Refuse("pmsuspended"),
        _ => BeforeStart::Start,
    }
}

/// How a start goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterStart {
    /// It runs.
    Done,
    /// Ask again.
    Wait,
    /// It went into this state instead.
    Failed(String),
}

/// After the start.
pub fn after_start(DomainState { state, reason }: DomainState) -> AfterStart {
    match (state, reason) {
        (RUNNING | BLOCKED, _) => AfterStart::Done,
        (NO_STATE, _) | (PAUSED, paused::STARTING_UP) => AfterStart::Wait,
        (PAUSED, reason) => AfterStart::Failed(format!("paused ({})", paused_because(reason))),
        (state, _) => AfterStart::Failed(word(state)),
    }
}

fn word(state: i32) -> String {
    match state {
        NO_STATE => "nostate".to_owned(),
        RUNNING => "running".to_owned(),
        BLOCKED => "blocked".to_owned(),
        PAUSED => "paused".to_owned(),
        SHUTTING_DOWN => "shutdown".to_owned(),
        SHUT_OFF => "shutoff".to_owned(),
        CRASHED => "crashed".to_owned(),
        SUSPENDED => "pmsuspended".to_owned(),
        other => format!("state {other}"),
    }
}

/// `virDomainPausedReason`.
fn paused_because(reason: i32) -> String {
    let known = match reason {
        1 => "by an admin",
        2 => "migration",
        3 => "save",
        4 => "dump",
        5 => "I/O error",
        6 => "watchdog",
        7 => "restored from a snapshot",
        8 => "shutting down",
        9 => "snapshot",
        10 => "crashed",
        11 => "starting up",
        12 => "postcopy",
        13 => "postcopy failed",
        other => return format!("reason {other}"),
    };
    known.to_owned()
}

/// What a pool does, of `virStoragePoolState` (LV-193).
pub fn pool_state(state: u8) -> String {
    match state {
        0 => "inactive".to_owned(),
        1 => "building".to_owned(),
        POOL_RUNNING => "running".to_owned(),
        3 => "degraded".to_owned(),
        4 => "inaccessible".to_owned(),
        other => format!("state {other}"),
    }
}

/// The state of a pool that can be used.
pub const POOL_RUNNING: u8 = 2;

#[cfg(test)]
mod tests {
    use egress_libvirt::procedures::DomainState;
    use egress_protocol::provider::InstanceState;

    use super::{AfterStart, BeforeStart, Seen, after_start, before_start, is_active, pool_state, seen};

    fn of(state: i32, reason: i32) -> DomainState {
        DomainState { state, reason }
    }

    #[test]
    fn every_state_is_read_as_the_table_says_lv_150() {
        use InstanceState::{Paused, Provisioning, Running, Stopped};
        for (state, reason, without, with) in [
            (0, 0, Provisioning, Provisioning),
            (1, 1, Provisioning, Running),
            (2, 0, Provisioning, Running),
            (3, 1, Paused, Paused),
            (3, 5, Paused, Paused),
            (3, 10, Stopped, Stopped),
            (3, 11, Paused, Paused),
            (3, 13, Stopped, Stopped),
            (3, 99, Paused, Paused),
            (4, 1, Stopped, Stopped),
            (5, 2, Stopped, Stopped),
            (6, 0, Stopped, Stopped),
            (7, 0, Paused, Paused),
            (8, 0, Stopped, Stopped),
            (-1, 0, Stopped, Stopped),
        ] {
            let seen = seen(of(state, reason));
            assert_eq!((seen.instance_state(false), seen.instance_state(true)), (without, with), "{state} {reason}");
        }
    }

    #[test]
    fn a_paused_domain_says_why_lv_153() {
        assert_eq!(seen(of(3, 5)), Seen::Paused("paused: I/O error".into()));
        assert_eq!(seen(of(3, 1)), Seen::Paused("paused: by an admin".into()));
        assert_eq!(seen(of(3, 77)), Seen::Paused("paused: reason 77".into()));
    }

    #[test]
    fn only_what_is_down_is_started_lv_135() {
        assert_eq!((before_start(of(1, 1)), before_start(of(2, 0))), (BeforeStart::Done, BeforeStart::Done));
        assert_eq!((before_start(of(3, 1)), before_start(of(7, 0))), (BeforeStart::Refuse("paused"), BeforeStart::Refuse("pmsuspended")));
        for state in [0, 4, 5, 6, 9] {
            assert_eq!(before_start(of(state, 0)), BeforeStart::Start, "{state}");
        }
    }

    #[test]
    fn a_start_waits_only_for_what_may_still_run_lv_135() {
        assert_eq!((after_start(of(1, 1)), after_start(of(2, 0))), (AfterStart::Done, AfterStart::Done));
        assert_eq!((after_start(of(0, 0)), after_start(of(3, 11))), (AfterStart::Wait, AfterStart::Wait));
        for (state, reason, word) in [
            (3, 5, "paused (I/O error)"),
            (4, 0, "shutdown"),
            (5, 3, "shutoff"),
            (6, 0, "crashed"),
            (7, 0, "pmsuspended"),
            (9, 0, "state 9"),
        ] {
            assert_eq!(after_start(of(state, reason)), AfterStart::Failed(word.into()));
        }
    }

    #[test]
    fn an_active_domain_has_its_files_open_lv_143() {
        assert!([1, 2, 3, 4, 7].iter().all(|state| is_active(of(*state, 0))));
        assert!(![0, 5, 6, 9].iter().any(|state| is_active(of(*state, 0))));
    }

    #[test]
    fn a_pools_state_has_a_word_lv_193() {
        let words: Vec<String> = (0..6).map(pool_state).collect();
        assert_eq!(words, ["inactive", "building", "running", "degraded", "inaccessible", "state 5"]);
    }
}

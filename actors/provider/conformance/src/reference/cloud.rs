//! A cloud in memory, honest as PC-90 asks: it refuses calls after their cancellation and over links that were closed, keeps
//! each type's marks apart, answers in pages, and starts and deletes machines on its own time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use egress_protocol::{InstanceName, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Fault, Intervention};

/// Where machines can be.
pub(super) const ZONES: [&str; 2] = ["zone-a", "zone-b"];
/// Machines on a page.
const PAGE: usize = 3;
/// What the credential file holds at first.
pub(super) const TOKEN: &str = "SENTINEL-credential-4e2a";
/// In the cloud's own texts.
pub(super) const PASSWORD: &str = "SENTINEL-url-password-9d3b";

/// A place and a name in it.
pub(super) type At = (String, String);

/// Written by one type, read by that type.
pub(super) type Marks = BTreeMap<String, String>;

/// How the marks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Whole,
    Corrupt,
    Unreadable,
}

#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// By type.
    pub marks: BTreeMap<&'static str, Marks>,
    pub condition: Condition,
    pub word: String,
    pub locked: bool,
    pub task_error: Option<String>,
    pub deleting: bool,
    pub address: Ipv4Addr,
    pub hidden: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Volume {
    pub image: String,
    pub size: u64,
    pub created_at: Timestamp,
}

/// What a backend hears of a failure: a code, and a text that says too much.
#[derive(Debug, Clone)]
pub(super) struct Raw {
    pub code: &'static str,
    pub text: String,
}

impl Raw {
    pub(super) fn new(code: &'static str) -> Self {
        Self { code, text: code.to_owned() }
    }
}

/// What happens while a call is served.
struct During(Box<dyn FnOnce() + Send>);

impl fmt::Debug for During {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("During")
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub machines: BTreeMap<At, Machine>,
    pub volumes: BTreeMap<At, Volume>,
    links: BTreeSet<u64>,
    next: u64,
    token: String,
    pub calls: Vec<&'static str>,
    interventions: Vec<(usize, Intervention)>,
    during: Vec<(usize, During)>,
    all: Option<Fault>,
    sources: Option<Fault>,
    cut_off: Option<String>,
}

/// The cloud and the disk with the credential file; several backends can share one.
#[derive(Debug, Clone)]
pub struct Cloud {
    state: Arc<Mutex<State>>,
    /// The credential file; `None`: it is not there.
    pub(super) file: Arc<Mutex<Option<String>>>,
    /// Whether the base image of the machines can be had.
    image: Arc<watch::Sender<bool>>,
}

impl Default for Cloud {
    fn default() -> Self {
        let state = State { token: TOKEN.to_owned(), ..State::default() };
        let file = Arc::new(Mutex::new(Some(TOKEN.to_owned())));
        Self { state: Arc::new(Mutex::new(state)), file, image: Arc::new(watch::Sender::new(true)) }
    }
}

fn fault(fault: Fault, token: &str) -> Raw {
    let (code, text) = match fault {
        Fault::Unreachable => ("Unreachable", format!("connect to https://ops:{PASSWORD}@cloud.example: refused")),
        Fault::Unauthorised => ("Unauthorised", format!("401, the request had Authorization: Bearer {token}")),
        Fault::Erring => ("InternalError", format!("500, see https://ops:{PASSWORD}@cloud.example/errors/1")),
        Fault::LinkDown => ("LinkDown", "connection reset".to_owned()),
        Fault::Quota => ("QuotaExceeded", format!("limit reached, raise it at https://ops:{PASSWORD}@cloud.example/limits")),
    };
    Raw { code, text }
}

impl Cloud {
    /// Nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The base image can be had, or not yet.
    pub(super) fn set_image(&self, there: bool) {
        self.image.send_replace(there);
    }

    pub(super) fn lacks_image(&self) -> bool {
        !*self.image.borrow()
    }

    pub(super) async fn image_is_there(&self) {
        // The sender lives as long as the cloud does.
        let _ = self.image.subscribe().wait_for(|there| *there).await;
    }

    /// Names of all machines, by zone.
    pub fn machines(&self) -> Vec<(String, String)> {
        self.state().machines.keys().cloned().collect()
    }

    /// Every call hangs until it is cancelled, from now on.
    pub fn hang(&self) {
        let mut state = self.state();
        let now = state.calls.len();
        state.interventions = (1..=10_000).map(|n| (now + n, Intervention::BlockBefore)).collect();
    }

    /// Machines start, deletes end.
    pub fn settle(&self) {
        let mut state = self.state();
        state.machines.retain(|_, machine| !machine.deleting);
        for machine in state.machines.values_mut().filter(|machine| machine.word == "prepared" && machine.task_error.is_none()) {
            "running".clone_into(&mut machine.word);
        }
    }

    pub(super) fn calm(&self) {
        let mut state = self.state();
        (state.interventions, state.all, state.sources, state.cut_off) = (Vec::new(), None, None, None);
        state.during.clear();
    }

    pub(super) fn intervene(&self, n: usize, what: Intervention) {
        let mut state = self.state();
        let at = state.calls.len() + n;
        state.interventions.push((at, what));
    }

    pub(super) fn during(&self, n: usize, then: Box<dyn FnOnce() + Send>) {
        let mut state = self.state();
        let at = state.calls.len() + n;
        state.during.push((at, During(then)));
    }

    pub(super) fn fail_all(&self, fault: Fault) {
        self.state().all = Some(fault);
    }

    pub(super) fn fail_sources(&self, fault: Fault) {
        self.state().sources = Some(fault);
    }

    pub(super) fn cut_off(&self, zone: &str) {
        self.state().cut_off = Some(zone.to_owned());
    }

    /// Other credentials count from now on; links made with the old ones are closed.
    pub(super) fn rotate(&self, token: &str) {
        let mut state = self.state();
        token.clone_into(&mut state.token);
        state.links.clear();
    }

    pub(super) fn close_all(&self) {
        self.state().links.clear();
    }

    /// One call. `link` is `None` for those that need none: a dial, a check.
    #[expect(clippy::panic, reason = "a client that panics is one of the interventions")]
    pub(super) async fn call<T>(
        &self,
        name: &'static str,
        zone: &str,
        link: Option<u64>,
        cancel: &CancellationToken,
        effect: impl FnOnce(&mut State) -> Result<T, Raw>,
    ) -> Result<T, Raw> {
        let (what, then) = {
            let mut state = self.state();
            if cancel.is_cancelled() {
                return Err(Raw::new("Cancelled"));
            }
            state.calls.push(name);
            let number = state.calls.len();
            let then = state.during.iter().position(|(at, _)| *at == number).map(|at| state.during.remove(at).1);
            let at = state.interventions.iter().position(|(at, _)| *at == number);
            (at.map(|at| state.interventions.remove(at).1), then)
        };
        if let Some(During(then)) = then {
            then();
        }
        match what {
            Some(Intervention::Fail(kind)) => {
                let mut state = self.state();
                if let (Fault::LinkDown, Some(link)) = (kind, link) {
                    state.links.remove(&link);
                }
                return Err(fault(kind, &state.token));
            }
            Some(Intervention::BlockBefore) => return std::future::pending().await,
            Some(Intervention::Panic) => panic!("the client of the reference backend panics"),
            Some(Intervention::BlockAfter) | None => {}
        }
        let result = {
            let mut state = self.state();
            let is_source = matches!(name, "agent_address" | "lease_address");
            if let Some(kind) = state.all.or(if is_source { state.sources } else { None }) {
                if let (Fault::LinkDown, Some(link)) = (kind, link) {
                    state.links.remove(&link);
                }
                return Err(fault(kind, &state.token));
            }
            if state.cut_off.as_deref() == Some(zone) {
                return Err(fault(Fault::Unreachable, &state.token));
            }
            if link.is_some_and(|link| !state.links.contains(&link)) {
                return Err(Raw::new("LinkDown"));
            }
            effect(&mut state)
        };
        if what.is_some() {
            return std::future::pending().await;
        }
        result
    }
}

impl State {
    pub(super) fn dial(&mut self, token: &str) -> Result<u64, Raw> {
        if token != self.token {
            return Err(fault(Fault::Unauthorised, token));
        }
        self.next += 1;
        self.links.insert(self.next);
        Ok(self.next)
    }

    pub(super) fn close(&mut self, link: u64) {
        self.links.remove(&link);
    }

    pub(super) fn find(&self, at: &At) -> Result<Machine, Raw> {
        let machine = self.machines.get(at).ok_or_else(|| Raw::new("NoSuchMachine"))?;
        if machine.locked { Err(Raw::new("Locked")) } else { Ok(machine.clone()) }
    }

    pub(super) fn make_machine(&mut self, at: At, marks: Marks) -> Result<(), Raw> {
        if self.machines.contains_key(&at) {
            return Err(Raw::new("AlreadyExists"));
        }
        self.next += 1;
        let [.., high, low] = self.next.to_be_bytes();
        let machine = Machine {
            marks: BTreeMap::from([(super::TYPE, marks)]),
            condition: Condition::Whole,
            word: "prepared".to_owned(),
            locked: false,
            task_error: None,
            deleting: false,
            address: Ipv4Addr::new(198, 18, high, low),
            hidden: false,
        };
        self.machines.insert(at, machine);
        Ok(())
    }

    /// A page of machines behind `after`, and where the next begins.
    pub(super) fn page(&self, zone: &str, after: Option<&str>) -> (Vec<(String, Machine)>, Option<String>) {
        let mut there = self.machines.iter().filter(|((at, name), _)| at == zone && after.is_none_or(|after| name.as_str() > after));
        let page: Vec<_> = there.by_ref().take(PAGE).map(|((_, name), machine)| (name.clone(), machine.clone())).collect();
        let next = there.next().and_then(|_| page.last().map(|(name, _)| name.clone()));
        (page, next)
    }
}

/// A name that was not derived here, as its text.
pub(super) fn named(text: &str) -> Option<InstanceName> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).ok()
}

//! What a test does to the fake: everything that a service does on its own account, or that happens to it.

use serde_json::{Map, Value, json};

use crate::instance;
use crate::state::{Exchange, FakeGce, Fault, Hold, Stall, now};

/// What is done to an instance.
pub type Change<'a> = &'a dyn Fn(&mut Map<String, Value>);

impl FakeGce {
    /// When operations settle from now on.
    pub fn hold(&self, hold: Hold) {
        self.state().held = hold == Hold::UntilSettled;
    }

    /// All operations settle now.
    pub fn settle(&self) {
        let mut state = self.state();
        for name in state.order.clone() {
            state.settle(&name);
        }
    }

    /// The next insert is accepted and fails later.
    pub fn fail_next_insert(&self, code: &str, message: &str) {
        self.state().insert_fails.push((code.to_owned(), message.to_owned()));
    }

    /// The insert that made an instance turns out to have failed: the instance is gone.
    pub fn fail_insert_of(&self, zone: &str, name: &str, code: &str, message: &str) {
        let mut state = self.state();
        state.instances.remove(&(zone.to_owned(), name.to_owned()));
        state.fail_insert_of(zone, name, code, message);
    }

    /// The next delete is accepted and fails later.
    pub fn fail_next_delete(&self, code: &str, message: &str) {
        self.state().delete_fails.push((code.to_owned(), message.to_owned()));
    }

    /// A zone that lists leave out, and that cannot be asked.
    pub fn darken(&self, zone: &str, dark: bool) {
        let mut state = self.state();
        if dark {
            state.dark.insert(zone.to_owned())
        } else {
            state.dark.remove(zone)
        };
    }

    /// What goes wrong from now on.
    pub fn fault(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Over HTTP one request about a zone, after so many others of that kind, gets no answer for as long as the connection is there;
    /// it is carried out or not. [`FakeGce::stalled`] says when it has come.
    pub fn stall(&self, after: usize, carried_out: bool) {
        let mut state = self.state();
        (state.stall, state.stalled) = (Some(Stall { after, carried_out }), false);
    }

    /// Every request that comes from now on is answered.
    pub fn stall_none(&self) {
        self.state().stall = None;
    }

    /// Whether the request has come that gets no answer.
    pub fn stalled(&self) -> bool {
        self.state().stalled
    }

    /// Whether a request that has come gets no answer, and if so whether it is carried out.
    pub(crate) fn stalls(&self, path: &str) -> Option<bool> {
        let mut state = self.state();
        let stall = state.stall.filter(|_| path.contains("/zones/"))?;
        if stall.after > 0 {
            state.stall = Some(Stall { after: stall.after - 1, ..stall });
            return None;
        }
        (state.stall, state.stalled) = (None, true);
        Some(stall.carried_out)
    }

    /// Only these tokens are accepted; by default any is.
    pub fn accept_tokens(&self, tokens: &[&str]) {
        self.state().tokens = Some(tokens.iter().map(|token| (*token).to_owned()).collect());
    }

    /// The quotas of each region.
    pub fn set_quotas(&self, quotas: &[(&str, f64, f64)]) {
        let quota = |(metric, usage, limit): &(&str, f64, f64)| json!({"metric": metric, "usage": usage, "limit": limit});
        self.state().quotas = quotas.iter().map(quota).collect();
    }

    /// Changes an instance behind everybody's back: its status, a label, an address. `None` removes the instance.
    pub fn alter(&self, zone: &str, name: &str, change: Option<Change<'_>>) {
        let (mut state, at) = (self.state(), (zone.to_owned(), name.to_owned()));
        match change {
            None => drop(state.instances.remove(&at)),
            Some(change) => {
                if let Some(vm) = state.instances.get_mut(&at) {
                    change(vm);
                }
            }
        }
    }

    /// Puts an instance there that nobody inserted.
    pub fn place(&self, zone: &str, name: &str, labels: &[(&str, &str)], status: &str) {
        let mut state = self.state();
        let number = state.next();
        let labels: Map<String, Value> = labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let body = json!({
            "name": name,
            "machineType": format!("zones/{zone}/machineTypes/e2-small"),
            "labels": labels,
            "networkInterfaces": [{"network": "global/networks/default", "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}]}],
            "disks": [{"boot": true}],
        });
        if let Ok(mut vm) = instance::new(&self.project, zone, number, &now(), &body) {
            instance::run(&mut vm, number);
            vm.insert("status".to_owned(), json!(status));
            state.instances.insert((zone.to_owned(), name.to_owned()), vm);
        }
    }

    /// All instances: zone, name and what is known of each.
    pub fn instances(&self) -> Vec<(String, String, Value)> {
        let state = self.state();
        state.instances.iter().map(|((zone, name), vm)| (zone.clone(), name.clone(), Value::Object(vm.clone()))).collect()
    }

    /// How many requests of that method were asked whose path has that part, since the log was taken last.
    pub fn count(&self, method: &str, part: &str) -> usize {
        self.state().log.iter().filter(|exchange| exchange.method == method && exchange.path.contains(part)).count()
    }

    /// For benchmarks: what is asked is not kept.
    pub fn keep_no_log(&self) {
        self.state().keeps_no_log = true;
    }

    /// What was asked since the start or the last call of this, in order.
    pub fn take_log(&self) -> Vec<Exchange> {
        std::mem::take(&mut self.state().log)
    }
}

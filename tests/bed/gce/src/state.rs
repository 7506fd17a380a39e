//! The state and what the methods do to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Map, Value, json};

use crate::instance::{self, link};
use crate::query::{Query, passes};

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, JSON unless a [`Fault`] says otherwise.
    pub body: Vec<u8>,
}

impl Answer {
    fn json(status: u16, value: &Value) -> Self {
        Self { status, body: value.to_string().into_bytes() }
    }

    /// An error in the form of the API.
    pub fn error(status: u16, reason: &str, message: &str) -> Self {
        let errors = json!([{"message": message, "domain": "global", "reason": reason}]);
        Self::json(status, &json!({"error": {"code": status, "message": message, "errors": errors}}))
    }
}

/// One request and its answer, for the check against the discovery document.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// `GET`, `POST` or `DELETE`.
    pub method: String,
    /// With its query.
    pub path: String,
    /// What was sent.
    pub body: Vec<u8>,
    /// What was answered.
    pub answer: Answer,
}

impl Exchange {
    /// As a line for `official/discovery.py`.
    pub fn to_json(&self) -> Value {
        let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or(Value::Null);
        json!({"method": self.method, "path": self.path, "request": read(&self.body), "status": self.answer.status, "response": read(&self.answer.body)})
    }
}

/// When operations settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// At the first look at it or at its instance.
    Never,
    /// Only by [`FakeGce::settle`].
    UntilSettled,
}

/// What goes wrong with the next request whose method and path match.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The HTTP method; empty for any.
    pub method: &'static str,
    /// A part of the path.
    pub path: String,
    /// How often.
    pub times: usize,
    /// What is answered.
    pub answer: Answer,
    /// The request is carried out all the same, and only its answer is lost.
    pub carried_out: bool,
}

/// A request to come that gets no answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stall {
    /// Requests about one instance that are answered before it.
    pub(crate) after: usize,
    /// It is carried out all the same.
    pub(crate) carried_out: bool,
}

struct Operation {
    json: Map<String, Value>,
    zone: String,
    instance: String,
    insert: bool,
    /// `code`, `message`: how it ends.
    fails: Option<(String, String)>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) instances: BTreeMap<(String, String), Map<String, Value>>,
    operations: HashMap<String, Operation>,
    pub(crate) order: Vec<String>,
    seen_requests: HashMap<String, String>,
    next: u64,
    pub(crate) held: bool,
    pub(crate) insert_fails: Vec<(String, String)>,
    pub(crate) delete_fails: Vec<(String, String)>,
    pub(crate) dark: BTreeSet<String>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) tokens: Option<BTreeSet<String>>,
    pub(crate) quotas: Vec<Value>,
    pub(crate) log: Vec<Exchange>,
    pub(crate) keeps_no_log: bool,
    pub(crate) stall: Option<Stall>,
    pub(crate) stalled: bool,
}

/// The fake. Clones are one.
#[derive(Clone)]
pub struct FakeGce {
    pub(crate) project: Arc<str>,
    zones: Arc<[&'static str]>,
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for FakeGce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeGce").field("project", &self.project).finish_non_exhaustive()
    }
}

impl FakeGce {
    /// An empty project with three zones in two regions, whose operations settle at the first look.
    pub fn new(project: &str) -> Self {
        Self { project: project.into(), zones: ["europe-west1-b", "europe-west1-c", "us-central1-a"].into(), state: Arc::default() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Answers one request. `token` is what stands behind `Bearer`.
    pub fn handle(&self, method: &str, path_and_query: &str, token: Option<&str>, body: &[u8]) -> Answer {
        let mut state = self.state();
        let answer = match state.faulty(method, path_and_query) {
            Some((answer, carried_out)) => {
                if carried_out {
                    let _ = self.answer(&mut state, method, path_and_query, token, body);
                }
                answer
            }
            None => self.answer(&mut state, method, path_and_query, token, body),
        };
        if !state.keeps_no_log {
            let [method, path] = [method, path_and_query].map(str::to_owned);
            state.log.push(Exchange { method, path, body: body.to_vec(), answer: answer.clone() });
        }
        answer
    }

    fn answer(&self, state: &mut State, method: &str, path_and_query: &str, token: Option<&str>, body: &[u8]) -> Answer {
        if state.tokens.as_ref().is_some_and(|tokens| token.is_none_or(|token| !tokens.contains(token))) {
            return Answer::error(401, "authError", "Request had invalid authentication credentials.");
        }
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let query = Query::parse(query);
        let Some(path) = path.strip_prefix(&format!("/compute/v1/projects/{}/", self.project)) else {
            return Answer::error(404, "notFound", "The requested URL was not found on this server.");
        };
        let parts: Vec<&str> = path.split('/').collect();
        if let ["zones", zone, ..] = parts[..] {
            if !self.zones.contains(&zone) {
                return Answer::error(404, "notFound", &format!("The resource 'projects/{}/zones/{zone}' was not found", self.project));
            }
            if state.dark.contains(zone) {
                return Answer::error(503, "backendError", &format!("Zone {zone} is unavailable."));
            }
        }
        let bad = |known: &[&str]| {
            let key = query.unknown(known)?;
            Some(Answer::error(
                400,
                "badRequest",
                &format!("Invalid JSON payload received. Unknown name \"{key}\": Cannot bind query parameter."),
            ))
        };
        match (method, &parts[..]) {
            ("POST", ["zones", zone, "instances"]) => bad(&["requestId"]).unwrap_or_else(|| self.insert(state, zone, &query, body)),
            ("GET", ["zones", zone, "instances", name]) => bad(&[]).unwrap_or_else(|| self.get(state, zone, name)),
            ("DELETE", ["zones", zone, "instances", name]) => bad(&["requestId"]).unwrap_or_else(|| self.delete(state, zone, name, &query)),
            ("GET", ["aggregated", "instances"]) => bad(&["filter", "includeAllScopes", "maxResults", "pageToken", "returnPartialSuccess"])
                .unwrap_or_else(|| self.list(state, &query)),
            ("GET", ["zones", zone, "operations"]) => {
                bad(&["filter", "maxResults", "orderBy"]).unwrap_or_else(|| self.operations(state, zone, &query))
            }
            ("GET", ["zones", _, "operations", name]) => bad(&[]).unwrap_or_else(|| self.operation(state, name)),
            ("POST", ["zones", _, "operations", name, "wait"]) => bad(&[]).unwrap_or_else(|| {
                // Waits for the end, which here is at once unless operations are held.
                if !state.held {
                    state.settle(name);
                }
                self.operation(state, name)
            }),
            ("GET", ["zones", zone]) => bad(&[]).unwrap_or_else(|| self.zone(zone)),
            ("GET", ["regions", region]) => bad(&[]).unwrap_or_else(|| self.region(state, region)),
            _ => Answer::error(404, "notFound", "The requested URL was not found on this server."),
        }
    }

    fn insert(&self, state: &mut State, zone: &str, query: &Query, body: &[u8]) -> Answer {
        if let Some(operation) = query.get("requestId").and_then(|id| state.seen_requests.get(id)).cloned() {
            return self.operation(state, &operation);
        }
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return Answer::error(400, "parseError", "Parse Error") };
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        let at = (zone.to_owned(), name.clone());
        let path = format!("projects/{}/zones/{zone}/instances/{name}", self.project);
        if state.instances.contains_key(&at) || state.is_being_made(&at) {
            return Answer::error(409, "alreadyExists", &format!("The resource '{path}' already exists"));
        }
        let number = state.next();
        let vm = match instance::new(&self.project, zone, number, &now(), &body) {
            Ok(vm) => vm,
            Err(message) => return Answer::error(400, "invalid", &message),
        };
        let fails = (!state.insert_fails.is_empty()).then(|| state.insert_fails.remove(0));
        // An insert that fails is often never seen as an instance; one that works is there at once.
        if fails.is_none() {
            state.instances.insert(at, vm);
        }
        self.begin(state, zone, &name, true, fails, query)
    }

    fn delete(&self, state: &mut State, zone: &str, name: &str, query: &Query) -> Answer {
        if let Some(operation) = query.get("requestId").and_then(|id| state.seen_requests.get(id)).cloned() {
            return self.operation(state, &operation);
        }
        let at = (zone.to_owned(), name.to_owned());
        let fails = (!state.delete_fails.is_empty()).then(|| state.delete_fails.remove(0));
        match state.instances.get_mut(&at) {
            None => {
                return Answer::error(
                    404,
                    "notFound",
                    &format!("The resource 'projects/{}/zones/{zone}/instances/{name}' was not found", self.project),
                );
            }
            Some(vm) if fails.is_none() => drop(vm.insert("status".to_owned(), json!("STOPPING"))),
            Some(_) => {}
        }
        self.begin(state, zone, name, false, fails, query)
    }

    fn begin(&self, state: &mut State, zone: &str, instance: &str, insert: bool, fails: Option<(String, String)>, query: &Query) -> Answer {
        let number = state.next();
        let name = format!("operation-{number}");
        let json = json!({
            "kind": "compute#operation",
            "id": (7_000_000_000_000_000_000 + number).to_string(),
            "name": name,
            "zone": link(&self.project, &format!("zones/{zone}")),
            "operationType": if insert { "insert" } else { "delete" },
            "targetLink": link(&self.project, &format!("zones/{zone}/instances/{instance}")),
            "targetId": number.to_string(),
            "status": "RUNNING",
            "progress": 0,
            "user": "operator@example.com",
            "insertTime": now(),
            "startTime": now(),
            "selfLink": link(&self.project, &format!("zones/{zone}/operations/{name}")),
        });
        let Value::Object(json) = json else { return Answer::error(500, "internalError", "no object") };
        let answer = Answer::json(200, &Value::Object(json.clone()));
        let operation = Operation { json, zone: zone.to_owned(), instance: instance.to_owned(), insert, fails };
        state.operations.insert(name.clone(), operation);
        state.order.push(name.clone());
        if let Some(id) = query.get("requestId") {
            state.seen_requests.insert(id.to_owned(), name);
        }
        answer
    }

    fn get(&self, state: &mut State, zone: &str, name: &str) -> Answer {
        let at = (zone.to_owned(), name.to_owned());
        let answer = state.instances.get(&at).map(|vm| Answer::json(200, &Value::Object(vm.clone())));
        state.look(&at);
        let path = format!("projects/{}/zones/{zone}/instances/{name}", self.project);
        answer.unwrap_or_else(|| Answer::error(404, "notFound", &format!("The resource '{path}' was not found")))
    }

    fn operation(&self, state: &mut State, name: &str) -> Answer {
        let answer = state.operations.get(name).map(|operation| Answer::json(200, &Value::Object(operation.json.clone())));
        if !state.held {
            state.settle(name);
        }
        answer.unwrap_or_else(|| Answer::error(404, "notFound", &format!("The resource 'operations/{name}' was not found")))
    }

    fn operations(&self, state: &State, zone: &str, query: &Query) -> Answer {
        let all = state.order.iter().rev().filter_map(|name| state.operations.get(name)).filter(|operation| operation.zone == zone);
        let mut items = Vec::new();
        for operation in all {
            let json = Value::Object(operation.json.clone());
            match passes(query.get("filter"), &json) {
                Some(true) => items.push(json),
                Some(false) => {}
                None => return Answer::error(400, "invalid", "Invalid value for field 'filter'."),
            }
        }
        items.truncate(query.max_results());
        let id = format!("projects/{}/zones/{zone}/operations", self.project);
        Answer::json(200, &json!({"kind": "compute#operationList", "id": id, "items": items}))
    }

    fn list(&self, state: &State, query: &Query) -> Answer {
        let mut all = Vec::new();
        for ((zone, _), vm) in state.instances.iter().filter(|((zone, _), _)| !state.dark.contains(zone)) {
            let vm = Value::Object(vm.clone());
            match passes(query.get("filter"), &vm) {
                Some(true) => all.push((zone, vm)),
                Some(false) => {}
                None => return Answer::error(400, "invalid", "Invalid value for field 'filter'."),
            }
        }
        let begin: usize = query.get("pageToken").and_then(|token| token.strip_prefix("page-")?.parse().ok()).unwrap_or(0);
        let end = (begin + query.max_results()).min(all.len());
        let mut items: BTreeMap<String, Value> = self.zones.iter().map(|zone| (format!("zones/{zone}"), nothing(zone))).collect();
        for (zone, vm) in &all[begin.min(end)..end] {
            let scope = items.entry(format!("zones/{zone}")).or_insert(Value::Null);
            match scope.get_mut("instances").and_then(Value::as_array_mut) {
                Some(list) => list.push(vm.clone()),
                None => *scope = json!({"instances": [vm]}),
            }
        }
        let mut page = json!({"kind": "compute#instanceAggregatedList", "id": format!("projects/{}/aggregated/instances", self.project)});
        if !state.dark.is_empty() && !query.get("returnPartialSuccess").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Answer::error(503, "backendError", "Some zones are unavailable.");
        }
        for zone in &state.dark {
            items.remove(&format!("zones/{zone}"));
        }
        page["items"] = json!(items);
        if !state.dark.is_empty() {
            page["unreachables"] = json!(state.dark.iter().map(|zone| format!("zones/{zone}")).collect::<Vec<_>>());
        }
        if end < all.len() {
            page["nextPageToken"] = json!(format!("page-{end}"));
        }
        Answer::json(200, &page)
    }

    fn zone(&self, zone: &str) -> Answer {
        let region = zone.rsplit_once('-').map_or(zone, |(region, _)| region);
        let region = link(&self.project, &format!("regions/{region}"));
        Answer::json(200, &json!({"kind": "compute#zone", "id": "2000", "name": zone, "status": "UP", "region": region}))
    }

    fn region(&self, state: &State, region: &str) -> Answer {
        if !self.zones.iter().any(|zone| zone.starts_with(region)) {
            return Answer::error(404, "notFound", &format!("The resource 'projects/{}/regions/{region}' was not found", self.project));
        }
        Answer::json(200, &json!({"kind": "compute#region", "id": "1000", "name": region, "status": "UP", "quotas": state.quotas}))
    }
}

impl State {
    pub(crate) fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn is_being_made(&self, at: &(String, String)) -> bool {
        self.operations
            .values()
            .any(|operation| operation.insert && operation.json["status"] != "DONE" && operation.zone == at.0 && operation.instance == at.1)
    }

    fn faulty(&mut self, method: &str, path: &str) -> Option<(Answer, bool)> {
        let i = self.faults.iter().position(|fault| (fault.method.is_empty() || fault.method == method) && path.contains(&fault.path))?;
        self.faults[i].times -= 1;
        let fault = self.faults[i].clone();
        if fault.times == 0 {
            self.faults.remove(i);
        }
        Some((fault.answer, fault.carried_out))
    }

    /// Somebody looked at an instance: what is under way for it settles, so that the next look sees it.
    fn look(&mut self, at: &(String, String)) {
        if self.held {
            return;
        }
        for name in self.order.clone() {
            if self.operations.get(&name).is_some_and(|operation| operation.zone == at.0 && operation.instance == at.1) {
                self.settle(&name);
            }
        }
    }

    pub(crate) fn fail_insert_of(&mut self, zone: &str, name: &str, code: &str, message: &str) {
        let mut operations = self.operations.values_mut();
        if let Some(operation) = operations.find(|operation| operation.insert && operation.zone == zone && operation.instance == name) {
            operation.json.insert("status".to_owned(), json!("DONE"));
            operation.json.insert("error".to_owned(), json!({"errors": [{"code": code, "message": message}]}));
        }
    }

    pub(crate) fn settle(&mut self, name: &str) {
        let number = self.next;
        let Some(operation) = self.operations.get_mut(name) else { return };
        if operation.json["status"] == "DONE" {
            return;
        }
        operation.json.insert("status".to_owned(), json!("DONE"));
        operation.json.insert("progress".to_owned(), json!(100));
        operation.json.insert("endTime".to_owned(), json!(now()));
        let at = (operation.zone.clone(), operation.instance.clone());
        if let Some((code, message)) = &operation.fails {
            operation.json.insert("error".to_owned(), json!({"errors": [{"code": code, "message": message}]}));
            operation.json.insert("httpErrorStatusCode".to_owned(), json!(403));
            operation.json.insert("httpErrorMessage".to_owned(), json!("FORBIDDEN"));
        } else if operation.insert {
            if let Some(vm) = self.instances.get_mut(&at) {
                instance::run(vm, number);
            }
        } else {
            self.instances.remove(&at);
        }
    }
}

fn nothing(zone: &str) -> Value {
    let message = format!("There are no results for scope 'zones/{zone}' on this page.");
    json!({"warning": {"code": "NO_RESULTS_ON_PAGE", "message": message, "data": [{"key": "scope", "value": format!("zones/{zone}")}]}})
}

/// As Compute Engine writes times: with an offset.
#[expect(clippy::disallowed_methods, reason = "it stands in for a service that has a clock of its own")]
pub(crate) fn now() -> String {
    let pacific = jiff::tz::TimeZone::fixed(jiff::tz::offset(-8));
    jiff::Timestamp::now().to_zoned(pacific).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
}

//! Answers captured from a real API server, and what becomes of them (K8-13, PC-93).
//!
//! `tests/captured/` holds them as they came. The real server is asked for each of them again: it must still answer so.
//! `EPO_RECAPTURE=1` writes down what it answers now.

mod provoke;

use std::path::PathBuf;
use std::time::Duration;

use egress_conformance::{Captured, Classified};
use egress_protocol::provider::ErrorClass::{self, NotFound, Permanent, QuotaExceeded, Transient};
use egress_protocol::provider::Op;
use egress_provider::{Backend, BackendError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::support::bed::Bed;
use crate::support::double::{Double, Reply};
use crate::support::kit::{backend, call, config, key, request};

/// An answer as it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub code: u16,
    pub retry_after: Option<String>,
    pub body: String,
}

impl Answer {
    pub fn reply(&self) -> Reply {
        let headers = self.retry_after.iter().map(|after| ("retry-after", after.clone())).collect();
        Reply::Raw(self.code, headers, self.body.clone())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// Name, which operation meets it, its class, and whether the environment is at fault.
const ANSWERS: [(&str, Op, ErrorClass, bool); 21] = [
    ("pod-absent", Op::Get, NotFound, false),
    ("path-absent", Op::Get, Transient, false),
    ("namespace-absent", Op::Create, Transient, false),
    ("quota-exceeded", Op::Create, QuotaExceeded, false),
    ("quota-unstated", Op::Create, Permanent, true),
    ("pod-security", Op::Create, Permanent, true),
    ("limit-range", Op::Create, Permanent, true),
    ("namespace-terminating", Op::Create, Transient, false),
    ("service-account-absent", Op::Create, Transient, false),
    ("rbac-create", Op::Create, Permanent, true),
    ("rbac-get", Op::Get, Permanent, true),
    ("rbac-list", Op::List, Permanent, true),
    ("anonymous", Op::Get, Permanent, true),
    ("token-refused", Op::Get, Permanent, true),
    ("invalid", Op::Create, Permanent, false),
    ("bad-request", Op::Create, Permanent, false),
    ("conflict", Op::Get, Transient, false),
    ("too-many", Op::Create, Transient, false),
    ("webhook-down", Op::Create, Transient, false),
    ("timed-out", Op::List, Transient, false),
    ("expired", Op::List, Transient, false),
];

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captured").join(format!("{name}.json"))
}

pub fn captured(name: &str) -> Answer {
    serde_json::from_str(&std::fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))).unwrap()
}

/// What the backend makes of an answer, through the whole client, in a runtime of its own.
fn met(reply: Reply, op: Op, cancelled: bool) -> BackendError {
    let ask = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let double = Double::start();
            double.always(reply);
            let backend = backend(config(), &double.kubeconfig()).await;
            let (request, call) = (request("team-a", "u-1"), call());
            let cancel = call.cancel.clone();
            let asked = async {
                match op {
                    Op::Create => backend.create(&request, &call).await.unwrap_err(),
                    Op::Get => backend.get(&key(&request), &call).await.unwrap_err(),
                    Op::Delete => backend.delete(&key(&request), &call).await.unwrap_err(),
                    Op::List => backend.list_managed(&call).await.unwrap_err(),
                }
            };
            let gives_up = async {
                if cancelled {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    cancel.cancel();
                }
            };
            tokio::join!(asked, gives_up).0
        })
    };
    std::thread::spawn(ask).join().unwrap()
}

/// For the suite.
pub fn table() -> Vec<Classified> {
    let row = |what: &str, kind, expected, classified| Classified { what: what.to_owned(), kind, expected, classified };
    let answers =
        ANSWERS.iter().map(|(name, op, class, _)| row(name, Captured::Response, *class, met(captured(name).reply(), *op, false).class));
    let html = Reply::Raw(502, vec![("content-type", "text/html".to_owned())], "<html>Bad Gateway</html>".to_owned());
    let others = [
        row("a proxy's page", Captured::Foreign, Transient, met(html, Op::Get, false).class),
        row("a broken connection", Captured::Foreign, Transient, met(Reply::Break, Op::Get, false).class),
        row("a call that was cancelled", Captured::Cancellation, Transient, met(Reply::Hang, Op::Get, true).class),
    ];
    answers.chain(others).collect()
}

#[test]
fn every_captured_answer_has_its_class_and_scope_k8_13() {
    for (name, op, class, environment) in ANSWERS {
        let answer = captured(name);
        let error = met(answer.reply(), op, false);
        assert_eq!((error.class, error.environment), (class, environment), "{name}: {}", error.message);
        assert!(error.cause.is_some(), "{name}: the API server's own answer can be looked at");
        if let Some(message) = answer.status()["message"].as_str() {
            assert!(error.message.contains(message), "{name} is told in its own words: {}", error.message);
        }
        let asks = answer.retry_after.is_some() || answer.status()["details"]["retryAfterSeconds"].as_u64().is_some_and(|n| n > 0);
        assert_eq!(error.retry_after.is_some(), asks && class == Transient, "{name}: {:?}", error.retry_after);
    }
}

/// K8-13: quota, RBAC, Pod Security and the others, provoked for real.
#[test]
fn a_real_api_server_still_answers_as_captured_k8_13() {
    let Some(bed) = Bed::find("a_real_api_server_still_answers_as_captured_k8_13") else { return };
    let again = std::env::var_os("EPO_RECAPTURE").is_some();
    let mut faults = Vec::new();
    for (name, answer) in provoke::all(&bed) {
        if again {
            std::fs::write(file(name), format!("{}\n", serde_json::to_string_pretty(&answer).unwrap())).unwrap();
        }
        let (_, op, class, environment) = ANSWERS.into_iter().find(|(known, ..)| *known == name).unwrap();
        let error = met(answer.reply(), op, false);
        let before = captured(name);
        let same = (answer.code, &answer.status()["reason"]) == (before.code, &before.status()["reason"]);
        if !same || (error.class, error.environment) != (class, environment) {
            faults.push(format!("{name}: {answer:?} is {:?}", error.class));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

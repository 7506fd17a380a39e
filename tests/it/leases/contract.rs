//! The API keeps its OpenAPI document (LS-11): the served one is the committed one, every operation answers as it says,
//! and no generated input gets anything that is not documented, a 500 least of all.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Value, json};

use super::{Pool, TOKEN, id};
use crate::support::http::Answer;
use crate::support::rounds;
use crate::support::switch::Pace;

const COMMITTED: &str = include_str!("../../../docs/openapi.json");

/// The document, and what it says of a value.
struct Contract(Value);

/// One operation.
#[derive(Debug, Clone)]
struct Operation {
    path: String,
    method: Method,
    spec: Value,
}

impl Contract {
    fn new() -> Self {
        Self(serde_json::from_str(COMMITTED).unwrap())
    }

    fn operations(&self) -> Vec<Operation> {
        let paths = self.0["paths"].as_object().unwrap();
        let all = paths.iter().flat_map(|(path, item)| item.as_object().unwrap().iter().map(move |(method, spec)| (path, method, spec)));
        all.map(|(path, method, spec)| Operation {
            path: path.clone(),
            method: method.to_ascii_uppercase().parse().unwrap(),
            spec: spec.clone(),
        })
        .collect()
    }

    fn operation(&self, method: &str, path: &str) -> Operation {
        let found = self.operations().into_iter().find(|operation| operation.method == method && operation.path == path);
        found.unwrap_or_else(|| panic!("{method} {path} is not documented"))
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(name) => self.0.pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("{name} is not in the document")),
            None => schema,
        }
    }

    /// What of a value is not as its schema says. A field that no schema names is a fault: it would not be documented.
    fn fault(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        let schema = self.resolve(schema);
        if let Some(any) = schema["oneOf"].as_array() {
            let faults: Vec<String> = any.iter().filter_map(|schema| self.fault(schema, value, at)).collect();
            return (faults.len() == any.len()).then(|| faults.join(" and "));
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(any) => any.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let is = |name: &&str| match *name {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "null" => value.is_null(),
            other => panic!("type {other}"),
        };
        if !types.is_empty() && !types.iter().any(is) {
            return Some(format!("{at}: {value} is not {types:?}"));
        }
        if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
            return Some(format!("{at}: {value} is none of {}", schema["enum"]));
        }
        if schema["minimum"].as_i64().zip(value.as_i64()).is_some_and(|(least, value)| value < least) {
            return Some(format!("{at}: {value} is too small"));
        }
        if schema["format"] == "date-time" && value.as_str().is_some_and(|text| !is_time(text)) {
            return Some(format!("{at}: {value} is no RFC 3339 time in UTC with milliseconds"));
        }
        if let Some(items) = value.as_array() {
            return items.iter().enumerate().find_map(|(n, item)| self.fault(&schema["items"], item, &format!("{at}[{n}]")));
        }
        let fields = value.as_object()?;
        let missing =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).find(|name| !fields.contains_key(*name));
        if let Some(name) = missing {
            return Some(format!("{at}.{name} is missing"));
        }
        fields.iter().find_map(|(name, value)| match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Object(_)) => self.fault(&schema["additionalProperties"], value, &format!("{at}.{name}")),
            (Value::Null, _) if schema["properties"].is_object() => Some(format!("{at}.{name} is not documented")),
            (Value::Null, _) => None,
            (_, _) if value.is_null() => Some(format!("{at}.{name} is null: it should be left out (LS-21)")),
            (schema, _) => self.fault(schema, value, &format!("{at}.{name}")),
        })
    }

    /// Whether an answer is one of those that are documented for the operation.
    fn check(&self, operation: &Operation, answer: &Answer) -> Result<(), String> {
        let (status, body) = (answer.status.as_u16(), answer.text());
        if status == 500 {
            return Err(format!("500: {body}"));
        }
        let documented = &operation.spec["responses"][status.to_string()];
        if documented.is_null() {
            return Err(format!("{status} is not documented: {body}"));
        }
        let Some(content) = documented["content"].as_object() else {
            return if answer.body.is_empty() { Ok(()) } else { Err(format!("{status} has a body: {body}")) };
        };
        let media = answer.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Some(said) = content.get(media) else { return Err(format!("{status} as {media:?} is not documented")) };
        let value: Value = serde_json::from_str(&body).map_err(|error| format!("{status} is no JSON: {error}: {body}"))?;
        if let Some(fault) = self.fault(&said["schema"], &value, "body") {
            return Err(format!("{status}: {fault}: {body}"));
        }
        if media == "application/problem+json" {
            let code = value["code"].as_str().unwrap_or_default();
            let described = documented["description"].as_str().unwrap_or_default();
            if !described.contains(&format!("`{code}`")) || value["status"] != status {
                return Err(format!("{status} with code {code} is not documented: {body}"));
            }
            let named = value["errors"].as_array().is_some_and(|errors| errors.iter().all(|e| e["field"] != "") && !errors.is_empty());
            if code == "invalid-request" && !named {
                return Err(format!("no field is named: {body}"));
            }
        }
        if status == 503 && !answer.headers.contains_key("retry-after") {
            return Err("a 503 without Retry-After".to_owned());
        }
        Ok(())
    }
}

fn is_time(text: &str) -> bool {
    text.len() == 24 && text.ends_with('Z') && text.as_bytes()[19] == b'.' && text.parse::<jiff::Timestamp>().is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_succeeds_as_documented_and_the_served_document_is_the_committed_one_ls_11() {
    let contract = Contract::new();
    let pool = Pool::new(&[("default/px", 50)], Pace::Steady).await;
    assert_eq!(pool.api().get("/openapi.json").await.json(), contract.0);
    let cooled = id(&pool.grant(json!({"target": "cooled.example", "owner": "o"})).await);
    let ended = id(&pool.grant(json!({"ttl": "1h"})).await);
    pool.api().delete(&format!("/v1/leases/{ended}")).await;
    let lease = id(&pool.grant(json!({})).await);
    let mut left: Vec<(String, String)> = contract.operations().iter().map(|o| (o.method.to_string(), o.path.clone())).collect();
    for (method, path, at, body) in [
        ("GET", "/healthz", "/healthz".to_owned(), None),
        ("GET", "/openapi.json", "/openapi.json".to_owned(), None),
        ("GET", "/readyz", "/readyz?verbose".to_owned(), None),
        (
            "POST",
            "/v1/leases",
            "/v1/leases".to_owned(),
            Some(json!({"owner": "o", "target": "t", "ttl": "1h", "selector": {"exclude": ["a/b"]}})),
        ),
        ("POST", "/v1/leases/explain", "/v1/leases/explain".to_owned(), Some(json!({}))),
        ("POST", "/v1/leases/{id}/report", format!("/v1/leases/{cooled}/report"), Some(json!({"result": "rateLimited"}))),
        ("POST", "/v1/leases/{id}/renew", format!("/v1/leases/{lease}/renew"), Some(json!({"ttl": "2h"}))),
        ("GET", "/v1/leases/{id}", format!("/v1/leases/{ended}"), None),
        ("GET", "/v1/leases", "/v1/leases?limit=1".to_owned(), None),
        ("DELETE", "/v1/leases/{id}", format!("/v1/leases/{lease}"), None),
        ("POST", "/v1/proxies/{namespace}/{name}/cordon", "/v1/proxies/default/px/cordon".to_owned(), Some(json!({"reason": "r"}))),
        ("GET", "/v1/proxies/{namespace}/{name}", "/v1/proxies/default/px".to_owned(), None),
        ("GET", "/v1/proxies", "/v1/proxies?limit=1".to_owned(), None),
        ("DELETE", "/v1/proxies/{namespace}/{name}/cordon", "/v1/proxies/default/px/cordon".to_owned(), None),
        ("DELETE", "/v1/proxies/{namespace}/{name}/cooldown", "/v1/proxies/default/px/cooldown".to_owned(), None),
    ] {
        let operation = contract.operation(method, path);
        let answer = pool.api().try_send(operation.method.clone(), &at, body.as_ref()).await.unwrap();
        assert!(answer.status.is_success(), "{method} {at}: {}", answer.text());
        contract.check(&operation, &answer).unwrap_or_else(|fault| panic!("{method} {at}: {fault}"));
        left.retain(|one| *one != (method.to_owned(), path.to_owned()));
    }
    assert_eq!(left, [], "operations that nothing here calls");
}

/// A generated call of a documented operation.
#[derive(Debug, Clone)]
struct Call {
    operation: usize,
    /// For the parts of the path in braces, in turn: percent-encoded. `None`: the real one.
    parts: Vec<Option<String>>,
    query: Vec<(String, String)>,
    body: Option<Bytes>,
    media: &'static str,
    token: Option<&'static str>,
    keyed: bool,
}

/// Texts that mean something somewhere, and ones that mean nothing anywhere.
fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec![
            "", "5m", "1s", "0s", "90", "24h", "25h", "-5m", "1h30m", "true", "default", "px", "default/px", "a/b", "/", "shop.example",
            "Managed", "External", "Ready", "success", "blocked", "rateLimited", "timeout", "error", "egressIP", "2030-01-01T00:00:00Z",
            "2001-01-01T00:00:00.000Z", "0", "1", "1000", "1001", "99999999999999999999", "null", "{}", "%", "%2", "\u{0}", "\u{7f}", "ü", "💥",
            "a b", "&", "=", "..", "k5v2q7m4n3x6c2b7d4f5g6h7ja",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,20}",
        1 => (0..2000_usize).prop_map(|length| "x".repeat(length)),
    ]
}

/// Any JSON, not too deep.
fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(words(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
    .boxed()
}

impl Contract {
    /// Mostly what a schema asks for, with fields left out, added and of other types.
    fn values(&self, schema: &Value, depth: usize) -> BoxedStrategy<Value> {
        let schema = self.resolve(schema);
        if let Some(any) = schema["oneOf"].as_array() {
            let any: Vec<_> = any.iter().map(|schema| self.values(schema, depth)).collect();
            return prop::strategy::Union::new(any).boxed();
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(any) => any.iter().filter_map(Value::as_str).collect(),
            _ => return anything(),
        };
        let proper = if depth == 0 {
            anything()
        } else if types.contains(&"object") {
            let mut fields: Vec<BoxedStrategy<Option<(String, Value)>>> = Vec::new();
            for (name, of) in schema["properties"].as_object().into_iter().flatten() {
                let name = name.clone();
                fields.push(prop::option::of(self.values(of, depth - 1).prop_map(move |value| (name.clone(), value))).boxed());
            }
            let other = if schema["additionalProperties"].is_object() {
                self.values(&schema["additionalProperties"], depth - 1)
            } else {
                anything()
            };
            fields.push(prop::option::weighted(0.1, (words(), other)).boxed());
            fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect())).boxed()
        } else if types.contains(&"array") {
            prop::collection::vec(self.values(&schema["items"], depth - 1), 0..4).prop_map(Value::from).boxed()
        } else if let Some(known) = schema["enum"].as_array() {
            prop::sample::select(known.clone()).boxed()
        } else if types.contains(&"string") {
            words().prop_map(Value::from).boxed()
        } else {
            anything()
        };
        prop_oneof![9 => proper, 1 => anything()].boxed()
    }

    fn calls(&self) -> BoxedStrategy<Call> {
        let one = self.operations().into_iter().enumerate().map(|(number, operation)| {
            let parts = operation.path.matches('{').count();
            let names: Vec<String> = operation.spec["parameters"].as_array().into_iter().flatten().filter(|p| p["in"] == "query").filter_map(|p| Some(p["name"].as_str()?.to_owned())).collect();
            let names = [names, vec!["attr.geo".to_owned(), "attr.".to_owned(), "nope".to_owned()]].concat();
            let parameter = (prop_oneof![9 => prop::sample::select(names), 1 => words()], words());
            let query = prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(parameter, 1..3)];
            let body = match &operation.spec["requestBody"]["content"]["application/json"]["schema"] {
                Value::Null => Just(None).boxed(),
                schema => prop_oneof![
                    8 => self.values(schema, 3).prop_map(|value| Some(Bytes::from(value.to_string()))),
                    1 => anything().prop_map(|value| Some(Bytes::from(value.to_string()))),
                    1 => prop::collection::vec(any::<u8>(), 0..50).prop_map(|bytes| Some(Bytes::from(bytes))),
                    1 => Just(None),
                    3 => Just(Some(Bytes::from_static(b"{}"))),
                ]
                .boxed(),
            };
            let part = prop_oneof![
                5 => Just(None),
                2 => words().prop_filter("a part is not empty", |word| !word.is_empty()).prop_map(|word| Some(encoded(word.as_bytes()))),
                1 => prop::collection::vec(any::<u8>(), 1..20).prop_map(|bytes| Some(encoded(&bytes))),
            ];
            let media = prop_oneof![9 => Just("application/json"), 1 => prop::sample::select(vec!["text/plain", "application/json; charset=latin1", ""])];
            let token = prop_oneof![9 => Just(Some(TOKEN)), 1 => prop::sample::select(vec![None, Some("wrong"), Some("")])];
            (prop::collection::vec(part, parts), query, body, media, token, prop::bool::weighted(0.05)).prop_map(
                move |(parts, query, body, media, token, keyed)| Call { operation: number, parts, query, body, media, token, keyed },
            )
        });
        prop::strategy::Union::new(one.map(Strategy::boxed)).boxed()
    }
}

/// Every byte that is not plain as `%XX`.
fn encoded(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if byte.is_ascii_alphanumeric() { char::from(*byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

impl Call {
    /// The request, with the real names where the call wants them.
    fn request(&self, operation: &Operation, lease: &str) -> Request<Full<Bytes>> {
        let mut path = operation.path.clone();
        for part in &self.parts {
            let (start, end) = (path.find('{').unwrap(), path.find('}').unwrap());
            let real = match &path[start + 1..end] {
                "id" => lease,
                "namespace" => "default",
                _ => "px",
            };
            path.replace_range(start..=end, part.as_deref().unwrap_or(real));
        }
        let query: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{}={}", encoded(name.as_bytes()), encoded(value.as_bytes()))).collect();
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        let mut request = Request::builder().method(operation.method.clone()).uri(path).header("host", "localhost");
        if let Some(token) = self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if self.body.is_some() {
            request = request.header("content-type", self.media);
        }
        if self.keyed {
            request = request.header("idempotency-key", "k");
        }
        request.body(Full::new(self.body.clone().unwrap_or_default())).unwrap()
    }
}

/// LS-11: whatever is sent to a documented operation, the answer is a documented one and never a 500.
#[test]
fn no_generated_call_gets_an_answer_that_is_not_documented_ls_11() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let contract = Contract::new();
    let operations = contract.operations();
    let pool = runtime.block_on(Pool::new(&[("default/px", 10_000)], Pace::Steady));
    let lease = id(&runtime.block_on(pool.grant(json!({"ttl": "24h"}))));
    let cases = u32::try_from(rounds(600, 20_000)).unwrap();
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() });
    let mut seen: BTreeMap<u16, usize> = BTreeMap::new();
    let counts = std::cell::RefCell::new(&mut seen);
    let outcome = runner.run(&contract.calls(), |call| {
        let operation = &operations[call.operation];
        let request = call.request(operation, &lease);
        let target = format!("{} {}", request.method(), request.uri());
        let answer = runtime.block_on(pool.api().exchange(request)).map_err(|error| TestCaseError::fail(format!("{target}: {error}")))?;
        *counts.borrow_mut().entry(answer.status.as_u16()).or_default() += 1;
        contract.check(operation, &answer).map_err(|fault| TestCaseError::fail(format!("{target}: {fault}")))
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    for status in [200, 400, 401, 404] {
        assert!(seen.contains_key(&status), "the calls are not all of one kind: {seen:?}");
    }
    assert_eq!(runtime.block_on(pool.api().get("/healthz")).status, 200);
}

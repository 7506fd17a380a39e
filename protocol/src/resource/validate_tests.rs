//! The table `cases.json` is the contract: here it runs offline, in the cluster tests against a real API server.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::resource::HealthCheck;

fn cases() -> Value {
    serde_json::from_str(include_str!("cases.json")).unwrap()
}

fn paths(faults: &[FieldFault]) -> BTreeSet<&str> {
    faults.iter().map(|fault| fault.path.as_str()).collect()
}

#[test]
fn the_walker_knows_every_keyword_of_the_schema() {
    assert!(SCHEMA.is_ok(), "{:?}", SCHEMA.as_ref().err());
}

#[test]
fn every_spec_of_the_table_is_accepted_or_refused_by_the_field_it_names() {
    let cases = cases();
    for case in cases["accepted"].as_array().unwrap() {
        let verdict = check_spec(&case["spec"]);
        assert!(verdict.is_ok(), "{}: {verdict:?}", case["name"]);
    }
    for case in cases["rejected"].as_array().unwrap() {
        let faults = check_spec(&case["spec"]).expect_err(case["name"].as_str().unwrap());
        let path = case["path"].as_str().unwrap();
        assert_eq!(paths(&faults), BTreeSet::from([path]), "{}: {faults:?}", case["name"]);
    }
}

/// Issue 10, 28: what is wrong with the name is said, since both look right to whoever wrote them.
#[test]
fn a_host_with_an_underscore_or_a_dot_at_its_end_is_told_so() {
    for (host, says) in [("proxy_1.example", "no underscore"), ("proxy.example.", "no dot at the end")] {
        let faults = check_spec(&json!({"mode": "External", "port": 3128, "endpoint": {"host": host}})).unwrap_err();
        assert!(faults.len() == 1 && faults[0].path == "spec.endpoint.host", "{host}: {faults:?}");
        assert!(faults[0].to_string().contains(says), "{host}: {}", faults[0]);
    }
}

#[test]
fn a_change_of_mode_or_provider_is_refused_and_no_other() {
    for case in cases()["changes"].as_array().unwrap() {
        let [old, new] = ["old", "new"].map(|side| check_spec(&case[side]).unwrap());
        let expected: BTreeSet<_> = case["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
        assert_eq!(paths(&check_change(&old, &new)), expected, "{}", case["name"]);
    }
}

#[test]
fn every_fault_of_a_spec_is_told_at_once() {
    let faults = check_spec(&json!({
        "mode": "Managed", "port": 0, "endpoint": { "host": "a:1" }, "prot": 1,
        "healthCheck": { "url": "x", "intervalSeconds": 3, "failureThreshold": "3" },
    }))
    .unwrap_err();
    let expected = [
        "spec.endpoint",
        "spec.endpoint.host",
        "spec.healthCheck.failureThreshold",
        "spec.healthCheck.timeoutSeconds",
        "spec.healthCheck.url",
        "spec.port",
        "spec.prot",
        "spec.provider",
    ];
    assert_eq!(paths(&faults), BTreeSet::from(expected));
}

#[test]
fn defaults_are_those_of_the_table_in_the_spec() {
    let spec = check_spec(&json!({ "mode": "Managed", "provider": "lab", "cloudInit": { "secretRef": { "name": "a" } } })).unwrap();
    assert_eq!((spec.port, spec.max_leases, spec.provisioning_timeout_seconds), (3128, 1, 1800));
    assert_eq!(spec.health_check, HealthCheck::default());
    assert_eq!(spec.cloud_init.unwrap().secret_ref.unwrap().key, "user-data");
}

/// The value the other rule compares with may be a default, which the author never wrote.
#[test]
fn the_message_on_a_timeout_names_both_values() {
    let faults = check_spec(&json!({ "mode": "Managed", "provider": "lab", "healthCheck": { "intervalSeconds": 4 } })).unwrap_err();
    assert_eq!(faults[0].reason, "timeoutSeconds (5) must not exceed intervalSeconds (4)");
}

#[test]
fn a_number_or_boolean_where_a_text_belongs_gets_a_hint() {
    let spec = json!({ "mode": "Managed", "provider": "lab", "attributes": { "geo": false } });
    assert_eq!(check_spec(&spec).unwrap_err()[0].reason, "must be a string, is a boolean: put it in quotes");
}

#[test]
fn a_field_in_the_wrong_case_is_told_the_right_one() {
    let spec = json!({ "mode": "Managed", "provider": "lab", "maxleases": 2 });
    assert_eq!(check_spec(&spec).unwrap_err()[0].reason, "is not a known field: write maxLeases");
}

/// Hard case S7: a password put in the wrong place must not come back in an error.
#[test]
fn a_fault_never_shows_a_text_it_found() {
    for case in cases()["rejected"].as_array().unwrap() {
        let text = format!("{:?}", check_spec(&case["spec"]).unwrap_err());
        assert!(!text.contains("pass") && !text.contains("u:p@"), "{text}");
    }
}

/// PC-75: cloud-init is a secret, and a spec is the first thing a debug line prints.
#[test]
fn a_spec_prints_without_its_cloud_init() {
    let spec = check_spec(&json!({ "mode": "Managed", "provider": "lab", "cloudInit": { "inline": "hunter2" } })).unwrap();
    let text = format!("{spec:?}");
    assert!(!text.contains("hunter2") && text.contains("<secret, 7 bytes>"), "{text}");
}

#[test]
fn length_counts_characters_not_bytes() {
    let spec = |inline: String| json!({ "mode": "Managed", "provider": "lab", "cloudInit": { "inline": inline } });
    assert!(check_spec(&spec("é".repeat(262_144))).is_ok());
    assert_eq!(paths(&check_spec(&spec("é".repeat(262_145))).unwrap_err()), BTreeSet::from(["spec.cloudInit.inline"]));
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!("Managed")),
    ];
    let keys = prop_oneof![
        Just("mode".to_owned()),
        Just("healthCheck".to_owned()),
        Just("endpoint".to_owned()),
        Just("host".to_owned()),
        Just("attributes".to_owned()),
        Just("intervalSeconds".to_owned()),
        ".{0,4}",
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever stands there, the answer is a spec or faults that name a field of it; an accepted one is its own
    /// canonical form.
    #[test]
    fn any_value_is_judged(value in json_value()) {
        match check_spec(&value) {
            Ok(spec) => prop_assert_eq!(check_spec(&serde_json::to_value(&spec).unwrap()), Ok(spec)),
            Err(faults) => prop_assert!(!faults.is_empty() && faults.iter().all(|f| f.path.starts_with("spec") && !f.reason.is_empty())),
        }
    }
}

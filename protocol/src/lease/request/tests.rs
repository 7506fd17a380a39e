//! Requests of LS-2, LS-5, LS-7, LS-16 and the lists: what is accepted, and how each fault is named.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn faults<T: std::fmt::Debug>(result: Result<T, Vec<FieldError>>) -> Vec<(String, String)> {
    result.unwrap_err().into_iter().map(|e| (e.field, e.message)).collect()
}

fn fault_of(body: serde_json::Value) -> (String, String) {
    let mut all = faults(parse_grant(&serde_json::to_vec(&body).unwrap()));
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn a_full_grant_is_read() {
    let body = json!({"selector": {"attributes": {"tier": ["b", "a", "b"], "geo": "de"}, "provider": "lab", "namespace": "default",
        "name": "px-1", "exclude": ["default/px-2"]}, "target": "Shop.Example", "ttl": "1h30m", "owner": "crawler-7"});
    let request = parse_grant(&serde_json::to_vec(&body).unwrap()).unwrap();
    assert_eq!(request.target.as_deref(), Some("shop.example"));
    assert_eq!(request.ttl, Some(Duration::from_secs(5400)));
    assert_eq!(request.owner.as_deref(), Some("crawler-7"));
    let keys: Vec<(&str, Vec<&str>)> =
        request.selector.attributes.iter().map(|a| (&*a.key, a.values.iter().map(|v| &**v).collect())).collect();
    assert_eq!(keys, [("geo", vec!["de"]), ("tier", vec!["a", "b"])]);
    assert_eq!(request.selector.exclude, [ObjectKey::new("default", "px-2")]);
}

#[test]
fn null_is_the_same_as_absent() {
    let body = json!({"selector": {"attributes": {"geo": null}, "provider": null, "exclude": null}, "target": null, "ttl": null,
        "owner": null, "count": null, "distinct": null, "wait": null, "session": null, "sticky": null});
    assert_eq!(parse_grant(&serde_json::to_vec(&body).unwrap()), Ok(GrantRequest::default()));
    assert_eq!(parse_grant(br#"{"selector": null}"#), Ok(GrantRequest::default()));
}

#[test]
fn each_fault_of_a_grant_names_its_field() {
    let long = "x".repeat(254);
    for (body, field, message) in [
        (json!({"ttl": 90}), "ttl", "90 is not a duration such as 90s or 5m"),
        (json!({"ttl": "90"}), "ttl", "90 is not a duration such as 90s or 5m"),
        (json!({"ttl": "999ms"}), "ttl", "must be at least 1s"),
        (json!({"ttl": true}), "ttl", "must be a duration such as 90s or 5m"),
        (json!({"target": ""}), "target", "must be 1 to 253 visible ASCII characters"),
        (json!({"target": "a b"}), "target", "must be 1 to 253 visible ASCII characters"),
        (json!({"target": "caf\u{e9}"}), "target", "must be 1 to 253 visible ASCII characters"),
        (json!({"target": long}), "target", "must be 1 to 253 visible ASCII characters"),
        (json!({"owner": long}), "owner", "must have at most 253 characters"),
        (json!({"owner": 7}), "owner", "must be a string"),
        (json!({"selector": []}), "selector", "must be an object"),
        (json!({"selector": {"attributes": "de"}}), "selector.attributes", "must be an object"),
        (json!({"selector": {"attributes": {"geo": 1}}}), "selector.attributes.geo", "must be a string or a list of strings"),
        (json!({"selector": {"attributes": {"geo": []}}}), "selector.attributes.geo", "must not be empty"),
        (json!({"selector": {"attributes": {"geo": ["de", 1]}}}), "selector.attributes.geo[1]", "must be a string"),
        (json!({"selector": {"provider": ""}}), "selector.provider", "must not be empty"),
        (json!({"selector": {"provider": {}}}), "selector.provider", "must be a string"),
        (json!({"selector": {"exclude": "default/px-1"}}), "selector.exclude", "must be a list of NAMESPACE/NAME"),
        (json!({"selector": {"exclude": ["px-1"]}}), "selector.exclude[0]", "must be NAMESPACE/NAME"),
        (json!({"selector": {"exclude": vec!["a/b"; 101]}}), "selector.exclude", "must have at most 100 entries"),
        (json!({"selector": {"colour": "red"}}), "selector.colour", "is not a known field"),
        (json!({"colour": "red"}), "colour", "is not a known field"),
        (json!([]), "body", "must be a JSON object"),
        (json!("x"), "body", "must be a JSON object"),
    ] {
        assert_eq!(fault_of(body.clone()), (field.to_owned(), message.to_owned()), "{body}");
    }
}

#[test]
fn what_comes_later_is_refused_not_ignored() {
    for field in ["count", "distinct", "wait", "session", "sticky"] {
        assert_eq!(fault_of(json!({field: 1})), (field.to_owned(), "not supported by this version".to_owned()));
    }
    assert_eq!(
        faults(parse_report(br#"{"result": "success", "counts": {"success": 9}}"#)),
        [("counts".to_owned(), "not supported by this version".to_owned())]
    );
}

#[test]
fn every_fault_is_reported_at_once() {
    let body = json!({"ttl": "soon", "target": "", "selector": {"x": 1, "attributes": {"a": 1}}, "count": 2});
    let fields: Vec<String> = faults(parse_grant(&serde_json::to_vec(&body).unwrap())).into_iter().map(|f| f.0).collect();
    assert_eq!(fields, ["selector.attributes.a", "selector.x", "target", "ttl", "count"]);
}

#[test]
fn a_list_of_other_things_than_texts_is_not_called_empty() {
    let found = faults(parse_grant(br#"{"selector": {"attributes": {"a": [7, {}], "b": []}}}"#));
    let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, ["selector.attributes.a[0]", "selector.attributes.a[1]", "selector.attributes.b"]);
}

#[test]
fn a_field_without_a_name_is_named_all_the_same() {
    let of = |found: Vec<(String, String)>| found.into_iter().map(|(field, _)| field).collect::<Vec<_>>();
    assert_eq!(
        of(faults(parse_grant(br#"{"": 1, "selector": {"": 1, "attributes": {"": 7}}}"#))),
        [r#"selector.attributes."""#, r#"selector."""#, r#""""#]
    );
    assert_eq!(of(faults(parse_proxy_query("=x"))), ["?"]);
    assert_eq!(of(faults(parse_lease_query("=x"))), ["?"]);
}

#[test]
fn values_are_counted_as_they_were_given() {
    let body = |count: usize| format!(r#"{{"selector": {{"attributes": {{"a": [{}]}}}}}}"#, vec![r#""x""#; count].join(","));
    assert!(parse_grant(body(100).as_bytes()).is_ok());
    let found = faults(parse_grant(body(101).as_bytes()));
    assert_eq!(found, [("selector.attributes.a".to_owned(), "must have at most 100 values".to_owned())]);
}

#[test]
fn a_field_given_twice_is_a_fault() {
    for (body, field) in [
        (&br#"{"ttl": "5m", "ttl": "6m", "ttl": "7m"}"#[..], "ttl"),
        (br#"{"ttl": null, "ttl": "6m"}"#, "ttl"),
        (br#"{"selector": {"name": "a", "name": "b"}}"#, "selector.name"),
        (br#"{"selector": {"attributes": {"a": "1", "a": "2"}}}"#, "selector.attributes.a"),
    ] {
        assert_eq!(faults(parse_grant(body)), [(field.to_owned(), "is given twice".to_owned())], "and nothing else is wrong with it");
    }
}

#[test]
fn what_is_not_json_is_a_fault_of_the_body() {
    for bytes in [&b""[..], b"  ", b"{", b"{\"a\":}", b"\xff", b"{\"target\": \"\xff\"}", b"{} {}", &[b'['; 10_000]] {
        assert_eq!(faults(parse_grant(bytes))[0].0, "body", "{bytes:?}");
    }
}

#[test]
fn renewals_reports_and_cordons_are_read_as_strictly() {
    assert_eq!(parse_renew(b""), Ok(RenewRequest { ttl: None }));
    assert_eq!(parse_renew(br#"{"ttl": "90s"}"#), Ok(RenewRequest { ttl: Some(Duration::from_secs(90)) }));
    assert_eq!(faults(parse_renew(br#"{"id": "x"}"#))[0].0, "id");

    let report = parse_report(br#"{"result": "rateLimited", "target": "A.example", "cooldown": "0s", "message": "429"}"#).unwrap();
    assert_eq!(
        (report.result, report.target.as_deref(), report.cooldown),
        (ReportResult::RateLimited, Some("a.example"), Some(Duration::ZERO))
    );
    assert_eq!(faults(parse_report(b"{}")), [("result".to_owned(), "is required".to_owned())]);
    assert_eq!(faults(parse_report(br#"{"result": "banned"}"#))[0].0, "result");
    assert_eq!(
        faults(parse_report(br#"{"result": "blocked", "cooldown": "25h"}"#))[0],
        ("cooldown".to_owned(), "must be at most 24h".to_owned())
    );

    let now = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
    let cordon = parse_cordon(br#"{"reason": "by hand", "until": "2026-01-02T04:00:00Z", "target": "X"}"#, now).unwrap();
    assert_eq!((cordon.target.as_deref(), cordon.until, &*cordon.reason), (Some("x"), Timestamp::parse("2026-01-02T04:00:00Z"), "by hand"));
    assert_eq!(faults(parse_cordon(b"{}", now)), [("reason".to_owned(), "is required".to_owned())]);
    // Issue 10, 28.
    assert_eq!(faults(parse_cordon(br#"{"reason": " "}"#, now)), [("reason".to_owned(), "must not be empty".to_owned())]);
    assert!(parse_cordon(br#"{"reason": "x", "until": "9999-12-31T23:59:59Z"}"#, now).is_ok());
    assert_eq!(faults(parse_cordon(br#"{"reason": "x", "until": "2026-01-02T03:04:05Z"}"#, now))[0].1, "lies in the past");
    assert_eq!(faults(parse_cordon(br#"{"reason": "x", "until": "tomorrow"}"#, now))[0].0, "until");
}

#[test]
fn queries_are_read_as_strictly() {
    let query =
        parse_proxy_query("attr.geo=de&attr.a%2Fb=c+d&healthy=true&mode=External&phase=Ready&provider=lab&namespace=n&limit=7").unwrap();
    assert_eq!(query.filter.attributes, [("geo".into(), "de".into()), ("a/b".into(), "c d".into())]);
    assert_eq!((query.filter.healthy, query.filter.mode, query.filter.phase), (Some(true), Some(Mode::External), Some(Phase::Ready)));
    assert_eq!((query.limit, parse_proxy_query("").unwrap().limit), (7, 100));
    for (query, field) in [
        ("healthy=yes", "healthy"),
        ("mode=managed", "mode"),
        ("phase=ready", "phase"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("limit=1&limit=2", "limit"),
        ("cursor=abc", "cursor"),
        ("colour=red", "colour"),
        ("attr.=x", "attr."),
        ("provider=%zz", "provider"),
        ("provider=%ff", "provider"),
    ] {
        assert_eq!(faults(parse_proxy_query(query))[0].0, field, "{query}");
    }
    let id = LeaseIdFixture::ID;
    let cursor = crate::lease::Cursor::Lease(id).encode();
    let query = parse_lease_query(&format!("owner=crawler-7&proxy=default%2Fpx-1&cursor={cursor}")).unwrap();
    assert_eq!(
        (query.filter.owner.as_deref(), query.filter.proxy, query.after),
        (Some("crawler-7"), Some(ObjectKey::new("default", "px-1")), Some(id))
    );
    assert_eq!(faults(parse_proxy_query(&format!("cursor={cursor}")))[0].0, "cursor", "a cursor of the other list is foreign");
    assert_eq!(faults(parse_lease_query("proxy=px-1"))[0].0, "proxy");
}

struct LeaseIdFixture;
impl LeaseIdFixture {
    const ID: crate::lease::LeaseId = crate::lease::LeaseId::from_bytes([9; 16]);
}

fn values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(7)),
        Just(json!("5m")),
        Just(json!("")),
        Just(json!("default/px-1")),
        Just(json!("Shop \u{e9}\"")),
        Just(json!(["a", "b", "a"])),
        Just(json!([])),
    ];
    let attributes = proptest::collection::btree_map(prop_oneof![Just("a"), Just("b"), Just("c\n")], leaf.clone(), 0..3);
    let selector = (
        proptest::option::of(attributes),
        proptest::collection::btree_map(prop_oneof![Just("provider"), Just("name"), Just("exclude"), Just("odd")], leaf.clone(), 0..3),
    )
        .prop_map(|(attributes, mut fields)| {
            if let Some(attributes) = attributes {
                fields.insert("attributes", json!(attributes));
            }
            json!(fields)
        });
    (
        proptest::option::of(prop_oneof![4 => selector, 1 => leaf.clone()]),
        proptest::collection::btree_map(
            prop_oneof![4 => Just("target"), 4 => Just("ttl"), 4 => Just("owner"), 1 => Just("count")],
            leaf,
            0..4,
        ),
    )
        .prop_map(|(selector, mut fields)| {
            if let Some(selector) = selector {
                fields.insert("selector", selector);
            }
            json!(fields)
        })
}

proptest! {
    #[test]
    fn the_quick_and_the_thorough_reader_accept_the_same(body in values()) {
        let bytes = serde_json::to_vec(&body).unwrap();
        let thorough = grant_from_tree(&bytes);
        if let Some(quick) = fast::grant(&bytes) {
            prop_assert_eq!(Ok(quick), thorough);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), query in "[ -~]{0,40}") {
        let _ = parse_grant(&bytes);
        let _ = parse_report(&bytes);
        let _ = parse_proxy_query(&query);
        let _ = parse_lease_query(&query);
    }
}

use std::collections::BTreeSet;

use super::*;

mod markdown;

/// Everything that is routed on the discovery address and belongs to the contract. The bulk and session calls are
/// routed only to be refused.
const ROUTES: [(&str, &str); 15] = [
    ("get", "/v1/proxies"),
    ("get", "/v1/proxies/{namespace}/{name}"),
    ("post", "/v1/proxies/{namespace}/{name}/cordon"),
    ("delete", "/v1/proxies/{namespace}/{name}/cordon"),
    ("delete", "/v1/proxies/{namespace}/{name}/cooldown"),
    ("post", "/v1/leases"),
    ("get", "/v1/leases"),
    ("get", "/v1/leases/{id}"),
    ("delete", "/v1/leases/{id}"),
    ("post", "/v1/leases/{id}/renew"),
    ("post", "/v1/leases/{id}/report"),
    ("post", "/v1/leases/explain"),
    ("get", "/openapi.json"),
    ("get", "/healthz"),
    ("get", "/readyz"),
];

/// Compares a committed file with what it should be; writes it when asked to.
#[expect(clippy::disallowed_methods, reason = "a switch of this test alone")]
fn committed(file: &str, generated: &str) {
    let path = format!("{}/docs/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, generated).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == generated,
        "docs/{file} is not what the handlers say; write it anew: UPDATE=1 cargo test -p egress-proxies-operator --lib openapi"
    );
}

#[test]
fn the_committed_documents_are_the_generated_ones_ls_11() {
    committed("openapi.json", text());
    committed("api.md", &markdown::page(&serde_json::from_str(text()).unwrap()));
}

#[test]
fn every_route_and_every_problem_is_in_the_document_ls_11() {
    let mut api = document();
    assert_eq!(serde_json::to_value(&api).unwrap()["openapi"], "3.1.0");
    let listed: BTreeSet<(&str, &str)> = PROBLEMS.iter().map(|(method, path, _)| (*method, *path)).collect();
    assert_eq!(listed, BTreeSet::from(ROUTES));
    let described: usize =
        api.paths.paths.values().map(|item| [&item.get, &item.post, &item.delete].iter().filter(|o| o.is_some()).count()).sum();
    assert_eq!(described, ROUTES.len());
    for (method, path, codes) in PROBLEMS {
        let item = api.paths.paths.get_mut(*path).unwrap_or_else(|| panic!("{path}"));
        let operation = operation(item, method).unwrap_or_else(|| panic!("{method} {path}"));
        for code in codes.iter().chain(ALWAYS) {
            let RefOr::T(response) = &operation.responses.responses[&code.status().to_string()] else { panic!("{path}") };
            assert!(response.description.contains(&format!("`{}`", code.as_str())), "{method} {path} {code:?}");
            assert!(response.content.contains_key("application/problem+json"), "{method} {path} {code:?}");
        }
    }
    // Served by later versions only.
    let later = [P::SessionUnavailable, P::IdempotencyKeyReused, P::QueueFull];
    // Answers of the frame, which no described call gives.
    let frame = [P::MethodNotAllowed];
    let answered: BTreeSet<&str> = PROBLEMS
        .iter()
        .flat_map(|(_, _, codes)| codes.iter())
        .chain(ALWAYS)
        .chain(LED)
        .chain(WITH_BODY)
        .chain(&later)
        .chain(&frame)
        .map(|code| code.as_str())
        .collect();
    assert_eq!(answered, ProblemCode::ALL.iter().map(|code| code.as_str()).collect());
}

#[test]
fn every_reference_leads_somewhere() {
    let document: serde_json::Value = serde_json::from_str(text()).unwrap();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

fn collect<'a>(value: &'a serde_json::Value, out: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(map) => {
            out.extend(map.get("$ref").and_then(|r| r.as_str()));
            map.values().for_each(|v| collect(v, out));
        }
        serde_json::Value::Array(list) => list.iter().for_each(|v| collect(v, out)),
        _ => {}
    }
}

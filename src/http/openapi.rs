//! The contract of the API, generated from the handlers (LS-11): an OpenAPI 3.1 document, served at `/openapi.json` and
//! committed as `docs/openapi.json`.
//!
//! The handlers describe parameters, bodies and successes; which problems each call can answer is the table
//! [`PROBLEMS`], since most are the frame's and not the handler's.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use egress_protocol::lease::{Problem, ProblemCode};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, Header, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use crate::http::{discovery, health};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "egress-proxies-operator",
        description = "Lists forward proxies and leases them to crawlers. Errors are RFC 9457 problem documents whose `code` is stable; \
            unknown fields and query parameters are errors; times are RFC 3339 in UTC with milliseconds; a field without a value is left out.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
        contact()
    ),
    paths(
        discovery::proxies::list,
        discovery::proxies::one,
        discovery::proxies::cordon,
        discovery::proxies::uncordon,
        discovery::proxies::lift_cooldown,
        discovery::leases::grant,
        discovery::leases::list,
        discovery::leases::one,
        discovery::leases::release,
        discovery::leases::renew,
        discovery::leases::report,
        discovery::leases::explain,
        discovery::openapi_json,
        health::healthz,
        health::readyz,
    ),
    components(schemas(Problem)),
    tags(
        (name = "proxies", description = "What there is, and taking one out by hand"),
        (name = "leases", description = "Using a proxy for a while"),
        (name = "health", description = "The process itself; needs no token"),
    ),
    security(("token" = [])),
    modifiers(&Complete)
)]
struct Api;

use ProblemCode as P;

/// What each call can answer besides success; [`ALWAYS`] and, where a body is read, [`WITH_BODY`] come on top.
pub(crate) const PROBLEMS: &[(&str, &str, &[ProblemCode])] = &[
    ("get", "/v1/proxies", &[P::InvalidRequest, P::Unauthorized]),
    ("get", "/v1/proxies/{namespace}/{name}", &[P::InvalidRequest, P::Unauthorized, P::NotFound]),
    (
        "post",
        "/v1/proxies/{namespace}/{name}/cordon",
        &[P::InvalidRequest, P::Unauthorized, P::Forbidden, P::NotFound, P::Stopping, P::StoreUnavailable],
    ),
    (
        "delete",
        "/v1/proxies/{namespace}/{name}/cordon",
        &[P::InvalidRequest, P::Unauthorized, P::Forbidden, P::NotFound, P::Stopping, P::StoreUnavailable],
    ),
    (
        "delete",
        "/v1/proxies/{namespace}/{name}/cooldown",
        &[P::InvalidRequest, P::Unauthorized, P::Forbidden, P::NotFound, P::Stopping, P::StoreUnavailable],
    ),
    (
        "post",
        "/v1/leases",
        &[P::InvalidRequest, P::Unauthorized, P::NoMatch, P::NoneHealthy, P::NoCapacity, P::Stopping, P::StoreUnavailable],
    ),
    ("get", "/v1/leases", &[P::InvalidRequest, P::Unauthorized, P::Stopping]),
    ("get", "/v1/leases/{id}", &[P::InvalidRequest, P::Unauthorized, P::UnknownLease, P::Stopping]),
    ("delete", "/v1/leases/{id}", &[P::InvalidRequest, P::Unauthorized, P::Stopping, P::StoreUnavailable]),
    (
        "post",
        "/v1/leases/{id}/renew",
        &[P::InvalidRequest, P::Unauthorized, P::UnknownLease, P::LeaseEnded, P::Stopping, P::StoreUnavailable],
    ),
    ("post", "/v1/leases/{id}/report", &[P::InvalidRequest, P::Unauthorized, P::UnknownLease, P::Stopping, P::StoreUnavailable]),
    ("post", "/v1/leases/explain", &[P::InvalidRequest, P::Unauthorized, P::Stopping]),
    ("get", "/openapi.json", &[P::InvalidRequest]),
    ("get", "/healthz", &[P::InvalidRequest]),
    ("get", "/readyz", &[P::InvalidRequest, P::Unauthorized]),
];

/// Any call.
const ALWAYS: &[ProblemCode] = &[P::HostNotAllowed, P::Internal, P::Overloaded];
/// Any call that only a leader answers; the two lists too, while the own watch has nothing.
const LED: &[ProblemCode] = &[P::NoLeader];
/// Any call that reads a body.
const WITH_BODY: &[ProblemCode] = &[P::BodyTooLarge, P::UnsupportedMediaType];

/// Adds the version, the security scheme and the problems.
struct Complete;

impl Modify for Complete {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        crate::version::VERSION.clone_into(&mut api.info.version);
        let components = api.components.get_or_insert_default();
        let scheme = Http::builder().scheme(HttpAuthScheme::Bearer).description(Some("A line of the token file, or `DISCOVERY_TOKEN`"));
        components.add_security_scheme("token", SecurityScheme::Http(scheme.build()));
        for (method, path, codes) in PROBLEMS {
            if let Some(operation) = api.paths.paths.get_mut(*path).and_then(|item| operation(item, method)) {
                describe(operation, codes, if path.starts_with("/v1/") { LED } else { &[] });
            }
        }
    }
}

/// The operation of a method.
pub(crate) fn operation<'a>(item: &'a mut PathItem, method: &str) -> Option<&'a mut Operation> {
    match method {
        "get" => item.get.as_mut(),
        "post" => item.post.as_mut(),
        "delete" => item.delete.as_mut(),
        _ => None,
    }
}

fn describe(operation: &mut Operation, codes: &[ProblemCode], led: &[ProblemCode]) {
    let with_body: &[ProblemCode] = if operation.request_body.is_some() { WITH_BODY } else { &[] };
    let mut by_status: BTreeMap<u16, Vec<ProblemCode>> = BTreeMap::new();
    for code in codes.iter().chain(ALWAYS).chain(led).chain(with_body) {
        by_status.entry(code.status()).or_default().push(*code);
    }
    for (status, codes) in by_status {
        let words: Vec<String> = codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.title())).collect();
        let status = status.to_string();
        if let Some(RefOr::T(there)) = operation.responses.responses.get_mut(&status) {
            // `/readyz` answers 503 with its own document too.
            there.description = format!("{}; or {}", there.description, words.join("; "));
            there.content.insert("application/problem+json".to_owned(), problem_content());
            continue;
        }
        operation.responses.responses.insert(status, RefOr::T(problem(&codes, words.join("; "))));
    }
}

fn problem(codes: &[ProblemCode], description: String) -> Response {
    let mut response = ResponseBuilder::new().description(description).content("application/problem+json", problem_content());
    let retry = |text: &str| {
        let mut header = Header::default();
        header.description = Some(text.to_owned());
        header
    };
    if codes.iter().any(|code| code.status() == 503) {
        response = response.header("Retry-After", retry("Seconds"));
    } else if codes.contains(&ProblemCode::NoCapacity) {
        response = response.header("Retry-After", retry("Seconds until a place frees, where that is known"));
    }
    response.build()
}

fn problem_content() -> Content {
    Content::new(Some(RefOr::<utoipa::openapi::Schema>::Ref(Ref::from_schema_name("Problem"))))
}

/// The document.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    Api::openapi()
}

/// The document as it is served and committed.
pub fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = serde_json::to_string_pretty(&document()).unwrap_or_default();
        text.push('\n');
        text
    })
}

#[cfg(test)]
mod tests;

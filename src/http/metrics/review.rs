//! Who may scrape: the bearer of a token whom the API server allows to get `/metrics`.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use egress_protocol::Secret;
use egress_protocol::lease::ProblemCode;
use egress_protocol::review::{ReviewMessage, Verdict};
use egress_supervision::Address;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::json;

use crate::http::auth;
use crate::http::problem::Refused;

/// How long the reviewer may take: a little more than it gives the API server.
const ANSWER: Duration = Duration::from_secs(6);
/// When a scrape that could not be judged may come again.
const RETRY: u64 = 2;

/// Lets a request pass, or answers it: 401 without a token that is known, 403 without the right, 503 when nobody can tell.
pub(super) async fn authorize(reviewer: &Address<ReviewMessage>, headers: &HeaderMap) -> Result<(), Response> {
    let token = auth::bearer(headers).map_err(IntoResponse::into_response)?;
    let Ok(token) = std::str::from_utf8(token) else { return Err(auth::unknown_token().into_response()) };
    let token = Secret::new(token.to_owned());
    let ask = |reply_to| ReviewMessage::Review { token, verb: "get", path: "/metrics", reply_to };
    match reviewer.call(ANSWER, ask).await {
        Ok(Verdict::Allowed { .. }) => Ok(()),
        Ok(Verdict::Forbidden { user }) => {
            Err(Refused::new(ProblemCode::Forbidden, format!("{user} may not get /metrics: no rule of the cluster allows it"))
                .into_response())
        }
        Ok(Verdict::Unknown) => Err(auth::unknown_token().into_response()),
        // Why is for the log: whoever asks may be anybody.
        Ok(Verdict::Unavailable { .. }) => Err(unavailable("the API server cannot be asked about the token now")),
        Err(error) => Err(unavailable(&format!("the token is not reviewed: {error}"))),
    }
}

/// None of the problems that the API names (LS-20), and so one without a name.
fn unavailable(detail: &str) -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let problem = json!({
        "type": "about:blank", "title": status.canonical_reason(), "status": status.as_u16(), "detail": detail, "retryAfterSeconds": RETRY,
    });
    let mut response = Response::new(Body::from(problem.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY));
    response
}

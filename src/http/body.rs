//! Request bodies and JSON answers.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde::Serialize;

use egress_protocol::lease::ProblemCode;

use crate::http::problem::Refused;

/// The largest body that is read (operator.md §6).
pub const MAX_BODY: usize = 64 * 1024;

/// Reads a body whole, within its limits. An empty one needs no media type; any other must be JSON.
pub async fn read(headers: &HeaderMap, body: Body, within: Duration) -> Result<Bytes, Refused> {
    let too_large = || Refused::new(ProblemCode::BodyTooLarge, format!("the body is larger than {MAX_BODY} bytes")).closing();
    // One that announces its length is not waited for.
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    let collected = match tokio::time::timeout(within, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
        Ok(Err(_)) => return Err(Refused::field("body", "ended before it was complete")),
        Err(_) => {
            let message = format!("did not arrive within {}", egress_protocol::time::format_duration(within));
            return Err(Refused::field("body", message).closing());
        }
    };
    if !collected.is_empty() && !is_json(headers) {
        return Err(Refused::new(ProblemCode::UnsupportedMediaType, "Content-Type must be application/json"));
    }
    Ok(collected)
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return false };
    let Ok(value) = value.to_str() else { return false };
    let mut parts = value.split(';').map(str::trim);
    parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
        && parts.all(|parameter| {
            parameter.is_empty()
                || parameter.split_once('=').is_none_or(|(name, value)| {
                    !name.trim().eq_ignore_ascii_case("charset") || value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
                })
        })
}

/// An answer in JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => json_bytes(status, bytes),
        Err(error) => {
            tracing::error!(%error, "answer cannot be written as JSON");
            axum::response::IntoResponse::into_response(Refused::new(ProblemCode::Internal, "the answer cannot be written"))
        }
    }
}

/// An answer whose JSON is there already.
pub fn json_bytes(status: StatusCode, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

//! How the proxy says no: a status, a line of text and `Proxy-Status` (RFC 9209).

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, PROXY_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use super::Identity;

/// Ours, or the target's as it comes.
pub(super) type Body = Either<Full<Bytes>, Incoming>;

const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub status: StatusCode,
    /// A proxy error type of RFC 9209 §2.3.
    pub error: &'static str,
    /// For people.
    pub details: String,
    /// The connection ends with it.
    pub close: bool,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: &'static str, details: impl Into<String>) -> Self {
        Self { status, error, details: details.into(), close: false }
    }

    /// Not a request that a forward proxy understands.
    pub(super) fn malformed(details: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "http_request_error", details)
    }

    /// The target may not be reached.
    pub(super) fn prohibited(details: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "destination_ip_prohibited", details)
    }

    /// The target did not play along.
    pub(super) fn bad_gateway(error: &'static str, details: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, error, details)
    }

    /// The target took too long.
    pub(super) fn timeout(error: &'static str, details: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, error, details)
    }

    /// A limit of this proxy.
    pub(super) fn limit(details: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached", details)
    }

    /// The client may not use this proxy.
    pub(super) fn client(details: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "http_request_denied", details)
    }

    #[must_use]
    pub(super) fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// As the client gets it.
    pub(super) fn response(&self, identity: &Identity) -> Response<Body> {
        let mut response = Response::new(Either::Left(Full::new(Bytes::from(format!("{}: {}\n", self.status, self.details)))));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        let status = format!("{}; error={}; details=\"{}\"", identity.instance, self.error, quoted(&self.details));
        if let Ok(value) = HeaderValue::from_str(&status) {
            headers.insert(PROXY_STATUS, value);
        }
        if self.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            headers.insert(PROXY_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"egress\""));
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The inside of a structured field's string (RFC 8941 §3.3.3): printable ASCII, quotes and backslashes escaped.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().take(200) {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

//! How the proxy says no: a status, a line of text and `Proxy-Status` (RFC 9209).

use std::fmt::Write as _;

use bytes::Bytes;
use http::StatusCode;

use super::Identity;

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

    /// As the client gets it. `to_head`: without the text, as an answer to HEAD is.
    pub(super) fn bytes(&self, identity: &Identity, to_head: bool, date: &str) -> Bytes {
        let text = format!("{}: {}\n", self.status, self.details);
        let mut out = format!("HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n", self.status, text.len());
        let _ = write!(
            out,
            "Date: {date}\r\nProxy-Status: {}; error={}; details=\"{}\"\r\n",
            identity.instance,
            self.error,
            quoted(&self.details)
        );
        match self.status {
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => out.push_str("Proxy-Authenticate: Basic realm=\"egress\"\r\n"),
            StatusCode::SERVICE_UNAVAILABLE => out.push_str("Retry-After: 1\r\n"),
            _ => {}
        }
        if self.close {
            out.push_str("Connection: close\r\n");
        }
        out.push_str("\r\n");
        if !to_head {
            out.push_str(&text);
        }
        Bytes::from(out)
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

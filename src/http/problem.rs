//! Errors on the wire: the problem documents of [`egress_protocol::lease::problem`] with their headers (LS-20).

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egress_protocol::lease::{FieldError, LeaseError, Problem, ProblemCode};
use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::http::body;

/// An answer that is an error.
#[derive(Debug, Clone)]
pub struct Refused {
    problem: Box<Problem>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Refused {
    /// With a detail.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    /// A 400 that names every fault.
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        Problem::invalid(errors).into()
    }

    /// A 400 for one field.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::new(field, message)])
    }

    /// The code.
    pub fn code(&self) -> ProblemCode {
        self.problem.code
    }

    /// The document.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The connection is of no use any more.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.header = Some((header::CONNECTION, HeaderValue::from_static("close")));
        self
    }
}

impl Refused {
    /// The whole answer as bytes, for who is not served by the router: it ends the connection.
    pub fn last_words(mut self, status: u16) -> Bytes {
        self.problem.status = status;
        let reason = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.problem).unwrap_or_default();
        let mut words = format!(
            "HTTP/1.1 {reason}\r\ncontent-type: application/problem+json\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        if let Some(seconds) = self.problem.retry_after_seconds {
            words += &format!("retry-after: {seconds}\r\n");
        }
        words += "\r\n";
        let mut words = words.into_bytes();
        words.extend(body);
        words.into()
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        let header = (problem.code == ProblemCode::Unauthorized).then(|| (header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        Self { problem: Box::new(problem), header }
    }
}

impl From<LeaseError> for Refused {
    fn from(error: LeaseError) -> Self {
        error.problem().into()
    }
}

impl From<Vec<FieldError>> for Refused {
    fn from(errors: Vec<FieldError>) -> Self {
        Self::invalid(errors)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let bytes = serde_json::to_vec(&self.problem).unwrap_or_default();
        let mut response = body::json_bytes(status, bytes);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.problem.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some((name, value)) = self.header {
            headers.insert(name, value);
        }
        response
    }
}

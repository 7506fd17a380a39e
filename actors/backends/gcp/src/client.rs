//! The HTTP client behind one `send` (PC-107), and what is written down of each request (GC-29).
//!
//! What must stay true: nothing is sent while the fence is closed (SV-4); a request ends within its budget (GC-27), its
//! caller's deadline, and at once when it is cancelled (PC-64); no token and no user-data is in any line.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use egress_provider::Call;
use futures::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use tokio::time::Instant;
use tracing::{Instrument, Span, field};

use crate::config::Budgets;
use crate::credentials::{Token, bearer};
use crate::error::CallError;
use crate::request::{ApiRequest, SeamCall};
use crate::wire;

/// More than any page is: 500 instances, each with 128 KiB of metadata.
const ANSWER_LIMIT: usize = 64 * 1024 * 1024;

/// An answer as it came.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl Answer {
    /// The answer if it is a success, else the error it says.
    pub(crate) fn ok(self) -> Result<Self, CallError> {
        if (200..300).contains(&self.status) { Ok(self) } else { Err(CallError::of_answer(self.status, &self.body, self.retry_after)) }
    }

    /// The body of a success as JSON.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, CallError> {
        // The error says line and column and, for a wrong type, what it is; never a value that is text.
        serde_json::from_slice(&self.body).map_err(|error| {
            let category = match error.classify() {
                serde_json::error::Category::Data => "a field has another type than it should",
                serde_json::error::Category::Io | serde_json::error::Category::Syntax | serde_json::error::Category::Eof => "it is no JSON",
            };
            CallError::Garbled(format!("{category} (line {}, column {})", error.line(), error.column()))
        })
    }
}

/// What carries requests: the HTTP client, or what stands in for it in tests.
pub(crate) trait Wire: Send + Sync + 'static {
    /// Sends one request, once.
    fn send<'a>(&'a self, request: &'a ApiRequest, token: &'a Token) -> BoxFuture<'a, Result<Answer, CallError>>;
}

/// The client of one entry. It follows no redirect, which would carry the token elsewhere, and repeats nothing.
pub(crate) fn http(budgets: &Budgets) -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .connect_timeout(budgets.connect)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .http1_only()
        .user_agent(concat!("egress-proxies-operator/", env!("CARGO_PKG_VERSION")))
        .build()
}

impl Wire for reqwest::Client {
    fn send<'a>(&'a self, request: &'a ApiRequest, token: &'a Token) -> BoxFuture<'a, Result<Answer, CallError>> {
        Box::pin(async move {
            let mut builder =
                self.request(request.method.clone(), request.url.clone()).header(AUTHORIZATION, bearer(token.secret.expose())?);
            if let Some(body) = &request.body {
                builder = builder.header(CONTENT_TYPE, "application/json").body(body.expose().clone());
            }
            let unanswered = |error| CallError::Unanswered(cause(error));
            let mut response = builder.send().await.map_err(unanswered)?;
            let status = response.status().as_u16();
            let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(unanswered)? {
                if body.len() + chunk.len() > ANSWER_LIMIT {
                    return Err(CallError::Garbled(format!("it is longer than {ANSWER_LIMIT} bytes")));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Answer { status, retry_after: seconds.map(Duration::from_secs), body: body.into() })
        })
    }
}

/// An error of the HTTP client in words: the innermost cause, without the URL.
pub(crate) fn cause(error: reqwest::Error) -> String {
    let connecting = error.is_connect();
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if connecting { format!("cannot connect: {cause}") } else { cause.to_string() }
}

/// For which entry requests are sent, and how much of them is logged.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    pub(crate) entry: Arc<str>,
    pub(crate) full_payloads: bool,
}

/// One request from the fence to its line in the log.
pub(crate) async fn attempt(
    sender: &Sender,
    wire: &dyn Wire,
    request: &ApiRequest,
    token: &Token,
    call: &Call,
) -> Result<Answer, CallError> {
    call.fence.check()?;
    let span = span(request);
    let started = Instant::now();
    wire::sent(request, sender.full_payloads);
    let answer = async {
        // In this order, so that a process that was frozen while it connected sends nothing when it wakes.
        tokio::select! {
            biased;
            () = call.fence.until_closed() => Err(egress_protocol::leadership::Fenced.into()),
            _ = call.ended() => Err(CallError::Ended),
            () = tokio::time::sleep(request.budget) => Err(CallError::OutOfBudget(request.budget)),
            answer = wire.send(request, token) => answer,
        }
    }
    .instrument(span.clone())
    .await;
    if let Ok(answer) = &answer {
        wire::received(request, answer, sender.full_payloads);
    }
    let ended = answer.clone().and_then(Answer::ok);
    note(sender, request, &span, started, &answer, ended.as_ref().err());
    ended
}

fn note(
    sender: &Sender,
    request: &ApiRequest,
    span: &Span,
    started: Instant,
    answer: &Result<Answer, CallError>,
    error: Option<&CallError>,
) {
    let status = answer.as_ref().map_or_else(CallError::http_status, |answer| Some(answer.status));
    if let Some(status) = status {
        span.record("http.response.status_code", status);
    }
    // That something is not there is an answer as good as any.
    if error.is_some() && status != Some(404) {
        span.record("otel.status_code", "ERROR");
    }
    let say = || {
        tracing::debug!(
            provider = %sender.entry,
            call = request.call.as_str(),
            zone = request.zone,
            instance = request.name.as_ref().map(field::display),
            duration = started.elapsed().as_secs_f64(),
            httpStatus = status,
            error = error.map(field::display),
            "gcp call"
        );
    };
    // Without a span of its own the line belongs to the operation's.
    if span.is_none() { say() } else { span.in_scope(say) }
}

/// Only below a span: what nobody asked for begins no trace (PC-86). The name of a span is part of its type.
fn span(request: &ApiRequest) -> Span {
    macro_rules! gcp_span {
        ($name:literal) => {
            tracing::info_span!(
                target: "otel",
                $name,
                otel.kind = "client",
                otel.status_code = field::Empty,
                zone = request.zone,
                instance = request.name.as_ref().map(field::display),
                http.response.status_code = field::Empty,
            )
        };
    }
    if Span::current().is_none() {
        return Span::none();
    }
    match request.call {
        SeamCall::Insert => gcp_span!("gcp.insert"),
        SeamCall::Get => gcp_span!("gcp.get"),
        SeamCall::Delete => gcp_span!("gcp.delete"),
        SeamCall::List => gcp_span!("gcp.list"),
        SeamCall::GetOperation => gcp_span!("gcp.get_operation"),
        SeamCall::ListOperations => gcp_span!("gcp.list_operations"),
        SeamCall::GetRegion => gcp_span!("gcp.get_region"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use egress_protocol::{Secret, Uid};

    use super::*;
    use crate::config::GcpConfig;
    use crate::id::VmRef;
    use crate::model::Vm;
    use crate::request::Requests;
    use crate::testing::config;

    /// A server that answers one request with a head and then `size` bytes.
    fn answering(head: &'static str, piece: &'static [u8], size: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            let mut left = size;
            let mut sent = stream.write_all(format!("{head}\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n").as_bytes());
            while left > 0 && sent.is_ok() {
                let piece = &piece[..piece.len().min(left)];
                sent = stream.write_all(piece);
                left -= piece.len();
            }
        });
        format!("http://{address}")
    }

    async fn read(endpoint: String) -> Result<Vm, CallError> {
        crate::testing::install_crypto();
        let config = GcpConfig { endpoint, ..config() };
        let client = http(&config.budgets).unwrap();
        let requests = Requests::new(Arc::new(config)).unwrap();
        let request = requests.get(&VmRef { zone: "europe-west1-b".to_owned(), name: egress_protocol::InstanceName::of(&Uid::new("u")) });
        let token = Token { secret: Secret::new("token".to_owned()), lasts: Duration::from_secs(60), account: None };
        client.send(&request, &token).await?.ok()?.read()
    }

    /// Issue 12: answers that are no JSON, of the wrong types, larger than anything that Compute Engine says.
    #[tokio::test]
    async fn an_answer_that_makes_no_sense_is_said_to_be_so_and_bounded() {
        const PIECE: &[u8] = &[b' '; 65_536];
        for (body, says) in [
            (&b"<html>"[..], "it is no JSON"),
            (br#"{"name": 7}"#, "a field has another type than it should"),
            (br#"{"name": "x", "status": []}"#, "a field has another type than it should"),
            (b"", "it is no JSON"),
        ] {
            let error = read(answering("HTTP/1.1 200 OK", body, body.len())).await.unwrap_err();
            assert!(matches!(error, CallError::Garbled(_)) && error.to_string().contains(says), "{error}");
        }
        let error = read(answering("HTTP/1.1 200 OK", PIECE, ANSWER_LIMIT + 1)).await.unwrap_err();
        assert!(error.to_string().contains("longer than 67108864 bytes"), "{error}");
        let error = read(answering("HTTP/1.1 502 Bad Gateway", b"<html>", 6)).await.unwrap_err();
        assert!(matches!(error, CallError::NoApiError { status: 502, .. }), "{error}");
        // A redirect would carry the token elsewhere.
        let error = read(answering("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/", b"", 0)).await.unwrap_err();
        assert!(matches!(error, CallError::NoApiError { status: 302, .. }), "{error}");
    }
}

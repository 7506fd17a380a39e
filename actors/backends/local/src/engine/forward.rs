//! One request: refused, tunnelled or forwarded.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use egress_protocol::hop;
use http::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep, timeout};

use super::activity::Watched;
use super::answer::{Body, Refusal};
use super::connection::{Client, Tunnel, happens};
use super::dial::{self, Target};
use super::headers;

/// The connection is to be cut without an answer.
#[derive(Debug)]
pub(super) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reset by a fault knob")
    }
}

impl std::error::Error for Cut {}

/// Answers one request.
pub(super) async fn answer(client: Arc<Client>, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
    if client.reset {
        return Err(Cut);
    }
    let started = Instant::now();
    let method = request.method().clone();
    // Host and port only: a path may hold what is nobody's business.
    let asked = request.uri().authority().map(|authority| authority.as_str().rsplit('@').next().unwrap_or_default().to_owned());
    let result = match check(&client, &request).await {
        Ok(()) if method == Method::CONNECT => tunnel(&client, request).await,
        Ok(()) => forward(&client, request).await,
        Err(refusal) => Err(refusal),
    };
    let identity = &client.settings.identity;
    let (status, reason) = match &result {
        Ok(response) => (response.status(), ""),
        Err(refusal) => (refusal.status, refusal.details.as_str()),
    };
    tracing::debug!(
        provider = %identity.provider, instance = %identity.instance, proxy = %identity.proxy, client = %client.peer,
        %method, target_host = asked.unwrap_or_default(), status = status.as_u16(), reason, duration = started.elapsed().as_secs_f64(),
        "proxy request"
    );
    Ok(result.unwrap_or_else(|refusal| refusal.response(identity)))
}

/// What comes before any look at the target: the head's size and the fault knobs.
async fn check(client: &Client, request: &Request<Incoming>) -> Result<(), Refusal> {
    let limit = client.limits.max_header_bytes;
    if headers::size(request) > limit {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Refusal::new(status, "http_request_error", format!("the request's head is larger than {limit} bytes")).closing());
    }
    let rules = client.settings.rules.load_full();
    let seen = rules.requests.fetch_add(1, Ordering::Relaxed);
    let Some(faults) = &rules.faults else { return Ok(()) };
    if let Some(latency) = faults.latency {
        client.activity.waiting(sleep(latency)).await;
    }
    if faults.proxy_auth {
        let status = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
        return Err(Refusal::new(status, "http_request_denied", "fault knob proxyAuth"));
    }
    if faults.refuse_after.is_some_and(|served| seen >= served) {
        return Err(Refusal::client("fault knob refuseAfter"));
    }
    if happens(faults.fail_ratio) {
        return Err(Refusal::bad_gateway("proxy_internal_error", "fault knob failRatio"));
    }
    Ok(())
}

async fn tunnel(client: &Client, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let headers = request.headers();
    let has_body = headers.contains_key(TRANSFER_ENCODING) || headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    if has_body {
        return Err(Refusal::malformed("CONNECT has no body").closing());
    }
    let authority = match (request.uri().authority(), request.uri().scheme()) {
        (Some(authority), None) => authority,
        _ => return Err(Refusal::malformed("CONNECT takes HOST:PORT")),
    };
    let target = Target::read(authority, None)?;
    let upstream = client.activity.waiting(dial::connect(&client.settings, &target)).await?;
    let upgrade = hyper::upgrade::on(&mut request);
    *client.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(Tunnel { upgrade, upstream, target, started: Instant::now() });
    Ok(Response::new(Either::Left(Full::new(Bytes::new()))))
}

async fn forward(client: &Client, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let (target, request) = outgoing(request)?;
    let stream = client.activity.waiting(dial::connect(&client.settings, &target)).await?;
    let io = TokioIo::new(Watched::new(stream, client.activity.clone()));
    let (mut sender, upstream) = hyper::client::conn::http1::Builder::new()
        .handshake(io)
        .await
        .map_err(|error| Refusal::bad_gateway("connection_terminated", error.to_string()))?;
    {
        let mut upstreams = client.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        while upstreams.try_join_next().is_some() {}
        upstreams.spawn(async move {
            let _ = upstream.await;
        });
    }
    // While the request's body still moves, the limit is on idleness (the connection's), not on the whole.
    let limit = client.limits.idle_timeout;
    let sending = sender.send_request(request);
    let sent = client.activity.waiting(async {
        let mut sending = std::pin::pin!(sending);
        loop {
            match timeout(limit, sending.as_mut()).await {
                Ok(sent) => return Some(sent),
                Err(_) if client.activity.moved_within(limit) => {}
                Err(_) => return None,
            }
        }
    });
    let mut response = match sent.await {
        None => return Err(Refusal::timeout("http_response_timeout", "the target does not answer").closing()),
        Some(Err(error)) if error.is_parse() || error.is_parse_too_large() => {
            return Err(Refusal::bad_gateway("http_protocol_error", "the target's answer is not HTTP").closing());
        }
        Some(Err(error)) => {
            return Err(Refusal::bad_gateway("http_response_incomplete", format!("the target ended the connection: {error}")).closing());
        }
        Some(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            return Err(Refusal::bad_gateway("http_protocol_error", "the target switched protocols unasked").closing());
        }
        Some(Ok(response)) => response,
    };
    hop::strip(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(Either::Right))
}

/// What the target gets: origin form, our own `Host` (RFC 9112 §3.2.2), nothing of this hop.
fn outgoing(request: Request<Incoming>) -> Result<(Target, Request<Incoming>), Refusal> {
    let (mut head, body) = request.into_parts();
    let authority = match (head.uri.scheme(), head.uri.authority()) {
        (Some(scheme), Some(authority)) if *scheme == Scheme::HTTP => authority,
        (Some(scheme), Some(_)) if *scheme == Scheme::HTTPS => {
            return Err(Refusal::malformed("https goes through CONNECT"));
        }
        (Some(_), _) => return Err(Refusal::malformed("only http is forwarded")),
        (None, _) => return Err(Refusal::malformed("this is a forward proxy: it takes CONNECT or http:// in absolute form")),
    };
    let target = Target::read(authority, Some(80))?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| Refusal::malformed("the target's host is no header value"))?;
    hop::strip(&mut head.headers);
    head.headers.insert(HOST, host);
    let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    head.uri = Uri::from(path);
    head.version = Version::HTTP_11;
    Ok((target, Request::from_parts(head, body)))
}

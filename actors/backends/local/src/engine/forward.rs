//! One request: refused, tunnelled or forwarded.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::uri::Authority;
use http::{Method, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::answer::Refusal;
use super::connection::{Client, Next, Tunnel, happens};
use super::dial::{self, Target};
use super::exchange::{Asker, Exchanged, Wire, exchange};
use super::framing::Framing;
use super::head::RequestHead;
use super::outgoing::{self, Asked, Outgoing, connection_says};

/// What is to be done with a request that was let through.
enum Plan {
    Tunnel(TcpStream, Target),
    Forward(TcpStream, Outgoing),
    Ourselves(Bytes),
}

/// Answers one request, whose head came as `head`.
pub(super) async fn answer(client: &Client, mut wire: Wire<'_, '_>, head: Bytes) -> Next {
    let started = Instant::now();
    let request = match RequestHead::parse(&head) {
        Ok(request) => request,
        Err(why) => return refuse(client, &mut wire, &Refusal::malformed(why).closing(), "", Method::GET, started).await,
    };
    drop(head);
    let method = Method::from_bytes(&request.method).unwrap_or_default();
    let asked = host_of(&request.target);
    let asker = Asker { method: method.clone(), old: request.old, last: is_last(&request) };
    let bodiless = outgoing::framing(&request).is_ok_and(|framing| matches!(framing, Framing::None | Framing::Length(0)));
    let planned = match check(client).await {
        Ok(()) => plan(client, &request, &method).await,
        Err(refusal) => Err(refusal),
    };
    drop(request);
    let keep = |refusal: Refusal| if bodiless && !asker.last { refusal } else { refusal.closing() };
    let (status, next) = match planned {
        Err(refusal) => return refuse(client, &mut wire, &keep(refusal), &asked, method, started).await,
        Ok(Plan::Tunnel(upstream, target)) => {
            let accepted = wire.write.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
            let next = accepted.map_or(Next::Drop, |()| Next::Tunnel(Tunnel { upstream, target, started: Instant::now() }));
            (StatusCode::OK, next)
        }
        Ok(Plan::Ourselves(answer)) => {
            let sent = wire.write.write_all(&answer).await;
            (
                StatusCode::OK,
                if sent.is_err() {
                    Next::Drop
                } else if bodiless && !asker.last {
                    Next::Request
                } else {
                    Next::Close
                },
            )
        }
        Ok(Plan::Forward(upstream, outgoing)) => {
            let reborrowed = Wire { read: wire.read, write: &mut *wire.write, buffer: &mut *wire.buffer };
            match exchange(client, reborrowed, &asker, outgoing, upstream).await {
                Err(refusal) => return refuse(client, &mut wire, &refusal, &asked, method, started).await,
                Ok(Exchanged::Whole(status)) => (status, Next::Request),
                Ok(Exchanged::Last(status)) => (status, Next::Close),
                Ok(Exchanged::Broken(status)) => (status, Next::Reset),
                Ok(Exchanged::Gone) => (StatusCode::from_u16(499).unwrap_or_default(), Next::Drop),
            }
        }
    };
    log(client, &method, &asked, status, "", started);
    next
}

/// Refuses a request whose head is not known.
pub(super) async fn refuse_unread(client: &Client, mut wire: Wire<'_, '_>, refusal: &Refusal) -> Next {
    refuse(client, &mut wire, refusal, "", Method::GET, Instant::now()).await
}

/// Host and port only: a path may hold what is nobody's business.
fn host_of(target: &[u8]) -> String {
    let text = String::from_utf8_lossy(target);
    let authority = text.split_once("://").map_or(&*text, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().chars().take(256).collect()
}

/// Whether the client will send nothing more on this connection.
fn is_last(request: &RequestHead) -> bool {
    // Both lengths in one message: what follows may not be what its sender meant (RFC 9112 §6.1).
    let both = ["content-length", "transfer-encoding"].iter().all(|name| request.fields.iter().any(|field| field.is(name)));
    both || connection_says(&request.fields, "close") || request.old && !connection_says(&request.fields, "keep-alive")
}

async fn refuse(client: &Client, wire: &mut Wire<'_, '_>, refusal: &Refusal, asked: &str, method: Method, started: Instant) -> Next {
    log(client, &method, asked, refusal.status, &refusal.details, started);
    let answer = refusal.bytes(&client.settings.identity, method == Method::HEAD, &client.date());
    match wire.write.write_all(&answer).await {
        Err(_) => Next::Drop,
        Ok(()) if refusal.close => Next::Close,
        Ok(()) => Next::Request,
    }
}

fn log(client: &Client, method: &Method, asked: &str, status: StatusCode, reason: &str, started: Instant) {
    let identity = &client.settings.identity;
    tracing::debug!(
        provider = %identity.provider, instance = %identity.instance, proxy = %identity.proxy, client = %client.peer,
        %method, target_host = asked, status = status.as_u16(), reason, duration = started.elapsed().as_secs_f64(),
        "proxy request"
    );
}

/// What comes before any look at the target: the fault knobs.
async fn check(client: &Client) -> Result<(), Refusal> {
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

async fn plan(client: &Client, request: &RequestHead, method: &Method) -> Result<Plan, Refusal> {
    if *method != Method::CONNECT {
        return match outgoing::asked(request)? {
            Asked::Ourselves(answer) => Ok(Plan::Ourselves(answer)),
            Asked::Forward(outgoing) => {
                let upstream = client.activity.waiting(dial::connect(&client.settings, &outgoing.target)).await?;
                Ok(Plan::Forward(upstream, outgoing))
            }
        };
    }
    if !matches!(outgoing::framing(request)?, Framing::None | Framing::Length(0)) {
        return Err(Refusal::malformed("CONNECT has no body").closing());
    }
    let authority = Authority::try_from(&request.target[..]).map_err(|_| Refusal::malformed("CONNECT takes HOST:PORT"))?;
    let target = Target::read(&authority, None)?;
    let upstream = client.activity.waiting(dial::connect(&client.settings, &target)).await?;
    Ok(Plan::Tunnel(upstream, target))
}

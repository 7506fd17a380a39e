//! One request and its answers between a client and a target, both ways at the same time: a target may answer before it
//! has read a body, and a client may wait for `100 Continue` before it sends one.

use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use http::{Method, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::sleep;

use super::answer::Refusal;
use super::body::{self, Cut};
use super::connection::Client;
use super::framing::{Faulty, Framing, Told, of_answer};
use super::head::{self, AnswerHead, NoHead};
use super::outgoing::{self, Outgoing};

/// The most that the head of an answer may take, unless a request's may take more.
const MOST_HEAD: usize = 64 * 1024;
/// Interim answers (1xx) of one request.
const MOST_INTERIM: usize = 16;

/// The client's side of an exchange.
pub(super) struct Wire<'a, 'b> {
    pub read: &'a ReadHalf<'b>,
    pub write: &'a mut WriteHalf<'b>,
    /// What was read and not used.
    pub buffer: &'a mut BytesMut,
}

/// What the client said of itself.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub method: Method,
    /// It speaks HTTP/1.0.
    pub old: bool,
    /// It wants no more than this answer.
    pub last: bool,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Exchanged {
    /// Answered in full; the connection may serve another request.
    Whole(StatusCode),
    /// Answered in full; the connection ends, in stages.
    Last(StatusCode),
    /// The answer has begun and cannot be ended well: the connection is cut.
    Broken(StatusCode),
    /// The client has gone.
    Gone,
}

/// Sends a request and passes the answer on. `Err`: no byte of an answer was sent.
pub(super) async fn exchange(
    client: &Client,
    wire: Wire<'_, '_>,
    asker: &Asker,
    request: Outgoing,
    mut target: TcpStream,
) -> Result<Exchanged, Refusal> {
    let Wire { read, write, buffer } = wire;
    let activity = &client.activity;
    let (target_read, mut target_write) = target.split();
    let sent = AtomicBool::new(request.framing == Framing::None);
    let mut up = pin!(async {
        let Outgoing { head, framing, told, .. } = request;
        target_write.write_all(&head).await.map_err(|_| Cut::Receiver)?;
        drop(head);
        body::copy(read, buffer, &mut target_write, framing, told, activity).await?;
        sent.store(true, Ordering::Relaxed);
        gone(read, buffer).await;
        Err::<(), _>(Cut::Sender)
    });
    let mut up_ended = false;
    let limit = client.limits.max_header_bytes.max(MOST_HEAD);
    let mut target_buffer = BytesMut::new();
    // While the request's body still moves, the limit is on idleness, not on the whole.
    let silence = async {
        loop {
            sleep(client.limits.idle_timeout).await;
            if !activity.moved_within(client.limits.idle_timeout) {
                return;
            }
        }
    };
    let answer = {
        let mut answer = pin!(final_head(&target_read, &mut target_buffer, write, limit, client, asker.old));
        let mut silence = pin!(silence);
        activity
            .waiting(async {
                loop {
                    tokio::select! {
                        biased;
                        answer = answer.as_mut() => return answer,
                        cut = up.as_mut(), if !up_ended => match cut {
                            Err(Cut::Broken(why)) => return Err(Refusal::malformed(format!("the request's chunked body is broken: {why}")).into()),
                            Err(Cut::Sender) => return Err(NoAnswer::ClientGone),
                            // It may still have said why.
                            Err(Cut::Receiver) | Ok(()) => up_ended = true,
                        },
                        () = silence.as_mut() => return Err(Refusal::timeout("http_response_timeout", "the target does not answer").into()),
                    }
                }
            })
            .await
    };
    let head = match answer {
        Ok(head) => head,
        Err(NoAnswer::Refusal(refusal)) => return Err(refusal.closing()),
        Err(NoAnswer::ClientGone) => return Ok(Exchanged::Gone),
    };
    let status = head.status;
    let to_head = asker.method == Method::HEAD;
    let framing = of_answer(&head.fields, status, to_head).map_err(|faulty| {
        let why = match faulty {
            Faulty::Malformed(why) => why,
            Faulty::Coding => "its transfer coding cannot be taken off",
        };
        Refusal::bad_gateway("http_protocol_error", format!("where the target's answer ends cannot be known: {why}")).closing()
    })?;
    let told = match framing {
        Framing::None if to_head || status == StatusCode::NOT_MODIFIED => Told::without_body(&head.fields, asker.old),
        _ => Told::of(framing, asker.old),
    };
    // Who ends a body by closing says so; so does who answers before the request is read.
    let until_close = framing != Framing::None && told == Told::default();
    let last = asker.last || until_close || !sent.load(Ordering::Relaxed) || client.closing.is_cancelled();
    let bytes = outgoing::answer(&head, told, last, &client.date());
    drop(head);
    if write.write_all(&bytes).await.is_err() {
        return Ok(Exchanged::Gone);
    }
    drop(bytes);
    activity.touch();
    let mut down = pin!(body::copy(&target_read, &mut target_buffer, write, framing, told, activity));
    let down = loop {
        tokio::select! {
            biased;
            down = down.as_mut() => break down,
            cut = up.as_mut(), if !up_ended => match cut {
                Err(Cut::Broken(_)) => return Ok(Exchanged::Broken(status)),
                Err(Cut::Sender) if !sent.load(Ordering::Relaxed) => return Ok(Exchanged::Gone),
                _ => up_ended = true,
            },
        }
    };
    Ok(match down {
        Ok(()) if last => Exchanged::Last(status),
        Ok(()) => Exchanged::Whole(status),
        Err(Cut::Receiver) => Exchanged::Gone,
        Err(Cut::Sender | Cut::Broken(_)) => Exchanged::Broken(status),
    })
}

enum NoAnswer {
    Refusal(Refusal),
    ClientGone,
}

impl From<Refusal> for NoAnswer {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

/// Passes interim answers on until the final one's head is there.
async fn final_head(
    from: &ReadHalf<'_>,
    buffer: &mut BytesMut,
    to: &mut WriteHalf<'_>,
    limit: usize,
    client: &Client,
    old: bool,
) -> Result<AnswerHead, NoAnswer> {
    let protocol = |why: &str| Refusal::bad_gateway("http_protocol_error", why);
    for _ in 0..=MOST_INTERIM {
        let bytes = head::read(from, buffer, limit, &client.activity).await.map_err(|none| match none {
            NoHead::Closed => Refusal::bad_gateway("http_response_incomplete", "the target ended the connection before it answered"),
            NoHead::Incomplete => Refusal::bad_gateway("http_response_incomplete", "the target ended the connection inside its answer"),
            NoHead::TooLarge => protocol(&format!("the head of the target's answer is larger than {limit} bytes")),
        })?;
        let head = AnswerHead::parse(&bytes).ok_or_else(|| protocol("the target's answer is not HTTP"))?;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(protocol("the target switched protocols unasked").into());
        }
        if !head.status.is_informational() {
            return Ok(head);
        }
        if !old {
            let interim = outgoing::answer(&head, Told::default(), false, "");
            to.write_all(&interim).await.map_err(|_| NoAnswer::ClientGone)?;
        }
    }
    Err(protocol("the target does not come to a final answer").into())
}

/// Resolves when the client has closed its side. A request that it sends ahead waits in `buffer`, or unread.
async fn gone(read: &ReadHalf<'_>, buffer: &mut BytesMut) {
    loop {
        if buffer.len() >= body::PIECE {
            pending::<()>().await;
        }
        if read.readable().await.is_err() {
            return;
        }
        buffer.reserve(body::PIECE / 4);
        match read.try_read_buf(buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

//! Bodies of the leader's answers on their way to the client.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use serde::Deserialize;
use tokio::time::{Instant, Sleep};

/// The answer to a grant: a hundred leases at most.
const GRANT: usize = 4 * 1024 * 1024;

/// The body, which fails when its next part takes longer than that: the client sees that it was cut off.
pub(super) fn within(incoming: Incoming, part: Duration) -> Body {
    if incoming.is_end_stream() {
        return Body::empty();
    }
    Body::new(Within { incoming, part, timer: Box::pin(tokio::time::sleep(part)) })
}

struct Within {
    incoming: Incoming,
    part: Duration,
    timer: Pin<Box<Sleep>>,
}

impl hyper::body::Body for Within {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.incoming).poll_frame(cx) {
            this.timer.as_mut().reset(Instant::now() + this.part);
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match this.timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err("the leader stopped in the middle of its answer".into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// All of it.
pub(super) async fn whole(body: Body) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Limited::new(body, GRANT).collect().await?.to_bytes())
}

#[derive(Deserialize)]
struct Granted {
    id: Option<String>,
    #[serde(default)]
    items: Vec<Granted>,
}

/// The ids in the answer to a grant.
pub(super) fn leases(answer: &[u8]) -> Vec<String> {
    let Ok(Granted { id, items }) = serde_json::from_slice(answer) else { return Vec::new() };
    id.into_iter().chain(items.into_iter().filter_map(|lease| lease.id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leases_of_a_grant_are_found_in_either_form() {
        assert_eq!(leases(br#"{"id": "a", "fence": 1, "proxy": {"id": 5}}"#), ["a"]);
        assert_eq!(leases(br#"{"items": [{"id": "a"}, {"id": "b"}]}"#), ["a", "b"]);
        assert_eq!(leases(b"no JSON"), Vec::<String>::new());
    }
}

//! Follows all objects of one kind for ever: a list, then a watch from there on, resumed where it ended, listed anew when the
//! API server has forgotten that place (410).
//!
//! What must stay true: an object that cannot be read is told as such and stops nothing; a watch without a byte for too long
//! is reopened (OP-29); whatever fails is tried again, with jitter, and soon enough (O11).

use std::convert::Infallible;
use std::time::Duration;

use egress_kube::{ApiClient, ApiError, LIST_PAGE, REQUEST, Request};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::args::Pace;
use super::lines::{Break, Lines};
use super::version::Version;
use crate::sending::{PageMeta, page, read_page};

/// What to follow.
pub(crate) struct Plan<T> {
    pub(crate) kind: &'static str,
    pub(crate) path: String,
    pub(crate) selector: Option<String>,
    pub(crate) decode: fn(Value) -> Result<T, String>,
}

/// What is told of it.
#[derive(Debug)]
pub(crate) enum Told<T> {
    /// All there were at `version`, and why some could not even be named.
    Listed { version: Version, items: Vec<T>, unreadable: Vec<String> },
    /// One came or changed.
    Changed(T),
    /// One is gone.
    Removed(T),
    /// One that could not even be named came, changed or went.
    Unreadable(String),
    /// The API server spoke to us.
    Heard,
    /// It did not, or not as it should.
    Troubled(String),
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    #[serde(default)]
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    what: String,
    object: Value,
}

/// How a watch ended.
enum End {
    /// In an orderly way, as every few minutes.
    Closed,
    /// The place to resume from is forgotten.
    Expired,
    /// Otherwise.
    Failed { why: String, retry_after: Option<Duration> },
}

impl End {
    fn failed(error: &ApiError) -> Self {
        match error.code() {
            Some(410) => Self::Expired,
            _ => Self::Failed { why: error.to_string(), retry_after: error.retry_after() },
        }
    }
}

/// Follows until it is dropped.
pub(crate) async fn follow<T: Send>(client: &ApiClient, plan: &Plan<T>, pace: &Pace, tell: impl Fn(Told<T>) + Send + Sync) -> Infallible {
    let mut wait = Wait::new(pace);
    let mut place: Option<Version> = None;
    loop {
        let from = match place.take() {
            Some(version) => version,
            None => match list(client, plan, pace).await {
                Ok((version, items, unreadable)) => {
                    tell(Told::Listed { version: version.clone(), items, unreadable });
                    version
                }
                Err(error) => {
                    tell(Told::Troubled(error.to_string()));
                    wait.pass(error.retry_after()).await;
                    continue;
                }
            },
        };
        let began = Instant::now();
        let (reached, end) = watch(client, plan, pace, from, &tell).await;
        let lasted = began.elapsed() >= pace.lasting;
        if lasted {
            wait = Wait::new(pace);
        }
        match end {
            End::Closed => place = Some(reached),
            End::Expired => {}
            End::Failed { why, retry_after } => {
                place = Some(reached);
                tell(Told::Troubled(why));
                wait.pass(retry_after).await;
                continue;
            }
        }
        if !lasted {
            wait.pass(None).await;
        }
    }
}

/// All of them, page by page, as of one moment.
async fn list<T>(client: &ApiClient, plan: &Plan<T>, pace: &Pace) -> Result<(Version, Vec<T>, Vec<String>), ApiError> {
    let limit = pace.page.to_string();
    let (mut items, mut unreadable, mut next) = (Vec::new(), Vec::new(), None::<String>);
    loop {
        let query = page(&limit, plan.selector.as_deref(), next.as_deref());
        let answer = client.send(LIST_PAGE, || Ok(()), &Request::list(plan.kind, &plan.path, &query)).await?;
        let page: Page = read_page(&answer)?;
        for item in page.items.unwrap_or_default() {
            match (plan.decode)(item) {
                Ok(item) => items.push(item),
                Err(why) => unreadable.push(why),
            }
        }
        let version = Version::new(&page.metadata.resource_version);
        next = page.metadata.next();
        if next.is_none() {
            return Ok((version, items, unreadable));
        }
    }
}

/// From `from` on; tells how far it came.
async fn watch<T>(client: &ApiClient, plan: &Plan<T>, pace: &Pace, from: Version, tell: &(impl Fn(Told<T>) + Sync)) -> (Version, End) {
    let server_ends_it = rand::random_range(240..300_u32).to_string();
    let mut query =
        vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", &server_ends_it), ("resourceVersion", from.as_str())];
    query.extend(plan.selector.as_deref().map(|selector| ("labelSelector", selector)));
    let stream = match client.open(REQUEST, &Request::watch(plan.kind, &plan.path, &query)).await {
        Ok(stream) => stream,
        Err(error) => return (from, End::failed(&error)),
    };
    tell(Told::Heard);
    let mut reached = from;
    let mut lines = Lines::new(stream, pace.idle);
    loop {
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) => return (reached, End::Closed),
            Err(Break::Broken(why)) => return (reached, End::Failed { why, retry_after: None }),
            Err(Break::Silent(idle)) => {
                // Its other connections may be as dead.
                let _told_by_the_next_call = client.renew().await.is_err();
                return (reached, End::Failed { why: format!("the watch was silent for {idle:?}"), retry_after: None });
            }
        };
        let Ok(Line { what, object }) = serde_json::from_slice::<Line>(&line) else {
            return (reached, End::Failed { why: "a line of the watch is no event".to_owned(), retry_after: None });
        };
        if what == "ERROR" {
            return (reached, error_event(&object));
        }
        if let Some(version) = object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            reached = Version::new(version);
        }
        match (what.as_str(), what.as_str() == "BOOKMARK") {
            (_, true) => tell(Told::Heard),
            ("ADDED" | "MODIFIED", _) => tell((plan.decode)(object).map_or_else(Told::Unreadable, Told::Changed)),
            ("DELETED", _) => tell((plan.decode)(object).map_or_else(Told::Unreadable, Told::Removed)),
            _ => return (reached, End::Failed { why: format!("an event of an unknown type {what:?}"), retry_after: None }),
        }
    }
}

fn error_event(status: &Value) -> End {
    let code = status.get("code").and_then(Value::as_u64);
    if code == Some(410) {
        return End::Expired;
    }
    let message = status.get("message").and_then(Value::as_str).unwrap_or("no reason given");
    let retry_after = status.pointer("/details/retryAfterSeconds").and_then(Value::as_u64).map(Duration::from_secs);
    End::Failed { why: format!("the watch ended: {message} ({})", code.unwrap_or_default()), retry_after }
}

/// Ever longer, with jitter.
struct Wait {
    next: Duration,
    longest: Duration,
}

impl Wait {
    const fn new(pace: &Pace) -> Self {
        Self { next: pace.retry.0, longest: pace.retry.1 }
    }

    async fn pass(&mut self, at_least: Option<Duration>) {
        let wait = self.next.mul_f64(rand::random_range(0.5..=1.0));
        self.next = (self.next * 2).min(self.longest);
        tokio::time::sleep(wait.max(at_least.unwrap_or_default().min(self.longest))).await;
    }
}

//! What crawlers ask, read strictly: unknown fields, wrong types, bad durations and limits are faults that name their
//! field; `null` is the same as absent. What this version does not serve yet is refused, never ignored.
//!
//! A grant is read twice at most: first in one pass without a tree (the usual case), and only when that fails a second
//! time in a way that finds every fault. Both passes accept the same requests (a property test holds them to it).

mod body;
mod fast;
mod query;
mod tree;

use std::sync::Arc;
use std::time::Duration;

pub use body::{CordonBody, GrantBody, RenewBody, ReportBody, SelectorBody, ValueBody};
pub use query::{LeaseQuery, ProxyQuery, parse_lease_query, parse_proxy_query};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::ObjectKey;
use crate::lease::problem::FieldError;
use crate::resource::{Mode, Phase};
use crate::time::{Timestamp, parse_duration};
use tree::{Fields, Node};

/// The shortest lease.
pub const MIN_TTL: Duration = Duration::from_secs(1);
/// The longest cooldown a report may ask for.
pub const MAX_COOLDOWN: Duration = Duration::from_secs(24 * 3600);
/// Of `owner` and `session`, in characters.
const MAX_OWNER: usize = 253;
const MAX_TARGET: usize = 253;
const MAX_EXCLUDE: usize = 100;
const MAX_ATTRIBUTES: usize = 32;
const MAX_VALUES: usize = 100;
const MAX_MESSAGE: usize = 1024;
/// What is said of a field that a later version will serve.
const NOT_YET: &str = "not supported by this version";

/// A lease request (LS-2). `count`, `distinct`, `wait`, `session` and `sticky` come with a later version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GrantRequest {
    /// Which proxies will do.
    pub selector: Selector,
    /// What it is for, in lower case: cooldowns are kept by target.
    pub target: Option<Arc<str>>,
    /// For how long; at least [`MIN_TTL`]. The longest is a setting of the broker.
    pub ttl: Option<Duration>,
    /// Who it is for; requests without one count as one owner.
    pub owner: Option<Arc<str>>,
}

/// Which proxies will do: all that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Selector {
    /// Ordered by key, each key once.
    pub attributes: Vec<SelectorAttribute>,
    /// The provider entry.
    pub provider: Option<Box<str>>,
    /// The namespace.
    pub namespace: Option<Box<str>>,
    /// The name.
    pub name: Option<Box<str>>,
    /// Not these.
    pub exclude: Vec<ObjectKey>,
}

/// An attribute that must have one of some values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SelectorAttribute {
    /// Its key.
    pub key: Box<str>,
    /// Ordered, each once, never empty.
    pub values: Box<[Box<str>]>,
}

/// A renewal (LS-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RenewRequest {
    /// For how long from now; `None` = as granted.
    pub ttl: Option<Duration>,
}

/// A report (LS-7). `counts` comes with a later version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportRequest {
    /// What was seen.
    pub result: ReportResult,
    /// Of which target; `None` = the lease's.
    pub target: Option<Arc<str>>,
    /// For how long to cool, taken as given.
    pub cooldown: Option<Duration>,
    /// For people.
    pub message: Option<Box<str>>,
}

/// What a crawler saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReportResult {
    /// It worked.
    Success,
    /// The target refused this address.
    Blocked,
    /// The target asks for a human.
    Captcha,
    /// Too many requests.
    RateLimited,
    /// No answer.
    Timeout,
    /// Anything else that failed.
    Error,
}

impl ReportResult {
    /// Every result.
    pub const ALL: [Self; 6] = [Self::Success, Self::Blocked, Self::Captcha, Self::RateLimited, Self::Timeout, Self::Error];

    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Blocked => "blocked",
            Self::Captcha => "captcha",
            Self::RateLimited => "rateLimited",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }

    /// Whether it says that the target turned this proxy away.
    pub const fn cools(self) -> bool {
        matches!(self, Self::Blocked | Self::Captcha | Self::RateLimited)
    }

    /// Whether it says that no traffic came through.
    pub const fn fails(self) -> bool {
        matches!(self, Self::Timeout | Self::Error)
    }
}

/// A cordon (LS-16).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CordonRequest {
    /// For which target; `None` = for every one.
    pub target: Option<Arc<str>>,
    /// Until then; `None` = until lifted.
    pub until: Option<Timestamp>,
    /// For people.
    pub reason: Arc<str>,
}

/// Filters of `GET /v1/proxies` (LS-1): all that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyFilter {
    /// `attr.KEY=VALUE`, repeatable.
    pub attributes: Vec<(Box<str>, Box<str>)>,
    /// `healthy=true|false`.
    pub healthy: Option<bool>,
    /// `mode=Managed|External`.
    pub mode: Option<Mode>,
    /// `provider=`.
    pub provider: Option<Box<str>>,
    /// `namespace=`.
    pub namespace: Option<Box<str>>,
    /// `phase=`.
    pub phase: Option<Phase>,
}

/// Filters of `GET /v1/leases` (LS-5).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseFilter {
    /// `owner=`.
    pub owner: Option<Box<str>>,
    /// `proxy=NAMESPACE/NAME`.
    pub proxy: Option<ObjectKey>,
}

/// Reads the body of `POST /v1/leases` and of `POST /v1/leases/explain`.
pub fn parse_grant(bytes: &[u8]) -> Result<GrantRequest, Vec<FieldError>> {
    fast::grant(bytes).map_or_else(|| grant_from_tree(bytes), Ok)
}

fn grant_from_tree(bytes: &[u8]) -> Result<GrantRequest, Vec<FieldError>> {
    let mut fields = Fields::read(bytes, false)?;
    let mut request = GrantRequest::default();
    if let Some(selector) = fields.take("selector") {
        request.selector = read_selector(selector, &mut fields);
    }
    request.target = fields.text("target", target);
    request.ttl = fields.checked("ttl", ttl);
    request.owner = fields.text("owner", owner);
    for field in ["count", "distinct", "wait", "session", "sticky"] {
        fields.refuse(field, NOT_YET);
    }
    fields.finish().map(|()| request)
}

fn read_selector(node: Node, errors: &mut Fields) -> Selector {
    let Some(mut fields) = errors.inner("selector", node) else { return Selector::default() };
    let mut selector = Selector::default();
    if let Some(mut attributes) = fields.take("attributes").and_then(|node| fields.inner("attributes", node)) {
        selector.attributes = read_attributes(&mut attributes);
        fields.absorb(attributes);
    }
    selector.provider = fields.text("provider", name);
    selector.namespace = fields.text("namespace", name);
    selector.name = fields.text("name", name);
    if let Some(node) = fields.take("exclude") {
        selector.exclude = read_exclude(node, &mut fields);
    }
    fields.close();
    errors.absorb(fields);
    selector
}

fn read_attributes(fields: &mut Fields) -> Vec<SelectorAttribute> {
    let mut attributes = Vec::new();
    for (key, node) in fields.take_all() {
        let mut values: Vec<Box<str>> = Vec::new();
        match node {
            Node::Text(text) => values.push(text.into()),
            Node::List(items) => {
                let given = items.len();
                for (at, item) in items.into_iter().enumerate() {
                    match item {
                        Node::Text(text) => values.push(text.into()),
                        Node::Null | Node::Bool(_) | Node::Number(_) | Node::List(_) | Node::Object(_) => {
                            fields.fault(&format!("{key}[{at}]"), "must be a string");
                        }
                    }
                }
                if given == 0 {
                    fields.fault(&key, "must not be empty");
                } else if given > MAX_VALUES {
                    fields.fault(&key, &format!("must have at most {MAX_VALUES} values"));
                }
            }
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Object(_) => fields.fault(&key, "must be a string or a list of strings"),
        }
        attributes.push(attribute(key.into(), values));
    }
    if attributes.len() > MAX_ATTRIBUTES {
        fields.fault_of_all(&format!("must have at most {MAX_ATTRIBUTES} entries"));
    }
    attributes.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    attributes
}

/// In the one order that makes equal selectors equal.
fn attribute(key: Box<str>, mut values: Vec<Box<str>>) -> SelectorAttribute {
    values.sort_unstable();
    values.dedup();
    SelectorAttribute { key, values: values.into() }
}

fn read_exclude(node: Node, fields: &mut Fields) -> Vec<ObjectKey> {
    let Node::List(items) = node else {
        fields.fault("exclude", "must be a list of NAMESPACE/NAME");
        return Vec::new();
    };
    if items.len() > MAX_EXCLUDE {
        fields.fault("exclude", &format!("must have at most {MAX_EXCLUDE} entries"));
        return Vec::new();
    }
    let mut keys = Vec::with_capacity(items.len());
    for (at, item) in items.into_iter().enumerate() {
        match if let Node::Text(text) = &item { ObjectKey::parse(text) } else { None } {
            Some(key) => keys.push(key),
            None => fields.fault(&format!("exclude[{at}]"), "must be NAMESPACE/NAME"),
        }
    }
    keys
}

/// Reads the body of `POST /v1/leases/{id}/renew`; an empty body is `{}`.
pub fn parse_renew(bytes: &[u8]) -> Result<RenewRequest, Vec<FieldError>> {
    let mut fields = Fields::read(bytes, true)?;
    let request = RenewRequest { ttl: fields.checked("ttl", ttl) };
    fields.finish().map(|()| request)
}

/// Reads the body of `POST /v1/leases/{id}/report`.
pub fn parse_report(bytes: &[u8]) -> Result<ReportRequest, Vec<FieldError>> {
    let mut fields = Fields::read(bytes, false)?;
    fields.refuse("counts", NOT_YET);
    let result = fields.required("result", |text| {
        ReportResult::ALL
            .into_iter()
            .find(|result| result.as_str() == text)
            .ok_or_else(|| "must be success, blocked, captcha, rateLimited, timeout or error".to_owned())
    });
    let request = ReportRequest {
        result: result.unwrap_or(ReportResult::Success),
        target: fields.text("target", target),
        cooldown: fields.checked("cooldown", |node| {
            let cooldown = duration(node)?;
            if cooldown > MAX_COOLDOWN { Err("must be at most 24h".to_owned()) } else { Ok(cooldown) }
        }),
        message: fields.text("message", |text| at_most(text, MAX_MESSAGE).map(Into::into)),
    };
    fields.finish().map(|()| request)
}

/// Reads the body of `POST /v1/proxies/{ns}/{name}/cordon`.
pub fn parse_cordon(bytes: &[u8], now: Timestamp) -> Result<CordonRequest, Vec<FieldError>> {
    let mut fields = Fields::read(bytes, false)?;
    let reason = fields.required("reason", |text| {
        // Whoever finds the proxy taken out wants to know why.
        if text.trim().is_empty() { Err("must not be empty".to_owned()) } else { at_most(text, MAX_MESSAGE).map(Arc::<str>::from) }
    });
    let request = CordonRequest {
        target: fields.text("target", target),
        until: fields.text("until", |text| match Timestamp::parse(text) {
            None => Err(format!("{} is not an RFC 3339 time", excerpt(text))),
            Some(until) if until <= now => Err("lies in the past".to_owned()),
            Some(until) => Ok(until),
        }),
        reason: reason.unwrap_or_else(|| "".into()),
    };
    fields.finish().map(|()| request)
}

/// Reads a target as a query parameter gives it (`DELETE …/cordon?target=`).
pub fn parse_target(text: &str) -> Result<Arc<str>, FieldError> {
    target(text).map_err(|message| FieldError::new("target", message))
}

fn target(text: &str) -> Result<Arc<str>, String> {
    if text.is_empty() || text.len() > MAX_TARGET || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("must be 1 to {MAX_TARGET} visible ASCII characters"));
    }
    if text.bytes().any(|b| b.is_ascii_uppercase()) { Ok(text.to_ascii_lowercase().into()) } else { Ok(text.into()) }
}

fn owner(text: &str) -> Result<Arc<str>, String> {
    at_most(text, MAX_OWNER).map(Into::into)
}

fn name(text: &str) -> Result<Box<str>, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { at_most(text, MAX_OWNER).map(Into::into) }
}

fn at_most(text: &str, limit: usize) -> Result<&str, String> {
    if text.len() > limit && text.chars().count() > limit { Err(format!("must have at most {limit} characters")) } else { Ok(text) }
}

fn ttl(node: &Node) -> Result<Duration, String> {
    let ttl = duration(node)?;
    if ttl < MIN_TTL { Err("must be at least 1s".to_owned()) } else { Ok(ttl) }
}

fn duration(node: &Node) -> Result<Duration, String> {
    match node {
        Node::Text(text) => parse_duration(text).map_err(|fault| format!("{} {fault}", excerpt(text))),
        Node::Number(number) => Err(format!("{number} is not a duration such as 90s or 5m")),
        Node::Null | Node::Bool(_) | Node::List(_) | Node::Object(_) => Err("must be a duration such as 90s or 5m".to_owned()),
    }
}

/// What a message may repeat of what was sent.
fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(64).flat_map(char::escape_default).collect();
    if text.chars().nth(64).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;

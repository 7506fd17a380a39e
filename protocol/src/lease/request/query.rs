//! Query strings of the two lists: filters, `limit`, `cursor`; unknown parameters are faults.

use super::{LeaseFilter, ProxyFilter, excerpt};
use crate::ids::ObjectKey;
use crate::lease::cursor::Cursor;
use crate::lease::id::LeaseId;
use crate::lease::problem::FieldError;
use crate::resource::{Mode, Phase};

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

/// `GET /v1/proxies?…`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyQuery {
    /// Which.
    pub filter: ProxyFilter,
    /// After this one.
    pub after: Option<ObjectKey>,
    /// At most so many.
    pub limit: usize,
}

/// `GET /v1/leases?…`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseQuery {
    /// Which.
    pub filter: LeaseFilter,
    /// After this one.
    pub after: Option<LeaseId>,
    /// At most so many.
    pub limit: usize,
}

/// Reads the part after the `?`, still percent-encoded.
pub fn parse_proxy_query(query: &str) -> Result<ProxyQuery, Vec<FieldError>> {
    let mut read = Reader::default();
    let (mut filter, mut after) = (ProxyFilter::default(), None);
    for (name, value) in read.pairs(query) {
        match name.as_str() {
            "healthy" => filter.healthy = read.once(filter.healthy, &name, parse_bool(&value)),
            "mode" => filter.mode = read.once(filter.mode, &name, parse_mode(&value)),
            "phase" => filter.phase = read.once(filter.phase, &name, parse_phase(&value)),
            "provider" => filter.provider = read.once(filter.provider.take(), &name, Ok(value.into())),
            "namespace" => filter.namespace = read.once(filter.namespace.take(), &name, Ok(value.into())),
            "cursor" => {
                after = read.once(
                    after.take(),
                    &name,
                    match Cursor::decode(&value) {
                        Some(Cursor::Proxy(key)) => Ok(key),
                        Some(Cursor::Lease(_)) | None => Err("is not a cursor of this list".to_owned()),
                    },
                );
            }
            _ => match name.strip_prefix("attr.") {
                Some(key) if !key.is_empty() => filter.attributes.push((key.into(), value.into())),
                Some(_) | None => read.common(&name, &value),
            },
        }
    }
    read.finish().map(|limit| ProxyQuery { filter, after, limit })
}

/// Reads the part after the `?`, still percent-encoded.
pub fn parse_lease_query(query: &str) -> Result<LeaseQuery, Vec<FieldError>> {
    let mut read = Reader::default();
    let (mut filter, mut after) = (LeaseFilter::default(), None);
    for (name, value) in read.pairs(query) {
        match name.as_str() {
            "owner" => filter.owner = read.once(filter.owner.take(), &name, Ok(value.into())),
            "proxy" => {
                let key = ObjectKey::parse(&value).ok_or_else(|| "must be NAMESPACE/NAME".to_owned());
                filter.proxy = read.once(filter.proxy.take(), &name, key);
            }
            "cursor" => {
                after = read.once(
                    after,
                    &name,
                    match Cursor::decode(&value) {
                        Some(Cursor::Lease(id)) => Ok(id),
                        Some(Cursor::Proxy(_)) | None => Err("is not a cursor of this list".to_owned()),
                    },
                );
            }
            _ => read.common(&name, &value),
        }
    }
    read.finish().map(|limit| LeaseQuery { filter, after, limit })
}

fn parse_bool(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| "must be true or false".to_owned())
}

fn parse_mode(value: &str) -> Result<Mode, String> {
    match value {
        "Managed" => Ok(Mode::Managed),
        "External" => Ok(Mode::External),
        _ => Err("must be Managed or External".to_owned()),
    }
}

fn parse_phase(value: &str) -> Result<Phase, String> {
    Phase::ALL.into_iter().find(|phase| phase.as_str() == value).ok_or_else(|| {
        let known: Vec<&str> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
        format!("must be one of {}", known.join(", "))
    })
}

#[derive(Default)]
struct Reader {
    limit: Option<usize>,
    faults: Vec<FieldError>,
}

impl Reader {
    fn pairs(&mut self, query: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match (decode(name), decode(value)) {
                (Some(name), Some(value)) => pairs.push((name, value)),
                (Some(name), None) => self.fault(&name, "is not percent-encoded UTF-8"),
                (None, _) => self.fault(name, "is not percent-encoded UTF-8"),
            }
        }
        pairs
    }

    fn fault(&mut self, name: &str, message: impl Into<String>) {
        // A parameter without a name is shown as `?`.
        let field = if name.is_empty() { "?".to_owned() } else { excerpt(name) };
        self.faults.push(FieldError::new(field, message));
    }

    /// The new value, or a fault when there is one already or it cannot be read.
    fn once<T>(&mut self, old: Option<T>, name: &str, new: Result<T, String>) -> Option<T> {
        match new {
            Ok(_) if old.is_some() => self.fault(name, "is given twice"),
            Ok(value) => return Some(value),
            Err(message) => self.fault(name, message),
        }
        old
    }

    fn common(&mut self, name: &str, value: &str) {
        if name == "limit" {
            let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
            self.limit = self.once(self.limit, name, limit.ok_or_else(|| format!("must be a number from 1 to {MAX_LIMIT}")));
        } else {
            self.fault(name, "is not a known parameter");
        }
    }

    fn finish(self) -> Result<usize, Vec<FieldError>> {
        if self.faults.is_empty() { Ok(self.limit.unwrap_or(DEFAULT_LIMIT)) } else { Err(self.faults) }
    }
}

/// Form decoding: `%XX` and `+`.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
                digit()? << 4 | digit()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

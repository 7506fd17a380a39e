//! Query strings, read strictly: an unknown parameter, one given twice or bad encoding is a fault of that parameter.

use egress_protocol::lease::FieldError;

use crate::http::problem::Refused;

/// The parameters of one request, each to be taken by name; what is left at [`Query::finish`] is unknown.
#[derive(Debug)]
pub struct Query {
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Query {
    /// Splits and decodes. Faults are kept for [`Query::finish`].
    pub fn parse(raw: Option<&str>) -> Self {
        let mut query = Self { pairs: Vec::new(), errors: Vec::new() };
        for pair in raw.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (decode(name), decode(value)) {
                (Some(name), Some(value)) => query.pairs.push((name, value)),
                (name, _) => query.fault(name.unwrap_or_else(|| name_for_people(pair)), "is not percent-encoded UTF-8"),
            }
        }
        query
    }

    /// The one value of a parameter.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let mut found: Option<String> = None;
        let mut twice = false;
        self.pairs.retain_mut(|(n, value)| {
            if n != name {
                return true;
            }
            twice |= found.is_some();
            found.get_or_insert_with(|| std::mem::take(value));
            false
        });
        if twice {
            self.fault(name, "is given twice");
        }
        found
    }

    /// The one value of a parameter, read by `read`, whose error is the message.
    pub fn take_as<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.take(name)?;
        match read(&value) {
            Ok(value) => Some(value),
            Err(message) => {
                self.fault(name, message);
                None
            }
        }
    }

    /// Whether a parameter without a value, or with `true` or `1`, is there.
    pub fn take_flag(&mut self, name: &str) -> bool {
        self.take_as(name, |value| match value {
            "" | "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            other => Err(format!("{other} is neither true nor false")),
        })
        .unwrap_or(false)
    }

    /// All parameters whose name starts with `prefix`, without it.
    pub fn take_prefixed(&mut self, prefix: &str) -> Vec<(String, String)> {
        let mut taken = Vec::new();
        self.pairs.retain_mut(|(name, value)| match name.strip_prefix(prefix) {
            Some(rest) => {
                taken.push((rest.to_owned(), std::mem::take(value)));
                false
            }
            None => true,
        });
        taken
    }

    /// Records a fault of a parameter.
    pub fn fault(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.errors.push(FieldError::new(field, message));
    }

    /// All faults at once, unknown parameters included.
    pub fn finish(mut self) -> Result<(), Refused> {
        for (name, _) in std::mem::take(&mut self.pairs) {
            self.fault(if name.is_empty() { "?".to_owned() } else { name }, "is not a parameter of this call");
        }
        if self.errors.is_empty() { Ok(()) } else { Err(Refused::invalid(self.errors)) }
    }
}

fn name_for_people(pair: &str) -> String {
    pair.split('=').next().unwrap_or_default().chars().take(100).collect()
}

/// Percent and plus decoding; `None` when it is not UTF-8 or a `%` is not followed by two hex digits.
pub(crate) fn decode(text: &str) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'+' => b' ',
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_and_what_nobody_took_is_named() {
        let mut query = Query::parse(Some("attr.geo=eu%20west&attr.tier=a+b&limit=5&nope=1"));
        assert_eq!(query.take_prefixed("attr."), [("geo".to_owned(), "eu west".to_owned()), ("tier".to_owned(), "a b".to_owned())]);
        assert_eq!(query.take_as("limit", |v| v.parse::<u32>().map_err(|e| e.to_string())), Some(5));
        let problem = format!("{:?}", query.finish().unwrap_err());
        assert!(problem.contains("nope"), "{problem}");
    }

    #[test]
    fn bad_encoding_names_the_parameter() {
        for raw in ["owner=%zz", "owner=%ff", "owner=%2"] {
            let problem = format!("{:?}", Query::parse(Some(raw)).finish().unwrap_err());
            assert!(problem.contains("owner"), "{raw}: {problem}");
        }
    }

    #[test]
    fn a_parameter_given_twice_is_a_fault() {
        let mut query = Query::parse(Some("limit=1&limit=2"));
        assert_eq!(query.take("limit").as_deref(), Some("1"));
        assert!(query.finish().is_err());
    }
}

//! What the schema of `Proxy` cannot say field by field (OP-32): one table, each rule as CEL for the API server and
//! as code for `validate` and standalone.
//!
//! Every rule stands on `spec` and uses `has()`: a transition rule on an optional field is skipped when the field
//! comes or goes. The code is lenient where the schema already found fault (a missing or mistyped field breaks no
//! rule), so that all faults come out at once.

use serde_json::{Value, json};

use super::grammar;

/// A text in CEL, and the same in code.
type Detail = (&'static str, fn(&Value) -> Option<String>);

/// One rule over a `Proxy`'s spec.
#[derive(Debug)]
pub struct Rule {
    /// The field it speaks of, relative to `spec`, with its leading dot.
    pub field: &'static str,
    /// What the API server evaluates; `self` is the spec.
    pub cel: fn() -> String,
    /// What both say when it is broken.
    pub message: &'static str,
    /// A text that names values, for CEL and for us.
    detail: Option<Detail>,
    check: Check,
}

#[derive(Debug, Clone, Copy)]
enum Check {
    /// Must hold for a spec, whose defaults are applied.
    State(fn(&Value) -> bool),
    /// Must hold between the spec that was and the one that comes.
    Change(fn(&Value, &Value) -> bool),
}

impl Rule {
    /// As `x-kubernetes-validations` has it.
    pub(super) fn to_json(&self) -> Value {
        let mut rule = json!({ "rule": (self.cel)(), "message": self.message, "fieldPath": self.field });
        if let (Some((expression, _)), Some(map)) = (self.detail, rule.as_object_mut()) {
            map.insert("messageExpression".to_owned(), expression.into());
        }
        rule
    }

    /// What is wrong with a spec by this rule.
    pub(super) fn state_fault(&self, spec: &Value) -> Option<String> {
        match self.check {
            Check::State(holds) if !holds(spec) => Some(self.text(spec)),
            Check::State(_) | Check::Change(_) => None,
        }
    }

    /// What is wrong with a change by this rule.
    pub(super) fn change_fault(&self, old: &Value, new: &Value) -> Option<String> {
        match self.check {
            Check::Change(holds) if !holds(old, new) => Some(self.text(new)),
            Check::State(_) | Check::Change(_) => None,
        }
    }

    fn text(&self, spec: &Value) -> String {
        self.detail.and_then(|(_, detail)| detail(spec)).unwrap_or_else(|| self.message.to_owned())
    }
}

fn mode(spec: &Value) -> &str {
    spec["mode"].as_str().unwrap_or_default()
}

fn has(spec: &Value, field: &str) -> bool {
    spec.get(field).is_some_and(|v| !v.is_null())
}

/// The text at a pointer, if there is one.
fn text<'a>(spec: &'a Value, pointer: &str) -> Option<&'a str> {
    spec.pointer(pointer).and_then(Value::as_str)
}

fn number(spec: &Value, field: &str) -> Option<u64> {
    spec["healthCheck"][field].as_u64()
}

fn attribute_keys(spec: &Value) -> impl Iterator<Item = &str> {
    spec["attributes"].as_object().into_iter().flatten().map(|(key, _)| key.as_str())
}

macro_rules! managed_only {
    ($field:literal) => {
        Rule {
            field: concat!(".", $field),
            cel: || concat!("self.mode == 'Managed' || !has(self.", $field, ")").to_owned(),
            message: concat!($field, " is refused when mode is External: somebody else runs the instance"),
            detail: None,
            check: Check::State(|spec| mode(spec) != "External" || !has(spec, $field)),
        }
    };
}

macro_rules! required_for {
    ($field:literal, $mode:literal) => {
        Rule {
            field: concat!(".", $field),
            cel: || concat!("self.mode != '", $mode, "' || has(self.", $field, ")").to_owned(),
            message: concat!($field, " is required when mode is ", $mode),
            detail: None,
            check: Check::State(|spec| mode(spec) != $mode || has(spec, $field)),
        }
    };
}

/// The rules, in the order in which faults are reported.
pub static RULES: [Rule; 17] = [
    Rule {
        field: ".mode",
        cel: || "self.mode == oldSelf.mode".to_owned(),
        message: "mode is immutable: delete the Proxy and create it anew",
        detail: None,
        check: Check::Change(|old, new| old.get("mode") == new.get("mode")),
    },
    required_for!("provider", "Managed"),
    managed_only!("provider"),
    required_for!("endpoint", "External"),
    Rule {
        field: ".endpoint",
        cel: || "self.mode == 'External' || !has(self.endpoint)".to_owned(),
        message: "endpoint is refused when mode is Managed: the provider says where the instance is",
        detail: None,
        check: Check::State(|spec| mode(spec) != "Managed" || !has(spec, "endpoint")),
    },
    managed_only!("placement"),
    managed_only!("cloudInit"),
    Rule {
        field: ".cloudInit",
        cel: || "!has(self.cloudInit) || has(self.cloudInit.inline) != has(self.cloudInit.secretRef)".to_owned(),
        message: "exactly one of inline and secretRef must be set",
        detail: None,
        check: Check::State(|spec| {
            let cloud_init = &spec["cloudInit"];
            !cloud_init.is_object() || has(cloud_init, "inline") != has(cloud_init, "secretRef")
        }),
    },
    Rule {
        field: ".endpoint.host",
        cel: || format!("!has(self.endpoint) || self.endpoint.host.matches(r\"{}\")", grammar::HOST),
        message: "must be a DNS name, an IPv4 address or an IPv6 address without brackets: no scheme, port or path, no underscore, no dot at the end",
        detail: None,
        check: Check::State(|spec| text(spec, "/endpoint/host").is_none_or(|host| host.is_empty() || grammar::HOST_GRAMMAR.matches(host))),
    },
    Rule {
        field: ".endpoint.host",
        cel: || format!("!has(self.endpoint) || self.endpoint.host.split('.').all(label, size(label) <= {})", grammar::LABEL_LIMIT),
        message: "a label of the name has more than 63 characters",
        detail: None,
        check: Check::State(|spec| {
            let mut labels = text(spec, "/endpoint/host").into_iter().flat_map(|host| host.split('.'));
            labels.all(|label| label.chars().count() <= grammar::LABEL_LIMIT)
        }),
    },
    Rule {
        field: ".attributes",
        cel: || format!("!has(self.attributes) || self.attributes.all(key, key.matches(r\"{}\"))", grammar::LABEL_KEY),
        message: "every key must be a label key, such as geo or example.com/tier",
        detail: None,
        check: Check::State(|spec| attribute_keys(spec).all(|key| grammar::LABEL_KEY_GRAMMAR.matches(key))),
    },
    Rule {
        field: ".attributes",
        cel: || format!("!has(self.attributes) || self.attributes.all(key, key.indexOf('/') <= {})", grammar::PREFIX_LIMIT),
        message: "the prefix of a key has more than 253 characters",
        detail: None,
        check: Check::State(|spec| {
            attribute_keys(spec).all(|key| key.split_once('/').is_none_or(|(prefix, _)| prefix.chars().count() <= grammar::PREFIX_LIMIT))
        }),
    },
    Rule {
        field: ".healthCheck.url",
        cel: || format!("!has(self.healthCheck) || self.healthCheck.url.matches(r\"{}\")", grammar::URL),
        message: "must be an absolute http or https URL in ASCII with a host, without user info, and with a port of 1-65535 or none",
        detail: None,
        check: Check::State(|spec| text(spec, "/healthCheck/url").is_none_or(|url| grammar::URL_GRAMMAR.matches(url))),
    },
    Rule {
        field: ".healthCheck.timeoutSeconds",
        cel: || "!has(self.healthCheck) || self.healthCheck.timeoutSeconds <= self.healthCheck.intervalSeconds".to_owned(),
        message: "timeoutSeconds must not exceed intervalSeconds",
        detail: Some((
            // `string()` has no known length, and the API server refuses a text whose cost it cannot bound; a format has one.
            "'timeoutSeconds (%d) must not exceed intervalSeconds (%d)'.format([self.healthCheck.timeoutSeconds, \
             self.healthCheck.intervalSeconds])",
            |spec| {
                let (timeout, interval) = (number(spec, "timeoutSeconds")?, number(spec, "intervalSeconds")?);
                Some(format!("timeoutSeconds ({timeout}) must not exceed intervalSeconds ({interval})"))
            },
        )),
        check: Check::State(|spec| match (number(spec, "timeoutSeconds"), number(spec, "intervalSeconds")) {
            (Some(timeout), Some(interval)) if interval > 0 => timeout <= interval,
            _ => true,
        }),
    },
    Rule {
        field: ".healthCheck.expectedStatus",
        cel: || "!has(self.healthCheck) || !self.healthCheck.reportsAddress || self.healthCheck.expectedStatus != 204".to_owned(),
        message: "204, the default, has no body, and reportsAddress reads the address from the body: expect 200 or another status",
        detail: None,
        check: Check::State(|spec| {
            spec["healthCheck"]["reportsAddress"].as_bool() != Some(true) || number(spec, "expectedStatus") != Some(204)
        }),
    },
    Rule {
        field: ".healthCheck.replaceAfterSeconds",
        cel: || {
            "!has(self.healthCheck) || self.healthCheck.replaceAfterSeconds == 0 || self.healthCheck.replaceAfterSeconds >= 300".to_owned()
        },
        message: "must be 0 (never) or 300-86400",
        detail: None,
        check: Check::State(|spec| !number(spec, "replaceAfterSeconds").is_some_and(|s| (1..300).contains(&s))),
    },
    Rule {
        field: ".provider",
        cel: || "has(self.provider) == has(oldSelf.provider) && (!has(self.provider) || self.provider == oldSelf.provider)".to_owned(),
        message: "provider is immutable: delete the Proxy and create it anew",
        detail: None,
        check: Check::Change(|old, new| old.get("provider") == new.get("provider")),
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Hard case O16: the API server keys the list by the rule's text; a second one breaks server-side apply.
    #[test]
    fn no_two_rules_are_alike() {
        let texts: BTreeSet<_> = RULES.iter().map(|rule| (rule.cel)()).collect();
        assert_eq!(texts.len(), RULES.len());
    }

    #[test]
    fn a_message_is_one_line() {
        for rule in &RULES {
            assert!(!rule.message.contains('\n') && !rule.message.is_empty(), "{}", rule.field);
        }
    }
}

//! One line: its fields, and how they are written.

use std::error::Error;
use std::fmt::{Debug, Write};

use egress_protocol::Timestamp;
use serde_json::Value;
use tracing::Metadata;
use tracing::field::{Field, Visit};

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    Json,
    /// For a terminal.
    Text,
}

/// Fields in the order they were first recorded; a later value of a name replaces the earlier one.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let name = field.name();
        if name.starts_with("otel.") {
            // Said to the exporter of spans, not to people.
            return;
        }
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    fn take_text(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(n, _)| *n == name)?;
        match self.0.remove(at).1 {
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        self.put(field, text.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

/// A line in the making.
pub(super) struct Line {
    time: Timestamp,
    level: &'static str,
    message: String,
    target: String,
    fields: Vec<(String, Value)>,
}

/// What every line has; a field of that name is written with the prefix `field.`.
const RESERVED: [&str; 4] = ["time", "level", "message", "target"];

impl Line {
    /// Takes the message out of the event's own fields. Records of the crate `log` carry their target in a field.
    pub(super) fn new(time: Timestamp, metadata: &Metadata<'_>, own: &mut Fields) -> Self {
        let message = own.take_text("message").unwrap_or_default();
        let logged = own.take_text("log.target");
        for bridge in ["log.module_path", "log.file", "log.line"] {
            own.take_text(bridge);
        }
        let target = logged.unwrap_or_else(|| metadata.target().to_owned());
        Self { time, level: metadata.level().as_str(), message, target, fields: Vec::new() }
    }

    pub(super) fn add(&mut self, fields: &Fields) {
        for (name, value) in &fields.0 {
            let name = name.strip_prefix("r#").unwrap_or(name);
            let name = if RESERVED.contains(&name) { format!("field.{name}") } else { name.to_owned() };
            match self.fields.iter_mut().find(|(n, _)| *n == name) {
                Some((_, old)) => *old = value.clone(),
                None => self.fields.push((name, value.clone())),
            }
        }
    }

    /// Of the span that the line was said in (OB-2).
    pub(super) fn add_ids(&mut self, trace: String, span: String) {
        for (name, id) in [("traceID", trace), ("spanID", span)] {
            self.fields.retain(|(n, _)| n != name);
            self.fields.push((name.to_owned(), id.into()));
        }
    }

    pub(super) fn write(&self, format: Format) -> Vec<u8> {
        match format {
            Format::Json => self.json(),
            Format::Text => self.text().into_bytes(),
        }
    }

    fn json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        let mut member = |name: &str, value: &Value| {
            out.push(if out.is_empty() { b'{' } else { b',' });
            let _ = serde_json::to_writer(&mut out, name);
            out.push(b':');
            let _ = serde_json::to_writer(&mut out, value);
        };
        member("time", &self.time.to_string().into());
        member("level", &self.level.into());
        member("message", &self.message.as_str().into());
        member("target", &self.target.as_str().into());
        for (name, value) in &self.fields {
            member(name, value);
        }
        out.extend_from_slice(b"}\n");
        out
    }

    fn text(&self) -> String {
        let mut out = format!("{} {:>5} {}", self.time, self.level, one_line(&self.message));
        for (name, value) in &self.fields {
            let _ = match value {
                Value::String(text) if is_plain(text) => write!(out, " {name}={text}"),
                other => write!(out, " {name}={other}"),
            };
        }
        let _ = writeln!(out, " ({})", self.target);
        out
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| !c.is_whitespace() && !c.is_control() && c != '"' && c != '=')
}

fn one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

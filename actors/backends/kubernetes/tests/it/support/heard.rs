//! Spans and log lines, captured on this thread.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Everything that the backend said.
#[derive(Debug, Default, Clone)]
pub struct Heard(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
pub struct Said {
    pub spans: Vec<Span>,
    pub lines: Vec<Line>,
}

#[derive(Debug)]
pub struct Span {
    pub name: &'static str,
    pub parent: Option<&'static str>,
    pub fields: Fields,
    id: u64,
}

#[derive(Debug)]
pub struct Line {
    pub level: Level,
    pub message: String,
    pub fields: Fields,
    pub span: Option<&'static str>,
}

pub type Fields = BTreeMap<&'static str, String>;

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.0.insert(field.name(), text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Heard {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Reader(&mut fields));
        let parent = ctx.span(id).unwrap().parent().map(|parent| parent.name());
        self.0.lock().unwrap().spans.push(Span { name: attributes.metadata().name(), parent, fields, id: id.into_u64() });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut said = self.0.lock().unwrap();
        if let Some(span) = said.spans.iter_mut().rev().find(|span| span.id == id.into_u64()) {
            values.record(&mut Reader(&mut span.fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        let message = fields.remove("message").unwrap_or_default();
        let span = ctx.event_span(event).map(|span| span.name());
        if event.metadata().target().starts_with("egress_") {
            self.0.lock().unwrap().lines.push(Line { level: *event.metadata().level(), message, fields, span });
        }
    }
}

impl Heard {
    pub fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let heard = Self::default();
        // While only one subscriber exists, `tracing` asks the current thread's whether a call site is of interest, and a test
        // that has none would switch it off for all.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(heard.clone()));
        (heard, guard)
    }

    pub fn take(&self) -> Said {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Said {
    /// Spans of the seam.
    pub fn calls(&self) -> Vec<&Span> {
        self.spans.iter().filter(|span| span.name.starts_with("kubernetes.")).collect()
    }

    /// Lines of the seam.
    pub fn told(&self) -> Vec<&Line> {
        self.lines.iter().filter(|line| line.message == "kubernetes call").collect()
    }

    pub fn warnings(&self) -> Vec<&Line> {
        self.lines.iter().filter(|line| line.level == Level::WARN).collect()
    }
}

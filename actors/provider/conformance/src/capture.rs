//! Everything that one test's thread says through `tracing`, at TRACE (PC-89, PC-92).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// A span, as it was made.
#[derive(Debug, Clone)]
pub(super) struct SpanSeen {
    pub name: &'static str,
    pub parent: Option<u64>,
    pub fields: Fields,
}

/// A log line.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub level: Level,
    pub fields: Fields,
}

/// Names and values; the message is the field `message`.
pub(super) type Fields = BTreeMap<&'static str, String>;

#[derive(Debug, Default)]
struct Seen {
    /// Ids are not used again: the registry's are, ours count up.
    spans: Vec<SpanSeen>,
    lines: Vec<Line>,
}

/// What was said so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Capture(Arc<Mutex<Seen>>);

/// Our number of a span, kept with it in the registry.
struct Number(u64);

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

struct Ear(Capture);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ear {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, ctx: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Reader(&mut fields));
        let Some(span) = ctx.span(id) else { return };
        let parent = span.parent().and_then(|parent| parent.extensions().get::<Number>().map(|number| number.0));
        let mut seen = self.0.seen();
        span.extensions_mut().insert(Number(seen.spans.len() as u64));
        seen.spans.push(SpanSeen { name: attributes.metadata().name(), parent, fields });
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, ctx: Context<'_, S>) {
        let number = ctx.span(id).and_then(|span| span.extensions().get::<Number>().map(|number| number.0));
        let mut seen = self.0.seen();
        if let Some(span) = number.and_then(|number| seen.spans.get_mut(usize::try_from(number).ok()?)) {
            values.record(&mut Reader(&mut span.fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        self.0.seen().lines.push(Line { level: *event.metadata().level(), fields });
    }
}

impl Capture {
    /// Listens on this thread until the guard is dropped.
    pub(super) fn listen(&self) -> tracing::subscriber::DefaultGuard {
        // While only one subscriber exists, `tracing` asks the current thread's whether a call site is of interest, and a thread
        // that has none would switch it off for all. So everybody has one; if another is there, it is as good.
        let _ = tracing::subscriber::set_global_default(Registry::default());
        tracing::subscriber::set_default(Registry::default().with(Ear(self.clone())))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many spans and lines there were; for [`Capture::since`].
    pub(super) fn now(&self) -> (usize, usize) {
        let seen = self.seen();
        (seen.spans.len(), seen.lines.len())
    }

    /// What was said since.
    pub(super) fn since(&self, (spans, lines): (usize, usize)) -> (Vec<SpanSeen>, Vec<Line>) {
        let seen = self.seen();
        (seen.spans.iter().skip(spans).cloned().collect(), seen.lines.iter().skip(lines).cloned().collect())
    }

    /// Whether a span stands, at whatever distance, under one of that name's beginning.
    pub(super) fn is_under(&self, span: &SpanSeen, beginning: &str) -> bool {
        let seen = self.seen();
        let mut above = span.parent;
        while let Some(parent) = above.and_then(|number| seen.spans.get(usize::try_from(number).ok()?)) {
            if parent.name.starts_with(beginning) {
                return true;
            }
            above = parent.parent;
        }
        false
    }

    /// The first span or line that holds a text.
    pub(super) fn holding(&self, text: &str) -> Option<String> {
        let seen = self.seen();
        let spans = seen.spans.iter().filter(|span| holds(&span.fields, text)).map(|span| format!("span {}", span.name));
        let lines = seen.lines.iter().filter(|line| holds(&line.fields, text));
        spans.chain(lines.map(|line| format!("{} line {:?}", line.level, line.fields.get("message")))).next()
    }
}

fn holds(fields: &Fields, text: &str) -> bool {
    fields.values().any(|value| value.contains(text))
}

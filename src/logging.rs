//! The log: one line per event on stderr, as JSON or as text (OB-2, OB-6).
//!
//! Every line has the same form, whoever speaks: `time`, `level`, `message`, `target`, then the fields of the spans it
//! happens in (outermost first) and its own. A key occurs once; the innermost value wins. A panic is one line too.

mod filter;
mod line;
pub mod queue;

use std::io::Write;
use std::sync::Arc;

use egress_protocol::Clock;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

pub use line::Format;
use line::{Fields, Line};
use queue::Queue;

use crate::telemetry::{self, Telemetry};

/// Where finished lines go, line break included.
pub type Sink = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Installs the log of the process on stderr, the export of spans where there is one, and the panic hook. Once. What comes
/// back is to be kept to the end of the process: dropping it waits a moment for the last lines.
pub fn install(format: Format, level: &str, telemetry: Option<&Telemetry>) -> Result<Arc<Queue>, String> {
    // Nobody is left to tell when stderr is gone.
    let queue = Queue::start("log", |line| drop(std::io::stderr().lock().write_all(line)));
    let queue = Arc::new(queue.map_err(|error| format!("the log cannot be started: {error}"))?);
    let of_sink = Arc::downgrade(&queue);
    let sink: Sink = Arc::new(move |line| {
        if let Some(queue) = of_sink.upgrade() {
            queue.push(line);
        }
    });
    match telemetry {
        None => subscriber(format, level, sink)?.try_init(),
        Some(telemetry) => traced_subscriber(format, level, sink, telemetry)?.try_init(),
    }
    .map_err(|e| e.to_string())?;
    std::panic::set_hook(Box::new(panicked));
    Ok(queue)
}

/// A panic is one line like any other.
fn panicked(panic: &std::panic::PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a panic without a text");
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    tracing::error!(target: "panic", panic = text, location, thread, "panic");
}

/// A subscriber that writes to `sink`.
pub fn subscriber(format: Format, level: &str, sink: Sink) -> Result<impl Subscriber + Send + Sync + 'static, String> {
    let lines = Lines { format, clock: Clock::system(), sink, traced: false };
    Ok(tracing_subscriber::registry().with(filter::parse(level)?).with(lines))
}

/// The same, and spans are exported, whatever the level of the log. Lines inside a span carry its ids.
pub fn traced_subscriber(
    format: Format,
    level: &str,
    sink: Sink,
    telemetry: &Telemetry,
) -> Result<impl Subscriber + Send + Sync + 'static, String> {
    let lines = Lines { format, clock: Clock::system(), sink, traced: true };
    Ok(tracing_subscriber::registry().with(telemetry.layer()).with(lines.with_filter(filter::parse(level)?)))
}

struct Lines {
    format: Format,
    clock: Clock,
    sink: Sink,
    /// Spans are exported: lines carry `traceID` and `spanID`.
    traced: bool,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        if let Some(span) = ctx.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        if let Some(span) = ctx.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let mut own = Fields::default();
        event.record(&mut own);
        let mut line = Line::new(self.clock.now(), event.metadata(), &mut own);
        for span in ctx.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.add(fields);
            }
        }
        line.add(&own);
        if self.traced
            && let Some((trace, span)) = telemetry::current()
        {
            line.add_ids(trace, span);
        }
        (self.sink)(&line.write(self.format));
    }
}

#[cfg(test)]
mod tests;

//! Spans to a collector: OTLP over HTTP, by the standard `OTEL_*` variables (OB-3).
//!
//! What must stay true: without a collector configured nothing of this exists, neither layer nor thread; nobody ever waits
//! for a collector, but for [`FLUSH`] at the end of the process; what cannot be exported is said once, without secrets.
//!
//! Which spans there are: those of our own crates, and those with the target `otel`, which the log never enables.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use egress_config::TelemetrySettings;
use opentelemetry::Context;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter as OtlpExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

/// What is left when the process ends may take this long (O19).
pub const FLUSH: Duration = Duration::from_secs(2);
/// The name of the service unless a variable says otherwise, and of the tracer.
const SERVICE: &str = "egress-proxies-operator";

/// Why spans are not exported, without secrets.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A variable is at fault, which the text names: exit 2 (OP-4). Most such faults are found when the settings are read.
    #[error("{0}")]
    Settings(String),
    /// The exporter cannot be had on this machine, which is no reason not to work.
    #[error("{0}")]
    Exporter(String),
}

impl From<ExporterBuildError> for TelemetryError {
    fn from(error: ExporterBuildError) -> Self {
        let text = redacted(&error.to_string());
        match error {
            ExporterBuildError::InvalidConfiguration(_) => Self::Settings(text),
            ExporterBuildError::InternalFailure(_) => Self::Exporter(text),
        }
    }
}

/// The exporter of spans.
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
}

impl Telemetry {
    /// Starts what the variables ask for; `None`: they ask for nothing.
    pub fn start(settings: &TelemetrySettings) -> Result<Option<Self>, TelemetryError> {
        if !settings.export {
            return Ok(None);
        }
        let mut client = reqwest::blocking::Client::builder().timeout(settings.timeout);
        if settings.loopback {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|error| TelemetryError::Exporter(redacted(&error.to_string())))?;
        let exporter = OtlpExporter::builder().with_http().with_http_client(client).build()?;
        let mut resource = Resource::builder();
        if !settings.service_named {
            resource = resource.with_service_name(SERVICE);
        }
        let exporter = Reporting { inner: exporter, failing: AtomicBool::new(false) };
        let provider = SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter).build();
        Ok(Some(Self { provider }))
    }

    /// Turns spans into spans of the exporter.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync>(&self) -> impl Layer<S> + Send + Sync + 'static {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(SERVICE))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(FilterFn::new(is_exported))
    }

    /// Sends what is left, for at most [`FLUSH`]. Blocks.
    pub fn shutdown(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FLUSH) {
            tracing::warn!(error = redacted(&error.to_string()), "WARNING: the last spans may not have reached the collector");
        }
    }
}

/// Spans of ours, from INFO on; events stay in the log, whose lines carry the ids of their span.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    metadata.is_span() && *metadata.level() <= Level::INFO && (target == "otel" || target.starts_with("egress_"))
}

/// The ids of the trace and the span that this thread is in.
pub(crate) fn current() -> Option<(String, String)> {
    Context::map_current(|context| {
        let span = context.span();
        let ids = span.span_context();
        ids.is_valid().then(|| (ids.trace_id().to_string(), ids.span_id().to_string()))
    })
}

/// Says once that spans cannot be exported, and once that they can again.
#[derive(Debug)]
struct Reporting<E> {
    inner: E,
    failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Reporting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exported = self.inner.export(batch).await;
        match &exported {
            Ok(()) if self.failing.swap(false, Ordering::Relaxed) => tracing::info!("spans are exported again"),
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!(error = said(error), "WARNING: spans cannot be exported and are lost until they can");
            }
            Ok(()) | Err(_) => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

fn said(error: &OTelSdkError) -> String {
    redacted(&error.to_string())
}

/// Without the user information and the query of any URL in it (PC-75).
fn redacted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "\"'<>()".contains(c)).unwrap_or(after.len());
        let (url, tail) = after.split_at(end);
        // A password may hold what ought to be encoded: whatever stands before the last `@` goes.
        let public = url.rsplit('@').next().unwrap_or_default();
        out.push_str(public.split(['?', '#']).next().unwrap_or_default());
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_no_credentials_of_a_url_pc_75() {
        for (text, shown) in [
            (
                "error sending request for url (http://u:p@collector:4318/v1/traces?key=1)",
                "error sending request for url (http://collector:4318/v1/traces)",
            ),
            ("two: https://a@b/x http://c", "two: https://b/x http://c"),
            ("http://u:p/w?@d@host", "http://host"),
            ("none", "none"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }

    #[test]
    fn without_a_collector_there_is_nothing_ob_3() {
        assert!(Telemetry::start(&TelemetrySettings::default()).unwrap().is_none());
    }
}

//! One server span per API request (OB-3): the child of the caller's `traceparent`, named by method and route pattern,
//! never by the raw path. Where nothing is exported the layer is not there.

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http::HeaderMap;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::{Instrument, field};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The routes, traced if anybody listens.
pub(crate) fn traced(routes: Router) -> Router {
    if tracing::span_enabled!(target: "otel", tracing::Level::INFO) { routes.route_layer(from_fn(trace)) } else { routes }
}

async fn trace(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str);
    let span = tracing::info_span!(
        target: "otel", parent: None, "http",
        otel.name = format!("{} {route}", request.method()),
        otel.kind = "server",
        otel.status_code = field::Empty,
        http.request.method = %request.method(),
        http.route = route,
        http.response.status_code = field::Empty,
    );
    let caller = TraceContextPropagator::new().extract(&Headers(request.headers()));
    // The span is new: it takes a parent.
    let _ = span.set_parent(caller);
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}

/// The span of the call that is being handled as the parent of the one it is handed on to. Without a span, or without
/// anybody to export it to, the caller's header stays.
pub(crate) fn inject(headers: &mut HeaderMap) {
    let context = tracing::Span::current().context();
    if context.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&context, &mut Into(headers));
    }
}

struct Into<'a>(&'a mut HeaderMap);

impl Injector for Into<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (http::HeaderName::try_from(key), http::HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

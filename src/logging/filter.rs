//! Levels per target: `info,kvm2=debug`.

use tracing_subscriber::EnvFilter;

/// Libraries speak up from warn on, so that one format does not add volume (OB-6). A level given for one of them by
/// name wins.
///
/// The Kubernetes client calls every answer from 500 on and every broken connection an error of its own; who made the call says
/// what it came to (OB-2).
///
/// `otel` is the target of spans that exist for the exporter alone: the log never enables them, so that they cost nothing
/// where nothing is exported (OB-3).
const LIBRARIES: &str = "otel=off,reqwest=warn,opentelemetry=warn,opentelemetry_sdk=warn,opentelemetry_otlp=warn,hyper=warn,h2=warn,rustls=warn,tokio=warn,axum=warn,tower=warn,log=warn,mio=warn,want=warn,kube=warn,kube_client::client::builder=off,russh=warn";

/// `level` is of the grammar that `egress_config` has checked.
pub(super) fn parse(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(format!("{LIBRARIES},{level}")).map_err(|e| e.to_string())
}

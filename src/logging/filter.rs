//! Levels per target: `info,kvm2=debug`.

use tracing_subscriber::EnvFilter;

/// Libraries speak up from warn on, so that one format does not add volume (OB-6). A level given for one of them by
/// name wins.
///
/// `kube_client` says nothing: it calls errors what is a failed request, and whoever sent it tells what came of it (OB-2).
///
/// `otel` is the target of spans that exist for the exporter alone: the log never enables them, so that they cost nothing
/// where nothing is exported (OB-3).
const LIBRARIES: &str = "otel=off,reqwest=warn,opentelemetry=warn,opentelemetry_sdk=warn,opentelemetry_otlp=warn,hyper=warn,h2=warn,rustls=warn,tokio=warn,axum=warn,tower=warn,log=warn,mio=warn,want=warn,kube=warn,kube_client=off,ractor=warn,russh=warn";

/// `level` is of the grammar that `egress_config` has checked.
pub(super) fn parse(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(format!("{LIBRARIES},{level}")).map_err(|e| e.to_string())
}

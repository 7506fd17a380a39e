//! Spans and log lines of the seam (PC-86, PC-87, PC-88, OB-2), captured.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use egress_protocol::InstanceName;
use egress_provider::Backend;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Instrument, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::support::{Bed, Calls, PORT, key, request};
use crate::backend::seam::{Seam, SeamCall};
use crate::marks::Marks;

/// Everything that was said.
#[derive(Debug, Default, Clone)]
struct Heard(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// Name, and the name of the parent.
    spans: Vec<(&'static str, Option<&'static str>)>,
    lines: Vec<Line>,
}

/// Level, message, fields, and the span it was said in.
type Line = (Level, String, BTreeMap<&'static str, String>, Option<&'static str>);

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0.entry(field.name()).or_default(), "{value:?}");
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Heard {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let span = ctx.span(id).unwrap();
        let parent = span.parent().map(|parent| parent.name());
        self.0.lock().unwrap().spans.push((span.name(), parent));
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        if !event.metadata().target().starts_with("egress_backend_local") {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        let span = ctx.event_span(event).map(|span| span.name());
        self.0.lock().unwrap().lines.push((*event.metadata().level(), message, fields.0, span));
    }
}

impl Heard {
    fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let heard = Self::default();
        // While only one subscriber exists, `tracing` asks the current thread's whether a call site is of interest, and a test
        // that has none would switch it off for all.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(heard.clone()));
        (heard, guard)
    }

    fn take(&self) -> Said {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Makes one call.
async fn make(seam: &Seam, call: SeamCall) {
    let bed = Bed::new();
    let backend = bed.backend();
    let id = backend.made(&request("1", PORT)).await.unwrap();
    let name: InstanceName = key("1").name;
    assert!(id.as_str().ends_with(name.as_str()));
    let net = super::support::own_net();
    let address = std::net::SocketAddrV4::new(net.hosts().next().unwrap(), PORT);
    let span = tracing::info_span!("provider.test");
    async {
        match call {
            SeamCall::ReadMark => drop(seam.read_mark(&name).await.unwrap()),
            SeamCall::WriteMark => {
                let marks = Marks::new(Some(bed.dir.path()), "lab");
                seam.write_mark(&marks.read(&name).unwrap().unwrap()).await.unwrap();
            }
            SeamCall::RemoveMark => seam.remove_mark(&name).await.unwrap(),
            SeamCall::ListMarks => drop(seam.list_marks().await.unwrap()),
            SeamCall::TidyMarks => seam.tidy_marks().await.unwrap(),
            SeamCall::Claim => drop(seam.claim(&name, &[net], PORT, &std::collections::HashMap::new()).unwrap()),
            SeamCall::Listen => drop(seam.listen(&name, address).unwrap()),
            SeamCall::Close => {
                let settings = super::support::engine_settings();
                let listener = crate::engine::listen(address).unwrap();
                seam.close(&name, crate::engine::Instance::start(listener, settings)).await;
            }
        }
    }
    .instrument(span)
    .await;
}

/// PC-88: the seam, enumerated.
#[tokio::test]
async fn every_call_of_the_seam_is_exactly_one_span_and_one_line_pc_88() {
    let dir = tempfile::tempdir().unwrap();
    let seam = Seam::new("lab".into(), Arc::new(Marks::new(Some(dir.path()), "lab")));
    for call in SeamCall::ALL {
        let (heard, _guard) = Heard::listen();
        // What prepares the call speaks of other things, and below no span.
        make(&seam, call).await;
        let said = heard.take();
        let name = format!("local.{}", call.as_str());
        let spans: Vec<_> = said.spans.iter().filter(|(span, _)| span.starts_with("local.")).collect();
        assert_eq!(spans.len(), 1, "{call:?}: {:?}", said.spans);
        assert_eq!((spans[0].0, spans[0].1), (name.as_str(), Some("provider.test")));
        let lines: Vec<_> = said.lines.iter().filter(|(.., span)| span.is_some_and(|span| span == name)).collect();
        assert_eq!(lines.len(), 1, "{call:?}: {:?}", said.lines);
        let (level, message, fields, _) = lines[0];
        assert_eq!(
            (*level, message.as_str(), fields["call"].as_str()),
            (Level::DEBUG, "local call", format!("{:?}", call.as_str()).as_str())
        );
        assert!(fields.contains_key("duration") && fields.contains_key("provider"), "{fields:?}");
    }
}

/// PC-86, PC-87, OB-2: the operations of a whole life.
#[tokio::test]
async fn an_operation_s_calls_are_below_its_span_in_quiet_tiers_and_show_no_secret_pc_86_ob_2() {
    let bed = Bed::new();
    let backend = bed.backend();
    // The first create may read the marks that are there.
    backend.made(&request("0", PORT)).await.unwrap();
    let (heard, _guard) = Heard::listen();
    let calls = |said: &Said| said.spans.iter().filter(|(name, _)| name.starts_with("local.")).map(|(name, _)| *name).collect::<Vec<_>>();
    let lines = |said: &Said| said.lines.iter().filter(|(_, message, ..)| message == "local call").count();
    let mut all = Vec::new();
    let mut check = |operation: &'static str, expected: &[&str]| {
        let said = heard.take();
        assert_eq!(calls(&said), expected, "{operation}");
        assert_eq!(lines(&said), expected.len(), "{operation}: one line a call");
        assert!(said.spans.iter().all(|(name, parent)| !name.starts_with("local.") || *parent == Some(operation)), "{:?}", said.spans);
        all.push(said);
    };
    backend.made(&request("1", PORT)).instrument(tracing::info_span!("provider.create")).await.unwrap();
    check("provider.create", &["local.read_mark", "local.claim", "local.write_mark"]);
    backend.read(&key("1")).instrument(tracing::info_span!("provider.get")).await.unwrap();
    check("provider.get", &["local.read_mark"]);
    async { backend.all().await }.instrument(tracing::info_span!("provider.list")).await;
    check("provider.list", &["local.list_marks"]);
    backend.gone(&key("1")).instrument(tracing::info_span!("provider.delete")).await.unwrap();
    check("provider.delete", &["local.read_mark", "local.remove_mark", "local.close"]);
    // What nobody asked for begins no trace, and is a line all the same.
    backend.start().await;
    let said = heard.take();
    assert!(calls(&said).is_empty());
    assert_eq!(lines(&said), 2, "tidy and list");
    all.push(said);
    for (level, message, fields, _) in all.iter().flat_map(|said| &said.lines) {
        assert!(*level > Level::INFO || message.starts_with("WARNING:"), "a provider writes nothing at INFO: {message}");
        assert!(!format!("{message} {fields:?}").contains("SENTINEL"), "{message}: {fields:?}");
    }
}

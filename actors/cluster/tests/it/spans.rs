//! OB-3: our own calls to the API server are child spans of what they are part of; watches make none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use egress_cluster::source::SourceArgs;
use egress_protocol::leadership::Fence;
use egress_protocol::resource::{Phase, ProxyStatus};
use egress_protocol::source::SourceMessage;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Instrument, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::bed::{Bed, external};
use crate::tree::Tree;

/// Name, and parent's name.
type Seen = (String, Option<String>);

/// Spans as the exporter would see them.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<HashMap<u64, Seen>>>);

#[derive(Default)]
struct Name(Option<String>);

impl Visit for Name {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "otel.name" {
            self.0 = Some(format!("{value:?}").trim_matches('"').to_owned());
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut name = Name::default();
        attributes.record(&mut name);
        let span = context.span(id).unwrap();
        if span.metadata().target() != "otel" {
            return;
        }
        let name = name.0.unwrap_or_else(|| span.name().to_owned());
        let mut spans = self.0.lock().unwrap();
        let parent = span.parent().and_then(|parent| spans.get(&parent.id().into_u64()).map(|(name, _)| name.clone()));
        spans.insert(id.into_u64(), (name, parent));
    }
}

#[tokio::test]
async fn a_write_is_a_child_of_what_it_is_part_of_and_watches_make_no_span_ob_3() {
    let Some(bed) = Bed::get("a_write_is_a_child_of_what_it_is_part_of_and_watches_make_no_span_ob_3").await else { return };
    bed.create_proxy("px", external()).await;
    let spans = Spans::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(spans.clone()));
    let tree = Tree::start(SourceArgs::new(bed.admin.clone(), bed.scope(), Fence::open(), "pod-1")).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    tree.live().await.unwrap();
    let seen = || spans.0.lock().unwrap().values().cloned().collect::<Vec<_>>();
    assert_eq!(seen(), [], "lists and watches of nobody's");
    let span = tracing::info_span!(target: "otel", parent: None, "proxy.reconcile");
    let status = Arc::new(ProxyStatus { phase: Some(Phase::Ready), ..ProxyStatus::default() });
    let (key, uid) = (px.key.clone(), px.uid.clone());
    let write = tree.ask(|reply_to| SourceMessage::WriteStatus { key, uid, status, span: span.clone(), reply_to });
    write.instrument(tracing::Span::none()).await.unwrap();
    tree.add_finalizer(&px.key, &px.uid).await.unwrap();
    let mut seen = seen();
    seen.sort();
    assert_eq!(seen, [("kube.patch.proxies".to_owned(), Some("proxy.reconcile".to_owned())), ("proxy.reconcile".to_owned(), None)]);
}

//! What the backend asks of the machine: marks of the state folder and addresses. Each call is one span `local.<call>`
//! below the operation's and one line in the log (PC-86, PC-87, PC-88); nothing else of this crate does either.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::InstanceName;
use egress_protocol::provider::ErrorClass;
use egress_provider::BackendError;
use ipnet::Ipv4Net;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tracing::{Instrument, Span, field};

use super::place;
use crate::engine::{Instance, listen};
use crate::marks::{Mark, MarkError, Marks};

/// The calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeamCall {
    ReadMark,
    WriteMark,
    RemoveMark,
    ListMarks,
    TidyMarks,
    Claim,
    Listen,
    Close,
}

impl SeamCall {
    /// Each of them.
    #[cfg(test)]
    pub(super) const ALL: [Self; 8] =
        [Self::ReadMark, Self::WriteMark, Self::RemoveMark, Self::ListMarks, Self::TidyMarks, Self::Claim, Self::Listen, Self::Close];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::ReadMark => "read_mark",
            Self::WriteMark => "write_mark",
            Self::RemoveMark => "remove_mark",
            Self::ListMarks => "list_marks",
            Self::TidyMarks => "tidy_marks",
            Self::Claim => "claim",
            Self::Listen => "listen",
            Self::Close => "close",
        }
    }

    /// Only below a span: what nobody asked for begins no trace (PC-86). The name of a span is part of its type.
    fn span(self, about: Option<&InstanceName>) -> Span {
        macro_rules! local_span {
            ($name:literal) => {
                tracing::info_span!(
                    target: "otel",
                    $name,
                    otel.kind = "internal",
                    otel.status_code = field::Empty,
                    instance = about.map(field::display)
                )
            };
        }
        if Span::current().is_none() {
            return Span::none();
        }
        match self {
            Self::ReadMark => local_span!("local.read_mark"),
            Self::WriteMark => local_span!("local.write_mark"),
            Self::RemoveMark => local_span!("local.remove_mark"),
            Self::ListMarks => local_span!("local.list_marks"),
            Self::TidyMarks => local_span!("local.tidy_marks"),
            Self::Claim => local_span!("local.claim"),
            Self::Listen => local_span!("local.listen"),
            Self::Close => local_span!("local.close"),
        }
    }
}

/// See the module.
pub(super) struct Seam {
    entry: Arc<str>,
    marks: Arc<Marks>,
}

/// Every mark that can be read, and what cannot.
pub(super) type Listed = (Vec<Mark>, Vec<MarkError>);

impl Seam {
    pub(super) const fn new(entry: Arc<str>, marks: Arc<Marks>) -> Self {
        Self { entry, marks }
    }

    /// Nothing changes a file any more.
    pub(super) fn end(&self) {
        self.marks.close();
    }

    pub(super) async fn read_mark(&self, name: &InstanceName) -> Result<Option<Mark>, BackendError> {
        let looked_for = name.clone();
        self.marks(SeamCall::ReadMark, Some(name), move |marks| marks.read(&looked_for)).await
    }

    pub(super) async fn write_mark(&self, mark: &Mark) -> Result<(), BackendError> {
        let written = mark.clone();
        self.marks(SeamCall::WriteMark, Some(&mark.name), move |marks| marks.write(&written)).await
    }

    pub(super) async fn remove_mark(&self, name: &InstanceName) -> Result<(), BackendError> {
        let removed = name.clone();
        self.marks(SeamCall::RemoveMark, Some(name), move |marks| marks.remove(&removed)).await
    }

    pub(super) async fn list_marks(&self) -> Result<Listed, BackendError> {
        self.marks(SeamCall::ListMarks, None, Marks::list).await
    }

    pub(super) async fn tidy_marks(&self) -> Result<(), BackendError> {
        self.marks(SeamCall::TidyMarks, None, Marks::tidy).await
    }

    /// Takes the first address of some on which the port is free.
    pub(super) fn claim(
        &self,
        name: &InstanceName,
        nets: &[Ipv4Net],
        port: u16,
        holders: &HashMap<SocketAddrV4, String>,
    ) -> Result<(SocketAddrV4, TcpListener), BackendError> {
        let begun = Begun::new(SeamCall::Claim, Some(name));
        let claimed = begun.span.in_scope(|| place::claim(nets, port, holders));
        begun.ended(&self.entry, claimed.as_ref().err().map(|error| error.message.as_str()));
        claimed
    }

    /// Takes exactly this address.
    pub(super) fn listen(&self, name: &InstanceName, address: SocketAddrV4) -> io::Result<TcpListener> {
        let begun = Begun::new(SeamCall::Listen, Some(name));
        let listening = begun.span.in_scope(|| listen(address));
        begun.ended(&self.entry, listening.as_ref().err().map(ToString::to_string).as_deref());
        listening
    }

    /// Ends a listener and its tunnels.
    pub(super) async fn close(&self, name: &InstanceName, instance: Instance) {
        let begun = Begun::new(SeamCall::Close, Some(name));
        instance.stop(Duration::ZERO).instrument(begun.span.clone()).await;
        begun.ended(&self.entry, None);
    }

    /// Runs a look at the marks beside the runtime.
    async fn marks<T: Send + 'static>(
        &self,
        call: SeamCall,
        about: Option<&InstanceName>,
        look: impl FnOnce(&Marks) -> Result<T, MarkError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let begun = Begun::new(call, about);
        let looked = self.look(look).instrument(begun.span.clone()).await;
        begun.ended(&self.entry, looked.as_ref().err().map(|error| error.message.as_str()));
        looked
    }

    fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Marks) -> Result<T, MarkError> + Send + 'static,
    ) -> impl Future<Output = Result<T, BackendError>> + Send + 'static {
        let marks = Arc::clone(&self.marks);
        async move {
            if matches!(&*marks, Marks::Memory(_)) {
                return look(&marks).map_err(classified);
            }
            match tokio::task::spawn_blocking(move || look(&marks)).await {
                Ok(seen) => seen.map_err(classified),
                Err(error) => Err(BackendError::from(error)),
            }
        }
    }
}

/// A mark that cannot be read may be readable later; one that is corrupt needs a person (PC-26).
fn classified(error: MarkError) -> BackendError {
    let class = match &error {
        MarkError::Unreadable { .. } => ErrorClass::Transient,
        MarkError::Corrupt { .. } => ErrorClass::Permanent,
    };
    BackendError::new(class, format!("mark: {error}")).caused_by(error)
}

/// A call under way. One that is dropped was cut off with its operation, whose line says so.
struct Begun<'a> {
    call: SeamCall,
    about: Option<&'a InstanceName>,
    span: Span,
    at: Instant,
}

impl<'a> Begun<'a> {
    fn new(call: SeamCall, about: Option<&'a InstanceName>) -> Self {
        Self { call, about, span: call.span(about), at: Instant::now() }
    }

    fn ended(self, entry: &str, error: Option<&str>) {
        if error.is_some() {
            self.span.record("otel.status_code", "ERROR");
        }
        let say = || {
            tracing::debug!(
                provider = entry,
                call = self.call.as_str(),
                instance = self.about.map(field::display),
                duration = self.at.elapsed().as_secs_f64(),
                error,
                "local call"
            );
        };
        // Without a span of its own the line belongs to the operation's.
        if self.span.is_none() { say() } else { self.span.in_scope(say) }
    }
}

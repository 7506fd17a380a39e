//! The handle of a link: calls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::error::{Closed, Error};
use crate::procedures::{AuthList, AuthPolkit, ConnectClose, ConnectOpen, Procedure};
use crate::shared::{Answer, Command, Shared, Stream, Ticket};
use crate::wire::{HEAD, MAX_MESSAGE};
use crate::xdr::{from_bytes, to_bytes};

/// Authentication that `AuthList` may offer.
const AUTH_NONE: u32 = 0;
const AUTH_POLKIT: u32 = 2;

/// The handle of a link. Clones share it. When the last one is dropped, the link ends.
#[derive(Clone)]
pub struct Client {
    commands: mpsc::UnboundedSender<Command>,
    shared: Arc<Shared>,
}

impl Client {
    pub(crate) fn new(commands: mpsc::UnboundedSender<Command>, shared: Arc<Shared>) -> Self {
        Self { commands, shared }
    }

    /// Authenticates and opens a hypervisor, as each link does first. `name` is a URI such as `qemu:///system`.
    pub async fn open(&self, name: &str, deadline: Instant) -> Result<(), Error> {
        let offered = self.call(AuthList {}, deadline).await?;
        if !offered.contains(&AUTH_NONE) {
            if !offered.contains(&AUTH_POLKIT) {
                return Err(Error::Authentication { offered });
            }
            self.call(AuthPolkit {}, deadline).await?;
        }
        self.call(ConnectOpen { name: Some(name.to_owned()), flags: 0 }, deadline).await
    }

    /// Calls a procedure and waits for its answer, at most until the deadline. To drop the future is to give the call up:
    /// others on the link do not notice, and libvirt may still do what was asked (LV-77).
    pub async fn call<P: Procedure>(&self, procedure: P, deadline: Instant) -> Result<P::Reply, Error> {
        let payload = self.begin(&procedure, Stream::None)?.answer(deadline).await?;
        from_bytes(&payload).map_err(|error| Error::undecodable(P::NAME, &error))
    }

    /// Says goodbye, waits for the answer at most until the deadline, and marks the link dead. On a dead link it does nothing.
    pub async fn close(&self, deadline: Instant) {
        if self.closed().is_none() {
            // Whatever it is answered, there is nothing more to be done about it.
            let _ = self.call(ConnectClose {}, deadline).await;
            self.kill("closed");
        }
    }

    /// Marks the link dead, at once and without a word to the other side: every waiter ends, and so does the future that
    /// drives the link. It may be called from anywhere, any number of times; the first reason stays (LV-79).
    pub fn kill(&self, reason: &str) {
        self.shared.close(reason);
        // A driver that is gone needs no waking.
        let _ = self.commands.send(Command::Wake);
    }

    /// Why the link is dead, if it is.
    pub fn closed(&self) -> Option<Closed> {
        self.shared.closed()
    }

    /// Waits until the link is dead.
    pub async fn until_closed(&self) -> Closed {
        self.shared.until_closed().await
    }

    /// How many calls were given up whose answers are still to come. libvirtd serves few at once for each link (5, unless
    /// configured otherwise), so a link with many of them is better replaced.
    pub fn abandoned(&self) -> usize {
        self.shared.abandoned.load(Ordering::Relaxed)
    }

    /// How many messages belonged to no call: answers that came twice, to calls that nobody made, or of no known kind.
    pub fn unexpected(&self) -> u64 {
        self.shared.unexpected.load(Ordering::Relaxed)
    }

    /// Hands a call to the driver.
    pub(crate) fn begin<P: Procedure>(&self, procedure: &P, stream: Stream) -> Result<Waiting, Error> {
        let payload = to_bytes(procedure);
        let limit = MAX_MESSAGE - HEAD;
        if payload.len() > limit {
            return Err(Error::TooLarge { procedure: P::NAME, size: payload.len(), limit });
        }
        let (reply, answer) = oneshot::channel();
        let ticket = Arc::new(Ticket::default());
        let serial = self.shared.next_serial();
        let call = Command::Call { serial, procedure: P::NUMBER, payload, ticket: Arc::clone(&ticket), reply, stream };
        // If the driver is gone, `answer` says so.
        let _ = self.commands.send(call);
        let guard = Guard { serial, ticket, commands: self.commands.clone(), armed: true };
        Ok(Waiting { procedure: P::NAME, answer, guard, shared: Arc::clone(&self.shared) })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("closed", &self.closed()).field("abandoned", &self.abandoned()).finish_non_exhaustive()
    }
}

/// Gives a call up when it is dropped before its end.
#[derive(Debug)]
pub(crate) struct Guard {
    serial: u32,
    ticket: Arc<Ticket>,
    commands: mpsc::UnboundedSender<Command>,
    armed: bool,
}

impl Guard {
    /// It has ended.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.armed {
            self.ticket.cancel();
            let _ = self.commands.send(Command::Abandon { serial: self.serial });
        }
    }
}

/// A call on its way.
#[derive(Debug)]
pub(crate) struct Waiting {
    procedure: &'static str,
    answer: oneshot::Receiver<Answer>,
    guard: Guard,
    shared: Arc<Shared>,
}

impl Waiting {
    /// Its answer's payload.
    pub(crate) async fn answer(mut self, deadline: Instant) -> Result<bytes::Bytes, Error> {
        self.settle(deadline).await.inspect(|_| self.guard.disarm())
    }

    /// The same of a call that opens a stream: the guard goes on to watch over the stream.
    pub(crate) async fn opened(mut self, deadline: Instant) -> Result<(Guard, Arc<Shared>), Error> {
        self.settle(deadline).await?;
        Ok((self.guard, self.shared))
    }

    async fn settle(&mut self, deadline: Instant) -> Result<bytes::Bytes, Error> {
        match wait(&mut self.answer, &self.shared, deadline).await {
            Waited::Answer(answer) => {
                let answer = read(self.procedure, answer);
                if answer.is_err() {
                    self.guard.disarm();
                }
                answer
            }
            Waited::Closed(closed) => {
                self.guard.disarm();
                Err(Error::Closed { procedure: self.procedure, closed })
            }
            Waited::Deadline => Err(Error::Deadline { procedure: self.procedure, sent: !self.guard.ticket.cancel() }),
        }
    }
}

/// What ended a wait.
pub(crate) enum Waited {
    Answer(Answer),
    Closed(Closed),
    Deadline,
}

/// Waits for an answer, the end of the link or the deadline. An answer that is there counts, whatever else is.
pub(crate) async fn wait(answer: &mut oneshot::Receiver<Answer>, shared: &Shared, deadline: Instant) -> Waited {
    tokio::select! {
        biased;
        answer = answer => match answer {
            Ok(answer) => Waited::Answer(answer),
            Err(_) => Waited::Closed(shared.closed().unwrap_or_else(|| Closed::new("nobody drives it"))),
        },
        closed = shared.until_closed() => Waited::Closed(closed),
        () = sleep_until(deadline) => Waited::Deadline,
    }
}

/// An answer as the caller sees it.
pub(crate) fn read(procedure: &'static str, answer: Answer) -> Result<bytes::Bytes, Error> {
    match answer {
        Answer::Ok(payload) => Ok(payload),
        Answer::Error(payload) => Err(Error::answered(procedure, &payload)),
        Answer::Protocol(what) => Err(Error::Protocol { procedure, what: what.to_owned() }),
    }
}

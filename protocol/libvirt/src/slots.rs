//! Who waits for which serial, and what becomes of what arrives. No I/O: messages go in, and what is to be sent comes out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

use crate::shared::{Answer, Shared};
use crate::wire::{Header, PROGRAM, VERSION, kind, status};

/// A call or stream under way.
#[derive(Debug)]
struct Slot {
    procedure: i32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A call waits for its reply.
    Call(oneshot::Sender<Answer>),
    /// An upload waits for the reply that opens it. `end` is taken when libvirt ends the stream before it replies: what it
    /// sends of a stream comes from another thread than its replies, and overtakes them.
    OpeningUpload { opened: oneshot::Sender<Answer>, end: Option<oneshot::Sender<Answer>> },
    /// An upload goes on until libvirt ends it.
    Upload { end: oneshot::Sender<Answer>, finished: bool },
    /// A range waits for the reply that opens it, for its bytes, and for the end.
    Range { answer: oneshot::Sender<Answer>, range: Range },
    /// Nobody waits. The answer is awaited all the same, since libvirt is busy with it until then; a stream that opens late
    /// is given up then.
    Abandoned { stream: bool },
    /// A stream that we gave up. What libvirt had sent before it knew is dropped.
    GivenUp,
}

#[derive(Debug)]
struct Range {
    bytes: BytesMut,
    limit: usize,
    /// The reply is here. Bytes may come before it.
    replied: bool,
    /// These are all bytes.
    complete: bool,
}

impl Range {
    /// The other side may be told that we have it all.
    fn ending(&self) -> bool {
        self.replied && self.complete
    }
}

/// What a call will become when its reply is here.
#[derive(Debug)]
pub(crate) enum Expect {
    Reply(oneshot::Sender<Answer>),
    Upload { opened: oneshot::Sender<Answer>, end: oneshot::Sender<Answer> },
    Range { answer: oneshot::Sender<Answer>, limit: usize },
}

/// What follows from a message or a change of mind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Then {
    /// To be sent, without a payload.
    pub(crate) send: Option<Header>,
    /// The upload of this serial may begin.
    pub(crate) begin: Option<u32>,
    /// The upload of this serial is over.
    pub(crate) stop: Option<u32>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: HashMap<u32, Slot>,
    shared: Arc<Shared>,
}

impl Slots {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { slots: HashMap::new(), shared }
    }

    pub(crate) fn add(&mut self, serial: u32, procedure: i32, expect: Expect) {
        let state = match expect {
            Expect::Reply(reply) => State::Call(reply),
            Expect::Upload { opened, end } => State::OpeningUpload { opened, end: Some(end) },
            Expect::Range { answer, limit } => {
                State::Range { answer, range: Range { bytes: BytesMut::new(), limit, replied: false, complete: false } }
            }
        };
        self.slots.insert(serial, Slot { procedure, state });
    }

    /// The call was never sent.
    pub(crate) fn forget(&mut self, serial: u32) {
        self.slots.remove(&serial);
    }

    /// The last packet of an upload goes out.
    pub(crate) fn finishing(&mut self, serial: u32) {
        if let Some(Slot { state: State::Upload { finished, .. }, .. }) = self.slots.get_mut(&serial) {
            *finished = true;
        }
    }

    /// Nobody waits for this one any more. What was sent cannot be taken back.
    pub(crate) fn abandon(&mut self, serial: u32) -> Then {
        let Some(slot) = self.slots.get_mut(&serial) else { return Then::default() };
        let (state, then) = match &slot.state {
            State::Call(_) => (State::Abandoned { stream: false }, Then::default()),
            State::OpeningUpload { end, .. } => (State::Abandoned { stream: end.is_some() }, Then::default()),
            State::Range { range, .. } if !range.replied => (State::Abandoned { stream: true }, Then::default()),
            // libvirt answers the end that it was sent.
            State::Upload { finished: true, .. } => (State::GivenUp, Then::default()),
            State::Range { range, .. } if range.ending() => (State::GivenUp, Then::default()),
            State::Upload { .. } | State::Range { .. } => {
                (State::GivenUp, Then { send: Some(give_up(slot.procedure, serial)), stop: Some(serial), begin: None })
            }
            State::Abandoned { .. } | State::GivenUp => return Then::default(),
        };
        slot.state = state;
        self.shared.abandoned.fetch_add(1, Ordering::Relaxed);
        then
    }

    /// A message of libvirt's program.
    pub(crate) fn message(&mut self, header: &Header, payload: Bytes) -> Then {
        let ours = header.program == PROGRAM && header.version == VERSION;
        if ours && header.kind == kind::MESSAGE && header.serial == 0 {
            // An event. Nobody asked for any, but that is no fault.
            return Then::default();
        }
        let known = ours
            && matches!(header.kind, kind::REPLY | kind::STREAM)
            && self.slots.get(&header.serial).is_some_and(|slot| slot.procedure == header.procedure);
        let Some(slot) = known.then(|| self.slots.remove(&header.serial)).flatten() else {
            self.shared.unexpected.fetch_add(1, Ordering::Relaxed);
            return Then::default();
        };
        let (kept, then) = match header.kind {
            kind::REPLY => self.reply(header, slot, payload),
            _ => self.stream(header, slot, payload),
        };
        if let Some(state) = kept {
            self.slots.insert(header.serial, Slot { procedure: header.procedure, state });
        }
        then
    }

    /// The reply of a call. What comes back stays in the slot.
    fn reply(&self, header: &Header, slot: Slot, payload: Bytes) -> (Option<State>, Then) {
        let good = header.status == status::OK;
        let answer = match header.status {
            status::OK => Answer::Ok(payload),
            status::ERROR => Answer::Error(payload),
            _ => Answer::Protocol("a reply of an unknown status"),
        };
        match slot.state {
            State::Call(reply) => {
                // A caller that left in this moment says so itself; then there is nothing to abandon any more.
                let _ = reply.send(answer);
                (None, Then::default())
            }
            State::OpeningUpload { opened, end } => {
                let _ = opened.send(answer);
                match end.filter(|_| good) {
                    Some(end) => (Some(State::Upload { end, finished: false }), Then { begin: Some(header.serial), ..Then::default() }),
                    None => (None, Then { stop: Some(header.serial), ..Then::default() }),
                }
            }
            State::Range { answer: waiting, mut range } if !range.replied => {
                if good {
                    range.replied = true;
                    let send = range.ending().then(|| finish(slot.procedure, header.serial));
                    return (Some(State::Range { answer: waiting, range }), Then { send, ..Then::default() });
                }
                let _ = waiting.send(answer);
                (None, Then::default())
            }
            State::Abandoned { stream } => {
                if stream && good {
                    let send = Some(give_up(slot.procedure, header.serial));
                    return (Some(State::GivenUp), Then { send, ..Then::default() });
                }
                self.settled();
                (None, Then::default())
            }
            // A second reply, after the one that opened the stream.
            state @ (State::Upload { .. } | State::Range { .. } | State::GivenUp) => {
                self.shared.unexpected.fetch_add(1, Ordering::Relaxed);
                (Some(state), Then::default())
            }
        }
    }

    /// A packet of a stream. What comes back stays in the slot.
    fn stream(&self, header: &Header, slot: Slot, payload: Bytes) -> (Option<State>, Then) {
        match (slot.state, header.status) {
            (State::Upload { end, finished }, status::OK | status::ERROR) => {
                let answer = match header.status {
                    status::ERROR => Answer::Error(payload),
                    _ if finished => Answer::Ok(payload),
                    _ => Answer::Protocol("libvirt ended an upload that was not complete"),
                };
                let _ = end.send(answer);
                (None, Then { stop: Some(header.serial), ..Then::default() })
            }
            (State::OpeningUpload { opened, end: Some(end) }, status::OK | status::ERROR) => {
                let _ = end.send(match header.status {
                    status::ERROR => Answer::Error(payload),
                    _ => Answer::Protocol("libvirt ended an upload that was not complete"),
                });
                (Some(State::OpeningUpload { opened, end: None }), Then::default())
            }
            (State::Range { answer, mut range }, status::CONTINUE) if !range.complete => {
                if payload.is_empty() {
                    range.complete = true;
                    let send = range.ending().then(|| finish(slot.procedure, header.serial));
                    return (Some(State::Range { answer, range }), Then { send, ..Then::default() });
                }
                if payload.len() > range.limit - range.bytes.len() {
                    let _ = answer.send(Answer::Protocol("more bytes than were asked for"));
                    self.shared.abandoned.fetch_add(1, Ordering::Relaxed);
                    if !range.replied {
                        return (Some(State::Abandoned { stream: true }), Then::default());
                    }
                    let send = Some(give_up(slot.procedure, header.serial));
                    return (Some(State::GivenUp), Then { send, ..Then::default() });
                }
                range.bytes.extend_from_slice(&payload);
                (Some(State::Range { answer, range }), Then::default())
            }
            (State::Range { answer, range }, ended @ (status::OK | status::ERROR)) => {
                let _ = answer.send(match ended {
                    status::ERROR => Answer::Error(payload),
                    _ if range.ending() => Answer::Ok(range.bytes.freeze()),
                    _ => Answer::Protocol("libvirt ended a download without saying that this is all"),
                });
                if range.replied {
                    return (None, Then::default());
                }
                self.shared.abandoned.fetch_add(1, Ordering::Relaxed);
                (Some(State::Abandoned { stream: false }), Then::default())
            }
            // The stream has ended before the reply that would have opened it.
            (State::Abandoned { stream: true }, status::OK | status::ERROR) => (Some(State::Abandoned { stream: false }), Then::default()),
            (State::Abandoned { stream: true }, status::CONTINUE) => (Some(State::Abandoned { stream: true }), Then::default()),
            (State::GivenUp, status::OK | status::ERROR) => {
                self.settled();
                (None, Then::default())
            }
            // What was on its way when we gave it up.
            (State::GivenUp, status::CONTINUE) => (Some(State::GivenUp), Then::default()),
            (state, _) => {
                self.shared.unexpected.fetch_add(1, Ordering::Relaxed);
                (Some(state), Then::default())
            }
        }
    }

    fn settled(&self) {
        self.shared.abandoned.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The packet that says that we have it all.
fn finish(procedure: i32, serial: u32) -> Header {
    Header::new(procedure, kind::STREAM, serial, status::OK)
}

/// The packet that gives a stream up (LV-73).
fn give_up(procedure: i32, serial: u32) -> Header {
    Header::new(procedure, kind::STREAM, serial, status::ERROR)
}

//! What waits for one incarnation: messages for the actor, commands for its shell.
//!
//! Not a channel of a library, because every idle actor pays for it (a tokio channel allots 32 places at once, two of
//! them were half of an actor's memory) and because depth, closing and one wake-up for everything come with it. The lock
//! is held for a push or a pop; nothing is ever dropped inside it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::Actor;
use crate::children::Command;
use crate::signal::Signal;

/// Room for this many messages is kept when the mailbox is empty.
const KEPT: usize = 16;

/// A message, whoever it is from.
pub(crate) enum Envelope<A: Actor> {
    Public(A::Message),
    Internal(A::Internal),
    Describe(oneshot::Sender<Value>),
    Crash,
    TaskPanicked(Box<str>),
    ChildGivenUp(Box<GivenUp>),
}

/// A child was given up, or came back (without a reason).
pub(crate) struct GivenUp {
    pub(crate) child: Arc<str>,
    pub(crate) reason: Option<String>,
}

/// What comes next; commands come before messages.
pub(crate) enum Next<A: Actor> {
    Command(Command),
    Message(Envelope<A>),
}

struct Waiting<A: Actor> {
    open: bool,
    messages: VecDeque<Envelope<A>>,
    commands: VecDeque<Command>,
}

pub(crate) struct Mailbox<A: Actor> {
    waiting: Mutex<Waiting<A>>,
    /// The lengths of the two queues, written inside the lock.
    messages: AtomicUsize,
    commands: AtomicUsize,
    killed: AtomicBool,
    signal: Arc<Signal>,
}

impl<A: Actor> Mailbox<A> {
    pub(crate) const fn new(signal: Arc<Signal>) -> Self {
        Self {
            waiting: Mutex::new(Waiting { open: true, messages: VecDeque::new(), commands: VecDeque::new() }),
            messages: AtomicUsize::new(0),
            commands: AtomicUsize::new(0),
            killed: AtomicBool::new(false),
            signal,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<A>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `false` when it is closed: the message is dropped.
    pub(crate) fn post(&self, envelope: Envelope<A>) -> bool {
        let mut waiting = self.lock();
        if !waiting.open {
            drop(waiting);
            return false;
        }
        waiting.messages.push_back(envelope);
        let length = waiting.messages.len();
        self.messages.store(length, Ordering::SeqCst);
        drop(waiting);
        // While messages wait the actor is awake already: it sleeps only after it has taken the last one.
        if length == 1 {
            self.signal.wake();
        }
        true
    }

    /// A closed mailbox takes only news of children that ended; a start is dropped, and with it its promise.
    pub(crate) fn command(&self, command: Command) {
        let mut waiting = self.lock();
        if !waiting.open && !matches!(command, Command::Ended { .. }) {
            drop(waiting);
            return;
        }
        waiting.commands.push_back(command);
        self.commands.store(waiting.commands.len(), Ordering::SeqCst);
        drop(waiting);
        self.signal.wake();
    }

    /// Asks the shell to end the incarnation before its next message, as a crash.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.signal.wake();
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }

    /// Messages that wait.
    pub(crate) fn depth(&self) -> usize {
        self.messages.load(Ordering::Relaxed)
    }

    /// Takes what comes next, if anything does.
    pub(crate) fn take(&self) -> Option<Next<A>> {
        if self.commands.load(Ordering::SeqCst) > 0
            && let Some(command) = self.take_command()
        {
            return Some(Next::Command(command));
        }
        if self.messages.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut waiting = self.lock();
        let envelope = waiting.messages.pop_front()?;
        self.messages.store(waiting.messages.len(), Ordering::SeqCst);
        if waiting.messages.is_empty() && waiting.messages.capacity() > KEPT {
            waiting.messages = VecDeque::new();
        }
        Some(Next::Message(envelope))
    }

    fn take_command(&self) -> Option<Command> {
        let mut waiting = self.lock();
        let command = waiting.commands.pop_front()?;
        self.commands.store(waiting.commands.len(), Ordering::SeqCst);
        if waiting.commands.is_empty() {
            waiting.commands = VecDeque::new();
        }
        Some(command)
    }

    /// Waits until there is something to take, or a stop or a kill was asked for.
    pub(crate) async fn something(&self) {
        poll_fn(|cx| {
            self.signal.register(cx.waker());
            let something = self.messages.load(Ordering::SeqCst) > 0 || self.commands.load(Ordering::SeqCst) > 0;
            if something || self.is_killed() || self.signal.is_stopped() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Waits for the next command, whatever else there is.
    pub(crate) async fn next_command(&self) -> Command {
        poll_fn(|cx| {
            self.signal.register(cx.waker());
            self.take_command().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Takes nothing more in (but see [`Mailbox::command`]) and drops the messages that wait: their askers are told so.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.open = false;
        let messages = std::mem::take(&mut waiting.messages);
        self.messages.store(0, Ordering::SeqCst);
        drop(waiting);
        drop(messages);
    }
}

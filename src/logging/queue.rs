//! Lines leave through a bounded queue and a thread of their own: when nobody reads stderr, that thread waits and nothing
//! else does. What finds no room is dropped and counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What may wait to be written: some thousand lines.
const ROOM: usize = 1 << 20;
/// At the end of the process, what is still to be written may take this long.
const LAST: Duration = Duration::from_secs(1);

/// Lines of the log that were dropped since the process began: there is one log.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many lines of the log were dropped.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// A stream that is written to by a thread of its own. Dropping it waits a moment for what is left.
#[derive(Debug)]
pub struct Queue {
    shared: Arc<Shared>,
    room: usize,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    written: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    /// Of the lines, and of the one that is being written.
    bytes: usize,
}

impl Queue {
    /// Starts the thread, which hands each line to `write`.
    pub fn start(name: &str, write: impl Fn(&[u8]) + Send + 'static) -> std::io::Result<Self> {
        Self::with_room(name, ROOM, write)
    }

    fn with_room(name: &str, room: usize, write: impl Fn(&[u8]) + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let work = move || {
            loop {
                let line = of_thread.next();
                write(&line);
                of_thread.done(line.len());
            }
        };
        // Not joined: it may stand in a write that never ends.
        std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Self { shared, room })
    }

    /// Never waits. One line always has room in an empty queue.
    pub fn push(&self, line: &[u8]) {
        let mut waiting = self.shared.lock();
        if waiting.bytes > 0 && waiting.bytes + line.len() > self.room {
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.to_vec());
        drop(waiting);
        self.shared.filled.notify_one();
    }

    fn flush(&self, within: Duration) {
        let waiting = self.shared.lock();
        drop(self.shared.written.wait_timeout_while(waiting, within, |waiting| waiting.bytes > 0));
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.flush(LAST);
    }
}

impl Shared {
    fn next(&self) -> Vec<u8> {
        let mut waiting = self.lock();
        loop {
            if let Some(line) = waiting.lines.pop_front() {
                return line;
            }
            waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, bytes: usize) {
        self.lock().bytes -= bytes;
        self.written.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_stream_that_nobody_reads_holds_up_nobody_and_what_has_no_room_is_counted_issue_10_8() {
        let (sender, receiver) = mpsc::sync_channel(0);
        let queue = Queue::with_room("test", 100, move |line| drop(sender.send(line.to_vec()))).unwrap();
        let before = dropped();
        for n in 0..30 {
            queue.push(format!("line {n:04}\n").as_bytes());
        }
        assert_eq!(dropped() - before, 20, "ten of ten bytes have room, the one that is being written among them");
        let read: Vec<_> = (0..10).map(|_| String::from_utf8(receiver.recv().unwrap()).unwrap()).collect();
        assert_eq!((read[0].as_str(), read[9].as_str()), ("line 0000\n", "line 0009\n"));
        queue.flush(Duration::from_secs(10));
        queue.push(b"later");
        assert_eq!(receiver.recv().unwrap(), b"later");
    }

    #[test]
    fn what_is_left_is_written_before_the_end() {
        let (sender, receiver) = mpsc::channel();
        let queue = Queue::start("test", move |line| {
            std::thread::sleep(Duration::from_millis(5));
            drop(sender.send(line.to_vec()));
        })
        .unwrap();
        (0..10).for_each(|_| queue.push(b"x"));
        drop(queue);
        assert_eq!(receiver.try_iter().count(), 10);
    }
}

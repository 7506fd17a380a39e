//! What ends the process when the branch of a lost leadership does not end (SV-4, O7): a thread of its own, which works
//! while every thread of the runtime is blocked.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// What is done when the time is over.
pub(super) type GiveUp = Arc<dyn Fn() + Send + Sync>;

/// Armed as long as it is kept.
#[derive(Debug)]
pub(super) struct Watchdog {
    _disarm: Sender<()>,
}

impl Watchdog {
    /// Gives up after `limit` unless it is dropped before.
    pub(super) fn arm(limit: Duration, give_up: GiveUp) -> std::io::Result<Self> {
        let (disarm, disarmed) = channel();
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            if disarmed.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                give_up();
            }
        })?;
        Ok(Self { _disarm: disarm })
    }
}

/// Ends the process as one that gave up (OP-4).
#[expect(
    clippy::exit,
    clippy::disallowed_methods,
    reason = "SV-4: a task that does not end cannot be waited for, and nobody returns to main"
)]
pub(super) fn end_the_process() {
    std::process::exit(3)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn it_gives_up_in_time_and_not_when_it_is_disarmed() {
        let (told, heard) = mpsc::channel();
        let give_up = |what: &'static str| -> GiveUp {
            let told = told.clone();
            Arc::new(move || told.send(what).unwrap())
        };
        let disarmed = Watchdog::arm(Duration::from_millis(50), give_up("disarmed")).unwrap();
        drop(disarmed);
        let _armed = Watchdog::arm(Duration::from_millis(60), give_up("armed")).unwrap();
        assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok("armed"));
        assert!(heard.try_recv().is_err());
    }
}

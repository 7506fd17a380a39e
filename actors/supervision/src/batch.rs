//! Where a batch of messages ends (see [`Actor::BATCH`](crate::Actor::BATCH)).
//!
//! An actor that is woken for one message would find no other: whoever else is ready to send has not run yet. So it lets others
//! run once before a batch ends. Where that brings nothing several times in a row it is left out for a while: it costs a look at
//! the sockets, which a lone asker would wait for.

/// So many turns given in vain, and it is left out.
const IN_VAIN: u8 = 4;
/// For so many batches.
const LEFT_OUT: u8 = 32;

/// The batch in progress, and what earlier ones showed.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    handled: u32,
    gave_way: bool,
    in_vain: u8,
    left_out: u8,
}

/// What comes after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The batch goes on.
    On,
    /// Others run, then [`Batch::goes_on`] decides.
    GiveWay,
    /// The batch ends.
    End,
}

impl Batch {
    /// A message was handled, and `waiting` others wait. At most `limit` make a batch.
    pub(crate) fn handled(&mut self, waiting: usize, limit: u32) -> Next {
        self.handled += 1;
        if self.handled >= limit {
            return Next::End;
        }
        if waiting > 0 {
            return Next::On;
        }
        if self.gave_way {
            return Next::End;
        }
        if self.left_out > 0 {
            self.left_out -= 1;
            return Next::End;
        }
        Next::GiveWay
    }

    /// Others have run; whether messages came.
    pub(crate) fn goes_on(&mut self, waiting: usize) -> bool {
        self.gave_way = true;
        if waiting > 0 {
            self.in_vain = 0;
            return true;
        }
        if self.handled == 1 {
            self.in_vain += 1;
            if self.in_vain >= IN_VAIN {
                // One more in vain is enough next time.
                self.in_vain = IN_VAIN - 1;
                self.left_out = LEFT_OUT;
            }
        }
        false
    }

    /// The batch has ended.
    pub(crate) fn end(&mut self) {
        self.handled = 0;
        self.gave_way = false;
    }

    /// Whether anything was handled since the last end.
    pub(crate) const fn is_open(&self) -> bool {
        self.handled > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_when_nothing_waits_after_others_ran_or_when_it_is_full() {
        let mut batch = Batch::default();
        assert_eq!(batch.handled(0, 8), Next::GiveWay);
        assert!(batch.goes_on(2));
        assert_eq!(batch.handled(1, 8), Next::On);
        assert_eq!(batch.handled(0, 8), Next::End, "others run once in a batch");
        batch.end();
        for _ in 0..7 {
            assert_eq!(batch.handled(9, 8), Next::On);
        }
        assert_eq!(batch.handled(9, 8), Next::End, "full");
    }

    #[test]
    fn a_lone_asker_does_not_wait_for_others_each_time() {
        let mut batch = Batch::default();
        let mut gave_way = 0;
        for _ in 0..1000 {
            if batch.handled(0, 8) == Next::GiveWay {
                gave_way += 1;
                assert!(!batch.goes_on(0));
            }
            batch.end();
        }
        assert!((30..40).contains(&gave_way), "{gave_way} of 1000");
        // Company is noticed within one stretch of it.
        let found = (0..=LEFT_OUT).any(|_| {
            let next = batch.handled(0, 8);
            let goes_on = next == Next::GiveWay && batch.goes_on(1);
            batch.end();
            goes_on
        });
        assert!(found);
        assert_eq!(batch.handled(0, 8), Next::GiveWay);
    }
}

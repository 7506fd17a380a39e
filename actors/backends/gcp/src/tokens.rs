//! The token of one entry (GC-22): pure. It is good until five minutes before its end, and fetched once for all who wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::credentials::Token;

/// A token that ends within this time is not used any more.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// The shortest time that a token is used, so that one that lasts less than the margin is not fetched for each request.
const SHORTEST: Duration = Duration::from_secs(10);

/// Which token it was: one that was refused is dropped only if it is still the one in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(u64);

/// The token in use, and whether one is being fetched.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    current: Option<(Instant, Arc<Token>)>,
    generation: u64,
    fetching: bool,
}

impl Tokens {
    /// The token, if it is good now.
    pub(crate) fn good(&self, now: Instant) -> Option<(Generation, Arc<Token>)> {
        let (until, token) = self.current.as_ref()?;
        (now < *until).then(|| (Generation(self.generation), Arc::clone(token)))
    }

    /// Whether a fetch has to be started now. It counts as started.
    pub(crate) fn must_fetch(&mut self) -> bool {
        !std::mem::replace(&mut self.fetching, true)
    }

    /// The fetch ended without a token.
    pub(crate) fn failed(&mut self) {
        self.fetching = false;
    }

    /// The fetch brought a token.
    pub(crate) fn fetched(&mut self, now: Instant, token: Arc<Token>) -> Generation {
        self.fetching = false;
        self.generation += 1;
        let good = token.lasts.saturating_sub(MARGIN).max(SHORTEST.min(token.lasts));
        // A lifetime of centuries would leave the clock's range.
        let until = now.checked_add(good).unwrap_or_else(|| now + Duration::from_secs(24 * 3600));
        self.current = Some((until, token));
        Generation(self.generation)
    }

    /// The token of that generation was refused.
    pub(crate) fn refused(&mut self, generation: Generation) {
        if generation.0 == self.generation {
            self.current = None;
        }
    }

    /// Who the last token spoke for, good or not.
    pub(crate) fn account(&self) -> Option<&str> {
        self.current.as_ref()?.1.account.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use egress_protocol::Secret;

    use super::*;

    fn token(lasts: u64) -> Arc<Token> {
        Arc::new(Token { secret: Secret::new("t".to_owned()), lasts: Duration::from_secs(lasts), account: None })
    }

    /// GC-22.
    #[tokio::test(start_paused = true)]
    async fn a_token_is_used_until_five_minutes_before_its_end() {
        let (mut tokens, now) = (Tokens::default(), Instant::now());
        assert!(tokens.good(now).is_none());
        tokens.fetched(now, token(3600));
        let end = now + Duration::from_secs(3300);
        assert!(tokens.good(end - Duration::from_secs(1)).is_some());
        assert!(tokens.good(end).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_token_is_used_for_ten_seconds_and_never_beyond_its_end() {
        let (mut tokens, now) = (Tokens::default(), Instant::now());
        tokens.fetched(now, token(60));
        assert!(tokens.good(now + Duration::from_secs(9)).is_some() && tokens.good(now + Duration::from_secs(10)).is_none());
        tokens.fetched(now, token(3));
        assert!(tokens.good(now + Duration::from_secs(2)).is_some() && tokens.good(now + Duration::from_secs(3)).is_none());
        tokens.fetched(now, token(u64::MAX));
        assert!(tokens.good(now + Duration::from_secs(3600)).is_some());
    }

    #[test]
    fn one_fetch_serves_all_who_wait() {
        let mut tokens = Tokens::default();
        assert!(tokens.must_fetch());
        assert!(!tokens.must_fetch());
        tokens.failed();
        assert!(tokens.must_fetch());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_dropped_unless_a_newer_one_is_in_use() {
        let (mut tokens, now) = (Tokens::default(), Instant::now());
        let old = tokens.fetched(now, token(3600));
        let new = tokens.fetched(now, token(3600));
        tokens.refused(old);
        assert!(tokens.good(now).is_some());
        tokens.refused(new);
        assert!(tokens.good(now).is_none());
    }
}

//! What is known of tokens, for a moment: pure.
//!
//! What must stay true: both sides are bounded, and what is allowed is never pushed out by what is refused: whoever
//! presents made-up tokens costs others nothing.

use std::collections::HashMap;
use std::time::Duration;

use egress_protocol::Secret;
use egress_protocol::review::Verdict;
use rand::Rng;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// How long a bearer may go on after the API server said yes.
pub(super) const ALLOWED: Duration = Duration::from_secs(10);
/// How long one that was refused is refused without being asked about.
pub(super) const REFUSED: Duration = Duration::from_secs(2);
/// Bearers that may, remembered after their time too: there are as many as there are scrapers.
const MOST_ALLOWED: usize = 256;
const MOST_REFUSED: usize = 1024;

/// Stands for a token and what it is to do; nothing can be learnt from it.
pub(super) type Key = [u8; 32];

/// Makes keys that mean something to one incarnation only.
pub(super) struct Salt([u8; 32]);

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt")
    }
}

impl Salt {
    pub(super) fn random() -> Self {
        Self(rand::rng().random())
    }

    pub(super) fn key(&self, token: &Secret, verb: &str, path: &str) -> Key {
        let hash = Sha256::new_with_prefix(self.0).chain_update(verb).chain_update([0]).chain_update(path).chain_update([0]);
        hash.chain_update(token.expose()).finalize().into()
    }
}

#[derive(Debug)]
struct Known {
    verdict: Verdict,
    until: Instant,
}

/// The verdicts that still count, and which tokens were allowed before.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    allowed: HashMap<Key, Known>,
    refused: HashMap<Key, Known>,
}

impl Verdicts {
    /// The verdict, while it counts.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<Verdict> {
        let known = self.allowed.get(key).or_else(|| self.refused.get(key))?;
        (now < known.until).then(|| known.verdict.clone())
    }

    /// Whether the last verdict was a yes, however long ago.
    pub(super) fn was_allowed(&self, key: &Key) -> bool {
        self.allowed.contains_key(key)
    }

    /// Keeps a verdict; that nobody could be asked is none, and changes nothing.
    pub(super) fn put(&mut self, key: Key, verdict: &Verdict, now: Instant) {
        let (into, other, kept, most) = match verdict {
            Verdict::Unavailable { .. } => return,
            Verdict::Allowed { .. } => (&mut self.allowed, &mut self.refused, ALLOWED, MOST_ALLOWED),
            Verdict::Forbidden { .. } | Verdict::Unknown => (&mut self.refused, &mut self.allowed, REFUSED, MOST_REFUSED),
        };
        other.remove(&key);
        if into.len() >= most && !into.contains_key(&key) {
            let oldest = into.iter().min_by_key(|(_, known)| known.until).map(|(key, _)| *key);
            oldest.and_then(|key| into.remove(&key));
        }
        into.insert(key, Known { verdict: verdict.clone(), until: now + kept });
    }

    /// How many there are: allowed, refused.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.allowed.len(), self.refused.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YES: fn() -> Verdict = || Verdict::Allowed { user: "scraper".into() };
    const NO: fn() -> Verdict = || Verdict::Forbidden { user: "stranger".into() };
    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn a_key_is_of_one_token_one_thing_to_do_and_one_incarnation() {
        let salt = Salt::random();
        let key = |token: &str, verb: &str, path: &str| salt.key(&Secret::new(token.to_owned()), verb, path);
        let one = key("token", "get", "/metrics");
        assert_eq!(one, key("token", "get", "/metrics"));
        for other in
            [key("tokeN", "get", "/metrics"), key("token", "post", "/metrics"), key("token", "get", "/metric"), key("", "get", "/")]
        {
            assert_ne!(one, other);
        }
        assert_ne!(one, Salt::random().key(&Secret::new("token".to_owned()), "get", "/metrics"));
    }

    #[test]
    fn a_yes_counts_for_ten_seconds_a_no_for_two_and_the_last_word_counts() {
        let (mut verdicts, now, key) = (Verdicts::default(), Instant::now(), [1; 32]);
        assert_eq!(verdicts.get(&key, now), None);
        verdicts.put(key, &YES(), now);
        assert_eq!(verdicts.get(&key, now + ALLOWED - MOMENT), Some(YES()));
        assert_eq!(verdicts.get(&key, now + ALLOWED), None);
        assert!(verdicts.was_allowed(&key));
        verdicts.put(key, &NO(), now);
        assert_eq!((verdicts.get(&key, now + REFUSED - MOMENT), verdicts.get(&key, now + REFUSED)), (Some(NO()), None));
        assert!(!verdicts.was_allowed(&key), "it was, but is not any more");
        verdicts.put(key, &Verdict::Unknown, now);
        assert_eq!((verdicts.get(&key, now), verdicts.counts()), (Some(Verdict::Unknown), (0, 1)));
        verdicts.put(key, &YES(), now);
        assert_eq!((verdicts.get(&key, now), verdicts.counts()), (Some(YES()), (1, 0)));
    }

    #[test]
    fn that_nobody_could_be_asked_is_not_kept() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        verdicts.put([1; 32], &Verdict::Unavailable { reason: "down".into() }, now);
        assert_eq!((verdicts.get(&[1; 32], now), verdicts.counts()), (None, (0, 0)));
    }

    #[test]
    fn strangers_push_out_strangers_only_the_oldest_first() {
        let (mut verdicts, now, scraper) = (Verdicts::default(), Instant::now(), [255; 32]);
        verdicts.put(scraper, &YES(), now);
        let stranger = |n: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&n.to_be_bytes());
            key
        };
        let at = |n: usize| now + Duration::from_micros(n as u64);
        for n in 0..MOST_REFUSED + 5 {
            verdicts.put(stranger(n), &Verdict::Unknown, at(n));
        }
        assert_eq!(verdicts.counts(), (1, MOST_REFUSED));
        assert_eq!(verdicts.get(&scraper, now), Some(YES()));
        assert_eq!(
            (0..7).map(|n| verdicts.get(&stranger(n), at(n)).is_some()).collect::<Vec<_>>(),
            [[false; 5].as_slice(), &[true; 2]].concat()
        );
        for n in 0..MOST_ALLOWED + 5 {
            verdicts.put(stranger(n), &YES(), at(n) + ALLOWED);
        }
        assert_eq!(verdicts.counts().0, MOST_ALLOWED);
        assert!(!verdicts.was_allowed(&scraper), "the oldest went");
    }
}

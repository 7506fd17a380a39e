//! Follows the providers file (OP-26): looks again and again, and believes what stood still.
//!
//! The file is polled, by content, for the reasons of `docs/decisions/0002-polling-the-manifest-folders.md`: a watch is on
//! an inode and misses the swapped link of a mounted ConfigMap. A file that is being written may read well and lack half
//! of its entries, so a content counts once it was the same for [`STILL`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use egress_config::providers::{ProvidersConfig, Snapshot};
use tokio::time::Instant;

use super::ProviderEntry;

/// How often the file is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// How long it must stand still to be believed.
const STILL: Duration = Duration::from_secs(1);
/// A look that takes longer is a fault of its own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The composition root's constructors: entries of the file → entries with a backend.
pub type MakeEntries = Arc<dyn Fn(&ProvidersConfig) -> Vec<ProviderEntry> + Send + Sync>;

/// The file, and what is made of its entries.
#[derive(Clone)]
pub(crate) struct Followed {
    pub(crate) path: Arc<Path>,
    pub(crate) make: MakeEntries,
}

/// What the looks have shown.
#[derive(Debug, Default)]
pub(crate) struct Follow {
    last: Option<Arc<Snapshot>>,
    /// Since when the last one is as it is; `None`: it was acted upon.
    since: Option<Instant>,
}

impl Follow {
    /// What the next look compares with.
    pub(crate) fn last(&self) -> Option<Arc<Snapshot>> {
        self.last.clone()
    }

    /// A look ended; `None`: as before. Answers with what is to be acted upon, once.
    pub(crate) fn looked(&mut self, now: Instant, seen: Option<Arc<Snapshot>>) -> Option<Arc<Snapshot>> {
        if let Some(seen) = seen {
            (self.last, self.since) = (Some(seen), Some(now));
        }
        let since = self.since?;
        if now.duration_since(since) < STILL {
            return None;
        }
        self.since = None;
        self.last.clone()
    }
}

/// One look; it blocks.
pub(crate) fn look(path: &Path, last: Option<&Snapshot>) -> Option<Arc<Snapshot>> {
    match last {
        None => Some(Arc::new(Snapshot::read(path))),
        Some(last) => last.again(path).map(Arc::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_counts_once_and_only_after_it_stood_still() {
        let mut follow = Follow::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let seen = || Some(Arc::new(Snapshot::read(Path::new("/nonexistent/providers.yaml"))));
        assert_eq!(follow.looked(at(0), None), None);
        assert_eq!(follow.looked(at(0), seen()), None);
        assert_eq!(follow.looked(at(500), seen()), None, "it changed again");
        assert_eq!(follow.looked(at(1400), None), None);
        assert!(follow.looked(at(1500), None).is_some());
        assert_eq!(follow.looked(at(9000), None), None, "once");
    }
}

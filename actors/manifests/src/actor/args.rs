//! What the actor is started from.

use std::time::Duration;

use egress_protocol::source;
use egress_supervision::ChildSpec;

use super::ManifestsActor;
use crate::parse;
use crate::scan::Parse;
use crate::start::ManifestFolders;
use crate::state::StateFolder;

/// What the actor is started from.
#[derive(Debug, Clone)]
pub struct ManifestsArgs {
    /// Opened before the tree starts.
    pub state: StateFolder,
    /// The sources of documents.
    pub folders: ManifestFolders,
    /// How often to look.
    pub pace: Pace,
    pub(crate) parse: Parse,
}

impl ManifestsArgs {
    /// With the usual pace.
    pub fn new(state: StateFolder, folders: ManifestFolders) -> Self {
        Self { state, folders, pace: Pace::default(), parse: parse::content }
    }
}

/// How often to look, and when to believe it.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between looks while all stands still.
    pub idle: Duration,
    /// Between looks while something changed.
    pub active: Duration,
    /// How long a file must stand still to count (OP-30).
    pub still: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { idle: Duration::from_millis(500), active: Duration::from_millis(200), still: Duration::from_secs(1) }
    }
}

/// The child to start: its id is `source`, and the process does not outlive it.
pub fn spec(args: ManifestsArgs) -> ChildSpec<ManifestsActor> {
    ChildSpec::essential(source::ACTOR_ID, args)
}

//! The reference backend with one rule broken.

macro_rules! mutations {
    ($($(#[$doc:meta])* $variant:ident => $case:literal),+ $(,)?) => {
        /// One broken rule. Each is caught by the test that [`Mutation::caught_by`] names.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutation {
            $($(#[$doc])* $variant),+
        }

        impl Mutation {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The id of the test that must fail.
            pub const fn caught_by(self) -> &'static str {
                match self {
                    $(Self::$variant => $case),+
                }
            }
        }
    };
}

mutations! {
    /// A repeated create uploads its seed once more, under another name.
    UploadsAgain => "CT-01",
    /// What a cut create left is not found again: each attempt has names of its own.
    NamesPerAttempt => "CT-02",
    /// A create that fails leaves what it made.
    KeepsWhatItMade => "CT-02",
    /// The marks are written by a second call.
    MarksLater => "CT-03",
    /// One mark is not written.
    ForgetsInstallation => "CT-03",
    /// Adopts whatever has the name.
    AdoptsAnything => "CT-04",
    /// Adopts an instance with an empty UID mark.
    AdoptsEmptyUid => "CT-04",
    /// Adopts another installation's instance.
    AdoptsForeignInstallation => "CT-04",
    /// Adopts an instance that is being deleted.
    AdoptsDying => "CT-05",
    /// An instance is not seen in its first second.
    SeenLater => "CT-06",
    /// Looks at the backend before it looks at the placement.
    LooksBeforeItJudges => "CT-07",
    /// The refusal of a placement does not say which field.
    NamesNoField => "CT-07",
    /// A bad placement is Transient.
    BadPlacementIsTransient => "CT-07",
    /// What is gone reads Transient.
    GoneIsTransient => "CT-08",
    /// What cannot be reached reads NotFound.
    UnreachableIsGone => "CT-09",
    /// What may not be read reads NotFound.
    UnauthorisedIsGone => "CT-09",
    /// Reads whatever has the id.
    ReadsAnything => "CT-10",
    /// Marks that cannot be read count as absent.
    UnreadableIsForeign => "CT-10",
    /// Marks that make no sense count as absent.
    CorruptIsForeign => "CT-10",
    /// Says nothing about what is not ours.
    SilentAboutForeign => "CT-10",
    /// What is being deleted reads NotFound.
    DyingIsGone => "CT-11",
    /// What is being deleted reads Running.
    DyingIsRunning => "CT-11",
    /// Running without an address.
    RunsWithoutAddress => "CT-12",
    /// Sources that fail count as sources without an address.
    DeadSourcesAreEmpty => "CT-13",
    /// A suspended instance reads Stopped.
    PausedIsStopped => "CT-14",
    /// An unknown state reads Terminated.
    UnknownIsTerminated => "CT-14",
    /// An instance that was never started reads Stopped.
    FreshIsStopped => "CT-15",
    /// A locked instance reads NotFound.
    LockedIsGone => "CT-16",
    /// A locked instance is Permanent.
    LockedIsPermanent => "CT-16",
    /// A failed task's message is lost.
    HidesTaskError => "CT-16",
    /// Marks are read once.
    RemembersMarks => "CT-17",
    /// What follows the name in an id is ignored.
    LenientIds => "CT-18",
    /// A delete of what is gone fails.
    SecondDeleteFails => "CT-19",
    /// A delete during a delete fails.
    DeleteDuringDeleteFails => "CT-19",
    /// Deletes whatever has the id.
    DeletesAnything => "CT-20",
    /// A delete leaves the seed.
    LeavesSeed => "CT-21",
    /// A delete without an id does nothing.
    NeedsIdToDelete => "CT-22",
    /// A delete by name leaves what has no instance.
    LeavesLeftovers => "CT-22",
    /// An unknown zone reads NotFound.
    UnknownZoneIsGone => "CT-23",
    /// A delete in an unknown zone fails.
    UnknownZonePins => "CT-23",
    /// Lists what has no mark.
    ListsUnmarked => "CT-24",
    /// Lists other installations' instances.
    ListsForeign => "CT-24",
    /// Leaves out what has an empty UID.
    ListsNoEmptyUid => "CT-24",
    /// Reads other types' marks.
    ReadsOtherTypes => "CT-24",
    /// Lists the first page.
    FirstPageOnly => "CT-25",
    /// A zone that cannot be reached is left out without a word.
    ShortList => "CT-26",
    /// Calls do not see their cancellation.
    IgnoresCancellation => "CT-27",
    /// Names are looked up in a list that is a second old.
    StaleNames => "CT-28",
    /// An aborted call jams its link.
    AbortJamsLink => "CT-29",
    /// The constructor dials.
    DialsAtOnce => "CT-30",
    /// The constructor needs the credential file.
    NeedsCredentials => "CT-30",
    /// Credentials are read once.
    CachesCredentials => "CT-31",
    /// The backend's own error is dropped.
    DropsCause => "CT-32",
    /// One call has no span.
    UnspannedCall => "CT-33",
    /// One call has no line.
    UnloggedCall => "CT-33",
    /// Spans do not stand under their operation's.
    DetachedSpans => "CT-33",
    /// Verdicts come in another order.
    ShuffledTargets => "CT-34",
    /// A check does not end when its call does.
    StubbornCheck => "CT-34",
    /// A check closes the links in use.
    CheckClosesLinks => "CT-34",
    /// Names are cut short.
    ShortensNames => "CT-35",
    /// A panic poisons what comes later.
    PoisonedByPanic => "CT-36",
    /// Leftovers of anybody are listed and removed.
    AnybodysLeftovers => "CT-37",
    /// A delete with an empty UID removes the instance.
    EmptyUidDeletes => "CT-37",
    /// Adopts without looking at what belongs to the instance.
    AdoptsIncomplete => "CT-38",
    /// Adopts any disk.
    AdoptsAnyDisk => "CT-38",
    /// A host's death is Permanent.
    HostDeathIsPermanent => "CT-39",
    /// A host's death fails another zone's calls.
    HostDeathFailsOthers => "CT-39",
    /// A create that waits for the image keeps its slot.
    KeepsSlotOutside => "CT-40",
    /// A create that waits for the image runs out of time there.
    ClockRunsOutside => "CT-40",
    /// Calls are made whoever leads.
    IgnoresFence => "SV-4",
    /// Leadership is asked for when an operation begins, and not again.
    AsksFenceOnce => "SV-4",
    /// What a create left is cleared up whoever leads.
    ClearsUpFenced => "SV-4",
    /// A call behind a closed fence is Permanent.
    FencedIsPermanent => "SV-4",
    /// A list that was cut short by the fence leaves the rest out.
    ListsBehindFence => "SV-4",
    /// Request bodies are logged.
    LogsBodies => "PC-92",
    /// The backend's text goes into errors as it is.
    EchoesBackendText => "PC-92",
    /// A refused quota is Transient.
    QuotaIsTransient => "PC-93",
}

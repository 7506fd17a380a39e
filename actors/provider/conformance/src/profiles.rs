//! The 19 axes on which a backend chooses how it meets the contract (PC-71). A profile waives nothing; what is not allowed
//! here (`ctx-only`, `outcome-only`, …) cannot be said.

use std::fmt;

macro_rules! axis {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// As in the table of PC-71.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

axis! {
    /// Axis 1: how long until an instance serves.
    Readiness {
        /// Seconds.
        Immediate = "immediate",
        /// Minutes.
        ProvisioningWindow = "provisioning-window",
    }
}
axis! {
    /// Axis 2: when `create` returns.
    CreateReturn {
        /// When the backend took the order.
        Submit = "submit",
        /// When the instance started; every wait is capped.
        Blocking = "blocking",
    }
}
axis! {
    /// Axis 3: when `delete` returns.
    DeleteReturn {
        /// `InProgress`, and `get` still answers.
        ReturnsEarly = "returns-early",
        /// Bounded, then `Gone`.
        Waits = "waits",
    }
}
axis! {
    /// Axis 4: where the address comes from.
    IpSource {
        /// Known when the instance is.
        AssignedAtCreate = "assigned-at-create",
        /// Asked for at sources that can fail.
        Discovered = "discovered",
    }
}
axis! {
    /// Axis 5: how the marks are kept.
    GcMark {
        /// As the backend's labels.
        NativeLabels = "native-labels",
        /// As metadata that is filtered here.
        WrittenMetadata = "written-metadata",
        /// Written by a second call, within seconds.
        MarkWindow = "mark-window",
    }
}
axis! {
    /// Axis 6: where the creation time comes from.
    CreatedAt {
        /// The backend's own.
        BackendTimestamp = "backend-timestamp",
        /// The mark `proxy-operator-created-at`.
        WrittenAtCreate = "written-at-create",
    }
}
axis! {
    /// Axis 7: what a list is when a part cannot be read.
    ListPartial {
        /// An error.
        FailWhole = "fail-whole",
        /// The rest, with the part in `left_out`.
        OmitUnreachable = "omit-unreachable",
    }
}
axis! {
    /// Axis 8: whether a lack of capacity is told apart.
    Quota {
        /// As `QuotaExceeded`.
        Detected = "detected",
        /// It is Transient.
        Absent = "absent",
    }
}
axis! {
    /// Axis 9: what says that an instance does not exist.
    NotFound {
        /// A status.
        Status404 = "status-404",
        /// A code, captured.
        ErrorCode = "error-code",
        /// A listing that can never be partial.
        ListAndMiss = "list-and-miss",
    }
}
axis! {
    /// Axis 10: what an id is made of.
    PrimaryKey {
        /// The instance's name, and its place.
        NameIsKey = "name-is-key",
        /// What the backend allocates.
        AllocatedId = "allocated-id",
    }
}
axis! {
    /// Axis 11: how "never started" is told from "stopped".
    ProvisioningState {
        /// The backend has a state of its own for it.
        Native = "native",
        /// `create` returns after the start only.
        CreateBlocks = "create-blocks",
        /// Recorded at create.
        Marker = "marker",
    }
}
axis! {
    /// Axis 12: what the backend does on its own time.
    AsyncOps {
        /// Nothing.
        None = "none",
        /// Tasks, kept where `get` finds them.
        TaskHandle = "task-handle",
        /// Locks: Transient while they hold.
        BackendLock = "backend-lock",
        /// Both.
        TaskHandleAndBackendLock = "task-handle + backend-lock",
    }
}
axis! {
    /// Axis 13: what is made beside the instance.
    SecondaryResources {
        /// Nothing.
        None = "none",
        /// Things that the backend removes with the instance.
        Cascade = "cascade",
        /// Things that are removed here, by name.
        Explicit = "explicit",
    }
}
axis! {
    /// Axis 14: where the credentials come from.
    Credentials {
        /// Files, read per dial or request.
        MountedFiles = "mounted-files",
        /// A documented chain.
        Environment = "environment",
        /// The platform's.
        WorkloadIdentity = "workload-identity",
        /// There are none.
        None = "none",
    }
}
axis! {
    /// Axis 14, second half: whom the link trusts.
    Tls {
        /// The system's roots.
        SystemRoots = "system-roots",
        /// A file.
        CaFile = "ca-file",
        /// Nobody is checked; the option's name starts with `insecure`.
        Insecure = "insecure",
        /// There is no TLS.
        None = "none",
    }
}
axis! {
    /// Axis 15: how the backend is spoken to.
    ClientKind {
        /// A vendor's SDK behind a seam.
        VendorSdk = "vendor-sdk",
        /// A client of our own.
        ThinClient = "thin-client",
        /// RPC over an SSH link (PC-68, PC-69).
        RpcOverSsh = "rpc-over-ssh",
        /// Not at all.
        InProcess = "in-process",
    }
}
axis! {
    /// Axis 16: what bounds a backend call.
    Timeouts {
        /// A budget of its own (PC-65).
        PerCall = "per-call",
    }
}
axis! {
    /// Axis 17: what is logged.
    Logging {
        /// Provider-contract.md §10.
        Tiered = "tiered",
    }
}
axis! {
    /// Axis 18: what makes the spans of backend calls.
    ChildSpans {
        /// The SDK.
        SdkInstrumentation = "sdk-instrumentation",
        /// The transport, under a parent only.
        TransportWrapper = "transport-wrapper",
        /// A decorator over the seam.
        SpanDecorator = "span-decorator",
    }
}
axis! {
    /// Axis 19: what proves it against the real thing.
    BackendTest {
        /// A cluster in CI.
        ClusterE2e = "cluster-e2e",
        /// Opt-in by environment variables.
        IntegrationTag = "integration-tag",
        /// A person.
        ManualRunbook = "manual-runbook",
        /// CI runs the real thing anyway.
        Own = "self",
    }
}

/// A backend's choice on each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "one field per axis; the types say what they mean")]
pub struct Profiles {
    pub readiness: Readiness,
    pub create_return: CreateReturn,
    pub delete_return: DeleteReturn,
    pub ip_source: IpSource,
    pub gc_mark: GcMark,
    pub created_at: CreatedAt,
    pub list_partial: ListPartial,
    pub quota: Quota,
    pub not_found: NotFound,
    pub primary_key: PrimaryKey,
    pub provisioning_state: ProvisioningState,
    pub async_ops: AsyncOps,
    pub secondary_resources: SecondaryResources,
    pub credentials: Credentials,
    pub tls: Tls,
    pub client_kind: ClientKind,
    pub timeouts: Timeouts,
    pub logging: Logging,
    pub child_spans: ChildSpans,
    pub backend_test: BackendTest,
}

impl Profiles {
    /// Axis and profile, in the order of PC-71.
    pub fn axes(&self) -> [(&'static str, &'static str); 20] {
        [
            ("readiness", self.readiness.as_str()),
            ("create-return", self.create_return.as_str()),
            ("delete-return", self.delete_return.as_str()),
            ("ip-source", self.ip_source.as_str()),
            ("gc-mark", self.gc_mark.as_str()),
            ("created-at", self.created_at.as_str()),
            ("list-partial", self.list_partial.as_str()),
            ("quota", self.quota.as_str()),
            ("not-found", self.not_found.as_str()),
            ("primary-key", self.primary_key.as_str()),
            ("provisioning-state", self.provisioning_state.as_str()),
            ("async-ops", self.async_ops.as_str()),
            ("secondary-resources", self.secondary_resources.as_str()),
            ("credentials", self.credentials.as_str()),
            ("tls", self.tls.as_str()),
            ("client-kind", self.client_kind.as_str()),
            ("timeouts", self.timeouts.as_str()),
            ("logging", self.logging.as_str()),
            ("child-spans", self.child_spans.as_str()),
            ("backend-test", self.backend_test.as_str()),
        ]
    }
}

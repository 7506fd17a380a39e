//! The conditions of a `Proxy` and the one way to build them (OP-7).

/// Condition types.
pub mod kind {
    /// An instance exists and is usable. Managed only.
    pub const PROVISIONED: &str = "Provisioned";
    /// Traffic flows.
    pub const HEALTHY: &str = "Healthy";
    /// Both.
    pub const READY: &str = "Ready";
}

/// Reasons.
pub mod reason {
    #![allow(missing_docs, reason = "the words of OP-7 and HE-3; the spec says what each means")]
    pub const PROVISIONED: &str = "Provisioned";
    pub const PROVISIONING: &str = "Provisioning";
    pub const REPLACING: &str = "Replacing";
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    pub const TRANSIENT_ERROR: &str = "TransientError";
    pub const PAUSED: &str = "Paused";
    pub const PERMANENT_ERROR: &str = "PermanentError";
    pub const PROVIDER_NOT_CONFIGURED: &str = "ProviderNotConfigured";
    pub const CLOUD_INIT_UNRESOLVED: &str = "CloudInitUnresolved";
    pub const PROVISIONING_TIMEOUT: &str = "ProvisioningTimeout";
    pub const PROBE_SUCCEEDED: &str = "ProbeSucceeded";
    pub const PROBE_FAILED: &str = "ProbeFailed";
    pub const CREDENTIALS_UNRESOLVED: &str = "CredentialsUnresolved";
    pub const NOT_PROBED: &str = "NotProbed";
    pub const READY: &str = "Ready";
}

//! The flags as they are typed. What they may hold is judged afterwards, all at once.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Declares, proves, leases and replaces forward proxies with an egress of their own.
#[derive(Debug, Parser)]
#[command(name = "egress-proxies-operator", subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run in or against a cluster: Proxies are objects of its API server.
    Run(Box<Run>),
    /// Run in one process without a cluster; with neither --manifests nor --providers-config a demonstration pool.
    Standalone(Box<Standalone>),
    /// Print the CRDs as YAML.
    Crds,
    /// Check every configured provider once: a table, exit 1 if a target is not ready.
    Check(Check),
    /// Check manifests and providers files: every fault with file, document, field and reason.
    Validate {
        /// Files, or folders of manifests.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Show proxies, leases, providers or actors of a running instance.
    Get(Get),
    /// Print version, commit and compiler.
    Version,
}

#[derive(Debug, Args)]
pub(super) struct Standalone {
    /// The providers file; needs --manifests [default: one entry `local` of type local]
    #[arg(long, value_name = "FILE")]
    pub(super) providers_config: Option<PathBuf>,
    /// A folder of manifests, watched; may be given more than once [default: a demonstration pool]
    #[arg(long, value_name = "DIR")]
    pub(super) manifests: Vec<PathBuf>,
    /// Where status, marks and the installation id are kept
    #[arg(long, value_name = "DIR", default_value = "./egress-state")]
    pub(super) state: PathBuf,
    /// Where the discovery API listens; cannot be off
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8090")]
    pub(super) discovery_bind_address: String,
    /// Where metrics are served; 0 is off
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(super) metrics_bind_address: String,
    /// Where /healthz and /readyz are served; 0 is off
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8081")]
    pub(super) health_probe_bind_address: String,
    /// Whose instances are ours [default: made at random once, kept in the state folder]
    #[arg(long, value_name = "ID")]
    pub(super) installation_id: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(super) struct Run {
    /// The providers file
    #[arg(long, value_name = "FILE")]
    pub(super) providers_config: Option<PathBuf>,
    /// Where the cluster is and who we are there [default: in a Pod its ServiceAccount, else KUBECONFIG, else the user's file]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The one namespace to look at [default: all]
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) proxy_namespace: Option<String>,
    /// Whether one of several replicas is the leader
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, default_missing_value = "true")]
    pub(super) leader_elect: String,
    /// The name of the Lease
    #[arg(long, value_name = "NAME", default_value = "egress-proxies-operator")]
    pub(super) leader_election_id: String,
    /// The namespace of the Lease [default: the Pod's own]
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) leader_election_namespace: Option<String>,
    /// How long others wait for a leader that does not renew; whole seconds
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub(super) leader_election_lease_duration: String,
    /// How long after its last renewal a leader may act; below the lease duration
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) leader_election_renew_deadline: String,
    /// Between tries to get or renew the Lease; at most half the renew deadline
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(super) leader_election_retry_period: String,
    /// The Pod's name, for the Lease and for Events; the chart sets its variable
    #[arg(long, value_name = "NAME")]
    pub(super) pod_name: Option<String>,
    /// The Pod's UID, so that a restarted container goes on with its own Lease; the chart sets its variable
    #[arg(long, value_name = "UID")]
    pub(super) pod_uid: Option<String>,
    /// The Pod's namespace; the chart sets its variable
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) pod_namespace: Option<String>,
    /// Where other replicas reach this one; the chart sets its variable
    #[arg(long, value_name = "IP")]
    pub(super) pod_ip: Option<String>,
    /// Where the discovery API listens; cannot be off
    #[arg(long, value_name = "HOST:PORT", default_value = ":8090")]
    pub(super) discovery_bind_address: String,
    /// Where metrics are served; 0 is off
    #[arg(long, value_name = "HOST:PORT", default_value = "0")]
    pub(super) metrics_bind_address: String,
    /// Metrics over TLS, for callers whose token the API server knows and allows to get /metrics
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, default_missing_value = "true")]
    pub(super) metrics_secure: String,
    /// Where /healthz and /readyz are served; 0 is off
    #[arg(long, value_name = "HOST:PORT", default_value = ":8081")]
    pub(super) health_probe_bind_address: String,
    /// Whose instances are ours [default: derived from the UID of the namespace kube-system]
    #[arg(long, value_name = "ID")]
    pub(super) installation_id: Option<String>,
    /// Collect orphans with --proxy-namespace too: only safe where no Proxy of another namespace was made under this installation id
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, default_missing_value = "true")]
    pub(super) gc_allow_namespaced: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Flags that both ways to run share, defaults included.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// A file with one `NAME TOKEN [NAMESPACE,...]` a line, re-read on change; instead of DISCOVERY_TOKEN
    #[arg(long, value_name = "FILE")]
    pub(super) discovery_token_file: Option<PathBuf>,
    /// Where the debug endpoint listens; 0 is off, another address than loopback needs a token
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8082")]
    pub(super) debug_bind_address: String,
    /// Between reads of an instance that is not usable yet
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) poll_provisioning: String,
    /// Between reads of an instance that is being removed
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) poll_deletion: String,
    /// Between reads of an instance that runs
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub(super) poll_drift: String,
    /// Between tries after a quota answer, or when the environment is at fault
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(super) quota_retry: String,
    /// The longest wait after a transient failure
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(super) backoff_max: String,
    /// Where leases are kept; this version: memory, so that a restart forgets them
    #[arg(long, value_name = "STORE", default_value = "memory")]
    pub(super) lease_store: String,
    /// How long a lease lasts whose request does not say
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(super) lease_default_ttl: String,
    /// How long a lease may last
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub(super) lease_max_ttl: String,
    /// How long leases go on after a time in which renewals could not be served
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(super) lease_grace: String,
    /// How many lease requests may wait
    #[arg(long, value_name = "COUNT", default_value = "1000")]
    pub(super) lease_queue_limit: String,
    /// How long leases may keep a proxy from being deleted or replaced; at least --lease-default-ttl
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(super) drain_timeout: String,
    /// Between rounds that look for orphans; 0 is off
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub(super) gc_interval: String,
    /// How old an orphan must be to be deleted
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub(super) gc_min_age: String,
    /// How many orphans of a provider a round may delete
    #[arg(long, value_name = "COUNT", default_value = "10")]
    pub(super) gc_max_deletes: String,
    /// Only log and count the orphans that would be deleted
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, default_missing_value = "true")]
    pub(super) gc_dry_run: String,
    /// Between checks of all providers; 0 is off
    #[arg(long, value_name = "DURATION", default_value = "1m", allow_hyphen_values = true)]
    pub(super) provider_check_interval: String,
    /// How long a check may take; 0: the interval, at most 15s
    #[arg(long, value_name = "DURATION", default_value = "0", allow_hyphen_values = true)]
    pub(super) provider_check_timeout: String,
    /// How many proxies of one Secret may be replaced at a time: a share such as 25%, or a count
    #[arg(long, value_name = "SHARE", default_value = "25%")]
    pub(super) max_unavailable: String,
    /// json or text [default: text on a terminal, else json]
    #[arg(long, value_name = "FORMAT")]
    pub(super) log_format: Option<String>,
    /// error, warn, info, debug, trace or off, and per target such as info,kvm2=debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(super) log_level: String,
    /// Whether metrics have the label `proxy`; false for large fleets
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, default_missing_value = "true")]
    pub(super) per_proxy_metrics: String,
    /// Whether each health probe is a trace of its own, where spans are exported
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, default_missing_value = "true")]
    pub(super) trace_health_probes: String,
    /// Whether the wire tier of the log shows the bodies of calls to Google Cloud; user-data and tokens stay out
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, default_missing_value = "true")]
    pub(super) gcp_wire_log_full_payloads: String,
    /// Roots in PEM that probes trust beside the system's
    #[arg(long, value_name = "FILE")]
    pub(super) check_ca_file: Option<PathBuf>,
    /// What check URLs may name though it is refused by default: CIDRs, names, .suffixes; may be given more than once
    #[arg(long, value_name = "ENTRY")]
    pub(super) check_url_allow: Vec<String>,
    /// What endpoints of External proxies may be though it is refused by default; likewise
    #[arg(long, value_name = "ENTRY")]
    pub(super) endpoint_allow: Vec<String>,
    /// What local proxies may reach though it is refused by default; likewise, with an optional :port
    #[arg(long, value_name = "ENTRY")]
    pub(super) egress_allow: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The providers file [default: one entry `local` of type local]
    #[arg(long, value_name = "FILE")]
    pub(super) providers_config: Option<PathBuf>,
    /// How long the check may take; 0: 15s
    #[arg(long, value_name = "DURATION", default_value = "0", allow_hyphen_values = true)]
    pub(super) provider_check_timeout: String,
}

#[derive(Debug, Args)]
pub(super) struct Get {
    /// proxies, leases, providers or actors
    #[arg(value_name = "WHAT")]
    pub(super) what: String,
    /// One of them: NAMESPACE/NAME, an id or a name
    #[arg(value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Where the discovery API is, for proxies and leases
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    pub(super) server: String,
    /// Where the debug endpoint is, for providers and actors
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8082")]
    pub(super) debug_server: String,
    /// A file whose first token is presented [default: DISCOVERY_TOKEN, if set]
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// table, wide or json
    #[arg(long, short, value_name = "FORM", default_value = "table")]
    pub(super) output: String,
    /// Follow: show again when something changes
    #[arg(long, short)]
    pub(super) watch: bool,
}

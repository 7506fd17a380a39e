//! What `run` and `standalone` have in common: their flags → their settings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egress_protocol::InstallationId;
use egress_protocol::net::AllowList;
use egress_protocol::proxies::Share;
use egress_protocol::resource::grammar;

use super::TOKEN_VARIABLE;
use super::check;
use super::faults::Faults;
use super::raw;
use super::settings::{BindAddress, CommonSettings, GcSettings, LeaseSettings, LogFormat, PollSettings, TokenSource};
use crate::open;
use crate::providers::{self, ProvidersConfig};
use crate::telemetry::TelemetrySettings;
use crate::tokens::{self, Tokens};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// The shortest time between two reads of a backend; for tests and rehearsals.
const SHORTEST_POLL: Duration = Duration::from_millis(100);

/// Flags that both have, with defaults of their own.
pub(super) struct Own {
    pub(super) providers_config: Option<PathBuf>,
    pub(super) discovery_bind_address: String,
    pub(super) metrics_bind_address: String,
    pub(super) health_probe_bind_address: String,
    pub(super) installation_id: Option<String>,
}

/// `None`: there is a fault. `providers` reads the providers file unless it is told not to look.
pub(super) fn read(
    own: Own,
    raw: raw::Common,
    token: Option<OsString>,
    faults: &mut Faults<'_>,
    providers: impl FnOnce(bool, &mut Faults<'_>) -> Option<ProvidersConfig>,
) -> Option<CommonSettings> {
    let checks = check::rounds(&raw.provider_check_interval, &raw.provider_check_timeout, faults);
    // PH-10: those two are judged before the file is looked at.
    let look = !faults.any();
    let discovery = address("discovery-bind-address", &own.discovery_bind_address, faults);
    if discovery.is_none() && own.discovery_bind_address == "0" {
        faults.value("discovery-bind-address", "0", "the discovery API cannot be off: give an address, such as 127.0.0.1:8090");
    }
    let tokens = token_source(raw.discovery_token_file, token, faults);
    let debug = address("debug-bind-address", &raw.debug_bind_address, faults);
    if debug.is_some_and(|debug| !debug.is_loopback()) && tokens == Some(TokenSource::Open) {
        let reason = format!(
            "off loopback the debug endpoint needs a token: set {TOKEN_VARIABLE} or --discovery-token-file, or take a loopback address"
        );
        faults.value("debug-bind-address", &raw.debug_bind_address, reason);
    }
    let providers = providers(look, faults);
    let installation = own.installation_id.map(|id| {
        if !grammar::is_dns_label(&id) {
            let rule = "must be a DNS-1123 label: at most 63 of a-z, 0-9 and -, beginning and ending with a letter or digit";
            faults.value("installation-id", &id, rule);
        }
        InstallationId::new(id)
    });
    let polls = PollSettings {
        provisioning: faults.duration("poll-provisioning", &raw.poll_provisioning, SHORTEST_POLL..=HOUR),
        deletion: faults.duration("poll-deletion", &raw.poll_deletion, SHORTEST_POLL..=HOUR),
        drift: faults.duration("poll-drift", &raw.poll_drift, SHORTEST_POLL..=DAY),
        quota_retry: faults.duration("quota-retry", &raw.quota_retry, SHORTEST_POLL..=DAY),
        backoff_max: faults.duration("backoff-max", &raw.backoff_max, SECOND..=HOUR),
    };
    if raw.lease_store != "memory" {
        // It may be an address with a password: it is not shown.
        faults.say(format!("{}: this version keeps leases in memory only: leave it out, or give memory", faults.name("lease-store")));
    }
    let leases = LeaseSettings {
        default_ttl: faults.duration("lease-default-ttl", &raw.lease_default_ttl, SECOND..=DAY),
        max_ttl: faults.duration("lease-max-ttl", &raw.lease_max_ttl, SECOND..=DAY),
        grace: faults.duration("lease-grace", &raw.lease_grace, Duration::ZERO..=HOUR),
        queue_limit: faults.number("lease-queue-limit", &raw.lease_queue_limit, 0..=100_000),
        drain_timeout: faults.duration("drain-timeout", &raw.drain_timeout, SECOND..=DAY),
    };
    if leases.default_ttl > leases.max_ttl {
        let reason = format!("must not exceed {} {}: lower the one or raise the other", faults.name("lease-max-ttl"), raw.lease_max_ttl);
        faults.value("lease-default-ttl", &raw.lease_default_ttl, reason);
    }
    if leases.drain_timeout < leases.default_ttl {
        let reason = format!(
            "must not be below {} {}: a holder learns of a drain by its renewal; raise the one or lower the other",
            faults.name("lease-default-ttl"),
            raw.lease_default_ttl
        );
        faults.value("drain-timeout", &raw.drain_timeout, reason);
    }
    let gc = GcSettings {
        interval: faults.duration_or_zero("gc-interval", &raw.gc_interval, SECOND..=DAY),
        min_age: faults.duration_or_zero("gc-min-age", &raw.gc_min_age, SECOND..=WEEK),
        max_deletes: faults.number("gc-max-deletes", &raw.gc_max_deletes, 1..=10_000),
        dry_run: faults.switch("gc-dry-run", &raw.gc_dry_run) == Some(true),
    };
    let max_unavailable = Share::parse(&raw.max_unavailable);
    if max_unavailable.is_none() {
        faults.value("max-unavailable", &raw.max_unavailable, "must be a share, 1% to 100%, or a count of at least 1");
    }
    let log_format =
        raw.log_format.as_deref().and_then(|text| faults.word("log-format", text, [("json", LogFormat::Json), ("text", LogFormat::Text)]));
    if let Err(reason) = check_level(&raw.log_level) {
        faults.value("log-level", &raw.log_level, reason);
    }
    let per_proxy_metrics = faults.switch("per-proxy-metrics", &raw.per_proxy_metrics);
    let gcp_full_payloads = faults.switch("gcp-wire-log-full-payloads", &raw.gcp_wire_log_full_payloads);
    let trace_health_probes = faults.switch("trace-health-probes", &raw.trace_health_probes);
    if let Some(path) = &raw.check_ca_file {
        check_roots(path, faults);
    }
    let check_url_allow = allow("check-url-allow", &raw.check_url_allow, faults);
    let endpoint_allow = allow("endpoint-allow", &raw.endpoint_allow, faults);
    let egress_allow = allow("egress-allow", &raw.egress_allow, faults);
    let metrics = address("metrics-bind-address", &own.metrics_bind_address, faults);
    let health = address("health-probe-bind-address", &own.health_probe_bind_address, faults);
    same_address_twice(
        &[
            ("discovery-bind-address", discovery),
            ("debug-bind-address", debug),
            ("metrics-bind-address", metrics),
            ("health-probe-bind-address", health),
        ],
        faults,
    );
    Some(CommonSettings {
        providers: providers?,
        providers_file: own.providers_config,
        discovery: discovery?,
        tokens: tokens?,
        debug,
        metrics,
        health,
        installation,
        polls,
        leases,
        gc,
        checks,
        max_unavailable: max_unavailable?,
        log_format,
        log_level: raw.log_level,
        per_proxy_metrics: per_proxy_metrics?,
        trace_health_probes: trace_health_probes?,
        gcp_full_payloads: gcp_full_payloads?,
        telemetry: TelemetrySettings::default(),
        check_ca_file: raw.check_ca_file,
        check_url_allow,
        endpoint_allow,
        egress_allow,
    })
}

/// `None` is off, or a fault.
fn address(flag: &str, text: &str, faults: &mut Faults<'_>) -> Option<BindAddress> {
    if text == "0" {
        return None;
    }
    let found = BindAddress::parse(text);
    if found.is_none() {
        let rule = "must be HOST:PORT with an IP address or localhost, such as 127.0.0.1:8090, [::1]:8090 or :8090; port 0 is any free one";
        faults.value(flag, text, rule);
    }
    found
}

/// Two listeners cannot share a port that is not chosen by the system.
fn same_address_twice(listeners: &[(&str, Option<BindAddress>)], faults: &mut Faults<'_>) {
    for (i, (flag, address)) in listeners.iter().enumerate() {
        let Some(address) = address else { continue };
        let twin = listeners.iter().take(i).find(|(_, other)| other.is_some_and(|other| other == *address));
        let fixed = address.candidates().iter().all(|address| address.port() != 0);
        if let (Some((other, _)), true) = (twin, fixed) {
            let both = format!("{} and {}", faults.name(other), faults.name(flag));
            faults.say(format!("{both}: give each an address of its own"));
        }
    }
}

/// The entries of the file, or the built-in one; `None` is a fault.
pub(super) fn providers_of(file: Option<&Path>, faults: &mut Faults<'_>) -> Option<ProvidersConfig> {
    let Some(path) = file else { return Some(ProvidersConfig::built_in()) };
    match providers::load(path) {
        Ok(config) => Some(config),
        Err(told) => {
            told.iter().for_each(|fault| faults.say(format!("{}: {fault}", faults.name("providers-config"))));
            None
        }
    }
}

/// `None` is a fault.
fn token_source(file: Option<PathBuf>, variable: Option<OsString>, faults: &mut Faults<'_>) -> Option<TokenSource> {
    match (file, variable) {
        (None, None) => Some(TokenSource::Open),
        (Some(path), Some(_)) => {
            let reason = format!("{TOKEN_VARIABLE} is set too: leave one of them out");
            faults.value("discovery-token-file", path.display(), reason);
            None
        }
        (None, Some(text)) => match Tokens::single(&text.to_string_lossy()) {
            Ok(tokens) => Some(TokenSource::Variable(tokens)),
            Err(reason) => {
                faults.say(format!("{TOKEN_VARIABLE}: {reason}: unset it to serve without a token"));
                None
            }
        },
        (Some(path), None) => match tokens::load(&path) {
            Ok(tokens) => Some(TokenSource::File { path, tokens }),
            Err(reasons) => {
                reasons.iter().for_each(|reason| faults.value("discovery-token-file", path.display(), reason));
                None
            }
        },
    }
}

fn allow(flag: &str, entries: &[String], faults: &mut Faults<'_>) -> AllowList {
    AllowList::parse(entries).unwrap_or_else(|reasons| {
        reasons.iter().for_each(|reason| faults.say(format!("{}: {reason}", faults.name(flag))));
        AllowList::default()
    })
}

/// That the file is there and holds a certificate; whether it is a good one is for TLS to say.
fn check_roots(path: &Path, faults: &mut Faults<'_>) {
    match open::read(path) {
        Ok(bytes) if bytes.windows(27).any(|part| part == b"-----BEGIN CERTIFICATE-----") => {}
        Ok(_) => faults.value("check-ca-file", path.display(), "holds no certificate in PEM"),
        Err(error) => faults.value("check-ca-file", path.display(), format!("cannot be read: {error}")),
    }
}

/// A level, and `TARGET=LEVEL` pairs, separated by commas.
fn check_level(text: &str) -> Result<(), String> {
    for directive in text.split(',') {
        let (target, level) = directive.split_once('=').unwrap_or(("-", directive));
        let known = ["error", "warn", "info", "debug", "trace", "off"].iter().any(|known| known.eq_ignore_ascii_case(level));
        let named = !target.is_empty() && target.chars().all(|c| c.is_ascii_alphanumeric() || "_-:".contains(c));
        if !known || !named {
            return Err(format!("{directive:?} is neither error, warn, info, debug, trace or off nor TARGET=LEVEL"));
        }
    }
    Ok(())
}

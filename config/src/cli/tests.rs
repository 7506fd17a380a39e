use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use egress_protocol::proxies::Share;

use super::*;

/// The command of a line of arguments and some variables.
fn run(line: &str, variables: &[(&str, &str)]) -> Result<Command, Stop> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    let args = std::iter::once("egress-proxies-operator").chain(line.split_whitespace()).map(OsString::from);
    parse(args, |name| variables.get(name).map(OsString::from))
}

fn standalone(line: &str, variables: &[(&str, &str)]) -> StandaloneSettings {
    match run(&format!("standalone {line}"), variables) {
        Ok(Command::Standalone(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

/// The faults, one a line, without `error: `.
fn faults(line: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let stop = run(line, variables).expect_err(line);
    assert_eq!(stop.code, 2, "{stop}");
    stop.text.lines().map(|told| told.strip_prefix("error: ").unwrap_or(told).to_owned()).collect()
}

#[test]
fn without_flags_standalone_is_the_demonstration_with_the_defaults_of_op_27() {
    let settings = standalone("", &[]);
    assert_eq!(settings.objects, Objects::Demonstration);
    assert_eq!(settings.common.providers.entries[0].type_name(), "local");
    assert_eq!(settings.state, PathBuf::from("./egress-state"));
    let shown = |address: Option<BindAddress>| address.map(|address| address.candidates()[0].to_string());
    assert_eq!(shown(Some(settings.common.discovery)).as_deref(), Some("127.0.0.1:8090"));
    assert_eq!(shown(settings.common.debug).as_deref(), Some("127.0.0.1:8082"));
    assert_eq!(shown(settings.common.metrics).as_deref(), Some("127.0.0.1:8080"));
    assert_eq!(shown(settings.common.health).as_deref(), Some("127.0.0.1:8081"));
    let seconds = [
        settings.common.polls.provisioning,
        settings.common.polls.deletion,
        settings.common.polls.drift,
        settings.common.polls.quota_retry,
        settings.common.polls.backoff_max,
    ];
    assert_eq!(seconds.map(|d| d.as_secs()), [10, 10, 120, 300, 300]);
    let leases = settings.common.leases;
    let seconds = [leases.default_ttl, leases.max_ttl, leases.grace, leases.drain_timeout].map(|d| d.as_secs());
    assert_eq!((seconds, leases.queue_limit), ([300, 86_400, 30, 300], 1000));
    assert_eq!(settings.common.max_unavailable, Share::Percent(25));
    assert_eq!((settings.common.log_format, settings.common.log_level.as_str(), settings.common.per_proxy_metrics), (None, "info", true));
    assert_eq!(settings.common.tokens, TokenSource::Open);
    let gc = GcSettings { interval: Duration::from_secs(600), min_age: Duration::from_secs(600), max_deletes: 10, dry_run: false };
    assert_eq!(settings.common.gc, gc);
    assert_eq!(settings.common.checks, CheckRounds { interval: Duration::from_secs(60), timeout: Duration::from_secs(15) });
    assert!(!settings.common.trace_health_probes && !settings.common.gcp_full_payloads && !settings.common.telemetry.export);
}

/// HT-01 (PH-8…10).
#[test]
fn check_rounds_are_judged_before_the_providers_file_is_read_ht_01() {
    let line = |interval: &str, timeout: &str| {
        format!("standalone --manifests . --provider-check-interval {interval} --provider-check-timeout {timeout}")
    };
    for (interval, timeout, seconds) in [("1m", "0", (60, 15)), ("0", "0", (0, 15)), ("10s", "10s", (10, 10)), ("12s", "0", (12, 12))] {
        let Ok(Command::Standalone(settings)) = run(&line(interval, timeout), &[]) else { panic!("{interval} {timeout}") };
        assert_eq!((settings.common.checks.interval.as_secs(), settings.common.checks.timeout.as_secs()), seconds, "{interval} {timeout}");
    }
    assert_eq!(standalone("--provider-check-interval 0 --provider-check-timeout 2m", &[]).common.checks.interval, Duration::ZERO);
    for (interval, timeout, flag) in [
        ("5s", "0", "--provider-check-interval 5s: "),
        ("-1s", "0", "--provider-check-interval -1s: "),
        ("1m", "2m", "--provider-check-timeout 2m: "),
        ("1m", "-1s", "--provider-check-timeout -1s: "),
        ("0", "-1s", "--provider-check-timeout -1s: "),
    ] {
        let told = faults(&format!("{} --providers-config /nonexistent/p.yaml", line(interval, timeout)), &[]);
        assert!(told.len() == 1 && told[0].starts_with(flag), "the file is not read: {told:?}");
    }
    let told = faults("check --provider-check-timeout 11m --providers-config /nonexistent/p.yaml", &[]);
    assert!(told.len() == 1 && told[0].starts_with("--provider-check-timeout 11m: must be 0, or at most 10m"), "{told:?}");
    assert!(matches!(run("check", &[]), Ok(Command::Check(check)) if check.timeout.as_secs() == 15 && check.providers.entries.len() == 1));
    assert!(faults("check --providers-config /nonexistent/p.yaml", &[])[0].contains("/nonexistent/p.yaml"));
}

#[test]
fn collection_may_be_off_and_its_limits_have_limits_og_4() {
    assert_eq!(standalone("--gc-interval 0", &[]).common.gc.interval, Duration::ZERO);
    let gc = standalone("--gc-min-age 0s --gc-max-deletes 3", &[("EPO_GC_DRY_RUN", "true"), ("EPO_GC_INTERVAL", "1s")]).common.gc;
    assert_eq!(gc, GcSettings { interval: Duration::from_secs(1), min_age: Duration::ZERO, max_deletes: 3, dry_run: true });
}

/// Issue 10, item 28: `--flag true` was a usage error.
#[test]
fn a_flag_that_is_true_or_false_takes_its_value_in_every_form() {
    let dry = |line: &str| standalone(line, &[]).common.gc.dry_run;
    for line in ["--gc-dry-run", "--gc-dry-run true", "--gc-dry-run=true", "--gc-dry-run --log-level info"] {
        assert!(dry(line), "{line}");
    }
    assert!(!dry("--gc-dry-run false") && !dry("--gc-dry-run=false"));
    assert!(!standalone("--per-proxy-metrics false", &[]).common.per_proxy_metrics);
    assert!(!standalone("--gc-dry-run false", &[("EPO_GC_DRY_RUN", "true")]).common.gc.dry_run, "the flag wins");
    assert!(cluster("--metrics-secure true --metrics-bind-address :0", &[]).metrics_secure);
    assert_eq!(faults("standalone --gc-dry-run perhaps", &[]), ["--gc-dry-run perhaps: must be true or false"]);
}

/// Issue 10, item 9: each of these kept the start waiting for good.
#[test]
fn a_file_that_is_a_fifo_is_a_fault_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let at = fifo.display();
    for line in [
        format!("standalone --discovery-token-file {at}"),
        format!("standalone --check-ca-file {at}"),
        format!("standalone --providers-config {at}"),
        format!("run --kubeconfig {at}"),
        format!("check --providers-config {at}"),
    ] {
        let told = faults(&line, &[]);
        assert!(told.iter().any(|fault| fault.contains("cannot be read: it is a FIFO, not a regular file")), "{line}: {told:?}");
    }
}

/// OB-3: the standard variables are read with the flags.
#[test]
fn the_variables_of_telemetry_are_read() {
    let settings = standalone("--trace-health-probes", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")]);
    assert!(settings.common.trace_health_probes && settings.common.telemetry.export);
    let told = faults("standalone --poll-drift soon", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")]);
    assert_eq!(told.len(), 2, "with the faults of the flags: {told:?}");
    assert!(told[1].starts_with("OTEL_EXPORTER_OTLP_ENDPOINT: must be "), "{told:?}");
    assert_eq!(faults("run --providers-config /nonexistent/p.yaml", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")]).len(), 2);
}

#[test]
fn a_flag_wins_over_its_variable() {
    let variables = [("EPO_LOG_LEVEL", "debug"), ("EPO_POLL_DRIFT", "7s"), ("EPO_DEBUG_BIND_ADDRESS", "")];
    let settings = standalone("--log-level warn", &variables);
    assert_eq!((settings.common.log_level.as_str(), settings.common.polls.drift.as_secs()), ("warn", 7));
    assert!(settings.common.debug.is_some(), "an empty variable counts as not set");
}

#[test]
fn a_variable_holds_a_list_separated_by_commas_and_a_flag_may_be_repeated() {
    let settings = standalone("--manifests a --manifests b", &[("EPO_EGRESS_ALLOW", "10.0.0.0/8, .internal.example")]);
    assert_eq!(settings.objects, Objects::Folders(vec![PathBuf::from("a"), PathBuf::from("b")]));
    assert!(!settings.common.egress_allow.is_empty());
    assert_eq!(standalone("", &[("EPO_MANIFESTS", "x,y")]).objects, Objects::Folders(vec![PathBuf::from("x"), PathBuf::from("y")]));
}

/// OP-4: what is wrong with settings is told all at once, by the name of the flag or the variable.
#[test]
fn every_fault_is_told_at_once_by_the_name_it_came_by() {
    let told = faults("standalone --poll-drift 90 --max-unavailable 0", &[("EPO_LOG_FORMAT", "xml"), ("EPO_LEASE_QUEUE_LIMIT", "many")]);
    assert_eq!(
        told,
        [
            "--poll-drift 90: is not a duration: write one such as 90s or 5m, 100ms to 1day",
            "EPO_LEASE_QUEUE_LIMIT many: must be a whole number, 0 to 100000",
            "--max-unavailable 0: must be a share, 1% to 100%, or a count of at least 1",
            "EPO_LOG_FORMAT xml: must be json or text",
        ]
    );
}

/// Wrong usage of many kinds: exit 2, and the text names the flag.
#[test]
fn wrong_settings_are_exit_2_and_name_their_flag() {
    for (line, flag) in [
        ("", "Usage"),
        ("stand", "stand"),
        ("run", "--providers-config"),
        ("crds x", "x"),
        ("validate", "FILE"),
        ("standalone x", "x"),
        ("standalone --kubeconfig a", "--kubeconfig"),
        ("standalone --gc-allow-namespaced", "--gc-allow-namespaced"),
        ("standalone --gc-interval 100ms", "--gc-interval"),
        ("standalone --gc-min-age 8days", "--gc-min-age"),
        ("standalone --gc-max-deletes 0", "--gc-max-deletes"),
        ("check --state x", "--state"),
        ("standalone --state=", "--state"),
        ("standalone --manifests=", "--manifests"),
        ("standalone --providers-config p.yaml", "--manifests"),
        ("standalone --manifests . --providers-config /nonexistent/p.yaml", "/nonexistent/p.yaml: cannot be read"),
        ("standalone --discovery-bind-address 0", "--discovery-bind-address"),
        ("standalone --discovery-bind-address 8090", "--discovery-bind-address"),
        ("standalone --discovery-bind-address example.com:80", "--discovery-bind-address"),
        ("standalone --discovery-bind-address 127.0.0.1:65536", "--discovery-bind-address"),
        ("standalone --discovery-bind-address 127.0.0.1:+1", "--discovery-bind-address"),
        ("standalone --discovery-bind-address ::1:80x", "--discovery-bind-address"),
        ("standalone --metrics-bind-address 127.0.0.1:8090", "--metrics-bind-address"),
        ("standalone --debug-bind-address :8082", "--debug-bind-address"),
        ("standalone --discovery-token-file /nonexistent/t", "--discovery-token-file"),
        ("standalone --installation-id My_Id", "--installation-id"),
        ("standalone --poll-provisioning 1ms", "--poll-provisioning"),
        ("standalone --poll-provisioning=-5s", "--poll-provisioning"),
        ("standalone --backoff-max 2h", "--backoff-max"),
        ("standalone --quota-retry 5", "--quota-retry"),
        ("standalone --lease-store file", "--lease-store"),
        ("standalone --lease-store postgres://u:hunter2@h/d", "--lease-store"),
        ("standalone --lease-default-ttl 0s", "--lease-default-ttl"),
        ("standalone --lease-default-ttl 2h --drain-timeout 2h --lease-max-ttl 1h", "--lease-max-ttl"),
        ("standalone --lease-max-ttl 25h", "--lease-max-ttl"),
        ("standalone --drain-timeout 4m", "--drain-timeout"),
        ("standalone --lease-queue-limit=-1", "--lease-queue-limit"),
        ("standalone --max-unavailable 101%", "--max-unavailable"),
        ("standalone --max-unavailable 0%", "--max-unavailable"),
        ("standalone --max-unavailable +5", "--max-unavailable"),
        ("standalone --log-format JSON", "--log-format"),
        ("standalone --log-level loud", "--log-level"),
        ("standalone --log-level info,=debug", "--log-level"),
        ("standalone --per-proxy-metrics=maybe", "--per-proxy-metrics"),
        ("standalone --trace-health-probes=maybe", "--trace-health-probes"),
        ("standalone --check-ca-file /nonexistent/ca.pem", "--check-ca-file"),
        ("standalone --check-ca-file Cargo.toml", "--check-ca-file"),
        ("standalone --egress-allow 10.0.0.0/33", "--egress-allow"),
        ("standalone --endpoint-allow http://x", "--endpoint-allow"),
        ("standalone --check-url-allow *", "--check-url-allow"),
        ("get", "WHAT"),
        ("get pods", "pods"),
        ("get proxies -o yaml", "--output"),
        ("get proxies --server https://x", "--server"),
        ("get proxies --server http://u:hunter2@x", "--server"),
        ("get proxies --token-file /nonexistent/t", "--token-file"),
    ] {
        let stop = run(line, &[]).expect_err(line);
        assert_eq!(stop.code, 2, "{line}: {stop}");
        assert!(stop.text.contains(flag) && !stop.text.contains("hunter2"), "{line}: {stop}");
    }
}

/// OP-27: a drain timeout below the default TTL is exit 2.
#[test]
fn the_drain_timeout_is_never_below_the_default_ttl() {
    assert_eq!(
        faults("standalone --drain-timeout 4m", &[("EPO_LEASE_DEFAULT_TTL", "5m")]),
        [
            "--drain-timeout 4m: must not be below EPO_LEASE_DEFAULT_TTL 5m: a holder learns of a drain by its renewal; raise the one or lower the other"
        ]
    );
    assert_eq!(standalone("--drain-timeout 5m", &[]).common.leases.drain_timeout.as_secs(), 300);
}

#[test]
fn tokens_come_from_the_variable_or_the_file_and_never_from_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    fs::write(&path, "shop s3cret\n").unwrap();
    let flag = format!("--discovery-token-file {}", path.display());
    assert!(matches!(standalone(&flag, &[]).common.tokens, TokenSource::File { tokens, .. } if tokens.tokens[0].name == "shop"));
    assert!(matches!(standalone("", &[("DISCOVERY_TOKEN", "s3cret")]).common.tokens, TokenSource::Variable(_)));
    let told = faults(&format!("standalone {flag}"), &[("DISCOVERY_TOKEN", "s3cret")]);
    assert!(told[0].contains("DISCOVERY_TOKEN is set too") && !told[0].contains("s3cret"), "{told:?}");
    // An empty variable must not open the API.
    assert!(faults("standalone", &[("DISCOVERY_TOKEN", "")])[0].contains("DISCOVERY_TOKEN"));
    // The debug endpoint off loopback takes a token.
    assert!(standalone("--debug-bind-address :0", &[("DISCOVERY_TOKEN", "s3cret")]).common.debug.is_some());
    assert!(!format!("{:?}", standalone("", &[("DISCOVERY_TOKEN", "s3cret")])).contains("s3cret"));
}

#[test]
fn addresses_are_off_any_or_one() {
    let settings = standalone(
        "--debug-bind-address 0 --metrics-bind-address :0 --discovery-bind-address localhost:0 --health-probe-bind-address [::1]:81",
        &[],
    );
    assert_eq!(settings.common.debug, None);
    assert_eq!(settings.common.metrics, Some(BindAddress::All(0)));
    assert_eq!(settings.common.metrics.unwrap().candidates().len(), 2);
    assert_eq!(settings.common.discovery.candidates()[0].to_string(), "127.0.0.1:0");
    assert!(settings.common.health.unwrap().is_loopback() && !settings.common.metrics.unwrap().is_loopback());
}

/// OP-16: the share rounds down, at least 1.
#[test]
fn a_share_rounds_down_and_is_at_least_one() {
    assert_eq!([0, 1, 4, 7, 8, 100].map(|total| Share::Percent(25).of(total)), [1, 1, 1, 1, 2, 25]);
    assert_eq!(Share::Count(3).of(100), 3);
    assert_eq!(standalone("--max-unavailable 3", &[]).common.max_unavailable, Share::Count(3));
}

#[test]
fn the_other_commands_are_read() {
    assert!(matches!(run("crds", &[]), Ok(Command::Crds)));
    assert!(matches!(run("version", &[]), Ok(Command::Version)));
    assert!(matches!(run("validate a b", &[]), Ok(Command::Validate { files }) if files.len() == 2));
    let Ok(Command::Get(get)) = run("get leases -o json -w", &[("EPO_SERVER", "http://127.0.0.1:1/"), ("DISCOVERY_TOKEN", "s3cret")])
    else {
        panic!("get")
    };
    assert_eq!((get.kind, get.output, get.watch, get.server.as_str()), (GetKind::Leases, GetOutput::Json, true, "http://127.0.0.1:1"));
    assert_eq!(get.token.unwrap().expose(), "s3cret");
    assert!(matches!(run("get actors", &[("EPO_WATCH", "true")]), Ok(Command::Get(get)) if get.watch));
    assert!(faults("get actors", &[("EPO_WATCH", "maybe")])[0].contains("EPO_WATCH"));
}

#[test]
fn help_is_exit_0_and_names_flags_and_variables() {
    for line in ["--help", "standalone --help", "get --help", "check --help", "validate --help", "crds --help", "version --help"] {
        assert_eq!(run(line, &[]).expect_err(line).code, 0, "{line}");
    }
    let help = run("standalone --help", &[]).unwrap_err().text;
    assert!(help.contains("--lease-default-ttl") && help.contains("EPO_LEASE_DEFAULT_TTL"), "{help}");
}

/// `--providers-config` is read at once, and its faults are told with those of the flags.
#[test]
fn faults_of_the_providers_file_come_with_those_of_the_flags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.yaml");
    fs::write(&path, "providers: [{name: A, type: local}]\n").unwrap();
    let line = format!("standalone --manifests . --providers-config {} --log-level loud", path.display());
    let told = faults(&line, &[]);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("p.yaml:1: providers[0] \"A\", name: must be a DNS-1123 label"), "{told:?}");
}

fn cluster(line: &str, variables: &[(&str, &str)]) -> RunSettings {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("providers.yaml");
    fs::write(&file, "providers: [{name: local, type: local}]").unwrap();
    match run(&format!("run --providers-config {} {line}", file.display()), variables) {
        Ok(Command::Run(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn run_has_the_defaults_of_op_27_and_needs_a_providers_file() {
    let settings = cluster("", &[]);
    let shown = |address: Option<BindAddress>| address.map(|address| address.candidates()[1].to_string());
    assert_eq!(shown(Some(settings.common.discovery)).as_deref(), Some("0.0.0.0:8090"));
    assert_eq!((settings.common.metrics, shown(settings.common.health).as_deref()), (None, Some("0.0.0.0:8081")));
    assert_eq!((settings.election, settings.namespace, settings.gc_allow_namespaced), (None, None, false));
    assert_eq!(faults("run", &[]), ["--providers-config: is required: name the file with the provider entries"]);
}

/// SV-4: the holder's identity is the Pod's; the times leave room for a renewal that fails.
#[test]
fn a_leader_is_elected_under_the_pods_name_and_with_times_that_fit() {
    let pod = [("EPO_POD_NAME", "op-0"), ("EPO_POD_UID", "u-1"), ("EPO_POD_NAMESPACE", "system"), ("EPO_POD_IP", "10.1.2.3")];
    let settings = cluster("--leader-elect", &pod);
    let election = settings.election.unwrap();
    assert_eq!(
        (election.identity.as_str(), election.namespace.as_str(), election.id.as_str()),
        ("op-0_u-1", "system", "egress-proxies-operator")
    );
    let seconds = [election.lease_duration, election.renew_deadline, election.retry_period].map(|d| d.as_secs());
    assert_eq!((seconds, settings.instance.as_str(), settings.pod_ip), ([15, 10, 2], "op-0", Some([10, 1, 2, 3].into())));
    let first = cluster("--leader-elect --leader-election-namespace n", &[]).election.unwrap().identity;
    let second = cluster("--leader-elect --leader-election-namespace n", &[]).election.unwrap().identity;
    assert_ne!(first, second, "outside a Pod a restarted process is somebody new");
    for (more, flag) in [
        ("", "--leader-election-namespace"),
        ("--leader-election-namespace n --leader-election-lease-duration 10s", "--leader-election-renew-deadline 10s: must be below"),
        ("--leader-election-namespace n --leader-election-lease-duration 15500ms", "whole seconds"),
        ("--leader-election-namespace n --leader-election-retry-period 6s", "--leader-election-retry-period 6s: must be at most half"),
        ("--leader-election-namespace N", "--leader-election-namespace N"),
        ("--leader-election-namespace n --leader-election-id A", "--leader-election-id A"),
    ] {
        let told = faults(&format!("run --providers-config /nonexistent --leader-elect {more}"), &[]);
        assert!(told.iter().any(|told| told.contains(flag)), "{more}: {told:?}");
    }
}

/// OP-25.
#[test]
fn collection_in_one_namespace_is_allowed_only_there() {
    let settings = cluster("--proxy-namespace team-a --gc-allow-namespaced", &[]);
    assert_eq!((settings.namespace.as_deref(), settings.gc_allow_namespaced), (Some("team-a"), true));
    assert!(faults("run --gc-allow-namespaced", &[])[0].starts_with("--gc-allow-namespaced: means something with --proxy-namespace only"));
    assert!(faults("run --proxy-namespace Team_A", &[])[0].starts_with("--proxy-namespace Team_A: "));
    assert!(faults("run --pod-ip x", &[])[0].starts_with("--pod-ip x: "));
}

/// OP-27: `--metrics-secure` means something where metrics are served only, and the fault names both, by flag or variable.
#[test]
fn metrics_are_secured_only_where_they_are_served() {
    let secure = |line: &str, variables: &[(&str, &str)]| cluster(line, variables).metrics_secure;
    assert!(!secure("", &[]) && !secure("--metrics-bind-address :8080", &[]));
    assert!(secure("--metrics-bind-address :8443 --metrics-secure", &[]));
    assert!(secure("--metrics-secure=true", &[("EPO_METRICS_BIND_ADDRESS", ":8443")]));
    assert!(secure("--metrics-bind-address :8443", &[("EPO_METRICS_SECURE", "true")]));
    assert!(!secure("--metrics-bind-address :8443 --metrics-secure=false", &[("EPO_METRICS_SECURE", "true")]), "the flag wins");
    let told =
        |line: &str, variables: &[(&str, &str)]| faults(&format!("run --providers-config /nonexistent {line}"), variables)[0].clone();
    let text = told("--metrics-secure", &[]);
    assert!(text.starts_with("--metrics-secure: ") && text.contains("--metrics-bind-address is 0"), "{text}");
    let text = told("--metrics-bind-address 0", &[("EPO_METRICS_SECURE", "true")]);
    assert!(text.starts_with("EPO_METRICS_SECURE: ") && text.contains("--metrics-bind-address is 0"), "{text}");
    assert!(told("--metrics-secure=maybe", &[]).starts_with("--metrics-secure maybe: must be true or false"));
    assert!(run("standalone --metrics-secure", &[]).is_err(), "there is nobody to ask");
}

use std::time::Duration;

use egress_protocol::provider::ErrorClass;
use proptest::prelude::*;

use super::*;

fn faults(text: &str) -> Vec<String> {
    parse("providers.yaml", text.as_bytes()).expect_err(text).iter().map(ToString::to_string).collect()
}

fn only(text: &str) -> ProviderEntry {
    let mut config = parse("providers.yaml", text.as_bytes()).unwrap();
    assert_eq!(config.entries.len(), 1);
    config.entries.remove(0)
}

fn local(block: &str) -> String {
    format!("providers:\n- name: lab\n  type: local\n  local:\n    {block}\n")
}

#[test]
fn an_entry_without_a_block_has_the_defaults_of_the_table() {
    let entry = only("providers: [{name: lab, type: local}]");
    assert_eq!((&*entry.name, entry.type_name(), entry.max_concurrent_creates), ("lab", "local", 4));
    let ProviderBlock::Local(block) = entry.block else { panic!("{:?}", entry.block) };
    assert_eq!(block, LocalBlock::default());
    assert_eq!((block.max_connections, block.max_header_bytes), (1024, 16384));
    assert_eq!((block.connect_timeout, block.idle_timeout), (Duration::from_secs(10), Duration::from_secs(300)));
    assert_eq!(block.allowed_clients.iter().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.0/8", "::1/128"]);
    assert_eq!(only("providers: [{name: lab, type: local, local: }]").block, ProviderBlock::Local(block));
}

#[test]
fn every_key_of_the_block_is_read() {
    let entry = only(
        "providers:
- name: lab
  type: local
  maxConcurrentCreates: 64
  local:
    listenAddresses: [127.0.0.1, 127.1.0.0/16]
    sourceAddresses: [192.0.2.7, '2001:db8::7']
    allowedClients: [10.0.0.0/8, 0.0.0.0/0, '::/0']
    insecureOpenProxy: true
    allowedTargets: [10.0.0.0/8, '.internal.example:25']
    maxConnections: 65536
    maxHeaderBytes: 1024
    connectTimeout: 5m
    idleTimeout: 1h
    faults:
    - proxies: [default/px-*, '*/slow']
      latency: 250ms
      refuseAfter: 10
      proxyAuth: true
      resetRatio: 0.5
      failRatio: 1
      createError: Transient
    - proxies: '*'
",
    );
    assert_eq!(entry.max_concurrent_creates, 64);
    let ProviderBlock::Local(block) = entry.block else { panic!("{:?}", entry.block) };
    assert_eq!(block.listen_addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.1/32", "127.1.0.0/16"]);
    assert_eq!((block.source_addresses.len(), block.allowed_clients.len(), block.faults.len()), (2, 3, 2));
    assert!(!block.allowed_targets.is_empty());
    assert_eq!((block.connect_timeout, block.idle_timeout), (Duration::from_secs(300), Duration::from_secs(3600)));
    let knobs = &block.faults[0];
    assert_eq!(knobs.proxies, ["default/px-*", "*/slow"]);
    assert_eq!((knobs.latency, knobs.refuse_after, knobs.proxy_auth), (Some(Duration::from_millis(250)), Some(10), true));
    assert_eq!((knobs.reset_ratio, knobs.fail_ratio, knobs.create_error), (0.5, 1.0, Some(ErrorClass::Transient)));
    assert_eq!(block.faults[1], FaultKnobs { proxies: vec!["*".to_owned()], ..FaultKnobs::default() });
}

/// PC-77: every fault at once, with index, name, key path and reason.
#[test]
fn every_fault_of_a_file_is_told_at_once() {
    let text = "providers:
- name: Lab
  type: local
  local: {maxConnections: 0, conectTimeout: 1s}
- name: lab
  type: vmware
- name: lab
  type: local
  maxConcurrentCreates: 65
- 7
- {}
";
    assert_eq!(
        faults(text),
        [
            "providers.yaml:2: providers[0] \"Lab\", name: must be a DNS-1123 label: at most 63 of a-z, 0-9 and -, beginning and ending with a letter or digit",
            "providers.yaml:4: providers[0] \"Lab\", local.maxConnections: must be 1-65536, is 0",
            "providers.yaml:4: providers[0] \"Lab\", local.conectTimeout: is not a known key: known are listenAddresses, sourceAddresses, insecureOpenProxy, allowedClients, allowedTargets, maxConnections, maxHeaderBytes, connectTimeout, idleTimeout, faults",
            "providers.yaml:6: providers[1] \"lab\", type: \"vmware\" is not a type of this version: known are local, kubernetes, gcp",
            "providers.yaml:9: providers[2] \"lab\", maxConcurrentCreates: must be 1-64, is 65",
            "providers.yaml:10: providers[3], must be a map",
            "providers.yaml:11: providers[4], name: is required",
            "providers.yaml:11: providers[4], type: is required: one of local, kubernetes, gcp",
            "providers.yaml:7: providers[2] \"lab\", name: is the name of providers[1], too: names must be unique",
        ]
    );
}

#[test]
fn a_name_is_used_once() {
    assert_eq!(
        faults("providers: [{name: a, type: local}, {name: a, type: local}]"),
        ["providers.yaml:1: providers[1] \"a\", name: is the name of providers[0], too: names must be unique"]
    );
}

/// PC-78: unknown and repeated keys are refused at every level.
#[test]
fn unknown_and_repeated_keys_are_refused_at_every_level() {
    for (text, path) in [
        ("providers: []\nother: 1".to_owned(), "other"),
        ("providers: []\nproviders: []".to_owned(), "providers"),
        ("providers: [{name: a, type: local, x: 1}]".to_owned(), "x"),
        ("providers: [{name: a, type: local, name: b}]".to_owned(), "name"),
        ("providers: [{name: a, type: local, kvm: {}}]".to_owned(), "kvm"),
        (local("x: 1"), "local.x"),
        (local("maxConnections: 1\n    maxConnections: 2"), "local.maxConnections"),
        (local("faults: [{proxies: '*', x: 1}]"), "local.faults[0].x"),
        (local("faults: [{proxies: '*', proxyAuth: true, proxyAuth: true}]"), "local.faults[0].proxyAuth"),
    ] {
        let found = parse("p", text.as_bytes()).expect_err(&text);
        assert!(found.iter().any(|fault| fault.path == path && fault.line.is_some()), "{path}: {found:?}");
    }
}

/// LO-3's table, beyond its bounds.
#[test]
fn values_out_of_bounds_are_refused_by_their_key() {
    for (block, path) in [
        ("listenAddresses: []", "listenAddresses"),
        ("listenAddresses: 127.0.0.1", "listenAddresses"),
        ("listenAddresses: [localhost]", "listenAddresses[0]"),
        ("listenAddresses: [127.0.0.0/8]", "listenAddresses[0]"),
        ("listenAddresses: ['::1']", "listenAddresses[0]"),
        ("listenAddresses: [0.0.0.0]", "listenAddresses[0]"),
        ("listenAddresses: [7]", "listenAddresses[0]"),
        ("sourceAddresses: [10.0.0.0/8]", "sourceAddresses[0]"),
        ("sourceAddresses: [10.0.0.1, 10.0.0.1]", "sourceAddresses"),
        ("allowedClients: [x]", "allowedClients[0]"),
        ("allowedClients: [0.0.0.0/0]", "allowedClients[0]"),
        ("allowedClients: ['::/0']", "allowedClients[0]"),
        ("insecureOpenProxy: 1", "insecureOpenProxy"),
        ("allowedTargets: ['*.example']", "allowedTargets"),
        ("maxConnections: 65537", "maxConnections"),
        ("maxConnections: 1.5", "maxConnections"),
        ("maxConnections: '10'", "maxConnections"),
        ("maxHeaderBytes: 1023", "maxHeaderBytes"),
        ("maxHeaderBytes: 99999999999999999999999", "maxHeaderBytes"),
        ("connectTimeout: 10", "connectTimeout"),
        ("connectTimeout: 999ms", "connectTimeout"),
        ("connectTimeout: 301s", "connectTimeout"),
        ("idleTimeout: 2h", "idleTimeout"),
        ("idleTimeout: soon", "idleTimeout"),
        ("faults: {}", "faults"),
        ("faults: [x]", "faults[0]"),
        ("faults: [{latency: 1s}]", "faults[0].proxies"),
        ("faults: [{proxies: []}]", "faults[0].proxies"),
        ("faults: [{proxies: [px-1]}]", "faults[0].proxies[0]"),
        ("faults: [{proxies: px-1}]", "faults[0].proxies"),
        ("faults: [{proxies: '*', resetRatio: 1.1}]", "faults[0].resetRatio"),
        ("faults: [{proxies: '*', failRatio: -0.1}]", "faults[0].failRatio"),
        ("faults: [{proxies: '*', refuseAfter: -1}]", "faults[0].refuseAfter"),
        ("faults: [{proxies: '*', createError: NotFound}]", "faults[0].createError"),
        ("faults: [{proxies: '*', latency: 1h}]", "faults[0].latency"),
    ] {
        let found = parse("p", local(block).as_bytes()).expect_err(block);
        let path = format!("local.{path}");
        assert_eq!(found.iter().map(|fault| fault.path.as_str()).collect::<Vec<_>>(), [path], "{block}");
    }
}

fn kubernetes(block: &str) -> String {
    format!("providers:\n- name: pods\n  type: kubernetes\n  kubernetes:\n    {block}\n")
}

/// K8 §1.
#[test]
fn a_kubernetes_entry_without_a_block_has_the_defaults_of_the_table() {
    let entry = only("providers: [{name: pods, type: kubernetes}]");
    assert_eq!(entry.type_name(), "kubernetes");
    let ProviderBlock::Kubernetes(block) = entry.block else { panic!("{:?}", entry.block) };
    assert_eq!(block, KubernetesBlock::default());
    assert_eq!((block.image.as_str(), block.cloud_init_policy), ("ubuntu/squid:6.6-24.04_edge", CloudInitPolicy::Ignore));
    let shown = |amounts: &std::collections::BTreeMap<&str, Quantity>| amounts.iter().map(|(k, q)| format!("{k}={q}")).collect::<Vec<_>>();
    assert_eq!(shown(&block.resources.requests), ["cpu=50m", "memory=64Mi"]);
    assert_eq!(shown(&block.resources.limits), ["memory=256Mi"]);
    assert_eq!(block.max_file_descriptors, 16384);
    assert!(block.allowed_clients.is_empty() && block.allowed_destinations.is_empty() && block.image_pull_secrets.is_empty());
}

#[test]
fn every_key_of_the_kubernetes_block_is_read() {
    let entry = only(
        "providers:
- name: pods
  type: kubernetes
  kubernetes:
    image: registry.example:5000/team/squid:7
    cloudInitPolicy: Reject
    resources:
      requests: {cpu: 0.5, memory: 128Mi, ephemeral-storage: 1Gi}
      limits: {cpu: 2, memory: 0.5Gi}
    maxFileDescriptors: 1024
    allowedClients: [10.0.0.0/8, 192.0.2.7, '2001:db8::1/32']
    allowedDestinations: [10.1.2.3/24, 'fd00::/64']
    imagePullSecrets: [regcred, other.one]
",
    );
    let ProviderBlock::Kubernetes(block) = entry.block else { panic!("{:?}", entry.block) };
    assert_eq!((block.image.as_str(), block.cloud_init_policy), ("registry.example:5000/team/squid:7", CloudInitPolicy::Reject));
    assert_eq!(block.resources.requests["cpu"].as_str(), "0.5");
    assert_eq!(block.resources.requests.len(), 3);
    assert_eq!(block.resources.limits["memory"], Quantity::parse("512Mi").unwrap());
    assert_eq!(block.max_file_descriptors, 1024);
    let shown = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&block.allowed_clients), ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"]);
    assert_eq!(shown(&block.allowed_destinations), ["10.1.2.0/24", "fd00::/64"]);
    assert_eq!(block.image_pull_secrets, ["regcred", "other.one"]);
    // A map that is given is the whole of it.
    let entry = only(&kubernetes("resources: {requests: {memory: 512Mi}, limits: {}}"));
    let ProviderBlock::Kubernetes(block) = entry.block else { panic!("{:?}", entry.block) };
    assert_eq!((block.resources.requests.len(), block.resources.limits.len()), (1, 0));
}

/// K8 §1's table, beyond its bounds.
#[test]
fn values_of_the_kubernetes_block_out_of_bounds_are_refused_by_their_key() {
    for (block, path, reason) in [
        ("image: ''", "image", "must be an image reference"),
        ("image: 7", "image", "must be a string, is a number: put it in quotes"),
        ("image: 'https://r.example/squid'", "image", "must be an image reference"),
        ("cloudInitPolicy: ignore", "cloudInitPolicy", "must be Ignore or Reject"),
        ("resources: []", "resources", "must be a map"),
        ("resources: {requests: 1}", "resources.requests", "must be a map"),
        ("resources: {requests: {gpu: 1}}", "resources.requests.gpu", "is not a known key: known are cpu, memory, ephemeral-storage"),
        ("resources: {claims: []}", "resources.claims", "is not a known key"),
        ("resources: {requests: {memory: lots}}", "resources.requests.memory", "must be a quantity"),
        ("resources: {requests: {memory: true}}", "resources.requests.memory", "must be a quantity"),
        ("resources: {requests: {memory: -1}}", "resources.requests.memory", "must be a quantity"),
        ("resources: {limits: {memory: 15Mi}}", "resources.limits.memory", "must be 16Mi to 1Ti, is 15Mi"),
        ("resources: {limits: {cpu: 1025}}", "resources.limits.cpu", "must be 1m to 1024, is 1025"),
        ("resources: {limits: {memory: 32Mi}}", "resources.requests.memory", "64Mi is more than limits.memory, 32Mi"),
        ("resources: {requests: {cpu: '1', memory: 300Mi}}", "resources.requests.memory", "300Mi is more than limits.memory, 256Mi"),
        ("maxFileDescriptors: 1023", "maxFileDescriptors", "must be 1024-65536, is 1023"),
        ("maxFileDescriptors: 65537", "maxFileDescriptors", "must be 1024-65536, is 65537"),
        ("allowedClients: 10.0.0.0/8", "allowedClients", "must be a list"),
        ("allowedClients: [10.0.0.0/33]", "allowedClients[0]", "must be a CIDR"),
        ("allowedClients: ['::/0']", "allowedClients[0]", "has IPv4 addresses in their IPv6 form in it"),
        ("allowedDestinations: [intranet.example]", "allowedDestinations[0]", "must be a CIDR"),
        ("allowedDestinations: [\"10.0.0.0/8\\nhttp_access allow all\"]", "allowedDestinations[0]", "must be a CIDR"),
        ("allowedDestinations: ['::ffff:10.0.0.0/104']", "allowedDestinations[0]", "has IPv4 addresses in their IPv6 form in it"),
        ("allowedDestinations: ['::/64']", "allowedDestinations[0]", "has IPv4 addresses in their IPv6 form in it"),
        ("imagePullSecrets: [Reg_Cred]", "imagePullSecrets[0]", "must be the name of a Secret"),
        ("imagePullSecrets: [a, a]", "imagePullSecrets", "a is there more than once"),
        ("replicas: 2", "replicas", "is not a known key"),
        ("image: a\n    image: b", "image", "is there more than once"),
    ] {
        let found = parse("p", kubernetes(block).as_bytes()).expect_err(block);
        let told: Vec<_> = found.iter().map(|fault| (fault.path.as_str(), fault.reason.as_str(), fault.line.is_some())).collect();
        let [(at, why, true)] = told[..] else { panic!("{block}: {told:?}") };
        assert_eq!(at, format!("kubernetes.{path}"), "{block}");
        assert!(why.starts_with(reason), "{block}: {why}");
    }
    // Every fault of the block at once (PC-77).
    let all = "image: UPPER\n    cloudInitPolicy: x\n    resources: {limits: {cpu: x}}\n    maxFileDescriptors: 1\n    nope: 1";
    assert_eq!(parse("p", kubernetes(all).as_bytes()).unwrap_err().len(), 5);
}

/// PC-81: a block of another type is an error that names both, and a required block is asked for.
#[test]
fn a_block_of_another_type_is_told_with_both_types() {
    static OTHER: Type =
        Type { name: "other", block_required: true, live: &[], files: |_| Vec::new(), warnings: |_| Vec::new(), read: |_, _| None };
    let read = |text: &str| {
        let faults = parse_nodes("p", &yaml::documents(text.as_bytes()).unwrap(), &[&local::TYPE, &OTHER]).unwrap_err();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        read("providers: [{name: a, type: local, other: {}}]"),
        ["p:1: providers[0] \"a\", other: is the block of type other, but the entry is of type local"]
    );
    assert_eq!(read("providers: [{name: a, type: other}]"), ["p:1: providers[0] \"a\", other: is required: the block of type other"]);
    assert!(read("providers: [{name: a, type: x}]")[0].ends_with("known are local, other"));
}

/// PC-82.
#[test]
fn an_empty_list_is_accepted_with_a_warning() {
    let config = parse("p", b"providers: []").unwrap();
    assert_eq!((config.entries.len(), config.warnings.len()), (0, 1));
}

/// PC-73: what is open on purpose is told at every start, once for each entry.
#[test]
fn an_open_proxy_is_told_with_its_entry() {
    let text = "providers: [{name: a, type: local, local: {insecureOpenProxy: true, allowedClients: ['::/0', 0.0.0.0/0]}}, {name: b, type: local}]";
    let warnings = parse("p", text.as_bytes()).unwrap().warnings;
    assert_eq!(warnings, ["entry \"a\": insecureOpenProxy: its proxies serve everybody who can reach them"]);
}

#[test]
fn what_is_no_providers_file_is_refused_whole() {
    for text in ["", "7", "a: 1", "providers:", "providers: {}", "providers: []\n---\nproviders: []", "providers: [", "\u{feff}"] {
        let found = parse("p", text.as_bytes());
        // `providers:` alone is a list without entries.
        assert_eq!(found.is_err(), text != "providers:", "{text:?} {found:?}");
        assert!(found.err().into_iter().flatten().all(|fault| !fault.path.is_empty()), "{text:?}");
    }
    assert!(load(Path::new("/nonexistent/providers.yaml")).unwrap_err()[0].to_string().contains("cannot be read"));
}

/// PC-59: the fingerprint follows the entry, not its layout.
#[test]
fn the_fingerprint_follows_the_entry() {
    let a = only("providers: [{name: lab, type: local, local: {maxConnections: 5, idleTimeout: 5m}}]").fingerprint;
    let same = only("# other layout\nproviders:\n- type: local\n  local: {idleTimeout: 5m, maxConnections: 5}\n  name: lab\n").fingerprint;
    let other = only("providers: [{name: lab, type: local, local: {maxConnections: 6, idleTimeout: 5m}}]").fingerprint;
    assert_eq!(a, same);
    assert_ne!(a, other);
}

/// LO-3: what an instance keeps needs a restart, what it is run with does not.
#[test]
fn the_foundation_follows_only_what_needs_a_restart() {
    let of = |rest: &str| only(&format!("providers: [{{name: lab, type: local{rest}}}]"));
    let plain = of("");
    for live in [
        "faults: [{proxies: '*', latency: 1s}]",
        "allowedTargets: [10.0.0.0/8]",
        "allowedClients: [10.0.0.0/8]",
        "maxConnections: 5",
        "maxHeaderBytes: 2048",
        "connectTimeout: 2s",
        "idleTimeout: 2s",
    ] {
        let changed = of(&format!(", local: {{{live}}}"));
        assert_eq!(changed.foundation, plain.foundation, "{live}");
        assert_ne!(changed.fingerprint, plain.fingerprint, "{live}");
    }
    for lasting in [", maxConcurrentCreates: 5", ", local: {listenAddresses: [127.0.0.2]}", ", local: {sourceAddresses: [127.0.0.2]}"] {
        assert_ne!(of(lasting).foundation, plain.foundation, "{lasting}");
    }
}

/// operator.md §12.
#[test]
fn a_fault_in_brief_is_a_sentence() {
    let faults = parse("p", b"providers: [{name: a, type: local, local: {maxConnections: 0}}, {type: local}, 7]").unwrap_err();
    let brief: Vec<_> = faults.iter().map(Fault::brief).collect();
    assert_eq!(
        brief,
        ["providers[0] \"a\": local.maxConnections must be 1-65536, is 0", "providers[1]: name is required", "providers[2]: must be a map",]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the bytes: entries, or faults that each name a path.
    #[test]
    fn any_bytes_are_answered(text in "(providers:\n- name: a\n  type: local\n)?[-{}\\[\\]: \nabc0-9,*&]{0,60}") {
        match parse("p", text.as_bytes()) {
            Ok(config) => prop_assert!(config.entries.len() + config.warnings.len() > 0),
            Err(faults) => prop_assert!(!faults.is_empty() && faults.iter().all(|f| !f.path.is_empty() && !f.reason.is_empty())),
        }
    }
}

/// Issue 10, 28: "known are providers, providers".
#[test]
fn the_keys_that_are_known_are_named_once_each() {
    for text in [
        "providers: []\nproxies: []",
        "providers: [{name: a, type: local, zone: x}]",
        "providers: [{name: a, type: local, local: {zone: x}}]",
    ] {
        let [fault] = &faults(text)[..] else { panic!("one fault in {text}") };
        let known: Vec<&str> = fault.split_once("known are ").unwrap().1.split(", ").collect();
        let distinct: std::collections::BTreeSet<&str> = known.iter().copied().collect();
        assert_eq!(known.len(), distinct.len(), "{fault}");
    }
    assert!(faults("providers: []\nproxies: []")[0].ends_with("is not a known key: known are providers"));
}

/// LO-1.
#[test]
fn a_pattern_names_proxies_with_stars() {
    for (pattern, proxy, fits) in [
        ("default/px-1", "default/px-1", true),
        ("default/px-1", "default/px-10", false),
        ("default/*", "default/px-10", true),
        ("*/px-1", "shop/px-1", true),
        ("*", "shop/px-1", true),
        ("*/px-*-eu", "shop/px-1-us-eu", true),
        ("*/px-*-eu", "shop/px-1-eu-1", false),
        ("", "shop/px-1", false),
    ] {
        let knobs = FaultKnobs { proxies: vec![pattern.to_owned()], ..FaultKnobs::default() };
        assert_eq!(knobs.names(proxy), fits, "{pattern} on {proxy}");
    }
}

/// A plain `no` is a boolean in YAML 1.1, which whoever wrote it did not mean.
#[test]
fn a_name_that_yaml_reads_as_a_boolean_is_told_so() {
    let told = "must be a string, is a boolean: put it in quotes (a plain yes, no, on, off, y or n is one, too)";
    for word in ["yes", "no", "on", "off", "y", "n", "Yes", "NO", "Y", "N", "true", "False"] {
        assert_eq!(
            faults(&format!("providers: [{{name: {word}, type: local}}]")),
            [format!("providers.yaml:1: providers[0], name: {told}")]
        );
        let manifest = format!(
            "apiVersion: v1
kind: Secret
metadata: {{name: a, labels: {{site: {word}}}}}
stringData: {{password: {word}}}"
        );
        let found: Vec<_> =
            crate::manifest::parse("m", manifest.as_bytes()).faults.into_iter().map(|fault| (fault.path, fault.reason)).collect();
        let expected = ["metadata.labels.site", "stringData.password"].map(|path| (path.to_owned(), told.to_owned()));
        assert_eq!(found, expected, "{word}");
    }
    assert_eq!(&*only("providers: [{name: 'no', type: local}]").name, "no");
}

/// The keys of a map that are the user's own names.
#[test]
fn a_map_with_free_keys_tells_each_path_in_quotes_where_it_needs_them() {
    let nodes = crate::yaml::documents(b"images: {plain: 1, debian-12.7: 2, 'a b': 3, plain: 4}").unwrap();
    let mut sink = Sink::new("f", 0);
    let mut keys = Keys::new(&nodes[0], "kvm", &mut sink).unwrap();
    let named = keys.named("images", &mut sink).unwrap();
    let paths: Vec<_> = named.iter().map(|entry| (entry.name, entry.path.as_str(), entry.node.line)).collect();
    assert_eq!(
        paths,
        [
            ("plain", "kvm.images.plain", Some(1)),
            ("debian-12.7", "kvm.images[\"debian-12.7\"]", Some(1)),
            ("a b", "kvm.images[\"a b\"]", Some(1))
        ]
    );
    let told: Vec<_> = sink.into_faults().iter().map(|fault| format!("{}: {}", fault.path, fault.reason)).collect();
    assert_eq!(told, ["kvm.images.plain: is there more than once"]);
}

/// PC-104: what lies below a list or a map can be live, too.
#[test]
fn live_keys_below_lists_and_maps_do_not_count_for_the_foundation() {
    static DEEP: Type = Type {
        name: "deep",
        block_required: true,
        live: &["note", "hosts.*.weight", "images.*"],
        files: |_| Vec::new(),
        warnings: |_| Vec::new(),
        read: |_, _| None,
    };
    let entry = |block: serde_json::Value| lasting(serde_json::json!({"name": "a", "deep": block}), &DEEP);
    let base = serde_json::json!({"hosts": [{"name": "h1", "weight": 1}], "images": {"debian": 1}, "note": "x"});
    let live = serde_json::json!({"hosts": [{"name": "h1", "weight": 2}], "images": {"other": 2, "more": 3}, "note": "y"});
    let other = serde_json::json!({"hosts": [{"name": "h2", "weight": 1}], "images": {"debian": 1}, "note": "x"});
    assert_eq!(entry(base.clone()), entry(live));
    assert_ne!(entry(base), entry(other));
}

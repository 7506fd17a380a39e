//! What is committed beside the code must be what the code reads: samples, the annotated providers file, the documents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use egress_protocol::prober::ProbeFailure;
use egress_protocol::resource::{LABEL_CLOUD_INIT, LABEL_CREDENTIALS, Mode, Phase, crd};
use serde_json::Value;

use crate::manifest::{Document, Manifest};
use crate::providers::{ProviderBlock, ProvidersConfig};
use crate::{cli, manifest, providers, validate_files};

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

pub(crate) fn text(relative: &str) -> String {
    std::fs::read_to_string(path(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"))
}

fn sample(name: &str) -> Manifest {
    let file = format!("samples/{name}");
    let manifest = manifest::parse(&file, text(&file).as_bytes());
    assert_eq!(manifest.faults, [], "{name}");
    manifest
}

/// The annotated file with every entry that is commented out, as its head says how.
fn annotated() -> ProvidersConfig {
    let lines = text("providers.yaml");
    let lines = lines.lines().map(|line| match line.strip_prefix("  #") {
        Some(rest) if rest.is_empty() || rest.starts_with("- ") || rest.starts_with("  ") => format!("  {rest}"),
        _ => line.to_owned(),
    });
    providers::parse("providers.yaml", lines.collect::<Vec<_>>().join("\n").as_bytes()).unwrap()
}

/// RE and SA: everything of `config/` that is a manifest or a providers file is in order.
#[test]
fn every_sample_is_valid() {
    let samples = validate_files(&[path("samples")]);
    assert_eq!((samples.exit_code(), samples.files), (0, 4), "{samples}");
    for file in ["samples/pools/pool.yaml", "samples/pools/pool-small.yaml", "providers.yaml"] {
        let report = validate_files(&[path(file)]);
        assert_eq!(report.exit_code(), 0, "{report}");
    }
}

/// SA-3: applying the folder as a whole makes at most one instance per provider.
#[test]
fn the_folder_of_samples_makes_at_most_one_instance_per_provider() {
    let mut made = BTreeMap::new();
    for file in ["local.yaml", "kubernetes.yaml", "gcp.yaml", "external.yaml"] {
        for located in sample(file).documents {
            if let Document::Proxy(proxy) = located.value {
                *made.entry(proxy.spec.provider).or_insert(0) += usize::from(proxy.spec.mode == Mode::Managed);
            }
        }
    }
    assert!(made.values().all(|n| *n <= 1), "{made:?}");
}

/// SA-5: provider and zone of every sample are those of the annotated providers file; Secrets are there and labelled;
/// members that share a port find addresses for it.
#[test]
fn every_sample_resolves_against_the_annotated_providers_file() {
    let config = annotated();
    for file in ["local.yaml", "kubernetes.yaml", "gcp.yaml", "external.yaml", "pools/pool.yaml", "pools/pool-small.yaml"] {
        let documents: Vec<Document> = sample(file).documents.into_iter().map(|located| located.value).collect();
        let labelled = |name: &str, label: &str| {
            documents.iter().any(|document| {
                matches!(document, Document::Secret(secret) if secret.name == name && secret.labels.get(label).is_some_and(|v| v == "true"))
            })
        };
        let mut ports = BTreeMap::new();
        for document in &documents {
            let Document::Proxy(proxy) = document else { continue };
            let spec = &proxy.spec;
            if let Some(secret) = spec.cloud_init.as_ref().and_then(|c| c.secret_ref.as_ref()) {
                assert!(labelled(&secret.name, LABEL_CLOUD_INIT), "{file} {}", proxy.name);
            }
            if let Some(secret) = spec.endpoint.as_ref().and_then(|e| e.credentials_secret_ref.as_ref()) {
                assert!(labelled(&secret.name, LABEL_CREDENTIALS), "{file} {}", proxy.name);
            }
            let Some(provider) = &spec.provider else { continue };
            let entry = config.entry(provider).unwrap_or_else(|| panic!("{file}: {provider}"));
            let ProviderBlock::Local(block) = &entry.block else { continue };
            if let Some(zone) = spec.placement.as_ref().and_then(|placement| placement.zone.as_ref()) {
                assert!(block.source_addresses.iter().any(|address| address.to_string() == *zone), "{file} {zone}");
            }
            *ports.entry((provider.clone(), spec.port)).or_insert(0_usize) += 1;
            let room: usize = block.listen_addresses.iter().map(|net| 1 << (32 - net.prefix_len())).sum();
            assert!(ports.values().all(|n| *n <= room), "{file} {ports:?}");
        }
    }
}

/// IN-3: what needs credentials or a cluster is commented out, and complete: it loads when the comment is taken away.
#[test]
fn the_annotated_providers_file_enables_what_needs_nothing_and_has_the_rest_commented_out() {
    let names = |config: &ProvidersConfig| config.entries.iter().map(|entry| entry.type_name()).collect::<Vec<_>>();
    assert_eq!(names(&providers::load(&path("providers.yaml")).unwrap()), ["local"]);
    assert_eq!(names(&annotated()), providers::TYPES.map(|known| known.name));
}

/// The annotated file shows every key of the block, with the defaults but for the addresses.
#[test]
fn the_annotated_providers_file_shows_every_key() {
    let file = text("providers.yaml");
    for place in ["zz: 1", "local: {zz: 1}", "local: {faults: [{proxies: '*', zz: 1}]}"] {
        for key in known("local", place) {
            assert!(file.contains(&format!("{key}:")), "{key}");
        }
    }
    for key in known("gcp", "gcp: {zz: 1}") {
        assert!(file.contains(&format!("{key}:")), "{key}");
    }
    for place in ["kubernetes: {zz: 1}", "kubernetes: {resources: {zz: 1}}", "kubernetes: {resources: {limits: {zz: 1}}}"] {
        for key in known("kubernetes", place) {
            assert!(file.contains(&format!("{key}:")), "{key}");
        }
    }
    let config = annotated();
    let block_of = |name: &str| config.entry(name).unwrap().block.clone();
    assert_eq!(block_of("kubernetes"), ProviderBlock::Kubernetes(providers::KubernetesBlock::default()));
    let ProviderBlock::Local(block) = &block_of("local") else { panic!("local") };
    let defaults = providers::LocalBlock { listen_addresses: block.listen_addresses.clone(), ..Default::default() };
    assert_eq!(*block, defaults);
}

/// The keys a place of the providers file knows, as its refusal of an unknown one lists them.
pub(crate) fn known(of_type: &str, entry: &str) -> BTreeSet<String> {
    let faults = providers::parse("p", format!("providers: [{{name: a, type: {of_type}, {entry}}}]").as_bytes()).unwrap_err();
    let list = faults.iter().find_map(|fault| fault.reason.split_once("known are ")).unwrap().1;
    list.split(", ").map(str::to_owned).collect()
}

/// The first cells of the table rows of one section of a document, without their backticks.
fn documented(document: &str, heading: &str) -> BTreeMap<String, String> {
    let document = text(document);
    let section = document.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no section {heading}")).1;
    let level = heading.split(' ').next().unwrap();
    let end = section.find(&format!("\n{level} ")).unwrap_or(section.len());
    let mut rows = BTreeMap::new();
    for line in section[..end].lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        for name in cells[0].trim_start_matches("| ").split(", ") {
            rows.insert(name.trim_matches('`').to_owned(), cells[1].trim().to_owned());
        }
    }
    rows
}

fn names(rows: &BTreeMap<String, String>) -> BTreeSet<String> {
    rows.keys().cloned().collect()
}

/// Every flag and default of a command is in the document, and no other.
#[test]
fn the_document_has_every_flag_with_its_default() {
    for (command, heading) in [
        ("run", "### Flags of `run`"),
        ("standalone", "### Flags of `standalone`"),
        ("check", "### Flags of `check`"),
        ("get", "### Flags of `get`"),
    ] {
        let rows = documented("../docs/configuration.md", heading);
        let flags = cli::flags(command);
        let documented: BTreeSet<_> = rows.keys().map(|flag| flag.split(' ').next().unwrap().to_owned()).collect();
        assert_eq!(documented, flags.keys().map(|flag| format!("--{flag}")).collect(), "{command}");
        for (flag, default) in rows.iter().map(|(flag, default)| (flag.split(' ').next().unwrap(), default)) {
            if let Some(value) = &flags[flag.trim_start_matches('-')] {
                assert_eq!(default, &format!("`{value}`"), "{flag}");
            }
        }
    }
}

#[test]
fn the_document_has_every_key_of_the_providers_file() {
    let document = "../docs/configuration.md";
    assert_eq!(names(&documented(document, "### An entry")), known("local", "zz: 1"));
    assert_eq!(names(&documented(document, "### The block `local`")), known("local", "local: {zz: 1}"));
    assert_eq!(names(&documented(document, "### Items of `faults`")), known("local", "local: {faults: [{proxies: '*', zz: 1}]}"));
    assert_eq!(names(&documented(document, "### The block `kubernetes`")), known("kubernetes", "kubernetes: {zz: 1}"));
    assert_eq!(names(&documented(document, "### The block `gcp`")), known("gcp", "gcp: {zz: 1}"));
    assert_eq!(names(&documented("../docs/gcp-provider.md", "### The block")), known("gcp", "gcp: {zz: 1}"));
    assert_eq!(names(&documented("../docs/kubernetes-provider.md", "### The block")), known("kubernetes", "kubernetes: {zz: 1}"));
}

/// Every field of the schema, by its path below `spec` or `status`.
fn fields(schema: &Value, path: &str, into: &mut BTreeSet<String>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match schema["properties"].is_object() {
            true => fields(schema, &path, into),
            false => drop(into.insert(path)),
        }
    }
}

#[test]
fn the_document_has_every_field_phase_and_reason() {
    let document = "../docs/proxies.md";
    let schema = crd::proxy()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    for part in ["spec", "status"] {
        let mut expected = BTreeSet::new();
        fields(&schema["properties"][part], part, &mut expected);
        assert_eq!(names(&documented(document, &format!("## `{part}`"))), expected);
    }
    let phases: BTreeSet<String> = Phase::ALL.iter().map(|phase| phase.as_str().to_owned()).collect();
    assert_eq!(names(&documented(document, "## Phases")), phases);
    let source = text("../protocol/src/resource/conditions.rs");
    let words = source.split_once("pub mod reason").unwrap().1.split_once("\n}").unwrap().0;
    let reasons: BTreeSet<String> = words
        .lines()
        .filter(|line| line.contains("pub const"))
        .filter_map(|line| Some(line.split_once("= \"")?.1.split_once('"')?.0.to_owned()))
        .collect();
    let mut told = BTreeSet::new();
    for heading in ["### `Provisioned`", "### `Healthy`", "### `Ready`"] {
        told.extend(names(&documented(document, heading)));
    }
    assert_eq!(told, reasons);
    let causes: BTreeSet<String> = ProbeFailure::ALL.iter().map(|cause| cause.as_str().to_owned()).collect();
    assert_eq!(names(&documented(document, "### Causes of `ProbeFailed`")), causes);
}

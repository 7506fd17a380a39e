use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::credentials::Environment;
use super::*;
use crate::fault::Sink;
use crate::providers::{Snapshot, parse};
use crate::yaml;

fn faults(block: &str) -> Vec<String> {
    let text = format!("providers:\n- name: g\n  type: gcp\n  gcp:\n{}", indented(block));
    parse("p", text.as_bytes()).expect_err(block).iter().map(|fault| fault.brief().replace("providers[0] \"g\": ", "")).collect()
}

fn indented(block: &str) -> String {
    block.lines().map(|line| format!("    {line}\n")).collect()
}

fn read(block: &str, environment: &Environment) -> GcpBlock {
    let nodes = yaml::documents(block.as_bytes()).unwrap_or_else(|_| panic!("{block}"));
    let mut sink = Sink::new("p", 0);
    let read = read::block(&nodes[0], environment, &mut sink);
    assert_eq!(sink.len(), 0, "{block}: {:?}", sink.into_faults());
    read.unwrap()
}

/// GC §1, the column of defaults.
#[test]
fn what_is_left_out_has_the_defaults_of_the_table() {
    let block = read("project: my-project-123456", &Environment::default());
    let expected = GcpBlock {
        project: "my-project-123456".to_owned(),
        network: "global/networks/default".to_owned(),
        subnetwork: None,
        network_tag: "proxy-operator".to_owned(),
        disk_size_gb: 10,
        address_mode: AddressMode::External,
        quota_regions: Vec::new(),
        credentials: Credentials::Metadata("metadata.google.internal".to_owned()),
        endpoint: "https://compute.googleapis.com".to_owned(),
    };
    assert_eq!(block, expected);
}

#[test]
fn every_key_is_taken_as_it_is_given() {
    let text = "
project: example.com:old-project
network: projects/shared-vpc/global/networks/crawl
subnetwork: https://www.googleapis.com/compute/v1/projects/shared-vpc/regions/europe-west1/subnetworks/crawl-ew1
networkTag: crawl
diskSizeGb: 65536
addressMode: Internal
quotaRegions: [europe-west1, us-east4]
credentialsFile: /etc/proxy-operator/gcp/credentials.json
endpoint: http://127.0.0.1:8080/
";
    let block = read(text, &Environment::default());
    assert_eq!(
        (block.project.as_str(), block.disk_size_gb, block.address_mode),
        ("example.com:old-project", 65_536, AddressMode::Internal)
    );
    assert_eq!((block.network_tag.as_str(), block.endpoint.as_str()), ("crawl", "http://127.0.0.1:8080"));
    assert_eq!(block.quota_regions, ["europe-west1", "us-east4"]);
    assert!(block.subnetwork.is_some_and(|path| path.ends_with("/crawl-ew1")));
    let file = CredentialFile { key: "gcp.credentialsFile".to_owned(), path: "/etc/proxy-operator/gcp/credentials.json".into() };
    assert_eq!(block.credentials.file(), Some(file));
    for project in ["123456789012", "a", "google.com:x-1"] {
        read(&format!("project: '{project}'"), &Environment::default());
    }
}

/// GC-2, PC-78, 82: all of a block's faults at once, each with its path.
#[test]
fn each_kind_of_fault_names_its_key_and_the_way_out() {
    let text = "
project: My_Project
network: networks/default
subnetwork: europe-west1/crawl
networkTag: 9crawl
diskSizeGb: 9
addressMode: internal
quotaRegions: [europe-west1, europe-west1, Europe, 7]
credentialsFile: credentials.json
endpoint: http://compute.example
region: europe-west1
";
    let expected = [
        "gcp.project must be a project's id, such as my-project-123456, or its number",
        "gcp.network must be global/networks/NAME, or the same below projects/PROJECT/",
        "gcp.subnetwork must be regions/REGION/subnetworks/NAME, or the same below projects/PROJECT/",
        "gcp.networkTag must be a tag: at most 63 of a-z, 0-9 and -, beginning with a letter, ending with a letter or digit",
        "gcp.diskSizeGb must be 10-65536, is 9",
        "gcp.addressMode must be External or Internal",
        "gcp.quotaRegions[1] europe-west1 is there more than once",
        "gcp.quotaRegions[2] must be a region's name, such as europe-west1",
        "gcp.quotaRegions[3] must be a region's name, such as europe-west1",
        "gcp.credentialsFile must be an absolute path, such as /etc/proxy-operator/gcp/credentials.json",
        "gcp.endpoint must be https:// off loopback: a token is sent there",
        "gcp.region is not a known key: known are project, network, subnetwork, networkTag, diskSizeGb, addressMode, quotaRegions, \
         credentialsFile, endpoint",
    ];
    assert_eq!(faults(text), expected);
}

#[test]
fn one_fault_at_a_time() {
    let many: Vec<String> = (0..21).map(|n| format!("r{n}")).collect();
    let many = format!("quotaRegions: [{}]", many.join(", "));
    for (line, key) in [
        ("project: ''", "gcp.project"),
        ("project: 7", "gcp.project"),
        ("project: -x", "gcp.project"),
        ("project: 'x:'", "gcp.project"),
        ("project: ':x'", "gcp.project"),
        ("project: a/b", "gcp.project"),
        ("project: x\nproject: y", "gcp.project"),
        ("network: global/networks/", "gcp.network"),
        ("network: global/networks/UPPER", "gcp.network"),
        ("network: projects/a/b/global/networks/x", "gcp.network"),
        ("network: https://www.googleapis.com/global/networks/x", "gcp.network"),
        ("subnetwork: regions/x/subnetworks/y/z", "gcp.subnetwork"),
        ("subnetwork: regions//subnetworks/y", "gcp.subnetwork"),
        ("networkTag: ''", "gcp.networkTag"),
        ("networkTag: a.b", "gcp.networkTag"),
        ("diskSizeGb: 65537", "gcp.diskSizeGb"),
        ("diskSizeGb: '10'", "gcp.diskSizeGb"),
        ("diskSizeGb: -1", "gcp.diskSizeGb"),
        ("addressMode: true", "gcp.addressMode"),
        ("quotaRegions: europe-west1", "gcp.quotaRegions"),
        (many.as_str(), "gcp.quotaRegions"),
        ("credentialsFile: ~/x.json", "gcp.credentialsFile"),
        ("endpoint: compute.googleapis.com", "gcp.endpoint"),
        ("endpoint: https://compute.googleapis.com/compute/v1", "gcp.endpoint"),
        ("endpoint: https://u:p@compute.googleapis.com", "gcp.endpoint"),
        ("endpoint: http://10.0.0.1", "gcp.endpoint"),
        ("endpoint: ftp://localhost", "gcp.endpoint"),
        ("Project: x", "gcp.Project"),
    ] {
        let with_project = if line.to_lowercase().starts_with("project") { line.to_owned() } else { format!("project: p1\n{line}") };
        let found = faults(&with_project);
        assert!(found.iter().any(|fault| fault.starts_with(&format!("{key} "))), "{line}: {found:?}");
    }
    for line in ["endpoint: http://localhost:1", "endpoint: 'http://[::1]:8080'", "endpoint: https://10.0.0.1"] {
        read(&format!("project: p1\n{line}"), &Environment::default());
    }
    let missing = parse("p", b"providers: [{name: g, type: gcp}]").unwrap_err();
    assert_eq!(missing[0].brief(), "providers[0] \"g\": gcp is required: the block of type gcp");
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    Environment::of(|name| variables.get(name).map(OsString::from))
}

/// GC-21: the order of the chain.
#[test]
fn the_chain_is_own_file_then_variable_then_gcloud_then_metadata_server() {
    let home = tempfile::tempdir().unwrap();
    let gcloud = home.path().join(".config/gcloud");
    std::fs::create_dir_all(&gcloud).unwrap();
    let at_home = home.path().to_str().unwrap();
    let named = ("GOOGLE_APPLICATION_CREDENTIALS", "/run/adc.json");
    let file = |path: &str, named_by| Credentials::File { path: PathBuf::from(path), named_by };
    let metadata = |host: &str| Credentials::Metadata(host.to_owned());

    assert_eq!(environment(&[("HOME", at_home)]).credentials(None), metadata(METADATA_HOST), "gcloud has no file");
    assert_eq!(environment(&[("GCE_METADATA_HOST", "127.0.0.1:9")]).credentials(None), metadata("127.0.0.1:9"));
    let well_known = gcloud.join("application_default_credentials.json");
    std::fs::write(&well_known, "{}").unwrap();
    let well_known = file(well_known.to_str().unwrap(), "gcloud's application default credentials");
    assert_eq!(environment(&[("HOME", at_home), ("GCE_METADATA_HOST", "127.0.0.1:9")]).credentials(None), well_known);
    assert_eq!(environment(&[("CLOUDSDK_CONFIG", gcloud.to_str().unwrap())]).credentials(None), well_known);
    let all = environment(&[("HOME", at_home), named]);
    assert_eq!(all.credentials(None), file("/run/adc.json", "GOOGLE_APPLICATION_CREDENTIALS"), "though it is not there");
    assert_eq!(all.credentials(Some("/own.json")), file("/own.json", "gcp.credentialsFile"));
    assert_eq!(environment(&[("GOOGLE_APPLICATION_CREDENTIALS", "")]).credentials(None), metadata(METADATA_HOST), "empty is not set");
}

/// GC-33, PC-59: the fingerprint follows the file's content, and a missing one is a warning.
#[test]
fn the_credential_file_is_one_of_the_entrys_files() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key.json");
    let path = dir.path().join("providers.yaml");
    let text = format!("providers:\n- name: g\n  type: gcp\n  gcp: {{project: p1, credentialsFile: {}}}\n", key.display());
    std::fs::write(&path, text).unwrap();
    let missing = Snapshot::read(&path);
    let config = missing.config.clone().unwrap();
    assert!(config.warnings.iter().any(|warning| warning.starts_with("entry \"g\": gcp.credentialsFile: ")), "{:?}", config.warnings);
    std::fs::write(&key, "{}").unwrap();
    let there = missing.again(&path).expect("the file landed").config.unwrap();
    assert!(there.warnings.is_empty());
    assert_ne!(there.entries[0].fingerprint, config.entries[0].fingerprint);
    assert_eq!(there.entries[0].foundation, config.entries[0].foundation, "no restart");
}

/// GC-32: what a running entry takes over.
#[test]
fn disk_size_and_quota_regions_need_no_restart() {
    let entry = |block: &str| {
        let text = format!("providers:\n- name: g\n  type: gcp\n  gcp:\n{}", indented(block));
        parse("p", text.as_bytes()).unwrap().entries.remove(0)
    };
    let before = entry("project: p1");
    for live in ["project: p1\ndiskSizeGb: 20", "project: p1\nquotaRegions: [europe-west1]"] {
        let after = entry(live);
        assert!(after.foundation == before.foundation && after.fingerprint != before.fingerprint, "{live}");
    }
    for lasting in ["project: p2", "project: p1\nnetworkTag: x", "project: p1\naddressMode: Internal"] {
        assert_ne!(entry(lasting).foundation, before.foundation, "{lasting}");
    }
}

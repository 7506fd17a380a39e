use super::*;
use crate::fault::Fault;
use crate::providers::{ProvidersConfig, local, parse_nodes};
use crate::yaml;

/// As a version reads it that registers the type.
fn parse(text: &str) -> Result<ProvidersConfig, Vec<Fault>> {
    let nodes = yaml::documents(text.as_bytes()).map_err(|_| Vec::new())?;
    parse_nodes("p", &nodes, &[&local::TYPE, &TYPE])
}

const LEAST: &str = "providers:
- name: lab
  type: proxmox
  proxmox:
    url: https://pve.example:8006
    tokenFile: /etc/token
    nodes: [pve-a]
    templates: {debian: {vmid: 9000}}
    machineTypes: {small: {cores: 1, memoryMiB: 512}}
";

fn block(text: &str) -> ProxmoxBlock {
    let config = parse(text).unwrap_or_else(|faults| panic!("{text} {faults:?}"));
    of(&config.entries[0].block).cloned().expect("the block of its type")
}

/// PX §1, the column of defaults.
#[test]
fn what_is_left_out_has_the_defaults_of_the_table() {
    let expected = ProxmoxBlock {
        url: "https://pve.example:8006".to_owned(),
        token_file: PathBuf::from("/etc/token"),
        trust: Trust::System,
        nodes: vec!["pve-a".to_owned()],
        iso_storage: "local".to_owned(),
        storage: None,
        bridge: None,
        vlan_tag: None,
        vmid_range: VmidRange { min: 100_000, max: 199_999 },
        templates: BTreeMap::from([("debian".to_owned(), Template::Shared(9000))]),
        machine_types: BTreeMap::from([("small".to_owned(), MachineType { cores: 1, memory_mib: 512, disk_gib: 0 })]),
        request_timeout: Duration::from_secs(30),
        vendor_data: Secret::default(),
        install_guest_agent: true,
    };
    assert_eq!(block(LEAST), expected);
    assert_eq!(block(&format!("{LEAST}    requestTimeoutSeconds: 0\n")), expected);
}

/// PX-3, PX-4, PC-74: what is named is what is followed and warned about.
#[test]
fn token_and_authority_are_its_files_and_open_trust_is_warned_about() {
    let config = parse(&format!("{LEAST}    caFile: /etc/ca\n")).expect("a CA");
    let files: Vec<_> = config.entries[0].files().into_iter().map(|file| (file.key, file.path)).collect();
    assert_eq!(
        files,
        [("proxmox.tokenFile".to_owned(), PathBuf::from("/etc/token")), ("proxmox.caFile".to_owned(), PathBuf::from("/etc/ca"))]
    );
    assert_eq!(config.warnings, Vec::<String>::new());
    let config = parse(&format!("{LEAST}    insecureSkipTLSVerify: true\n")).expect("no check");
    assert!(config.warnings[0].starts_with("entry \"lab\": insecureSkipTLSVerify: "), "{:?}", config.warnings);
    assert_eq!(config.entries[0].files().len(), 1);
}

/// PX-57, PC-104.
#[test]
fn only_the_live_keys_leave_the_foundation() {
    let foundation = |text: &str| parse(text).expect(text).entries[0].foundation.clone();
    let live =
        format!("{}    vendorData: '#!/bin/sh'\n    installGuestAgent: false\n", LEAST.replace("9000", "9001").replace("512", "1024"));
    assert_eq!(foundation(LEAST), foundation(&live));
    assert_ne!(foundation(LEAST), foundation(&format!("{LEAST}    bridge: vmbr1\n")));
}

/// PX-2, PX-3: all of a block's faults at once, each with its path.
#[test]
fn a_block_with_many_faults_names_each() {
    let text = "providers:
- name: lab
  type: proxmox
  proxmox:
    url: http://pve.example:8006
    tokenFile: token
    caFile: /etc/ca
    insecureSkipTLSVerify: true
    nodes: [pve-a, pve-a, PVE, -x, pve-b]
    isoStorage: 1local
    storage: a/b
    bridge: vmbr0.40
    vlanTag: 4095
    vmidRange: {min: 300, max: 200, mid: 1}
    templates:
      both: {vmid: 9000, perNode: {pve-a: 9000, pve-b: 9000}}
      none: {}
      low: {vmid: 99}
      part: {perNode: {pve-a: 9000}}
      more: {perNode: {pve-a: 9000, pve-b: 9001, pve-c: 9002}}
      text: {perNode: {pve-a: x, pve-b: 9001}}
    machineTypes:
      small: {cores: 0, memoryMiB: 127, diskGiB: 65537}
      none: {}
    requestTimeoutSeconds: 601
    vendorData: hello
    installGuestAgent: 1
    tokenfile: x
";
    let told: Vec<String> = parse(text).expect_err("faults").iter().map(ToString::to_string).collect();
    let paths = [
        "proxmox.url must be https:// off loopback",
        "proxmox.tokenFile must be an absolute path",
        "proxmox.caFile excludes insecureSkipTLSVerify",
        "proxmox.nodes[1] pve-a is there more than once",
        "proxmox.nodes[2] must be a node's name",
        "proxmox.nodes[3] must be a node's name",
        "proxmox.isoStorage must be a storage's id",
        "proxmox.storage must be a storage's id",
        "set bridge: vmbr0 and vlanTag: 40",
        "proxmox.vlanTag ",
        "proxmox.vmidRange must have min below max, has 300 and 200",
        "proxmox.vmidRange.mid is not a known key",
        "proxmox.templates.both must have either vmid or perNode",
        "proxmox.templates.none must have either vmid or perNode",
        "proxmox.templates.low.vmid ",
        "proxmox.templates \"part\" has no VMID in perNode for node pve-b",
        "proxmox.templates \"more\" has a VMID in perNode for pve-c",
        "proxmox.templates.text.perNode.pve-a ",
        "proxmox.machineTypes.small.cores ",
        "proxmox.machineTypes.small.memoryMiB ",
        "proxmox.machineTypes.small.diskGiB ",
        "proxmox.machineTypes.none.cores is required",
        "proxmox.requestTimeoutSeconds ",
        "proxmox.vendorData must begin as cloud-init knows it",
        "proxmox.installGuestAgent ",
        "proxmox.tokenfile is not a known key: write tokenFile",
    ];
    for path in paths {
        let path = path.replace(": ", " ");
        assert!(told.iter().any(|fault| fault.replace(": ", " ").contains(&path)), "{path}: {told:#?}");
    }
}

/// PX-2: what may not be in the address, and plain http on loopback.
#[test]
fn the_address_is_a_host_with_tls_or_loopback() {
    let at = |url: &str| parse(&LEAST.replace("https://pve.example:8006", url));
    for url in ["http://127.0.0.1:8006", "http://[::1]:8006", "http://localhost:8006", "https://10.0.0.7"] {
        assert!(at(url).is_ok(), "{url}");
    }
    for url in ["https://pve.example:8006/api2/json", "https://root:hunter2@pve.example", "pve.example:8006", "http://10.0.0.7:8006"] {
        let told: Vec<String> = at(url).expect_err(url).iter().map(ToString::to_string).collect();
        assert!(told.len() == 1 && told[0].contains("proxmox.url: ") && !told[0].contains("hunter2"), "{url} {told:?}");
    }
}

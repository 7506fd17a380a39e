use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::fault::Fault;
use crate::providers::{ProviderEntry, ProvidersConfig, Snapshot, kubernetes, local, parse_nodes};
use crate::yaml;

/// As a version reads it that registers the two types.
fn parse(file: &str, bytes: &[u8]) -> Result<ProvidersConfig, Vec<Fault>> {
    let nodes = yaml::documents(bytes).map_err(|_| Vec::new())?;
    parse_nodes(file, &nodes, &[&local::TYPE, &kubernetes::TYPE, &KVM, &KVM2])
}

fn faults(text: &str) -> Vec<String> {
    parse("p", text.as_bytes()).expect_err(text).iter().map(|fault| fault.to_string().trim_start_matches("p:").to_owned()).collect()
}

fn entry(text: &str) -> ProviderEntry {
    let mut config = parse("p", text.as_bytes()).unwrap_or_else(|faults| panic!("{text} {faults:?}"));
    config.entries.remove(0)
}

/// An entry `lab` of that type that says only what it must, and what is in `block` (two spaces before each line).
fn least(type_: &str, block: &str) -> String {
    format!("providers:\n{}", item("lab", type_, block, "h1.example:22"))
}

fn item(name: &str, type_: &str, block: &str, address: &str) -> String {
    format!(
        "- name: {name}
  type: {type_}
  {type_}:
    sshKeyFile: /etc/k
    knownHostsFile: /etc/h
    machineTypes: {{small: {{vcpus: 1, memoryMiB: 512}}}}
    hosts: [{{name: h1, address: '{address}', user: op, bridge: br0}}]
{}",
        block.lines().map(|line| format!("    {line}\n")).collect::<String>()
    )
}

fn block(entry: ProviderEntry) -> Block {
    match entry.block {
        ProviderBlock::Kvm(block) | ProviderBlock::Kvm2(block) => block,
        other @ (ProviderBlock::Local(_) | ProviderBlock::Kubernetes(_) | ProviderBlock::Gcp(_) | ProviderBlock::Proxmox(_)) => {
            panic!("{other:?}")
        }
    }
}

/// LV §3, the column of defaults.
#[test]
fn what_is_left_out_has_the_defaults_of_the_table() {
    for type_ in ["kvm", "kvm2"] {
        let entry = entry(&least(type_, "images: {debian: {url: 'https://images.example/debian.qcow2'}}"));
        assert_eq!((entry.type_name(), entry.max_concurrent_creates), (type_, 4));
        let image = Image {
            url: "https://images.example/debian.qcow2".to_owned(),
            sha256: None,
            format: Format::Qcow2,
            firmware: Firmware::Uefi,
            seed_bus: SeedBus::Scsi,
        };
        let host = Host {
            name: "h1".to_owned(),
            host: "h1.example".to_owned(),
            port: 22,
            user: "op".to_owned(),
            socket: "/var/run/libvirt/libvirt-sock".to_owned(),
            pool: "default".to_owned(),
            bridge: "br0".to_owned(),
            virt_type: VirtType::Kvm,
            reserve: None,
        };
        let expected = Block {
            ssh_key_file: PathBuf::from("/etc/k"),
            known_hosts_file: Some(PathBuf::from("/etc/h")),
            disk_gib: 10,
            vendor_data: Secret::default(),
            install_guest_agent: true,
            max_image_gib: 32,
            images: BTreeMap::from([("debian".to_owned(), image)]),
            machine_types: BTreeMap::from([("small".to_owned(), MachineType { vcpus: 1, memory_mib: 512 })]),
            hosts: vec![host],
        };
        assert_eq!(block(entry), expected);
    }
}

#[test]
fn every_key_is_read() {
    let digest = "AB".repeat(32);
    let entry = entry(&format!(
        "providers:
- name: lab
  type: kvm2
  kvm2:
    sshKeyFile: /etc/k
    insecureIgnoreHostKey: true
    diskSizeGb: 16384
    vendorData: |
      MIME-Version: 1.0
    installGuestAgent: false
    allowURLImages: false
    urlImageHosts: []
    maxImageGiB: 1024
    images:
      debian-12.7:
        url: http://images.example:8080/debian.raw?x=1
        sha256: {digest}
        format: raw
        firmware: bios
        seedBus: sata
    machineTypes:
      Big_1: {{vcpus: 256, memoryMiB: 4194304}}
    hosts:
    - name: h2
      address: '[2001:db8::7]:2222'
      user: op@realm
      socket: /run/libvirt/virtqemud-sock
      pool: pool.2
      bridge: br-lan.100
      virtType: qemu
      poolReserveGiB: 16384
      neighbourFallback: false
    - {{name: h1, address: '192.0.2.7:22', user: op, bridge: br0, poolReserveGiB: 0}}
"
    ));
    let block = block(entry);
    assert_eq!((block.known_hosts_file, block.disk_gib, block.max_image_gib), (None, 16384, 1024));
    assert_eq!((block.vendor_data.expose().as_str(), block.install_guest_agent), ("MIME-Version: 1.0\n", false));
    let image = &block.images["debian-12.7"];
    assert_eq!((image.sha256.clone(), image.format), (Some(digest.to_ascii_lowercase()), Format::Raw));
    assert_eq!((image.firmware, image.seed_bus), (Firmware::Bios, SeedBus::Sata));
    assert_eq!(block.machine_types["Big_1"], MachineType { vcpus: 256, memory_mib: 4_194_304 });
    let hosts: Vec<_> = block.hosts.iter().map(|host| (host.name.as_str(), host.host.as_str(), host.port, host.reserve)).collect();
    assert_eq!(hosts, [("h2", "2001:db8::7", 2222, Some(16384 * GIB)), ("h1", "192.0.2.7", 22, Some(0))]);
    let host = &block.hosts[0];
    assert_eq!((host.user.as_str(), host.pool.as_str(), host.bridge.as_str()), ("op@realm", "pool.2", "br-lan.100"));
    assert_eq!((host.socket.as_str(), host.virt_type), ("/run/libvirt/virtqemud-sock", VirtType::Qemu));
    // LV-25: the largest of everything.
    let sizes = [block.disk_gib * GIB, block.max_image_gib * GIB * 5, host.reserve.unwrap()];
    assert!(sizes.iter().try_fold(0_u64, |sum, size| sum.checked_add(*size)).is_some());
}

/// Issue 11: a file with at least 25 kinds of fault, each with its path.
#[test]
fn every_fault_of_a_block_is_told_at_once_with_its_path() {
    let text = "providers:
- name: lab
  type: kvm2
  kvm2:
    sshKeyFile: ''
    diskSizeGb: -1
    vendorData: 'packages: [SENTINEL]'
    installGuestAgent: 'yes'
    allowURLImages: true
    urlImageHosts: [images.example]
    maxImageGiB: 2000
    flavour: x
    images:
      url-1: {url: 'https://images.example/a'}
      deb/12.7: {url: 'https://images.example/a'}
      none: {}
      user: {url: 'https://u:SENTINEL@images.example/a'}
      scheme: {url: 'ftp://images.example/SENTINEL'}
      plain: {url: 'http://images.example/SENTINEL'}
      digest: {url: 'https://images.example/a', sha256: abc}
      words: {url: 'https://images.example/a', format: vmdk, firmware: efi, seedBus: ide, size: 1}
    machineTypes:
      none: {}
      large: {vcpus: 257, memoryMiB: 18446744073709551615}
      -x: {vcpus: 1, memoryMiB: 64}
    hosts:
    - {}
    - name: h 1
      address: kvm-1.example
      user: o p
      socket: run/sock
      pool: ../x
      bridge: br0123456789abcdef
      virtType: xen
      poolReserveGiB: 16385
      neighbourFallback: true
      zone: x
    - {name: same, address: 'a:0', user: op, bridge: b}
    - {name: same, address: '2001:db8::7:22', user: op, bridge: b}
    -
- {name: bare, type: kvm}
- name: empty
  type: kvm
  kvm: {machineTypes: {}, hosts: []}
- name: shapes
  type: kvm
  kvm: {sshKeyFile: 7, knownHostsFile: on, images: [], machineTypes: [], hosts: {}}
- {name: other, type: local, kvm2: {}}
";
    let found = faults(text);
    let lines: Vec<(usize, String)> = found
        .iter()
        .map(|fault| {
            let (line, rest) = fault.split_once(": ").unwrap();
            (line.parse().unwrap(), rest.split_once(", ").unwrap().1.to_owned())
        })
        .collect();
    let identifier = "must be at most 63 of A-Z, a-z, 0-9, _, . and -, beginning with a letter or digit";
    let image_key = format!("{identifier}: the key becomes part of the cached base volume's name");
    let expected = [
        (5, "kvm2.sshKeyFile: must not be empty".to_owned()),
        (5, "kvm2.knownHostsFile: is required: only insecureIgnoreHostKey: true does without".to_owned()),
        (6, "kvm2.diskSizeGb: must be 0-16384, is -1".to_owned()),
        (8, "kvm2.installGuestAgent: must be true or false".to_owned()),
        (7, format!("kvm2.vendorData: must begin as cloud-init knows it: {}", "#cloud-config, #!, #include, #cloud-boothook, ## template: jinja, MIME-Version:, Content-Type:")),
        (9, "kvm2.allowURLImages: true is not supported by this version: name each image in images".to_owned()),
        (10, "kvm2.urlImageHosts: is not supported by this version: it goes with allowURLImages".to_owned()),
        (11, "kvm2.maxImageGiB: must be 1-1024, is 2000".to_owned()),
        (14, "kvm2.images.url-1: must not begin with url-: those keys are images by URL".to_owned()),
        (15, format!("kvm2.images[\"deb/12.7\"]: {image_key}")),
        (16, "kvm2.images.none.url: is required".to_owned()),
        (17, "kvm2.images.user.url: must not have a user or password in it".to_owned()),
        (18, "kvm2.images.scheme.url: must be a URL of http:// or https:// with a host and no fragment".to_owned()),
        (19, "kvm2.images.plain.sha256: is required for a url of http://: nothing else says that the image is the one that is meant".to_owned()),
        (20, "kvm2.images.digest.sha256: must be 64 hexadecimal digits".to_owned()),
        (21, "kvm2.images.words.format: must be qcow2 or raw".to_owned()),
        (21, "kvm2.images.words.firmware: must be uefi or bios".to_owned()),
        (21, "kvm2.images.words.seedBus: must be scsi or virtio or sata".to_owned()),
        (21, "kvm2.images.words.size: is not a known key: known are url, sha256, format, firmware, seedBus".to_owned()),
        (23, "kvm2.machineTypes.none.vcpus: is required".to_owned()),
        (23, "kvm2.machineTypes.none.memoryMiB: is required".to_owned()),
        (24, "kvm2.machineTypes.large.vcpus: must be 1-256, is 257".to_owned()),
        (24, "kvm2.machineTypes.large.memoryMiB: must be 64-4194304, is 18446744073709551615".to_owned()),
        (25, format!("kvm2.machineTypes.-x: {identifier}")),
        (27, "kvm2.hosts[0].name: is required".to_owned()),
        (27, "kvm2.hosts[0].address: is required".to_owned()),
        (27, "kvm2.hosts[0].user: is required".to_owned()),
        (27, "kvm2.hosts[0].bridge: is required".to_owned()),
        (28, format!("kvm2.hosts[1].name: {identifier}")),
        (29, "kvm2.hosts[1].address: must be host:port, such as kvm-1.example:22 or [2001:db8::7]:22".to_owned()),
        (30, "kvm2.hosts[1].user: must not have white space or control characters in it".to_owned()),
        (31, "kvm2.hosts[1].socket: must be an absolute path of at most 107 characters".to_owned()),
        (32, format!("kvm2.hosts[1].pool: {identifier}")),
        (33, "kvm2.hosts[1].bridge: must be 1-15 of A-Z, a-z, 0-9, _, ., : and -".to_owned()),
        (34, "kvm2.hosts[1].virtType: must be kvm or qemu".to_owned()),
        (35, "kvm2.hosts[1].poolReserveGiB: must be 0-16384, is 16385".to_owned()),
        (36, "kvm2.hosts[1].neighbourFallback: true is not supported by this version".to_owned()),
        (37, "kvm2.hosts[1].zone: is not a known key: known are name, address, user, socket, pool, bridge, virtType, poolReserveGiB, neighbourFallback".to_owned()),
        (38, "kvm2.hosts[2].address: must be host:port, such as kvm-1.example:22 or [2001:db8::7]:22".to_owned()),
        (39, "kvm2.hosts[3].name: is the name of an earlier host".to_owned()),
        (39, "kvm2.hosts[3].address: must be host:port, such as kvm-1.example:22 or [2001:db8::7]:22".to_owned()),
        (40, "kvm2.hosts[4]: must be a map".to_owned()),
        (12, "kvm2.flavour: is not a known key: known are sshKeyFile, insecureIgnoreHostKey, knownHostsFile, diskSizeGb, installGuestAgent, vendorData, allowURLImages, urlImageHosts, maxImageGiB, images, machineTypes, hosts".to_owned()),
        (41, "kvm: is required: the block of type kvm".to_owned()),
        (44, "kvm.sshKeyFile: is required".to_owned()),
        (44, "kvm.knownHostsFile: is required: only insecureIgnoreHostKey: true does without".to_owned()),
        (44, "kvm.machineTypes: must define at least one profile".to_owned()),
        (44, "kvm.hosts: must list at least one host".to_owned()),
        (47, "kvm.sshKeyFile: must be a string, is a number: put it in quotes".to_owned()),
        (47, "kvm.knownHostsFile: must be a string, is a boolean: put it in quotes (a plain yes, no, on, off, y or n is one, too)".to_owned()),
        (47, "kvm.images: must be a map".to_owned()),
        (47, "kvm.machineTypes: must be a map".to_owned()),
        (47, "kvm.hosts: must be a list".to_owned()),
        (48, "kvm2: is the block of type kvm2, but the entry is of type local".to_owned()),
    ];
    for (found, expected) in lines.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    assert!(!found.iter().any(|fault| fault.contains("SENTINEL")), "{found:#?}");
}

/// LV-26.
#[test]
fn vendor_data_is_what_cloud_init_knows_and_is_never_nested() {
    let of = |data: &str, agent: bool| least("kvm", &format!("vendorData: \"{data}\"\ninstallGuestAgent: {agent}"));
    for beginning in ["#cloud-config\\na: 1", "#!/bin/sh", "#include\\nhttps://x.example", "#cloud-boothook", "## template: jinja"] {
        entry(&of(beginning, true));
    }
    for mime in ["MIME-Version: 1.0", "Content-Type: text/plain"] {
        entry(&of(mime, false));
        let [fault] = &faults(&of(mime, true))[..] else { panic!("{mime}") };
        assert!(fault.contains("kvm.vendorData: is a MIME document") && fault.ends_with("set installGuestAgent: false"), "{fault}");
    }
    let [fault] = &faults(&of(&format!("#!{}", "x".repeat(64 << 10)), true))[..] else { panic!("too long") };
    assert!(fault.ends_with("kvm.vendorData: must be at most 65536 bytes, is 65538"), "{fault}");
    assert!(!format!("{:?}", entry(&of("#!SENTINEL", true))).contains("SENTINEL"), "it may hold credentials");
}

/// LV-24: what one key could mean twice. Each fault names both places.
#[test]
fn no_two_hosts_of_kvm_entries_are_one_pool() {
    let twice = "providers:
- name: lab
  type: kvm2
  kvm2:
    sshKeyFile: /etc/k
    knownHostsFile: /etc/h
    machineTypes: {small: {vcpus: 1, memoryMiB: 512}}
    hosts:
    - {name: h1, address: 'H1.example:22', user: op, bridge: br0}
    - {name: h2, address: 'h1.EXAMPLE:22', user: other, bridge: br1}
    - {name: h3, address: 'h1.example:22', user: op, bridge: br0, pool: second}
    - {name: h4, address: 'h1.example:22', user: op, bridge: br0, socket: /run/x}
    - {name: h5, address: 'h1.example:23', user: op, bridge: br0}
";
    assert_eq!(faults(twice), ["10: providers[0] \"lab\", kvm2.hosts[1]: has the address, socket and pool of kvm2.hosts[0]"]);
    let two = |first: &str, second: &str| {
        format!("providers:\n{}{}", item("a", first, "", "h1.example:22"), item("b", second, "", "H1.example:22"))
    };
    assert_eq!(
        faults(&two("kvm", "kvm")),
        ["15: providers[1] \"b\", kvm.hosts[0]: has the address, socket and pool of kvm.hosts[0] of providers[0] \"a\""]
    );
    for (first, second) in [("kvm", "kvm2"), ("kvm2", "kvm"), ("kvm2", "kvm2")] {
        assert_eq!(parse("p", two(first, second).as_bytes()).unwrap().entries.len(), 2, "{first} {second}");
    }
}

/// LV-27: two entries that share a base.
#[test]
fn no_two_images_are_one_base_volume() {
    let images = |key: &str| format!("images: {{{key}: {{url: 'https://images.example/a'}}}}");
    let two = |(a, a_type, a_key): (&str, &str, &str), (b, b_type, b_key): (&str, &str, &str), address: &str| {
        format!("providers:\n{}{}", item(a, a_type, &images(a_key), "h1.example:22"), item(b, b_type, &images(b_key), address))
    };
    assert_eq!(
        faults(&two(("a", "kvm2", "b-c"), ("a-b", "kvm2", "c"), "h1.example:22")),
        [
            "17: providers[1] \"a-b\", kvm2.images.c: has the base volume base-a-b-c.qcow2 in common with image \"b-c\" of providers[0] \"a\", on the pool of kvm2.hosts[0] of providers[0] \"a\": rename one of the two keys"
        ]
    );
    assert_eq!(faults(&two(("a", "kvm2", "c"), ("b", "kvm", "a-c"), "h1.example:22")).len(), 1, "a kvm key spells a kvm2 entry and key");
    assert_eq!(faults(&two(("b", "kvm", "a-c"), ("a", "kvm2", "c"), "h1.example:22")).len(), 1, "in either order");
    for fine in [
        two(("a", "kvm2", "b-c"), ("a-b", "kvm2", "c"), "h2.example:22"),
        two(("a", "kvm2", "c"), ("b", "kvm2", "c"), "h1.example:22"),
        two(("a", "kvm", "c"), ("b", "kvm2", "c"), "h1.example:22"),
    ] {
        parse("p", fine.as_bytes()).unwrap_or_else(|faults| panic!("{fine} {faults:?}"));
    }
}

/// LV-16, PC-73: reading the file looks at no other; the snapshot does, and warns.
#[test]
fn missing_files_and_unverified_hosts_are_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("providers.yaml");
    std::fs::write(&path, least("kvm2", "")).unwrap();
    let named: Vec<_> = entry(&least("kvm2", "")).files().into_iter().map(|file| (file.key, file.path)).collect();
    let expected = [("kvm2.sshKeyFile", "/etc/k"), ("kvm2.knownHostsFile", "/etc/h")];
    assert_eq!(named, expected.map(|(key, path)| (key.to_owned(), PathBuf::from(path))));
    assert_eq!(parse("p", least("kvm2", "").as_bytes()).unwrap().warnings, Vec::<String>::new());
    let warnings = Snapshot::parsed_by(parse, &path, &std::fs::read(&path)).config.unwrap().warnings;
    assert!(warnings.len() == 2 && warnings[1].starts_with("entry \"lab\": kvm2.knownHostsFile: /etc/h cannot be read"), "{warnings:?}");
    let open = parse("p", least("kvm", "insecureIgnoreHostKey: true").as_bytes()).unwrap();
    assert_eq!(
        open.warnings,
        ["entry \"lab\": insecureIgnoreHostKey: its hosts are not verified: whoever is on the way to one can pose as it"]
    );
    assert_eq!(open.entries[0].files().iter().map(|file| file.path.as_path()).collect::<Vec<_>>(), [Path::new("/etc/k")]);
}

/// LV-230.
#[test]
fn all_but_the_credentials_is_taken_over_without_a_restart() {
    let plain = least("kvm", "");
    let foundation = entry(&plain).foundation;
    for live in [
        least("kvm", "diskSizeGb: 20"),
        least("kvm", "vendorData: '#!/bin/sh'"),
        least("kvm", "installGuestAgent: false"),
        least("kvm", "maxImageGiB: 8"),
        least("kvm", "images: {a: {url: 'https://images.example/a'}}"),
        plain.replace("vcpus: 1", "vcpus: 2"),
        plain.replace("h1.example:22", "h2.example:22"),
        plain.replace("bridge: br0}]", "bridge: br0}, {name: h2, address: 'h2:22', user: op, bridge: br0}]"),
    ] {
        let changed = entry(&live);
        assert_eq!(changed.foundation, foundation, "{live}");
        assert_ne!(changed.fingerprint, entry(&plain).fingerprint, "{live}");
    }
    for lasting in [plain.replace("/etc/k", "/etc/k2"), plain.replace("/etc/h", "/etc/h2"), least("kvm", "insecureIgnoreHostKey: true")] {
        assert_ne!(entry(&lasting).foundation, foundation, "{lasting}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// LV-23: what is taken for an address can be said as one again.
    #[test]
    fn an_address_is_host_and_port_or_refused(text in "\\[?[a-z0-9.:-]{0,12}\\]?:?[0-9+]{0,6}") {
        let file = least("kvm", "").replace("h1.example:22", &text);
        if let Ok(config) = parse("p", file.as_bytes()) {
            let ProviderBlock::Kvm(block) = &config.entries[0].block else { panic!("kvm") };
            let (host, port) = (&block.hosts[0].host, block.hosts[0].port);
            let port_text = text.rsplit_once(':').unwrap().1;
            prop_assert_eq!(port_text.parse::<u16>().unwrap(), port);
            let again = if host.contains(':') { format!("[{host}]:{port_text}") } else { format!("{host}:{port_text}") };
            prop_assert_eq!(again, text);
            prop_assert!(port > 0);
        }
    }
}

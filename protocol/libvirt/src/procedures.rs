//! The procedures of the remote protocol that this client knows, each with its arguments and its answer.
//!
//! A procedure is the structure of its arguments; [`Client::call`](crate::Client::call) sends it. Numbers and layouts are
//! those of libvirt 9.0; the protocol only ever grows.

use crate::xdr::{Decode, Encode, XdrError, structures};

/// A procedure: its arguments, and what it is called.
pub trait Procedure: Encode + Send {
    /// Its number.
    const NUMBER: i32;
    /// Its name, for messages.
    const NAME: &'static str;
    /// What it answers.
    type Reply: Decode + Send;
}

macro_rules! procedures {
    ($($(#[$about:meta])* $name:ident = $number:literal { $($(#[$field_about:meta])* $field:ident: $type:ty,)* } -> $reply:ty;)*) => {
        structures! { $($(#[$about])* $name { $($(#[$field_about])* $field: $type,)* })* }
        $(impl Procedure for $name {
            const NUMBER: i32 = $number;
            const NAME: &'static str = stringify!($name);
            type Reply = $reply;
        })*
    };
}

structures! {
    /// A domain: a virtual machine. `id` is -1 while it does not run.
    Domain {
        name: String,
        uuid: [u8; 16],
        id: i32,
    }
    /// A storage pool.
    StoragePool {
        name: String,
        uuid: [u8; 16],
    }
    /// A volume of a storage pool.
    StorageVolume {
        pool: String,
        name: String,
        key: String,
    }
    /// A network interface of the host.
    HostInterface {
        name: String,
        mac: String,
    }
    /// A virtual network.
    Network {
        name: String,
        uuid: [u8; 16],
    }
    /// The domains that were asked for, and how many there are.
    Domains {
        domains: Vec<Domain>,
        count: u32,
    }
    /// The volumes of a pool, and how many there are.
    StorageVolumes {
        volumes: Vec<StorageVolume>,
        count: u32,
    }
    /// What a domain does, and why: numbers of `virDomainState` and of the reasons of that state.
    DomainState {
        state: i32,
        reason: i32,
    }
    /// How full a pool is, in bytes, as of its last refresh.
    StoragePoolInfo {
        /// Of `virStoragePoolState`: 2 is running.
        state: u8,
        capacity: u64,
        allocation: u64,
        available: u64,
    }
    /// How large a volume is, in bytes.
    StorageVolumeInfo {
        /// Of `virStorageVolType`: 0 is a file.
        kind: u8,
        capacity: u64,
        allocation: u64,
    }
    /// An interface of a domain, as a source of addresses sees it.
    DomainInterface {
        name: String,
        hardware_address: Option<String>,
        addresses: Vec<InterfaceAddress>,
    }
    /// An address of such an interface.
    InterfaceAddress {
        /// 0 is IPv4, 1 is IPv6.
        kind: i32,
        address: String,
        prefix: u32,
    }
    /// The host.
    NodeInfo {
        model: NodeModel,
        /// In KiB.
        memory: u64,
        cpus: i32,
        mhz: i32,
        nodes: i32,
        sockets: i32,
        cores: i32,
        threads: i32,
    }
}

/// The name of a CPU model: 32 chars, of which those after the first zero mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeModel(pub [u8; 32]);

impl NodeModel {
    /// The name as text.
    pub fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

impl Encode for NodeModel {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|byte| byte.encode(out));
    }
}

impl Decode for NodeModel {
    const MIN: usize = 32 * 4;

    fn decode(from: &mut &[u8]) -> Result<Self, XdrError> {
        let mut model = [0; 32];
        for byte in &mut model {
            // A char with its sign: what is beyond ASCII arrives as a negative number.
            *byte = u32::decode(from)? as u8;
        }
        Ok(Self(model))
    }
}

/// Where [`DomainInterfaceAddresses`] looks.
pub mod address_source {
    /// The leases of libvirt's own networks.
    pub const LEASE: u32 = 0;
    /// The guest agent.
    pub const AGENT: u32 = 1;
    /// The host's neighbour table.
    pub const ARP: u32 = 2;
}

/// What [`DomainUndefineFlags`] takes along.
pub mod undefine {
    /// A saved memory image.
    pub const MANAGED_SAVE: u32 = 1;
    /// Metadata of snapshots.
    pub const SNAPSHOTS_METADATA: u32 = 2;
    /// The firmware's variables.
    pub const NVRAM: u32 = 4;
    /// Metadata of checkpoints: not known to every version.
    pub const CHECKPOINTS_METADATA: u32 = 16;
}

/// Which domains [`ConnectListAllDomains`] lists.
pub mod list_domains {
    /// Those that run.
    pub const ACTIVE: u32 = 1;
    /// Those that do not.
    pub const INACTIVE: u32 = 2;
}

/// What [`DomainGetMetadata`] reads: an element of one's own, under one's own namespace.
pub const METADATA_ELEMENT: i32 = 2;

procedures! {
    /// Which ways to authenticate there are: 0 none, 1 SASL, 2 polkit. Asked before [`ConnectOpen`].
    AuthList = 66 {} -> Vec<u32>;
    /// Lets polkit decide who we are.
    AuthPolkit = 70 {} -> i32;
    /// Opens a hypervisor, for example `qemu:///system`.
    ConnectOpen = 1 { name: Option<String>, flags: u32, } -> ();
    /// Says goodbye.
    ConnectClose = 2 {} -> ();
    /// The hypervisor's version.
    ConnectGetVersion = 4 {} -> u64;
    /// The version of libvirt: 9000000 is 9.0.0.
    ConnectGetLibVersion = 157 {} -> u64;
    /// The host's name.
    ConnectGetHostname = 59 {} -> String;
    /// What was opened.
    ConnectGetUri = 110 {} -> String;
    /// What the host can do, as XML.
    ConnectGetCapabilities = 7 {} -> String;
    /// What domains of an architecture, machine and type can have, as XML.
    ConnectGetDomainCapabilities = 342 {
        emulator: Option<String>,
        arch: Option<String>,
        machine: Option<String>,
        virt_type: Option<String>,
        flags: u32,
    } -> String;
    /// The host's CPUs and memory.
    NodeGetInfo = 6 {} -> NodeInfo;
    /// All domains, see [`list_domains`].
    ConnectListAllDomains = 273 {
        /// 0 asks for their count alone.
        need_results: i32,
        flags: u32,
    } -> Domains;
    /// Finds a domain.
    DomainLookupByName = 23 { name: String, } -> Domain;
    /// Finds a domain.
    DomainLookupByUuid = 24 { uuid: [u8; 16], } -> Domain;
    /// Makes a domain known, or changes it. It does not start it.
    DomainDefineXml = 11 { xml: String, } -> Domain;
    /// Starts a domain.
    DomainCreate = 9 { domain: Domain, } -> ();
    /// Pulls a domain's plug.
    DomainDestroy = 12 { domain: Domain, } -> ();
    /// Stops a domain's CPUs.
    DomainSuspend = 34 { domain: Domain, } -> ();
    /// Lets them go on.
    DomainResume = 28 { domain: Domain, } -> ();
    /// Makes a domain unknown, see [`undefine`].
    DomainUndefineFlags = 231 { domain: Domain, flags: u32, } -> ();
    /// What a domain does.
    DomainGetState = 212 { domain: Domain, flags: u32, } -> DomainState;
    /// What somebody noted at a domain. The element comes back without its namespace.
    DomainGetMetadata = 265 { domain: Domain, kind: i32, uri: Option<String>, flags: u32, } -> String;
    /// A domain's definition.
    DomainGetXmlDesc = 14 { domain: Domain, flags: u32, } -> String;
    /// The addresses of a domain's interfaces, see [`address_source`].
    DomainInterfaceAddresses = 353 { domain: Domain, source: u32, flags: u32, } -> Vec<DomainInterface>;
    /// Finds a pool.
    StoragePoolLookupByName = 84 { name: String, } -> StoragePool;
    /// Looks anew what is in a pool.
    StoragePoolRefresh = 83 { pool: StoragePool, flags: u32, } -> ();
    /// How full a pool is.
    StoragePoolGetInfo = 87 { pool: StoragePool, } -> StoragePoolInfo;
    /// The volumes of a pool.
    StoragePoolListAllVolumes = 282 {
        pool: StoragePool,
        /// 0 asks for their count alone.
        need_results: i32,
        flags: u32,
    } -> StorageVolumes;
    /// Finds a volume.
    StorageVolLookupByName = 95 { pool: StoragePool, name: String, } -> StorageVolume;
    /// Where a volume is on the host.
    StorageVolGetPath = 100 { volume: StorageVolume, } -> String;
    /// How large a volume is.
    StorageVolGetInfo = 98 { volume: StorageVolume, } -> StorageVolumeInfo;
    /// A volume's description.
    StorageVolGetXmlDesc = 99 { volume: StorageVolume, flags: u32, } -> String;
    /// Makes a volume.
    StorageVolCreateXml = 93 { pool: StoragePool, xml: String, flags: u32, } -> StorageVolume;
    /// Makes a volume with the contents of another one.
    StorageVolCreateXmlFrom = 125 { pool: StoragePool, xml: String, from: StorageVolume, flags: u32, } -> StorageVolume;
    /// Deletes a volume, whoever uses it.
    StorageVolDelete = 94 { volume: StorageVolume, flags: u32, } -> ();
    /// Begins an upload: see [`Client::upload`](crate::Client::upload).
    StorageVolUpload = 208 { volume: StorageVolume, offset: u64, length: u64, flags: u32, } -> ();
    /// Begins a download: see [`Client::download`](crate::Client::download).
    StorageVolDownload = 209 { volume: StorageVolume, offset: u64, length: u64, flags: u32, } -> ();
    /// Finds an interface of the host.
    InterfaceLookupByName = 128 { name: String, } -> HostInterface;
    /// Finds a virtual network.
    NetworkLookupByName = 46 { name: String, } -> Network;
}

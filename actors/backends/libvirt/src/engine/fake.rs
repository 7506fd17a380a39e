//! A libvirt in memory that answers as the real one does where the engine looks (LV-220).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Mutex;

use egress_libvirt::procedures::*;
use egress_libvirt::{Error as LibvirtCallError, LibvirtError};
use futures::FutureExt as _;
use tokio::time::Instant;

use crate::rpc::{Answer, Rpc, RpcError};
use crate::xml::Element;

/// Every call that was made, as `Procedure subject`.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) domains: BTreeMap<String, FakeDomain>,
    pub(super) pools: BTreeMap<String, FakePool>,
    pub(super) calls: Vec<String>,
    faults: HashMap<&'static str, VecDeque<LibvirtCallError>>,
    /// Flags of undefining that this version knows.
    pub(super) undefine_flags: u32,
}

#[derive(Clone, Default)]
pub(super) struct FakeDomain {
    /// As it was defined.
    pub(super) xml: String,
    pub(super) state: i32,
    pub(super) reason: i32,
    /// By source; without an entry the source answers with nothing.
    pub(super) addresses: HashMap<u32, Result<Vec<DomainInterface>, (i32, &'static str)>>,
}

#[derive(Clone)]
pub(super) struct FakePool {
    pub(super) state: u8,
    pub(super) volumes: BTreeSet<String>,
}

fn said(rpc: &'static str, code: i32, message: &str) -> LibvirtCallError {
    LibvirtCallError::Libvirt { procedure: rpc, error: LibvirtError { code, domain: 10, level: 2, message: message.to_owned() } }
}

impl Fake {
    /// The next call of this procedure ends so instead.
    pub(super) fn fail(&self, rpc: &'static str, error: LibvirtCallError) {
        self.state.lock().unwrap().faults.entry(rpc).or_default().push_back(error);
    }

    pub(super) fn refuse(&self, rpc: &'static str, code: i32) {
        self.fail(rpc, said(rpc, code, "so it was told"));
    }

    /// The procedures called since the last look.
    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    fn answer<T: Send + 'static>(
        &self,
        rpc: &'static str,
        subject: &str,
        act: impl FnOnce(&mut State) -> Result<T, (i32, String)>,
    ) -> Answer<'_, T> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(format!("{rpc} {subject}").trim_end().to_owned());
        let error = match state.faults.get_mut(rpc).and_then(VecDeque::pop_front) {
            Some(fault) => Err(fault),
            None => act(&mut state).map_err(|(code, message)| said(rpc, code, &message)),
        };
        let answer = error.map_err(|error| RpcError { rpc, host: "host-a".into(), budget: None, error });
        // As the real one: never in the same moment.
        async move {
            tokio::task::yield_now().await;
            answer
        }
        .boxed()
    }
}

fn domain(name: &str) -> Domain {
    Domain { name: name.to_owned(), uuid: [7; 16], id: -1 }
}

fn no_domain(name: &str) -> (i32, String) {
    (42, format!("Domain not found: no domain with matching name '{name}'"))
}

fn usable<'a>(state: &'a mut State, pool: &str) -> Result<&'a mut FakePool, (i32, String)> {
    let found =
        state.pools.get_mut(pool).ok_or_else(|| (49, format!("Storage pool not found: no storage pool with matching name '{pool}'")))?;
    if found.state == 2 { Ok(found) } else { Err((55, format!("Requested operation is not valid: storage pool '{pool}' is not active"))) }
}

impl Rpc for Fake {
    fn domain_lookup_by_name(&self, call: DomainLookupByName, _: Instant) -> Answer<'_, Domain> {
        self.answer(DomainLookupByName::NAME, &call.name, |state| match state.domains.get(&call.name) {
            Some(_) => Ok(domain(&call.name)),
            None => Err(no_domain(&call.name)),
        })
    }

    fn domain_get_metadata(&self, call: DomainGetMetadata, _: Instant) -> Answer<'_, String> {
        let name = call.domain.name.clone();
        self.answer(DomainGetMetadata::NAME, &name.clone(), move |state| {
            let found = state.domains.get(&name).ok_or_else(|| no_domain(&name))?;
            let definition = Element::parse(&found.xml).unwrap();
            let metadata = definition.first("metadata").cloned().unwrap_or_default();
            let mark = metadata.children.into_iter().find(|mark| mark.attribute("xmlns") == call.uri.as_deref());
            let mut mark = mark.ok_or_else(|| (80, "metadata not found: Requested metadata element is not present".to_owned()))?;
            // Without its namespace, and re-indented (F8).
            mark.attributes.clear();
            Ok(mark.to_xml().unwrap().replace("><", ">\n    <"))
        })
    }

    fn domain_get_state(&self, call: DomainGetState, _: Instant) -> Answer<'_, DomainState> {
        let name = call.domain.name;
        self.answer(DomainGetState::NAME, &name.clone(), move |state| {
            let found = state.domains.get(&name).ok_or_else(|| no_domain(&name))?;
            Ok(DomainState { state: found.state, reason: found.reason })
        })
    }

    fn domain_get_xml_desc(&self, call: DomainGetXmlDesc, _: Instant) -> Answer<'_, String> {
        let name = call.domain.name;
        self.answer(DomainGetXmlDesc::NAME, &name.clone(), move |state| {
            state.domains.get(&name).map(|found| found.xml.clone()).ok_or_else(|| no_domain(&name))
        })
    }

    fn domain_interface_addresses(&self, call: DomainInterfaceAddresses, _: Instant) -> Answer<'_, Vec<DomainInterface>> {
        let (name, source) = (call.domain.name, call.source);
        self.answer(DomainInterfaceAddresses::NAME, &source.to_string(), move |state| {
            let found = state.domains.get(&name).ok_or_else(|| no_domain(&name))?;
            match found.addresses.get(&source) {
                Some(Ok(interfaces)) => Ok(interfaces.clone()),
                Some(Err((code, message))) => Err((*code, (*message).to_owned())),
                None => Ok(Vec::new()),
            }
        })
    }

    fn domain_destroy(&self, call: DomainDestroy, _: Instant) -> Answer<'_, ()> {
        let name = call.domain.name;
        self.answer(DomainDestroy::NAME, &name.clone(), move |state| {
            let found = state.domains.get_mut(&name).ok_or_else(|| no_domain(&name))?;
            if found.state == 5 {
                return Err((55, "Requested operation is not valid: domain is not running".to_owned()));
            }
            (found.state, found.reason) = (5, 2);
            Ok(())
        })
    }

    fn domain_undefine_flags(&self, call: DomainUndefineFlags, _: Instant) -> Answer<'_, ()> {
        let (name, flags) = (call.domain.name, call.flags);
        self.answer(DomainUndefineFlags::NAME, &flags.to_string(), move |state| {
            if flags & !state.undefine_flags != 0 {
                return Err((8, format!("invalid argument: unsupported flags (0x{flags:x})")));
            }
            state.domains.remove(&name).map(drop).ok_or_else(|| no_domain(&name))
        })
    }

    fn connect_list_all_domains(&self, _: ConnectListAllDomains, _: Instant) -> Answer<'_, Domains> {
        self.answer(ConnectListAllDomains::NAME, "", |state| {
            let domains: Vec<Domain> = state.domains.keys().map(|name| domain(name)).collect();
            Ok(Domains { count: domains.len() as u32, domains })
        })
    }

    fn storage_pool_lookup_by_name(&self, call: StoragePoolLookupByName, _: Instant) -> Answer<'_, StoragePool> {
        let name = call.name;
        self.answer(StoragePoolLookupByName::NAME, &name.clone(), move |state| match state.pools.get(&name) {
            Some(_) => Ok(StoragePool { name, uuid: [9; 16] }),
            None => Err((49, format!("Storage pool not found: no storage pool with matching name '{name}'"))),
        })
    }

    fn storage_pool_get_info(&self, call: StoragePoolGetInfo, _: Instant) -> Answer<'_, StoragePoolInfo> {
        let name = call.pool.name;
        self.answer(StoragePoolGetInfo::NAME, &name.clone(), move |state| match state.pools.get(&name) {
            Some(pool) => Ok(StoragePoolInfo { state: pool.state, capacity: 1 << 40, allocation: 0, available: 1 << 39 }),
            None => Err((49, "Storage pool not found".to_owned())),
        })
    }

    fn storage_pool_list_all_volumes(&self, call: StoragePoolListAllVolumes, _: Instant) -> Answer<'_, StorageVolumes> {
        let name = call.pool.name;
        self.answer(StoragePoolListAllVolumes::NAME, &name.clone(), move |state| {
            let volumes: Vec<StorageVolume> = usable(state, &name)?
                .volumes
                .iter()
                .map(|volume| StorageVolume { pool: name.clone(), name: volume.clone(), key: String::new() })
                .collect();
            Ok(StorageVolumes { count: volumes.len() as u32, volumes })
        })
    }

    fn storage_vol_lookup_by_name(&self, call: StorageVolLookupByName, _: Instant) -> Answer<'_, StorageVolume> {
        let (pool, name) = (call.pool.name, call.name);
        self.answer(StorageVolLookupByName::NAME, &name.clone(), move |state| {
            if usable(state, &pool)?.volumes.contains(&name) {
                return Ok(StorageVolume { pool, name, key: String::new() });
            }
            Err((50, format!("Storage volume not found: no storage vol with matching name '{name}'")))
        })
    }

    fn storage_vol_delete(&self, call: StorageVolDelete, _: Instant) -> Answer<'_, ()> {
        let StorageVolume { pool, name, .. } = call.volume;
        self.answer(StorageVolDelete::NAME, &name.clone(), move |state| {
            // libvirt protects nothing, whoever uses it.
            if usable(state, &pool)?.volumes.remove(&name) { Ok(()) } else { Err((50, "Storage volume not found".to_owned())) }
        })
    }
}

//! The instances of one entry: marks, listeners, and the one order in which both change.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use egress_protocol::provider::{CreateRequest, DeleteOutcome, ErrorClass, Instance as Report, InstanceKey, InstanceState, ListResult};
use egress_protocol::{InstallationId, InstanceId, InstanceName, Uid};
use egress_provider::BackendError;
use futures::future::join_all;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::seam::Seam;
use super::{LocalEvent, place};
use crate::config::{LocalConfig, Outside};
use crate::engine::{Guard, Identity, Instance, OwnAddresses, Rules, Settings};
use crate::marks::{self, Mark, Marks};

/// How long an address that somebody else holds is waited for before the instance counts as stopped.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long `restore` waits for addresses that its predecessor may still be closing.
const START_PATIENCE: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Instances {
    entry: Arc<str>,
    installation: InstallationId,
    /// Changes while it runs (LO-3), under the lock of `running`.
    config: ArcSwap<LocalConfig>,
    outside: Outside,
    own: Arc<OwnAddresses>,
    seam: Seam,
    running: Mutex<HashMap<InstanceName, Running>>,
    /// Which Proxy has an address by its mark, bound or not; `None`: the marks are to be read (again).
    held: Mutex<Option<HashMap<InstanceName, (SocketAddrV4, String)>>>,
    /// Since when an address is somebody else's.
    taken: Mutex<HashMap<InstanceName, Instant>>,
    /// One change at a time.
    turn: tokio::sync::Mutex<()>,
    /// No listener is opened any more.
    stopping: AtomicBool,
}

struct Running {
    address: SocketAddrV4,
    source: Option<IpAddr>,
    proxy: String,
    settings: Arc<Settings>,
    instance: Instance,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn id(name: &InstanceName) -> InstanceId {
    InstanceId::new(format!("local/{name}"))
}

impl Instances {
    pub(super) fn new(config: LocalConfig, outside: Outside) -> Self {
        let own = Arc::new(OwnAddresses::new(Arc::clone(&outside.interfaces)));
        let marks = Arc::new(Marks::new(config.state_dir.as_deref(), &config.entry));
        Self {
            entry: Arc::clone(&config.entry),
            installation: config.installation.clone(),
            seam: Seam::new(Arc::clone(&config.entry), marks),
            config: ArcSwap::from_pointee(config),
            outside,
            own,
            running: Mutex::default(),
            held: Mutex::default(),
            taken: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// What is configured now.
    pub(super) fn config(&self) -> Arc<LocalConfig> {
        self.config.load_full()
    }

    /// Takes new settings over: running tunnels and the listeners stay (LO-3). `false`: they are of another foundation.
    pub(super) fn reconfigure(&self, new: &LocalConfig) -> bool {
        let running = lock(&self.running);
        if !self.config.load().same_foundation(new) {
            return false;
        }
        self.config.store(Arc::new(new.clone()));
        for running in running.values() {
            let rules = self.rules(new, &running.proxy, Some(&running.settings.rules.load()));
            running.settings.rules.store(Arc::new(rules));
        }
        true
    }

    /// What the proxy of a Proxy (`NAMESPACE/NAME`) is run with. Requests are counted on while its fault knobs stay the same.
    fn rules(&self, config: &LocalConfig, proxy: &str, before: Option<&Rules>) -> Rules {
        let faults = config.faults.iter().find(|faults| faults.names(proxy)).cloned();
        let requests = before.filter(|before| before.faults == faults).map(|before| Arc::clone(&before.requests));
        Rules {
            limits: config.limits,
            allowed_clients: config.allowed_clients.clone(),
            guard: Guard { allow: Arc::new(config.allowed_targets.clone()), own: Arc::clone(&self.own) },
            faults,
            requests: requests.unwrap_or_default(),
        }
    }

    /// Closes every listener, lets tunnels end for at most `grace`; nothing is opened any more.
    pub(super) async fn stop(&self, grace: Duration) {
        self.stopping.store(true, Ordering::Relaxed);
        // A change under way may open one more: it ends first.
        drop(self.turn.lock().await);
        let running: Vec<Running> = lock(&self.running).drain().map(|(_, running)| running).collect();
        join_all(running.into_iter().map(|running| running.instance.stop(grace))).await;
    }

    /// Files and addresses are the next backend's from now on, even if a change under way has not noticed yet.
    pub(super) fn end(&self) {
        self.seam.end();
        lock(&self.running).clear();
    }

    /// One line in the log and a word to the observer.
    fn tell(&self, event: &LocalEvent) {
        let (event_name, name, uid) = match event {
            LocalEvent::Creating { name, uid, .. } => ("creating", name, uid),
            LocalEvent::Created { name, uid, .. } => ("created", name, uid),
            LocalEvent::Adopted { name, uid, .. } => ("adopted", name, uid),
            LocalEvent::Deleting { name, uid } => ("deleting", name, uid),
            LocalEvent::Deleted { name, uid } => ("deleted", name, uid),
        };
        tracing::debug!(provider = %self.entry, event = event_name, instance = %name, %uid, "local instance");
        if let Some(observer) = &self.outside.observer {
            observer(event);
        }
    }

    pub(super) async fn create(self: Arc<Self>, request: CreateRequest, zone: Option<IpAddr>) -> Result<InstanceId, BackendError> {
        let config = self.config();
        let faults = config.faults.iter().find(|faults| faults.names(&format!("{}/{}", request.namespace, request.proxy_name)));
        if let Some(class) = faults.and_then(|faults| faults.create_error) {
            // A create never answers NotFound (PC-24).
            let class = if class == ErrorClass::NotFound { ErrorClass::Transient } else { class };
            return Err(BackendError::new(class, "fault knob createError"));
        }
        let _turn = self.turn.lock().await;
        if self.stopping.load(Ordering::Relaxed) {
            return Err(BackendError::transient("the provider is stopping"));
        }
        let name = request.name.clone();
        let placement_hash = marks::placement_hash(&request.placement);
        if let Some(mark) = self.seam.read_mark(&name).await? {
            if let Some(which) = mark.differs(&request.uid, &request.installation) {
                return Err(
                    BackendError::permanent(format!("instance {name} exists and is not ours: mark {which} differs")).about(id(&name))
                );
            }
            let fits = mark.port == request.port && mark.placement_hash == placement_hash;
            if fits && self.bind(&mark).is_ok() {
                self.tell(&LocalEvent::Adopted { name: name.clone(), uid: request.uid, address: mark.address() });
                return Ok(id(&name));
            }
            // Ours, but it cannot be completed as it is asked for: removed and rebuilt (PC-16).
            self.remove(&name, &request.uid).await?;
        }
        self.close(&name).await;
        let source = zone.or_else(|| place::least_used(&config.sources, |source| self.users_of(source)));
        let (address, listener) = self.seam.claim(&name, &config.listen, request.port, &self.holders().await?)?;
        self.tell(&LocalEvent::Creating { name: name.clone(), uid: request.uid.clone(), address });
        let mark = Mark {
            version: marks::VERSION,
            managed: "true".to_owned(),
            uid: request.uid.to_string(),
            installation: request.installation.to_string(),
            created_at: marks::whole_seconds(self.outside.clock.now()),
            name: name.clone(),
            namespace: request.namespace.to_string(),
            proxy_name: request.proxy_name.to_string(),
            listen_address: *address.ip(),
            port: request.port,
            source_address: source,
            placement_hash,
        };
        let written = self.seam.write_mark(&mark).await;
        self.keep_held(&written, |held| held.insert(name.clone(), (address, mark.proxy())));
        written?;
        self.serve(&mark, listener);
        self.tell(&LocalEvent::Created { name: name.clone(), uid: request.uid, address });
        Ok(id(&name))
    }

    pub(super) async fn delete(self: Arc<Self>, name: InstanceName, key: InstanceKey) -> Result<DeleteOutcome, BackendError> {
        let _turn = self.turn.lock().await;
        let Some(mark) = self.seam.read_mark(&name).await? else {
            self.close(&name).await;
            return Ok(DeleteOutcome::Gone);
        };
        if key.uid.as_str().is_empty() {
            // Only leftovers would be removed, and this type makes none (PC-40).
            return Ok(DeleteOutcome::Gone);
        }
        if let Some(which) = mark.differs(&key.uid, &key.installation) {
            self.warn_foreign(&name, which);
            return Ok(DeleteOutcome::Gone);
        }
        self.remove(&name, &key.uid).await?;
        Ok(DeleteOutcome::Gone)
    }

    /// First the mark, then the listener: a mark that could not be removed leaves the instance whole.
    async fn remove(&self, name: &InstanceName, uid: &Uid) -> Result<(), BackendError> {
        self.tell(&LocalEvent::Deleting { name: name.clone(), uid: uid.clone() });
        let removed = self.seam.remove_mark(name).await;
        self.keep_held(&removed, |held| held.remove(name));
        removed?;
        self.close(name).await;
        self.tell(&LocalEvent::Deleted { name: name.clone(), uid: uid.clone() });
        Ok(())
    }

    pub(super) async fn get(&self, name: InstanceName, key: &InstanceKey) -> Result<Report, BackendError> {
        let mark = self.own_mark(&name, key).await?;
        if self.listens(&mark) {
            return Ok(self.report(&mark, InstanceState::Running));
        }
        // Rare: a restart met a taken address, or a listener died. Bind it now, unless a change was faster.
        let _turn = self.turn.lock().await;
        let mark = self.own_mark(&name, key).await?;
        let Err(error) = self.bind(&mark) else { return Ok(self.report(&mark, InstanceState::Running)) };
        let since = *lock(&self.taken).entry(name).or_insert_with(Instant::now);
        let state = if since.elapsed() < PATIENCE { InstanceState::Provisioning } else { InstanceState::Stopped };
        let mut report = self.report(&mark, state);
        report.state_detail = Some(format!("cannot listen on {} again: {error}", mark.address()));
        Ok(report)
    }

    async fn own_mark(&self, name: &InstanceName, key: &InstanceKey) -> Result<Mark, BackendError> {
        let mark = self.seam.read_mark(name).await?;
        let mark = mark.ok_or_else(|| BackendError::not_found(format!("no instance {name}")))?;
        if let Some(which) = mark.differs(&key.uid, &key.installation) {
            self.warn_foreign(name, which);
            return Err(BackendError::not_found(format!("instance {name} is not ours: mark {which} differs")));
        }
        Ok(mark)
    }

    pub(super) async fn list(&self) -> Result<ListResult, BackendError> {
        let (marks, failed) = self.seam.list_marks().await?;
        for error in failed {
            tracing::debug!(provider = %self.entry, %error, "mark left out of the list");
        }
        let ours = marks.iter().filter(|mark| mark.is_managed() && mark.is_of(&self.installation));
        let state = |mark| if self.listens(mark) { InstanceState::Running } else { InstanceState::Provisioning };
        let instances = ours.map(|mark| self.report(mark, state(mark))).collect();
        Ok(ListResult { instances, ..ListResult::default() })
    }

    /// Binds every mark of ours again.
    pub(super) async fn restore(&self) {
        let _turn = self.turn.lock().await;
        let listed = match self.seam.tidy_marks().await {
            Ok(()) => self.seam.list_marks().await,
            Err(error) => Err(error),
        };
        let (marks, failed) = match listed {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(provider = %self.entry, error = %error.message, "WARNING: the marks cannot be read, local proxies are not restored yet");
                return;
            }
        };
        for error in failed {
            tracing::warn!(provider = %self.entry, %error, "WARNING: a mark cannot be read, its local proxy is not restored");
        }
        let mut waiting: Vec<Mark> = marks.into_iter().filter(|mark| mark.is_managed() && mark.is_of(&self.installation)).collect();
        let started = Instant::now();
        loop {
            waiting.retain(|mark| {
                let bound = self.bind(mark);
                if let Err(error) = &bound {
                    tracing::debug!(provider = %self.entry, instance = %mark.name, address = %mark.address(), %error, "local proxy not restored");
                }
                bound.is_err()
            });
            if waiting.is_empty() || started.elapsed() >= START_PATIENCE {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn warn_foreign(&self, name: &InstanceName, which: &'static str) {
        tracing::warn!(provider = %self.entry, instance = %name, mark = which, "WARNING: an instance of that name is not ours, it is left alone");
    }

    fn report(&self, mark: &Mark, state: InstanceState) -> Report {
        let leaving = mark.source_address.map(|source| format!(", leaving from {source}")).unwrap_or_default();
        Report {
            id: id(&mark.name),
            name: mark.name.clone(),
            state,
            state_detail: Some(format!("listening on {}{leaving}", mark.address())),
            deleting: false,
            ip: (state == InstanceState::Running).then_some(mark.listen_address),
            uid: Uid::new(mark.uid.trim()),
            installation: InstallationId::new(mark.installation.trim()),
            created_at: mark.created_at(),
        }
    }

    fn listens(&self, mark: &Mark) -> bool {
        lock(&self.running).get(&mark.name).is_some_and(|running| running.address == mark.address() && running.instance.is_alive())
    }

    /// Makes the mark's address listen, if it does not. The caller has its turn.
    fn bind(&self, mark: &Mark) -> io::Result<()> {
        if self.listens(mark) {
            return Ok(());
        }
        if self.stopping.load(Ordering::Relaxed) {
            return Err(io::Error::other("the provider is stopping"));
        }
        lock(&self.running).remove(&mark.name);
        let listener = self.seam.listen(&mark.name, mark.address())?;
        self.serve(mark, listener);
        Ok(())
    }

    fn serve(&self, mark: &Mark, listener: TcpListener) {
        let proxy = mark.proxy();
        let mut running = lock(&self.running);
        let settings = Arc::new(Settings {
            identity: Identity { provider: Arc::clone(&self.entry), instance: mark.name.as_str().into(), proxy: proxy.as_str().into() },
            resolver: self.outside.resolver.of_an_instance().unwrap_or_else(|| Arc::clone(&self.outside.resolver)),
            source: mark.source_address,
            clock: self.outside.clock,
            metrics: self.outside.metrics.clone(),
            rules: ArcSwap::from_pointee(self.rules(&self.config.load(), &proxy, None)),
        });
        let instance = Instance::start(listener, Arc::clone(&settings));
        running.insert(mark.name.clone(), Running { address: mark.address(), source: mark.source_address, proxy, settings, instance });
        drop(running);
        lock(&self.taken).remove(&mark.name);
    }

    /// Ends a listener; its address is free afterwards.
    async fn close(&self, name: &InstanceName) {
        lock(&self.taken).remove(name);
        let running = lock(&self.running).remove(name);
        if let Some(running) = running {
            self.seam.close(name, running.instance).await;
        }
    }

    fn users_of(&self, source: IpAddr) -> usize {
        lock(&self.running).values().filter(|running| running.source == Some(source)).count()
    }

    /// Which Proxy of ours holds an address, or will when its mark is bound again: a create may come ahead of `restore`.
    async fn holders(&self) -> Result<HashMap<SocketAddrV4, String>, BackendError> {
        if lock(&self.held).is_none() {
            let (marks, _) = self.seam.list_marks().await?;
            let ours = marks.into_iter().filter(|mark| mark.is_managed() && mark.is_of(&self.installation));
            *lock(&self.held) = Some(ours.map(|mark| (mark.name.clone(), (mark.address(), mark.proxy()))).collect());
        }
        let mut holders: HashMap<_, _> = lock(&self.held).iter().flat_map(HashMap::values).cloned().collect();
        holders.extend(lock(&self.running).values().map(|running| (running.address, running.proxy.clone())));
        Ok(holders)
    }

    /// After a change of a mark: one that failed may have happened or not.
    fn keep_held<R>(
        &self,
        changed: &Result<(), BackendError>,
        change: impl FnOnce(&mut HashMap<InstanceName, (SocketAddrV4, String)>) -> R,
    ) {
        let mut held = lock(&self.held);
        match (changed, held.as_mut()) {
            (Ok(()), Some(held)) => drop(change(held)),
            (Err(_), _) => *held = None,
            (Ok(()), None) => {}
        }
    }
}

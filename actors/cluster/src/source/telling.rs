//! What the directory is told: every object as it is known, with its Secrets resolved.

use std::collections::BTreeSet;
use std::sync::Arc;

use egress_protocol::ObjectKey;
use egress_protocol::object::{CloudInit, ProxyObject};
use egress_protocol::proxies::ProxiesMessage;
use egress_protocol::resource::secrets;

use super::ClusterSource;
use super::secrets::Secrets;
use super::store::{Entry, News};

impl ClusterSource {
    pub(super) fn spread(&mut self, news: Vec<News>) {
        for news in news {
            match news {
                News::Changed(key) => self.tell(&key),
                News::Gone(key, uid) => {
                    self.refused.remove(&key);
                    if self.synced {
                        tracing::debug!(proxy = %key, uid = %uid, "object gone");
                        self.send(ProxiesMessage::Gone { key, uid });
                    }
                }
            }
        }
    }

    /// Tells of an object, if that is news. A status that its own writer has just written is none.
    pub(super) fn tell(&mut self, key: &ObjectKey) {
        let secrets = &self.secrets;
        let Some(entry) = self.store.get_mut(key).filter(|_| self.synced) else { return };
        let Some(object) = object(entry, secrets) else { return };
        let known = entry.told.as_deref();
        if known == Some(&object) {
            return;
        }
        let own_status = entry.wrote.as_ref() == Some(&object.status)
            && known.is_some_and(|known| *known == ProxyObject { status: Arc::clone(&known.status), ..object.clone() });
        let object = Arc::new(object);
        entry.told = Some(Arc::clone(&object));
        if !own_status {
            self.send(ProxiesMessage::Apply { object });
        }
    }

    /// A Secret changed.
    pub(super) fn tell_of_secret(&mut self, secret: &ObjectKey) {
        let names = |entry: &&Entry| {
            let body = entry.body.as_ref();
            body.is_some_and(|body| secrets::named(&body.spec, &entry.meta.key.namespace).any(|name| name == *secret))
        };
        let concerned: BTreeSet<ObjectKey> = self.store.iter().filter(names).map(|entry| entry.meta.key.clone()).collect();
        concerned.iter().for_each(|key| self.tell(key));
    }

    /// Many Secrets may have changed.
    pub(super) fn tell_all(&mut self) {
        self.store.keys().iter().for_each(|key| self.tell(key));
    }

    /// Everything, once more.
    pub(super) fn resend(&mut self) {
        if !self.synced {
            return;
        }
        self.untold = false;
        for key in self.store.keys() {
            if let Some(entry) = self.store.get_mut(&key) {
                entry.told = None;
            }
            self.tell(&key);
        }
        let live = self.store.iter().map(|entry| entry.meta.uid.clone()).collect();
        self.send(ProxiesMessage::Synced { live });
    }

    pub(super) fn objects(&self) -> Option<Vec<Arc<ProxyObject>>> {
        self.synced.then(|| self.store.iter().filter_map(|entry| entry.told.clone()).collect())
    }

    /// The directory is where the leader is; elsewhere nobody hears it.
    fn send(&mut self, message: ProxiesMessage) {
        self.untold |= self.proxies.send(message).is_err();
    }
}

/// As it is known; `None` when it never could be read.
fn object(entry: &Entry, secrets: &Secrets) -> Option<ProxyObject> {
    let (meta, body) = (&entry.meta, entry.body.as_ref()?);
    let cloud_init = match &body.inline {
        Some(inline) => CloudInit::Resolved { bytes: Arc::clone(inline), secret: None },
        None => secrets::cloud_init(&body.spec, &meta.key.namespace, secrets),
    };
    Some(ProxyObject {
        key: meta.key.clone(),
        uid: meta.uid.clone(),
        generation: body.generation,
        spec: Arc::clone(&body.spec),
        status: Arc::clone(&body.status),
        annotations: meta.annotations.clone(),
        deleting: meta.deleting,
        finalizer: meta.finalizer(),
        suspended: false,
        cloud_init,
        credentials: secrets::credentials(&body.spec, &meta.key.namespace, secrets),
    })
}

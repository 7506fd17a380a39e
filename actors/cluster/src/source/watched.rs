//! What the watches say, put into the books; and when it is enough to tell of it.

use egress_supervision::Context;

use super::decode::{Seen, SeenSecret};
use super::secrets::Labelled;
use super::store::{News, Origin};
use super::watch::Told;
use super::watching::Watching;
use super::{ClusterSource, Internal, Use};

impl ClusterSource {
    pub(super) fn watches(&self) -> [&Watching; 3] {
        [&self.proxies_watch, &self.cloud_init_watch, &self.credentials_watch]
    }

    pub(super) fn watches_mut(&mut self) -> impl Iterator<Item = &mut Watching> {
        [&mut self.proxies_watch, &mut self.cloud_init_watch, &mut self.credentials_watch].into_iter()
    }

    pub(super) fn proxies_told(&mut self, ctx: &Context<Self>, told: Told<Seen>) {
        let now = ctx.now();
        match told {
            Told::Listed { version, items, unreadable } => {
                let first = !self.proxies_watch.listed;
                self.proxies_watch.listed(now, unreadable);
                let news = self.store.listed(&version, items);
                self.warn_of_unreadable(&news);
                self.spread(news);
                if first {
                    self.waiting = Some(ctx.after(self.args.pace.secrets, Internal::Overdue));
                    self.sync();
                }
            }
            Told::Changed(seen) => {
                self.proxies_watch.heard(now);
                let news = self.store.observe(seen, Origin::Watch);
                self.warn_of_unreadable(&news);
                self.spread(news);
            }
            Told::Removed(seen) => {
                self.proxies_watch.heard(now);
                let news = self.store.gone(&seen.meta.key, &seen.meta.uid);
                self.spread(news);
            }
            Told::Unreadable(why) => self.proxies_watch.unreadable(why),
            Told::Heard => self.proxies_watch.heard(now),
            Told::Troubled(why) => self.proxies_watch.troubled(now, why),
        }
    }

    pub(super) fn secrets_told(&mut self, uses: Use, told: Told<SeenSecret>) {
        let now = self.clock.now();
        let (watch, secrets): (&mut Watching, &mut Labelled) = match uses {
            Use::CloudInit => (&mut self.cloud_init_watch, &mut self.secrets.cloud_init),
            Use::Credentials => (&mut self.credentials_watch, &mut self.secrets.credentials),
        };
        match told {
            Told::Listed { items, unreadable, .. } => {
                watch.listed(now, unreadable);
                secrets.listed(items);
                self.sync();
                self.tell_all();
            }
            Told::Changed(seen) => {
                watch.heard(now);
                let key = seen.key.clone();
                if secrets.put(seen) {
                    self.tell_of_secret(&key);
                }
            }
            Told::Removed(seen) => {
                watch.heard(now);
                if secrets.remove(&seen.key) {
                    self.tell_of_secret(&seen.key);
                }
            }
            Told::Unreadable(why) => watch.unreadable(why),
            Told::Heard => watch.heard(now),
            Told::Troubled(why) => watch.troubled(now, why),
        }
    }

    /// Tells everything for the first time, when nothing would be shown as missing that only was not read yet.
    pub(super) fn sync(&mut self) {
        let secrets = self.cloud_init_watch.listed && self.credentials_watch.listed;
        if !self.synced && self.proxies_watch.listed && (secrets || self.overdue) {
            self.synced = true;
            self.waiting = None;
            self.resend();
        }
    }

    fn warn_of_unreadable(&mut self, news: &[News]) {
        for key in news.iter().filter_map(|news| if let News::Changed(key) = news { Some(key) } else { None }) {
            let Some(entry) = self.store.get_mut(key) else { continue };
            if let (true, Some(reason)) = (std::mem::take(&mut entry.fault_is_news), &entry.fault) {
                tracing::warn!(proxy = %key, reason, "WARNING: a Proxy cannot be read, what was read of it last counts");
            }
        }
    }
}

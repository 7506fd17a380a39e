//! How the watches and writes are doing, for people (O11). Pure.

use std::time::Duration;

use egress_protocol::Timestamp;
use serde_json::{Value, json};

/// One watch.
#[derive(Debug)]
pub(crate) struct Watching {
    /// For people: `Proxies`.
    pub(crate) name: &'static str,
    /// It had its first full list.
    pub(crate) listed: bool,
    began: Timestamp,
    heard: Option<Timestamp>,
    trouble: Option<(Timestamp, String)>,
    /// A person was told of it.
    warned: bool,
    unreadable: Vec<String>,
}

impl Watching {
    pub(crate) const fn new(name: &'static str, now: Timestamp) -> Self {
        Self { name, listed: false, began: now, heard: None, trouble: None, warned: false, unreadable: Vec::new() }
    }

    /// Everything was listed, but for what could not be named.
    pub(crate) fn listed(&mut self, now: Timestamp, unreadable: Vec<String>) {
        self.listed = true;
        self.unreadable = unreadable;
        self.heard(now);
    }

    /// The API server spoke.
    pub(crate) fn heard(&mut self, now: Timestamp) {
        self.heard = Some(now);
        if self.trouble.take().is_some() && std::mem::take(&mut self.warned) {
            tracing::info!(objects = self.name, "the API server tells of objects again");
        }
    }

    /// Something came that could not be named.
    pub(crate) fn unreadable(&mut self, why: String) {
        if !self.unreadable.contains(&why) && self.unreadable.len() < 10 {
            tracing::warn!(objects = self.name, reason = why, "WARNING: the API server holds an object that cannot be read");
            self.unreadable.push(why);
        }
    }

    /// It did not speak, or not as it should.
    pub(crate) fn troubled(&mut self, now: Timestamp, why: String) {
        tracing::debug!(objects = self.name, reason = why, "objects are not told");
        match &mut self.trouble {
            Some((_, last)) => *last = why,
            None => self.trouble = Some((now, why)),
        }
    }

    /// Tells a person, once, of what does not go away by itself.
    pub(crate) fn look(&mut self, now: Timestamp, patience: Duration) {
        if let Some((since, why)) = &self.trouble
            && !self.warned
            && now.since(*since) >= patience
        {
            tracing::warn!(
                objects = self.name,
                reason = why,
                "WARNING: the API server does not tell of objects, what is known of them grows old"
            );
            self.warned = true;
        }
    }

    /// What is not in order.
    pub(crate) fn faults(&self, now: Timestamp, idle: Duration) -> Vec<String> {
        let name = self.name;
        let mut faults = Vec::new();
        let age = |at: Timestamp| format!("{} s", now.since(at).as_secs());
        let silent = self.heard.is_none_or(|heard| now.since(heard) > idle + idle / 4);
        match (&self.trouble, self.heard) {
            (Some((since, why)), Some(heard)) => {
                faults.push(format!("{name} are not told for {}, last heard of {} ago: {why}", age(*since), age(heard)));
            }
            (Some((since, why)), None) => faults.push(format!("{name} could not be listed for {}: {why}", age(*since))),
            (None, Some(heard)) if silent => faults.push(format!("{name} were last heard of {} ago", age(heard))),
            (None, None) => faults.push(format!("{name} are not listed yet, for {}", age(self.began))),
            (None, Some(_)) => {}
        }
        faults.extend(self.unreadable.iter().map(|why| format!("{name}: {why}")));
        faults
    }

    /// For `/debug/actors`.
    pub(crate) fn describe(&self, now: Timestamp) -> Value {
        json!({"listed": self.listed, "heardSecondsAgo": self.heard.map(|heard| now.since(heard).as_secs()), "trouble": self.trouble.is_some()})
    }
}

/// Whether the API server takes writes.
#[derive(Debug, Default)]
pub(crate) struct Away {
    trouble: Option<(Timestamp, String)>,
    warned: bool,
}

impl Away {
    /// It did not take one, through no fault of the object.
    pub(crate) fn troubled(&mut self, now: Timestamp, why: String) {
        match &mut self.trouble {
            Some((_, last)) => *last = why,
            None => self.trouble = Some((now, why)),
        }
    }

    /// It took one.
    pub(crate) fn well(&mut self) {
        if self.trouble.take().is_some() && std::mem::take(&mut self.warned) {
            tracing::info!("the API server takes writes again");
        }
    }

    /// Tells a person, once, of what does not go away by itself.
    pub(crate) fn look(&mut self, now: Timestamp, patience: Duration) {
        if let Some((since, why)) = &self.trouble
            && !self.warned
            && now.since(*since) >= patience
        {
            tracing::warn!(reason = why, "WARNING: the API server does not take writes");
            self.warned = true;
        }
    }

    pub(crate) fn fault(&self, now: Timestamp) -> Option<String> {
        let (since, why) = self.trouble.as_ref()?;
        Some(format!("the API server does not take writes for {} s: {why}", now.since(*since).as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_tell_since_when_and_how_old_what_is_known_is_o11() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let idle = Duration::from_secs(90);
        let mut watching = Watching::new("Proxies", at(0));
        assert_eq!(watching.faults(at(3), idle), ["Proxies are not listed yet, for 3 s"]);
        watching.troubled(at(5), "proxies is forbidden (403)".to_owned());
        assert_eq!(watching.faults(at(8), idle), ["Proxies could not be listed for 3 s: proxies is forbidden (403)"]);
        watching.listed(at(10), vec!["x".to_owned()]);
        assert_eq!(watching.faults(at(20), idle), ["Proxies: x"]);
        watching.listed(at(20), vec![]);
        assert!(watching.faults(at(130), idle).is_empty());
        assert_eq!(watching.faults(at(134), idle), ["Proxies were last heard of 114 s ago"]);
        watching.troubled(at(140), "refused".to_owned());
        watching.troubled(at(150), "silent".to_owned());
        assert_eq!(watching.faults(at(160), idle), ["Proxies are not told for 20 s, last heard of 140 s ago: silent"]);
        watching.heard(at(161));
        assert!(watching.faults(at(161), idle).is_empty());
    }
}

//! The Secrets with our two labels: nothing else is ever asked of Secrets, so one that lacks the label of the use is as
//! invisible as one that is missing (operator.md §3.1).

use std::collections::BTreeMap;
use std::sync::Arc;

use egress_protocol::ObjectKey;
use egress_protocol::resource::secrets::{KnownSecrets, SecretContent};
use egress_protocol::resource::{LABEL_CLOUD_INIT, LABEL_CREDENTIALS};

use super::decode::SeenSecret;

/// Those with one label.
#[derive(Debug)]
pub(crate) struct Labelled {
    label: &'static str,
    /// `None` before the first list.
    known: Option<BTreeMap<ObjectKey, Arc<SecretContent>>>,
}

impl Labelled {
    const fn new(label: &'static str) -> Self {
        Self { label, known: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.known.as_ref().map_or(0, BTreeMap::len)
    }

    /// All there are.
    pub(crate) fn listed(&mut self, all: Vec<SeenSecret>) {
        self.known = Some(all.into_iter().map(|seen| (seen.key, seen.content)).collect());
    }

    /// One came or changed; whether that is news.
    pub(crate) fn put(&mut self, seen: SeenSecret) -> bool {
        let Some(known) = &mut self.known else { return false };
        let before = known.insert(seen.key, Arc::clone(&seen.content));
        before.is_none_or(|before| before != seen.content)
    }

    /// One is gone, or lost the label.
    pub(crate) fn remove(&mut self, key: &ObjectKey) -> bool {
        self.known.as_mut().is_some_and(|known| known.remove(key).is_some())
    }

    fn find(&self, key: &ObjectKey) -> Result<&SecretContent, String> {
        let label = self.label;
        match &self.known {
            None => Err(format!("Secret {key} is not known: the Secrets with the label {label}: \"true\" could not be listed")),
            Some(known) => known
                .get(key)
                .map(|secret| &**secret)
                .ok_or_else(|| format!("Secret {key} is missing, or lacks the label {label}: \"true\"")),
        }
    }
}

/// By use.
#[derive(Debug)]
pub(crate) struct Secrets {
    pub(crate) cloud_init: Labelled,
    pub(crate) credentials: Labelled,
}

impl Default for Secrets {
    fn default() -> Self {
        Self { cloud_init: Labelled::new(LABEL_CLOUD_INIT), credentials: Labelled::new(LABEL_CREDENTIALS) }
    }
}

impl KnownSecrets for Secrets {
    fn find(&self, key: &ObjectKey, label: &str) -> Result<&SecretContent, String> {
        if label == LABEL_CLOUD_INIT { self.cloud_init.find(key) } else { self.credentials.find(key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_by_label_op_21_he_12() {
        let mut secrets = Secrets::default();
        let key = ObjectKey::new("team", "boot");
        let seen = || SeenSecret { key: key.clone(), content: Arc::default() };
        let why = |secrets: &Secrets| secrets.find(&key, LABEL_CLOUD_INIT).cloned().unwrap_err();
        assert_eq!(
            why(&secrets),
            "Secret team/boot is not known: the Secrets with the label crawl.example.com/cloud-init: \"true\" could not be listed"
        );
        secrets.credentials.listed(vec![seen()]);
        secrets.cloud_init.listed(vec![]);
        assert_eq!(why(&secrets), "Secret team/boot is missing, or lacks the label crawl.example.com/cloud-init: \"true\"");
        assert!(secrets.cloud_init.put(seen()) && !secrets.cloud_init.put(seen()), "the same again is no news");
        assert!(secrets.find(&key, LABEL_CLOUD_INIT).is_ok());
        assert!(secrets.cloud_init.remove(&key) && !secrets.cloud_init.remove(&key));
        assert!(why(&secrets).contains("is missing"));
    }
}

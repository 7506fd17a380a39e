//! What becomes of each entry when the providers file changes: pure (OP-26, PC-83).

use std::sync::Arc;

use super::ProviderEntry;

/// What becomes of an entry. One that is not named stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// There was none of that name.
    Added,
    /// It takes its new settings over as it runs.
    Live,
    /// It needs a restart.
    Restarted,
    /// Another type has the name now: a removal and an addition.
    Retyped,
    /// There is none any more.
    Removed,
}

/// The changes from one file to the next, removals first.
pub(crate) fn plan(old: &[ProviderEntry], new: &[ProviderEntry]) -> Vec<(Arc<str>, Change)> {
    let find = |entries: &[ProviderEntry], name: &str| entries.iter().position(|entry| &*entry.args.name == name);
    let removed = old.iter().filter(|entry| find(new, &entry.args.name).is_none());
    let removed = removed.map(|entry| (Arc::clone(&entry.args.name), Change::Removed));
    let others = new.iter().filter_map(|entry| {
        let change = match find(old, &entry.args.name).map(|at| &old[at]) {
            None => Change::Added,
            Some(before) if before.type_ != entry.type_ => Change::Retyped,
            Some(before) if before.fingerprint == entry.fingerprint => return None,
            Some(before) if before.foundation == entry.foundation => Change::Live,
            Some(_) => Change::Restarted,
        };
        Some((Arc::clone(&entry.args.name), change))
    });
    removed.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use egress_supervision::Failure;

    use super::*;
    use crate::ProviderArgs;

    fn entry(name: &str, type_: &'static str, fingerprint: &str, foundation: &str) -> ProviderEntry {
        ProviderEntry {
            type_,
            fingerprint: fingerprint.to_owned(),
            foundation: foundation.to_owned(),
            settings: Arc::new(()),
            args: ProviderArgs {
                name: name.into(),
                max_concurrent_creates: 4,
                stop_grace: Duration::ZERO,
                fence: egress_protocol::leadership::Fence::open(),
                build: Arc::new(|_| Err(Failure("never built".to_owned()))),
            },
        }
    }

    #[test]
    fn only_what_changed_is_named() {
        let old = [
            entry("same", "x", "1", "1"),
            entry("knob", "x", "1", "1"),
            entry("base", "x", "1", "1"),
            entry("type", "x", "1", "1"),
            entry("gone", "x", "1", "1"),
        ];
        let new = [
            entry("type", "y", "1", "1"),
            entry("base", "x", "2", "2"),
            entry("new", "x", "1", "1"),
            entry("same", "x", "1", "1"),
            entry("knob", "x", "2", "1"),
        ];
        let changes = plan(&old, &new);
        let changes: Vec<_> = changes.iter().map(|(name, change)| (&**name, *change)).collect();
        assert_eq!(
            changes,
            [
                ("gone", Change::Removed),
                ("type", Change::Retyped),
                ("base", Change::Restarted),
                ("new", Change::Added),
                ("knob", Change::Live),
            ]
        );
        assert_eq!(plan(&new, &new), []);
    }
}

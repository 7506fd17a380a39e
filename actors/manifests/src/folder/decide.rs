//! What follows from the folders for the objects, and for the Secrets, that are known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egress_protocol::ObjectKey;
use egress_protocol::object::Annotations;
use egress_protocol::resource::ProxySpec;
use egress_protocol::resource::secrets::SecretContent;
use egress_protocol::resource::validate::check_change;

use super::claims::{Claim, Claims, Kept, kept_because, place, unreadable};
use super::tracker::Tracker;
use super::{Declared, DeclaredProxy, Home, Kind, Name};

/// What is known of an object before the decision.
#[derive(Debug, Clone)]
pub(crate) struct KnownProxy {
    pub(crate) home: Home,
    pub(crate) spec: Arc<ProxySpec>,
    pub(crate) annotations: Annotations,
    /// It is being deleted, or its removal is being written down.
    pub(crate) deleting: bool,
}

/// What is known of a Secret.
#[derive(Debug, Clone)]
pub(crate) struct KnownSecret {
    pub(crate) home: Home,
    pub(crate) secret: Arc<SecretContent>,
}

/// What becomes of one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    /// A new one: it gets a UID.
    Create { key: ObjectKey, home: Home, declared: DeclaredProxy },
    /// Something of it changed; the generation counts on when the spec is among it.
    Update { key: ObjectKey, home: Home, declared: DeclaredProxy, spec_changed: bool },
    /// Its document, valid or not, is elsewhere now.
    Move { key: ObjectKey, home: Home },
    /// Its document is gone.
    Delete { key: ObjectKey },
}

/// The outcome of one look.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    pub(crate) objects: Vec<Decision>,
    /// The Secrets that changed, came or went.
    pub(crate) secrets: BTreeSet<ObjectKey>,
    /// What is not in order, for people; sorted.
    pub(crate) faults: Vec<String>,
}

/// Decides. `given` tells whether a folder is among those of this process.
pub(crate) fn decide(
    tracker: &Tracker,
    objects: &BTreeMap<ObjectKey, KnownProxy>,
    secrets: &mut BTreeMap<ObjectKey, KnownSecret>,
    given: &dyn Fn(&str) -> bool,
) -> Decisions {
    let proxy_name = |key: &ObjectKey| Name { kind: Kind::Proxy, key: key.clone() };
    let secret_name = |key: &ObjectKey| Name { kind: Kind::Secret, key: key.clone() };
    let mut claims = {
        let homes = objects.iter().map(|(key, known)| (proxy_name(key), &known.home));
        Claims::of(tracker, homes.chain(secrets.iter().map(|(key, known)| (secret_name(key), &known.home))))
    };
    let mut out = Decisions { faults: std::mem::take(&mut claims.faults), ..Decisions::default() };
    let mut kept = KeptNames::default();
    let unreadable = unreadable(tracker);

    for (name, claim) in claims.iter().filter(|(name, _)| name.kind == Kind::Proxy) {
        let known = objects.get(&name.key);
        match judge(name, claim, known) {
            Ok(decision) => out.objects.extend(decision),
            Err(fault) => {
                out.faults.push(fault);
                out.objects.extend(moved(&name.key, claim, known));
            }
        }
    }
    for (key, known) in objects {
        let name = proxy_name(key);
        if known.deleting || claims.get(&name).is_some() || !given(&known.home.folder) || !tracker.quiet() {
            continue;
        }
        match kept_because(tracker, &unreadable, &name, &known.home) {
            None => out.objects.push(Decision::Delete { key: key.clone() }),
            Some(why) => kept.add(name, &known.home, why),
        }
    }

    out.secrets = follow_secrets(tracker, &claims, &unreadable, secrets, &mut kept);
    out.faults.extend(kept.faults());
    out.faults.extend(missing_folders(tracker, &kept));
    out.faults.sort();
    out.faults.dedup();
    out
}

fn moved(key: &ObjectKey, claim: &Claim<'_>, known: Option<&KnownProxy>) -> Option<Decision> {
    known.filter(|known| known.home != claim.home).map(|_| Decision::Move { key: key.clone(), home: claim.home.clone() })
}

/// What one document means for its object; the error is a fault of the document.
fn judge(name: &Name, claim: &Claim<'_>, known: Option<&KnownProxy>) -> Result<Option<Decision>, String> {
    let (key, home) = (name.key.clone(), claim.home.clone());
    let Some(Declared::Proxy(declared)) = claim.declared else {
        return Ok(moved(&name.key, claim, known));
    };
    let Some(known) = known else {
        return Ok(Some(Decision::Create { key, home, declared: declared.clone() }));
    };
    if known.deleting {
        // The document is of a successor, which waits until this one is gone.
        return Ok(moved(&name.key, claim, Some(known)));
    }
    let spec_changed = *known.spec != *declared.spec;
    if spec_changed {
        let faults: Vec<String> = check_change(&known.spec, &declared.spec).iter().map(ToString::to_string).collect();
        if !faults.is_empty() {
            let (place, faults) = (place(&claim.home, claim.line), faults.join(", "));
            return Err(format!("{place}: {name}: {faults}; the last accepted document stays"));
        }
    }
    if spec_changed || known.annotations != declared.annotations {
        return Ok(Some(Decision::Update { key, home, declared: declared.clone(), spec_changed }));
    }
    Ok(moved(&name.key, claim, Some(known)))
}

/// Brings the known Secrets up to date; the same rules as for objects. Answers which differ.
fn follow_secrets(
    tracker: &Tracker,
    claims: &Claims<'_>,
    unreadable: &[(Home, &str)],
    secrets: &mut BTreeMap<ObjectKey, KnownSecret>,
    kept: &mut KeptNames,
) -> BTreeSet<ObjectKey> {
    let mut changed = BTreeSet::new();
    for (name, claim) in claims.iter().filter(|(name, _)| name.kind == Kind::Secret) {
        let known = secrets.get_mut(&name.key);
        match (known, claim.declared) {
            (Some(known), Some(Declared::Secret(secret))) => {
                if known.secret != *secret {
                    known.secret = Arc::clone(secret);
                    changed.insert(name.key.clone());
                }
                known.home = claim.home.clone();
            }
            (Some(known), _) => known.home = claim.home.clone(),
            (None, Some(Declared::Secret(secret))) => {
                secrets.insert(name.key.clone(), KnownSecret { home: claim.home.clone(), secret: Arc::clone(secret) });
                changed.insert(name.key.clone());
            }
            (None, _) => {}
        }
    }
    if tracker.quiet() {
        secrets.retain(|key, known| {
            let name = Name { kind: Kind::Secret, key: key.clone() };
            if claims.get(&name).is_some() {
                return true;
            }
            if let Some(why) = kept_because(tracker, unreadable, &name, &known.home) {
                kept.add(name, &known.home, why);
                return true;
            }
            changed.insert(key.clone());
            false
        });
    }
    changed
}

/// Names that no document declares and that stay all the same.
#[derive(Debug, Default)]
struct KeptNames {
    in_files: BTreeMap<String, Vec<Name>>,
    in_folders: BTreeMap<Arc<str>, usize>,
}

impl KeptNames {
    fn add(&mut self, name: Name, home: &Home, why: Kept) {
        match why {
            Kept::FolderMissing => *self.in_folders.entry(Arc::clone(&home.folder)).or_default() += 1,
            Kept::In(file) => self.in_files.entry(file.to_string()).or_default().push(name),
        }
    }

    fn faults(&self) -> impl Iterator<Item = String> {
        self.in_files.iter().map(|(file, names)| {
            let some: Vec<String> = names.iter().take(3).map(ToString::to_string).collect();
            let more = names.len().saturating_sub(3);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{file}: may declare {}{more}: kept until the file can be understood", some.join(", "))
        })
    }
}

fn missing_folders<'a>(tracker: &'a Tracker, kept: &'a KeptNames) -> impl Iterator<Item = String> + 'a {
    tracker.missing().filter_map(|(folder, reason)| {
        let kept = kept.in_folders.get(folder).copied().unwrap_or(0);
        match (reason, kept) {
            (Some(reason), _) => Some(format!("{folder}: the folder is missing ({reason}); nothing of it is deleted")),
            (None, 0) => None,
            (None, kept) => Some(format!("{folder}: the folder holds no manifest and counts as missing; {kept} of its documents are kept")),
        }
    })
}

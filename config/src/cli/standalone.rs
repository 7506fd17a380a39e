//! `standalone`: its flags → its settings, every fault at once.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::common::{self, Own, providers_of};
use super::faults::Faults;
use super::raw;
use super::settings::{Objects, StandaloneSettings};
use crate::providers::ProvidersConfig;

/// The error is a text of one line for each fault.
pub(super) fn read(raw: raw::Standalone, token: Option<OsString>, variables: &BTreeSet<String>) -> Result<StandaloneSettings, String> {
    let mut faults = Faults::new(variables);
    let own = Own {
        providers_config: raw.providers_config.clone(),
        discovery_bind_address: raw.discovery_bind_address,
        metrics_bind_address: raw.metrics_bind_address,
        health_probe_bind_address: raw.health_probe_bind_address,
        installation_id: raw.installation_id,
    };
    let (state, mut objects) = (raw.state, Objects::Demonstration);
    let common = common::read(own, raw.common, token, &mut faults, |look, faults| {
        let (found, providers) = sources(raw.manifests, raw.providers_config.as_deref(), look, faults);
        objects = found;
        if state.as_os_str().is_empty() {
            faults.value("state", "\"\"", "must name a folder");
        }
        providers
    });
    let common = faults.finish(common)?;
    Ok(StandaloneSettings { objects, state, common })
}

/// OP-2: `--providers-config` without `--manifests` is refused, neither is the demonstration.
fn sources(manifests: Vec<PathBuf>, file: Option<&Path>, look: bool, faults: &mut Faults<'_>) -> (Objects, Option<ProvidersConfig>) {
    let providers = if look { providers_of(file, faults) } else { None };
    if manifests.iter().any(|folder| folder.as_os_str().is_empty()) {
        faults.value("manifests", "\"\"", "must name a folder");
    }
    let objects = match (manifests.is_empty(), file) {
        (false, _) => Objects::Folders(manifests),
        (true, None) => Objects::Demonstration,
        (true, Some(path)) => {
            let reason = "needs a folder of Proxies: give --manifests DIR too, or leave both out for a demonstration";
            faults.value("providers-config", path.display(), reason);
            Objects::Demonstration
        }
    };
    (objects, providers)
}

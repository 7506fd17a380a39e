//! Where a machine goes and what it is made of: a Proxy's placement against the entry's catalogue (LV-43). Pure, before any
//! dial; what cannot be served is Permanent.

use egress_protocol::resource::Placement;
use egress_provider::BackendError;

use crate::profile::Profile;
use crate::settings::{Host, Image, MachineType, Settings};

/// What a placement means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// Where.
    pub host: &'a Host,
    /// How large.
    pub size: MachineType,
    /// The image's key.
    pub key: &'a str,
    /// The image.
    pub image: &'a Image,
}

impl Resolved<'_> {
    /// The volume that the image is cached in (§1).
    pub fn base(&self, profile: Profile, entry: &str) -> String {
        format!("{}.{}", profile.base(entry, self.key), self.image.format.as_str())
    }
}

/// Looks a placement up. `region` has no meaning here.
pub fn resolve<'a>(profile: Profile, settings: &'a Settings, placement: &Placement) -> Result<Resolved<'a>, BackendError> {
    let host = host(profile, settings, placement.zone.as_deref())?;
    let block = profile.block;
    let key = placement.machine_type.as_deref().unwrap_or_default();
    let size = settings.machine_types.iter().find(|(name, _)| name == key).map(|(_, size)| *size);
    let size = size.ok_or_else(|| BackendError::permanent(format!("placement.machineType {key:?} is not in {block}.machineTypes")))?;
    let wanted = placement.image.as_deref().unwrap_or_default();
    let image = settings.images.iter().find(|(name, _)| name == wanted);
    let (key, image) = image.ok_or_else(|| BackendError::permanent(unknown_image(block, wanted, settings.url_images)))?;
    Ok(Resolved { host, size, key, image })
}

/// The host that a zone names, or the only one (LV-231).
pub fn host<'a>(profile: Profile, settings: &'a Settings, zone: Option<&str>) -> Result<&'a Host, BackendError> {
    let block = profile.block;
    match (zone.unwrap_or_default(), settings.hosts.as_slice()) {
        ("", [only]) => Ok(only),
        ("", _) => Err(BackendError::permanent(format!("placement.zone is required when {block}.hosts lists more than one host"))),
        (zone, hosts) => hosts
            .iter()
            .find(|host| host.name == zone)
            .ok_or_else(|| BackendError::permanent(format!("placement.zone {zone:?} is not in {block}.hosts"))),
    }
}

/// A URL is named by its host alone: the rest may hold a token (LV-112).
fn unknown_image(block: &str, image: &str, url_images: bool) -> String {
    let url = ["http://", "https://"].iter().find_map(|scheme| {
        let start = image.get(..scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then(|| &image[scheme.len()..])
    });
    match url {
        Some(rest) => {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = authority.rsplit('@').next().unwrap_or_default();
            let off = if url_images {
                "images by URL are not supported by this version".to_owned()
            } else {
                format!("{block}.allowURLImages is off")
            };
            format!("placement.image is a URL on host {host:?}, and {off}")
        }
        None => format!("placement.image {image:?} is not a key in {block}.images"),
    }
}

#[cfg(test)]
mod tests;

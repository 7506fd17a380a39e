//! What a Proxy's placement asks for (GC-3), checked before any call (PC-19). `region` and the port have no use here.

use egress_protocol::resource::Placement;
use egress_provider::BackendError;

use crate::id::is_zone;

/// Longest reference that Compute Engine takes for an image.
const LONGEST_IMAGE: usize = 2048;

/// A placement that can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) zone: String,
    pub(crate) machine_type: String,
    pub(crate) image: String,
}

impl Place {
    /// Every field, or a Permanent error that names the first bad one with its value.
    pub(crate) fn of(placement: &Placement) -> Result<Self, BackendError> {
        let zone = required("zone", placement.zone.as_deref(), "a zone such as europe-west1-b", is_zone)?;
        let machine_type = required("machineType", placement.machine_type.as_deref(), "a machine type such as e2-small", is_machine_type)?;
        let image = required(
            "image",
            placement.image.as_deref(),
            "an image such as projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64",
            is_image,
        )?;
        Ok(Self { zone, machine_type, image })
    }
}

fn required(field: &str, value: Option<&str>, example: &str, good: fn(&str) -> bool) -> Result<String, BackendError> {
    match value.filter(|value| !value.is_empty()) {
        None => Err(BackendError::permanent(format!("placement.{field}: is required by this provider: {example}"))),
        Some(value) if good(value) => Ok(value.to_owned()),
        Some(value) => Err(BackendError::permanent(format!("placement.{field}: {value:?} is not {example}"))),
    }
}

/// A resource name, with the dash-separated sizes of a custom type (`custom-2-4096-ext` is one too).
fn is_machine_type(text: &str) -> bool {
    is_zone(text)
}

/// Part of a path: no empty segment, nothing that would end the path or climb in it. A full URL is taken as well.
fn is_image(text: &str) -> bool {
    let path = text.strip_prefix("https://").unwrap_or(text);
    text.len() <= LONGEST_IMAGE
        && path.split('/').all(|part| {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
            !part.is_empty() && part != "." && part != ".." && part.bytes().all(allowed)
        })
}

#[cfg(test)]
mod tests {
    use egress_protocol::provider::ErrorClass;

    use super::*;

    fn placement(zone: &str, machine_type: &str, image: &str) -> Placement {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Placement { zone: some(zone), machine_type: some(machine_type), image: some(image), ..Placement::default() }
    }

    const IMAGE: &str = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64";

    #[test]
    fn a_whole_placement_is_taken_as_it_is() {
        let place = Place::of(&placement("europe-west1-b", "e2-small", IMAGE)).unwrap();
        assert_eq!((place.zone.as_str(), place.machine_type.as_str(), place.image.as_str()), ("europe-west1-b", "e2-small", IMAGE));
        for image in [
            "global/images/mine-1",
            "https://www.googleapis.com/compute/v1/projects/p/global/images/i",
            "projects/example.com:p/global/images/i",
        ] {
            assert!(Place::of(&placement("europe-west1-b", "custom-2-4096", image)).is_ok(), "{image}");
        }
    }

    /// GC-3, PC-19.
    #[test]
    fn what_is_missing_or_ill_formed_is_named_with_its_value() {
        for (given, field, value) in [
            (placement("", "e2-small", IMAGE), "placement.zone", "required"),
            (placement("europe-west1-b", "", IMAGE), "placement.machineType", "required"),
            (placement("europe-west1-b", "e2-small", ""), "placement.image", "required"),
            (placement("Europe", "e2-small", IMAGE), "placement.zone", "\"Europe\""),
            (placement("europe-west1-b/x", "e2-small", IMAGE), "placement.zone", "\"europe-west1-b/x\""),
            (placement("europe-west1-b", "zones/a/e2", IMAGE), "placement.machineType", "\"zones/a/e2\""),
            (placement("europe-west1-b", "e2-small", "projects//x"), "placement.image", "\"projects//x\""),
            (placement("europe-west1-b", "e2-small", "projects/../x"), "placement.image", "\"projects/../x\""),
            (placement("europe-west1-b", "e2-small", "a?b"), "placement.image", "\"a?b\""),
        ] {
            let error = Place::of(&given).unwrap_err();
            assert_eq!(error.class, ErrorClass::Permanent);
            assert!(error.message.starts_with(field) && error.message.contains(value), "{}", error.message);
        }
    }
}

//! What an instance was made from, as one word (OP-16): `v1:<hex>` of SHA-256 over a canonical encoding of placement,
//! resolved cloud-init and port, nothing else.
//!
//! What must stay true: an encoder that was ever released never changes; a new one gets a new prefix, and a recorded
//! word is always compared by the encoder of its own prefix, so that an upgrade replaces nothing.

use std::fmt::Write as _;
use std::sync::Arc;

use egress_protocol::object::{CloudInit, ProxyObject};
use egress_protocol::resource::Placement;
use sha2::{Digest, Sha256};

/// The encoder in use.
const CURRENT: &str = "v1";

/// What the hash covers. Hashing is done once per change of the object, not per comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecHash {
    v1: Arc<str>,
}

impl SpecHash {
    /// Of an object; `None` while its cloud-init is unresolved (OP-21): then nothing can be said.
    pub fn of(object: &ProxyObject) -> Option<Self> {
        let user_data = match &object.cloud_init {
            CloudInit::None => None,
            CloudInit::Resolved { bytes, .. } => Some(bytes.expose().as_slice()),
            CloudInit::Unresolved { .. } => return None,
        };
        Some(Self { v1: v1(object.spec.placement.as_ref(), user_data, object.spec.port).into() })
    }

    /// As it is recorded.
    pub fn current(&self) -> &Arc<str> {
        &self.v1
    }

    /// Whether a recorded word stands for the same; a word of an unknown encoder does not.
    pub fn matches(&self, recorded: &str) -> bool {
        match recorded.split_once(':') {
            Some((CURRENT, _)) => *self.v1 == *recorded,
            _ => false,
        }
    }
}

/// Each present field as `name=length:bytes\n`, in this order; an absent one is not encoded.
fn v1(placement: Option<&Placement>, user_data: Option<&[u8]>, port: u16) -> String {
    let mut digest = Sha256::new();
    let mut field = |name: &str, value: Option<&[u8]>| {
        if let Some(value) = value {
            digest.update(format!("{name}={}:", value.len()));
            digest.update(value);
            digest.update("\n");
        }
    };
    if let Some(placement) = placement {
        field("region", placement.region.as_deref().map(str::as_bytes));
        field("zone", placement.zone.as_deref().map(str::as_bytes));
        field("machineType", placement.machine_type.as_deref().map(str::as_bytes));
        field("image", placement.image.as_deref().map(str::as_bytes));
    }
    field("cloudInit", user_data);
    field("port", Some(port.to_string().as_bytes()));
    digest.finalize().iter().fold(format!("{CURRENT}:"), |mut word, byte| {
        let _ = write!(word, "{byte:02x}");
        word
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement() -> Placement {
        Placement {
            region: Some("eu".into()),
            zone: Some("eu-1".into()),
            machine_type: Some("small".into()),
            image: Some("debian-13".into()),
        }
    }

    #[test]
    fn the_hash_is_pinned_by_golden_values_op_16() {
        let all = v1(Some(&placement()), Some(b"#cloud-config\n"), 3128);
        assert_eq!(all, "v1:7a6bb2907ae770844edc25a321436f85a02ad5f8d05b5eb01a901d3c4becaa77");
        assert_eq!(v1(None, None, 3128), "v1:273705e6278476e049f7e3cd848313b264a62afcd5773b3a643d429b445d376e");
    }

    #[test]
    fn an_absent_field_is_not_encoded_and_an_empty_one_is_op_16() {
        assert_eq!(v1(None, None, 1), v1(Some(&Placement::default()), None, 1));
        assert_ne!(v1(None, None, 1), v1(None, Some(b""), 1));
        let zone = Placement { zone: Some("x".into()), ..Placement::default() };
        let region = Placement { region: Some("x".into()), ..Placement::default() };
        assert_ne!(v1(Some(&zone), None, 1), v1(Some(&region), None, 1));
        assert_ne!(v1(None, None, 1), v1(None, None, 2));
    }

    #[test]
    fn a_word_of_an_unknown_encoder_stands_for_something_else_op_16() {
        let hash = SpecHash { v1: v1(None, None, 1).into() };
        assert!(hash.matches(&v1(None, None, 1)));
        assert!(!hash.matches("v9:abc"));
        assert!(!hash.matches(""));
    }
}

//! The body of an insert (GC-5): pure. What is shown of it in the log holds the length of the user-data, never a byte of it.

use std::fmt;
use std::sync::Arc;

use egress_config::providers::gcp::AddressMode;
use egress_protocol::Secret;
use egress_protocol::provider::CreateRequest;
use egress_provider::{BackendError, ownership};
use serde_json::{Value, json};

use crate::config::GcpConfig;
use crate::place::Place;

/// The longest metadata value that Compute Engine takes: 256 KiB.
const LONGEST_USER_DATA: usize = 256 * 1024;

/// `Instance`, to be inserted.
pub(crate) struct InsertBody {
    shown: Value,
    user_data: Arc<Secret<Vec<u8>>>,
}

impl InsertBody {
    /// Of a request whose placement was read already. User-data that cannot be a metadata value is Permanent.
    pub(crate) fn new(request: &CreateRequest, place: &Place, config: &GcpConfig, disk_size_gb: u32) -> Result<Self, BackendError> {
        let user_data = request.cloud_init.expose();
        if user_data.len() > LONGEST_USER_DATA {
            let bytes = user_data.len();
            return Err(BackendError::permanent(format!("cloudInit: has {bytes} bytes, Compute Engine takes at most {LONGEST_USER_DATA}")));
        }
        if std::str::from_utf8(user_data).is_err() {
            return Err(BackendError::permanent("cloudInit: is not UTF-8, and Compute Engine takes only text as metadata"));
        }
        let mut interface = json!({ "network": config.network });
        if let Some(subnetwork) = &config.subnetwork {
            interface["subnetwork"] = json!(subnetwork);
        }
        match config.address_mode {
            AddressMode::External => interface["accessConfigs"] = json!([{ "name": "External NAT", "type": "ONE_TO_ONE_NAT" }]),
            AddressMode::Internal => {}
        }
        let shown = json!({
            "name": request.name.as_str(),
            "machineType": format!("zones/{}/machineTypes/{}", place.zone, place.machine_type),
            "labels": {
                ownership::MANAGED: "true",
                ownership::UID: request.uid.as_str(),
                ownership::INSTALLATION: request.installation.as_str(),
            },
            "tags": { "items": [config.network_tag] },
            "networkInterfaces": [interface],
            "disks": [{
                "boot": true,
                "autoDelete": true,
                // int64 in the discovery document, which is a string in JSON.
                "initializeParams": { "sourceImage": place.image, "diskSizeGb": disk_size_gb.to_string() },
            }],
        });
        Ok(Self { shown, user_data: Arc::clone(&request.cloud_init) })
    }

    /// What is sent.
    pub(crate) fn to_bytes(&self) -> Secret<Vec<u8>> {
        let mut body = self.shown.clone();
        // Checked in `new`.
        let text = String::from_utf8_lossy(self.user_data.expose());
        if !text.is_empty() {
            body["metadata"] = json!({ "items": [{ "key": "user-data", "value": text }] });
        }
        Secret::new(body.to_string().into_bytes())
    }
}

impl fmt::Display for InsertBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {} bytes of user-data", self.shown, self.user_data.expose().len())
    }
}

impl fmt::Debug for InsertBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use egress_protocol::provider::ErrorClass;

    use super::*;
    use crate::testing::{config, request};

    fn sent(request: &CreateRequest, config: &GcpConfig) -> Value {
        let place = Place::of(&request.placement).unwrap();
        serde_json::from_slice(InsertBody::new(request, &place, config, 10).unwrap().to_bytes().expose()).unwrap()
    }

    /// GC-5, field by field.
    #[test]
    fn an_insert_says_exactly_what_a_proxy_needs() {
        let request = request("u-1", b"#cloud-config\n");
        assert_eq!(
            sent(&request, &config()),
            json!({
                "name": request.name.as_str(),
                "machineType": "zones/europe-west1-b/machineTypes/e2-small",
                "labels": {"proxy-operator-managed": "true", "proxy-operator-uid": "u-1", "proxy-operator-installation": "inst"},
                "tags": {"items": ["proxy-operator"]},
                "networkInterfaces": [{
                    "network": "global/networks/default",
                    "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}],
                }],
                "disks": [{
                    "boot": true,
                    "autoDelete": true,
                    "initializeParams": {"sourceImage": "projects/p/global/images/family/f", "diskSizeGb": "10"},
                }],
                "metadata": {"items": [{"key": "user-data", "value": "#cloud-config\n"}]},
            })
        );
    }

    #[test]
    fn internal_mode_asks_for_no_external_address_and_a_subnetwork_is_named_when_set() {
        let config = GcpConfig { address_mode: AddressMode::Internal, subnetwork: Some("regions/r/subnetworks/s".to_owned()), ..config() };
        let body = sent(&request("u-1", b"x"), &config);
        assert_eq!(body["networkInterfaces"], json!([{"network": "global/networks/default", "subnetwork": "regions/r/subnetworks/s"}]));
    }

    #[test]
    fn without_cloud_init_there_is_no_metadata() {
        assert_eq!(sent(&request("u-1", b""), &config()).get("metadata"), None);
    }

    #[test]
    fn user_data_that_is_no_metadata_value_is_refused() {
        for (bytes, says) in [(vec![0xff, 0xfe], "not UTF-8"), (vec![b'x'; LONGEST_USER_DATA + 1], "262145 bytes")] {
            let request = request("u-1", &bytes);
            let place = Place::of(&request.placement).unwrap();
            let error = InsertBody::new(&request, &place, &config(), 10).unwrap_err();
            assert_eq!(error.class, ErrorClass::Permanent);
            assert!(error.message.starts_with("cloudInit:") && error.message.contains(says), "{}", error.message);
        }
        let request = request("u-1", &vec![b'x'; LONGEST_USER_DATA]);
        let place = Place::of(&request.placement).unwrap();
        assert!(InsertBody::new(&request, &place, &config(), 10).is_ok());
    }

    /// PC-75, GC-29.
    #[test]
    fn what_is_shown_of_it_holds_no_user_data() {
        let request = request("u-1", b"sentinel-user-data");
        let place = Place::of(&request.placement).unwrap();
        let body = InsertBody::new(&request, &place, &config(), 10).unwrap();
        for shown in [format!("{body}"), format!("{body:?}")] {
            assert!(shown.contains("18 bytes of user-data") && !shown.contains("sentinel"), "{shown}");
        }
    }
}

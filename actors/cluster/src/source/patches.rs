//! What is sent to change an object. Pure.

use egress_protocol::Uid;
use egress_protocol::resource::{FINALIZER, ProxyStatus};
use serde_json::{Value, json};

use super::version::Version;

/// The fields of the status, as the API names them.
const STATUS_FIELDS: [&str; 10] = [
    "installation",
    "phase",
    "providerID",
    "ip",
    "egressIP",
    "specHash",
    "observedGeneration",
    "latencyMillis",
    "lastHealthCheckTime",
    "conditions",
];

/// A merge patch that leaves nothing of an earlier status: a field without a value is `null`, which deletes it. It counts
/// only for the object as it is at `version` (OP-24), and so for no other of the same name: in a patch of the status the API
/// server ignores a UID.
pub(crate) fn status(status: &ProxyStatus, version: &Version) -> Value {
    let mut fields = serde_json::to_value(status).unwrap_or_default();
    if let Some(fields) = fields.as_object_mut() {
        for name in STATUS_FIELDS {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    json!({"metadata": {"resourceVersion": version.as_str()}, "status": fields})
}

/// Operations that put our finalizer on exactly that object, whose finalizers are these; `None` when it is there.
pub(crate) fn add_finalizer(uid: &Uid, finalizers: &[String]) -> Option<Value> {
    if finalizers.iter().any(|name| name == FINALIZER) {
        return None;
    }
    let same = json!({"op": "test", "path": "/metadata/uid", "value": uid.as_str()});
    Some(if finalizers.is_empty() {
        let none = json!({"op": "test", "path": "/metadata/finalizers", "value": null});
        json!([same, none, {"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]}])
    } else {
        let these = json!({"op": "test", "path": "/metadata/finalizers", "value": finalizers});
        json!([same, these, {"op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER}])
    })
}

/// Operations that take ours off, and no other; `None` when it is not there.
pub(crate) fn remove_finalizer(uid: &Uid, finalizers: &[String]) -> Option<Value> {
    let place = finalizers.iter().position(|name| name == FINALIZER)?;
    let path = format!("/metadata/finalizers/{place}");
    Some(json!([
        {"op": "test", "path": "/metadata/uid", "value": uid.as_str()},
        {"op": "test", "path": path, "value": FINALIZER},
        {"op": "remove", "path": path},
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_status_is_written_or_deleted_op_24() {
        let full = json!({"installation": "i", "phase": "Ready", "providerID": "p", "ip": "192.0.2.1", "egressIP": "192.0.2.2",
            "specHash": "v1:0", "observedGeneration": 1, "latencyMillis": 2, "lastHealthCheckTime": "2026-01-02T03:04:05Z",
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
        let read: ProxyStatus = serde_json::from_value(full.clone()).unwrap();
        let version = Version::new("7");
        assert_eq!(
            status(&read, &version),
            json!({"metadata": {"resourceVersion": "7"}, "status": full}),
            "a field is missing in the table"
        );
        let empty = status(&ProxyStatus::default(), &version);
        let empty = empty["status"].as_object().unwrap();
        assert!(empty.len() == full.as_object().unwrap().len() && empty.values().all(Value::is_null), "{empty:?}");
    }

    #[test]
    fn finalizers_of_others_are_tested_for_and_never_written() {
        let uid = Uid::new("u");
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(add_finalizer(&uid, &list(&["a", FINALIZER])), None);
        assert_eq!(remove_finalizer(&uid, &list(&["a"])), None);
        let add = add_finalizer(&uid, &list(&["a"])).unwrap();
        assert_eq!(add[1], json!({"op": "test", "path": "/metadata/finalizers", "value": ["a"]}));
        assert_eq!(add[2], json!({"op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER}));
        let remove = remove_finalizer(&uid, &list(&["a", FINALIZER, "b"])).unwrap();
        assert_eq!(remove[2], json!({"op": "remove", "path": "/metadata/finalizers/1"}));
    }
}

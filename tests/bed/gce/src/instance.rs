//! What an instance looks like, made from the body of an insert.

use serde_json::{Map, Value, json};

const ROOT: &str = "https://www.googleapis.com/compute/v1";

/// Where something is.
pub(crate) fn link(project: &str, path: &str) -> String {
    format!("{ROOT}/projects/{project}/{path}")
}

/// The fields of an insert that the fake takes; any other is an error that names it.
/// The last three are what `gcloud` says besides; they change nothing here.
const KNOWN: [&str; 10] =
    ["name", "machineType", "labels", "tags", "networkInterfaces", "disks", "metadata", "canIpForward", "deletionProtection", "scheduling"];

/// An instance in state `PROVISIONING`, without addresses; or what is wrong with the request.
pub(crate) fn new(project: &str, zone: &str, id: u64, now: &str, body: &Value) -> Result<Map<String, Value>, String> {
    let Value::Object(body) = body else { return Err("the body is no object".to_owned()) };
    if let Some(key) = body.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        return Err(format!("Invalid JSON payload received. Unknown name \"{key}\""));
    }
    let name = body.get("name").and_then(Value::as_str).ok_or("Invalid value for field 'resource.name': ''.")?;
    if name.len() > 63 || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(format!("Invalid value for field 'resource.name': '{name}'."));
    }
    for key in ["machineType", "networkInterfaces", "disks"] {
        if !body.contains_key(key) {
            return Err(format!("Invalid value for field 'resource.{key}': ''."));
        }
    }
    let disk = &body["disks"][0]["initializeParams"];
    if !disk["diskSizeGb"].is_null() && disk["diskSizeGb"].as_str().and_then(|size| size.parse::<u64>().ok()).is_none() {
        return Err("Invalid value for field 'resource.disks[0].initializeParams.diskSizeGb'.".to_owned());
    }
    let mut vm = body.clone();
    vm.insert("kind".to_owned(), json!("compute#instance"));
    vm.insert("id".to_owned(), json!(id.to_string()));
    vm.insert("zone".to_owned(), json!(link(project, &format!("zones/{zone}"))));
    vm.insert("selfLink".to_owned(), json!(link(project, &format!("zones/{zone}/instances/{name}"))));
    vm.insert("creationTimestamp".to_owned(), json!(now));
    vm.insert("status".to_owned(), json!("PROVISIONING"));
    let machine_type = body["machineType"].as_str().unwrap_or_default();
    // A full URL, as `gcloud` gives it, is that of this service already.
    let machine_type =
        machine_type.rsplit_once("/projects/").map_or(machine_type, |(_, path)| path.split_once('/').map_or(path, |(_, path)| path));
    vm.insert("machineType".to_owned(), json!(link(project, machine_type)));
    vm.insert(
        "disks".to_owned(),
        json!([{"kind": "compute#attachedDisk", "boot": true, "autoDelete": true, "index": 0, "deviceName": "persistent-disk-0",
                "source": link(project, &format!("zones/{zone}/disks/{name}")), "type": "PERSISTENT", "mode": "READ_WRITE"}]),
    );
    Ok(vm)
}

/// It runs, and has the addresses that it asked for.
pub(crate) fn run(vm: &mut Map<String, Value>, number: u64) {
    vm.insert("status".to_owned(), json!("RUNNING"));
    if let Some(interface) = vm.get_mut("networkInterfaces").and_then(|interfaces| interfaces.get_mut(0)).and_then(Value::as_object_mut) {
        let [high, low] = [(number / 250) % 250, number % 250 + 1];
        interface.insert("networkIP".to_owned(), json!(format!("10.132.{high}.{low}")));
        if let Some(access) = interface.get_mut("accessConfigs").and_then(|configs| configs.get_mut(0)).and_then(Value::as_object_mut) {
            // A test may have given it one before its insert has settled.
            access.entry("natIP").or_insert_with(|| json!(format!("203.0.{high}.{low}")));
            access.insert("kind".to_owned(), json!("compute#accessConfig"));
        }
    }
}

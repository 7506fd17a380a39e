//! The Pod of a request (K8-5): pure.
//!
//! What must stay true: no cloud-init in it; the `restricted` Pod Security level admits it; everything that belongs to an
//! instance is in this one object, so that nothing can be left behind.

use std::collections::BTreeMap;

use egress_protocol::provider::CreateRequest;
use egress_protocol::resource::Proxy;
use egress_provider::ownership;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, LocalObjectReference,
    ObjectFieldSelector, Pod, PodSecurityContext, PodSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext, Sysctl,
    TCPSocketAction, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;

use crate::config::KubernetesConfig;
use crate::squid;

/// Where the configuration stands, and where the Pod shows it: there is no shell in the image to write it, and no second
/// object that could be left behind.
pub(crate) const CONF_ANNOTATION: &str = "crawl.example.com/squid-conf";
const CONF_DIR: &str = "/etc/egress";
const CONF_FILE: &str = "squid.conf";

/// The only container.
pub(crate) const CONTAINER: &str = "squid";
/// Debian's and Ubuntu's `proxy`.
const USER: i64 = 13;
/// Ports below this take a privilege, or the sysctl.
const PRIVILEGED: u16 = 1024;

/// What a request asks for.
pub(crate) fn pod(request: &CreateRequest, config: &KubernetesConfig) -> Pod {
    Pod { metadata: metadata(request, config), spec: Some(spec(request.port, config)), status: None }
}

fn text(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn metadata(request: &CreateRequest, config: &KubernetesConfig) -> ObjectMeta {
    let conf = squid::config(request.port, config.max_file_descriptors, &config.allowed_clients, &config.allowed_destinations);
    ObjectMeta {
        name: Some(request.name.to_string()),
        namespace: Some(request.namespace.to_string()),
        labels: Some(text(&[
            (ownership::MANAGED, "true"),
            (ownership::UID, request.uid.as_str()),
            (ownership::INSTALLATION, request.installation.as_str()),
            ("app.kubernetes.io/name", "squid"),
            ("app.kubernetes.io/managed-by", "egress-proxies-operator"),
        ])),
        annotations: Some(text(&[(CONF_ANNOTATION, &conf)])),
        owner_references: config.owned.then(|| vec![owner(request)]),
        ..ObjectMeta::default()
    }
}

/// The Proxy: a bypassed finalizer then leaks no Pod (K8-7).
fn owner(request: &CreateRequest) -> OwnerReference {
    OwnerReference {
        api_version: Proxy::api_version(&()).into_owned(),
        kind: Proxy::kind(&()).into_owned(),
        name: request.proxy_name.to_string(),
        uid: request.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}

fn spec(port: u16, config: &KubernetesConfig) -> PodSpec {
    let secrets = config.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() }).collect::<Vec<_>>();
    PodSpec {
        containers: vec![container(port, config)],
        restart_policy: Some("Always".to_owned()),
        volumes: Some(vec![conf_volume(), scratch_volume()]),
        image_pull_secrets: (!secrets.is_empty()).then_some(secrets),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(10),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            sysctls: (port < PRIVILEGED).then(|| vec![unprivileged_ports()]),
            ..PodSecurityContext::default()
        }),
        ..PodSpec::default()
    }
}

/// One of the sysctls that are safe, instead of a capability.
fn unprivileged_ports() -> Sysctl {
    Sysctl { name: "net.ipv4.ip_unprivileged_port_start".to_owned(), value: "0".to_owned() }
}

fn container(port: u16, config: &KubernetesConfig) -> Container {
    let path = format!("{CONF_DIR}/{CONF_FILE}");
    // As process 1, so that signals reach Squid.
    let command = ["squid", "-N", "-f", &path].map(str::to_owned).to_vec();
    let quantities = |amounts: &BTreeMap<String, String>| {
        let amounts = amounts.iter().map(|(key, text)| (key.clone(), Quantity(text.clone()))).collect::<BTreeMap<_, _>>();
        (!amounts.is_empty()).then_some(amounts)
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(config.image.clone()),
        command: Some(command),
        ports: Some(vec![ContainerPort { container_port: port.into(), name: Some("proxy".to_owned()), ..ContainerPort::default() }]),
        resources: Some(ResourceRequirements {
            requests: quantities(&config.requests),
            limits: quantities(&config.limits),
            ..ResourceRequirements::default()
        }),
        readiness_probe: Some(Probe {
            tcp_socket: Some(TCPSocketAction { port: IntOrString::Int(port.into()), host: None }),
            period_seconds: Some(5),
            ..Probe::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![
            VolumeMount { name: "conf".to_owned(), mount_path: CONF_DIR.to_owned(), read_only: Some(true), ..VolumeMount::default() },
            VolumeMount { name: "tmp".to_owned(), mount_path: "/tmp".to_owned(), ..VolumeMount::default() },
        ]),
        ..Container::default()
    }
}

fn conf_volume() -> Volume {
    let field_path = format!("metadata.annotations['{CONF_ANNOTATION}']");
    let file = DownwardAPIVolumeFile {
        path: CONF_FILE.to_owned(),
        field_ref: Some(ObjectFieldSelector { field_path, api_version: None }),
        ..DownwardAPIVolumeFile::default()
    };
    Volume {
        name: "conf".to_owned(),
        downward_api: Some(DownwardAPIVolumeSource { items: Some(vec![file]), default_mode: None }),
        ..Volume::default()
    }
}

/// Debian's Squid needs no writable place; other builds may.
fn scratch_volume() -> Volume {
    Volume {
        name: "tmp".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit: Some(Quantity("16Mi".to_owned())) }),
        ..Volume::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use egress_protocol::resource::Placement;
    use egress_protocol::{InstallationId, InstanceName, Secret, Uid};
    use serde_json::{Value, json};

    use super::*;

    fn request(port: u16) -> CreateRequest {
        let uid = Uid::new("3f1c2a9e-0000-4000-8000-000000000001");
        CreateRequest {
            name: InstanceName::of(&uid),
            uid,
            installation: InstallationId::new("yg2pw4flqbe3n2ig"),
            namespace: "team-a".into(),
            proxy_name: "px-1".into(),
            placement: Placement::default(),
            cloud_init: Arc::new(Secret::new(b"#cloud-config SENTINEL".to_vec())),
            port,
        }
    }

    fn config() -> KubernetesConfig {
        KubernetesConfig::new("squid-pods", InstallationId::new("yg2pw4flqbe3n2ig"))
    }

    fn made(request: &CreateRequest, config: &KubernetesConfig) -> Value {
        serde_json::to_value(pod(request, config)).unwrap()
    }

    /// K8-5, field by field.
    #[test]
    fn the_pod_by_default_is_exactly_this() {
        let mut pod = made(&request(3128), &config());
        let conf = pod["metadata"]["annotations"].as_object_mut().unwrap().remove("crawl.example.com/squid-conf").unwrap();
        assert_eq!(conf, squid::config(3128, 16_384, &[], &[]));
        assert_eq!(
            pod,
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "proxy-qbhtrucak6szambe",
                    "namespace": "team-a",
                    "labels": {
                        "proxy-operator-managed": "true",
                        "proxy-operator-uid": "3f1c2a9e-0000-4000-8000-000000000001",
                        "proxy-operator-installation": "yg2pw4flqbe3n2ig",
                        "app.kubernetes.io/name": "squid",
                        "app.kubernetes.io/managed-by": "egress-proxies-operator"
                    },
                    "annotations": {},
                    "ownerReferences": [{
                        "apiVersion": "crawl.example.com/v1alpha1",
                        "kind": "Proxy",
                        "name": "px-1",
                        "uid": "3f1c2a9e-0000-4000-8000-000000000001",
                        "controller": true,
                        "blockOwnerDeletion": false
                    }]
                },
                "spec": {
                    "restartPolicy": "Always",
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": 10,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 13,
                        "runAsGroup": 13,
                        "seccompProfile": {"type": "RuntimeDefault"}
                    },
                    "containers": [{
                        "name": "squid",
                        "image": "ubuntu/squid:6.6-24.04_edge",
                        "command": ["squid", "-N", "-f", "/etc/egress/squid.conf"],
                        "ports": [{"containerPort": 3128, "name": "proxy"}],
                        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
                        "readinessProbe": {"tcpSocket": {"port": 3128}, "periodSeconds": 5},
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": true
                        },
                        "volumeMounts": [
                            {"name": "conf", "mountPath": "/etc/egress", "readOnly": true},
                            {"name": "tmp", "mountPath": "/tmp"}
                        ]
                    }],
                    "volumes": [
                        {"name": "conf", "downwardAPI": {"items": [
                            {"path": "squid.conf", "fieldRef": {"fieldPath": "metadata.annotations['crawl.example.com/squid-conf']"}}
                        ]}},
                        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
                    ]
                }
            })
        );
    }

    /// K8-5: the sysctl instead of a capability.
    #[test]
    fn a_port_below_1024_takes_the_safe_sysctl() {
        let sysctl = |port| made(&request(port), &config())["spec"]["securityContext"]["sysctls"].clone();
        assert_eq!(sysctl(80), json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]));
        assert_eq!(sysctl(1023), sysctl(80));
        assert_eq!(sysctl(1024), Value::Null);
        let pod = made(&request(80), &config());
        assert_eq!(pod["spec"]["containers"][0]["ports"][0]["containerPort"], 80);
        assert_eq!(pod["spec"]["containers"][0]["readinessProbe"]["tcpSocket"]["port"], 80);
        assert_eq!(pod["spec"]["containers"][0]["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    }

    /// K8-7: standalone, the cluster's collector would delete it at once.
    #[test]
    fn a_proxy_of_another_source_is_no_owner() {
        let pod = made(&request(3128), &KubernetesConfig { owned: false, ..config() });
        assert_eq!(pod["metadata"].get("ownerReferences"), None);
    }

    #[test]
    fn what_is_configured_is_in_it() {
        let config = KubernetesConfig {
            image: "registry.example/squid:7".to_owned(),
            requests: BTreeMap::new(),
            limits: BTreeMap::from([("cpu".to_owned(), "1".to_owned())]),
            max_file_descriptors: 2048,
            allowed_clients: vec!["10.0.0.0/8".parse().unwrap()],
            image_pull_secrets: vec!["one".to_owned(), "two".to_owned()],
            ..config()
        };
        let pod = made(&request(3128), &config);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["image"], "registry.example/squid:7");
        assert_eq!(container["resources"], json!({"limits": {"cpu": "1"}}));
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "one"}, {"name": "two"}]));
        let conf = pod["metadata"]["annotations"][CONF_ANNOTATION].as_str().unwrap();
        assert!(conf.contains("max_filedescriptors 2048\n") && conf.contains("acl clients src 10.0.0.0/8\n"), "{conf}");
    }

    /// K8-2, K8-3.
    #[test]
    fn placement_and_cloud_init_are_not_in_it() {
        let mut placed = request(3128);
        let word = || Some("SENTINEL-placement".to_owned());
        placed.placement = Placement { region: word(), zone: word(), machine_type: word(), image: word() };
        assert_eq!(made(&placed, &config()), made(&request(3128), &config()));
        assert!(!made(&placed, &config()).to_string().contains("SENTINEL"));
    }
}

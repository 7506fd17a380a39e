use std::path::PathBuf;
use std::time::Duration;

use egress_libvirt::{Error as LibvirtCallError, LibvirtError};
use egress_protocol::provider::ErrorClass::{Permanent, Transient};
use egress_provider::BackendError;

use super::{CredentialFault, DialError, Fault, HostKeyFault, Stage};
use crate::ssh::Target;

fn error(stage: Stage, fault: Fault) -> DialError {
    let target = Target { host: "host-a".into(), port: 2222, user: "operator".into(), socket: "/run/libvirt/libvirt-sock".into() };
    DialError { stage, fault, target }
}

fn libvirt(code: i32) -> Fault {
    let error = LibvirtError { code, domain: 60, level: 2, message: "no polkit agent".into() };
    Fault::Libvirt(LibvirtCallError::Libvirt { procedure: "AuthPolkit", error })
}

fn credentials(missing: bool) -> Fault {
    let (what, path) = ("ssh key file", PathBuf::from("/etc/key"));
    Fault::Credentials(if missing {
        CredentialFault::Unreadable { what, path, fault: "No such file or directory (os error 2)".into() }
    } else {
        CredentialFault::Unparsable { what, path, fault: "it is encrypted: use a key without a passphrase".into() }
    })
}

fn host_key(fault: HostKeyFault) -> Fault {
    Fault::HostKey { fault, name: "[host-a]:2222".into(), shown: "ssh-ed25519 SHA256:abc".into() }
}

#[test]
fn every_stage_has_its_class_its_reasons_and_a_way_out_lv_84_lv_87_lv_195() {
    use HostKeyFault::{Changed, NoneOfThose, Revoked, Unknown};
    use Stage::{Credentials, Socket, Ssh, Tcp};
    let budget = || Fault::Budget(Duration::from_secs(10));
    for (stage, fault, class, kvm, kvm2, says) in [
        (
            Credentials,
            credentials(true),
            Transient,
            "SSHMaterialUnavailable",
            "CredentialsUnavailable",
            "reading ssh key file /etc/key: No such file",
        ),
        (
            Credentials,
            credentials(false),
            Permanent,
            "SSHMaterialUnavailable",
            "CredentialsUnavailable",
            "parsing ssh key file /etc/key: it is encrypted",
        ),
        (Tcp, Fault::Tcp("Connection refused".into()), Transient, "Unreachable", "Unreachable", "name, route and firewall"),
        (Tcp, budget(), Transient, "Unreachable", "Unreachable", "longer than 10s, and had come to stage tcp"),
        (Ssh, budget(), Transient, "SSHHandshakeFailed", "Unreachable", "stage ssh"),
        (Socket, budget(), Transient, "LibvirtConnectFailed", "Unreachable", "stage socket"),
        (
            Ssh,
            host_key(Unknown),
            Permanent,
            "SSHHandshakeFailed",
            "Unauthorized",
            "no entry \"[host-a]:2222\"; add one under exactly this name",
        ),
        (Ssh, host_key(Changed), Permanent, "SSHHandshakeFailed", "Unauthorized", "has changed to ssh-ed25519 SHA256:abc"),
        (Ssh, host_key(Revoked), Permanent, "SSHHandshakeFailed", "Unauthorized", "known_hosts revokes the host key"),
        (Ssh, host_key(NoneOfThose), Permanent, "SSHHandshakeFailed", "Unauthorized", "no key of the kind"),
        (Ssh, Fault::Refused { methods: "publickey".into() }, Permanent, "SSHHandshakeFailed", "Unauthorized", "authorized_keys"),
        (Ssh, Fault::Ssh("Disconnected".into()), Transient, "SSHHandshakeFailed", "Unreachable", "sshd's log"),
        (Socket, Fault::Unconnected("connect failed".into()), Transient, "LibvirtConnectFailed", "Unreachable", "group libvirt"),
        (Socket, Fault::Forbidden, Transient, "LibvirtConnectFailed", "Unreachable", "AllowStreamLocalForwarding"),
        (Socket, Fault::NotLibvirt("protocol error".into()), Transient, "LibvirtConnectFailed", "Unreachable", "is not libvirt"),
        (Socket, libvirt(38), Transient, "LibvirtConnectFailed", "Unreachable", "no polkit agent"),
        (Socket, libvirt(29), Permanent, "LibvirtConnectFailed", "Forbidden", "group libvirt"),
        (Socket, libvirt(45), Permanent, "LibvirtConnectFailed", "Forbidden", "group libvirt"),
        (Socket, libvirt(88), Permanent, "LibvirtConnectFailed", "Forbidden", "group libvirt"),
        (Socket, libvirt(94), Permanent, "LibvirtConnectFailed", "Forbidden", "polkit"),
        (
            Socket,
            Fault::Libvirt(LibvirtCallError::Authentication { offered: vec![1] }),
            Permanent,
            "LibvirtConnectFailed",
            "Forbidden",
            "access denied",
        ),
    ] {
        let error = error(stage, fault);
        let said = error.to_string();
        assert_eq!((error.class(), error.reasons().kvm, error.reasons().kvm2), (class, kvm, kvm2), "{said}");
        assert!(said.contains(says), "{says:?} in {said:?}");
        let backend = BackendError::from(error);
        assert!(backend.environment, "LV-180: {said}");
        assert_eq!((backend.class, backend.message), (class, said));
    }
}

#[test]
fn where_one_answer_has_several_causes_the_message_names_them_all_ht_16() {
    let said = error(Stage::Socket, Fault::Unconnected("connect failed".into())).to_string();
    for cause in ["libvirtd runs", "hosts[].socket", "group libvirt", "AllowStreamLocalForwarding"] {
        assert!(said.contains(cause), "{cause} in {said}");
    }
}

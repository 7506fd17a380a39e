//! Every stage of a dial, and how each can fail.

use std::time::Duration;

use egress_backend_libvirt::ssh::{Fault, HostKeyFault, Stage, Timing};
use egress_protocol::provider::ErrorClass;
use russh::ChannelOpenFailure;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::ssh::host::{Host, Socket};
use crate::ssh::support::{Dialler, Libvirt, ed25519, pem, public, rsa, skip};

#[tokio::test]
async fn a_dial_ends_with_libvirt_answering_lv_84() {
    let host = Host::serving(ed25519(9)).await;
    Dialler::trusting(host.port, &ed25519(9)).works().await;
}

#[tokio::test]
async fn key_and_known_hosts_are_read_on_every_dial_lv_84() {
    let host = Host::serving(ed25519(9)).await;
    let dialler = Dialler::new(host.port);
    std::fs::remove_file(&dialler.files.key).unwrap();
    let missing = dialler.fails().await;
    assert_eq!((missing.stage, missing.class()), (Stage::Credentials, ErrorClass::Transient), "{missing}");
    dialler.key("garbage");
    let garbage = dialler.fails().await;
    assert_eq!((garbage.stage, garbage.class()), (Stage::Credentials, ErrorClass::Permanent), "{garbage}");
    dialler.key(&pem(&ed25519(1)));
    assert!(matches!(dialler.fails().await.fault, Fault::HostKey { fault: HostKeyFault::Unknown, .. }));
    dialler.known_hosts(&dialler.line(&ed25519(9)));
    dialler.works().await;
    dialler.known_hosts(&dialler.line(&ed25519(8)));
    assert!(matches!(dialler.fails().await.fault, Fault::HostKey { fault: HostKeyFault::Changed, .. }), "a new file counts at once");
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_fails_at_tcp_lv_84() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let refused = Dialler::new(port).fails().await;
    assert_eq!((refused.stage, refused.class()), (Stage::Tcp, ErrorClass::Transient), "{refused}");
    assert!(refused.to_string().contains("Connection refused"), "{refused}");
    let mut nowhere = Dialler::new(22);
    nowhere.target.host = "host.invalid".into();
    let unknown = nowhere.fails().await;
    assert_eq!((unknown.stage, unknown.class()), (Stage::Tcp, ErrorClass::Transient), "{unknown}");
}

#[tokio::test]
async fn an_unknown_changed_or_revoked_host_key_is_permanent_and_told_apart_lv_87() {
    let host = Host::serving(ed25519(9)).await;
    let dialler = Dialler::new(host.port);
    let (right, wrong) = (dialler.line(&ed25519(9)), dialler.line(&ed25519(8)));
    for (file, expected) in [
        (String::new(), HostKeyFault::Unknown),
        (format!("127.0.0.1 {}\n", public(&ed25519(9))), HostKeyFault::Unknown),
        (wrong.clone(), HostKeyFault::Changed),
        (format!("{right}@revoked * {}\n", public(&ed25519(9))), HostKeyFault::Revoked),
    ] {
        dialler.known_hosts(&file);
        let refused = dialler.fails().await;
        assert!(matches!(&refused.fault, Fault::HostKey { fault, .. } if *fault == expected), "{file:?}: {refused:?}");
        assert_eq!((refused.stage, refused.class(), refused.reasons().kvm2), (Stage::Ssh, ErrorClass::Permanent, "Unauthorized"));
        assert!(refused.to_string().contains("SHA256:"), "{refused}");
    }
    dialler.known_hosts(&(wrong + &right));
    dialler.works().await;
}

#[tokio::test]
async fn without_verification_any_host_key_will_do_lv_87() {
    let host = Host::serving(ed25519(9)).await;
    let mut dialler = Dialler::new(host.port);
    dialler.files.known_hosts = None;
    dialler.works().await;
}

#[tokio::test]
async fn a_host_whose_only_pinned_key_is_rsa_shows_that_one_lv_86() {
    let Some(rsa) = rsa() else { return skip("a_host_whose_only_pinned_key_is_rsa_shows_that_one_lv_86", "no ssh-keygen") };
    let host = Host::start(vec![ed25519(9), rsa.clone()], Socket::Opens(Libvirt::Serves)).await;
    Dialler::trusting(host.port, &rsa).works().await;
    let host = Host::serving(ed25519(9)).await;
    let none = Dialler::trusting(host.port, &rsa).fails().await;
    assert!(
        matches!(&none.fault, Fault::HostKey { fault: HostKeyFault::NoneOfThose, shown, .. } if shown.contains("ssh-ed25519")),
        "{none:?}"
    );
    assert_eq!(none.class(), ErrorClass::Permanent);
}

#[tokio::test]
async fn a_key_that_the_host_refuses_is_permanent_lv_87() {
    let host = Host::serving(ed25519(9)).await;
    let dialler = Dialler::trusting(host.port, &ed25519(9));
    dialler.key(&pem(&ed25519(2)));
    let refused = dialler.fails().await;
    assert!(matches!(refused.fault, Fault::Refused { .. }), "{refused:?}");
    assert_eq!((refused.stage, refused.class(), refused.reasons().kvm2), (Stage::Ssh, ErrorClass::Permanent, "Unauthorized"));
}

#[tokio::test]
async fn a_socket_that_does_not_open_is_told_apart_from_one_that_is_forbidden_lv_84() {
    for (failure, forbidden) in [
        (ChannelOpenFailure::ConnectFailed, false),
        (ChannelOpenFailure::ResourceShortage, false),
        (ChannelOpenFailure::UnknownChannelType, false),
        (ChannelOpenFailure::AdministrativelyProhibited, true),
    ] {
        let host = Host::start(vec![ed25519(9)], Socket::Refuses(failure)).await;
        let refused = Dialler::trusting(host.port, &ed25519(9)).fails().await;
        assert_eq!((refused.stage, refused.class()), (Stage::Socket, ErrorClass::Transient), "{refused}");
        assert_eq!(matches!(refused.fault, Fault::Forbidden), forbidden, "{refused:?}");
    }
}

#[tokio::test]
async fn what_is_not_libvirt_fails_at_the_socket_lv_70() {
    for text in ["HTTP/1.1 400 Bad Request\r\n\r\n", "", "\0\0\0\x1c", "SSH-2.0-x\r\n"] {
        let host = Host::start(vec![ed25519(9)], Socket::Opens(Libvirt::Says(text))).await;
        let refused = Dialler::trusting(host.port, &ed25519(9)).fails().await;
        assert!(matches!(refused.fault, Fault::NotLibvirt(_)), "{text:?}: {refused:?}");
        assert_eq!((refused.stage, refused.class()), (Stage::Socket, ErrorClass::Transient), "{refused}");
    }
}

#[tokio::test]
async fn a_libvirt_that_denies_the_user_is_permanent_and_forbidden() {
    for behaves in [Libvirt::Denies(29), Libvirt::Denies(45), Libvirt::Denies(88), Libvirt::Denies(94), Libvirt::Sasl] {
        let host = Host::start(vec![ed25519(9)], Socket::Opens(behaves)).await;
        let denied = Dialler::trusting(host.port, &ed25519(9)).fails().await;
        assert_eq!((denied.stage, denied.class()), (Stage::Socket, ErrorClass::Permanent), "{behaves:?}: {denied}");
        assert_eq!((denied.reasons().kvm, denied.reasons().kvm2), ("LibvirtConnectFailed", "Forbidden"));
    }
}

#[tokio::test]
async fn a_budget_that_is_spent_says_at_which_stage() {
    let short = Timing { budget: Duration::from_millis(600), ..Timing::default() };
    // Accepts, and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialler = Dialler { timing: short, ..Dialler::new(mute.local_addr().unwrap().port()) };
    let spent = dialler.fails().await;
    assert!(matches!(spent.fault, Fault::Budget(_)), "{spent:?}");
    assert_eq!((spent.stage, spent.reasons().kvm, spent.reasons().kvm2), (Stage::Ssh, "SSHHandshakeFailed", "Unreachable"));

    let host = Host::start(vec![ed25519(9)], Socket::Opens(Libvirt::Silent)).await;
    let dialler = Dialler { timing: short, ..Dialler::trusting(host.port, &ed25519(9)) };
    let spent = dialler.fails().await;
    assert!(matches!(spent.fault, Fault::Budget(_)), "{spent:?}");
    assert_eq!((spent.stage, spent.reasons().kvm, spent.reasons().kvm2), (Stage::Socket, "LibvirtConnectFailed", "Unreachable"));
}

#[tokio::test]
async fn a_host_that_does_not_speak_ssh_fails_at_ssh() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    });
    let refused = Dialler { timing: Timing { budget: Duration::from_secs(3), ..Timing::default() }, ..Dialler::new(port) }.fails().await;
    assert_eq!((refused.stage, refused.class()), (Stage::Ssh, ErrorClass::Transient), "{refused}");
    served.await.unwrap();
}

/// The files are the only secrets here: what is in them is in no error (LV-85).
#[tokio::test]
async fn no_failure_repeats_anything_of_the_key_or_of_known_hosts_lv_85() {
    let host = Host::start(vec![ed25519(9)], Socket::Refuses(ChannelOpenFailure::ConnectFailed)).await;
    let dialler = Dialler::trusting(host.port, &ed25519(9));
    let secret: Vec<String> =
        pem(&ed25519(1)).lines().chain(public(&ed25519(8)).split(' ')).filter(|part| part.len() > 20).map(str::to_owned).collect();
    for file in [dialler.line(&ed25519(9)), dialler.line(&ed25519(8)), format!("@revoked {} x", public(&ed25519(8)))] {
        dialler.known_hosts(&file);
        let error = dialler.fails().await;
        let said = format!("{error} {error:?}");
        assert!(secret.iter().all(|part| !said.contains(part.as_str())), "{said}");
    }
}

use egress_libvirt::{Error, LibvirtError};
use egress_protocol::provider::ErrorClass::{self, NotFound, Permanent, QuotaExceeded, Transient};

use super::During::{Create, Other};
use super::{class, failed};
use crate::rpc::RpcError;

fn said(code: i32, message: &str) -> Error {
    Error::Libvirt { procedure: "StorageVolCreateXml", error: LibvirtError { code, domain: 18, level: 2, message: message.into() } }
}

#[test]
fn every_code_has_its_class_lv_138_lv_180() {
    for (code, in_create, otherwise) in [
        (42, Transient, NotFound),
        (50, Transient, NotFound),
        (49, Permanent, Permanent),
        (27, Permanent, Permanent),
        (3, Permanent, Permanent),
        (8, Permanent, Permanent),
        (29, Permanent, Permanent),
        (45, Permanent, Permanent),
        (88, Permanent, Permanent),
        (94, Permanent, Permanent),
        (67, Permanent, Transient),
        (55, Transient, Transient),
        (90, Transient, Transient),
        (1, Transient, Transient),
        (9, Transient, Transient),
        (38, Transient, Transient),
        (84, Transient, Transient),
        (86, Transient, Transient),
        (4711, Transient, Transient),
    ] {
        assert_eq!((class(&said(code, "x"), Create), class(&said(code, "x"), Other)), (in_create, otherwise), "{code}");
    }
}

/// The texts were captured from libvirt 9.0 on hosts that were really full.
#[test]
fn a_full_host_is_told_from_its_words_lv_125() {
    for (code, message, expected) in [
        (38, "cannot allocate 1073741824 bytes in file '/p/x': No space left on device", QuotaExceeded),
        (38, "Unable to write /p/x: No space left on device", QuotaExceeded),
        (
            1,
            "Child process (/usr/bin/qemu-img create -f qcow2 -b /p/b) unexpected exit status 1: qemu-img: Could not write qcow2 header: No space left on device",
            QuotaExceeded,
        ),
        (1, "process exited while connecting to monitor: cannot set up guest memory 'pc.ram': Cannot allocate memory", QuotaExceeded),
        (38, "cannot write to stream: No space left on device", Transient),
        (38, "cannot extend file '/p/x': File too large", Transient),
        (38, "Cannot get interface MTU on 'br9': No such device", Transient),
        (55, "No space left on device", Transient),
    ] {
        for during in [Create, Other] {
            assert_eq!(class(&said(code, message), during), expected, "{message}");
        }
    }
}

#[test]
fn what_is_no_answer_of_libvirt_is_tried_again_but_for_what_it_does_not_know_lv_75() {
    let procedure = "DomainUndefineFlags";
    let rows: [(Error, ErrorClass); 6] = [
        (Error::Unsupported { procedure }, Permanent),
        (Error::Authentication { offered: vec![1] }, Permanent),
        (Error::Deadline { procedure, sent: true }, Transient),
        (Error::Protocol { procedure, what: "x".into() }, Transient),
        (Error::Short { sent: 1, length: 2 }, Transient),
        (Error::TooLarge { procedure, size: 1, limit: 0 }, Transient),
    ];
    for (error, expected) in rows {
        assert_eq!(class(&error, Create), expected, "{error}");
    }
}

#[test]
fn an_error_names_step_host_and_libvirts_words_lv_181() {
    let after = |code, message, step| {
        let error = RpcError { rpc: "DomainCreate", host: "host-a".into(), budget: None, error: said(code, message) };
        failed(error, Create, step)
    };
    let error = after(38, "Cannot get interface MTU on 'br9': No such device", "starting the domain");
    assert_eq!(
        error.message,
        "starting the domain: libvirt call DomainCreate on host-a: Cannot get interface MTU on 'br9': No such device (code 38, domain 18)"
    );
    assert!(!error.environment && error.cause.is_some());
    assert!(after(49, "no pool", "looking up the pool").environment, "LV-180");
    assert!(after(67, "no kvm", "defining the domain").environment, "LV-180");
    assert!(!after(27, "our XML", "defining the domain").environment, "a fault of ours heals by an upgrade alone");
}

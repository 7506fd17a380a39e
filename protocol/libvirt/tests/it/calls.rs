//! Calls and their answers.

use std::time::Duration;

use egress_libvirt::procedures::{ConnectGetHostname, ConnectGetLibVersion, DomainDefineXml, DomainLookupByName};
use egress_libvirt::wire::{Header, keepalive, kind, status};
use egress_libvirt::xdr::to_bytes;
use egress_libvirt::{Error, Options};
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use crate::server::{answer, link, link_with, soon};

#[tokio::test(start_paused = true)]
async fn answers_go_to_the_calls_that_they_belong_to_in_whatever_order_lv_71() {
    let (client, mut server, _driver) = link();
    let calls = async { tokio::join!(client.call(ConnectGetHostname {}, soon()), client.call(ConnectGetLibVersion {}, soon())) };
    let serve = async {
        let (first, second) = (server.call(59).await, server.call(157).await);
        assert_ne!(first.serial, second.serial);
        server.reply(&second, &9_000_000_u64).await;
        server.reply(&first, &"host-a".to_owned()).await;
    };
    let ((hostname, version), ()) = tokio::join!(calls, serve);
    assert_eq!((hostname.unwrap(), version.unwrap()), ("host-a".to_owned(), 9_000_000));
    assert_eq!((client.abandoned(), client.unexpected()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn messages_that_arrive_byte_by_byte_or_all_at_once_are_the_same_lv_221() {
    let (client, mut server, _driver) = link();
    for at_once in [false, true] {
        let calls = async { tokio::join!(client.call(ConnectGetHostname {}, soon()), client.call(ConnectGetHostname {}, soon())) };
        let serve = async {
            let (first, second) = (server.call(59).await, server.call(59).await);
            let both: Vec<u8> = [(first, "a"), (second, "b")]
                .iter()
                .flat_map(|(call, name)| answer(call, kind::REPLY, status::OK).message(&to_bytes(&(*name).to_owned())))
                .collect();
            if at_once {
                server.io.write_all(&both).await.unwrap();
            } else {
                for byte in both {
                    server.io.write_all(&[byte]).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        };
        let ((a, b), ()) = tokio::join!(calls, serve);
        assert_eq!((a.unwrap().as_str(), b.unwrap().as_str()), ("a", "b"));
    }
}

#[tokio::test(start_paused = true)]
async fn duplicate_unknown_and_foreign_answers_are_dropped_and_counted_lv_71() {
    let (client, mut server, _driver) = link();
    let serve = async {
        let call = server.call(59).await;
        server.reply(&Header { serial: call.serial + 7, ..call.clone() }, &"unknown".to_owned()).await;
        server.reply(&Header { procedure: 157, ..call.clone() }, &1_u64).await;
        server.reply(&Header { program: 0x2000_8087, ..call.clone() }, &"another program's".to_owned()).await;
        server.send(&Header { kind: 6, ..call.clone() }, &[]).await;
        server.stream(&call, status::CONTINUE, b"there is no stream").await;
        server.reply(&call, &"right".to_owned()).await;
        server.reply(&call, &"twice".to_owned()).await;
        let call = server.call(157).await;
        server.reply(&call, &9_000_000_u64).await;
    };
    let calls = async {
        assert_eq!(client.call(ConnectGetHostname {}, soon()).await.unwrap(), "right");
        assert_eq!(client.call(ConnectGetLibVersion {}, soon()).await.unwrap(), 9_000_000, "the link goes on");
    };
    tokio::join!(calls, serve);
    assert_eq!(client.unexpected(), 6);
}

#[tokio::test(start_paused = true)]
async fn events_are_ignored_and_pings_are_answered_lv_71() {
    let (client, mut server, _driver) = link();
    server.send(&Header::new(318, kind::MESSAGE, 0, status::OK), b"an event").await;
    server.ping().await;
    let (pong, payload) = server.receive().await;
    assert_eq!((pong, payload), (Header::keepalive(keepalive::PONG), Vec::new()));
    assert_eq!(client.unexpected(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_error_has_its_code_domain_level_and_words() {
    let (client, mut server, _driver) = link();
    let serve = async {
        let call = server.call(23).await;
        server.refuse(&call, 42, "Domain not found").await;
    };
    let (refused, ()) = tokio::join!(client.call(DomainLookupByName { name: "x".into() }, soon()), serve);
    let refused = refused.unwrap_err();
    let said = refused.libvirt().unwrap();
    assert_eq!((said.code, said.domain, said.level, said.message.as_str()), (42, 18, 2, "Domain not found"));
    assert_eq!(refused.to_string(), "DomainLookupByName: Domain not found (code 42, domain 18)");
    assert!(!refused.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_procedure_that_libvirt_does_not_know_is_an_error_of_its_own_lv_75() {
    let (client, mut server, _driver) = link();
    let serve = async {
        let call = server.call(59).await;
        server.refuse(&call, 39, "unknown procedure: 59").await;
        let call = server.call(59).await;
        server.refuse(&call, 39, "something else about the RPC").await;
    };
    let calls = async { (client.call(ConnectGetHostname {}, soon()).await, client.call(ConnectGetHostname {}, soon()).await) };
    let ((unknown, other), ()) = tokio::join!(calls, serve);
    assert!(matches!(unknown.unwrap_err(), Error::Unsupported { procedure: "ConnectGetHostname" }));
    assert_eq!(other.unwrap_err().libvirt().unwrap().code, 39);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_ends_its_call_and_no_other() {
    let (client, mut server, _driver) = link();
    let serve = async {
        let call = server.call(59).await;
        server.reply(&call, &u32::MAX).await;
        let call = server.call(59).await;
        server.send(&answer(&call, kind::REPLY, status::ERROR), b"no error").await;
        let call = server.call(59).await;
        server.reply(&call, &"fine".to_owned()).await;
    };
    let calls = async {
        for _ in 0..2 {
            let unread = client.call(ConnectGetHostname {}, soon()).await.unwrap_err();
            assert!(unread.to_string().starts_with("ConnectGetHostname: protocol error: the answer cannot be read"), "{unread}");
        }
        assert_eq!(client.call(ConnectGetHostname {}, soon()).await.unwrap(), "fine");
    };
    tokio::join!(calls, serve);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_its_call_alone_and_the_late_answer_is_dropped_lv_77() {
    let (client, mut server, _driver) = link();
    let late = client.call(ConnectGetHostname {}, Instant::now() + Duration::from_secs(30));
    let (late, call) = tokio::join!(late, server.call(59));
    assert!(matches!(late.unwrap_err(), Error::Deadline { sent: true, .. }));
    tokio::task::yield_now().await;
    assert_eq!(client.abandoned(), 1);
    let serve = async {
        let next = server.call(157).await;
        server.reply(&call, &"late".to_owned()).await;
        server.reply(&next, &9_000_000_u64).await;
    };
    let (next, ()) = tokio::join!(client.call(ConnectGetLibVersion {}, soon()), serve);
    assert_eq!(next.unwrap(), 9_000_000);
    assert_eq!((client.abandoned(), client.unexpected()), (0, 0), "the late answer was expected");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_leaves_the_link_to_the_others_lv_77() {
    let (client, mut server, _driver) = link();
    let dropped = {
        let client = client.clone();
        tokio::spawn(async move { client.call(ConnectGetHostname {}, soon()).await })
    };
    let call = server.call(59).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    let serve = async {
        let next = server.call(157).await;
        server.reply(&next, &9_000_000_u64).await;
    };
    let (next, ()) = tokio::join!(client.call(ConnectGetLibVersion {}, soon()), serve);
    assert_eq!((next.unwrap(), client.abandoned()), (9_000_000, 1));
    server.reply(&call, &"late".to_owned()).await;
    server.ping().await;
    server.receive().await;
    assert_eq!(client.abandoned(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_before_it_was_sent_is_never_sent_lv_88() {
    // Nothing is read at the other end, so that the first call fills the line.
    let (client, mut server, _driver) = link_with(&Options { keepalive: None }, 64);
    let filling = tokio::spawn({
        let client = client.clone();
        async move { client.call(DomainDefineXml { xml: "x".repeat(5000) }, soon()).await }
    });
    tokio::task::yield_now().await;
    let waiting = client.call(ConnectGetHostname {}, Instant::now() + Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(waiting, Error::Deadline { sent: false, .. }), "{waiting}");
    assert_eq!(waiting.to_string(), "ConnectGetHostname was not sent in time");
    let define = server.call(11).await;
    server.refuse(&define, 27, "no").await;
    filling.await.unwrap().unwrap_err();
    assert_eq!(client.abandoned(), 0);
    server.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn arguments_that_libvirt_would_drop_the_link_over_are_not_sent() {
    let (client, mut server, _driver) = link();
    let refused = client.call(DomainDefineXml { xml: "x".repeat(33 << 20) }, soon()).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge { procedure: "DomainDefineXml", .. }), "{refused}");
    server.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn opening_takes_what_authentication_it_can_lv_75() {
    for (offered, asked) in [(vec![0_u32], &[66, 1][..]), (vec![2], &[66, 70, 1]), (vec![1, 2], &[66, 70, 1]), (vec![2, 0], &[66, 1])] {
        let (client, mut server, _driver) = link();
        let serve = async {
            for procedure in asked {
                let call = server.call(*procedure).await;
                match procedure {
                    66 => server.reply(&call, &offered).await,
                    70 => server.reply(&call, &1_i32).await,
                    _ => server.reply(&call, &()).await,
                }
            }
        };
        let (opened, ()) = tokio::join!(client.open("qemu:///system", soon()), serve);
        opened.unwrap();
    }
    for offered in [vec![1_u32], vec![], vec![9]] {
        let (client, mut server, _driver) = link();
        let serve = async {
            let call = server.call(66).await;
            server.reply(&call, &offered).await;
            server.expect_silence().await;
        };
        let (denied, ()) = tokio::join!(client.open("qemu:///system", soon()), serve);
        let denied = denied.unwrap_err();
        assert!(denied.to_string().starts_with("access denied"), "{denied}");
    }
}

//! How links through SSH end.

use std::time::Duration;

use egress_backend_libvirt::ssh::Timing;
use egress_libvirt::procedures::{ConnectGetHostname, DomainDefineXml, StorageVolume};
use tokio::time::Instant;

use crate::ssh::host::{Host, Relay};
use crate::ssh::support::{Dialler, ed25519, soon};

/// A host behind a relay, and one who dials through it.
async fn relayed(timing: Timing) -> (Host, Relay, Dialler) {
    let host = Host::serving(ed25519(9)).await;
    let relay = Relay::before(host.port).await;
    let dialler = Dialler { timing, ..Dialler::trusting(relay.port, &ed25519(9)) };
    (host, relay, dialler)
}

#[tokio::test]
async fn a_host_that_falls_silent_ends_the_link_within_two_intervals_lv_81() {
    let keepalive = Duration::from_millis(400);
    let (_host, relay, dialler) = relayed(Timing { keepalive, ..Timing::default() }).await;
    let (link, driver) = dialler.dial().await.unwrap();
    let driver = tokio::spawn(driver);
    tokio::time::sleep(keepalive * 4).await;
    assert!(link.client().closed().is_none(), "a host that answers stays");
    relay.freeze();
    let frozen = Instant::now();
    let waiting = link.client().call(ConnectGetHostname {}, soon()).await.unwrap_err();
    assert!(waiting.is_closed(), "{waiting}");
    assert_eq!(driver.await.unwrap().reason(), "ssh: no answer to a keepalive for 400ms");
    // One interval may have begun before; what the machine takes for it comes on top.
    assert!(frozen.elapsed() < keepalive * 2 + Duration::from_secs(1), "{:?}", frozen.elapsed());
}

/// How many connections to a port of loopback are open at this end.
fn established(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let to = format!("0100007F:{port:04X}");
    table.lines().filter(|line| line.split_whitespace().skip(2).take(2).eq([to.as_str(), "01"])).count()
}

#[tokio::test]
async fn with_a_frozen_peer_and_a_blocked_writer_nothing_takes_longer_than_a_second_lv_79() {
    let (_host, relay, dialler) = relayed(Timing::default()).await;
    let (link, driver) = dialler.dial().await.unwrap();
    let driver = tokio::spawn(driver);
    assert_eq!(established(relay.port), 1);
    relay.freeze();
    // Far more than all buffers on the way take.
    let volume = StorageVolume { pool: "p".into(), name: "v".into(), key: "k".into() };
    let client = link.client().clone();
    let blocked: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.call(DomainDefineXml { xml: "x".repeat(8 << 20) }, soon()).await })
        })
        .collect();
    let upload = tokio::spawn(async move { client.upload_from(volume, 1 << 30, tokio::io::repeat(0), Duration::from_secs(60)).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let cancelled = Instant::now();
    let call = tokio::time::timeout(Duration::from_millis(1), link.client().call(ConnectGetHostname {}, soon())).await;
    assert!(call.is_err() && cancelled.elapsed() < Duration::from_secs(1));
    let killed = Instant::now();
    link.kill("the host is gone");
    link.client().close(soon()).await;
    for call in blocked {
        assert!(call.await.unwrap().unwrap_err().is_closed());
    }
    assert!(upload.await.unwrap().unwrap_err().is_closed());
    assert_eq!(driver.await.unwrap().reason(), "the host is gone");
    // A peer that does not read does not see that it is closed; the kernel here does.
    while established(relay.port) > 0 {
        assert!(killed.elapsed() < Duration::from_secs(1), "the socket is closed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
}

#[tokio::test]
async fn a_driver_that_is_dropped_cuts_the_link_lv_79() {
    let (_host, mut relay, dialler) = relayed(Timing::default()).await;
    let (link, driver) = dialler.dial().await.unwrap();
    assert_eq!(*relay.open.borrow(), 1);
    drop(driver);
    assert!(link.client().call(ConnectGetHostname {}, soon()).await.unwrap_err().is_closed());
    tokio::time::timeout(Duration::from_secs(5), relay.open.wait_for(|open| *open == 0)).await.expect("the socket is closed").unwrap();
}

#[tokio::test]
async fn a_dial_that_is_given_up_leaves_no_socket_open() {
    let (_host, mut relay, dialler) = relayed(Timing::default()).await;
    for millis in [1, 5, 20, 60] {
        let _ = tokio::time::timeout(Duration::from_millis(millis), dialler.dial()).await;
    }
    tokio::time::timeout(Duration::from_secs(5), relay.open.wait_for(|open| *open == 0)).await.expect("every socket is closed").unwrap();
}

#[tokio::test]
async fn links_dialled_and_cut_leave_neither_tasks_nor_descriptors_lv_221() {
    let (_host, mut relay, dialler) = relayed(Timing::default()).await;
    // The first one brings what stays.
    dialler.works().await.kill("cut");
    relay.open.wait_for(|open| *open == 0).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = (metrics.num_alive_tasks(), descriptors());
    for round in 0..60 {
        let (link, driver) = dialler.dial().await.unwrap();
        match round % 3 {
            0 => link.kill("cut"),
            1 => link.client().close(Instant::now() + Duration::from_millis(1)).await,
            _ => {}
        }
        drop(driver);
    }
    let left = async {
        while metrics.num_alive_tasks() > before.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(10), left).await;
    assert!(gone.is_ok(), "{} tasks, {} before", metrics.num_alive_tasks(), before.0);
    // Other tests of this process have descriptors of their own; 60 links would have had 240.
    assert!(descriptors() < before.1 + 60, "{} descriptors, {} before", descriptors(), before.1);
}

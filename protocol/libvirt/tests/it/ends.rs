//! How links end.

use std::time::Duration;

use egress_libvirt::procedures::{ConnectGetHostname, ConnectGetLibVersion, DomainDefineXml};
use egress_libvirt::wire::{Header, keepalive, kind, status};
use egress_libvirt::xdr::to_bytes;
use egress_libvirt::{Error, Options, connect};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::server::{answer, link, link_with, soon, volume};

fn reason(error: &Error) -> &str {
    match error {
        Error::Closed { closed, .. } => closed.reason(),
        other => panic!("not closed: {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_length_that_no_message_has_ends_the_link_and_says_which_lv_70() {
    for length in [0_u32, 27, (32 << 20) + 5, 1 << 31] {
        let (client, mut server, driver) = link();
        let serve = async {
            server.call(59).await;
            server.io.write_all(&length.to_be_bytes()).await.unwrap();
        };
        let (ended, ()) = tokio::join!(client.call(ConnectGetHostname {}, soon()), serve);
        let ended = ended.unwrap_err();
        assert!(ended.is_closed());
        assert_eq!(ended.to_string(), format!("ConnectGetHostname: connection closed: protocol error: message length {length}"));
        assert_eq!(driver.await.unwrap(), client.closed().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_not_libvirt_is_found_out_by_its_first_words_lv_70() {
    for greeting in ["SSH-2.0-OpenSSH_9.2p1 Debian\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "* OK IMAP4rev1\r\n"] {
        let (client, mut server, _driver) = link();
        server.io.write_all(greeting.as_bytes()).await.unwrap();
        let refused = client.open("qemu:///system", soon()).await.unwrap_err();
        assert!(reason(&refused).starts_with("protocol error: message length"), "{refused}");
    }
}

/// What the other side says during the handshake, cut after each byte in turn (LV-72, LV-221).
#[tokio::test(start_paused = true)]
async fn a_peer_that_closes_at_any_byte_of_the_handshake_leaves_no_live_link_lv_72() {
    let whole = Header::new(66, kind::REPLY, 1, status::OK).message(&to_bytes(&vec![0_u32])).len()
        + Header::new(1, kind::REPLY, 2, status::OK).message(&[]).len();
    for cut in 0..=whole {
        let (client, mut server, driver) = link();
        let serve = async {
            let mut left = cut;
            for payload in [to_bytes(&vec![0_u32]), Vec::new()] {
                let Some((call, _)) = server.try_receive().await else { break };
                let reply = answer(&call, kind::REPLY, status::OK).message(&payload);
                let part = left.min(reply.len());
                server.io.write_all(&reply[..part]).await.unwrap();
                left -= part;
                if part < reply.len() {
                    break;
                }
            }
            drop(server);
        };
        let (opened, ()) = tokio::join!(client.open("qemu:///system", soon()), serve);
        assert_eq!(opened.is_ok(), cut == whole, "{cut} of {whole} bytes: {opened:?}");
        assert_eq!(driver.await.unwrap().reason(), "the other side closed it");
        let after = client.call(ConnectGetHostname {}, soon()).await.unwrap_err();
        assert_eq!(reason(&after), "the other side closed it", "even right after the reply to open");
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_marked_dead_ends_every_waiter_at_once_even_with_a_blocked_writer_lv_79() {
    let (client, _server, driver) = link_with(&Options { keepalive: None }, 64);
    let call = |call_client: egress_libvirt::Client| {
        tokio::spawn(async move {
            call_client.call(DomainDefineXml { xml: "x".repeat(9000) }, Instant::now() + Duration::from_secs(3600)).await
        })
    };
    let (blocked, waiting) = (call(client.clone()), call(client.clone()));
    let upload = tokio::spawn({
        let client = client.clone();
        async move { client.upload(volume(), 0, 9, Instant::now() + Duration::from_secs(3600)).await.map(drop) }
    });
    tokio::task::yield_now().await;
    let before = Instant::now();
    client.kill("the host is gone");
    client.kill("a second reason");
    for ended in [blocked.await.unwrap().unwrap_err(), waiting.await.unwrap().unwrap_err(), upload.await.unwrap().unwrap_err()] {
        assert_eq!(reason(&ended), "the host is gone");
    }
    assert_eq!(driver.await.unwrap().reason(), "the host is gone");
    client.close(soon()).await;
    assert_eq!(client.until_closed().await.reason(), "the host is gone");
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn waiters_end_though_nobody_drives_the_link_any_more_lv_79() {
    let (ours, _theirs) = tokio::io::duplex(64);
    let (client, connection) = connect(ours, &Options::default());
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call(ConnectGetHostname {}, Instant::now() + Duration::from_secs(3600)).await }
    });
    tokio::task::yield_now().await;
    client.kill("enough");
    assert_eq!(reason(&call.await.unwrap().unwrap_err()), "enough", "the future was never polled");
    drop(connection);
    let (ours, _theirs) = tokio::io::duplex(64);
    let (client, connection) = connect(ours, &Options::default());
    drop(connection);
    assert_eq!(reason(&client.call(ConnectGetHostname {}, soon()).await.unwrap_err()), "nobody drives it any more");
}

#[tokio::test(start_paused = true)]
async fn closing_says_goodbye_and_waits_no_longer_than_told_lv_80() {
    let (client, mut server, driver) = link();
    let serve = async {
        let call = server.call(2).await;
        server.reply(&call, &()).await;
    };
    tokio::join!(client.close(soon()), serve);
    assert_eq!(driver.await.unwrap().reason(), "closed");
    client.close(soon()).await;

    let (client, mut server, driver) = link();
    let before = Instant::now();
    tokio::join!(client.close(before + Duration::from_secs(5)), server.call(2));
    assert_eq!(before.elapsed(), Duration::from_secs(5), "the other side does not answer");
    assert_eq!(driver.await.unwrap().reason(), "closed");

    let (client, mut server, _driver) = link();
    client.kill("dead");
    client.close(soon()).await;
    assert_eq!(server.io.read(&mut [0; 64]).await.unwrap(), 0, "nothing is said on a dead link");
}

#[tokio::test(start_paused = true)]
async fn without_a_handle_the_link_ends() {
    let (client, _server, driver) = link();
    drop(client);
    assert_eq!(driver.await.unwrap().reason(), "no handle is left");
}

#[tokio::test(start_paused = true)]
async fn silence_is_asked_about_and_then_ends_the_link_lv_81() {
    for interval in [Duration::from_secs(3), Duration::ZERO] {
        let waits = if interval.is_zero() { Duration::from_secs(15) } else { interval };
        let (client, mut server, driver) = link_with(&Options { keepalive: Some(interval) }, 1024);
        let before = Instant::now();
        let (ping, _) = server.receive().await;
        assert_eq!((ping, before.elapsed()), (Header::keepalive(keepalive::PING), waits));
        server.send(&Header::keepalive(keepalive::PONG), &[]).await;
        let (ping, _) = server.receive().await;
        assert_eq!((ping, before.elapsed()), (Header::keepalive(keepalive::PING), waits * 2), "an answer is good for one interval");
        let closed = driver.await.unwrap();
        assert_eq!(before.elapsed(), waits * 3);
        assert_eq!(closed.reason(), format!("no answer to a keepalive for {waits:?}"));
        assert_eq!(client.closed(), Some(closed));
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_stops_moving_ends_with_its_link_and_one_that_moves_does_not_lv_81() {
    let (client, mut server, driver) = link_with(&Options { keepalive: Some(Duration::from_secs(15)) }, 1024);
    let upload = tokio::spawn({
        let client = client.clone();
        async move { client.upload_from(volume(), 200_000, &vec![0; 200_000][..], Duration::from_secs(3600)).await }
    });
    let call = server.call(208).await;
    server.reply(&call, &()).await;
    let before = Instant::now();
    // A slow line: a few bytes every ten seconds, and not a word back.
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        server.io.read_exact(&mut [0; 500]).await.unwrap();
    }
    assert!(client.closed().is_none(), "after {:?}", before.elapsed());
    // Now it stands still.
    let stopped = Instant::now();
    driver.await.unwrap();
    assert!(stopped.elapsed() <= Duration::from_secs(30), "{:?}", stopped.elapsed());
    assert!(upload.await.unwrap().unwrap_err().is_closed());
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Also where the call is on its way, the handshake half done, or a stream open (LV-221).
#[test]
fn a_thousand_links_dialled_and_cut_leave_neither_tasks_nor_descriptors_lv_221() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libvirt-sock");
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(async move {
            loop {
                let (mut io, _) = listener.accept().await.unwrap();
                // One answer, then silence until the other side goes.
                let mut call = [0; 28];
                if io.read_exact(&mut call).await.is_ok() {
                    let reply = Header::new(66, kind::REPLY, 1, status::OK).message(&to_bytes(&vec![0_u32]));
                    let _ = io.write_all(&reply).await;
                    let _ = io.read_to_end(&mut Vec::new()).await;
                }
            }
        });
        tokio::task::yield_now().await;
        let metrics = tokio::runtime::Handle::current().metrics();
        // Other tests of this process have descriptors of their own; what is looked for grows with the rounds.
        let before = (metrics.num_alive_tasks(), descriptors());
        for round in 0..1000 {
            let (client, connection) = connect(UnixStream::connect(&path).await.unwrap(), &Options::default());
            let driver = tokio::spawn(connection);
            match round % 4 {
                0 => client.kill("cut"),
                1 => drop(client),
                2 => {
                    let _ = client.open("qemu:///system", Instant::now() + Duration::from_millis(1)).await;
                    client.kill("cut");
                }
                _ => {
                    let open = tokio::spawn(async move { client.call(ConnectGetLibVersion {}, soon()).await });
                    tokio::task::yield_now().await;
                    driver.abort();
                    open.await.unwrap().unwrap_err();
                }
            }
            let _ = driver.await;
        }
        assert_eq!(metrics.num_alive_tasks(), before.0);
        assert!(descriptors() < before.1 + 100, "{} descriptors, {} before", descriptors(), before.1);
        server.abort();
    });
}

//! Volumes in and out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use egress_libvirt::procedures::ConnectGetLibVersion;
use egress_libvirt::wire::{Header, MAX_CHUNK, kind, status};
use egress_libvirt::xdr::{from_bytes, to_bytes};
use egress_libvirt::{Client, Error, MAX_RANGE, Options};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use crate::server::{Server, error, link, link_with, soon, volume};

const STALL: Duration = Duration::from_secs(60);

/// The link still serves.
async fn serves(client: &Client, server: &mut Server) {
    let serve = async {
        let call = server.call(157).await;
        server.reply(&call, &9_000_000_u64).await;
    };
    let (version, ()) = tokio::join!(client.call(ConnectGetLibVersion {}, soon()), serve);
    assert_eq!(version.unwrap(), 9_000_000);
    assert_eq!(client.abandoned(), 0);
}

/// Takes an upload as libvirt does; what arrived, and the length that was declared.
async fn take(server: &mut Server) -> (Vec<u8>, u64) {
    let (call, arguments) = server.receive().await;
    assert_eq!(call.procedure, 208);
    let length = from_bytes(&arguments[arguments.len() - 12..][..8]).unwrap();
    server.reply(&call, &()).await;
    let mut got = Vec::new();
    loop {
        let (header, payload) = server.receive().await;
        assert_eq!((header.kind, header.procedure, header.serial), (kind::STREAM, 208, call.serial));
        assert!(payload.len() <= MAX_CHUNK);
        got.extend(payload);
        if header.status == status::OK {
            server.stream(&call, status::OK, &[]).await;
            return (got, length);
        }
        assert_eq!(header.status, status::CONTINUE);
    }
}

/// Bytes, then an end of its own.
struct Source {
    left: usize,
    end: Option<io::ErrorKind>,
}

impl AsyncRead for Source {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let n = self.left.min(buffer.remaining()).min(10_000);
        if n == 0
            && let Some(end) = self.end
        {
            return if end == io::ErrorKind::WouldBlock { Poll::Pending } else { Poll::Ready(Err(end.into())) };
        }
        self.left -= n;
        buffer.put_slice(&vec![b'x'; n]);
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_arrives_in_pieces_and_whole_lv_73() {
    for length in [0, 1, MAX_CHUNK, MAX_CHUNK + 1, 3 * MAX_CHUNK + 5] {
        let (client, mut server, _driver) = link();
        let source: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
        let (uploaded, (got, declared)) = tokio::join!(client.upload_from(volume(), length as u64, &source[..], STALL), take(&mut server));
        uploaded.unwrap();
        assert_eq!(declared, length as u64);
        assert!(got == source, "{length} bytes");
        serves(&client, &mut server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_middle_stops_the_upload_with_libvirts_code_lv_73() {
    let (client, mut server, _driver) = link();
    // The source never ends by itself: only the error can stop it.
    let source = Source { left: 10_000, end: Some(io::ErrorKind::WouldBlock) };
    let serve = async {
        let call = server.call(208).await;
        server.reply(&call, &()).await;
        server.stream(&call, status::ERROR, &to_bytes(&error(38, "No space left on device"))).await;
    };
    let (failed, ()) = tokio::join!(client.upload_from(volume(), 1 << 40, source, Duration::from_secs(1 << 30)), serve);
    assert_eq!(failed.unwrap_err().libvirt().unwrap().code, 38);
    serves(&client, &mut server).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_gives_the_stream_up_and_leaves_nothing_behind_lv_73() {
    let (client, mut server, _driver) = link();
    let source = Source { left: 5000, end: Some(io::ErrorKind::ConnectionReset) };
    let serve = async {
        let call = server.call(208).await;
        server.reply(&call, &()).await;
        let (header, payload) = server.receive().await;
        assert_eq!((header.kind, header.status, header.serial, payload.len()), (kind::STREAM, status::ERROR, call.serial, 0));
        call
    };
    let (failed, call) = tokio::join!(client.upload_from(volume(), 9000, source, STALL), serve);
    assert!(matches!(failed.unwrap_err(), Error::Source(cause) if cause.kind() == io::ErrorKind::ConnectionReset));
    assert_eq!(client.abandoned(), 1, "until libvirt has seen it");
    server.stream(&call, status::ERROR, &to_bytes(&error(39, "stream aborted at client request"))).await;
    serves(&client, &mut server).await;
    assert_eq!(client.unexpected(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_ends_early_or_stalls_is_no_success_though_libvirt_would_take_it_for_one_lv_73() {
    let (client, mut server, _driver) = link();
    for (end, expected) in [
        (None, "the upload ended after 5000 of 9000 bytes"),
        (Some(io::ErrorKind::WouldBlock), "StorageVolUpload was not answered in time"),
    ] {
        let serve = async {
            let call = server.call(208).await;
            server.reply(&call, &()).await;
            loop {
                let (header, _) = server.receive().await;
                if header.status == status::ERROR {
                    break server.stream(&call, status::ERROR, &to_bytes(&error(39, "aborted"))).await;
                }
                assert_eq!(header.status, status::CONTINUE);
            }
        };
        let (failed, ()) = tokio::join!(client.upload_from(volume(), 9000, Source { left: 5000, end }, STALL), serve);
        assert_eq!(failed.unwrap_err().to_string(), expected);
        serves(&client, &mut server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_waits_for_a_slow_line_and_has_at_most_a_mebibyte_in_memory_lv_74() {
    let (client, mut server, _driver) = link_with(&Options { keepalive: None }, 1024);
    let length = 64 * MAX_CHUNK as u64;
    let (upload, call) = tokio::join!(client.upload(volume(), 0, length, soon()), async {
        let call = server.call(208).await;
        server.reply(&call, &()).await;
        call
    });
    let mut upload = upload.unwrap();
    // Nobody reads: what is taken is what there is room for.
    let piece = Bytes::from(vec![0; MAX_CHUNK]);
    let mut full = None;
    for _ in 0..64 {
        if let Err(error) = upload.write(piece.clone(), Instant::now() + Duration::from_secs(1)).await {
            full = Some(error);
            break;
        }
    }
    assert!(matches!(full, Some(Error::Deadline { .. })), "{full:?}");
    assert!(upload.sent() <= 1 << 20, "{} bytes were taken", upload.sent());
    // The line moves again.
    let mut left = length - upload.sent();
    let writing = async {
        while left > 0 {
            upload.write(piece.clone(), soon()).await.unwrap();
            left -= MAX_CHUNK as u64;
        }
        upload.finish(soon()).await.unwrap();
    };
    let reading = async {
        let mut got = 0;
        loop {
            let (header, payload) = server.receive().await;
            got += payload.len() as u64;
            if header.status == status::OK {
                break server.stream(&call, status::OK, &[]).await;
            }
        }
        assert_eq!(got, length);
    };
    tokio::join!(writing, reading);
}

#[tokio::test(start_paused = true)]
async fn more_than_was_declared_is_refused_here_lv_73() {
    let (client, mut server, _driver) = link();
    let (upload, _) = tokio::join!(client.upload(volume(), 0, 3, soon()), async {
        let call = server.call(208).await;
        server.reply(&call, &()).await;
    });
    let mut upload = upload.unwrap();
    let refused = upload.write(Bytes::from_static(b"four"), soon()).await.unwrap_err();
    assert!(refused.to_string().contains("more bytes than were declared"), "{refused}");
    upload.write(Bytes::from_static(b"abc"), soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_opens_after_its_caller_left_is_given_up_then_lv_77() {
    let (client, mut server, _driver) = link();
    let (late, call) = tokio::join!(client.upload(volume(), 0, 9, Instant::now() + Duration::from_secs(1)), server.call(208));
    assert!(matches!(late.unwrap_err(), Error::Deadline { sent: true, .. }));
    server.reply(&call, &()).await;
    let (header, _) = server.receive().await;
    assert_eq!((header.kind, header.status, header.serial), (kind::STREAM, status::ERROR, call.serial));
    assert_eq!(client.abandoned(), 1);
    server.stream(&call, status::ERROR, &to_bytes(&error(39, "aborted"))).await;
    serves(&client, &mut server).await;
}

/// Sends a range as libvirt does.
async fn give(server: &mut Server, contents: &[u8]) {
    let (call, arguments) = server.receive().await;
    assert_eq!(call.procedure, 209);
    let tail = &arguments[arguments.len() - 20..];
    let (offset, length) = (from_bytes::<u64>(&tail[..8]).unwrap() as usize, from_bytes::<u64>(&tail[8..16]).unwrap() as usize);
    server.reply(&call, &()).await;
    let rest = &contents[offset.min(contents.len())..];
    for piece in rest[..length.min(rest.len())].chunks(MAX_CHUNK) {
        server.stream(&call, status::CONTINUE, piece).await;
    }
    server.stream(&call, status::CONTINUE, &[]).await;
    let (end, _) = server.receive().await;
    assert_eq!((end.kind, end.status, end.serial), (kind::STREAM, status::OK, call.serial));
    server.stream(&call, status::OK, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_download_asks_for_one_range_after_the_other_lv_74() {
    for length in [0, 1, MAX_RANGE, MAX_RANGE + 1, 2 * MAX_RANGE + 70] {
        let (client, mut server, _driver) = link();
        let contents: Vec<u8> = (0..length).map(|n| (n % 253) as u8).collect();
        let read = async {
            let (mut download, mut got) = (client.download(volume(), 0), Vec::new());
            while let Some(bytes) = download.next(soon()).await.unwrap() {
                assert!(bytes.len() <= MAX_RANGE);
                got.extend_from_slice(&bytes);
            }
            got
        };
        let serve = async {
            for _ in 0..=length / MAX_RANGE {
                give(&mut server, &contents).await;
            }
        };
        let (got, ()) = tokio::join!(read, serve);
        assert!(got == contents, "{length} bytes");
        server.expect_silence().await;
        serves(&client, &mut server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_more_than_was_asked_for_is_given_up_and_not_kept_lv_74() {
    let (client, mut server, _driver) = link();
    let serve = async {
        let call = server.call(209).await;
        server.reply(&call, &()).await;
        server.stream(&call, status::CONTINUE, &[0; 1000]).await;
        server.stream(&call, status::CONTINUE, &[0; 100]).await;
        let (header, _) = server.receive().await;
        assert_eq!((header.kind, header.status), (kind::STREAM, status::ERROR));
        // What was on its way already.
        server.stream(&call, status::CONTINUE, &[0; 100]).await;
        server.stream(&call, status::ERROR, &to_bytes(&error(39, "aborted"))).await;
    };
    let (read, ()) = tokio::join!(client.read_range(volume(), 0, 1024, soon()), serve);
    let refused = read.unwrap_err();
    assert!(refused.to_string().contains("more bytes than were asked for"), "{refused}");
    serves(&client, &mut server).await;
    assert_eq!(client.unexpected(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_download_ends_with_libvirts_error_at_each_of_its_steps() {
    let (client, mut server, _driver) = link();
    for step in 0..3 {
        let serve = async {
            let call: Header = server.call(209).await;
            if step == 0 {
                return server.refuse(&call, 38, "gone").await;
            }
            server.reply(&call, &()).await;
            server.stream(&call, status::CONTINUE, b"abc").await;
            if step == 2 {
                server.stream(&call, status::CONTINUE, &[]).await;
                server.receive().await;
            }
            server.stream(&call, status::ERROR, &to_bytes(&error(38, "gone"))).await;
        };
        let (read, ()) = tokio::join!(client.read_range(volume(), 0, 64, soon()), serve);
        assert_eq!(read.unwrap_err().libvirt().unwrap().code, 38, "step {step}");
        serves(&client, &mut server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_uploads_and_calls_share_a_line_lv_71() {
    let (client, mut server, _driver) = link();
    let (a, b) = (vec![b'a'; 2 * MAX_CHUNK], vec![b'b'; 2 * MAX_CHUNK]);
    let work = async {
        tokio::join!(
            client.upload_from(volume(), a.len() as u64, &a[..], STALL),
            client.upload_from(volume(), b.len() as u64, &b[..], STALL),
            client.call(ConnectGetLibVersion {}, soon()),
        )
    };
    let serve = async {
        let mut ended = 0;
        while ended < 2 {
            let (header, payload) = server.receive().await;
            match (header.kind, header.procedure, header.status) {
                (kind::CALL, 208, _) => server.reply(&header, &()).await,
                (kind::CALL, 157, _) => server.reply(&header, &9_000_000_u64).await,
                (kind::STREAM, 208, status::CONTINUE) => assert!(payload.iter().all(|byte| *byte == payload[0])),
                (kind::STREAM, 208, status::OK) => {
                    ended += 1;
                    server.stream(&header, status::OK, &[]).await;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let ((first, second, version), ()) = tokio::join!(work, serve);
    first.unwrap();
    second.unwrap();
    assert_eq!(version.unwrap(), 9_000_000);
}

/// libvirtd sends streams and replies from different threads: either may be first.
#[tokio::test(start_paused = true)]
async fn bytes_that_overtake_the_reply_of_their_download_count() {
    let (client, mut server, _driver) = link();
    for ahead in 0..=2 {
        let serve = async {
            let call = server.call(209).await;
            for (n, piece) in [&b"abc"[..], b""].iter().enumerate() {
                if n == ahead {
                    server.reply(&call, &()).await;
                }
                server.stream(&call, status::CONTINUE, piece).await;
            }
            if ahead == 2 {
                server.expect_silence().await;
                server.reply(&call, &()).await;
            }
            let (end, _) = server.receive().await;
            assert_eq!((end.kind, end.status), (kind::STREAM, status::OK));
            server.stream(&call, status::OK, &[]).await;
        };
        let (read, ()) = tokio::join!(client.read_range(volume(), 0, 64, soon()), serve);
        assert_eq!(read.unwrap(), b"abc"[..], "{ahead} packets ahead");
        serves(&client, &mut server).await;
        assert_eq!(client.unexpected(), 0);
    }
}

async fn refuse_early(server: &mut Server) {
    let (call, _) = server.receive().await;
    server.stream(&call, status::ERROR, &to_bytes(&error(38, "gone"))).await;
    server.reply(&call, &()).await;
    // Answered when all of that was read.
    server.ping().await;
    server.receive().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_that_overtakes_the_reply_ends_its_stream() {
    let (client, mut server, _driver) = link();
    let (upload, ()) = tokio::join!(client.upload_from(volume(), 9, &[0; 9][..], STALL), refuse_early(&mut server));
    assert_eq!(upload.unwrap_err().libvirt().unwrap().code, 38);
    let (read, ()) = tokio::join!(client.read_range(volume(), 0, 9, soon()), refuse_early(&mut server));
    assert_eq!(read.unwrap_err().libvirt().unwrap().code, 38);
    serves(&client, &mut server).await;
    assert_eq!(client.unexpected(), 0);
}

//! The probe against Debian's squid and tinyproxy. Skips loudly where a binary is absent.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use egress_protocol::Secret;
use egress_protocol::object::Credentials;
use egress_protocol::prober::ProbeFailure;
use egress_protocol::prober::ProbeTarget;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::zoo::{Ca, failure, outcome, target, tls_target, trusting};

async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

async fn start(program: &str, arguments: &[&str], port: u16) -> Child {
    let mut child = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let up = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{program} ended: {status}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), up).await.unwrap();
    child
}

fn with(mut target: ProbeTarget, user: &str, password: &str) -> ProbeTarget {
    let pair = Credentials { username: Secret::new(user.into()), password: Secret::new(password.into()) };
    target.credentials = Some(std::sync::Arc::new(pair));
    target
}

/// What both must do: healthy through TLS; a wrong password; a target that refuses and one whose name does not resolve.
async fn judge(port: u16, wrong_password: &str) {
    let ca = Ca::new();
    let settings = trusting(&ca);
    let site = tls_target(ca.acceptor("127.0.0.1", |_| {}), "HTTP/1.1 204 No Content\r\n\r\n").await;
    let url = format!("https://127.0.0.1:{}/", site.port);
    let good = outcome(&with(target(port, &url), "user", "secret"), &settings).await;
    assert!(good.passed(), "{good:?}");

    let (reason, message, _) = failure(&with(target(port, &url), "user", "wrong"), &settings).await;
    assert_eq!(reason, ProbeFailure::ProxyAuthRequired);
    assert!(message.contains(wrong_password), "{message}");

    let closed = format!("https://127.0.0.1:{}/", free_port().await);
    let unknown = "https://no-such-name.invalid/".to_owned();
    for url in [closed, unknown] {
        let (reason, message, _) = failure(&with(target(port, &url), "user", "secret"), &settings).await;
        assert_eq!(reason, ProbeFailure::ProxyRefused, "{url}: {message}");
    }

    let stranger = tls_target(Ca::new().acceptor("127.0.0.1", |_| {}), "HTTP/1.1 204 No Content\r\n\r\n").await;
    let url = format!("https://127.0.0.1:{}/", stranger.port);
    let (reason, message, _) = failure(&with(target(port, &url), "user", "secret"), &settings).await;
    assert_eq!(reason, ProbeFailure::TlsFailed, "{message}");
}

/// HE-3: tinyproxy answers HTTP/1.0 200 to CONNECT, and 401 to a wrong password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tinyproxy_is_judged_rightly() {
    if !Path::new("/usr/bin/tinyproxy").exists() {
        println!("SKIPPED: /usr/bin/tinyproxy is not installed");
        return;
    }
    let (port, folder) = (free_port().await, tempfile::tempdir().unwrap());
    let file = folder.path().join("tinyproxy.conf");
    std::fs::write(&file, format!("Port {port}\nListen 127.0.0.1\nTimeout 60\nBasicAuth user secret\nAllow 127.0.0.1\n")).unwrap();
    let _child = start("/usr/bin/tinyproxy", &["-d", "-c", file.to_str().unwrap()], port).await;
    judge(port, "401").await;
}

/// HE-3: squid answers 407 to a wrong password and 403 to what its rules deny.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn squid_is_judged_rightly() {
    let helper = "/usr/lib/squid/basic_ncsa_auth";
    if !Path::new("/usr/sbin/squid").exists() || !Path::new(helper).exists() {
        println!("SKIPPED: /usr/sbin/squid or {helper} is not installed");
        return;
    }
    let (port, folder) = (free_port().await, tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // crypt(3) of "secret" with MD5, as htpasswd writes it.
    std::fs::write(at("users"), "user:$1$saltsalt$9xy1btjgzLYfb7hivXtC//\n").unwrap();
    std::fs::write(
        at("squid.conf"),
        format!(
            "http_port 127.0.0.1:{port}\npid_filename {}\naccess_log none\ncache_log {}\ncache deny all\nshutdown_lifetime 0 seconds\n\
             max_filedescriptors 1024\ncoredump_dir {}\nauth_param basic program {helper} {}\nauth_param basic children 1\n\
             acl known proxy_auth REQUIRED\nacl denied dstdomain denied.example\nhttp_access deny denied\nhttp_access allow known\nhttp_access deny all\n",
            at("pid"),
            at("cache.log"),
            folder.path().display(),
            at("users"),
        ),
    )
    .unwrap();
    let mut permissions = std::fs::metadata(folder.path()).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o777);
    std::fs::set_permissions(folder.path(), permissions).unwrap();
    let _child = start("/usr/sbin/squid", &["-N", "-f", &at("squid.conf")], port).await;
    judge(port, "407").await;
    let denied = with(target(port, "https://denied.example/"), "user", "secret");
    let (reason, message, side) = failure(&denied, &trusting(&Ca::new())).await;
    assert_eq!((reason, side), (ProbeFailure::ProxyRefused, false));
    assert!(message.contains("403"), "{message}");
}

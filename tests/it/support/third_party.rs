//! Forward proxies that none of us wrote: Debian's squid and tinyproxy, each started on a free port of loopback.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::{eventually, free_port};

/// A running third-party proxy; ends when dropped.
#[derive(Debug)]
pub struct ThirdParty {
    pub port: u16,
    child: Child,
    _dir: TempDir,
}

impl Drop for ThirdParty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a binary is there.
pub fn has(binary: &str) -> bool {
    Path::new(binary).exists()
}

pub const SQUID: &str = "/usr/sbin/squid";
pub const TINYPROXY: &str = "/usr/bin/tinyproxy";

async fn up(port: u16, child: Child, dir: TempDir) -> ThirdParty {
    let proxy = ThirdParty { port, child, _dir: dir };
    eventually("the third-party proxy listens", Duration::from_secs(20), || async move {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
    })
    .await;
    proxy
}

/// squid, with basic authentication when `password` is given (user `crawler`); `extra` lines come first and so win.
pub async fn squid(password: Option<&str>, extra: &str) -> ThirdParty {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let at = dir.path().display();
    let auth = password.map_or_else(
        || "http_access allow all\n".to_owned(),
        |password| {
            let helper = dir.path().join("auth.sh");
            std::fs::write(
                &helper,
                format!("#!/bin/sh\nwhile read -r user pass; do [ \"$user $pass\" = 'crawler {password}' ] && echo OK || echo ERR; done\n"),
            )
            .unwrap();
            Command::new("chmod").args(["755", helper.to_str().unwrap()]).status().unwrap();
            format!(
                "auth_param basic program {at}/auth.sh\nauth_param basic realm test\nacl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all\n"
            )
        },
    );
    let config = format!(
        "{extra}\nhttp_port 127.0.0.1:{port}\n{auth}pid_filename none\ncache deny all\naccess_log none\ncache_log {at}/cache.log\n\
         coredump_dir none\npinger_enable off\nnetdb_filename none\nshutdown_lifetime 1 seconds\nmax_filedescriptors 4096\ncache_mem 8 MB\n\
         visible_hostname squid.test\ndns_timeout 2 seconds\nconnect_timeout 5 seconds\n"
    );
    let file = dir.path().join("squid.conf");
    std::fs::write(&file, config).unwrap();
    // squid drops to the user `proxy` when started as root, and must be able to write its log.
    Command::new("chmod").args(["-R", "777", dir.path().to_str().unwrap()]).status().unwrap();
    let child = Command::new(SQUID)
        .args(["-N", "-n", &format!("t{port}"), "-f", file.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    up(port, child, dir).await
}

/// tinyproxy, with basic authentication when `password` is given (user `crawler`); CONNECT to `connect_ports` only, when given.
pub async fn tinyproxy(password: Option<&str>, connect_ports: &[u16]) -> ThirdParty {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let auth = password.map(|p| format!("BasicAuth crawler {p}\n")).unwrap_or_default();
    let connect: String = connect_ports.iter().map(|p| format!("ConnectPort {p}\n")).collect();
    let file = dir.path().join("tinyproxy.conf");
    std::fs::write(
        &file,
        format!("Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 2000\nAllow 127.0.0.1\nLogLevel Critical\n{auth}{connect}"),
    )
    .unwrap();
    let child =
        Command::new(TINYPROXY).args(["-d", "-c", file.to_str().unwrap()]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    up(port, child, dir).await
}

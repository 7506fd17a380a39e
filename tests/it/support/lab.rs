//! A site with one `local` provider, `lab`, on loopback addresses of the test's own: its proxies have the ports a person
//! would choose and never meet those of another test.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU8, Ordering};

use egress_config::cli::{Command, StandaloneSettings};
use egress_manifests::Record;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::operator::{Operator, Site, files_below};
use super::origin::{Manner, Origin};

/// See the module.
#[derive(Debug)]
pub struct Lab {
    pub site: Site,
    /// Where the instances listen.
    pub address: Ipv4Addr,
    /// What they are probed with.
    pub origin: Origin,
}

/// A mark in the state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub proxy: String,
    pub uid: String,
    pub address: SocketAddrV4,
    pub created_at: String,
}

/// A loopback address that no other test of this run has, and hardly one of another run.
pub fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + (high & 0x7f), low, NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Lab {
    pub async fn new() -> Self {
        let address = own_address();
        Self::of(address, &format!("  - name: lab\n    type: local\n{}", block(&address.to_string()))).await
    }

    /// With these entries in the providers file.
    pub async fn of(address: Ipv4Addr, entries: &str) -> Self {
        let site = Site::new();
        let providers = site.path("providers.yaml");
        std::fs::write(&providers, format!("providers:\n{entries}")).unwrap();
        let site = site.flag("--providers-config", providers.to_str().unwrap());
        // At start a folder that holds no file counts as missing (OP-30): this one never becomes empty.
        site.write("keep.yaml", "# nothing\n");
        Self { site, address, origin: Origin::http(Manner::Fine).await }
    }

    /// A document of a Managed proxy of `lab`.
    pub fn managed(&self, name: &str, port: u16) -> String {
        self.document(name, &format!("mode: Managed\n  provider: lab\n  port: {port}"))
    }

    /// A document with these first lines of its spec, probed at the lab's origin.
    pub fn document(&self, name: &str, spec: &str) -> String {
        format!(
            "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata:\n  name: {name}\nspec:\n  {spec}\n  maxLeases: 2\n  \
             attributes: {{name: {name}}}\n  healthCheck: {{url: \"http://127.0.0.1:{}/generate_204\", intervalSeconds: 5, \
             failureThreshold: 1}}\n---\n",
            self.origin.port
        )
    }

    pub fn at(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, port)
    }

    /// Every mark of the provider `lab`, by name of the proxy.
    pub fn marks(&self) -> Vec<Mark> {
        let mut marks: Vec<Mark> = files_below(&self.site.path("state/marks/lab"))
            .into_iter()
            .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "json"))
            .map(|(path, content)| {
                let mark: Value = serde_json::from_slice(&content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                let text = |name: &str| mark[name].as_str().unwrap_or_else(|| panic!("{name} in {mark}")).to_owned();
                let port = u16::try_from(mark["port"].as_u64().unwrap()).unwrap();
                Mark {
                    proxy: text("proxyName"),
                    uid: text("proxy-operator-uid"),
                    address: SocketAddrV4::new(text("listenAddress").parse().unwrap(), port),
                    created_at: text("proxy-operator-created-at"),
                }
            })
            .collect();
        marks.sort_by(|a, b| a.proxy.cmp(&b.proxy));
        marks
    }

    /// Every recorded object, by name.
    pub fn objects(&self) -> BTreeMap<String, Record> {
        let inspection = egress_manifests::inspect(&self.site.path("state")).unwrap();
        inspection.objects.into_iter().map(|record| (record.key.name.to_string(), record)).collect()
    }

    /// The listeners of the instances, with the inodes of their sockets.
    pub fn instances(&self, operator: &Operator) -> BTreeMap<SocketAddrV4, u64> {
        operator.sockets().into_iter().filter(|(address, _)| *address.ip() == self.address).collect()
    }

    /// The same site as settings, for a process inside the test.
    pub fn settings(&self) -> StandaloneSettings {
        let (state, manifests) = (self.site.path("state").display().to_string(), self.site.manifests().display().to_string());
        let mut args = vec!["egress-proxies-operator", "standalone", "--state", &state, "--manifests", &manifests];
        for flag in ["--discovery-bind-address", "--debug-bind-address", "--metrics-bind-address", "--health-probe-bind-address"] {
            args.extend([flag, "127.0.0.1:0"]);
        }
        args.extend(self.site.flags.iter().map(String::as_str));
        match egress_config::cli::parse(args.into_iter().map(Into::into), |_| None) {
            Ok(Command::Standalone(settings)) => *settings,
            other => panic!("{other:?}"),
        }
    }
}

/// The block of an entry of type `local` that listens there and may reach loopback.
pub fn block(listen: &str) -> String {
    format!("    local:\n      listenAddresses: [\"{listen}\"]\n      allowedTargets: [\"127.0.0.0/8\"]\n")
}

/// Says back what it hears; ends when dropped.
#[derive(Debug)]
pub struct Echo {
    pub target: String,
    _task: JoinSet<()>,
}

impl Echo {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { target, _task: task }
    }
}

/// Sends bytes through a tunnel to [`Echo`] and expects them back.
pub async fn carries(tunnel: &mut TcpStream, bytes: &[u8]) -> Result<(), String> {
    let exchange = async {
        tunnel.write_all(bytes).await?;
        let mut back = vec![0; bytes.len()];
        tunnel.read_exact(&mut back).await?;
        std::io::Result::Ok(back)
    };
    match tokio::time::timeout(std::time::Duration::from_secs(10), exchange).await {
        Ok(Ok(back)) if back == bytes => Ok(()),
        Ok(Ok(_)) => Err("other bytes came back".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no bytes within 10 s".to_owned()),
    }
}

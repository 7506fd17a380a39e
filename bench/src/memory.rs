//! Memory of an idle External proxy with its prober: the operator itself, once with 1,000 and once with 10,000 manifests,
//! after one probe of each; the slope between the two.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use crate::probes::target::{HOST, Ready};
use crate::process::{Helper, resident};
use crate::table::{Table, thousands};
use crate::{Outcome, Role, progress};

const SIZES: [u32; 2] = [1_000, 10_000];
const PER_FILE: u32 = 500;
/// All probed by then, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(300);
/// Until buffers that the start needed are given back or used again.
const REST: Duration = Duration::from_secs(10);

/// The slope per proxy in KiB of the operators beside these builds of the benchmark, one after another.
pub(crate) fn slopes(programs: &[PathBuf]) -> Outcome<Vec<f64>> {
    let (_target, ready) = Helper::start(&Role::Target)?;
    let target: Ready = serde_json::from_str(&ready)?;
    let mut resident = Vec::new();
    for proxies in SIZES {
        progress(&format!("memory with {proxies} proxies"));
        let of_size = programs.iter().map(|program| Ok(measure(&operator_beside(program)?, proxies, &target)?.0));
        resident.push(of_size.collect::<Outcome<Vec<f64>>>()?);
    }
    Ok(resident[0].iter().zip(&resident[1]).map(|(few, many)| slope(*few, *many)).collect())
}

fn slope(few: f64, many: f64) -> f64 {
    (many - few) / f64::from(SIZES[1] - SIZES[0])
}

pub(crate) fn run() -> Outcome<Vec<Table>> {
    let (_target, ready) = Helper::start(&Role::Target)?;
    let target: Ready = serde_json::from_str(&ready)?;
    let program = operator_beside(&std::env::current_exe()?)?;
    let mut table = Table::new(
        "memory",
        "Resident memory of the operator, External proxies, probed once over https, then idle",
        &["proxies", "resident MiB", "until all were healthy, s"],
    );
    let mut resident = Vec::new();
    for proxies in SIZES {
        progress(&format!("memory with {proxies} proxies"));
        let (kib, took) = measure(&program, proxies, &target)?;
        table.row([thousands(f64::from(proxies)), format!("{:.1}", kib / 1024.0), format!("{:.0}", took.as_secs_f64())]);
        resident.push(kib);
    }
    let slope = slope(resident[0], resident[1]);
    table.row(["**slope, per proxy**".to_owned(), format!("**{slope:.1} KiB**"), String::new()]);
    Ok(vec![table])
}

/// The operator; killed with this value.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

fn measure(program: &Path, proxies: u32, target: &Ready) -> Outcome<(f64, Duration)> {
    let folder = tempfile::tempdir()?;
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests)?;
    for file in 0..proxies.div_ceil(PER_FILE) {
        let text = (file * PER_FILE..proxies.min((file + 1) * PER_FILE)).fold(String::new(), |text, n| text + &manifest(n, target));
        std::fs::write(manifests.join(format!("{file}.yaml")), text)?;
    }
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, &target.roots)?;
    let api = free_address()?;
    let start = Instant::now();
    let operator = start_operator(program, folder.path(), &manifests, &roots, api)?;
    loop {
        sleep(Duration::from_millis(500));
        let healthy = healthy(api).unwrap_or(0);
        if healthy == proxies {
            break;
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("only {healthy} of {proxies} proxies became healthy").into());
        }
    }
    let took = start.elapsed();
    sleep(REST);
    Ok((resident(operator.0.id())?, took))
}

fn manifest(n: u32, target: &Ready) -> String {
    let proxy = target.proxies[n as usize % target.proxies.len()];
    let mut text = String::new();
    let _ = write!(
        text,
        "---\napiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata:\n  name: px-{n:06}\nspec:\n  mode: External\n  port: {}\n  \
         endpoint:\n    host: {}\n  maxLeases: 20\n  attributes:\n    geo: geo{}\n    tier: tier{}\n    owner: partner\n  \
         healthCheck:\n    url: https://{HOST}/generate_204\n    intervalSeconds: 3600\n    timeoutSeconds: 60\n",
        proxy.port(),
        proxy.ip(),
        n % 10,
        n / 10 % 5,
    );
    text
}

fn free_address() -> Outcome<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn operator_beside(bench: &Path) -> Outcome<PathBuf> {
    let program = bench.with_file_name("egress-proxies-operator");
    if !program.exists() {
        let why = "is not there: the benchmark of memory runs the operator itself; build it with `cargo build --release`";
        return Err(format!("{} {why}", program.display()).into());
    }
    Ok(program)
}

fn start_operator(program: &Path, folder: &Path, manifests: &Path, roots: &Path, api: SocketAddr) -> Outcome<Operator> {
    let mut command = Command::new(program);
    command.arg("standalone").arg("--manifests").arg(manifests).arg("--state").arg(folder.join("state"));
    command.arg("--check-ca-file").arg(roots).arg("--discovery-bind-address").arg(api.to_string());
    for flag in ["--debug-bind-address", "--metrics-bind-address", "--health-probe-bind-address"] {
        command.args([flag, "127.0.0.1:0"]);
    }
    command.args(["--log-level", "warn"]).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(Operator(command.spawn()?))
}

/// How many proxies the API lists as healthy, page by page.
fn healthy(api: SocketAddr) -> Outcome<u32> {
    let (mut all, mut cursor) = (0, String::new());
    loop {
        let mut stream = TcpStream::connect(api)?;
        write!(stream, "GET /v1/proxies?healthy=true&limit=1000{cursor} HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        let page: serde_json::Value = serde_json::from_str(body)?;
        all += page["items"].as_array().map_or(0, |items| u32::try_from(items.len()).unwrap_or(u32::MAX));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(all),
        }
    }
}

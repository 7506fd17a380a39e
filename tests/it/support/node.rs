//! The node bed (tests/bed/README.md): a real kubelet, containerd and control plane in namespaces of their own. Commands run
//! inside; images are made and loaded; objects are followed with everything that was ever seen of them.
//!
//! The bed of `tests/run` is shared, and held by one test at a time ([`Node::shared`]). A test that stops the kubelet or
//! the whole node makes a node of its own ([`Node::of_its_own`]).

pub mod image;
pub mod release;
pub mod watch;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};

use super::eventually;

/// The repository.
pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The client image of the bed: curl and a shell.
const CLIENT: &str = "bed.test/client:1";

/// A running node; its own one ends when dropped.
#[derive(Debug)]
pub struct Node {
    state: PathBuf,
    /// How long the audit log was when the chart was installed.
    installed_at: AtomicUsize,
    /// The folder of a node of the test's own.
    own: Option<tempfile::TempDir>,
    /// The one that `tests/run` made is one test's at a time.
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.own.is_some() {
            let _ = std::process::Command::new(script("node")).arg("down").arg(&self.state).status();
        }
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/bed").join(name)
}

/// What a command said; panics unless it ended well.
fn said(what: &str, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{what}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

impl Node {
    /// The node of `tests/run`, as soon as no other test has it. Without one the test is skipped by name.
    pub async fn shared(test: &str) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::const_new(());
        let state = given(test)?;
        Some(Self { state, installed_at: AtomicUsize::new(0), own: None, _turn: Some(TURN.lock().await) })
    }

    /// A node that no other test sees, with these variables of `tests/bed/node`. Skipped by name where `tests/run` has none.
    pub async fn of_its_own(test: &str, variables: &[(&str, &str)]) -> Option<Self> {
        let shared = given(test)?;
        // Beside the shared one, so that `tests/run` takes it down should this process be killed.
        let dir = tempfile::Builder::new().prefix("node-").tempdir_in(shared.parent().unwrap()).unwrap();
        let node = Self { state: dir.path().to_owned(), installed_at: AtomicUsize::new(0), own: Some(dir), _turn: None };
        node.up(variables).await;
        Some(node)
    }

    /// Starts it; after [`Self::down`] it is the same one after a reboot.
    pub async fn up(&self, variables: &[(&str, &str)]) {
        // Its daemons outlive the call and keep what they are given: no pipe of ours, or reading it would never end.
        let log = self.state.join("up.log");
        let file = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(script("node"));
        command.arg("up").arg(&self.state).envs(variables.iter().copied()).stdin(Stdio::null());
        let status = command.stdout(file.try_clone().unwrap()).stderr(file).status().await.unwrap();
        assert!(status.success(), "the node does not come up: {}", std::fs::read_to_string(&log).unwrap());
    }

    /// The machine goes off: everything on it is gone at once.
    pub async fn down(&self) {
        self.bed("down", &[]).await;
    }

    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The certificate of the authority that signs the API server's and the origin's.
    pub fn authority(&self) -> String {
        std::fs::read_to_string(self.state.join("ca.crt")).unwrap()
    }

    /// `tests/bed/node VERB STATE ARGS`, not started yet.
    pub fn verb(&self, verb: &str, args: &[&str]) -> Command {
        let mut command = Command::new(script("node"));
        command.arg(verb).arg(&self.state).args(args).current_dir(ROOT).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs one to its end. What a daemon that it starts prints goes to a file of the bed's, so that nobody waits for it.
    pub async fn bed(&self, verb: &str, args: &[&str]) -> String {
        said(&format!("node {verb} {args:?}"), &self.verb(verb, args).output().await.unwrap())
    }

    /// A command that runs inside, not started yet.
    pub fn inside(&self, args: &[&str]) -> Command {
        self.verb("in-ns", args)
    }

    /// Runs a command inside to its end.
    pub async fn output(&self, args: &[&str]) -> Output {
        self.inside(args).output().await.unwrap()
    }

    /// The same with this as its input.
    pub async fn fed(&self, args: &[&str], input: &str) -> Output {
        let mut child = self.inside(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        child.wait_with_output().await.unwrap()
    }

    /// A command inside that must end well: what it printed.
    pub async fn run(&self, args: &[&str]) -> String {
        said(&args.join(" "), &self.output(args).await)
    }

    pub async fn kubectl(&self, args: &[&str]) -> String {
        self.run(&[&["kubectl"], args].concat()).await
    }

    /// The same, with what it said as the error.
    pub async fn try_kubectl(&self, args: &[&str]) -> Result<String, String> {
        let output = self.output(&[&["kubectl"], args].concat()).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// `kubectl apply` of these documents.
    pub async fn apply(&self, documents: &str) {
        let output = self.fed(&["kubectl", "apply", "-f", "-"], documents).await;
        said(&format!("kubectl apply of {documents}"), &output);
    }

    /// An object, or nothing while it is not there.
    pub async fn get(&self, namespace: &str, kind: &str, name: &str) -> Option<Value> {
        let text = self.kubectl(&["-n", namespace, "get", kind, name, "--ignore-not-found", "-o", "json"]).await;
        (!text.trim().is_empty()).then(|| serde_json::from_str(&text).unwrap())
    }

    /// Every object of a kind that a selector finds.
    pub async fn list(&self, namespace: &str, kind: &str, selector: &str) -> Vec<Value> {
        let text = self.kubectl(&["-n", namespace, "get", kind, "-l", selector, "-o", "json"]).await;
        serde_json::from_str::<Value>(&text).unwrap()["items"].as_array().unwrap().clone()
    }

    pub async fn namespace(&self, name: &str, labels: &[&str]) {
        self.kubectl(&["create", "namespace", name]).await;
        if !labels.is_empty() {
            self.kubectl(&[&["label", "namespace", name], labels].concat()).await;
        }
    }

    /// A Pod with curl and a shell, and the bed's authority in `/ca/ca.crt`.
    pub async fn client(&self, namespace: &str, name: &str) {
        self.apply(&format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext: {{runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {{type: RuntimeDefault}}}}
  containers:
    - name: client
      image: {CLIENT}
      securityContext: {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
      volumeMounts: [{{name: ca, mountPath: /ca}}]
  volumes: [{{name: ca, configMap: {{name: kube-root-ca.crt}}}}]
"#
        ))
        .await;
        self.kubectl(&["-n", namespace, "wait", "--for=condition=Ready", "--timeout=60s", &format!("pod/{name}")]).await;
    }

    /// Runs a command in a Pod; what it printed, or how it failed.
    pub async fn exec(&self, namespace: &str, pod: &str, args: &[&str]) -> Result<String, String> {
        self.try_kubectl(&[&["-n", namespace, "exec", pod, "--"], args].concat()).await
    }

    /// The processes of a Pod's containers but the sandbox's own, as the node numbers them.
    pub async fn processes(&self, uid: &str) -> Vec<u32> {
        let script = format!(
            "grep -ls '{uid}' /proc/[0-9]*/cgroup | while IFS=/ read -r _ _ pid _; do echo \"$pid $(tr '\\0' ' ' </proc/$pid/cmdline)\"; done"
        );
        let lines = self.run(&["bash", "-c", &script]).await;
        lines.lines().filter(|line| !line.contains("pause")).filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
    }

    /// Waits for an object to satisfy a `kubectl wait` (`condition=Ready`, `delete`, `jsonpath=…`).
    pub async fn wait(&self, namespace: &str, object: &str, what: &str, limit: Duration) {
        let timeout = format!("--timeout={}s", limit.as_secs());
        let waited = self.try_kubectl(&["-n", namespace, "wait", &format!("--for={what}"), object, &timeout]).await;
        if let Err(error) = waited {
            let now = self.try_kubectl(&["-n", namespace, "get", object, "-o", "yaml"]).await;
            panic!("{object} of {namespace}, {what}: {error}\n{}", now.unwrap_or_else(|e| e));
        }
    }

    /// Asks until there is an answer; commands inside cost some milliseconds each.
    pub async fn until<T, F>(&self, what: &str, limit: Duration, mut check: impl FnMut() -> F) -> T
    where
        F: Future<Output = Option<T>>,
    {
        eventually(what, limit, || {
            let asked = check();
            async move {
                let answer = asked.await;
                if answer.is_none() {
                    tokio::time::sleep(Duration::from_millis(250)).await;
                }
                answer
            }
        })
        .await
    }
}

/// The state of the node that `tests/run` made.
fn given(test: &str) -> Option<PathBuf> {
    let state = std::env::var_os("EPO_BED_NODE").filter(|state| !state.is_empty());
    if state.is_none() {
        super::skip(test, "there is no node (tests/bed/README.md: root, cgroup v1)");
    }
    state.map(PathBuf::from)
}

/// A condition of an object; null when it has none of the kind.
pub fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind).cloned().unwrap_or_default()
}

/// How long each step took, for docs and people.
#[derive(Debug)]
pub struct Steps(Instant);

impl Steps {
    pub fn new() -> Self {
        Self(Instant::now())
    }

    pub fn done(&mut self, what: &str) {
        println!("{:>6} ms  {what}", self.0.elapsed().as_millis());
        self.0 = Instant::now();
    }
}

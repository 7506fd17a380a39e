//! IN-8: the commands of docs/install.md, as written and in their order, in one shell on the node. A fenced block is run when
//! `<!-- run -->` stands above it; one that is not says why.
//!
//! The default check URL is on the internet. Here its name leads to the bed's origin, whose authority is among the roots of
//! the operator's image: nothing in the commands is other than in the guide.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::support::node::Node;
use crate::support::node::release::{NAME, NAMESPACE};

const GUIDE: &str = include_str!("../../../docs/install.md");
const FENCE: &str = "```sh\n";

/// The blocks that are run.
fn commands() -> Vec<&'static str> {
    let mut blocks = Vec::new();
    let mut rest = GUIDE;
    while let Some((before, after)) = rest.split_once(FENCE) {
        let (block, next) = after.split_once("\n```").unwrap();
        let above = before.trim_end().lines().last().unwrap_or_default();
        match above {
            "<!-- run -->" => blocks.push(block),
            told if told.starts_with("<!-- not run: ") => {}
            other => {
                panic!("a block of docs/install.md says neither `<!-- run -->` nor `<!-- not run: REASON -->` above it: {other}\n{block}")
            }
        }
        rest = next;
    }
    blocks
}

/// One shell for all blocks: variables and jobs of one are there in the next.
struct Shell {
    _child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    errors: tempfile::NamedTempFile,
}

const END: &str = "=== the end of a block ===";

impl Shell {
    async fn new(node: &Node) -> Self {
        let errors = tempfile::NamedTempFile::new().unwrap();
        let mut command = node.inside(&["bash"]);
        let stderr = errors.reopen().unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut shell = Self { _child: child, stdin, lines: BufReader::new(stdout).lines(), errors };
        shell.run("set -euo pipefail").await;
        shell
    }

    /// Runs a block to its end: what it printed. The shell ends at the first command that fails.
    async fn run(&mut self, block: &str) -> String {
        // Whoever reads must not take the shell's own input.
        self.stdin.write_all(format!("{{ {block}\n}} </dev/null\necho; echo '{END}'\n").as_bytes()).await.unwrap();
        let mut printed = String::new();
        let all = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line == END {
                    return true;
                }
                printed.push_str(&line);
                printed.push('\n');
            }
            false
        };
        let ended = tokio::time::timeout(Duration::from_secs(180), all).await;
        let errors = || std::fs::read_to_string(self.errors.path()).unwrap();
        assert!(ended == Ok(true), "{block}\n{printed}{}", errors());
        printed
    }
}

#[test]
fn every_command_of_the_guide_is_run_or_says_why_not() {
    let blocks = commands().join("\n");
    for part in
        ["helm install ", "test egress-proxies-operator", "config/samples/", "port-forward", "upgrade ", "kubectl delete px", "uninstall "]
    {
        assert!(blocks.contains(part), "{part} in\n{blocks}");
    }
}

/// IN-8.
#[tokio::test]
async fn the_guides_commands_work_as_written() {
    let Some(node) = Node::shared("the_guides_commands_work_as_written").await else { return };
    node.clean().await;
    node.load_trusting_operator().await;
    let hosts = node.state().join("conf/hosts");
    let known = std::fs::read_to_string(&hosts).unwrap();
    std::fs::write(&hosts, format!("{known}203.0.113.10 www.gstatic.com\n")).unwrap();
    let mut shell = Shell::new(&node).await;
    for block in commands() {
        let printed = shell.run(block).await;
        println!("{block}\n{printed}");
        if block.contains("helm install ") {
            // The next step that the notes name exists (IN-1).
            assert!(printed.contains("Lease one:") && printed.contains("BEFORE AN UNINSTALL"), "{printed}");
        } else if block.contains("kubectl get px") {
            let row: Vec<&str> = printed.lines().find(|line| line.starts_with("kubernetes-1 ")).unwrap().split_whitespace().collect();
            assert_eq!((row[3], row[5]), ("Ready", "True"), "{printed}");
        } else if block.contains("/v1/leases") {
            // The port-forward says what it does in between.
            let lease = printed.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).unwrap_or_else(|| panic!("{printed}"));
            assert_eq!((&lease["state"], &lease["proxy"]["name"]), (&"active".into(), &"kubernetes-1".into()));
            // A crawler gives it back, else a deletion waits for it.
            let url = format!("http://127.0.0.1:8090/v1/leases/{}", lease["id"].as_str().unwrap());
            shell.run(&format!("curl -sf -X DELETE '{url}' -H \"authorization: Bearer $TOKEN\"")).await;
        } else if block.contains(" test ") {
            assert!(printed.contains("Succeeded"), "{printed}");
        }
    }
    shell.run("kill $(jobs -p) 2>/dev/null || true").await;
    std::fs::write(&hosts, known).unwrap();
    assert!(node.list("default", "pods", "proxy-operator-managed=true").await.is_empty());
    assert!(node.get(NAMESPACE, "deployment", NAME).await.is_none());
    node.kubectl(&["get", "crd", "proxies.crawl.example.com"]).await;
}

//! The commands of docs/gcp-provider.md, read by `gcloud` itself (DO-1, DO-8): those below `<!-- run -->` run against the stand-in, all
//! others must at least be commands that it knows. It has no credentials here, a configuration of its own, and endpoints on loopback.

use std::process::{Command, Output};

use egress_fake_gce::{FakeGce, official};
use futures::future::join_all;

use super::{PROJECT, ZONE};
use crate::support::skip;

const GUIDE: &str = include_str!("../../../docs/gcp-provider.md");

/// The blocks of shell commands of the guide, each with whether it is to be run.
pub(super) fn blocks() -> Vec<(bool, String)> {
    let mut blocks = Vec::new();
    let mut lines = GUIDE.lines().map(str::trim_start);
    let mut run = false;
    while let Some(line) = lines.next() {
        if line == "```sh" {
            blocks.push((run, lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n")));
        }
        run = line == "<!-- run -->";
    }
    blocks
}

/// A folder for gcloud's configuration, and the environment in which it talks to nobody but the stand-in.
pub(super) struct Gcloud {
    pub(super) folder: tempfile::TempDir,
    endpoint: String,
}

impl Gcloud {
    /// `None`: there is no gcloud on this machine, and the test is skipped.
    pub(super) fn new(test: &str, endpoint: String) -> Option<Self> {
        if Command::new("gcloud").arg("--help").env("CLOUDSDK_CORE_DISABLE_PROMPTS", "1").output().is_err() {
            skip(test, "no gcloud on this machine");
            return None;
        }
        Some(Self { folder: tempfile::tempdir().unwrap(), endpoint })
    }

    pub(super) async fn shell(&self, script: &str) -> Output {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", script]).current_dir(self.folder.path()).env("CLOUDSDK_CONFIG", self.folder.path());
        for service in ["COMPUTE", "IAM", "CLOUDRESOURCEMANAGER", "SERVICEUSAGE"] {
            let path = if service == "COMPUTE" { "/compute/v1/" } else { "/" };
            command.env(format!("CLOUDSDK_API_ENDPOINT_OVERRIDES_{service}"), format!("{}{path}", self.endpoint));
        }
        for (name, value) in [
            ("AUTH_DISABLE_CREDENTIALS", "true"),
            ("CORE_CHECK_GCE_METADATA", "false"),
            ("CORE_DISABLE_FILE_LOGGING", "true"),
            ("CORE_DISABLE_PROMPTS", "true"),
            ("CORE_DISABLE_USAGE_REPORTING", "true"),
            ("COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true"),
        ] {
            command.env(format!("CLOUDSDK_{name}"), value);
        }
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }
}

pub(super) fn filled(text: &str) -> String {
    let filled = [
        ("USER_DATA_FILE", "user-data"),
        ("OPERATOR_ADDRESS/32,CLIENT_RANGE", "192.0.2.1/32,198.51.100.0/24"),
        ("PROJECT", PROJECT),
        ("NUMBER", "123456789012"),
        ("ISSUER", "https://issuer.example.com"),
    ];
    filled.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
}

/// The commands of a block: lines that go on are one.
pub(super) fn commands(block: &str) -> Vec<String> {
    block.replace("\\\n", "").lines().map(|line| line.trim().to_owned()).filter(|line| line.starts_with("gcloud ")).collect()
}

pub(super) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcloud_runs_the_runbooks_and_knows_every_command_of_the_guide() {
    const TEST: &str = "gcp::runbooks::gcloud_runs_the_runbooks_and_knows_every_command_of_the_guide";
    let fake = FakeGce::new(PROJECT);
    let server = fake.serve(0).await.unwrap();
    let Some(gcloud) = Gcloud::new(TEST, format!("http://{}", server.address)) else { return };
    std::fs::write(gcloud.folder.path().join("user-data"), "#cloud-config\n").unwrap();

    let blocks = blocks();
    let [by_hand, removed, listed] =
        blocks.iter().filter(|(run, _)| *run).map(|(_, block)| filled(block)).collect::<Vec<_>>().try_into().unwrap();
    let made = gcloud.shell(&format!("{by_hand}\necho \"address $IP\"")).await;
    assert!(made.status.success() && said(&made).contains("address 203.0."), "{}", said(&made));
    let all = fake.instances();
    assert!(all.len() == 1 && all[0].2["metadata"]["items"][0]["key"] == "user-data" && all[0].2["serviceAccounts"].is_null(), "{all:?}");
    // What the operator has made is found by its label, what it has not is not.
    fake.place(ZONE, "proxy-ours", &[("proxy-operator-managed", "true")], "RUNNING");
    let left = gcloud.shell(&listed).await;
    assert_eq!(String::from_utf8_lossy(&left.stdout).split_whitespace().collect::<Vec<_>>(), ["proxy-ours", ZONE], "{}", said(&left));
    fake.alter(ZONE, "proxy-ours", None);
    for script in [&removed, &listed] {
        let nothing = gcloud.shell(script).await;
        assert!(nothing.status.success() && nothing.stdout.is_empty(), "{}", said(&nothing));
    }
    assert!(fake.instances().is_empty());
    if let Some(python) = official::python_or_skip(TEST) {
        println!("{}", official::judge(&python, &fake.take_log()).unwrap_or_else(|faults| panic!("{faults}")));
    }

    let others: Vec<String> = blocks.iter().filter(|(run, _)| !run).flat_map(|(_, block)| commands(&filled(block))).collect();
    assert!(others.len() > 8, "{others:?}");
    let outputs = join_all(others.iter().map(|command| gcloud.shell(command))).await;
    for (command, output) in others.iter().zip(outputs) {
        // 2 is what a wrong command line ends with; what the stand-in has no answer for ends with 1.
        let text = said(&output);
        assert!(output.status.code() != Some(2) && !text.contains("unrecognized arguments"), "{command}\n{text}");
    }
}

/// GC-23: the table, the command that makes the role, and the requirement name the same permissions.
#[test]
fn the_guide_names_exactly_the_permissions_that_are_needed() {
    let wanted = [
        "compute.disks.create",
        "compute.images.useReadOnly",
        "compute.instances.create",
        "compute.instances.delete",
        "compute.instances.get",
        "compute.instances.list",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setTags",
        "compute.regions.get",
        "compute.subnetworks.use",
        "compute.subnetworks.useExternalIp",
        "compute.zoneOperations.get",
        "compute.zoneOperations.list",
    ];
    let mut in_role: Vec<&str> = GUIDE.split("--permissions ").nth(1).unwrap().lines().next().unwrap().split(',').collect();
    in_role.sort_unstable();
    assert_eq!(in_role, wanted);
    let table = GUIDE.split("| permission | needed by |").nth(1).unwrap().split("```sh").next().unwrap();
    for permission in wanted {
        let short = permission.rsplit('.').next().unwrap();
        assert!(table.contains(permission) || table.contains(&format!("`{short}`")), "{permission} is not in the table");
    }
}

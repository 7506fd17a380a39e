//! The agent's script, run by a shell on a machine whose every program is ours: each writes down how it was called.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use egress_nocloud::AGENT_SCRIPT;

struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(machine.folder.path().join("bin")).unwrap();
        machine.with("sleep", "")
    }

    fn calls(&self) -> PathBuf {
        self.folder.path().join("calls")
    }

    /// Adds a program: it notes its call, then does `then`.
    fn with(self, name: &str, then: &str) -> Self {
        let bin = self.folder.path().join("bin");
        let text = format!("#!/bin/sh\necho {name} \"$@\" >>{}\nbin={}\n{then}\n", self.calls().display(), bin.display());
        std::fs::write(bin.join(name), text).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// What was called, in order, and what the script printed.
    fn run(self) -> (Vec<String>, String) {
        let output = Command::new("/bin/sh").args(["-c", AGENT_SCRIPT]).env("PATH", self.folder.path().join("bin")).output().unwrap();
        assert!(output.status.success(), "the script ends well whatever it finds: {output:?}");
        let calls = std::fs::read_to_string(self.calls()).unwrap_or_default();
        (calls.lines().map(str::to_owned).collect(), String::from_utf8(output.stdout).unwrap())
    }
}

/// Puts the agent where the script looks for it.
const INSTALLS: &str = "case \"$*\" in *qemu-guest-agent*) : >$bin/qemu-ga; /bin/chmod +x $bin/qemu-ga;; esac";

#[test]
fn the_first_package_manager_found_installs_the_agent_lv_62() {
    for (managers, calls) in [
        (
            &["apt-get", "dnf", "apk"][..],
            &[
                "apt-get -o DPkg::Lock::Timeout=300 update",
                "apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends qemu-guest-agent",
            ][..],
        ),
        (&["dnf", "yum"], &["dnf install -y qemu-guest-agent"]),
        (&["yum", "zypper"], &["yum install -y qemu-guest-agent"]),
        (&["zypper", "apk"], &["zypper --non-interactive install qemu-guest-agent"]),
        (&["apk"], &["apk add qemu-guest-agent"]),
    ] {
        let machine = managers.iter().fold(Machine::new().with("systemctl", ""), |machine, manager| machine.with(manager, INSTALLS));
        let (called, _) = machine.run();
        let then = ["systemctl enable qemu-guest-agent", "systemctl start qemu-guest-agent"];
        assert_eq!(called, calls.iter().chain(&then).copied().collect::<Vec<_>>());
    }
}

#[test]
fn an_agent_that_is_there_is_only_enabled_and_started_lv_62() {
    let (called, _) = Machine::new().with("qemu-ga", "").with("apt-get", "").with("systemctl", "").run();
    assert_eq!(called, ["systemctl enable qemu-guest-agent", "systemctl start qemu-guest-agent"]);
}

#[test]
fn a_lock_held_for_thirty_seconds_costs_two_tries_lv_62() {
    // Each `sleep` is of 20 s: after the second one the holder is gone.
    let locked = format!("[ $(/bin/grep -c ^sleep $bin/../calls) -ge 2 ] || exit 100\n{INSTALLS}");
    let (called, said) = Machine::new().with("apt-get", &locked).with("systemctl", "").run();
    assert_eq!(called.iter().filter(|call| *call == "sleep 20").count(), 2, "{called:?}");
    assert_eq!(called.last().unwrap(), "systemctl start qemu-guest-agent");
    assert!(called.iter().any(|call| call.contains("install -y")), "{called:?}");
    assert!(said.contains("try 2 failed"), "{said}");
}

#[test]
fn after_three_tries_it_goes_on_to_start_what_may_be_there_lv_62() {
    let (called, said) = Machine::new().with("dnf", "exit 1").with("systemctl", "exit 1").run();
    let tries =
        ["dnf install -y qemu-guest-agent", "sleep 20", "dnf install -y qemu-guest-agent", "sleep 20", "dnf install -y qemu-guest-agent"];
    let then = ["systemctl enable qemu-guest-agent", "systemctl start qemu-guest-agent"];
    assert_eq!(called, tries.into_iter().chain(then).collect::<Vec<_>>());
    assert!(said.contains("could not be installed"), "{said}");
}

#[test]
fn without_systemd_it_uses_openrc_and_without_both_it_says_so_lv_62() {
    let (called, _) = Machine::new().with("qemu-ga", "").with("rc-update", "").with("rc-service", "").run();
    assert_eq!(called, ["rc-update add qemu-guest-agent default", "rc-service qemu-guest-agent start"]);
    let (called, said) = Machine::new().with("qemu-ga", "").with("rc-update", "").run();
    assert_eq!(called, [""; 0]);
    assert!(said.contains("neither systemctl nor rc-service"), "{said}");
}

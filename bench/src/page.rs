//! docs/performance.md: its marked tables are rewritten, everything else is left as it is.

use std::path::PathBuf;
use std::process::Command;
use std::{fs, io};

use egress_protocol::Clock;

use crate::Outcome;
use crate::table::Table;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/performance.md")
}

/// Puts a table where its mark is.
pub(crate) fn replace(table: &Table) -> Outcome<()> {
    let path = path();
    let page = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let content = format!("{}\n{}", circumstances(), table.markdown());
    let page = put(&page, table.mark, &content)?;
    fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn put(page: &str, mark: &str, content: &str) -> Outcome<String> {
    let (begin, end) = (format!("<!-- bench:{mark} -->\n"), format!("<!-- /bench:{mark} -->"));
    let place = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = place else { return Err(format!("docs/performance.md has no place marked bench:{mark}").into()) };
    Ok(format!("{before}{begin}{content}{end}{after}"))
}

/// When and on what it was measured.
fn circumstances() -> String {
    let now = Clock::system().now().to_string();
    let day = now.split('T').next().unwrap_or_default().to_owned();
    let cpu = first("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown CPU".to_owned());
    let memory = first("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0);
    let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = read("/proc/loadavg").map(|text| text.split(' ').take(1).collect::<String>()).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "*{day}, commit {}, {cpu}, {cores} cores, {} GiB, Linux {}, load average {load} at the end.*\n",
        commit(),
        memory / 1024 / 1024 + 1,
        kernel.trim(),
    )
}

fn read(path: &str) -> io::Result<String> {
    fs::read_to_string(path)
}

fn first(path: &str, key: &str) -> Option<String> {
    let text = read(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let sources = ["status", "--porcelain", "--untracked-files=no", "--", "../src", "../actors", "../protocol", "../bench"];
    if git(&sources).is_some_and(|changes| !changes.is_empty()) { format!("{commit} with changes") } else { commit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = "# P\n\n<!-- bench:a -->\nold\n<!-- /bench:a -->\n\nText.\n";
        assert_eq!(put(page, "a", "new\n").unwrap(), "# P\n\n<!-- bench:a -->\nnew\n<!-- /bench:a -->\n\nText.\n");
        assert!(put(page, "b", "new\n").is_err());
    }

    #[test]
    fn the_page_has_a_place_for_every_table() {
        let page = fs::read_to_string(path()).unwrap();
        for mark in ["grants", "fleets", "expiry", "book", "probes", "memory", "actors", "neighbours", "builds"] {
            assert!(put(&page, mark, "").is_ok(), "{mark}");
        }
    }
}

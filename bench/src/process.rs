//! Children of the benchmark, and what a process costs by /proc.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{Outcome, Role};

/// Linux counts CPU time for /proc in hundredths of a second, whatever its own tick is.
const TICKS: f64 = 100.0;

/// A process that ends with this value: its stdin is closed, and it is waited for.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts this program in a role, and waits for the line that says that it is ready.
    pub(crate) fn start(role: &Role) -> Outcome<(Self, String)> {
        Self::start_of(&std::env::current_exe()?, role)
    }

    /// The same of another build of this program.
    pub(crate) fn start_of(program: &Path, role: &Role) -> Outcome<(Self, String)> {
        let mut command = Command::new(program);
        command.arg("--role").arg(serde_json::to_string(role)?).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let Some(stdout) = child.stdout.take() else { return Err("a child without a stdout".into()) };
        let mut helper = Self { child, stdin, stdout: BufReader::new(stdout) };
        let ready = helper.line()?;
        Ok((helper, ready))
    }

    /// Tells it something and waits for its answer.
    pub(crate) fn ask(&mut self, question: &str) -> Outcome<String> {
        let Some(stdin) = &mut self.stdin else { return Err("a child without a stdin".into()) };
        writeln!(stdin, "{question}")?;
        self.line()
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err("a child of the benchmark ended before it answered".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// What it has cost so far.
    pub(crate) fn cpu(&self) -> Outcome<f64> {
        cpu(self.child.id())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// Says that the role is ready, and waits until the benchmark is over.
pub(crate) fn ready_until_told(line: &str) -> Outcome<()> {
    say(line)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// One line for the benchmark.
pub(crate) fn say(line: &str) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Seconds of a CPU that a process has used, in user and in kernel mode.
pub(crate) fn cpu(pid: u32) -> Outcome<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    ticks(&stat).map(|ticks| ticks / TICKS).ok_or_else(|| format!("/proc/{pid}/stat cannot be read: {stat}").into())
}

fn ticks(stat: &str) -> Option<f64> {
    // The name in parentheses may hold anything; utime and stime are the 14th and 15th of all fields.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?)
}

/// Resident memory of a process, in KiB.
pub(crate) fn resident(pid: u32) -> Outcome<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let number = line.split_whitespace().next().and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("/proc/{pid}/status has no VmRSS").into())
}

/// Seconds of a CPU that this process has used, finer than /proc tells.
pub(crate) fn own_cpu() -> Outcome<f64> {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_process_is_found_whatever_its_name_holds() {
        let stat = "12 (a ) b) S 1 12 12 0 -1 4194304 100 0 0 0 250 31 7 7 20 0 3 0 9 1 1";
        assert_eq!(ticks(stat), Some(281.0));
        assert!(cpu(std::process::id()).unwrap() >= 0.0);
        assert!(resident(std::process::id()).unwrap() > 100.0);
    }
}

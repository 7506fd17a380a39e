//! The two judges of the fake that are not ours (GC-30): Google's client for Python, and the discovery document as
//! google-api-python-client ships it. Both live in a virtual environment that `official/python` makes once per machine.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::state::Exchange;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/official");

/// The Python that has both. The error is why there is none.
pub fn python() -> Result<PathBuf, String> {
    let output = Command::new(format!("{FOLDER}/python")).stderr(Stdio::piped()).output().map_err(|error| error.to_string())?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(said(&output.stdout).into())
    } else {
        Err(said(&output.stderr).lines().last().unwrap_or("official/python failed").to_owned())
    }
}

/// The same for a test, which is skipped by name when there is none: loudly, and counted by `tests/run`.
#[expect(clippy::disallowed_methods, reason = "tests/run says in the environment where skips are counted")]
pub fn python_or_skip(test: &str) -> Option<PathBuf> {
    let why = match python() {
        Ok(python) => return Some(python),
        Err(why) => why,
    };
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
    if let Some(path) = std::env::var_os("EPO_TEST_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = writeln!(file, "{test}: {why}");
    }
    None
}

fn run(python: &Path, args: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new(python)
        .arg(format!("{FOLDER}/discovery.py"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    // It reads all before it says much, so that neither waits for the other.
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(|error| error.to_string())?;
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}

/// Judges exchanges by the discovery document: what it says when all is well, with the document's revision; else the faults.
pub fn judge(python: &Path, exchanges: &[Exchange]) -> Result<String, String> {
    let lines: String = exchanges.iter().map(|exchange| format!("{}\n", exchange.to_json())).collect();
    run(python, &["check"], &lines)
}

/// The values that a field of a schema of the discovery document may have.
pub fn values(python: &Path, schema: &str, field: &str) -> Result<Vec<String>, String> {
    Ok(run(python, &["enum", schema, field], "")?.lines().map(str::to_owned).collect())
}

/// Google's client as a process of its own. It ends when it is dropped.
#[derive(Debug)]
pub struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    /// For an endpoint, with a token or as nobody.
    pub fn start(python: &Path, endpoint: &str, token: Option<&str>) -> std::io::Result<Self> {
        let mut child = Command::new(python)
            .arg(format!("{FOLDER}/client.py"))
            .arg(endpoint)
            .args(token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("the process has no pipes"));
        };
        Ok(Self { child, stdin, stdout: BufReader::new(stdout) })
    }

    /// One call: `client` and `method` as in `google.cloud.compute_v1`, `query` what is put into the URL besides.
    /// `{"answer": …}` or `{"error": …}`.
    pub fn call(&mut self, client: &str, method: &str, request: &Value, query: &Value) -> std::io::Result<Value> {
        writeln!(self.stdin, "{}", serde_json::json!({"client": client, "method": method, "request": request, "query": query}))?;
        self.stdin.flush()?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        serde_json::from_str(&line).map_err(std::io::Error::other)
    }
}

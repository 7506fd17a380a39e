//! The load: wrk, a process of its own, one thread, keep-alive; the same for every server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::Outcome;

/// What wrk says at its end.
const DONE: &str = r#"
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d\n", summary.requests, e.status, e.connect + e.read + e.write + e.timeout,
    latency:percentile(99)))
end
"#;

/// What one run of wrk saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Answers.
    pub(crate) answers: f64,
    /// Answers that were refusals.
    pub(crate) refused: f64,
    /// The 99th percentile, in microseconds.
    pub(crate) p99: f64,
}

/// Whether wrk can be run; else what to do about it.
pub(crate) fn is_installed() -> Outcome<()> {
    match Command::new("wrk").arg("--version").output() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("wrk cannot be run ({error}); it makes the load: install it, such as with `apt-get install wrk`").into()),
    }
}

/// Grants with these bodies in turn.
pub(crate) fn grants(bodies: &[String]) -> String {
    format!(
        r#"
local bodies = {{ {} }}
local requests = {{}}
local n = 0
init = function()
  for i, body in ipairs(bodies) do
    requests[i] = wrk.format("POST", "/v1/leases", {{ ["Content-Type"] = "application/json" }}, body)
  end
end
request = function()
  n = n % #requests + 1
  return requests[n]
end
{DONE}"#,
        lua(bodies)
    )
}

/// The same, and each granted lease is released by one of the next requests.
pub(crate) fn pairs(bodies: &[String]) -> String {
    format!(
        r#"
local bodies = {{ {} }}
local requests = {{}}
local held = {{}}
local tail = ""
local n, top = 0, 0
init = function()
  for i, body in ipairs(bodies) do
    requests[i] = wrk.format("POST", "/v1/leases", {{ ["Content-Type"] = "application/json" }}, body)
  end
  tail = string.match(wrk.format("DELETE", "/"), "( HTTP.*)")
end
request = function()
  if top > 0 then
    top = top - 1
    return "DELETE /v1/leases/" .. held[top + 1] .. tail
  end
  n = n % #requests + 1
  return requests[n]
end
response = function(status, headers, body)
  if status == 201 then
    top = top + 1
    held[top] = string.match(body, '"id":"([^"]+)"')
  end
end
{DONE}"#,
        lua(bodies)
    )
}

fn lua(texts: &[String]) -> String {
    texts.iter().map(|text| format!("[==[{text}]==]")).collect::<Vec<_>>().join(", ")
}

/// Runs a script against a server for whole seconds.
pub(crate) fn run(script: &Path, server: SocketAddr, connections: u32, seconds: u32) -> Outcome<Seen> {
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--timeout", "10s", "--script"])
        .arg(script)
        .arg(format!("http://{server}"))
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let seen = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let numbers: Vec<f64> = seen.unwrap_or_default().split(' ').filter_map(|number| number.parse().ok()).collect();
    match numbers.as_slice() {
        [answers, refused, 0.0, p99] if *answers > 0.0 => Ok(Seen { answers: *answers, refused: *refused, p99: *p99 }),
        _ => Err(format!("wrk failed: {text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

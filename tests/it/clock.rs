//! The system clock is set while the process runs (issue 10, 26).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use egress_protocol::Timestamp;
use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::operator::Site;
use crate::support::skip;

/// Adds the seconds in a file to what the system clock shows.
const PRELOADED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    int result = (int)syscall(SYS_clock_gettime, id, at);
    const char *path = getenv("CLOCK_SET_OFF");
    if (result == 0 && id == CLOCK_REALTIME && path) {
        char text[32] = {0};
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, 31) > 0) at->tv_sec += atol(text);
            close(file);
        }
    }
    return result;
}
"#;

fn build(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, PRELOADED).unwrap();
    let done = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
    done.is_ok_and(|status| status.success()).then_some(library)
}

/// The seconds by which a time is ahead of the true time.
fn ahead(time: &Value) -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let at = Timestamp::parse(time.as_str().unwrap_or_else(|| panic!("{time} is no time"))).unwrap();
    at.as_millis() as f64 / 1000.0 - now
}

fn about(found: f64, wanted: f64, what: &str) {
    assert!((found - wanted).abs() < 20.0, "{what}: {found} s, not {wanted} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_are_right_after_the_system_clock_was_set_and_durations_are_untouched() {
    let mut site = Site::new();
    let Some(library) = build(site.dir.path()) else {
        return skip("times_are_right_after_the_system_clock_was_set_and_durations_are_untouched", "no C compiler");
    };
    let set_off = site.path("set-off");
    std::fs::write(&set_off, "0").unwrap();
    site.env.push(("LD_PRELOAD".to_owned(), library.to_str().unwrap().to_owned()));
    site.env.push(("CLOCK_SET_OFF".to_owned(), set_off.to_str().unwrap().to_owned()));
    site.env.push(("DISCOVERY_TOKEN".to_owned(), "may-do-all".to_owned()));
    let mut operator = site.start_with(&[]).up().await;
    operator.api = operator.api.with_token("may-do-all");
    let lease = || async {
        let answer = operator.api.post("/v1/leases", &json!({"selector": {}, "ttl": "10m"})).await;
        (answer.status == 201).then(|| answer.json())
    };
    let first = eventually("a lease", Duration::from_secs(30), lease).await;
    about(ahead(&first["grantedAt"]), 0.0, "a grant before");
    let path = format!("/v1/leases/{}", first["id"].as_str().unwrap());

    // A time of day that somebody gave: five hours from now by the true clock, and so it stays.
    let key = format!("{}/{}", first["proxy"]["namespace"].as_str().unwrap(), first["proxy"]["name"].as_str().unwrap());
    let until = Timestamp::from_millis(Timestamp::parse(first["grantedAt"].as_str().unwrap()).unwrap().as_millis() + 5 * 3600 * 1000);
    let cordon = json!({"reason": "maintenance", "target": "shop.example", "until": until.to_string()});
    assert_eq!(operator.api.post(&format!("/v1/proxies/{key}/cordon"), &cordon).await.status, 200);

    for seconds in [3600.0, -7200.0] {
        std::fs::write(&set_off, format!("{seconds}")).unwrap();
        let line = loop {
            let line: Value = serde_json::from_str(&operator.stderr.recv_timeout(Duration::from_secs(15)).expect("a warning")).unwrap();
            if line["message"].as_str().is_some_and(|text| text.starts_with("WARNING: the system clock was set;")) {
                break line;
            }
        };
        about(ahead(&line["time"]), seconds, "the line itself");
        let kept = operator.api.get(&path).await.json();
        assert_eq!(kept["state"], "active", "{kept}");
        about(kept["expiresInSeconds"].as_f64().unwrap(), 590.0, "what is left of a lease");
        about(ahead(&kept["expiresAt"]), seconds + kept["expiresInSeconds"].as_f64().unwrap(), "its end");
        eventually("the cordon ends when it was said", Duration::from_secs(10), || async {
            let item = operator.api.get(&format!("/v1/proxies/{key}")).await.json();
            (item["cordons"][0]["until"].as_str()? == until.to_string()).then_some(())
        })
        .await;
        let next = eventually("another lease", Duration::from_secs(10), lease).await;
        about(ahead(&next["grantedAt"]), seconds, "a grant after");
        let checked = || async {
            let list = operator.api.get("/v1/proxies").await.json();
            let at = ahead(&list["items"][0]["checkedAt"]);
            ((at - seconds).abs() < 60.0).then_some(())
        };
        eventually("a probe by the new time", Duration::from_secs(40), checked).await;
    }
}

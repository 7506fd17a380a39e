//! A pool whose every member fails at one check URL (HE-9, M10; issue 10, 20 and 21).

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::operator::Site;
use crate::support::switch::Switch;
use crate::support::{documents, eventually};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_fails_at_its_check_url_says_so_and_goes_when_lease_holders_fail_too() {
    let site = Site::new();
    let mut pool = Vec::new();
    for name in ["px-1", "px-2", "px-3", "px-4"] {
        let switch = Switch::start().await;
        let check = json!({"url": "http://198.51.100.9/shared", "intervalSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 2});
        site.write(
            &format!("{name}.yaml"),
            &documents::proxy(&format!("default/{name}"), &documents::external(switch.port, 1, None, &check)),
        );
        pool.push(switch);
    }
    let operator = site.start().up().await;
    let items = || async { operator.api.get("/v1/proxies").await.json()["items"].as_array().cloned().unwrap_or_default() };
    let all = |what: &'static str, holds: fn(&Value) -> bool| {
        eventually(what, SOON, move || async move {
            let items = items().await;
            (items.len() == 4 && items.iter().all(holds)).then_some(items)
        })
    };
    let lease = || async { operator.api.post("/v1/leases", &json!({})).await };
    all("all healthy", |item| item["healthy"] == true && item.get("checkURLSuspect").is_none() && item.get("reason").is_none()).await;

    pool.iter().for_each(|proxy| proxy.set(503));
    all("suspect and held", |item| item["healthy"] == true && item["checkURLSuspect"] == true).await;
    let mut leases = Vec::new();
    for _ in 0..3 {
        let granted = lease().await;
        assert_eq!((granted.status.as_u16(), &granted.json()["checkURLSuspect"]), (201, &json!(true)), "{}", granted.text());
        leases.push(granted.json());
    }
    for lease in &leases {
        let path = format!("/v1/leases/{}/report", lease["id"].as_str().unwrap());
        assert_eq!(operator.api.post(&path, &json!({"result": "timeout", "target": "shop.example"})).await.status, 200);
    }
    let items = all("unhealthy", |item| item["healthy"] == false && item["checkURLSuspect"] == true).await;
    for item in items {
        assert_eq!(item["reason"], "ProbeFailed");
        assert!(item["message"].as_str().is_some_and(|text| text.starts_with("UnexpectedStatus: ")), "why: {item}");
    }
    assert_eq!(lease().await.json()["code"], "none-healthy");

    pool[3].set(204);
    all("no longer suspect", |item| item.get("checkURLSuspect").is_none()).await;
    assert_eq!(lease().await.json()["proxy"]["name"], "px-4", "the only one without a lease");
}

//! Leasing over real HTTP from a running process: capacity, expiry, health, ends, tokens, credentials (LS-1…8, 13, 16, 17,
//! 20…22).

mod contract;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::documents;
use crate::support::http::{Answer, Client};
use crate::support::lab::Lab;
use crate::support::operator::{Operator, Site};
use crate::support::switch::{Pace, Switch};
use crate::support::wire::say;
use crate::support::{eventually, rounds};

const TOKEN: &str = "token-that-may-do-all";

/// A running operator with External proxies, each of them a [`Switch`].
struct Pool {
    site: Site,
    operator: Operator,
    switches: BTreeMap<String, Switch>,
}

impl Pool {
    /// Proxies by key and places; with a token, which the client of `operator` presents.
    async fn new(proxies: &[(&str, u32)], pace: Pace) -> Self {
        let mut site = Site::new();
        site.env.push(("DISCOVERY_TOKEN".to_owned(), TOKEN.to_owned()));
        Self::at(site, Some(TOKEN), proxies, pace).await
    }

    async fn at(site: Site, token: Option<&str>, proxies: &[(&str, u32)], pace: Pace) -> Self {
        let mut switches = BTreeMap::new();
        for (key, places) in proxies {
            let switch = Switch::start().await;
            site.write(&file_of(key), &switch.document(key, *places, None, pace));
            switches.insert((*key).to_owned(), switch);
        }
        let mut operator = site.start().up().await;
        if let Some(token) = token {
            operator.api = operator.api.with_token(token);
        }
        for key in switches.keys() {
            operator.wait_phase(key, "Ready").await;
        }
        Self { site, operator, switches }
    }

    fn api(&self) -> &Client {
        &self.operator.api
    }

    async fn grant(&self, body: Value) -> Value {
        let answer = self.api().post("/v1/leases", &body).await;
        assert_eq!(answer.status, 201, "{body}: {}", answer.text());
        answer.json()
    }

    async fn refusal(&self, body: Value) -> Value {
        let answer = self.api().post("/v1/leases", &body).await;
        assert_eq!(answer.status, 409, "{body}: {}", answer.text());
        let problem = answer.json();
        assert_adds_up(&problem);
        let after = answer.headers.get("retry-after").map(|value| value.to_str().unwrap().parse::<u64>().unwrap());
        assert_eq!(after, problem["retryAfterSeconds"].as_u64(), "{problem}");
        problem
    }

    async fn lease(&self, id: &str) -> Value {
        let answer = self.api().get(&format!("/v1/leases/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    async fn item(&self, key: &str) -> Value {
        self.api().get(&format!("/v1/proxies/{key}")).await.json()
    }

    async fn wait_healthy(&self, key: &str, healthy: bool) {
        eventually(&format!("{key} is healthy: {healthy}"), Duration::from_secs(30), || async {
            (self.item(key).await["healthy"] == healthy).then_some(())
        })
        .await;
    }
}

fn file_of(key: &str) -> String {
    format!("{}.yaml", key.replace('/', "-"))
}

fn id(lease: &Value) -> String {
    lease["id"].as_str().unwrap_or_else(|| panic!("no id in {lease}")).to_owned()
}

/// LS-4: the last five numbers of a refusal add up to the first.
fn assert_adds_up(problem: &Value) {
    let number = |field: &str| problem[field].as_u64().unwrap_or_else(|| panic!("{field} in {problem}"));
    let sum: u64 = ["available", "drained", "unhealthy", "coolingDown", "atCapacity"].map(number).iter().sum();
    assert_eq!(sum, number("matched"), "{problem}");
}

fn assert_problem(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    let problem = answer.json();
    assert_eq!((&problem["code"], &problem["status"]), (&json!(code), &json!(status)), "{problem}");
}

async fn at_once(api: &Client, count: usize, body: &Value) -> Vec<Answer> {
    let mut asking = JoinSet::new();
    for _ in 0..count {
        let (api, body) = (api.clone(), body.clone());
        asking.spawn(async move { api.post("/v1/leases", &body).await });
    }
    asking.join_all().await
}

async fn release_all(api: &Client, ids: Vec<String>) {
    let mut releasing = JoinSet::new();
    for id in ids {
        let api = api.clone();
        releasing.spawn(async move { assert_eq!(api.delete(&format!("/v1/leases/{id}")).await.status, 204) });
    }
    releasing.join_all().await;
}

/// LS-8, LS-4: capacity is never exceeded and never left unused, and each refusal's numbers add up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_at_once_on_six_places_are_six_grants_and_every_refusal_adds_up_ls_8() {
    let places = BTreeMap::from([("a", 3), ("b", 2), ("c", 1)]);
    let pool = Pool::new(&[("default/a", 3), ("default/b", 2), ("default/c", 1)], Pace::Steady).await;
    let mut last_fence = 0;
    for round in 0..rounds(50, 1000) {
        let mut granted: BTreeMap<String, usize> = BTreeMap::new();
        let (mut ids, mut fences) = (Vec::new(), BTreeSet::new());
        for answer in at_once(pool.api(), 40, &json!({"target": "shop.example"})).await {
            let body = answer.json();
            match answer.status.as_u16() {
                201 => {
                    *granted.entry(body["proxy"]["name"].as_str().unwrap().to_owned()).or_default() += 1;
                    fences.insert(body["fence"].as_u64().unwrap());
                    ids.push(id(&body));
                }
                409 => {
                    assert_eq!(body["code"], "no-capacity", "{body}");
                    assert_eq!((&body["matched"], &body["available"]), (&json!(3), &json!(0)), "{body}");
                    assert_adds_up(&body);
                }
                _ => panic!("round {round}: {}", answer.text()),
            }
        }
        let granted: BTreeMap<&str, usize> = granted.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(granted, places, "round {round}: exactly the capacity of each");
        assert_eq!(fences.len(), 6, "round {round}: a fence is never given twice");
        assert!(fences.first() > Some(&last_fence), "round {round}: a fence only grows");
        last_fence = *fences.last().unwrap();
        release_all(pool.api(), ids).await;
    }
    let items = pool.api().get("/v1/proxies").await.json();
    assert!(items["items"].as_array().unwrap().iter().all(|item| item["activeLeases"] == 0), "{items}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_at_once_on_one_place_are_one_grant_m17() {
    let pool = Pool::new(&[("default/only", 1)], Pace::Steady).await;
    for _ in 0..rounds(2, 50) {
        let answers = at_once(pool.api(), 200, &json!({"selector": {"name": "only"}})).await;
        let granted: Vec<String> = answers.iter().filter(|answer| answer.status == 201).map(|answer| id(&answer.json())).collect();
        assert_eq!(granted.len(), 1);
        assert_eq!(answers.iter().filter(|answer| answer.status == 409).count(), 199);
        release_all(pool.api(), granted).await;
    }
}

/// LS-8, LS-13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lease_frees_its_place_within_a_second_ls_8() {
    let pool = Pool::new(&[("default/only", 1)], Pace::Steady).await;
    let before = Instant::now();
    let first = pool.grant(json!({"ttl": "1s", "owner": "late"})).await;
    let after = Instant::now();
    assert_eq!((&first["expiresInSeconds"], &first["state"]), (&json!(1), &json!("active")), "{first}");
    let second = eventually("the place is free again", Duration::from_secs(10), || async {
        let answer = pool.api().post("/v1/leases", &json!({"ttl": "1s"})).await;
        (answer.status == 201).then(|| answer.json())
    })
    .await;
    assert!(before.elapsed() >= Duration::from_secs(1), "not before its time");
    assert!(after.elapsed() <= Duration::from_secs(2), "{:?} after the grant of a second", after.elapsed());
    assert!(second["fence"].as_u64() > first["fence"].as_u64());

    let ended = pool.lease(&id(&first)).await;
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("expired"), &json!("expired")), "{ended}");
    assert_eq!(ended["endedAt"], ended["expiresAt"], "it ends when it said it would");
    let renewed = pool.api().post(&format!("/v1/leases/{}/renew", id(&first)), &json!({})).await;
    assert_problem(&renewed, 410, "lease-ended");
    let problem = renewed.json();
    assert_eq!(problem["reason"], "expired");
    assert!(problem["grantedAt"].is_string() && problem["expiresAt"].is_string() && problem["endedAt"].is_string(), "{problem}");

    // Nobody asks for the place of the second: it is freed all the same.
    eventually("no lease is active", Duration::from_secs(3), || async {
        (pool.item("default/only").await["activeLeases"] == 0).then_some(())
    })
    .await;
    assert!(after.elapsed() <= Duration::from_secs(5));
}

/// LS-8, LS-4, LS-17: the lease of a proxy that turned unhealthy stays; nobody new gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_on_a_proxy_that_turned_unhealthy_stays_visible_and_no_new_grant_is_made_ls_8() {
    let pool = Pool::new(&[("default/sick", 2), ("default/well", 1)], Pace::Quick).await;
    let lease = pool.grant(json!({"selector": {"name": "sick"}, "owner": "holder"})).await;
    assert_eq!(lease["proxyUnhealthy"], false);
    pool.switches["default/sick"].set(503);
    pool.wait_healthy("default/sick", false).await;

    let seen = pool.lease(&id(&lease)).await;
    assert_eq!((&seen["state"], &seen["proxyUnhealthy"]), (&json!("active"), &json!(true)), "{seen}");
    let listed = pool.api().get("/v1/leases?owner=holder").await.json();
    assert_eq!(listed["items"][0]["proxyUnhealthy"], true, "{listed}");
    let renewed = pool.api().post(&format!("/v1/leases/{}/renew", id(&lease)), &json!({"ttl": "10m"})).await;
    assert_eq!((renewed.status.as_u16(), &renewed.json()["proxyUnhealthy"]), (200, &json!(true)));

    let refused = pool.refusal(json!({"selector": {"name": "sick"}})).await;
    assert_eq!((&refused["code"], &refused["unhealthy"]), (&json!("none-healthy"), &json!(1)), "{refused}");
    let other = pool.grant(json!({})).await;
    assert_eq!(other["proxy"]["name"], "well");
    let refused = pool.refusal(json!({})).await;
    assert_eq!(
        (&refused["code"], &refused["matched"], &refused["unhealthy"], &refused["atCapacity"]),
        (&json!("no-capacity"), &json!(2), &json!(1), &json!(1)),
        "{refused}"
    );
    let why = pool.api().post("/v1/leases/explain", &json!({"selector": {"name": "sick"}})).await.json();
    assert_eq!((&why["wouldGrant"], &why["candidates"][0]["excludedBy"]), (&json!(false), &json!("unhealthy")), "{why}");

    pool.switches["default/sick"].set(204);
    pool.wait_healthy("default/sick", true).await;
    assert_eq!(pool.lease(&id(&lease)).await["proxyUnhealthy"], false);
    assert_eq!(pool.grant(json!({})).await["proxy"]["name"], "sick");
}

/// LS-4, LS-16, LS-17: drained, cordoned for a target, for all, for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_or_cordoned_proxy_is_probed_and_never_leased_ls_16() {
    let pool = Pool::new(&[("default/drained", 0), ("default/px", 9)], Pace::Steady).await;
    assert_eq!(pool.item("default/drained").await["healthy"], true);
    let refused = pool.refusal(json!({"selector": {"name": "drained"}})).await;
    assert_eq!((&refused["code"], &refused["drained"]), (&json!("none-healthy"), &json!(1)), "{refused}");
    assert_eq!(pool.grant(json!({})).await["proxy"]["name"], "px");

    let cordon = "/v1/proxies/default/px/cordon";
    let held = pool.grant(json!({"target": "shop.example"})).await;
    let item = pool.api().post(cordon, &json!({"target": "Shop.Example", "reason": "looks odd"})).await;
    assert_eq!(item.status, 200, "{}", item.text());
    assert_eq!(item.json()["cordons"], json!([{"target": "shop.example", "reason": "looks odd", "by": "default"}]));
    assert_eq!(pool.refusal(json!({"target": "shop.example"})).await["drained"], 2);
    assert_eq!(pool.grant(json!({"target": "other.example"})).await["proxy"]["name"], "px");
    let lease = pool.lease(&id(&held)).await;
    assert_eq!((&lease["state"], &lease["proxyUnhealthy"]), (&json!("active"), &json!(false)), "a cordon leaves running leases alone");
    assert_eq!(pool.api().delete(&format!("{cordon}?target=shop.example")).await.status, 204);
    pool.grant(json!({"target": "shop.example"})).await;

    let now: jiff::Timestamp = lease["grantedAt"].as_str().unwrap().parse().unwrap();
    let until = format!("{:.3}", now + Duration::from_secs(3));
    let item = pool.api().post(cordon, &json!({"reason": "a while", "until": until})).await.json();
    assert_eq!(item["cordons"], json!([{"until": until, "reason": "a while", "by": "default"}]));
    let refused = pool.refusal(json!({"target": "anything"})).await;
    assert_eq!((&refused["code"], &refused["drained"]), (&json!("none-healthy"), &json!(2)), "{refused}");
    assert!((1..=6).contains(&refused["retryAfterSeconds"].as_u64().unwrap()), "issue 10, 28: {refused}");
    let why = pool.api().post("/v1/leases/explain", &json!({})).await.json();
    let excluded: BTreeMap<&str, &str> =
        why["candidates"].as_array().unwrap().iter().map(|c| (text(c, "name"), text(c, "excludedBy"))).collect();
    assert_eq!(excluded, BTreeMap::from([("drained", "drained"), ("px", "cordoned")]));
    eventually("the cordon ends by itself", Duration::from_secs(10), || async {
        (pool.api().post("/v1/leases", &json!({})).await.status == 201).then_some(())
    })
    .await;
    assert_eq!(pool.item("default/px").await["cordons"], json!([]));
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field} in {value}"))
}

/// LS-2, 3, 5, 6, 7, 13: the whole life of leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_granted_renewed_reported_and_released_ls_5_ls_6_ls_7() {
    let pool = Pool::new(&[("default/a", 5), ("default/b", 5)], Pace::Steady).await;
    let api = pool.api();
    let lease = pool.grant(json!({"target": "Shop.Example", "ttl": "90s", "owner": "crawler-7", "selector": {"name": "a"}})).await;
    let path = format!("/v1/leases/{}", id(&lease));
    assert_eq!((&lease["target"], &lease["owner"]), (&json!("shop.example"), &json!("crawler-7")));
    assert_eq!((&lease["expiresInSeconds"], &lease["renewAfterSeconds"]), (&json!(90), &json!(30)));
    let port = pool.switches["default/a"].port;
    let proxy = &lease["proxy"];
    assert_eq!((&proxy["url"], &proxy["port"]), (&json!(format!("http://127.0.0.1:{port}")), &json!(port)));

    let renewed = api.post(&format!("{path}/renew"), &json!({"ttl": "10m"})).await.json();
    assert_eq!((&renewed["expiresInSeconds"], &renewed["renewAfterSeconds"]), (&json!(600), &json!(100)), "at most a third of 5m");
    let again = say(&api.address, format!("POST {path}/renew HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")).await;
    let again: Value = serde_json::from_str(&again.body).unwrap();
    assert_eq!(again["expiresInSeconds"], 90, "without a body: as granted");

    // LS-3: the least used, then the one granted the longest time ago.
    assert_eq!(pool.grant(json!({})).await["proxy"]["name"], "b");
    let counted = api.post(&format!("{path}/report"), &json!({"result": "success"})).await.json();
    assert_eq!(counted, json!({"counted": true}));
    let cooled = api.post(&format!("{path}/report"), &json!({"result": "blocked", "message": "403"})).await.json();
    assert_eq!((&cooled["counted"], &cooled["cooldown"]["target"]), (&json!(true), &json!("shop.example")), "{cooled}");
    let item = pool.item("default/a").await;
    assert_eq!((text(&item["coolingDown"][0], "target"), text(&item["coolingDown"][0], "reason")), ("shop.example", "blocked"));
    let refused = pool.refusal(json!({"target": "shop.example", "selector": {"name": "a"}})).await;
    assert_eq!((&refused["code"], &refused["coolingDown"]), (&json!("no-capacity"), &json!(1)), "{refused}");
    assert!(refused["retryAfterSeconds"].as_u64().is_some_and(|seconds| (1..=1200).contains(&seconds)), "{refused}");
    pool.grant(json!({"target": "other.example", "selector": {"name": "a"}})).await;
    let why = api.post("/v1/leases/explain", &json!({"target": "shop.example"})).await.json();
    let ranks: Vec<_> = why["candidates"].as_array().unwrap().iter().map(|c| (text(c, "name"), c["rank"].as_u64())).collect();
    assert_eq!((&why["matched"], &why["wouldGrant"], ranks), (&json!(2), &json!(true), vec![("b", Some(1)), ("a", None)]));
    assert_eq!(text(&why["candidates"][1], "excludedBy"), "coolingDown");

    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(api.delete(&path).await.status, 204, "idempotent");
    assert_eq!(api.delete("/v1/leases/nobody-knows-this").await.status, 204);
    let ended = pool.lease(&id(&lease)).await;
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("released"), &json!("released")));
    assert_problem(&api.post(&format!("{path}/renew"), &json!({})).await, 410, "lease-ended");
    let late = api.post(&format!("{path}/report"), &json!({"result": "blocked", "cooldown": "23h"})).await.json();
    assert_eq!(late["counted"], true, "a late report counts: {late}");
    for (call, body) in [("renew", json!({})), ("report", json!({"result": "success"}))] {
        let unknown = api.post(&format!("/v1/leases/k5v2q7m4n3x6c2b7d4f5g6h7ja/{call}"), &body).await;
        assert_problem(&unknown, 404, "unknown-lease");
    }
    assert_problem(&api.get("/v1/leases/k5v2q7m4n3x6c2b7d4f5g6h7ja").await, 404, "unknown-lease");
    assert_problem(&api.post("/v1/leases", &json!({"selector": {"attributes": {"geo": "mars"}}})).await, 409, "no-match");
}

/// LS-1, LS-5, LS-21: pages in order, each item once; a cursor of another list is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_come_in_pages_in_order_and_take_no_foreign_cursor_ls_21() {
    let keys = ["alpha/x", "alpha/y", "beta/a", "beta/b", "default/z"];
    let pool = Pool::new(&keys.map(|key| (key, 4)), Pace::Steady).await;
    for number in 0..7 {
        pool.grant(json!({"owner": if number % 2 == 0 { "even" } else { "odd" }})).await;
    }
    let (proxies, sizes) = pages(pool.api(), "/v1/proxies?limit=2").await;
    let found: Vec<String> = proxies.iter().map(|item| format!("{}/{}", text(item, "namespace"), text(item, "name"))).collect();
    assert_eq!((found.as_slice(), sizes), (&keys.map(str::to_owned)[..], vec![2, 2, 1]));
    let (leases, sizes) = pages(pool.api(), "/v1/leases?limit=3").await;
    let ids: Vec<String> = leases.iter().map(id).collect();
    assert!(ids.is_sorted() && ids.iter().collect::<BTreeSet<_>>().len() == 7, "{ids:?}");
    assert_eq!(sizes, [3, 3, 1]);
    let (even, _) = pages(pool.api(), "/v1/leases?limit=1&owner=even").await;
    assert!(even.len() == 4 && even.iter().all(|lease| lease["owner"] == "even"), "M21: list what is mine");
    let (of_one, _) = pages(pool.api(), "/v1/leases?proxy=beta/a").await;
    assert!(!of_one.is_empty() && of_one.iter().all(|lease| lease["proxy"]["namespace"] == "beta" && lease["proxy"]["name"] == "a"));
    for (query, expected) in [
        ("namespace=beta", 2),
        ("namespace=beta&healthy=false", 0),
        ("mode=External&phase=Ready", 5),
        ("mode=Managed", 0),
        ("provider=lab", 0),
        ("attr.geo=de", 0),
    ] {
        assert_eq!(pages(pool.api(), &format!("/v1/proxies?{query}")).await.0.len(), expected, "{query}");
    }
    let of_proxies = pool.api().get("/v1/proxies?limit=2").await.json();
    let of_leases = pool.api().get("/v1/leases?limit=2").await.json();
    for (list, cursor) in [("leases", text(&of_proxies, "nextCursor")), ("proxies", text(&of_leases, "nextCursor")), ("leases", "AAAA")] {
        let answer = pool.api().get(&format!("/v1/{list}?cursor={cursor}")).await;
        assert_problem(&answer, 400, "invalid-request");
        assert_eq!(answer.json()["errors"][0]["field"], "cursor");
    }
}

async fn pages(api: &Client, path: &str) -> (Vec<Value>, Vec<usize>) {
    let (mut items, mut sizes, mut cursor) = (Vec::new(), Vec::new(), String::new());
    loop {
        let answer = api.get(&format!("{path}{cursor}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = answer.json();
        sizes.push(page["items"].as_array().unwrap().len());
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["nextCursor"].as_str() {
            None => return (items, sizes),
            Some(next) => cursor = format!("&cursor={next}"),
        }
        assert!(sizes.len() < 100, "pages end");
    }
}

/// LS-16, M26, issue 10, 27: an External object goes at once; its holders are told, and their leases end at `drainBy`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_a_deleted_external_proxy_end_at_drain_by_with_the_reason_deleted() {
    let mut site = short_drain(Site::new());
    site.env.push(("DISCOVERY_TOKEN".to_owned(), TOKEN.to_owned()));
    let pool = Pool::at(site, Some(TOKEN), &[("default/doomed", 2), ("default/stays", 1)], Pace::Steady).await;
    let doomed = pool.grant(json!({"selector": {"name": "doomed"}, "target": "shop.example", "ttl": "1h"})).await;
    assert_eq!((&doomed["draining"], &doomed["drainBy"]), (&json!(false), &Value::Null));
    let other = pool.grant(json!({"selector": {"name": "stays"}, "ttl": "1h"})).await;
    pool.site.remove(&file_of("default/doomed"));
    pool.operator.wait_gone("default/doomed").await;
    let path = format!("/v1/leases/{}", id(&doomed));
    let told = pool.lease(&id(&doomed)).await;
    assert_eq!((&told["state"], &told["draining"], &told["proxyUnhealthy"]), (&json!("active"), &json!(true), &json!(true)), "{told}");
    let renewed = pool.api().post(&format!("{path}/renew"), &json!({})).await.json();
    assert_eq!(renewed["drainBy"], told["drainBy"], "{renewed}");
    let ended = ended(pool.api(), &path).await;
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("revoked"), &json!("deleted")), "{ended}");
    assert!(text(&ended, "endedAt") >= text(&told, "drainBy"), "{ended}");
    let renewed = pool.api().post(&format!("{path}/renew"), &json!({})).await;
    assert_problem(&renewed, 410, "lease-ended");
    assert_eq!(renewed.json()["reason"], "deleted");
    assert_eq!(pool.api().post(&format!("{path}/report"), &json!({"result": "blocked"})).await.status, 200, "a late report is no fault");
    assert_problem(&pool.api().post("/v1/leases", &json!({"selector": {"name": "doomed"}})).await, 409, "no-match");
    assert_eq!(pool.lease(&id(&other)).await["state"], "active");
}

/// Leases are waited for 4 s.
fn short_drain(site: Site) -> Site {
    site.flag("--lease-default-ttl", "4s").flag("--drain-timeout", "4s")
}

/// The lease once it has ended.
async fn ended(api: &Client, path: &str) -> Value {
    eventually("the lease has ended", Duration::from_secs(30), || async {
        let now = api.get(path).await.json();
        (now["state"] != "active").then_some(now)
    })
    .await
}

/// LS-16, OP-16, M26, issue 10, 27: a leased proxy serves its holders until `drainBy` before it is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leased_proxy_is_replaced_when_its_leases_have_ended_or_been_revoked() {
    let mut lab = Lab::new().await;
    lab.site = short_drain(std::mem::replace(&mut lab.site, Site::new()));
    lab.site.write("px.yaml", &lab.managed("px", 3128));
    let operator = lab.site.start().up().await;
    operator.wait_phase("default/px", "Ready").await;
    let lease = operator.api.post("/v1/leases", &json!({"target": "shop.example", "ttl": "1h"})).await.json();
    let path = format!("/v1/leases/{}", id(&lease));
    lab.site.write("px.yaml", &lab.managed("px", 3129));
    let told = eventually("the holder is told", Duration::from_secs(30), || async {
        let now = operator.api.get(&path).await.json();
        (now["draining"] == true).then_some(now)
    })
    .await;
    assert_eq!(told["state"], "active", "{told}");
    let item = operator.api.get("/v1/proxies/default/px").await.json();
    assert_eq!((&item["drainBy"], &item["port"], &item["activeLeases"]), (&told["drainBy"], &json!(3128), &json!(1)), "{item}");
    assert!(lab.instances(&operator).contains_key(&lab.at(3128)), "it serves all the while");
    assert_problem(&operator.api.post("/v1/leases", &json!({})).await, 409, "none-healthy");
    let ended = ended(&operator.api, &path).await;
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("revoked"), &json!("replaced")), "{ended}");
    eventually("the new instance is Ready", Duration::from_secs(30), || async {
        let item = operator.api.get("/v1/proxies/default/px").await.json();
        (item["port"] == 3129 && item["phase"] == "Ready" && item["drainBy"].is_null()).then_some(())
    })
    .await;
    assert!(lab.instances(&operator).contains_key(&lab.at(3129)) && !lab.instances(&operator).contains_key(&lab.at(3128)));
}

/// LS-16, OP-11, issue 10, 27: the deletion waits for the holder, and for nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leased_proxy_is_deleted_when_its_holder_gives_it_back() {
    let lab = Lab::new().await;
    lab.site.write("px.yaml", &lab.managed("px", 3128));
    let operator = lab.site.start().up().await;
    operator.wait_phase("default/px", "Ready").await;
    let lease = operator.api.post("/v1/leases", &json!({"ttl": "1h"})).await.json();
    let path = format!("/v1/leases/{}", id(&lease));
    lab.site.remove("px.yaml");
    eventually("the holder is told", Duration::from_secs(30), || async {
        let now = operator.api.get(&path).await.json();
        assert_eq!(now["state"], "active", "{now}");
        (now["draining"] == true).then_some(())
    })
    .await;
    assert!(lab.instances(&operator).contains_key(&lab.at(3128)), "it serves all the while");
    assert_eq!(operator.api.delete(&path).await.status, 204);
    operator.wait_gone("default/px").await;
    assert!(lab.instances(&operator).is_empty() && lab.marks().is_empty());
}

/// Operator.md §6: a token sees its own name's leases and its namespaces' proxies; the file is read again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_token_sees_its_own_leases_and_its_namespaces_only() {
    let site = Site::new();
    let file = site.path("tokens");
    let lines = "shop-a token-a team-a\nshop-b token-b\n# rotation\nshop-b token-b2\nadmin token-r\n";
    std::fs::write(&file, lines).unwrap();
    let site = site.flag("--discovery-token-file", file.to_str().unwrap());
    let pool = Pool::at(site, Some("token-r"), &[("team-a/px", 5), ("team-b/px", 5)], Pace::Steady).await;
    let [a, b, b2, admin] = ["token-a", "token-b", "token-b2", "token-r"].map(|token| pool.api().with_token(token));

    let seen = a.get("/v1/proxies").await.json();
    assert_eq!((seen["items"].as_array().unwrap().len(), &seen["items"][0]["namespace"]), (1, &json!("team-a")));
    assert_problem(&a.get("/v1/proxies/team-b/px").await, 404, "not-found");
    assert_eq!(a.get("/v1/proxies/team-a/px").await.status, 200);
    assert_problem(&a.post("/v1/leases", &json!({"selector": {"namespace": "team-b"}})).await, 409, "no-match");
    let explained = a.post("/v1/leases/explain", &json!({})).await.json();
    assert_eq!(explained["matched"], 1, "{explained}");

    let of_a = id(&a.post("/v1/leases", &json!({"owner": "x"})).await.json());
    let of_b = id(&b.post("/v1/leases", &json!({"owner": "x", "selector": {"namespace": "team-b"}})).await.json());
    for stranger in [&a, &b] {
        let (own, other) = if stranger.token == a.token { (&of_a, &of_b) } else { (&of_b, &of_a) };
        assert_eq!(stranger.get(&format!("/v1/leases/{own}")).await.status, 200);
        assert_problem(&stranger.get(&format!("/v1/leases/{other}")).await, 404, "unknown-lease");
        assert_problem(&stranger.post(&format!("/v1/leases/{other}/renew"), &json!({})).await, 404, "unknown-lease");
        assert_problem(&stranger.post(&format!("/v1/leases/{other}/report"), &json!({"result": "blocked"})).await, 404, "unknown-lease");
        assert_eq!(stranger.delete(&format!("/v1/leases/{other}")).await.status, 204, "as for an unknown id");
        let listed = stranger.get("/v1/leases?owner=x").await.json();
        assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["id"]), (1, &json!(own)));
        for call in [Method::POST, Method::DELETE] {
            let body = json!({"reason": "r"});
            let body = (call == Method::POST).then_some(&body);
            assert_problem(&stranger.try_send(call, "/v1/proxies/team-a/px/cordon", body).await.unwrap(), 403, "forbidden");
        }
    }
    assert_eq!(
        b2.get(&format!("/v1/leases/{of_b}")).await.json()["state"],
        "active",
        "the same name, another token; and nothing was released"
    );
    assert_eq!(admin.get("/v1/leases").await.json()["items"].as_array().unwrap().len(), 2);
    assert_eq!(admin.get(&format!("/v1/leases/{of_a}")).await.json()["state"], "active");

    // A file with a fault leaves the last good one in force; a good one is taken.
    std::fs::write(&file, "shop-a tok en-a x y\n").unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(a.get("/v1/proxies").await.status, 200);
    std::fs::write(&file, lines.replace("token-a ", "token-new ")).unwrap();
    let renewed = pool.api().with_token("token-new");
    eventually("the new token is known", Duration::from_secs(20), || async {
        (renewed.get("/v1/proxies").await.status == 200).then_some(())
    })
    .await;
    assert_eq!(renewed.get(&format!("/v1/leases/{of_a}")).await.status, 200, "leases belong to the name");
    assert_problem(&a.get("/v1/proxies").await, 401, "unauthorized");
}

/// What a later version serves is refused and named, never ignored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_built_yet_is_refused_and_named_never_ignored() {
    let pool = Pool::new(&[("default/px", 5)], Pace::Steady).await;
    let lease = pool.grant(json!({})).await;
    let path = format!("/v1/leases/{}", id(&lease));
    for (path, body, field) in [
        ("/v1/leases", json!({"count": 2}), "count"),
        ("/v1/leases", json!({"distinct": "egressIP"}), "distinct"),
        ("/v1/leases", json!({"wait": "30s"}), "wait"),
        ("/v1/leases", json!({"session": "abc"}), "session"),
        ("/v1/leases", json!({"sticky": "hard"}), "sticky"),
        ("/v1/leases/explain", json!({"session": "abc"}), "session"),
        (&format!("{path}/report"), json!({"counts": {"success": 9}}), "counts"),
        ("/v1/leases/renew", json!({"ids": [id(&lease)]}), "ids"),
        ("/v1/leases/release", json!({"ids": [id(&lease)]}), "ids"),
        ("/v1/sessions/report", json!({"session": "abc", "result": "blocked"}), "session"),
        ("/v1/sessions/rotate", json!({"session": "abc"}), "session"),
    ] {
        let answer = pool.api().post(path, &body).await;
        assert_problem(&answer, 400, "invalid-request");
        let problem = answer.json();
        let error = problem["errors"].as_array().unwrap().iter().find(|error| error["field"] == field);
        assert_eq!(error.map(|error| text(error, "message")), Some("not supported by this version"), "{body}: {problem}");
    }
    let keyed = format!(
        "POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nIdempotency-Key: k\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    let answer = say(&pool.api().address, keyed).await;
    assert_eq!((answer.status, answer.fields()), (400, vec!["Idempotency-Key".to_owned()]));
    assert_eq!(pool.item("default/px").await["activeLeases"], 1, "nothing was granted");
}

/// OB-5, LS-9: leases are in memory, and the process says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_forgets_leases_and_readyz_says_that_they_are_not_durable() {
    let pool = Pool::new(&[("default/px", 1)], Pace::Steady).await;
    let api = pool.api();
    let ready = api.get("/readyz?verbose").await.json();
    assert_eq!((&ready["status"], &ready["role"], &ready["durable"]), (&json!("ready"), &json!("standalone"), &json!(false)), "{ready}");
    let parts: Vec<&str> = ready["parts"].as_array().unwrap().iter().map(|part| text(part, "name")).collect();
    assert_eq!(parts, ["source", "leaseBroker", "providersFile", "discovery"]);
    assert_problem(&Client::new(&api.address).get("/readyz?verbose").await, 401, "unauthorized");
    assert_eq!(Client::new(&api.address).get("/readyz").await.json(), json!({"status": "ready"}));
    let lease = pool.grant(json!({})).await;
    let Pool { site, operator, switches } = pool;
    let api = operator.api.clone();
    operator.kill();
    let mut operator = site.start().up().await;
    operator.api = api;
    assert_problem(&operator.api.get(&format!("/v1/leases/{}", id(&lease))).await, 404, "unknown-lease");
    operator.wait_phase("default/px", "Ready").await;
    let again = operator.api.post("/v1/leases", &json!({})).await.json();
    assert!(again["fence"].as_u64() > lease["fence"].as_u64(), "a fence grows across restarts");
    assert_eq!(switches.len(), 1);
}

/// LS-22: in the grant and nowhere else; without a token not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_in_the_grant_only_and_need_a_token_ls_22() {
    let switch = Switch::start().await;
    let mut site = Site::new();
    let login = documents::secret("default/login", documents::CREDENTIALS, &json!({"username": "crawler", "password": "sw0rdfish:ü"}));
    site.write("px.yaml", &(switch.document("default/px", 5, Some("login"), Pace::Steady) + &login));
    let open = site.start().up().await;
    open.wait_phase("default/px", "Ready").await;
    let refused = open.api.post("/v1/leases", &json!({})).await;
    assert_problem(&refused, 409, "none-healthy");
    assert_eq!(refused.json()["drained"], 1);
    let why = open.api.post("/v1/leases/explain", &json!({})).await.json();
    assert_eq!(text(&why["candidates"][0], "excludedBy"), "credentialsWithheld");
    assert_problem(&open.api.post("/v1/proxies/default/px/cordon", &json!({"reason": "r"})).await, 401, "unauthorized");
    let log = open.kill();
    assert!(log.iter().any(|line| line.contains("WARNING") && line.contains("--discovery-token-file")), "{log:#?}");

    site.env.push(("DISCOVERY_TOKEN".to_owned(), TOKEN.to_owned()));
    let mut operator = site.start().up().await;
    operator.api = operator.api.with_token(TOKEN);
    operator.wait_phase("default/px", "Ready").await;
    let granted = operator.api.post("/v1/leases", &json!({"owner": "o"})).await;
    assert_eq!(granted.headers["cache-control"], "no-store");
    let lease = granted.json();
    assert_eq!(lease["proxy"]["credentials"], json!({"username": "crawler", "password": "sw0rdfish:ü"}));
    assert_eq!(text(&lease["proxy"], "url"), format!("http://127.0.0.1:{}", switch.port), "never in the URL");
    let path = format!("/v1/leases/{}", id(&lease));
    for answer in [
        operator.api.get(&path).await,
        operator.api.get("/v1/leases").await,
        operator.api.post(&format!("{path}/renew"), &json!({})).await,
        operator.api.get("/v1/proxies").await,
        operator.api.get("/v1/proxies/default/px").await,
        operator.api.post("/v1/leases/explain", &json!({})).await,
    ] {
        assert_eq!(answer.status, 200);
        let text = answer.text();
        assert!(!text.contains("credentials") && !text.contains("sw0rdfish"), "{text}");
    }
    assert!(switch.heads().iter().all(|head| head.to_ascii_lowercase().contains("proxy-authorization: basic")), "probed with them");
}

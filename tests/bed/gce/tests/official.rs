//! The stand-in before two judges that are not ours (GC-30): Google's own client for Python runs its life cycle against it
//! over HTTP, and all that the two said to each other is held against the discovery document, unknown fields refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests say what is wrong by panicking, own their tasks, and are read by nobody but us"
)]

use egress_fake_gce::official::{self, Client};
use egress_fake_gce::{Answer, FakeGce, Fault, Hold};
use serde_json::{Value, json};

const PROJECT: &str = "sandbox-1";
const ZONE: &str = "europe-west1-b";
const TOKEN: &str = "token-1";

/// Google's client, and what it understood of the answers.
struct Google(Client);

impl Google {
    fn said(&mut self, client: &str, method: &str, mut request: Value) -> Value {
        request["project"] = json!(PROJECT);
        let query = if method == "aggregated_list" { json!({"returnPartialSuccess": "true"}) } else { json!({}) };
        self.0.call(client, method, &request, &query).unwrap()
    }

    fn ok(&mut self, client: &str, method: &str, request: Value) -> Value {
        let mut said = self.said(client, method, request);
        assert!(said["error"].is_null(), "{method}: {said}");
        said["answer"].take()
    }

    /// The exception's type, the code and the reasons that the client read.
    fn fails(&mut self, client: &str, method: &str, request: Value) -> (String, Value) {
        let said = self.said(client, method, request);
        let error = &said["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{method}: {said}");
        (error["type"].as_str().unwrap().to_owned(), json!([error["code"], error["reasons"]]))
    }

    fn insert(&mut self, name: &str, id: &str) -> Value {
        self.ok("InstancesClient", "insert_unary", json!({"zone": ZONE, "request_id": id, "instance_resource": vm(name)}))
    }

    fn of_vm(&mut self, method: &str, name: &str) -> Value {
        self.ok("InstancesClient", method, json!({"zone": ZONE, "instance": name}))
    }

    fn wait(&mut self, operation: &Value) -> Value {
        self.ok("ZoneOperationsClient", "wait", json!({"zone": ZONE, "operation": operation["name"]}))
    }

    fn list(&mut self, max_results: u32) -> Vec<Value> {
        let request = json!({"filter": "labels.proxy-operator-managed = true", "max_results": max_results});
        self.ok("InstancesClient", "aggregated_list", request).as_array().unwrap().clone()
    }
}

/// As the backend would write it, in the client's own words.
fn vm(name: &str) -> Value {
    json!({
        "name": name,
        "machine_type": format!("zones/{ZONE}/machineTypes/e2-small"),
        "labels": {"proxy-operator-managed": "true", "proxy-operator-uid": name},
        "tags": {"items": ["proxy-operator"]},
        "network_interfaces": [{"network": "global/networks/default", "access_configs": [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}]}],
        "disks": [{"boot": true, "auto_delete": true, "initialize_params": {"source_image": "projects/p/global/images/family/f", "disk_size_gb": 10}}],
        "metadata": {"items": [{"key": "user-data", "value": "#cloud-config\n"}]},
    })
}

/// An id in the form that the API wants.
fn request_id(n: u32) -> String {
    format!("11111111-1111-4111-8111-{n:012}")
}

fn names(pages: &[Value]) -> Vec<&str> {
    let scopes = pages.iter().filter_map(|page| page["items"].as_object()).flat_map(|items| items.values());
    let mut names: Vec<&str> =
        scopes.filter_map(|scope| scope["instances"].as_array()).flatten().filter_map(|vm| vm["name"].as_str()).collect();
    names.sort_unstable();
    names
}

/// The client runs in a thread of its own: it blocks.
async fn with_google(test: &str, drive: impl FnOnce(&FakeGce, &mut Google) + Send + 'static) {
    let Some(python) = official::python_or_skip(test) else { return };
    let fake = FakeGce::new(PROJECT);
    fake.accept_tokens(&[TOKEN]);
    let server = fake.serve(0).await.unwrap();
    let endpoint = format!("http://{}", server.address);
    let work = move || {
        let mut google = Google(Client::start(&python, &endpoint, Some(TOKEN)).unwrap());
        drive(&fake, &mut google);
        let log = fake.take_log();
        println!("{}", official::judge(&python, &log).unwrap_or_else(|faults| panic!("{faults}")));
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn googles_client_runs_the_whole_life_of_an_instance() {
    with_google("official::googles_client_runs_the_whole_life_of_an_instance", |fake, google| {
        fake.hold(Hold::UntilSettled);
        let insert = google.insert("px-1", &request_id(1));
        assert_eq!((insert["status"].as_str(), insert["operation_type"].as_str()), (Some("RUNNING"), Some("insert")), "{insert}");
        assert_eq!(google.insert("px-1", &request_id(1))["name"], insert["name"], "the same request is the same operation");
        let early = google.of_vm("get", "px-1");
        assert_eq!((early["status"].as_str(), early["labels"]["proxy-operator-uid"].as_str()), (Some("PROVISIONING"), Some("px-1")));
        fake.hold(Hold::Never);
        let done = google.wait(&insert);
        assert_eq!((done["status"].as_str(), done["progress"].as_i64()), (Some("DONE"), Some(100)), "{done}");
        let running = google.of_vm("get", "px-1");
        assert_eq!(running["status"], "RUNNING");
        let interface = &running["network_interfaces"][0];
        let address = |value: &Value| value.as_str().unwrap_or_default().parse::<std::net::Ipv4Addr>().is_ok();
        assert!(address(&interface["network_i_p"]) && address(&interface["access_configs"][0]["nat_i_p"]), "{interface}");
        assert_eq!(google.ok("ZoneOperationsClient", "get", json!({"zone": ZONE, "operation": insert["name"]}))["status"], "DONE");

        // What is there already, what is not, and what nobody may.
        let again = json!({"zone": ZONE, "request_id": request_id(2), "instance_resource": vm("px-1")});
        let conflict = google.fails("InstancesClient", "insert_unary", again);
        assert_eq!(conflict, ("Conflict".to_owned(), json!([409, ["alreadyExists"]])));
        let missing = google.fails("InstancesClient", "get", json!({"zone": ZONE, "instance": "px-9"}));
        assert_eq!(missing, ("NotFound".to_owned(), json!([404, ["notFound"]])));
        let nowhere = google.fails("InstancesClient", "get", json!({"zone": "mars-north1-a", "instance": "px-1"}));
        assert_eq!(nowhere, ("NotFound".to_owned(), json!([404, ["notFound"]])));

        let filter = format!("targetLink eq .*/zones/{ZONE}/instances/px-1");
        let newest = json!({"zone": ZONE, "filter": filter, "order_by": "creationTimestamp desc", "max_results": 1});
        let delete = google.ok("InstancesClient", "delete_unary", json!({"zone": ZONE, "instance": "px-1", "request_id": request_id(3)}));
        let pages = google.ok("ZoneOperationsClient", "list", newest);
        assert_eq!((&pages[0]["items"][0]["name"], pages[0]["items"].as_array().map(Vec::len)), (&delete["name"], Some(1)), "{pages}");
        assert_eq!(google.wait(&delete)["status"], "DONE");
        let gone = google.fails("InstancesClient", "get", json!({"zone": ZONE, "instance": "px-1"}));
        assert_eq!(gone.0, "NotFound");
        assert!(names(&google.list(500)).is_empty() && fake.instances().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn googles_client_pages_through_all_zones_and_reads_which_are_left_out() {
    with_google("official::googles_client_pages_through_all_zones_and_reads_which_are_left_out", |fake, google| {
        let ours = [("proxy-operator-managed", "true")];
        for (i, zone) in ["europe-west1-b", "europe-west1-c", "us-central1-a", "europe-west1-b", "europe-west1-c"].iter().enumerate() {
            fake.place(zone, &format!("px-{i}"), &ours, "RUNNING");
        }
        fake.place(ZONE, "foreign", &[], "RUNNING");
        let pages = google.list(2);
        assert_eq!((pages.len(), names(&pages)), (3, vec!["px-0", "px-1", "px-2", "px-3", "px-4"]), "{pages:?}");
        let codes = pages.iter().flat_map(|page| page["items"].as_object().unwrap().values()).map(|scope| scope["warning"]["code"].clone());
        assert!(codes.clone().any(|code| code == "NO_RESULTS_ON_PAGE"), "{:?}", codes.collect::<Vec<_>>());

        fake.darken("us-central1-a", true);
        let pages = google.list(500);
        assert_eq!(names(&pages), ["px-0", "px-1", "px-3", "px-4"]);
        assert_eq!(pages[0]["unreachables"], json!(["zones/us-central1-a"]));
        let dark = google.fails("InstancesClient", "get", json!({"zone": "us-central1-a", "instance": "px-2"}));
        assert_eq!(dark, ("ServiceUnavailable".to_owned(), json!([503, ["backendError"]])));

        fake.set_quotas(&[
            ("CPUS", 12.0, 24.0),
            ("IN_USE_ADDRESSES", 8.0, 8.0),
            ("DISKS_TOTAL_GB", 120.5, 4096.0),
            ("INSTANCES", 12.0, 720.0),
        ]);
        let region = google.ok("RegionsClient", "get", json!({"region": "europe-west1"}));
        assert_eq!(
            (region["quotas"][0]["metric"].as_str(), region["quotas"][2]["usage"].as_f64()),
            (Some("CPUS"), Some(120.5)),
            "{region}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn googles_client_reads_late_failures_and_refusals() {
    with_google("official::googles_client_reads_late_failures_and_refusals", |fake, google| {
        fake.fail_next_insert("QUOTA_EXCEEDED", "Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1.");
        let insert = google.insert("px-1", &request_id(1));
        let done = google.wait(&insert);
        assert_eq!(done["error"]["errors"][0]["code"], "QUOTA_EXCEEDED", "{done}");
        assert_eq!((done["status"].as_str(), done["http_error_status_code"].as_i64()), (Some("DONE"), Some(403)), "{done}");

        let insert = google.insert("px-2", &request_id(2));
        google.wait(&insert);
        fake.fail_next_delete("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "the disk is in use");
        let delete = google.ok("InstancesClient", "delete_unary", json!({"zone": ZONE, "instance": "px-2", "request_id": request_id(3)}));
        assert_eq!(google.wait(&delete)["error"]["errors"][0]["code"], "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE");
        assert_eq!(google.of_vm("get", "px-2")["status"], "RUNNING");

        for (status, reason, expected) in [
            (403, "rateLimitExceeded", "Forbidden"),
            (403, "accessNotConfigured", "Forbidden"),
            (429, "rateLimitExceeded", "TooManyRequests"),
        ] {
            let answer = Answer::error(status, reason, "refused");
            fake.fault(Fault { method: "GET", path: "/instances/px-2".to_owned(), times: 1, answer, carried_out: false });
            let refused = google.fails("InstancesClient", "get", json!({"zone": ZONE, "instance": "px-2"}));
            assert_eq!(refused, (expected.to_owned(), json!([status, [reason]])));
        }
        let bad = json!({"zone": ZONE, "request_id": request_id(4), "instance_resource": {"name": "px-3"}});
        assert_eq!(google.fails("InstancesClient", "insert_unary", bad), ("BadRequest".to_owned(), json!([400, ["invalid"]])));
        fake.accept_tokens(&["another"]);
        let stranger = google.fails("InstancesClient", "get", json!({"zone": ZONE, "instance": "px-2"}));
        assert_eq!(stranger.0, "RefreshError", "a 401 is a token to be fetched anew");
    })
    .await;
}

/// The judge is no yes-man: each of these it must name.
#[test]
fn the_discovery_document_refuses_what_it_does_not_know() {
    let Some(python) = official::python_or_skip("official::the_discovery_document_refuses_what_it_does_not_know") else { return };
    let base = format!("/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances");
    let operation = r#"{"kind": "compute#operation", "id": "7", "name": "operation-7", "status": "DONE"}"#;
    for (method, path, body, status, answer, fault) in [
        ("POST", base.clone(), r#"{"name": "px-1"}"#, 200, operation, ""),
        ("POST", base.clone(), r#"{"machine_type": "x"}"#, 200, operation, "'machine_type' was unexpected"),
        ("POST", base.clone(), r#"{"disks": [{"boot": "yes"}]}"#, 200, operation, "is not of type 'boolean'"),
        ("POST", base.clone(), r#"{"disks": [{"initializeParams": {"diskSizeGb": 10}}]}"#, 200, operation, "10 is not of type 'string'"),
        ("POST", base.clone(), r#"{"name": "Px_1"}"#, 200, operation, "does not match"),
        ("POST", base.clone(), "{}", 200, r#"{"id": "8f", "status": "DONE"}"#, "'8f' does not match"),
        ("POST", base.clone(), "{}", 200, r#"{"status": "FINISHED"}"#, "'FINISHED' is not one of"),
        ("POST", format!("{base}?request_id=1"), "{}", 200, operation, "unknown parameter request_id"),
        ("GET", format!("{base}?maxResults=501"), "", 200, "{}", "'501' is ill-formed"),
        ("GET", format!("{base}/px-1"), "", 404, r#"{"error": "gone"}"#, "answer error"),
        ("GET", format!("/compute/v1/projects/{PROJECT}/machines"), "", 200, "{}", "no such method"),
    ] {
        let answer = Answer { status, body: answer.as_bytes().to_vec() };
        let exchange = egress_fake_gce::Exchange { method: method.to_owned(), path, body: body.as_bytes().to_vec(), answer };
        match official::judge(&python, &[exchange]) {
            Ok(said) => assert!(fault.is_empty() && said.contains("revision"), "{method} {body} passed: {said}"),
            Err(said) => assert!(!fault.is_empty() && said.contains(fault), "{method} {body}: {said} instead of {fault:?}"),
        }
    }
}

//! Orphans in a cluster (OG-1…6, O4), and two operators over one set of objects (OP-34).

use std::time::Duration;

use serde_json::{Value, json};

use super::pods::Kubelet;
use crate::support::cluster::{CORE, ClusterSite, ControlPlane, Setting};
use crate::support::eventually;
use crate::support::lab::own_address;
use crate::support::origin::{Manner, Origin};
use crate::support::relay::{Act, refusal};

/// With rounds every second, of Pods of any age.
fn sweeping(setting: &Setting<'_>) -> ClusterSite {
    let mut site = setting.site("127.0.0.1").flag("--gc-interval", "1s").flag("--gc-min-age", "0s");
    site.flags.push("--gc-allow-namespaced".to_owned());
    site.providers(&json!({"providers": [{"name": "pods", "type": "kubernetes"}]}));
    site
}

/// The Pod of a Proxy, as if it belonged to another that is no more.
async fn orphaned(setting: &Setting<'_>, pod: &Value, uid: &str, name: &str) {
    let mut orphan = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"]},
        "spec": pod["spec"]});
    orphan["metadata"]["name"] = json!(name);
    orphan["metadata"]["labels"]["proxy-operator-uid"] = json!(uid);
    // What the API server added of its own.
    orphan["spec"].as_object_mut().unwrap().remove("nodeName");
    let made = setting.admin.post(&format!("{CORE}/namespaces/{}/pods", setting.proxies.name), &orphan).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

fn names(pods: &[Value]) -> Vec<String> {
    let mut names: Vec<String> = pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphan_goes_and_nothing_does_while_the_objects_cannot_be_read_o4() {
    let Some(plane) = ControlPlane::shared("an_orphan_goes_and_nothing_does_while_the_objects_cannot_be_read") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let _kubelet = Kubelet::run(&plane, &setting.proxies.name, own_address(), &[3128]).await;
    let mut operator = sweeping(&setting).start().up().await;
    setting.create(&setting.managed("px-1", "pods", 3128, origin.port)).await;
    setting.phase("px-1", "Ready").await;
    let ours = setting.pods().await.remove(0);
    let live = ours["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(operator.terminate().await.code(), Some(0));

    // A twin of another UID under the name that its UID gives, and one whose mark does not fit its name.
    let uid = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee";
    let orphan = egress_protocol::InstanceName::of(&egress_protocol::Uid::new(uid)).to_string();
    orphaned(&setting, &ours, uid, &orphan).await;
    orphaned(&setting, &ours, "bbbbbbbb-bbbb-4ccc-8ddd-eeeeeeeeeeee", "not-its-name").await;
    for (code, reason) in [(403, "Forbidden"), (500, "InternalError")] {
        // A list that is asked for the objects alone is the sweeper's; the watch has read them already.
        setting.relay.set(|_| Act::Pass);
        let mut operator = sweeping(&setting).start().up().await;
        setting.relay.set(move |call| match call.what() == "GET proxies" {
            true => Act::Answer(code, refusal(code, reason, "said the relay")),
            false => Act::Pass,
        });
        tokio::time::sleep(Duration::from_secs(14)).await;
        let asked = setting.relay.calls().iter().filter(|call| call.what() == "GET proxies" && call.status == Some(code)).count();
        assert!(asked >= 2, "the rounds asked: {asked}");
        assert_eq!(setting.pods().await.len(), 3, "nothing is deleted on {code}");
        operator.terminate().await;
        setting.relay.forget();
    }
    setting.relay.set(|_| Act::Pass);
    let _operator = sweeping(&setting).start().up().await;
    let left = eventually("the orphan is gone", Duration::from_secs(40), || async {
        let left = names(&setting.pods().await);
        (!left.contains(&orphan)).then_some(left)
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(left, names(&setting.pods().await), "and nothing else went");
    assert!(left.contains(&live) && left.contains(&"not-its-name".to_owned()), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_another_installation_is_left_alone_op_34() {
    let Some(plane) = ControlPlane::shared("an_object_of_another_installation_is_left_alone") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let address = own_address();
    let first = setting.site(&address.to_string()).flag("--installation-id", "first").start().up().await;
    setting.create(&setting.managed("px-1", "lab", 3128, origin.port)).await;
    let object = setting.phase("px-1", "Ready").await;
    assert_eq!(object["status"]["installation"], "first");
    let second = setting.site(&own_address().to_string()).flag("--installation-id", "second").start().up().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let told = second.kill();
    let warnings: Vec<&String> = told.iter().filter(|line| line.contains("this Proxy belongs to another installation")).collect();
    assert_eq!(warnings.len(), 1, "one WARNING: {warnings:?}");
    assert!(warnings[0].contains("first") && warnings[0].contains("second"), "it names both: {warnings:?}");
    let after = setting.proxy("px-1").await;
    assert_eq!(after["status"]["installation"], "first");
    let listening = first.sockets().into_keys().filter(|at| *at.ip() == address).count();
    assert_eq!(listening, 1);
}

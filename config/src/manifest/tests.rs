use egress_protocol::resource::Mode;
use proptest::prelude::*;

use super::*;

fn one(text: &str) -> Document {
    let manifest = parse("m.yaml", text.as_bytes());
    assert_eq!(manifest.faults, [], "{text}");
    assert_eq!(manifest.documents.len(), 1);
    manifest.documents.into_iter().next().unwrap().value
}

/// Path and line of every fault.
fn faults(text: &str) -> Vec<(String, Option<usize>)> {
    let manifest = parse("m.yaml", text.as_bytes());
    assert!(manifest.readable, "{:?}", manifest.faults);
    manifest.faults.into_iter().map(|fault| (fault.path, fault.line)).collect()
}

const PROXY: &str = "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: px-1}\nspec: {mode: Managed, provider: lab}\n";

#[test]
fn a_proxy_is_read_with_its_defaults() {
    let Document::Proxy(proxy) = one(PROXY) else { panic!("a Proxy") };
    assert_eq!((proxy.namespace.as_str(), proxy.name.as_str()), ("default", "px-1"));
    assert_eq!((proxy.spec.mode, proxy.spec.port, proxy.spec.health_check.interval_seconds), (Mode::Managed, 3128, 30));
}

#[test]
fn status_and_other_metadata_are_ignored_and_annotations_kept() {
    let text = "apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata:
  name: px-1
  namespace: shop
  uid: x
  managedFields: [{a: 1}]
  annotations: {crawl.example.com/retry: \"2\", kubectl.kubernetes.io/last-applied-configuration: '{}'}
spec: {mode: External, endpoint: {host: 192.0.2.7}}
status: {phase: Nonsense}
";
    let Document::Proxy(proxy) = one(text) else { panic!("a Proxy") };
    assert_eq!(proxy.namespace, "shop");
    assert_eq!(proxy.annotations["crawl.example.com/retry"], "2");
}

#[test]
fn a_secret_takes_data_and_string_data_and_prints_nothing() {
    let text = "apiVersion: v1
kind: Secret
type: Opaque
metadata: {name: s, labels: {crawl.example.com/cloud-init: \"true\"}}
data: {a: aHVudGVyMg==, b: \"aHVu\\n dGVyMg==\", c: null}
stringData: {a: swordfish}
";
    let Document::Secret(secret) = one(text) else { panic!("a Secret") };
    let data: Vec<_> = secret.data.iter().map(|(key, value)| (key.as_str(), value.expose().as_slice())).collect();
    assert_eq!(data, [("a", &b"swordfish"[..]), ("b", &b"hunter2"[..]), ("c", &b""[..])]);
    assert_eq!(secret.labels["crawl.example.com/cloud-init"], "true");
    assert!(!format!("{secret:?}").contains("hunter2"));
}

/// OP-30: an invalid document is a fault, the file's other documents apply.
#[test]
fn one_bad_document_does_not_hide_the_others() {
    let text =
        format!("{PROXY}---\n{}---\n{}", PROXY.replace("px-1", "Px_2").replace("lab", "lab, port: 0"), PROXY.replace("px-1", "px-3"));
    let manifest = parse("m.yaml", text.as_bytes());
    assert_eq!(
        manifest.documents.iter().map(|d| (d.document, d.value.label())).collect::<Vec<_>>(),
        [(1, "Proxy default/px-1".to_owned()), (3, "Proxy default/px-3".to_owned())]
    );
    let shown: Vec<_> = manifest.faults.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].starts_with("m.yaml:8: document 2, Proxy default/Px_2, metadata.name: must be a DNS-1123 subdomain"), "{}", shown[0]);
    assert_eq!(shown[1], "m.yaml:9: document 2, Proxy default/Px_2, spec.port: must be at least 1, is 0");
}

#[test]
fn a_list_is_unpacked_and_its_faults_name_the_item() {
    let text = "apiVersion: v1
kind: List
items:
- apiVersion: crawl.example.com/v1alpha1
  kind: Proxy
  metadata: {name: a}
  spec: {mode: Managed, provider: lab}
- apiVersion: crawl.example.com/v1alpha1
  kind: Proxy
  metadata: {name: b}
  spec:
    mode: Managed
    provider: lab
    port: x
- 7
";
    let manifest = parse("m.yaml", text.as_bytes());
    assert_eq!(manifest.documents.len(), 1);
    assert_eq!(faults(text), [("items[1].spec.port".to_owned(), Some(14)), ("items[2]".to_owned(), Some(15))]);
    assert_eq!(manifest.faults[0].object.as_deref(), Some("Proxy default/b"));
}

/// Bad input of many kinds: each a named field, the reader lives.
#[test]
fn what_is_no_object_is_a_fault_that_names_a_field() {
    let spec = "spec: {mode: Managed, provider: lab}";
    let head = "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\n";
    for (text, path) in [
        ("just a text".to_owned(), "."),
        ("[1, 2]".to_owned(), "."),
        ("a: 1".to_owned(), "apiVersion"),
        ("kind: Proxy".to_owned(), "apiVersion"),
        ("apiVersion: v1".to_owned(), "kind"),
        ("apiVersion: v1\nkind: [Proxy]".to_owned(), "kind"),
        ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}".to_owned(), "kind"),
        (format!("apiVersion: v1\nkind: Proxy\nmetadata: {{name: a}}\n{spec}"), "apiVersion"),
        (format!("{head}{spec}"), "metadata.name"),
        (format!("{head}metadata: x\n{spec}"), "metadata"),
        (format!("{head}metadata: {{name: 1}}\n{spec}"), "metadata.name"),
        (format!("{head}metadata: {{name: yes}}\n{spec}"), "metadata.name"),
        (format!("{head}metadata: {{generateName: a-}}\n{spec}"), "metadata.name"),
        (format!("{head}metadata: {{name: a, namespace: A}}\n{spec}"), "metadata.namespace"),
        (format!("{head}metadata: {{name: a, labels: {{k: 1}}}}\n{spec}"), "metadata.labels.k"),
        (format!("{head}metadata: {{name: a, labels: {{k: a b}}}}\n{spec}"), "metadata.labels.k"),
        (format!("{head}metadata: {{name: a, annotations: [x]}}\n{spec}"), "metadata.annotations"),
        (format!("{head}metadata: {{name: a, annotations: {{k: true}}}}\n{spec}"), "metadata.annotations.k"),
        (format!("{head}metadata: {{name: a}}"), "spec"),
        (format!("{head}metadata: {{name: a}}\nspec: 7"), "spec"),
        (format!("{head}metadata: {{name: a}}\n{spec}\nspecs: 1"), "specs"),
        (format!("{head}metadata: {{name: a}}\n{spec}\n{spec}"), "spec"),
        (format!("{head}metadata: {{name: a}}\nspec: {{mode: Managed, provider: lab, port: 1, port: 2}}"), "spec.port"),
        (format!("{head}metadata: {{name: a}}\nspec: {{mode: Managed, provider: lab, attributes: {{geo: no}}}}"), "spec.attributes.geo"),
        (format!("{head}metadata: {{name: a}}\nspec: {{mode: Managed, provider: lab, port: 010}}"), "spec.port"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: 'no base64!'}".to_owned(), "data.k"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {'a/b': eA==}".to_owned(), "data[\"a/b\"]"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: 7}".to_owned(), "stringData.k"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: x".to_owned(), "stringData"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nimmutable: 1".to_owned(), "immutable"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nspec: {}".to_owned(), "spec"),
        (format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\nstringData: {{k: {}}}", "x".repeat((1 << 20) + 1)), "data"),
        ("apiVersion: v1\nkind: List".to_owned(), "items"),
        ("apiVersion: v2\nkind: List\nitems: []".to_owned(), "apiVersion"),
        ("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: []}]".to_owned(), "items[0].kind"),
    ] {
        let found = faults(&text);
        assert!(found.iter().any(|(found, _)| found == path), "{path}: {found:?}\n{}", &text[..text.len().min(300)]);
        assert!(found.iter().all(|(_, line)| line.is_some()), "{found:?}");
        assert_eq!(parse("m.yaml", text.as_bytes()).documents, [], "{}", &text[..text.len().min(300)]);
    }
}

/// OP-30: a file that cannot be parsed keeps the objects it defined last.
#[test]
fn a_file_that_is_no_yaml_is_not_readable() {
    for bytes in [&b"spec: [1, 2\n"[..], b"\xff\xfe", b"a: b: c: d", b"\"unclosed", b"a: *nowhere", b"\t\tx: 1\n  y"] {
        let manifest = parse("m.yaml", bytes);
        assert!(!manifest.readable && manifest.documents.is_empty() && manifest.faults.len() == 1, "{bytes:?} {manifest:?}");
    }
    assert!(parse("m.yaml", b"").readable, "an empty file defines nothing");
}

/// Hard case S7: sentinels in every place a secret may stand, right or wrong, and no fault shows them.
#[test]
fn no_fault_shows_a_secret() {
    for text in [
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: sent-inel}",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: [sent-inel]",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: \"sent-inel",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  k: sent-inel\n bad: sent-inel: x\n",
        "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: a}\nspec: {mode: Managed, cloudInit: {inline: sent-inel, secretRef: {name: sent-Inel}}}",
        "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: a}\nspec: {mode: External, endpoint: {host: 'u:sent-inel@h'}}",
    ] {
        let shown: Vec<_> = parse("m.yaml", text.as_bytes()).faults.iter().map(ToString::to_string).collect();
        assert!(!shown.is_empty() && !shown.concat().contains("sent-"), "{shown:?}");
    }
}

#[test]
fn more_faults_than_anyone_reads_are_counted() {
    let manifest = parse("m.yaml", "--- 1\n".repeat(1500).as_bytes());
    assert_eq!(manifest.faults.len(), 1001);
    assert_eq!(manifest.faults[1000].to_string(), "m.yaml: and 500 more faults");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the bytes: an answer, every fault with a path and a reason, and a file is not both unreadable and full.
    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let manifest = parse("m.yaml", &bytes);
        prop_assert!(manifest.faults.iter().all(|fault| !fault.path.is_empty() && !fault.reason.is_empty()));
        prop_assert!(manifest.readable || manifest.documents.is_empty());
    }

    /// A valid file with some bytes changed is answered, too.
    #[test]
    fn a_damaged_file_is_answered(at in 0..PROXY.len(), byte in any::<u8>()) {
        let mut bytes = PROXY.as_bytes().to_vec();
        bytes[at] = byte;
        let manifest = parse("m.yaml", &bytes);
        prop_assert_eq!(manifest.documents.len() + usize::from(!manifest.faults.is_empty()), 1, "{:?}", manifest);
    }
}

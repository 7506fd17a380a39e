//! The Helm chart must be what the code is: its copies of the CRDs, its settings and providers, and the page about its values.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::committed::{known, text};
use crate::{cli, providers};

const FROM: &str = "by `just generate` -->\n";
const UNTIL: &str = "<!-- /values -->";

fn chart(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/egress-proxies-operator").join(file)
}

fn schema() -> Value {
    serde_json::from_str(&std::fs::read_to_string(chart("values.schema.json")).unwrap()).unwrap()
}

/// Every value, by its path, with its schema.
fn values<'a>(schema: &'a Value, path: &str, into: &mut Vec<(String, &'a Value)>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match inner["properties"].is_object() {
            true => values(inner, &path, into),
            false if path == "global" => {}
            false => into.push((path, inner)),
        }
    }
}

/// The rows of the table in docs/install.md.
fn table(schema: &Value) -> String {
    let mut found = Vec::new();
    values(schema, "", &mut found);
    let mut out = "\n| value | default | meaning |\n|---|---|---|\n".to_owned();
    for (path, schema) in found {
        let default = match &schema["default"] {
            Value::Null => "none".to_owned(),
            Value::String(text) if text.is_empty() => "empty".to_owned(),
            Value::String(text) => format!("`{text}`"),
            Value::Array(list) if list.is_empty() => "empty".to_owned(),
            Value::Object(map) if map.is_empty() => "empty".to_owned(),
            other => format!("`{other}`"),
        };
        let meaning = schema["description"].as_str().unwrap();
        write!(out, "| `{path}` | {default} | {meaning}").unwrap();
        if let Some(words) = schema["enum"].as_array() {
            let words: Vec<_> = words.iter().map(|word| format!("`{}`", word.as_str().unwrap())).collect();
            write!(out, ": {}", words.join(", ")).unwrap();
        }
        if let (Some(least), Some(most)) = (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
            write!(out, "; {least} to {most}").unwrap();
        }
        out.push_str(" |\n");
    }
    out + "\n"
}

/// `UPDATE=1 cargo test -p egress-config chart` writes it anew.
#[test]
fn the_guide_has_the_table_of_the_values() {
    let guide = text("../docs/install.md");
    let (before, rest) = guide.split_once(FROM).unwrap();
    let (_, after) = rest.split_once(UNTIL).unwrap();
    let wanted = format!("{before}{FROM}{}{UNTIL}{after}", table(&schema()));
    #[expect(clippy::disallowed_methods, reason = "a test that is told to write")]
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install.md"), &wanted).unwrap();
        return;
    }
    assert!(guide == wanted, "docs/install.md differs from values.schema.json: run with UPDATE=1");
}

/// The chart takes the types that the providers file knows, and of each the keys that its block knows, no others.
#[test]
fn the_values_know_the_keys_of_every_provider_block() {
    let schema = schema();
    let entries = schema["properties"]["providers"]["patternProperties"].as_object().unwrap();
    let entry = &entries.values().next().unwrap()["properties"];
    let types: BTreeSet<&str> = entry["type"]["enum"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    for known_type in providers::TYPES.iter().map(|known| known.name) {
        assert!(types.contains(known_type), "{known_type}");
        let keys: BTreeSet<String> = entry[known_type]["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, known(known_type, &format!("{known_type}: {{zz: 1}}")), "{known_type}");
    }
    let faults = &entry["local"]["properties"]["faults"]["items"]["properties"];
    let keys: BTreeSet<String> = faults.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, known("local", "local: {faults: [{proxies: '*', zz: 1}]}"));
    let mut keys: BTreeSet<String> = entry.as_object().unwrap().keys().cloned().collect();
    assert!(keys.remove("enabled") && keys.insert("name".to_owned()), "an entry's name is its key, and only the chart knows `enabled`");
    for known_type in known("local", "zz: 1") {
        assert!(keys.contains(&known_type), "{known_type}");
    }
}

/// OP-27: every flag that the chart may give is one of `run`, and of the rest we know why it is not given.
#[test]
fn the_flags_of_the_chart_are_those_of_run() {
    let schema = schema();
    let mut given: BTreeSet<String> = schema["properties"]["settings"]["properties"].as_object().unwrap().keys().cloned().collect();
    let template = std::fs::read_to_string(chart("templates/_helpers.tpl")).unwrap();
    for line in template.lines().filter_map(|line| line.strip_prefix("--")) {
        let flag = line.split(['=', ' ']).next().unwrap();
        if !flag.contains('{') {
            assert!(given.insert(flag.to_owned()), "--{flag} is a setting too");
        }
    }
    assert!(given.contains("providers-config") && given.contains("metrics-secure"), "{given:?}");
    let known: BTreeSet<String> = cli::flags("run").into_keys().collect();
    let unknown: Vec<_> = given.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let left_out: BTreeSet<_> = known.difference(&given).map(String::as_str).collect();
    let outside = ["kubeconfig", "leader-election-id", "leader-election-namespace"];
    let by_variable = ["pod-name", "pod-uid", "pod-namespace", "pod-ip"];
    let nothing_yet = ["lease-store"];
    assert_eq!(left_out, outside.into_iter().chain(by_variable).chain(nothing_yet).collect());
}

/// What a setting is said to be without the value is what `run` does without the flag.
#[test]
fn the_defaults_of_settings_are_those_of_run() {
    let (schema, flags) = (schema(), cli::flags("run"));
    for (flag, setting) in schema["properties"]["settings"]["properties"].as_object().unwrap() {
        let told = match &setting["default"] {
            Value::String(text) => Some(text.clone()),
            Value::Null | Value::Array(_) | Value::Bool(false) => None,
            other => Some(other.to_string()),
        };
        let does = flags[flag].clone().filter(|default| default != "false");
        if flag != "log-format" {
            assert_eq!(told, does, "{flag}");
        }
    }
}

/// The arguments of the container as the template makes them of the settings' examples, all at once, are in order for `run`.
#[test]
fn the_examples_of_settings_are_ones_that_run_takes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("providers.yaml");
    std::fs::write(&file, "providers: [{name: kubernetes, type: kubernetes}]\n").unwrap();
    let mut args = vec!["egress-proxies-operator".to_owned(), "run".to_owned(), format!("--providers-config={}", file.display())];
    args.extend(["--leader-elect", "--metrics-bind-address=:8443", "--metrics-secure", "--proxy-namespace=crawl"].map(str::to_owned));
    for (flag, setting) in schema()["properties"]["settings"]["properties"].as_object().unwrap() {
        match &setting["examples"][0] {
            // A file that is not here.
            _ if flag == "check-ca-file" => {}
            Value::Bool(true) => args.push(format!("--{flag}")),
            Value::Bool(false) => args.push(format!("--{flag}=false")),
            Value::Array(items) => args.extend(items.iter().map(|item| format!("--{flag}={}", item.as_str().unwrap()))),
            Value::String(text) => args.push(format!("--{flag}={text}")),
            other => args.push(format!("--{flag}={other}")),
        }
    }
    let pod = [("EPO_POD_NAME", "op-1"), ("EPO_POD_UID", "u-1"), ("EPO_POD_NAMESPACE", "egress"), ("EPO_POD_IP", "10.244.0.7")];
    let variable = |name: &str| pod.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
    let parsed = cli::parse(args.into_iter().map(Into::into), variable);
    assert!(matches!(parsed, Ok(cli::Command::Run(_))), "{parsed:?}");
}

//! Answers as tables. A field that an answer lacks is an empty cell.

use serde_json::Value;

use crate::commands::get::Kind;
use crate::commands::table::{Row, Table};

type Column = (&'static str, fn(&Value) -> String);

const PROXIES: &[Column] = &[
    ("NAMESPACE", |v| text(&v["namespace"])),
    ("NAME", |v| text(&v["name"])),
    ("MODE", |v| text(&v["mode"])),
    ("PROVIDER", |v| text(&v["provider"])),
    ("PHASE", |v| text(&v["phase"])),
    ("HEALTHY", |v| text(&v["healthy"])),
    ("LEASES", |v| format!("{}/{}", text(&v["activeLeases"]), text(&v["maxLeases"]))),
    ("URL", |v| text(&v["url"])),
];
const PROXIES_WIDE: &[Column] = &[
    ("IP", |v| text(&v["ip"])),
    ("EGRESS-IP", |v| text(&v["egressIP"])),
    ("LATENCY", |v| v["latencyMillis"].as_i64().map(|ms| format!("{ms}ms")).unwrap_or_default()),
    ("CHECKED", |v| text(&v["checkedAt"])),
    ("ATTRIBUTES", |v| pairs(&v["attributes"])),
    ("COOLING", |v| targets(&v["coolingDown"])),
    ("CORDONS", |v| targets(&v["cordons"])),
    ("REASON", |v| text(&v["reason"])),
    ("MESSAGE", |v| text(&v["message"])),
];
const LEASES: &[Column] = &[
    ("ID", |v| text(&v["id"])),
    ("STATE", |v| text(&v["state"])),
    ("OWNER", |v| text(&v["owner"])),
    ("TARGET", |v| text(&v["target"])),
    ("PROXY", |v| format!("{}/{}", text(&v["proxy"]["namespace"]), text(&v["proxy"]["name"]))),
    ("UNHEALTHY", |v| text(&v["proxyUnhealthy"])),
    ("EXPIRES", |v| text(&v["expiresAt"])),
];
const LEASES_WIDE: &[Column] = &[
    ("GRANTED", |v| text(&v["grantedAt"])),
    ("FENCE", |v| text(&v["fence"])),
    ("URL", |v| text(&v["proxy"]["url"])),
    ("ENDED", |v| text(&v["endedAt"])),
    ("REASON", |v| text(&v["reason"])),
];
const PROVIDERS: &[Column] = &[
    ("NAME", |v| text(&v["name"])),
    ("TYPE", |v| text(&v["type"])),
    ("READY", |v| text(&v["conditions"][0]["status"])),
    ("TARGETS", |v| text(&v["targetsReady"])),
    ("CALLS", |v| text(&v["callsInFlight"])),
    ("LAST ERROR", |v| text(&v["lastError"]["message"])),
];
const PROVIDERS_WIDE: &[Column] = &[
    ("AT", |v| text(&v["lastError"]["at"])),
    ("CHECKED", |v| text(&v["lastCheckTime"])),
    ("NOT READY", |v| text(&v["conditions"][0]["message"])),
];
const ACTORS: &[Column] = &[
    ("ACTOR", |v| text(&v["id"])),
    ("KIND", |v| text(&v["kind"])),
    ("STATUS", |v| text(&v["status"])),
    ("RESTARTS", |v| text(&v["restarts"])),
    ("MAILBOX", |v| text(&v["mailboxDepth"])),
];
const ACTORS_WIDE: &[Column] = &[
    ("SINCE", |v| text(&v["since"])),
    ("HANDLING", |v| text(&v["handling"]["message"])),
    ("LAST ERROR", |v| text(&v["lastError"]["message"])),
];

/// The table of an answer, which is a list, a single item or the tree.
pub(super) fn of(kind: Kind, answer: &Value, wide: bool) -> Table {
    let (narrow, more): (&[Column], &[Column]) = match kind {
        Kind::Proxies => (PROXIES, PROXIES_WIDE),
        Kind::Leases => (LEASES, LEASES_WIDE),
        Kind::Providers => (PROVIDERS, PROVIDERS_WIDE),
        Kind::Actors => (ACTORS, ACTORS_WIDE),
    };
    let columns: Vec<&Column> = narrow.iter().chain(more.iter().filter(|_| wide)).collect();
    let mut items = Vec::new();
    match kind {
        Kind::Actors => walk(answer, 0, &mut items),
        _ => match answer["items"].as_array() {
            Some(list) => items.extend(list.iter().map(|item| (0, item))),
            None => items.push((0, answer)),
        },
    }
    let rows = items.into_iter().map(|(depth, item)| {
        let mut cells: Vec<String> = columns.iter().map(|(_, cell)| cell(item)).collect();
        if let Some(first) = cells.first_mut() {
            first.insert_str(0, &"  ".repeat(depth));
        }
        Row { key: key(kind, item), cells }
    });
    Table { columns: columns.iter().map(|(title, _)| *title).collect(), rows: rows.collect() }
}

fn key(kind: Kind, item: &Value) -> String {
    match kind {
        Kind::Proxies => format!("{}/{}", text(&item["namespace"]), text(&item["name"])),
        Kind::Providers => text(&item["name"]),
        Kind::Leases | Kind::Actors => text(&item["id"]),
    }
}

fn walk<'a>(node: &'a Value, depth: usize, out: &mut Vec<(usize, &'a Value)>) {
    out.push((depth, node));
    for child in node["children"].as_array().into_iter().flatten() {
        walk(child, depth + 1, out);
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn pairs(map: &Value) -> String {
    let pairs = map.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={}", text(v)));
    pairs.collect::<Vec<_>>().join(",")
}

fn targets(list: &Value) -> String {
    let targets = list.as_array().into_iter().flatten().map(|entry| match entry["target"].as_str() {
        Some(target) => target.to_owned(),
        None => "all".to_owned(),
    });
    targets.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tree_is_indented_and_wide_adds_columns() {
        let tree = json!({"id": "root", "kind": "root", "status": "running", "restarts": 0, "mailboxDepth": 0,
            "children": [{"id": "source", "kind": "source", "status": "busy", "restarts": 1, "mailboxDepth": 3, "children": []}]});
        let table = of(Kind::Actors, &tree, false);
        assert_eq!(table.rows[1].cells, ["  source", "source", "busy", "1", "3"]);
        assert_eq!(of(Kind::Actors, &tree, true).columns.len(), 8);
    }

    #[test]
    fn one_proxy_and_a_list_of_one_look_alike() {
        let item = json!({"namespace": "default", "name": "px-1", "mode": "External", "phase": "Ready", "healthy": true,
            "port": 1, "attributes": {"geo": "de"}, "maxLeases": 2, "activeLeases": 1, "coolingDown": [{"until": "x"}], "cordons": []});
        let one = of(Kind::Proxies, &item, true);
        assert_eq!(one, of(Kind::Proxies, &json!({ "items": [&item] }), true));
        assert_eq!(one.rows[0].cells[6], "1/2");
        let mut down = item.clone();
        (down["reason"], down["message"]) = (json!("ProbeFailed"), json!("Timeout: connecting"));
        let wide = of(Kind::Proxies, &down, true);
        assert_eq!(wide.columns[15..], ["REASON", "MESSAGE"]);
        assert_eq!(wide.rows[0].cells[15..], ["ProbeFailed", "Timeout: connecting"], "issue 10, 20");
        assert!(one.rows[0].cells.contains(&"geo=de".to_owned()) && one.rows[0].cells.contains(&"all".to_owned()));
    }
}

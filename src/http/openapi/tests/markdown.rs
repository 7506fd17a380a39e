//! `docs/api.md` from the OpenAPI document.

use std::fmt::Write;

use serde_json::Value;

const HEAD: &str = "# API\n\nGenerated from [openapi.json](openapi.json), which is generated from the handlers; a test holds all three together. \
How to use it: [leasing.md](leasing.md).\n\nDefault address `127.0.0.1:8090`. With a token, every call but those under *health* needs the header \
`Authorization: Bearer TOKEN`. Bodies are JSON of at most 64 KiB with `Content-Type: application/json`; `null` is the same as absent; unknown fields and query \
parameters are errors. Errors are RFC 9457 problem documents (`application/problem+json`, schema [Problem](#problem)) with a stable `code`.\n";

/// The whole page.
pub(super) fn page(document: &Value) -> String {
    let mut out = HEAD.to_owned();
    for tag in list(&document["tags"]) {
        let name = text(&tag["name"]);
        let _ = write!(out, "\n## {name}\n\n{}.\n", text(&tag["description"]));
        for (path, item) in map(&document["paths"]) {
            for (method, operation) in map(item) {
                if operation["tags"][0] == tag["name"] {
                    call(&mut out, path, method, operation);
                }
            }
        }
    }
    out += "\n## Schemas\n";
    for (name, schema) in map(&document["components"]["schemas"]) {
        self::schema(&mut out, name, schema);
    }
    out
}

fn call(out: &mut String, path: &str, method: &str, operation: &Value) {
    let _ = write!(out, "\n### `{} {path}`\n\n{}\n", method.to_uppercase(), words(operation));
    let parameters = list(&operation["parameters"]);
    if !parameters.is_empty() {
        *out += "\n| parameter | in | type | |\n|---|---|---|---|\n";
        for parameter in parameters {
            let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
            let _ = writeln!(out, "| `{name}` | {place} | {} | {} |", type_of(&parameter["schema"]), cell(&parameter["description"]));
        }
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        let _ = write!(out, "\nBody: {}.\n", type_of(body));
    }
    *out += "\n| status | answer | |\n|---|---|---|\n";
    for (status, response) in map(&operation["responses"]) {
        let answers: Vec<String> = map(&response["content"]).map(|(_, content)| type_of(&content["schema"])).collect();
        let _ = writeln!(out, "| {status} | {} | {} |", answers.join(" or "), cell(&response["description"]));
    }
}

fn schema(out: &mut String, name: &str, schema: &Value) {
    let _ = write!(out, "\n### {name}\n\n{}\n", text(&schema["description"]));
    if !schema["enum"].is_null() {
        let values: Vec<String> = list(&schema["enum"]).iter().map(|v| format!("`{}`", text(v))).collect();
        let _ = write!(out, "\nOne of {}.\n", values.join(", "));
        return;
    }
    if schema["properties"].is_null() {
        let _ = write!(out, "\n{}.\n", type_of(schema));
        return;
    }
    *out += "\n| field | type | |\n|---|---|---|\n";
    let required: Vec<&str> = list(&schema["required"]).iter().map(text).collect();
    for (field, of) in map(&schema["properties"]) {
        let optional = if required.contains(&field.as_str()) { "" } else { "?" };
        let _ = writeln!(out, "| `{field}`{optional} | {} | {} |", type_of(of), cell(&of["description"]));
    }
}

fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if let Some(options) = schema[choice].as_array() {
            let options = options.iter().filter(|o| o["type"] != "null").map(type_of);
            return options.collect::<Vec<_>>().join(" or ");
        }
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(text).find(|k| *k != "null").unwrap_or_default(),
        kind => text(kind),
    };
    let mut out = match kind {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => format!("map of {}", type_of(&schema["additionalProperties"])),
        "" => "any".to_owned(),
        other => other.to_owned(),
    };
    if schema["format"] == "date-time" {
        out += ", RFC 3339";
    }
    if let Some(default) = schema.get("default") {
        let _ = write!(out, ", default `{}`", default.as_str().map_or_else(|| default.to_string(), str::to_owned));
    }
    out
}

fn words(operation: &Value) -> String {
    let summary = text(&operation["summary"]);
    let more = text(&operation["description"]);
    if more.is_empty() || more == summary { summary.to_owned() } else { format!("{summary}\n\n{more}") }
}

fn cell(value: &Value) -> String {
    text(value).replace('|', "\\|").replace('\n', " ")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn map(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

//! `get proxies|leases|providers|actors [NAME]`: what a running instance says, as a table or as its own JSON (OP-31).

mod tables;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::commands::client::{Client, ClientError};
use crate::commands::table::{Row, Table, line};

/// How often `-w` asks.
const EVERY: Duration = Duration::from_secs(1);

/// What to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From the API.
    Proxies,
    /// From the API.
    Leases,
    /// From the debug endpoint.
    Providers,
    /// From the debug endpoint.
    Actors,
}

/// How to show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A few columns.
    Table,
    /// All columns.
    Wide,
    /// The API's own answer.
    Json,
}

/// Why `get` did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// Asking failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Nothing of that name.
    #[error("{0}")]
    NotFound(String),
    /// It is not the answer of an instance.
    #[error("the answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    /// Nobody reads what we write.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// Shows once, or with `watch` until the reader goes away.
pub async fn run(
    client: &Client,
    kind: Kind,
    name: Option<&str>,
    output: Output,
    watch: bool,
    out: &mut (impl Write + Send),
) -> Result<(), GetError> {
    let mut shown = Shown::default();
    loop {
        let answer = ask(client, kind, name).await?;
        match output {
            Output::Json => shown.json(&answer, out)?,
            Output::Table | Output::Wide => {
                let table = tables::of(kind, &serde_json::from_slice(&answer)?, output == Output::Wide);
                shown.table(table, out)?;
            }
        }
        out.flush()?;
        if !watch {
            return Ok(());
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn ask(client: &Client, kind: Kind, name: Option<&str>) -> Result<Bytes, GetError> {
    match (kind, name) {
        (Kind::Proxies, None) => pages(client, "/v1/proxies?limit=1000").await,
        (Kind::Proxies, Some(name)) => {
            let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
            Ok(client.get(&format!("/v1/proxies/{}/{}", encode(namespace), encode(name))).await?)
        }
        (Kind::Leases, None) => pages(client, "/v1/leases?limit=1000").await,
        (Kind::Leases, Some(id)) => Ok(client.get(&format!("/v1/leases/{}", encode(id))).await?),
        (Kind::Providers, None) => Ok(client.get("/debug/providers").await?),
        (Kind::Providers, Some(name)) => {
            let answer: Value = serde_json::from_slice(&client.get("/debug/providers").await?)?;
            let items = answer["items"].as_array().cloned().unwrap_or_default();
            let item = items.into_iter().find(|item| item["name"] == name);
            let item = item.ok_or_else(|| GetError::NotFound(format!("no provider is named {name}")))?;
            Ok(serde_json::to_vec(&item)?.into())
        }
        (Kind::Actors, None) => Ok(client.get("/debug/actors").await?),
        (Kind::Actors, Some(id)) => Ok(client.get(&format!("/debug/actors?id={}", encode(id))).await?),
    }
}

/// All pages of a list: the first as it came when it is the only one, else one answer with the items of all.
async fn pages(client: &Client, path: &str) -> Result<Bytes, GetError> {
    let first = client.get(path).await?;
    let mut page: Value = serde_json::from_slice(&first)?;
    if page["nextCursor"].is_null() {
        return Ok(first);
    }
    let mut items = Vec::new();
    loop {
        if let Some(more) = page["items"].as_array_mut() {
            items.append(more);
        }
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        page = serde_json::from_slice(&client.get(&format!("{path}&cursor={}", encode(cursor))).await?)?;
    }
    Ok(serde_json::to_vec(&json!({ "items": items }))?.into())
}

/// Percent-encodes whatever a path segment or a query value may not hold.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(b).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// What has been printed, so that `-w` prints what changed.
#[derive(Default)]
struct Shown {
    json: Option<Bytes>,
    widths: Vec<usize>,
    rows: BTreeMap<String, Row>,
}

impl Shown {
    fn json(&mut self, answer: &Bytes, out: &mut impl Write) -> io::Result<()> {
        if self.json.as_ref() != Some(answer) {
            out.write_all(answer)?;
            out.write_all(b"\n")?;
            self.json = Some(answer.clone());
        }
        Ok(())
    }

    fn table(&mut self, table: Table, out: &mut impl Write) -> io::Result<()> {
        if self.widths.is_empty() {
            self.widths = table.widths();
            writeln!(out, "{}", table.header(&self.widths))?;
        }
        let mut gone = std::mem::take(&mut self.rows);
        for row in table.rows {
            if gone.remove(&row.key).as_ref() != Some(&row) {
                writeln!(out, "{}", line(row.cells.iter().map(String::as_str), &self.widths))?;
            }
            self.rows.insert(row.key.clone(), row);
        }
        for row in gone.values() {
            writeln!(out, "{}  (gone)", line(row.cells.iter().map(String::as_str), &self.widths))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watching_prints_what_changed_and_what_went() {
        let row = |key: &str, phase: &str| Row { key: key.into(), cells: vec![key.into(), phase.into()] };
        let table = |rows| Table { columns: vec!["NAME", "PHASE"], rows };
        let mut shown = Shown::default();
        let mut out = Vec::new();
        shown.table(table(vec![row("a", "Pending"), row("b", "Ready")]), &mut out).unwrap();
        shown.table(table(vec![row("a", "Pending"), row("b", "Ready")]), &mut out).unwrap();
        shown.table(table(vec![row("a", "Ready")]), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "NAME  PHASE\na     Pending\nb     Ready\na     Ready\nb     Ready  (gone)\n");
    }

    #[test]
    fn names_are_encoded_for_the_path() {
        assert_eq!(encode("a/b c?#ü"), "a%2Fb%20c%3F%23%C3%BC");
    }
}

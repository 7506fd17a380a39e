//! What the publisher sends, and what it makes of the answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use egress_kube::{ApiError, PatchKind, REQUEST, Request};
use egress_protocol::resource::ProviderHealthStatus;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::HealthArgs;
use crate::paths::{PROVIDER_HEALTHS, health_path};
use crate::sending::{PageMeta, page, unless_fenced};

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const US: &str = "egress-proxies-operator";
const INSTALLATION: &str = "crawl.example.com/installation";
/// Objects of one page.
const PAGE: &str = "500";
/// The fields of the status, as the API names them.
const STATUS_FIELDS: [&str; 5] = ["type", "conditions", "targets", "targetsReady", "lastCheckTime"];

/// What became of a write that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Written {
    /// The object is ours and says so.
    Ours,
    /// The object is that installation's.
    Foreign(String),
    /// Nothing was sent: we do not lead, or are about to stop.
    Withheld,
}

/// What became of a cleanup that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cleaned {
    /// Nothing that should go is left.
    All,
    /// It was not gone through with: we do not lead, or are about to stop.
    Withheld,
}

/// The hands.
pub(super) struct Calls {
    pub(super) args: HealthArgs,
    /// Nothing is sent any more (PH-11).
    pub(super) stop: CancellationToken,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    items: Vec<Object>,
}

impl Calls {
    /// Reads, makes if absent, patches once (PH-20…23).
    pub(super) async fn write(&self, name: &str, status: &ProviderHealthStatus) -> Result<Written, String> {
        match self.try_write(name, status).await {
            Err(ApiError::Withheld(_)) => Ok(Written::Withheld),
            result => result.map_err(|error| error.to_string()),
        }
    }

    async fn try_write(&self, name: &str, status: &ProviderHealthStatus) -> Result<Written, ApiError> {
        let path = health_path(name);
        let object = match self.read(&path).await? {
            Some(object) => object,
            None => match self.send(&Request::create(PROVIDER_HEALTHS, &health_path(""), &self.object(name))).await {
                Ok(made) => read_answer(&made)?,
                // "Already exists" means read and patch (PH-22).
                Err(error) if error.code() == Some(409) => match self.read(&path).await? {
                    Some(object) => object,
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            },
        };
        if let Some(owner) = object.metadata.labels.get(INSTALLATION).filter(|owner| **owner != self.args.installation.as_str()) {
            return Ok(Written::Foreign(owner.clone()));
        }
        let body = patch(status, object.status, &object.metadata.resource_version);
        self.send(&Request::patch(PROVIDER_HEALTHS, &format!("{path}/status"), PatchKind::Merge, &body)).await?;
        Ok(Written::Ours)
    }

    /// Deletes our objects but these (PH-25, PH-26); what fails stops nothing.
    pub(super) async fn clean_up(&self, keep: &[Arc<str>]) -> Result<Cleaned, String> {
        match self.try_clean_up(keep).await {
            Ok(None) => Ok(Cleaned::All),
            Ok(Some((name, error))) => Err(format!("{name}: {error}")),
            Err(ApiError::Withheld(_)) => Ok(Cleaned::Withheld),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn try_clean_up(&self, keep: &[Arc<str>]) -> Result<Option<(String, ApiError)>, ApiError> {
        let selector = format!("{MANAGED_BY}={US},{INSTALLATION}={}", self.args.installation);
        let (mut failed, mut next) = (None, None::<String>);
        loop {
            let query = page(PAGE, Some(&selector), next.as_deref());
            let answer = self.send(&Request::list(PROVIDER_HEALTHS, &health_path(""), &query)).await?;
            let page: Page = read_answer(&answer)?;
            for Object { metadata, .. } in page.items {
                if keep.iter().any(|name| **name == metadata.name) {
                    continue;
                }
                let exactly_it = json!({"preconditions": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}});
                match self.send(&Request::delete(PROVIDER_HEALTHS, &health_path(&metadata.name), &exactly_it)).await {
                    Ok(_) => tracing::debug!(provider = metadata.name, "ProviderHealth deleted: its provider is not configured"),
                    Err(error) if error.code() == Some(404) => {}
                    Err(error @ ApiError::Withheld(_)) => return Err(error),
                    Err(error) => failed = Some((metadata.name, error)),
                }
            }
            next = page.metadata.next();
            if next.is_none() {
                return Ok(failed);
            }
        }
    }

    fn object(&self, name: &str) -> Value {
        json!({
            "apiVersion": "crawl.example.com/v1alpha1",
            "kind": "ProviderHealth",
            "metadata": {"name": name, "labels": {MANAGED_BY: US, INSTALLATION: self.args.installation.as_str()}},
        })
    }

    async fn read(&self, path: &str) -> Result<Option<Object>, ApiError> {
        match self.send(&Request::get(PROVIDER_HEALTHS, path)).await {
            Ok(answer) => read_answer(&answer).map(Some),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Within 10 s (PH-22), as long as we lead and are not stopping.
    async fn send(&self, request: &Request) -> Result<String, ApiError> {
        let guard = || unless_fenced(&self.args.fence);
        let sent = self.stop.run_until_cancelled(self.args.client.send(REQUEST, guard, request)).await;
        sent.unwrap_or_else(|| Err(ApiError::Withheld("this actor stops".to_owned())))
    }
}

fn read_answer<T: for<'a> Deserialize<'a>>(answer: &str) -> Result<T, ApiError> {
    serde_json::from_str(answer).map_err(|error| ApiError::Transport(format!("the answer cannot be read: {error}")))
}

/// All fields in full, so that nothing stale survives (PH-21), for the object as it was read.
fn patch(status: &ProviderHealthStatus, earlier: Option<Value>, version: &str) -> Value {
    let mut status = status.clone();
    if let Some(earlier) = earlier.and_then(|earlier| serde_json::from_value(earlier).ok()) {
        status.keep_times(&earlier);
    }
    let mut fields = serde_json::to_value(&status).unwrap_or_default();
    if let Some(fields) = fields.as_object_mut() {
        for name in STATUS_FIELDS {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    json!({"metadata": {"resourceVersion": version}, "status": fields})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_five_fields_are_sent_whatever_they_hold_ph_21() {
        let empty = patch(&ProviderHealthStatus::default(), None, "7");
        let fields = empty["status"].as_object().unwrap();
        assert!(fields.len() == 5 && fields.values().all(Value::is_null), "{empty}");
        let full = json!({"type": "local", "conditions": [], "targets": [{"name": "t", "ready": true, "lastTransitionTime": "2026-01-02T03:04:05Z"}],
            "targetsReady": "1/1", "lastCheckTime": "2026-01-02T03:04:05Z"});
        let status: ProviderHealthStatus = serde_json::from_value(full.clone()).unwrap();
        let earlier = json!({"targets": [{"name": "t", "ready": true, "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let sent = patch(&status, Some(earlier), "7");
        assert_eq!(sent["status"]["targets"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(sent["status"].as_object().unwrap().len(), full.as_object().unwrap().len(), "a field is missing in the table");
        assert_eq!(patch(&status, Some(json!({"targets": 5})), "7")["status"]["targets"], full["targets"], "what cannot be read is none");
    }
}

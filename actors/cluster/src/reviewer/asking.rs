//! The two questions to the API server: whose token it is, and whether they may.

use std::collections::BTreeMap;
use std::time::Duration;

use egress_kube::{ApiClient, ApiError, Request};
use egress_protocol::Secret;
use egress_protocol::review::Verdict;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Both questions together are answered within this: a scraper waits 10 s.
const WITHIN: Duration = Duration::from_secs(5);
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// An answer, of which only the status matters.
#[derive(Deserialize)]
struct Answer<T> {
    status: T,
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: User,
}

/// Handed on as it came.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
}

/// Asks both.
pub(super) async fn review(client: &ApiClient, token: &Secret, verb: &str, path: &str) -> Verdict {
    match ask(client, token, verb, path).await {
        Ok(verdict) => verdict,
        Err(error) => Verdict::Unavailable { reason: error.to_string().into() },
    }
}

async fn ask(client: &ApiClient, token: &Secret, verb: &str, path: &str) -> Result<Verdict, ApiError> {
    let until = Instant::now() + WITHIN;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token.expose() } });
    let TokenStatus { authenticated, user } = create(client, until, "tokenreviews", TOKEN_REVIEWS, &review).await?;
    if !authenticated || user.username.is_empty() {
        return Ok(Verdict::Unknown);
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "nonResourceAttributes": { "path": path, "verb": verb },
            "user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
        },
    });
    let AccessStatus { allowed } = create(client, until, "subjectaccessreviews", ACCESS_REVIEWS, &review).await?;
    let user = user.username.into();
    Ok(if allowed { Verdict::Allowed { user } } else { Verdict::Forbidden { user } })
}

/// The answer is read here: the library would print one that it cannot read, and it repeats the token.
async fn create<T: DeserializeOwned>(
    client: &ApiClient,
    until: Instant,
    kind: &'static str,
    path: &str,
    review: &Value,
) -> Result<T, ApiError> {
    let request = Request::create(kind, path, review);
    let text = client.send(until.saturating_duration_since(Instant::now()), || Ok(()), &request).await?;
    // The reader's own words may hold a piece of the text.
    let answer = serde_json::from_str::<Answer<T>>(&text);
    answer.map(|answer| answer.status).map_err(|_| ApiError::Transport(format!("the answer of {kind} cannot be read")))
}

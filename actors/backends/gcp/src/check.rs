//! Whether the project can be worked with (GC-19, GC-20, PH-38): one list of one instance with the filter of
//! `list_managed`, and, for show, the quotas of the regions that the entry names.

use egress_protocol::provider::TargetVerdict;
use egress_provider::Call;
use futures::StreamExt;
use tokio::time::Instant;

use crate::api::Api;
use crate::error::CallError;
use crate::model::{Region, VmPage};
use crate::request::Requests;

/// The quotas that a fleet of virtual machines with an address each uses up (GC-20).
const METRICS: [&str; 4] = ["CPUS", "INSTANCES", "IN_USE_ADDRESSES", "DISKS_TOTAL_GB"];
/// Regions that are read at once.
const AT_ONCE: usize = 8;

/// Rows in order; what the error itself is decides, not when it came (PH-33).
pub(crate) fn reason(error: &CallError) -> &'static str {
    match error {
        CallError::Ended | CallError::OutOfBudget(_) => "Timeout",
        CallError::Refused { status: 401, .. } => "Unauthorized",
        CallError::Refused { status: 403, .. } => "Forbidden",
        CallError::Refused { .. } | CallError::NoApiError { .. } => "APIError",
        CallError::Garbled(_) | CallError::Token(_) | CallError::Unanswered(_) | CallError::HostWentAway(_) | CallError::Fenced(_) => {
            "Unreachable"
        }
    }
}

/// Always one verdict.
pub(crate) async fn check(api: &Api, requests: &Requests, project: &str, regions: &[String], call: &Call) -> Vec<TargetVerdict> {
    let started = Instant::now();
    let listed: Result<VmPage, CallError> = api.read(requests.list(1, None), call).await;
    let latency = started.elapsed();
    let mut verdict = TargetVerdict {
        name: project.to_owned(),
        address: requests.host().to_owned(),
        ready: listed.is_ok(),
        reason: listed.as_ref().err().map_or("Reachable", reason),
        message: listed.as_ref().err().map(ToString::to_string).unwrap_or_default(),
        latency,
        details: Vec::new(),
    };
    verdict.details.extend(api.account(call).await.map(|account| ("account".to_owned(), account)));
    if verdict.ready {
        let reads: Vec<_> = regions.iter().map(|region| quotas(api, requests, region, call)).collect();
        verdict.details.extend(futures::stream::iter(reads).buffered(AT_ONCE).collect::<Vec<_>>().await.into_iter().flatten());
    }
    vec![verdict]
}

/// `quota.<region>.<METRIC>`; they never decide.
async fn quotas(api: &Api, requests: &Requests, region: &str, call: &Call) -> Vec<(String, String)> {
    match api.read::<Region>(requests.region(region), call).await {
        Ok(read) => METRICS
            .iter()
            .filter_map(|metric| {
                let quota = read.quotas.iter().find(|quota| quota.metric == *metric)?;
                Some((format!("quota.{region}.{metric}"), format!("{}/{}", quota.usage, quota.limit)))
            })
            .collect(),
        Err(_) => vec![(format!("quota.{region}"), "unavailable".to_owned())],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::TokenError;

    fn refused(status: u16, reason: &str) -> CallError {
        CallError::Refused { status, reasons: vec![reason.to_owned()], message: String::new(), retry_after: None }
    }

    /// GC-19.
    #[test]
    fn each_error_has_its_reason() {
        for (error, expected) in [
            (CallError::Ended, "Timeout"),
            (CallError::OutOfBudget(Duration::from_secs(60)), "Timeout"),
            (TokenError::Missing("no file".to_owned()).into(), "Unreachable"),
            (TokenError::Unreadable("no JSON".to_owned()).into(), "Unreachable"),
            (CallError::Unanswered("refused".to_owned()), "Unreachable"),
            (CallError::Garbled("no JSON".to_owned()), "Unreachable"),
            (CallError::HostWentAway("gone".to_owned()), "Unreachable"),
            (refused(401, "authError"), "Unauthorized"),
            (refused(403, "forbidden"), "Forbidden"),
            (refused(403, "accessNotConfigured"), "Forbidden"),
            (refused(429, "rateLimitExceeded"), "APIError"),
            (refused(500, "backendError"), "APIError"),
            (CallError::NoApiError { status: 502, retry_after: None }, "APIError"),
        ] {
            assert_eq!(reason(&error), expected, "{error}");
        }
    }
}

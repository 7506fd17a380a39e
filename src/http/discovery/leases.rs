//! Leases: grant, renew, release, report, read, explain (LS-2, 4 to 7, 13, 17), and what this version refuses.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use egress_protocol::Reply;
use egress_protocol::lease::request::{GrantBody, RenewBody, ReportBody};
use egress_protocol::lease::view::write_list;
use egress_protocol::lease::{
    BrokerMessage, Caller, Explain, Lease, LeaseError, LeaseId, LeaseList, LeaseView, ReportAnswer, parse_grant, parse_lease_query,
    parse_renew, parse_report,
};
use http::StatusCode;

use super::{Discovery, NOT_YET, PathOf, never_stored, no_content, no_idempotency_key, no_query, path};
use crate::http::body;
use crate::http::connection::Exchange;
use crate::http::problem::Refused;

/// Leases a proxy. `count`, `distinct`, `wait`, `session`, `sticky` and the header `Idempotency-Key` are refused by
/// this version.
#[utoipa::path(post, path = "/v1/leases", tag = "leases", operation_id = "grantLease",
    request_body = GrantBody,
    responses((status = 201, description = "The lease; with the proxy's credentials if it needs them", body = Lease)))]
pub(crate) async fn grant(State(api): State<Arc<Discovery>>, request: Request) -> Result<Response, Refused> {
    let caller = api.admit_lease_call(request.headers())?;
    let (mut head, incoming) = request.into_parts();
    no_query(&head.uri)?;
    no_idempotency_key(&head.headers)?;
    let bytes = api.body(&head.headers, incoming).await?;
    let request = Box::new(parse_grant(&bytes)?);
    let exchange = head.extensions.remove::<Arc<Exchange>>();
    let granted = {
        let caller = caller.clone();
        api.ask(|reply_to| BrokerMessage::Grant { request, caller, reply_to }).await??
    };
    if let Some(exchange) = exchange {
        release_unless_written(&api, &exchange, granted.record.id, caller);
    }
    let response = one_lease(StatusCode::CREATED, &granted);
    Ok(if granted.credentials.is_some() { never_stored(response) } else { response })
}

/// A grant that the client never sees would hold its place for nothing (LS-2).
fn release_unless_written(api: &Arc<Discovery>, exchange: &Exchange, id: LeaseId, caller: Caller) {
    let api = Arc::clone(api);
    exchange.unless_written(move || {
        let (nobody, _) = tokio::sync::oneshot::channel();
        let reply_to = Reply::from(nobody);
        if api.broker.send(BrokerMessage::Release { id, caller, reply_to }).is_ok() {
            tracing::debug!(lease = %id, "grant released: its answer could not be written");
        }
    });
}

/// Running leases, ordered by id: the caller's own, or everybody's for a token that may do all.
#[utoipa::path(get, path = "/v1/leases", tag = "leases", operation_id = "listLeases",
    params(
        ("owner" = Option<String>, Query, description = "As given in the grant"),
        ("proxy" = Option<String>, Query, description = "`NAMESPACE/NAME`"),
        ("limit" = Option<u32>, Query, description = "At most so many", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`nextCursor` of the page before; opaque"),
    ),
    responses((status = 200, description = "A page", body = LeaseList)))]
pub(crate) async fn list(State(api): State<Arc<Discovery>>, request: Request) -> Result<Response, Refused> {
    let caller = api.admit_lease_call(request.headers())?;
    let query = parse_lease_query(request.uri().query().unwrap_or_default())?;
    let (filter, after, limit) = (query.filter, query.after, query.limit);
    let (items, next) = api.ask(|reply_to| BrokerMessage::ListLeases { filter, after, limit, caller, reply_to }).await?;
    let mut out = Vec::new();
    write_list(&items, next.as_deref(), &mut out);
    Ok(body::json_bytes(StatusCode::OK, out))
}

/// One lease, running or ended within the last 10 minutes.
#[utoipa::path(get, path = "/v1/leases/{id}", tag = "leases", operation_id = "getLease",
    params(("id" = String, Path)),
    responses((status = 200, description = "The lease", body = Lease)))]
pub(crate) async fn one(State(api): State<Arc<Discovery>>, id: PathOf<String>, request: Request) -> Result<Response, Refused> {
    let caller = api.admit_lease_call(request.headers())?;
    let id = known_form(id)?;
    no_query(request.uri())?;
    let lease = api.ask(|reply_to| BrokerMessage::Get { id, caller, reply_to }).await??;
    Ok(one_lease(StatusCode::OK, &lease))
}

/// Gives a lease back. Idempotent, also for an unknown or ended one.
#[utoipa::path(delete, path = "/v1/leases/{id}", tag = "leases", operation_id = "releaseLease",
    params(("id" = String, Path)),
    responses((status = 204, description = "It does not run any more")))]
pub(crate) async fn release(State(api): State<Arc<Discovery>>, id: PathOf<String>, request: Request) -> Result<Response, Refused> {
    let caller = api.admit_lease_call(request.headers())?;
    let id = path(id)?;
    no_query(request.uri())?;
    if let Some(id) = LeaseId::parse(&id) {
        api.ask(|reply_to| BrokerMessage::Release { id, caller, reply_to }).await??;
    }
    Ok(no_content())
}

/// Lets a running lease end later. A body is optional.
#[utoipa::path(post, path = "/v1/leases/{id}/renew", tag = "leases", operation_id = "renewLease",
    params(("id" = String, Path)),
    request_body(content = Option<RenewBody>, content_type = "application/json"),
    responses((status = 200, description = "The lease as it is then", body = Lease)))]
pub(crate) async fn renew(State(api): State<Arc<Discovery>>, id: PathOf<String>, request: Request) -> Result<Response, Refused> {
    let caller = api.admit_lease_call(request.headers())?;
    let (head, incoming) = request.into_parts();
    no_query(&head.uri)?;
    no_idempotency_key(&head.headers)?;
    let bytes = api.body(&head.headers, incoming).await?;
    let ttl = parse_renew(&bytes)?.ttl;
    let id = known_form(id)?;
    let lease = api.ask(|reply_to| BrokerMessage::Renew { id, ttl, caller, reply_to }).await??;
    Ok(one_lease(StatusCode::OK, &lease))
}

/// Tells what was seen through the proxy. `counts` is refused by this version.
#[utoipa::path(post, path = "/v1/leases/{id}/report", tag = "leases", operation_id = "reportLease",
    params(("id" = String, Path)),
    request_body = ReportBody,
    responses((status = 200, description = "What it did", body = ReportAnswer)))]
pub(crate) async fn report(State(api): State<Arc<Discovery>>, id: PathOf<String>, request: Request) -> Result<Response, Refused> {
    let caller = api.admit_lease_call(request.headers())?;
    let (head, incoming) = request.into_parts();
    no_query(&head.uri)?;
    no_idempotency_key(&head.headers)?;
    let bytes = api.body(&head.headers, incoming).await?;
    let request = Box::new(parse_report(&bytes)?);
    let id = known_form(id)?;
    let answer = api.ask(|reply_to| BrokerMessage::Report { id, request, caller, reply_to }).await??;
    Ok(body::json(StatusCode::OK, &answer))
}

/// Says for a lease request what would be granted, and which rule keeps each proxy out. Grants nothing.
#[utoipa::path(post, path = "/v1/leases/explain", tag = "leases", operation_id = "explainLease",
    request_body = GrantBody,
    responses((status = 200, description = "Up to 100 candidates", body = Explain)))]
pub(crate) async fn explain(State(api): State<Arc<Discovery>>, request: Request) -> Result<Response, Refused> {
    let caller = api.admit_lease_call(request.headers())?;
    let (head, incoming) = request.into_parts();
    no_query(&head.uri)?;
    no_idempotency_key(&head.headers)?;
    let bytes = api.body(&head.headers, incoming).await?;
    let request = Box::new(parse_grant(&bytes)?);
    let answer = api.ask(|reply_to| BrokerMessage::Explain { request, caller, reply_to }).await?;
    Ok(body::json(StatusCode::OK, &answer))
}

/// Calls in bulk: refused, never ignored.
pub(crate) async fn bulk(State(api): State<Arc<Discovery>>, request: Request) -> Result<Response, Refused> {
    api.admit_lease_call(request.headers())?;
    Err(Refused::field("ids", NOT_YET))
}

/// Calls about sessions: likewise.
pub(crate) async fn sessions(State(api): State<Arc<Discovery>>, request: Request) -> Result<Response, Refused> {
    api.admit_lease_call(request.headers())?;
    Err(Refused::field("session", NOT_YET))
}

/// What does not have the form of an id is an unknown one.
fn known_form(id: PathOf<String>) -> Result<LeaseId, Refused> {
    LeaseId::parse(&path(id)?).ok_or_else(|| LeaseError::UnknownLease.into())
}

fn one_lease(status: StatusCode, lease: &LeaseView) -> Response {
    let mut out = Vec::new();
    lease.write_json(&mut out);
    body::json_bytes(status, out)
}

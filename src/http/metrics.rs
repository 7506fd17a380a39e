//! `/metrics` (OB-1): what is counted as it happens, and what is read at scrape time from the parts' answers. With
//! `--metrics-secure` for bearers only whom the cluster's own rules allow it.

mod review;
mod scrape;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use egress_protocol::review::{self as reviewer, ReviewMessage};
use egress_supervision::{Address, System};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

use egress_protocol::lease::ProblemCode;

use crate::http::problem::Refused;
use crate::http::query::Query;
use scrape::Scrape;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The registry and the parts to ask.
#[derive(Debug, Clone)]
pub struct Exposition {
    registry: Arc<Registry>,
    scrape: Arc<Scrape>,
    /// Who says whether a bearer may; `None`: everybody may.
    reviewer: Option<Address<ReviewMessage>>,
}

impl Exposition {
    /// All families of a tree.
    pub fn new(system: &System) -> Self {
        let mut registry = Registry::default();
        system.metrics().register(&mut registry);
        let scrape = Arc::new(Scrape::new(system.clone()));
        registry.register_collector(Box::new(Arc::clone(&scrape)));
        Self { registry: Arc::new(registry), scrape, reviewer: None }
    }

    /// The same for those only whom the reviewer of that tree allows it.
    #[must_use]
    pub fn reviewed(self, system: &System) -> Self {
        Self { reviewer: Some(system.address(reviewer::ACTOR_ID)), ..self }
    }

    /// The route.
    pub fn routes(self) -> Router {
        Router::new().route("/metrics", get(metrics)).with_state(self)
    }

    /// The text, in the format that `Accept` asks for, and its media type.
    pub async fn render(&self, headers: &HeaderMap) -> Result<(String, &'static str), std::fmt::Error> {
        self.scrape.refresh().await;
        let mut out = String::new();
        if wants_open_metrics(headers) {
            text::encode(&mut out, &self.registry)?;
            Ok((out, OPEN_METRICS))
        } else {
            prometheus_text::encode(&mut out, &self.registry)?;
            Ok((out, prometheus_text::CONTENT_TYPE))
        }
    }
}

async fn metrics(State(exposition): State<Exposition>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    if let Some(reviewer) = &exposition.reviewer
        && let Err(answer) = review::authorize(reviewer, &parts.headers).await
    {
        return answer;
    }
    scrape(&exposition, &parts).await.unwrap_or_else(IntoResponse::into_response)
}

async fn scrape(exposition: &Exposition, request: &Parts) -> Result<Response, Refused> {
    Query::parse(request.uri.query()).finish()?;
    match exposition.render(&request.headers).await {
        Ok((text, media_type)) => {
            let mut response = Response::new(axum::body::Body::from(text));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
            Ok(response)
        }
        Err(error) => Err(Refused::new(ProblemCode::Internal, format!("the metrics cannot be written: {error}"))),
    }
}

/// Whether OpenMetrics is asked for at least as much as plain text.
fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let (mut open, mut plain) = (0.0_f32, 0.0_f32);
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let essence = parts.next().unwrap_or_default();
            let weight = parts.find_map(|p| p.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
            match essence {
                "application/openmetrics-text" => open = open.max(weight),
                "text/plain" | "text/*" | "*/*" => plain = plain.max(weight),
                _ => {}
            }
        }
    }
    open > 0.0 && open >= plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_decides_the_format_ob_1() {
        let accept = |text: &str| wants_open_metrics(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_str(text).unwrap())]));
        assert!(accept("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"));
        assert!(accept("application/openmetrics-text"));
        assert!(!accept("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.2"));
        assert!(!accept("*/*"));
        assert!(!wants_open_metrics(&HeaderMap::new()));
    }
}

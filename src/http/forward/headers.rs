//! Which headers travel beyond one connection (RFC 9110, 7.6.1).

use http::{HeaderMap, HeaderName, header};

/// Of one connection, whatever `Connection` says.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// All but those of the one connection they came over.
pub(super) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<&str> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let hop = |name: &HeaderName| {
        HOP_BY_HOP.contains(name)
            || matches!(name.as_str(), "keep-alive" | "proxy-connection")
            || named.iter().any(|named| named.eq_ignore_ascii_case(name.as_str()))
    };
    headers.iter().filter(|(name, _)| !hop(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// An error and its causes, each said once.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_one_connection_stays_there_and_all_else_travels() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer t"),
            ("idempotency-key", "k"),
            ("traceparent", "00-1-2-01"),
            ("x-mine", "a"),
            ("x-mine", "b"),
            ("connection", "close, X-Hop"),
            ("connection", "x-more"),
            ("x-hop", "1"),
            ("x-more", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "Basic x"),
            ("proxy-connection", "keep-alive"),
            ("upgrade", "h2c"),
        ] {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let left = end_to_end(&headers);
        let mut names: Vec<&str> = left.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "idempotency-key", "traceparent", "x-mine"]);
        assert_eq!(left.get_all("x-mine").iter().count(), 2);
    }
}

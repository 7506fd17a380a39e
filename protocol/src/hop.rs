//! Which header fields stay on this hop (RFC 9110 §7.6.1). How a message's end is told is hyper's business on both sides,
//! so that no two readers can disagree about it.

use http::HeaderMap;
use http::header::{self, HeaderName};

/// Never forwarded. `Via`, `Forwarded` and the like are neither added nor removed: an egress proxy does not announce who
/// stands behind it.
const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
];

/// Removes what `Connection` names and what is always hop-by-hop.
pub fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| token.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        strip(&mut headers);
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_connection_names_stays_on_this_hop() {
        let left = stripped(&[
            ("connection", "close, X-Hop"),
            ("connection", "content-length"),
            ("x-hop", "1"),
            ("content-length", "5"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic c2VjcmV0"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
            ("x-end", "2"),
        ]);
        assert_eq!(names(&left), ["accept", "x-end"]);
    }

    #[test]
    fn what_belongs_to_one_connection_stays_there_and_all_else_travels() {
        let left = stripped(&[
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
        ]);
        assert_eq!(names(&left), ["authorization", "idempotency-key", "traceparent", "x-mine"]);
        assert_eq!(left.get_all("x-mine").iter().count(), 2);
    }
}

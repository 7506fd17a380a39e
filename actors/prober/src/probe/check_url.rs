//! The check URL as a probe needs it.

use http::Uri;
use http::uri::{PathAndQuery, Scheme};

/// A URL taken apart. Messages name its host, never its path: a query may hold a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckUrl {
    /// As written, for absolute form.
    pub(super) uri: Uri,
    pub(super) tls: bool,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl CheckUrl {
    /// `None` when it is not an http or https URL with a host; validation should have refused it.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let tls = match uri.scheme()? {
            scheme if *scheme == Scheme::HTTPS => true,
            scheme if *scheme == Scheme::HTTP => false,
            _ => return None,
        };
        let host = uri.host().map(|host| host.trim_start_matches('[').trim_end_matches(']').to_owned()).filter(|host| !host.is_empty())?;
        let port = match uri.port_u16() {
            Some(0) => return None,
            Some(port) => port,
            None if tls => 443,
            None => 80,
        };
        Some(Self { tls, host, port, uri })
    }

    /// `host:port` as CONNECT takes it.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') { format!("[{}]:{}", self.host, self.port) } else { format!("{}:{}", self.host, self.port) }
    }

    /// The `Host` header of the request to the target: the port only where it is not the scheme's.
    pub(super) fn host_header(&self) -> String {
        let default = if self.tls { 443 } else { 80 };
        let authority = self.authority();
        match authority.strip_suffix(&format!(":{default}")) {
            Some(host) => host.to_owned(),
            None => authority,
        }
    }

    /// Path and query for origin form.
    pub(super) fn path(&self) -> Uri {
        self.uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), |path: PathAndQuery| Uri::from(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        for (url, tls, authority, header, path) in [
            ("https://www.gstatic.com/generate_204", true, "www.gstatic.com:443", "www.gstatic.com", "/generate_204"),
            ("http://a.example", false, "a.example:80", "a.example", "/"),
            ("HTTP://a.example:8080/x?y=z", false, "a.example:8080", "a.example:8080", "/x?y=z"),
            ("https://[2001:db8::1]:8443/", true, "[2001:db8::1]:8443", "[2001:db8::1]:8443", "/"),
            ("https://[2001:db8::1]", true, "[2001:db8::1]:443", "[2001:db8::1]", "/"),
            ("https://a.example?q", true, "a.example:443", "a.example", "/?q"),
            ("http://192.0.2.1:443/", false, "192.0.2.1:443", "192.0.2.1:443", "/"),
        ] {
            let parsed = CheckUrl::parse(url).unwrap();
            assert_eq!(
                (parsed.tls, parsed.authority(), parsed.host_header(), parsed.path().to_string()),
                (tls, authority.to_owned(), header.to_owned(), path.to_owned()),
                "{url}"
            );
        }
        for url in ["", "a.example", "ftp://a.example/", "http://", "http:///x", "https://a.example:0/"] {
            assert_eq!(CheckUrl::parse(url), None, "{url}");
        }
    }
}

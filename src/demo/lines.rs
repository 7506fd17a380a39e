//! The three lines to paste.

use std::net::SocketAddr;
use std::path::PathBuf;

/// How the lines name themselves to the API.
#[derive(Debug, Clone)]
pub enum Auth {
    /// The API is open.
    Open,
    /// The token is in the environment.
    Environment,
    /// The token is in a file.
    File(PathBuf),
}

impl Auth {
    /// The header, without the token itself.
    fn option(&self) -> String {
        match self {
            Self::Open => String::new(),
            Self::Environment => r#" -H "Authorization: Bearer $DISCOVERY_TOKEN""#.to_owned(),
            Self::File(path) => {
                let path = path.display().to_string().replace('\'', r"'\''");
                format!(r#" -H "Authorization: Bearer $(awk '$1 ~ /^[^#]/ {{print (NF > 1 ? $2 : $1); exit}}' '{path}')""#)
            }
        }
    }
}

/// Lists the proxies, leases one, fetches a page through one that it leases first.
pub fn curl_lines(api: SocketAddr, page: SocketAddr, auth: &Auth) -> [(&'static str, String); 3] {
    let auth = auth.option();
    let lease = |more: &str, ttl: &str, selector: &str| {
        format!(
            r#"curl -s{more}{auth} http://{api}/v1/leases -H 'Content-Type: application/json' -d '{{"ttl": "{ttl}", "owner": "me"{selector}}}'"#
        )
    };
    let selected = lease(r" -w '\n'", "5m", r#", "selector": {"attributes": {"geo": "de"}}"#);
    let taken = lease("", "30s", "");
    [
        ("list the proxies", format!(r"curl -s -w '\n'{auth} http://{api}/v1/proxies")),
        ("lease one", selected),
        (
            "lease one and fetch a page through it",
            format!(r#"curl -s --noproxy '' -x "$({taken} | sed 's/.*"url":"\([^"]*\)".*/\1/')" http://{page}/"#),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_holds_a_token() {
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        for (auth, expected) in
            [(Auth::Open, ""), (Auth::Environment, "$DISCOVERY_TOKEN"), (Auth::File("/tmp/it's".into()), r"'/tmp/it'\''s'")]
        {
            for (_, line) in curl_lines(at, at, &auth) {
                assert!(line.starts_with("curl -s") && line.contains(expected), "{line}");
                assert!(!line.contains('\n'));
            }
        }
    }
}

//! Which names a listener on loopback answers for: none but loopback's own, so that a web page cannot reach it by
//! rebinding a name (LS-22).

use std::net::IpAddr;

use http::{Request, Version, header};

use egress_protocol::lease::ProblemCode;

use crate::http::problem::Refused;

/// Refuses a request that was meant for another host. Every `Host` and the target's authority are looked at.
pub(super) fn check<B>(request: &Request<B>) -> Result<(), Refused> {
    let refuse = |host: &str| {
        let host: String = host.chars().take(253).collect();
        Err(Refused::new(ProblemCode::HostNotAllowed, format!("Host {host} is neither a loopback address nor localhost")))
    };
    if let Some(authority) = request.uri().authority()
        && !is_loopback(authority.as_str())
    {
        return refuse(authority.as_str());
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => match host.to_str() {
            Ok(host) if is_loopback(host) => Ok(()),
            Ok(host) => refuse(host),
            Err(_) => Err(Refused::field("Host", "is not visible ASCII")),
        },
        (Some(_), Some(_)) => Err(Refused::field("Host", "is given twice")),
        (None, _) if request.version() == Version::HTTP_10 => Ok(()),
        (None, _) => Err(Refused::field("Host", "is missing")),
    }
}

/// Whether `HOST[:PORT]` names this machine's loopback.
fn is_loopback(host: &str) -> bool {
    let name = if let Some(rest) = host.strip_prefix('[') {
        match rest.split_once(']') {
            Some((inside, "")) => inside,
            Some((inside, port)) if is_port(port.strip_prefix(':')) => inside,
            _ => return false,
        }
    } else {
        match host.split_once(':') {
            None => host,
            Some((name, port)) if is_port(Some(port)) => name,
            Some(_) => return false,
        }
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn is_port(text: Option<&str>) -> bool {
    text.is_some_and(|t| t.is_empty() || (t.len() <= 5 && t.bytes().all(|b| b.is_ascii_digit())))
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_loopback_names_are_loopback() {
        for host in ["localhost", "LOCALHOST:8090", "127.0.0.1", "127.8.9.1:1", "[::1]", "[::1]:8090", "[::ffff:127.0.0.1]:1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.com",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "10.0.0.1",
            "127.1",
            "[::2]",
            "a@127.0.0.1",
            "0.0.0.0",
            "localhost:x",
            "::1",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}

//! References to images, as registries and kubelets read them: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.

/// The longest.
const LIMIT: usize = 512;
/// The longest of what is before tag and digest.
const NAME_LIMIT: usize = 255;

const RULE: &str = "must be an image reference, [HOST[:PORT]/]PATH[:TAG][@DIGEST], such as ubuntu/squid:6.6-24.04_edge";

/// Whether a text is a reference; the error says what it must be.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.len() > LIMIT {
        return Err(format!("must be at most {LIMIT} characters, is {}", text.len()));
    }
    if is_reference(text) { Ok(()) } else { Err(RULE.to_owned()) }
}

fn is_reference(text: &str) -> bool {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    // A colon behind the last slash begins a tag; before it, a port.
    let last = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest.get(last..).and_then(|part| part.find(':')).map(|colon| last + colon) {
        Some(colon) => (rest.get(..colon).unwrap_or_default(), rest.get(colon + 1..)),
        None => (rest, None),
    };
    is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

fn is_name(name: &str) -> bool {
    let mut parts: Vec<&str> = name.split('/').collect();
    if let [first, _, ..] = parts.as_slice()
        && is_meant_as_host(first)
    {
        if !is_host(first) {
            return false;
        }
        parts.remove(0);
    }
    name.len() <= NAME_LIMIT && parts.iter().all(|part| is_component(part))
}

fn is_meant_as_host(part: &str) -> bool {
    part.contains(['.', ':', '[']) || part == "localhost" || part.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_host(part: &str) -> bool {
    let (host, port) = match part.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
            ("v6", rest.strip_prefix(':').or(rest.is_empty().then_some("1")))
        }
        Some(_) => return false,
        None => part.split_once(':').map_or((part, Some("1")), |(host, port)| (host, Some(port))),
    };
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = bytes.first().is_some_and(u8::is_ascii_alphanumeric) && bytes.last().is_some_and(u8::is_ascii_alphanumeric);
        ends && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    host.split('.').all(label) && port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Lower-case letters and digits, separated by one `.`, one or two `_`, or any number of `-`.
fn is_component(part: &str) -> bool {
    let mut separator = String::new();
    let mut any = false;
    for c in part.chars() {
        match c {
            'a'..='z' | '0'..='9' => {
                let fits = matches!(separator.as_str(), "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-');
                if !fits || (!any && !separator.is_empty()) {
                    return false;
                }
                separator.clear();
                any = true;
            }
            '.' | '_' | '-' => separator.push(c),
            _ => return false,
        }
    }
    any && separator.is_empty()
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= 128 && tag.bytes().next().is_some_and(word) && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let named = algorithm.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && algorithm.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+._-".contains(&b));
    let length = match algorithm {
        "sha256" => hex.len() == 64,
        "sha512" => hex.len() == 128,
        _ => hex.len() >= 32,
    };
    named && length && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_told_from_what_is_none() {
        let digest = format!("sha256:{}", "a1".repeat(32));
        let good = [
            "squid".to_owned(),
            "ubuntu/squid:6.6-24.04_edge".to_owned(),
            "registry.example:5000/team/squid".to_owned(),
            "127.0.0.1:5000/a__b/c-d--e.f:v1".to_owned(),
            "[2001:db8::1]:5000/squid:1".to_owned(),
            "localhost/squid".to_owned(),
            "Registry.Example/squid".to_owned(),
            format!("squid@{digest}"),
            format!("a.example/squid:1@{digest}"),
        ];
        for text in &good {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        let bad = [
            "",
            " ",
            "squid ",
            "squid latest",
            "https://a.example/squid",
            "UPPER",
            "ubuntu/Squid",
            "a//b",
            "/squid",
            "squid/",
            "squid:",
            "squid:-1",
            "squid@",
            "squid@sha256:12",
            "squid:a:b",
            "-squid",
            "a..b/c_",
            "a___b",
            "a.example:0/squid",
            "a.example:x/squid",
            "a_b.example/squid",
            "[::1/squid",
            "squid\nhttp_access allow all",
            "squid@sha256:zz",
        ];
        for text in bad {
            assert!(check(text).is_err(), "{text:?}");
        }
        assert!(check(&format!("squid:{}", "1".repeat(128))).is_ok());
        assert!(check(&format!("squid:{}", "1".repeat(129))).is_err());
        assert!(check(&format!("{}/squid@{digest}", "a".repeat(500))).unwrap_err().contains("512"));
    }
}

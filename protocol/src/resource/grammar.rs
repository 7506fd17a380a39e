//! The grammars of the kinds, each one RE2 pattern (OP-32).
//!
//! A pattern is used as it stands in two places: in the CEL rules of the CRD, where Go's RE2 reads it, and here,
//! where the crate `regex` does. So only what both read alike is used: ASCII classes, counted repeats, groups; no
//! `\d`, no flags, no quotes.

use std::sync::LazyLock;

use regex::Regex;

macro_rules! h16 {
    () => {
        "[0-9A-Fa-f]{1,4}"
    };
}

macro_rules! byte {
    () => {
        "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
    };
}

macro_rules! ipv4 {
    () => {
        concat!("(", byte!(), r"\.){3}", byte!())
    };
}

#[rustfmt::skip]
macro_rules! ipv6 {
    () => {
        concat!(
            "((", h16!(), ":){7}", h16!(),
            "|(", h16!(), ":){1,7}:",
            "|(", h16!(), ":){1,6}:", h16!(),
            "|(", h16!(), ":){1,5}(:", h16!(), "){1,2}",
            "|(", h16!(), ":){1,4}(:", h16!(), "){1,3}",
            "|(", h16!(), ":){1,3}(:", h16!(), "){1,4}",
            "|(", h16!(), ":){1,2}(:", h16!(), "){1,5}",
            "|", h16!(), ":(:", h16!(), "){1,6}",
            "|:((:", h16!(), "){1,7}|:)",
            "|(", h16!(), ":){6}", ipv4!(),
            "|::(", h16!(), ":){0,5}", ipv4!(),
            "|", h16!(), "::(", h16!(), ":){0,4}", ipv4!(),
            "|", h16!(), ":", h16!(), "::(", h16!(), ":){0,3}", ipv4!(),
            "|(", h16!(), ":){2}", h16!(), "::(", h16!(), ":){0,2}", ipv4!(),
            "|(", h16!(), ":){3}", h16!(), "::(", h16!(), ":)?", ipv4!(),
            "|(", h16!(), ":){4}", h16!(), "::", ipv4!(),
            ")"
        )
    };
}

// The last label holds a letter: `1.2.3` and `999.1.1.1` are mistyped addresses, not names.
macro_rules! dns_name {
    () => {
        r"([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?\.)*([0-9][-0-9]*)?[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?"
    };
}

macro_rules! port {
    () => {
        "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
    };
}

macro_rules! subdomain {
    () => {
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    };
}

/// A DNS name, an IPv4 address, or an IPv6 address without brackets. Bounds: [`HOST_LIMIT`], [`LABEL_LIMIT`].
pub const HOST: &str = concat!("^(", dns_name!(), "|", ipv4!(), "|", ipv6!(), ")$");
/// An absolute http or https URL in ASCII: a host, no user info, a port of 1–65535 or none, no fragment.
pub const URL: &str = concat!(
    "^https?://(",
    dns_name!(),
    "|",
    ipv4!(),
    r"|\[",
    ipv6!(),
    r"\])(:",
    port!(),
    ")?",
    r"([/?]([-A-Za-z0-9._~:/?@!$&()*+,;=\[\]]|%[0-9A-Fa-f]{2})*)?$"
);
/// A label key: an optional DNS prefix and a name. Bound of the prefix: [`PREFIX_LIMIT`].
pub const LABEL_KEY: &str = concat!("^(", subdomain!(), "/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$");
/// A label value, empty ones included.
pub const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";
/// A DNS-1123 label; bound: [`LABEL_LIMIT`].
pub const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS-1123 subdomain, as names of objects are; bound: [`NAME_LIMIT`].
pub const DNS_SUBDOMAIN: &str = concat!("^", subdomain!(), "$");
/// A key in a Secret; bound: [`NAME_LIMIT`].
pub const SECRET_KEY: &str = "^[-._A-Za-z0-9]+$";

/// Characters of a host.
pub const HOST_LIMIT: usize = 253;
/// Characters of one label of a DNS name, and of a label's value.
pub const LABEL_LIMIT: usize = 63;
/// Characters of an object's name.
pub const NAME_LIMIT: usize = 253;
/// Characters of a label key's prefix.
pub const PREFIX_LIMIT: usize = 253;

/// One compiled pattern.
#[derive(Debug)]
pub struct Grammar {
    pattern: &'static str,
    compiled: LazyLock<Option<Regex>>,
}

macro_rules! grammar {
    ($(#[$doc:meta])* $name:ident, $pattern:ident) => {
        $(#[$doc])*
        pub static $name: Grammar = Grammar { pattern: $pattern, compiled: LazyLock::new(|| Regex::new($pattern).ok()) };
    };
}

grammar!(
    /// [`HOST`].
    HOST_GRAMMAR, HOST
);
grammar!(
    /// [`URL`].
    URL_GRAMMAR, URL
);
grammar!(
    /// [`LABEL_KEY`].
    LABEL_KEY_GRAMMAR, LABEL_KEY
);
grammar!(
    /// [`LABEL_VALUE`].
    LABEL_VALUE_GRAMMAR, LABEL_VALUE
);
grammar!(
    /// [`DNS_LABEL`].
    DNS_LABEL_GRAMMAR, DNS_LABEL
);
grammar!(
    /// [`DNS_SUBDOMAIN`].
    DNS_SUBDOMAIN_GRAMMAR, DNS_SUBDOMAIN
);
grammar!(
    /// [`SECRET_KEY`].
    SECRET_KEY_GRAMMAR, SECRET_KEY
);

impl Grammar {
    /// Whether the whole text is of this grammar.
    pub fn matches(&self, text: &str) -> bool {
        self.compiled.as_ref().is_some_and(|regex| regex.is_match(text))
    }

    /// The pattern.
    pub const fn pattern(&self) -> &'static str {
        self.pattern
    }
}

/// Whether a text is a DNS-1123 label of at most 63 characters: a provider entry, a namespace, an installation id.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL_LIMIT && DNS_LABEL_GRAMMAR.matches(text)
}

/// Whether a text is a DNS-1123 subdomain of at most 253 characters: the name of an object.
pub fn is_object_name(text: &str) -> bool {
    text.len() <= NAME_LIMIT && DNS_SUBDOMAIN_GRAMMAR.matches(text)
}

/// Whether a text is a label key, the bound of its prefix included.
pub fn is_label_key(text: &str) -> bool {
    text.find('/').unwrap_or(0) <= PREFIX_LIMIT && LABEL_KEY_GRAMMAR.matches(text)
}

/// Whether a text is a label value of at most 63 characters.
pub fn is_label_value(text: &str) -> bool {
    text.len() <= LABEL_LIMIT && LABEL_VALUE_GRAMMAR.matches(text)
}

/// Whether a text is a host, the bounds included.
pub fn is_host(text: &str) -> bool {
    text.len() <= HOST_LIMIT && HOST_GRAMMAR.matches(text) && text.split('.').all(|label| label.len() <= LABEL_LIMIT)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_pattern_compiles_and_can_stand_in_a_raw_cel_string() {
        for grammar in [
            &HOST_GRAMMAR,
            &URL_GRAMMAR,
            &LABEL_KEY_GRAMMAR,
            &LABEL_VALUE_GRAMMAR,
            &DNS_LABEL_GRAMMAR,
            &DNS_SUBDOMAIN_GRAMMAR,
            &SECRET_KEY_GRAMMAR,
        ] {
            assert!(grammar.compiled.is_some(), "{}", grammar.pattern());
            assert!(!grammar.pattern().contains(['"', '\'', '\n']), "{}", grammar.pattern());
            assert!(!grammar.pattern().contains("(?"), "{}", grammar.pattern());
        }
    }

    #[test]
    fn hosts() {
        for host in [
            "px-1",
            "a.b",
            "3proxy.example",
            "3proxy",
            "xn--bcher-kva.example",
            "192.0.2.7",
            "::1",
            "2001:db8::7",
            "::ffff:192.0.2.7",
            "A.example",
        ] {
            assert!(is_host(host), "{host}");
        }
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = format!("{}.example", "a.".repeat(123));
        for host in [
            "",
            " ",
            "a b",
            "http://a",
            "a:3128",
            "[::1]",
            "a/b",
            "user@a",
            "-a",
            "a-",
            "a..b",
            ".a",
            "a.",
            "1.2.3",
            "999.1.1.1",
            "01.2.3.4",
            "fe80::1%eth0",
            "1::2::3",
            "a_b",
            "bücher.example",
            "a\n",
            &long_label,
            &long_name,
        ] {
            assert!(!is_host(host), "{host:?}");
        }
    }

    #[test]
    fn urls() {
        for url in [
            "https://www.gstatic.com/generate_204",
            "http://a",
            "http://a:1",
            "http://a:65535/x?y=z",
            "https://192.0.2.7:8443/",
            "http://[2001:db8::1]:80/a%20b",
            "http://a?q",
        ] {
            assert!(URL_GRAMMAR.matches(url), "{url}");
        }
        for url in [
            "",
            "a",
            "//a",
            "ftp://a",
            "HTTP://a",
            "http://",
            "http:///x",
            "http://u:p@a/",
            "http://u@a",
            "http://a:0",
            "http://a:65536",
            "http://a:",
            "http://a:080",
            "http://a b",
            "http://a/ü",
            "http://a/#f",
            "http://a/%zz",
            "http://::1/",
            "http://[::1",
            "http://a/\n",
            "http://a/'",
            "http://a\\b",
        ] {
            assert!(!URL_GRAMMAR.matches(url), "{url:?}");
        }
    }

    #[test]
    fn label_keys() {
        let name63 = "a".repeat(63);
        let prefix253 = format!("{}/k", ["a"; 127].join("."));
        for key in ["geo", "a.b_c-d", "crawl.example.com/tier", "A", &name63, &prefix253] {
            assert!(is_label_key(key), "{key}");
        }
        let name64 = "a".repeat(64);
        let prefix255 = format!("{}/k", ["a"; 128].join("."));
        for key in ["", "/a", "a/", "a/b/c", "-a", "a-", "A.B/c", "a b", "ä", &name64, &prefix255] {
            assert!(!is_label_key(key), "{key:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Every address the standard library writes is a host.
        #[test]
        fn an_address_is_a_host(words in any::<[u16; 8]>(), mask in any::<u8>(), v4 in any::<u32>()) {
            let mut words = words;
            for (i, word) in words.iter_mut().enumerate() {
                if mask & (1 << i) != 0 { *word = 0; }
            }
            prop_assert!(is_host(&Ipv6Addr::from(words).to_string()));
            prop_assert!(is_host(&std::net::Ipv4Addr::from(v4).to_string()));
        }

        /// A host with a colon is an IPv6 address, exactly as the standard library reads one.
        #[test]
        fn the_pattern_and_the_parser_agree_on_colons(text in "([0-9a-f]{1,4}:|:){1,8}(([0-9a-f]{1,4})?|1\\.2\\.3\\.4|::)") {
            prop_assert_eq!(is_host(&text), text.parse::<Ipv6Addr>().is_ok(), "{}", text);
        }

        /// Digits and dots are an IPv4 address or no host at all.
        #[test]
        fn the_pattern_and_the_parser_agree_on_digits(text in "[0-9]{1,4}(\\.[0-9]{1,4}){0,4}") {
            prop_assert_eq!(is_host(&text), text.parse::<IpAddr>().is_ok(), "{}", text);
        }
    }
}

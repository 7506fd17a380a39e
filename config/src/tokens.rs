//! The token file of the discovery API: one `NAME TOKEN [NAMESPACE,…]` a line (operator.md §6).
//!
//! What must stay true: a file that has a fault gives no token at all; a fault names the line and shows nothing of it.

use std::collections::BTreeSet;
use std::path::Path;

use egress_protocol::Secret;
use egress_protocol::resource::grammar;

use crate::open;

/// The name of a token that stands alone.
pub const DEFAULT_NAME: &str = "default";
/// The name that sees all.
pub const ADMIN_NAME: &str = "admin";

/// Characters of a token.
const TOKEN_LIMIT: usize = 1024;

/// The tokens of a file; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// In the file's order. Two may share a name: a rotation without an outage.
    pub tokens: Vec<Token>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Whose leases it sees.
    pub name: String,
    /// What the caller presents.
    pub secret: Secret,
    /// Whose proxies it sees; `None`: those of every namespace.
    pub namespaces: Option<Vec<String>>,
    /// It may do all: see every name's leases, cordon, use the debug endpoint off loopback.
    pub all: bool,
}

impl Tokens {
    /// One token that may do all, such as `DISCOVERY_TOKEN`.
    pub fn single(text: &str) -> Result<Self, String> {
        check_secret(text)?;
        Ok(Self { tokens: vec![Token::lone(text)] })
    }
}

impl Token {
    fn lone(secret: &str) -> Self {
        Self { name: DEFAULT_NAME.to_owned(), secret: Secret::new(secret.to_owned()), namespaces: None, all: true }
    }
}

/// Reads the file at a path; every fault at once.
pub fn load(path: &Path) -> Result<Tokens, Vec<String>> {
    of(open::read(path))
}

/// The same for a command that reads it once while a person waits: what another program writes will do
/// (`get --token-file <(pass show egress)`).
pub(crate) fn load_once(path: &Path) -> Result<Tokens, Vec<String>> {
    of(std::fs::read(path))
}

fn of(read: std::io::Result<Vec<u8>>) -> Result<Tokens, Vec<String>> {
    let bytes = read.map_err(|error| vec![format!("cannot be read: {error}")])?;
    let text = String::from_utf8(bytes).map_err(|_| vec!["is not UTF-8 text".to_owned()])?;
    parse(&text)
}

/// Reads a file's text; every fault at once. Blank lines and lines that begin with `#` do not count.
pub fn parse(text: &str) -> Result<Tokens, Vec<String>> {
    let (mut tokens, mut faults) = (Vec::<Token>::new(), Vec::new());
    let mut secrets = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        match parse_line(&words) {
            Ok(token) if !secrets.insert(token.secret.expose().clone()) => {
                faults.push(format!("line {}: the token is that of an earlier line", number + 1));
            }
            Ok(token) => tokens.push(token),
            Err(reason) => faults.push(format!("line {}: {reason}", number + 1)),
        }
    }
    if tokens.is_empty() && faults.is_empty() {
        faults.push("holds no token".to_owned());
    }
    if faults.is_empty() { Ok(Tokens { tokens }) } else { Err(faults) }
}

fn parse_line(words: &[&str]) -> Result<Token, String> {
    let (name, secret, namespaces) = match *words {
        [secret] => {
            check_secret(secret)?;
            return Ok(Token::lone(secret));
        }
        [name, secret] => (name, secret, None),
        [name, secret, namespaces] => (name, secret, Some(namespaces)),
        _ => return Err("must be NAME TOKEN [NAMESPACE,…], without blanks between the namespaces".to_owned()),
    };
    check_secret(secret)?;
    if name.len() > grammar::LABEL_LIMIT || name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        return Err("a name is at most 63 letters, digits, dashes, dots and underscores".to_owned());
    }
    let namespaces: Option<Vec<String>> = namespaces.map(|list| list.split(',').map(str::to_owned).collect());
    if namespaces.iter().flatten().any(|namespace| !grammar::is_dns_label(namespace)) {
        return Err("a namespace is a DNS-1123 label of at most 63 characters".to_owned());
    }
    let all = name == ADMIN_NAME;
    if all && namespaces.is_some() {
        return Err(format!("{ADMIN_NAME} sees all: leave the namespaces out, or take another name"));
    }
    Ok(Token { name: name.to_owned(), secret: Secret::new(secret.to_owned()), namespaces, all })
}

fn check_secret(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > TOKEN_LIMIT || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("a token is 1-{TOKEN_LIMIT} visible ASCII characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_namespaces_and_rights_are_read() {
        let tokens = parse("# shops\nshop-a s3cret-a team-a,team-b\nshop-a n3w-a\n\n admin r00t \nlone\n").unwrap().tokens;
        let read: Vec<_> =
            tokens.iter().map(|t| (t.name.as_str(), t.secret.expose().as_str(), t.namespaces.as_ref().map(Vec::len), t.all)).collect();
        assert_eq!(
            read,
            [
                ("shop-a", "s3cret-a", Some(2), false),
                ("shop-a", "n3w-a", None, false),
                ("admin", "r00t", None, true),
                ("default", "lone", None, true),
            ]
        );
    }

    #[test]
    fn every_fault_is_told_by_its_line_and_shows_nothing() {
        let long = "x".repeat(1025);
        let text = format!("hunter2 sec1 a, b\nok sec2 A\nok sec3 a,,b\nadmin sec4 a\nna/me hunter2\nsec5\nb sec5\nb söc\n{long}\n");
        let faults = parse(&text).unwrap_err();
        let lines: Vec<_> = faults.iter().map(|f| f.split(':').next().unwrap()).collect();
        assert_eq!(lines, ["line 1", "line 2", "line 3", "line 4", "line 5", "line 7", "line 8", "line 9"]);
        assert!(!faults.concat().contains("hunter2") && !faults.concat().contains("sec"), "{faults:?}");
    }

    /// An empty file must never open the API.
    #[test]
    fn a_file_without_a_token_is_a_fault() {
        for text in ["", "\n\n", "# none\n"] {
            assert_eq!(parse(text).unwrap_err(), ["holds no token"]);
        }
        assert!(Tokens::single("").is_err() && Tokens::single("a b").is_err());
        assert!(load(Path::new("/nonexistent/tokens")).unwrap_err()[0].starts_with("cannot be read: "));
    }

    proptest! {
        /// Whatever the text: tokens, or faults.
        #[test]
        fn any_text_is_answered(text in "\\PC{0,60}(\n\\PC{0,40}){0,3}") {
            match parse(&text) {
                Ok(read) => prop_assert!(!read.tokens.is_empty()),
                Err(faults) => prop_assert!(!faults.is_empty()),
            }
        }
    }
}

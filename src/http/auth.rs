//! Who is calling: bearer tokens, compared in constant time (operator.md §6).
//!
//! The table is replaced whole when the token file changes; a file that has a fault leaves the last good one in force,
//! so that an accident never opens the API.

use std::sync::Arc;

use arc_swap::ArcSwap;
use egress_config::tokens;
use egress_protocol::Secret;
use egress_protocol::lease::{Caller, ProblemCode};
use http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use crate::http::problem::Refused;

/// A token and whom it stands for.
#[derive(Debug)]
struct Entry {
    token: Secret,
    caller: Caller,
}

impl From<tokens::Token> for Entry {
    fn from(token: tokens::Token) -> Self {
        let caller = if token.all {
            Caller::admin(token.name)
        } else {
            Caller::named(token.name, token.namespaces.map(|list| list.into_iter().map(Arc::from).collect()))
        };
        Self { token: token.secret, caller }
    }
}

/// The table in force. Cheap to clone; all clones see a replacement.
#[derive(Debug, Clone)]
pub struct Tokens {
    table: Option<Arc<ArcSwap<Vec<Entry>>>>,
    anonymous: Caller,
}

impl Tokens {
    /// No token: everybody may call.
    pub fn open() -> Self {
        Self { table: None, anonymous: Caller::anonymous() }
    }

    /// These tokens.
    pub fn of(tokens: tokens::Tokens) -> Self {
        Self { table: Some(Arc::new(ArcSwap::from_pointee(entries(tokens)))), ..Self::open() }
    }

    /// Whether there is none.
    pub const fn is_open(&self) -> bool {
        self.table.is_none()
    }

    /// Whether a token may do all, which the debug endpoint off loopback needs (OB-4).
    pub fn someone_may_do_all(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.load().iter().any(|entry| entry.caller.all))
    }

    /// Puts others in force. An open API stays open: the file was not given.
    pub fn replace(&self, tokens: tokens::Tokens) {
        if let Some(table) = &self.table {
            table.store(Arc::new(entries(tokens)));
        }
    }

    /// Who calls, or 401. The whole table is compared each time.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, Refused> {
        let Some(table) = &self.table else { return Ok(self.anonymous.clone()) };
        let presented = bearer(headers)?;
        let mut found = None;
        for entry in table.load().iter() {
            if bool::from(entry.token.expose().as_bytes().ct_eq(presented)) {
                found = Some(entry.caller.clone());
            }
        }
        found.ok_or_else(unknown_token)
    }

    /// As [`Tokens::authenticate`], for what only one who may do all may see.
    pub fn authorize_all(&self, headers: &HeaderMap) -> Result<Caller, Refused> {
        let caller = self.authenticate(headers)?;
        if caller.all { Ok(caller) } else { Err(Refused::new(ProblemCode::Forbidden, "this needs a token that may do all")) }
    }
}

/// The token that a request presents.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&[u8], Refused> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, more) = (values.next(), values.next());
    let Some(value) = value else {
        return Err(Refused::new(ProblemCode::Unauthorized, "the header Authorization: Bearer TOKEN is missing"));
    };
    match (value.as_bytes().split_at_checked(7), more) {
        (Some((scheme, token)), None) if scheme.eq_ignore_ascii_case(b"bearer ") => Ok(token.trim_ascii()),
        _ => Err(Refused::new(ProblemCode::Unauthorized, "the header Authorization must be Bearer TOKEN")),
    }
}

/// What is said of a token nobody knows.
pub(super) fn unknown_token() -> Refused {
    Refused::new(ProblemCode::Unauthorized, "the token is not known")
}

fn entries(tokens: tokens::Tokens) -> Vec<Entry> {
    tokens.tokens.into_iter().map(Entry::from).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn bearer(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap())])
    }

    fn table(file: &str) -> Tokens {
        Tokens::of(tokens::parse(file).unwrap())
    }

    #[test]
    fn a_token_stands_for_its_name_namespaces_and_rights() {
        let tokens = table("shop-a s3cret-a team-a,team-b\nshop-a n3w-a\nadmin r00t\nlone\n");
        let a = tokens.authenticate(&bearer("s3cret-a")).unwrap();
        assert_eq!((&*a.token_name, a.all, a.sees_namespace("team-b"), a.sees_namespace("team-c")), ("shop-a", false, true, false));
        assert_eq!(&*tokens.authenticate(&bearer("n3w-a")).unwrap().token_name, "shop-a");
        assert!(tokens.authenticate(&bearer("r00t")).unwrap().all);
        assert!(tokens.authorize_all(&bearer("lone")).is_ok());
    }

    #[test]
    fn a_wrong_or_missing_token_is_401_and_a_small_one_403() {
        let tokens = table("shop-a s3cret");
        assert_eq!(tokens.authenticate(&HeaderMap::new()).unwrap_err().code(), ProblemCode::Unauthorized);
        for wrong in ["", "s3cre", "s3crett", "S3CRET"] {
            assert_eq!(tokens.authenticate(&bearer(wrong)).unwrap_err().code(), ProblemCode::Unauthorized, "{wrong}");
        }
        assert_eq!(tokens.authorize_all(&bearer("s3cret")).unwrap_err().code(), ProblemCode::Forbidden);
        assert!(!tokens.someone_may_do_all());
    }

    #[test]
    fn every_clone_sees_a_replacement() {
        let tokens = table("shop-a old");
        let clone = tokens.clone();
        tokens.replace(tokens::parse("shop-a new").unwrap());
        assert!(clone.authenticate(&bearer("old")).is_err() && clone.authenticate(&bearer("new")).is_ok());
        assert!(!format!("{clone:?}").contains("new\""));
    }
}

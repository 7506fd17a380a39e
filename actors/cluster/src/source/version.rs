//! A `resourceVersion`: opaque, yet of two of one store it can be told which is newer (KEP-5504; every etcd before it).

use std::cmp::Ordering;
use std::sync::Arc;

/// As the API server gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version(Arc<str>);

impl Version {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// `None` where one of them is no number: a store that does not follow the rule.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        if self == other {
            return Some(Ordering::Equal);
        }
        (number(&self.0) && number(&other.0)).then(|| self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_of_any_size_and_not_at_all_where_they_are_none() {
        let compare = |a: &str, b: &str| Version::new(a).compare(&Version::new(b));
        assert_eq!(compare("9", "10"), Some(Ordering::Less));
        assert_eq!(compare("184467440737095516160", "18446744073709551616"), Some(Ordering::Greater));
        assert_eq!(compare("x7", "x7"), Some(Ordering::Equal));
        assert_eq!((compare("x7", "x8"), compare("010", "9"), compare("", "1")), (None, None, None));
    }
}

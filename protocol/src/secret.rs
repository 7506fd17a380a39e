//! A value that does not print (PC-75).

use std::fmt;

/// Holds a token, a password or user data. `Debug` prints its length only; there is no `Display` and no
/// `Serialize`, so it cannot slip into a log, a status or an answer. Only [`Secret::expose`] hands it out.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Secret<T = String>(T);

impl<T> Secret<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself, for the one place that sends it where it belongs.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: AsRef<[u8]>> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<secret, {} bytes>", self.0.as_ref().len())
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_secret_prints_its_length_only() {
        let secret = Secret::new("hunter2".to_owned());
        assert_eq!(format!("{secret:?}"), "<secret, 7 bytes>");
    }
}

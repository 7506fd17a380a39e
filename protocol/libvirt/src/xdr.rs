//! XDR (RFC 4506) as libvirt uses it: big endian, every item padded to four bytes.
//!
//! What is decoded comes from a peer that may be anybody. Each length and count is held against the bytes that are really
//! there before anything is allocated, so that decoding takes memory in proportion to the input, and nothing panics.

/// Why bytes are not the value that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The value goes on after the end.
    #[error("it ends {missing} bytes early")]
    Short {
        /// How many bytes are not there, at least.
        missing: usize,
    },
    /// A flag, a union or a small number has a value that it cannot have.
    #[error("{value} is not a value of {of}")]
    Value {
        /// What was read.
        value: u32,
        /// What it was read as.
        of: &'static str,
    },
    /// There are bytes after the value.
    #[error("{0} bytes follow it")]
    Trailing(usize),
}

/// A value that can be written.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A value that can be read.
pub trait Decode: Sized {
    /// The fewest bytes that a value takes: bounds how many of them can follow.
    const MIN: usize;

    /// Takes the value from the front.
    fn decode(from: &mut &[u8]) -> Result<Self, XdrError>;
}

/// The value as bytes.
pub fn to_bytes(value: &impl Encode) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

/// The value that these bytes are, all of them.
pub fn from_bytes<T: Decode>(mut bytes: &[u8]) -> Result<T, XdrError> {
    let value = T::decode(&mut bytes)?;
    if bytes.is_empty() { Ok(value) } else { Err(XdrError::Trailing(bytes.len())) }
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Result<&'a [u8], XdrError> {
    let (taken, rest) = from.split_at_checked(count).ok_or(XdrError::Short { missing: count.saturating_sub(from.len()) })?;
    *from = rest;
    Ok(taken)
}

fn take_array<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], XdrError> {
    let mut array = [0; N];
    array.copy_from_slice(take(from, N)?);
    Ok(array)
}

macro_rules! numbers {
    ($($t:ty),*) => { $(
        impl Encode for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
        }

        impl Decode for $t {
            const MIN: usize = size_of::<$t>();

            fn decode(from: &mut &[u8]) -> Result<Self, XdrError> {
                Ok(Self::from_be_bytes(take_array(from)?))
            }
        }
    )* };
}
numbers!(u32, i32, u64, i64);

impl Encode for () {
    fn encode(&self, _: &mut Vec<u8>) {}
}

impl Decode for () {
    const MIN: usize = 0;

    fn decode(_: &mut &[u8]) -> Result<Self, XdrError> {
        Ok(())
    }
}

/// XDR has nothing smaller than four bytes: a char goes as a number.
impl Encode for u8 {
    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode(out);
    }
}

impl Decode for u8 {
    const MIN: usize = 4;

    fn decode(from: &mut &[u8]) -> Result<Self, XdrError> {
        let value = u32::decode(from)?;
        Self::try_from(value).map_err(|_| XdrError::Value { value, of: "a char" })
    }
}

/// A UUID, as it is.
impl Encode for [u8; 16] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl Decode for [u8; 16] {
    const MIN: usize = 16;

    fn decode(from: &mut &[u8]) -> Result<Self, XdrError> {
        take_array(from)
    }
}

impl Encode for str {
    fn encode(&self, out: &mut Vec<u8>) {
        // What is sent is bounded by the size of a message, far below what this number can say.
        u32::try_from(self.len()).unwrap_or(u32::MAX).encode(out);
        out.extend_from_slice(self.as_bytes());
        out.resize(out.len() + padding(self.len()), 0);
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_str().encode(out);
    }
}

/// Text of the other side need not be UTF-8: names are file names, messages are of its locale. What is not becomes U+FFFD,
/// so that one odd name does not take a whole list with it.
impl Decode for String {
    const MIN: usize = 4;

    fn decode(from: &mut &[u8]) -> Result<Self, XdrError> {
        let length = u32::decode(from)? as usize;
        let text = Self::from_utf8_lossy(take(from, length)?).into_owned();
        take(from, padding(length))?;
        Ok(text)
    }
}

fn padding(length: usize) -> usize {
    (4 - length % 4) % 4
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(self.is_some()).encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    const MIN: usize = 4;

    fn decode(from: &mut &[u8]) -> Result<Self, XdrError> {
        match u32::decode(from)? {
            0 => Ok(None),
            1 => T::decode(from).map(Some),
            value => Err(XdrError::Value { value, of: "an optional's flag" }),
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).unwrap_or(u32::MAX).encode(out);
        for value in self {
            value.encode(out);
        }
    }
}

impl<T: Decode> Decode for Vec<T> {
    const MIN: usize = 4;

    fn decode(from: &mut &[u8]) -> Result<Self, XdrError> {
        const { assert!(T::MIN > 0, "the elements of a list take bytes, else their count has no bound") };
        let count = u32::decode(from)? as usize;
        let least = count.saturating_mul(T::MIN);
        if least > from.len() {
            return Err(XdrError::Short { missing: least - from.len() });
        }
        (0..count).map(|_| T::decode(from)).collect()
    }
}

/// Structures: their fields, one after the other.
macro_rules! structures {
    ($($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty,)* })*) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs, reason = "fields are named as libvirt's documentation names them, where more is to be said it is")]
        pub struct $name { $($(#[$field_about])* pub $field: $type,)* }

        impl $crate::xdr::Encode for $name {
            fn encode(&self, _out: &mut Vec<u8>) {
                $($crate::xdr::Encode::encode(&self.$field, _out);)*
            }
        }

        impl $crate::xdr::Decode for $name {
            const MIN: usize = 0 $(+ <$type as $crate::xdr::Decode>::MIN)*;

            fn decode(_from: &mut &[u8]) -> Result<Self, $crate::xdr::XdrError> {
                Ok(Self { $($field: $crate::xdr::Decode::decode(_from)?,)* })
            }
        }
    )* };
}
pub(crate) use structures;

#[cfg(test)]
mod tests;

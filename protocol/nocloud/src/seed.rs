//! What one machine is given at its first boot.

use std::fmt;

use crate::iso;

/// The largest `user-data` that goes onto a seed: 8 MiB (LV-60).
pub const MAX_USER_DATA: usize = 8 << 20;

/// Words that YAML does not read as text, though they look like host names.
const YAML_WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// The documents of one machine. `Debug` prints their lengths only.
#[derive(Clone, Copy)]
pub struct Seed<'a> {
    /// Instance id and host name. While it stays the same, cloud-init does what belongs to a first boot once only.
    pub name: &'a str,
    /// What the user wrote. It goes onto the image byte for byte and is not looked into.
    pub user_data: &'a [u8],
    /// What the operator adds: see [`vendor_data`](crate::vendor_data).
    pub vendor_data: &'a [u8],
}

/// Why there is no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    /// An instance id is required.
    #[error("the name of the machine is empty")]
    EmptyName,
    /// The name goes into a YAML document and becomes the host name.
    #[error("the name of the machine {0:?} is not a host name: letters, digits, '-' and '.', a letter first, at most 253 characters")]
    Name(String),
    /// Larger than a seed may be.
    #[error("{document} has {size} bytes, and at most {} fit on a seed", MAX_USER_DATA)]
    TooLarge {
        /// `user-data` or `vendor-data`.
        document: &'static str,
        /// Its size in bytes.
        size: usize,
    },
}

impl Seed<'_> {
    /// The image, whole sectors of [`SECTOR`](crate::SECTOR) bytes.
    pub fn image(&self) -> Result<Vec<u8>, SeedError> {
        let meta_data = self.meta_data()?;
        for (document, data) in [("user-data", self.user_data), ("vendor-data", self.vendor_data)] {
            if data.len() > MAX_USER_DATA {
                return Err(SeedError::TooLarge { document, size: data.len() });
            }
        }
        // Sorted, as ISO 9660 wants its directories.
        Ok(iso::image(
            "cidata",
            [
                iso::File { name: "meta-data", data: meta_data.as_bytes() },
                iso::File { name: "user-data", data: self.user_data },
                iso::File { name: "vendor-data", data: self.vendor_data },
            ],
        ))
    }

    fn meta_data(&self) -> Result<String, SeedError> {
        let name = self.name;
        if name.is_empty() {
            return Err(SeedError::EmptyName);
        }
        let characters = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic());
        let word = YAML_WORDS.iter().any(|word| word.eq_ignore_ascii_case(name));
        if !characters || !first || word || name.len() > 253 {
            return Err(SeedError::Name(name.to_owned()));
        }
        Ok(format!("instance-id: {name}\nlocal-hostname: {name}\n"))
    }
}

impl fmt::Debug for Seed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seed")
            .field("name", &self.name)
            .field("user_data", &format_args!("<{} bytes>", self.user_data.len()))
            .field("vendor_data", &format_args!("<{} bytes>", self.vendor_data.len()))
            .finish()
    }
}

#[cfg(test)]
mod tests;

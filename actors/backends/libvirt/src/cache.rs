//! What the image cache of a pool tells (§7): markers, and what to do about what is found. Pure.

use crate::settings::Image;

/// The most of a marker that is read, whatever is there (LV-74).
pub const MARKER_LIMIT: usize = 1024;
/// Hexadecimal digits of SHA-256.
const DIGEST: usize = 64;

/// What a marker says. It is written last, and makes a base complete (LV-100).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// SHA-256 of the image, lower-case hexadecimal.
    pub digest: String,
    /// Bytes of the image.
    pub size: Option<u64>,
    /// Its size as a disk.
    pub virtual_size: Option<u64>,
    /// SHA-256 of the URL that it came from.
    pub url: Option<String>,
}

impl Marker {
    /// Reads one; none if it does not begin with a digest. What cannot be read after that is absent.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MARKER_LIMIT)]);
        let digest = text.get(..DIGEST).filter(|digest| is_digest(digest))?.to_owned();
        let rest = &text[DIGEST..];
        if !rest.is_empty() && !rest.starts_with(['\n', '\r', ' ', '\0']) {
            return None;
        }
        let of = |key: &str| rest.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::trim);
        Some(Self {
            digest,
            size: of("size").and_then(|text| text.parse().ok()),
            virtual_size: of("vsize").and_then(|text| text.parse().ok()),
            url: of("url").filter(|url| is_digest(url)).map(str::to_owned),
        })
    }

    /// As it is written.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.digest);
        for (key, value) in [("size", self.size), ("vsize", self.virtual_size)] {
            if let Some(value) = value {
                text.push_str(&format!("{key}={value}\n"));
            }
        }
        if let Some(url) = &self.url {
            text.push_str(&format!("url={url}\n"));
        }
        text
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == DIGEST && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'))
}

/// What was found of an image in a pool. That a marker could not be read is an error of its own, and never debris.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// `Some(None)`: there is one, and it is none of ours.
    pub marker: Option<Option<Marker>>,
    /// Capacity of the base, if there is one.
    pub base: Option<u64>,
}

/// What to do about it (LV-101).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Use it.
    Use {
        /// The URL was edited since: that has no effect, and a person should hear so.
        moved: bool,
    },
    /// Fetch it. `delete` goes before, unless another volume lies over it.
    Fetch {
        /// What is in the way.
        delete: Delete,
    },
    /// It is not what is configured. A base that may be in use is never replaced (LV-102).
    Refuse {
        /// Of what is cached.
        cached: String,
        /// Of what is configured.
        configured: String,
    },
}

/// What is deleted before a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delete {
    /// Nothing is there.
    Nothing,
    /// A base without a marker: what an upload has left.
    Base,
    /// A marker without a base.
    Marker,
    /// Both: they do not belong together.
    Both,
}

/// The table, row by row. `url` is SHA-256 of the configured URL.
pub fn next(found: &Found, image: &Image, url: &str) -> Next {
    let (marker, capacity) = match (&found.marker, found.base) {
        (None, None) => return Next::Fetch { delete: Delete::Nothing },
        (None, Some(_)) => return Next::Fetch { delete: Delete::Base },
        (Some(None), None) => return Next::Fetch { delete: Delete::Marker },
        (Some(None), Some(_)) => return Next::Fetch { delete: Delete::Both },
        (Some(Some(marker)), capacity) => (marker, capacity),
    };
    let configured = image.sha256.as_deref();
    if let Some(configured) = configured
        && configured != marker.digest
    {
        return Next::Refuse { cached: marker.digest.clone(), configured: configured.to_owned() };
    }
    let Some(capacity) = capacity else { return Next::Fetch { delete: Delete::Marker } };
    if marker.virtual_size.is_some_and(|recorded| recorded != capacity) {
        return Next::Fetch { delete: Delete::Both };
    }
    let moved = configured.is_none() && marker.url.as_deref().is_some_and(|recorded| recorded != url);
    Next::Use { moved }
}

#[cfg(test)]
mod tests;

//! What the operator adds to a machine beside the user's own document (LV-26, LV-62, LV-63).

use data_encoding::{BASE64, HEXLOWER};
use sha2::{Digest, Sha256};

/// Installs and starts the QEMU guest agent, on whatever distribution it finds itself (LV-62).
///
/// It is a script, since a vendor document of the kind `#cloud-config` loses each top-level key that user data sets too.
pub const AGENT_SCRIPT: &str = include_str!("vendor/agent.sh");

/// What cloud-init takes a document for, by its first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// `#cloud-config`
    CloudConfig,
    /// `#cloud-config-archive`
    CloudConfigArchive,
    /// `#cloud-config-jsonp`
    CloudConfigPatch,
    /// `#!`
    Script,
    /// `#include`
    Include,
    /// `#include-once`
    IncludeOnce,
    /// `#cloud-boothook`
    Boothook,
    /// `## template: jinja`
    Jinja,
    /// `MIME-Version:` or `Content-Type:`: a document of several parts already.
    Mime,
}

impl Kind {
    /// Beginnings, each before those that it begins with.
    const BEGINNINGS: [(&'static str, Self); 10] = [
        ("#cloud-config-archive", Self::CloudConfigArchive),
        ("#cloud-config-jsonp", Self::CloudConfigPatch),
        ("#cloud-config", Self::CloudConfig),
        ("#cloud-boothook", Self::Boothook),
        ("#include-once", Self::IncludeOnce),
        ("#include", Self::Include),
        ("#!", Self::Script),
        ("## template: jinja", Self::Jinja),
        ("MIME-Version:", Self::Mime),
        ("Content-Type:", Self::Mime),
    ];

    /// The kind of a document, or none where cloud-init would ignore it.
    pub fn of(document: &str) -> Option<Self> {
        Self::BEGINNINGS.iter().find(|(beginning, _)| document.starts_with(beginning)).map(|(_, kind)| *kind)
    }

    /// The type of a part of this kind. There is none for a document that has parts itself: it cannot be nested.
    pub fn content_type(self) -> Option<&'static str> {
        match self {
            Self::CloudConfig => Some("text/cloud-config"),
            Self::CloudConfigArchive => Some("text/cloud-config-archive"),
            Self::CloudConfigPatch => Some("text/cloud-config-jsonp"),
            Self::Script => Some("text/x-shellscript"),
            Self::Include => Some("text/x-include-url"),
            Self::IncludeOnce => Some("text/x-include-once-url"),
            Self::Boothook => Some("text/cloud-boothook"),
            Self::Jinja => Some("text/jinja2"),
            Self::Mime => None,
        }
    }
}

/// Why there is no vendor data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VendorError {
    /// cloud-init would ignore it.
    #[error(
        "must begin with something that cloud-init recognises: #cloud-config, #!, #include, #cloud-boothook, ## template: jinja, \
         MIME-Version: or Content-Type:"
    )]
    Unrecognised,
    /// The guest agent's script and a document of several parts do not go into one.
    #[error(
        "a MIME document cannot be combined with the guest agent's script: turn the agent off, and add it to the document if it is needed"
    )]
    Nested,
}

/// The `vendor-data` of a seed: the `configured` document as it is, the guest agent's script, both in one, or nothing.
pub fn vendor_data(configured: &str, agent: bool) -> Result<String, VendorError> {
    if configured.is_empty() {
        return Ok(if agent { AGENT_SCRIPT.to_owned() } else { String::new() });
    }
    let kind = Kind::of(configured).ok_or(VendorError::Unrecognised)?;
    if !agent {
        return Ok(configured.to_owned());
    }
    let configured_type = kind.content_type().ok_or(VendorError::Nested)?;
    Ok(multipart(&[(configured_type, configured), ("text/x-shellscript", AGENT_SCRIPT)]))
}

/// Parts are in Base64: cloud-init's reader takes a plain part with a character beyond ASCII for Latin-1. So the boundary,
/// whose `=` stands before the last character of its line, is in no part.
fn multipart(parts: &[(&str, &str)]) -> String {
    let mut digest = Sha256::new();
    for (content_type, document) in parts {
        digest.update(content_type);
        digest.update([0]);
        digest.update((document.len() as u64).to_be_bytes());
        digest.update(document);
    }
    let boundary = format!("==={}===", HEXLOWER.encode(&digest.finalize()[..16]));
    // cloud-init looks for this header in the first 4096 bytes.
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
    for (content_type, document) in parts {
        text.push_str(&format!("--{boundary}\nContent-Type: {content_type}; charset=\"utf-8\"\nContent-Transfer-Encoding: base64\n\n"));
        // Lines of 76 characters.
        for line in document.as_bytes().chunks(57) {
            text.push_str(&BASE64.encode(line));
            text.push('\n');
        }
    }
    text.push_str(&format!("--{boundary}--\n"));
    text
}

#[cfg(test)]
mod tests;

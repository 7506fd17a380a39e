//! How a call ends that did not succeed.

use std::io;
use std::sync::Arc;

use crate::wire::RemoteError;
use crate::xdr::{XdrError, from_bytes};

/// The code of an error of the RPC layer itself.
const RPC: i32 = 39;

/// A failed call.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// libvirt answered so. The link goes on.
    #[error("{procedure}: {error}")]
    Libvirt {
        /// What was called.
        procedure: &'static str,
        /// What it said.
        error: LibvirtError,
    },
    /// This libvirt does not know the procedure (LV-75).
    #[error("{procedure} is not supported by this libvirt")]
    Unsupported {
        /// What was called.
        procedure: &'static str,
    },
    /// No way to authenticate that libvirt offers is one that this client knows.
    #[error("access denied: libvirt asks for an authentication of kind {offered:?}, and this client knows none (0) and polkit (2)")]
    Authentication {
        /// Its ways.
        offered: Vec<u32>,
    },
    /// There was no answer in time. The link goes on, and what was sent may still be done (F10).
    #[error("{procedure} was not {} in time", if *sent { "answered" } else { "sent" })]
    Deadline {
        /// What was called.
        procedure: &'static str,
        /// Whether libvirt may have seen it.
        sent: bool,
    },
    /// The link is gone, and with it the answer.
    #[error("{procedure}: {closed}")]
    Closed {
        /// What was called.
        procedure: &'static str,
        /// Why it is gone.
        closed: Closed,
    },
    /// The answer was not one to this call.
    #[error("{procedure}: protocol error: {what}")]
    Protocol {
        /// What was called.
        procedure: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// libvirt would drop the link over arguments of this size.
    #[error("{procedure}: {size} bytes of arguments, and a message has at most {limit}")]
    TooLarge {
        /// What was called.
        procedure: &'static str,
        /// Their size.
        size: usize,
        /// What there is room for.
        limit: usize,
    },
    /// What was to be uploaded could not be read. The stream was given up, the link goes on.
    #[error("reading what is to be uploaded: {0}")]
    Source(Arc<io::Error>),
    /// An upload ended before its declared length. The stream was given up, the link goes on.
    #[error("the upload ended after {sent} of {length} bytes")]
    Short {
        /// What was sent.
        sent: u64,
        /// What was declared.
        length: u64,
    },
}

impl Error {
    /// What libvirt answered, if it did.
    pub fn libvirt(&self) -> Option<&LibvirtError> {
        match self {
            Self::Libvirt { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Whether the link is gone (LV-83).
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// What an error packet says.
    pub(crate) fn answered(procedure: &'static str, payload: &[u8]) -> Self {
        match from_bytes::<RemoteError>(payload) {
            Ok(error) if error.code == RPC && error.message.as_deref().is_some_and(|text| text.starts_with("unknown procedure")) => {
                Self::Unsupported { procedure }
            }
            Ok(error) => Self::Libvirt { procedure, error: error.into() },
            Err(error) => Self::undecodable(procedure, &error),
        }
    }

    pub(crate) fn undecodable(procedure: &'static str, error: &XdrError) -> Self {
        Self::Protocol { procedure, what: format!("the answer cannot be read: {error}") }
    }
}

/// What libvirt said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (code {code}, domain {domain})")]
pub struct LibvirtError {
    /// Which error, of `virErrorNumber`.
    pub code: i32,
    /// Which part of libvirt says so, of `virErrorDomain`.
    pub domain: i32,
    /// 1 is a warning, 2 an error.
    pub level: i32,
    /// In its own words.
    pub message: String,
}

impl From<RemoteError> for LibvirtError {
    fn from(error: RemoteError) -> Self {
        let message = error.message.unwrap_or_else(|| "libvirt gives no message".to_owned());
        Self { code: error.code, domain: error.domain, level: error.level, message }
    }
}

/// Why a link is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("connection closed: {reason}")]
pub struct Closed {
    reason: Arc<str>,
}

impl Closed {
    pub(crate) fn new(reason: &str) -> Self {
        Self { reason: reason.into() }
    }

    /// In words.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

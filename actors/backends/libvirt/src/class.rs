//! What follows from an error of libvirt (§12, LV-125). Pure.
//!
//! The texts are those that libvirt 9.0 was seen to say. Two codes (1 and 38) stand for anything, and only the text tells a
//! full disk from a lost one.

use egress_libvirt::{Error as LibvirtCallError, LibvirtError};
use egress_protocol::provider::ErrorClass::{self, NotFound, Permanent, QuotaExceeded, Transient};
use egress_provider::BackendError;

use crate::rpc::RpcError;

/// What was being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum During {
    /// A machine is made: what is missing then will be there at the next attempt (PC-24, LV-138).
    Create,
    /// Anything else.
    Other,
}

/// libvirt's error numbers.
pub mod code {
    #![allow(missing_docs, reason = "the names are libvirt's, of virErrorNumber")]
    pub const INTERNAL_ERROR: i32 = 1;
    pub const NO_SUPPORT: i32 = 3;
    pub const INVALID_ARG: i32 = 8;
    pub const XML_ERROR: i32 = 27;
    pub const OPERATION_DENIED: i32 = 29;
    pub const SYSTEM_ERROR: i32 = 38;
    pub const NO_DOMAIN: i32 = 42;
    pub const AUTH_FAILED: i32 = 45;
    pub const NO_STORAGE_POOL: i32 = 49;
    pub const NO_STORAGE_VOL: i32 = 50;
    pub const OPERATION_INVALID: i32 = 55;
    pub const CONFIG_UNSUPPORTED: i32 = 67;
    pub const NO_DOMAIN_METADATA: i32 = 80;
    pub const ACCESS_DENIED: i32 = 88;
    pub const STORAGE_VOL_EXIST: i32 = 90;
    pub const AUTH_UNAVAILABLE: i32 = 94;
}

/// The class of a failed call.
pub fn class(error: &LibvirtCallError, during: During) -> ErrorClass {
    match error {
        LibvirtCallError::Libvirt { error, .. } => libvirt(error, during),
        LibvirtCallError::Unsupported { .. } | LibvirtCallError::Authentication { .. } => Permanent,
        // A link that is lost, a budget, a source that ended, an answer that was none: the next attempt may do better.
        _ => Transient,
    }
}

fn libvirt(error: &LibvirtError, during: During) -> ErrorClass {
    match (error.code, during) {
        (code::NO_DOMAIN | code::NO_STORAGE_VOL, During::Other) => NotFound,
        (code::CONFIG_UNSUPPORTED, During::Create) => Permanent,
        (
            code::NO_STORAGE_POOL
            | code::XML_ERROR
            | code::NO_SUPPORT
            | code::INVALID_ARG
            | code::OPERATION_DENIED
            | code::AUTH_FAILED
            | code::ACCESS_DENIED
            | code::AUTH_UNAVAILABLE,
            _,
        ) => Permanent,
        (code::INTERNAL_ERROR | code::SYSTEM_ERROR, _) if full(&error.message) => QuotaExceeded,
        _ => Transient,
    }
}

/// Whether a text says that the host has no room. libvirt says "no space" of an upload that is longer than declared, too.
fn full(text: &str) -> bool {
    let space = text.contains("No space left on device") && !text.contains("cannot write to stream");
    space || text.contains("Cannot allocate memory")
}

/// The error that leaves the engine: step, host, libvirt's own words, and whether the cause lies in the environment (LV-47,
/// LV-180, LV-181).
pub fn failed(error: RpcError, during: During, step: &str) -> BackendError {
    let class = class(&error.error, during);
    // XML that libvirt does not take is our own fault.
    let ours = error.is(code::XML_ERROR);
    let failed = BackendError::new(class, format!("{step}: {error}")).caused_by(error);
    if class == Permanent && !ours { failed.environment() } else { failed }
}

#[cfg(test)]
mod tests;

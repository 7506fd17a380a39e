//! Messages as they go over the wire: a length, a header, a payload (LV-70).

use bytes::Bytes;

use crate::procedures::Domain;
use crate::xdr::{Encode, structures};

/// The program of libvirt itself.
pub const PROGRAM: u32 = 0x2000_8086;
/// The program that asks whether the other side still answers.
pub const KEEPALIVE: u32 = 0x6b65_6570;
/// The version of both.
pub const VERSION: u32 = 1;
/// Length and header.
pub const HEAD: usize = 28;
/// The longest message: 32 MiB and the length itself.
pub const MAX_MESSAGE: usize = (32 << 20) + 4;
/// The longest text that libvirt takes.
pub const MAX_TEXT: usize = 4 << 20;
/// The most of a stream that goes into one message, so that every version of libvirt takes it.
pub const MAX_CHUNK: usize = 262_120;

/// What a message is for.
pub mod kind {
    /// A call.
    pub const CALL: u32 = 0;
    /// Its answer.
    pub const REPLY: u32 = 1;
    /// An event, or a keepalive.
    pub const MESSAGE: u32 = 2;
    /// A part of a stream.
    pub const STREAM: u32 = 3;
}

/// How it stands.
pub mod status {
    /// Well; of a stream: its end.
    pub const OK: u32 = 0;
    /// A [`RemoteError`](super::RemoteError) follows, or from us: the stream is given up.
    pub const ERROR: u32 = 1;
    /// There is more; of a stream from the server, without a payload: there is no more.
    pub const CONTINUE: u32 = 2;
}

/// Keepalive procedures.
pub mod keepalive {
    /// Asks.
    pub const PING: i32 = 1;
    /// Answers.
    pub const PONG: i32 = 2;
}

structures! {
    /// What stands before each payload.
    Header {
        program: u32,
        version: u32,
        procedure: i32,
        kind: u32,
        serial: u32,
        status: u32,
    }
    /// How libvirt says no.
    RemoteError {
        /// Which error, of `virErrorNumber`.
        code: i32,
        /// Which part of libvirt says so, of `virErrorDomain`.
        domain: i32,
        message: Option<String>,
        /// 1 is a warning, 2 an error.
        level: i32,
        /// The domain (virtual machine) that it is about.
        of: Option<Domain>,
        str1: Option<String>,
        str2: Option<String>,
        str3: Option<String>,
        int1: i32,
        int2: i32,
        network: Option<NetworkReference>,
    }
    /// A virtual network.
    NetworkReference {
        name: String,
        uuid: [u8; 16],
    }
}

impl Header {
    /// A message of libvirt's program.
    pub fn new(procedure: i32, kind: u32, serial: u32, status: u32) -> Self {
        Self { program: PROGRAM, version: VERSION, procedure, kind, serial, status }
    }

    /// A keepalive message.
    pub fn keepalive(procedure: i32) -> Self {
        Self { program: KEEPALIVE, version: VERSION, procedure, kind: kind::MESSAGE, serial: 0, status: status::OK }
    }

    /// Length and header of a message with a payload of this size.
    pub fn head(&self, payload: usize) -> Bytes {
        let mut head = Vec::with_capacity(HEAD);
        u32::try_from(HEAD + payload).unwrap_or(u32::MAX).encode(&mut head);
        self.encode(&mut head);
        head.into()
    }

    /// A whole message.
    pub fn message(&self, payload: &[u8]) -> Vec<u8> {
        [&self.head(payload.len())[..], payload].concat()
    }
}

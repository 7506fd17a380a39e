//! An address of this machine that is none of loopback, as a virtual machine's would be: on a bridge of the test's own.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// A bridge without members and with one address; goes when dropped.
#[derive(Debug)]
pub struct Bridge {
    pub address: Ipv4Addr,
    name: String,
}

impl Bridge {
    /// `None`: not root, or no iproute2.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Of TEST-NET-2 (RFC 5737): nobody else is there.
        let address = Ipv4Addr::new(198, 51, 100, number);
        let bridge = Self { address, name: format!("epo{}-{number}", std::process::id() % 100_000) };
        let made = ip(&["link", "add", &bridge.name, "type", "bridge"])
            && ip(&["addr", "add", &format!("{address}/32"), "dev", &bridge.name])
            && ip(&["link", "set", &bridge.name, "up"]);
        made.then_some(bridge)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        ip(&["link", "del", &self.name]);
    }
}

fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).output().is_ok_and(|output| output.status.success())
}

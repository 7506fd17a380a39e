//! Which address of a machine is the one to use (LV-154…156). Pure.

use std::net::Ipv4Addr;

use egress_libvirt::procedures::DomainInterface;
use egress_libvirt::{Error as LibvirtCallError, LibvirtError};

/// `virIPAddrType` of IPv4.
const IPV4: i32 = 0;
const AGENT_UNRESPONSIVE: i32 = 86;
const INTERNAL_ERROR: i32 = 1;
const NO_DOMAIN: i32 = 42;

/// The first address of a machine's own card that can be an instance's. Others are of bridges and overlays inside it.
pub fn choose(interfaces: &[DomainInterface], mac: &str) -> Option<Ipv4Addr> {
    let own = interfaces
        .iter()
        .filter(|interface| interface.hardware_address.as_deref().is_some_and(|address| address.eq_ignore_ascii_case(mac)));
    own.flat_map(|interface| &interface.addresses)
        .filter(|address| address.kind == IPV4)
        .filter_map(|address| address.address.parse::<Ipv4Addr>().ok())
        .find(|address| usable(*address))
}

fn usable(address: Ipv4Addr) -> bool {
    !(address.is_loopback() || address.is_link_local() || address.is_unspecified() || address.is_multicast() || address.is_broadcast())
}

/// What one source said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It answered, with an address or without one.
    Address(Option<Ipv4Addr>),
    /// It cannot know: the agent is not there yet, or libvirt cannot read the neighbour table on this kernel. As good as an
    /// answer without one, so that a guest that boots is not taken for a fault (LV-155).
    Nothing {
        /// It was the guest agent that does not answer.
        agent: bool,
    },
    /// libvirt failed at it.
    Failed,
}

/// What follows from both sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// This one.
    Address(Ipv4Addr),
    /// None yet; the words are for people (LV-156).
    NotYet(&'static str),
    /// No source could be asked: Transient, whatever their errors are.
    Failed,
}

/// How a source's call ended that did not answer; `Err` ends the whole look at once: the domain is gone, or the link is.
pub fn of_error(error: LibvirtCallError) -> Result<Answer, LibvirtCallError> {
    match error.libvirt() {
        Some(LibvirtError { code: NO_DOMAIN, .. }) | None => Err(error),
        Some(LibvirtError { code: AGENT_UNRESPONSIVE, .. }) => Ok(Answer::Nothing { agent: true }),
        Some(LibvirtError { code: INTERNAL_ERROR, message, .. }) if message.contains("wrong nlmsg len") => {
            Ok(Answer::Nothing { agent: false })
        }
        Some(_) => Ok(Answer::Failed),
    }
}

/// Both sources together. The second is asked only when the first gave no address.
pub fn both(agent: Answer, arp: Answer) -> Found {
    match (agent, arp) {
        (Answer::Address(Some(address)), _) | (_, Answer::Address(Some(address))) => Found::Address(address),
        (Answer::Failed, Answer::Failed) => Found::Failed,
        (Answer::Nothing { agent: true }, _) => Found::NotYet("guest agent does not answer"),
        _ => Found::NotYet("no address yet from agent or ARP"),
    }
}

#[cfg(test)]
mod tests;

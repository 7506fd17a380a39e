//! What the status of a virtual machine is read as (GC-8, GC-9): pure. Each read takes it as it is now (PC-62).

use std::net::Ipv4Addr;

use egress_config::providers::gcp::AddressMode;
use egress_protocol::provider::InstanceState;

use crate::model::Vm;

/// The table of GC-8. A status that Compute Engine has invented since reads as `Stopped` (PC-30).
pub(crate) fn state(status: &str, ip: Option<Ipv4Addr>, deleting: bool) -> InstanceState {
    match status {
        "PENDING" | "PROVISIONING" | "STAGING" | "REPAIRING" => InstanceState::Provisioning,
        // PC-27: one that is on its way out is not Running, whatever it still says.
        "RUNNING" if deleting => InstanceState::Stopped,
        "RUNNING" if ip.is_some() => InstanceState::Running,
        "RUNNING" => InstanceState::Provisioning,
        "SUSPENDING" | "SUSPENDED" => InstanceState::Paused,
        "TERMINATED" | "DEPROVISIONING" => InstanceState::Terminated,
        // STOPPING, PENDING_STOP, STOPPED and what is not known.
        _ => InstanceState::Stopped,
    }
}

/// The address that the mode asks for, of the first interface. One that is no routable IPv4 address is none.
pub(crate) fn address(vm: &Vm, mode: AddressMode) -> Option<Ipv4Addr> {
    let interface = vm.network_interfaces.first()?;
    let text = match mode {
        AddressMode::External => interface.access_configs.first()?.nat_ip.as_deref()?,
        AddressMode::Internal => interface.network_ip.as_deref()?,
    };
    let ip: Ipv4Addr = text.parse().ok()?;
    (!ip.is_unspecified() && !ip.is_loopback() && !ip.is_link_local() && !ip.is_multicast()).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(external: Option<&str>, internal: Option<&str>) -> Vm {
        let json = serde_json::json!({
            "name": "proxy-ck4to7f6pzojj2fh",
            "status": "RUNNING",
            "networkInterfaces": [{"networkIP": internal, "accessConfigs": [{"natIP": external}]}],
        });
        serde_json::from_value(json).unwrap()
    }

    /// GC-8: every word of the enum, and one that is not in it.
    #[test]
    fn every_status_has_its_state() {
        use InstanceState::{Paused, Provisioning, Running, Stopped, Terminated};
        let ip = Some(Ipv4Addr::new(203, 0, 113, 7));
        for (status, without, with, dying) in [
            ("PENDING", Provisioning, Provisioning, Provisioning),
            ("PROVISIONING", Provisioning, Provisioning, Provisioning),
            ("STAGING", Provisioning, Provisioning, Provisioning),
            ("REPAIRING", Provisioning, Provisioning, Provisioning),
            ("RUNNING", Provisioning, Running, Stopped),
            ("STOPPING", Stopped, Stopped, Stopped),
            ("PENDING_STOP", Stopped, Stopped, Stopped),
            ("STOPPED", Stopped, Stopped, Stopped),
            ("SUSPENDING", Paused, Paused, Paused),
            ("SUSPENDED", Paused, Paused, Paused),
            ("TERMINATED", Terminated, Terminated, Terminated),
            ("DEPROVISIONING", Terminated, Terminated, Terminated),
            ("HIBERNATING", Stopped, Stopped, Stopped),
        ] {
            assert_eq!(state(status, None, false), without, "{status}");
            assert_eq!(state(status, ip, false), with, "{status}");
            assert_eq!(state(status, ip, true), dying, "{status}");
        }
    }

    /// GC-9.
    #[test]
    fn the_mode_says_which_address_counts() {
        let both = vm(Some("203.0.113.7"), Some("10.132.0.5"));
        assert_eq!(address(&both, AddressMode::External), Some(Ipv4Addr::new(203, 0, 113, 7)));
        assert_eq!(address(&both, AddressMode::Internal), Some(Ipv4Addr::new(10, 132, 0, 5)));
        assert_eq!(address(&vm(None, Some("10.132.0.5")), AddressMode::External), None);
        for bad in ["", "2001:db8::1", "0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "no address"] {
            assert_eq!(address(&vm(Some(bad), None), AddressMode::External), None, "{bad:?}");
        }
        let none: Vm = serde_json::from_value(serde_json::json!({"name": "x", "status": "RUNNING"})).unwrap();
        assert_eq!(address(&none, AddressMode::External), None);
    }
}

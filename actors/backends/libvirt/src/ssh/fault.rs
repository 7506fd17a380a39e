//! How a dial fails: where, why, what follows and what a person can do (§12, §13 of the libvirt provider's spec). Pure.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use egress_libvirt::Error as LibvirtCallError;
use egress_protocol::provider::ErrorClass;
use egress_provider::BackendError;

use super::dial::Target;

/// How far a dial had come (LV-84).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Reading key and known_hosts.
    Credentials,
    /// TCP.
    Tcp,
    /// Host key and authentication.
    Ssh,
    /// The channel to libvirtd's socket, and libvirt's own handshake.
    Socket,
}

impl Stage {
    /// As logs and `/debug/actors` have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Tcp => "tcp",
            Self::Ssh => "ssh",
            Self::Socket => "socket",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A file of the credentials. What is in it is never repeated (LV-85).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialFault {
    /// It is not there, or not for us.
    #[error("reading {what} {}: {fault}", path.display())]
    Unreadable {
        /// Which file.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's words.
        fault: String,
    },
    /// It is not what it should be.
    #[error("parsing {what} {}: {fault}", path.display())]
    Unparsable {
        /// Which file.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Our words.
        fault: String,
    },
}

/// What is wrong with a host's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostKeyFault {
    /// known_hosts has none for this host.
    Unknown,
    /// It has others.
    Changed,
    /// It says that this one must not be used.
    Revoked,
    /// The host has no key of the algorithms that known_hosts has keys of.
    NoneOfThose,
}

/// Why a dial failed.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Key or known_hosts.
    Credentials(CredentialFault),
    /// TCP, or a name that does not resolve.
    Tcp(String),
    /// The host's key. `shown` is its algorithm and fingerprint, `name` what was looked up.
    HostKey {
        /// What is wrong.
        fault: HostKeyFault,
        /// The name under which known_hosts was searched.
        name: String,
        /// What the host showed.
        shown: String,
    },
    /// The host refuses the key of the user. `methods` is what it would take instead.
    Refused {
        /// What the host offers.
        methods: String,
    },
    /// Anything else of SSH.
    Ssh(String),
    /// sshd could not connect to the socket, or would not say why.
    Unconnected(String),
    /// sshd forbids it, and says so.
    Forbidden,
    /// Behind the socket is something else.
    NotLibvirt(String),
    /// libvirt's handshake.
    Libvirt(LibvirtCallError),
    /// The budget is spent.
    Budget(Duration),
}

/// A dial that failed. It is no [`std::error::Error`], so that `?` keeps its class on the way to a [`BackendError`].
#[derive(Debug, Clone)]
pub struct DialError {
    /// How far it had come.
    pub stage: Stage,
    /// Why.
    pub fault: Fault,
    /// To whom.
    pub target: Target,
}

/// What the two types call a failed dial in a health verdict (§13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthReasons {
    /// Of `kvm`, which goes by the stage.
    pub kvm: &'static str,
    /// Of `kvm2`, which goes by the cause.
    pub kvm2: &'static str,
}

/// libvirt's codes for "you may not": operation denied, authentication failed, access denied, authentication unavailable.
const DENIED: [i32; 4] = [29, 45, 88, 94];

impl DialError {
    /// What follows for the call that needed the link (§12).
    pub fn class(&self) -> ErrorClass {
        let permanent = match &self.fault {
            Fault::Credentials(CredentialFault::Unparsable { .. }) | Fault::HostKey { .. } | Fault::Refused { .. } => true,
            Fault::Libvirt(error) => denied(error),
            Fault::Credentials(CredentialFault::Unreadable { .. })
            | Fault::Tcp(_)
            | Fault::Ssh(_)
            | Fault::Unconnected(_)
            | Fault::Forbidden
            | Fault::NotLibvirt(_)
            | Fault::Budget(_) => false,
        };
        if permanent { ErrorClass::Permanent } else { ErrorClass::Transient }
    }

    /// How a health check names it.
    pub fn reasons(&self) -> HealthReasons {
        let kvm = match self.stage {
            Stage::Credentials => "SSHMaterialUnavailable",
            Stage::Tcp => "Unreachable",
            Stage::Ssh => "SSHHandshakeFailed",
            Stage::Socket => "LibvirtConnectFailed",
        };
        let kvm2 = match &self.fault {
            Fault::Credentials(_) => "CredentialsUnavailable",
            Fault::HostKey { .. } | Fault::Refused { .. } => "Unauthorized",
            Fault::Libvirt(error) if denied(error) => "Forbidden",
            Fault::Tcp(_)
            | Fault::Ssh(_)
            | Fault::Unconnected(_)
            | Fault::Forbidden
            | Fault::NotLibvirt(_)
            | Fault::Libvirt(_)
            | Fault::Budget(_) => "Unreachable",
        };
        HealthReasons { kvm, kvm2 }
    }
}

impl From<DialError> for BackendError {
    /// The cause always lies in the environment: a host, its key, a file (LV-180).
    fn from(error: DialError) -> Self {
        Self::new(error.class(), error.to_string()).environment()
    }
}

fn denied(error: &LibvirtCallError) -> bool {
    match error {
        LibvirtCallError::Authentication { .. } => true,
        other => other.libvirt().is_some_and(|said| DENIED.contains(&said.code)),
    }
}

/// Each message says what failed and what to look at.
impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { user, socket, .. } = &self.target;
        let address = self.target.address();
        match &self.fault {
            Fault::Credentials(fault) => write!(f, "{fault}"),
            Fault::Tcp(fault) => write!(f, "connecting to {address}: {fault}; look at name, route and firewall"),
            Fault::HostKey { fault: HostKeyFault::Unknown, name, shown } => {
                write!(
                    f,
                    "ssh to {address}: the host key {shown} is unknown: known_hosts has no entry {name:?}; add one under exactly this name"
                )
            }
            Fault::HostKey { fault: HostKeyFault::Changed, name, shown } => {
                write!(
                    f,
                    "ssh to {address}: the host key has changed to {shown}: known_hosts has another one for {name:?}; if the host was set up anew, replace that entry"
                )
            }
            Fault::HostKey { fault: HostKeyFault::Revoked, shown, .. } => {
                write!(f, "ssh to {address}: known_hosts revokes the host key {shown}; give the host a new one")
            }
            Fault::HostKey { fault: HostKeyFault::NoneOfThose, name, shown } => {
                write!(
                    f,
                    "ssh to {address}: the host has no key of the kind that known_hosts has for {name:?}; it offers {shown}: add one of these"
                )
            }
            Fault::Refused { methods } => {
                write!(
                    f,
                    "ssh to {address}: the key of user {user:?} is refused (the host would take: {methods}); look at authorized_keys of that user"
                )
            }
            Fault::Ssh(fault) => write!(f, "ssh to {address}: {fault}; look at sshd's log on the host"),
            Fault::Unconnected(fault) => write!(
                f,
                "opening {socket} at {address}: sshd says {fault:?}, and not why; look whether libvirtd runs, whether hosts[].socket names its socket, \
                 whether user {user:?} may open it (group libvirt), and whether sshd permits AllowStreamLocalForwarding"
            ),
            Fault::Forbidden => {
                write!(
                    f,
                    "opening {socket} at {address}: sshd forbids it; look at AllowStreamLocalForwarding, DisableForwarding and the options in authorized_keys"
                )
            }
            Fault::NotLibvirt(fault) => {
                write!(
                    f,
                    "opening {socket} at {address}: what answers there is not libvirt: {fault}; look at hosts[].socket and whether libvirtd runs"
                )
            }
            Fault::Libvirt(error) if denied(error) => {
                write!(f, "opening libvirt at {address}: {error}; look whether user {user:?} is in group libvirt, and at polkit")
            }
            Fault::Libvirt(error) => write!(f, "opening libvirt at {address}: {error}"),
            Fault::Budget(budget) => write!(f, "connecting to {address} took longer than {budget:?}, and had come to stage {}", self.stage),
        }
    }
}

#[cfg(test)]
mod tests;

//! A certificate of our own, signed by itself: whom a client talks to it must know otherwise, what they say nobody else hears.
//!
//! What must stay true: it is no authority (nobody who trusts it trusts another by it), and the key never leaves the process.

use std::net::IpAddr;
use std::time::Duration;

use egress_protocol::Timestamp;
use egress_protocol::resource::grammar;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

const DAY: Duration = Duration::from_secs(86_400);
/// How long it counts.
const VALID: Duration = DAY.saturating_mul(365);
/// It counts from a little before now: clients' clocks differ.
const EARLIER: Duration = Duration::from_secs(3600);
/// How long before its end there is another.
const RENEWED: Duration = DAY.saturating_mul(30);
/// The longest common name.
const COMMON_NAME: usize = 64;

/// A certificate with its key.
pub(super) struct Certificate {
    pub(super) der: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) until: Timestamp,
    pub(super) renew_at: Timestamp,
}

/// The names of a listener: of this machine's loopback always, of the Pod where they are known. What cannot be a name is
/// left out.
pub fn names(instance: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let addresses = addresses.into_iter().map(|ip| ip.to_canonical()).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string());
    let instance = Some(instance.to_ascii_lowercase()).filter(|name| grammar::is_object_name(name));
    for name in instance.into_iter().chain(addresses) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

impl Certificate {
    /// For these names, from now on.
    pub(super) fn make(names: &[String], now: Timestamp) -> Result<Self, rcgen::Error> {
        let (from, until) = (now - EARLIER, now + VALID);
        let mut params = CertificateParams::new(names)?;
        let name = names.iter().rev().find(|name| name.len() <= COMMON_NAME && name.parse::<IpAddr>().is_err());
        params.distinguished_name.push(DnType::CommonName, name.map_or("localhost", String::as_str));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let since_1970 = |time: Timestamp| Duration::from_millis(u64::try_from(time.unix_millis()).unwrap_or(0));
        let at = |time: Timestamp| rcgen::date_time_ymd(1970, 1, 1) + since_1970(time);
        (params.not_before, params.not_after) = (at(from), at(until));
        let key = KeyPair::generate()?;
        let der = params.self_signed(&key)?.der().clone();
        Ok(Self { der, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(), until, renew_at: until - RENEWED })
    }
}

//! Whose a domain is: the element that libvirt keeps for us in its definition (§5.3). Pure.

use egress_protocol::{InstallationId, Timestamp, Uid};

use crate::profile::Profile;
use crate::xml::{Element, XmlError};

const ELEMENT: &str = "instance";

/// What is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMark<'a> {
    /// The Proxy's UID.
    pub uid: &'a Uid,
    /// Who we are.
    pub installation: &'a InstallationId,
    /// Now.
    pub created_at: Timestamp,
    /// The entry that made it: for people.
    pub entry: &'a str,
    /// Where its volumes are.
    pub pool: &'a str,
    /// Its card.
    pub mac: &'a str,
}

impl NewMark<'_> {
    /// For the domain's `metadata`.
    pub fn element(&self, profile: Profile) -> Element {
        let created_at = self.created_at.to_jiff().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Element::new(ELEMENT).with("xmlns", profile.namespace).children([
            Element::of("managed", "true"),
            Element::of("uid", self.uid.as_str()),
            Element::of("installation", self.installation.as_str()),
            Element::of("createdAt", created_at),
            Element::of("entry", self.entry),
            Element::of("pool", self.pool),
            Element::of("mac", self.mac),
        ])
    }
}

/// What is read. Texts are trimmed; what is absent is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// It says that a machine is managed by the operator.
    pub managed: bool,
    /// Lower case.
    pub uid: String,
    /// Whose it is.
    pub installation: String,
    /// None if it cannot be read; one to come is passed on as it is (LV-58).
    pub created_at: Option<Timestamp>,
    /// Where its volumes are (LV-59).
    pub pool: String,
    /// Its card, lower case.
    pub mac: String,
}

/// A mark that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    /// libvirt gave back something that is not XML.
    #[error("the mark is {0}")]
    Xml(#[from] XmlError),
    /// Something else is kept under our namespace.
    #[error("the mark is <{0}>, and not <{ELEMENT}>")]
    Element(String),
}

impl Mark {
    /// Reads what libvirt gives back: without the namespace, re-indented (LV-57).
    pub fn parse(xml: &str) -> Result<Self, MarkError> {
        let element = Element::parse(xml)?;
        if element.name != ELEMENT {
            return Err(MarkError::Element(element.name));
        }
        let of = |name| element.first(name).map(|child| child.text.trim()).unwrap_or_default();
        Ok(Self {
            managed: of("managed") == "true",
            uid: of("uid").to_lowercase(),
            installation: of("installation").to_owned(),
            created_at: Timestamp::parse(of("createdAt")),
            pool: of("pool").to_owned(),
            mac: of("mac").to_lowercase(),
        })
    }

    /// Whether it is one of an installation's, of whatever Proxy (PC-54). Without an installation it is foreign.
    pub fn is_of(&self, installation: &InstallationId) -> bool {
        self.managed && !self.installation.is_empty() && self.installation.eq_ignore_ascii_case(installation.as_str().trim())
    }

    /// What keeps it from being that of `uid` under `installation` (LV-142, LV-152); `None`: it is.
    pub fn differs(&self, uid: &Uid, installation: &InstallationId) -> Option<&'static str> {
        let wanted = uid.as_str().trim().to_lowercase();
        if !self.managed {
            Some("managed")
        } else if wanted.is_empty() || self.uid != wanted {
            Some("uid")
        } else if !self.is_of(installation) {
            Some("installation")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;

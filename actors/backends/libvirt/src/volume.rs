//! Descriptions of volumes (LV-50), and what is read of one. Pure.

use crate::settings::Format;
use crate::xml::{Element, XmlError};

/// A volume to be made: no `<allocation>`, no `<permissions>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its size in bytes, as a disk.
    pub capacity: u64,
    /// What it is.
    pub format: Format,
    /// The base that it lies over: its path, and what it is.
    pub over: Option<(&'a str, Format)>,
}

/// Why there is no description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// libvirt would take it for something else.
    #[error("a volume needs a name and a size, and not {name:?} and {capacity} bytes")]
    Empty {
        /// Its name.
        name: String,
        /// Its size.
        capacity: u64,
    },
    /// A value that XML cannot have.
    #[error(transparent)]
    Xml(#[from] XmlError),
}

impl NewVolume<'_> {
    /// The description.
    pub fn to_xml(&self) -> Result<String, VolumeError> {
        if self.name.is_empty() || self.capacity == 0 {
            return Err(VolumeError::Empty { name: self.name.to_owned(), capacity: self.capacity });
        }
        let format = |format: Format| Element::new("format").with("type", format.as_str());
        let over = self.over.map(|(path, base)| Element::new("backingStore").child(Element::of("path", path)).child(format(base)));
        let volume = Element::new("volume")
            .child(Element::of("name", self.name))
            .child(Element::of("capacity", self.capacity.to_string()).with("unit", "bytes"))
            .child(Element::new("target").child(format(self.format)))
            .children(over);
        Ok(volume.to_xml()?)
    }
}

/// The path of the base that a volume lies over, if it lies over one.
pub fn backing_path(description: &str) -> Result<Option<String>, XmlError> {
    let volume = Element::parse(description)?;
    let path = volume.first("backingStore").and_then(|store| store.first("path"));
    Ok(path.map(|path| path.text.trim().to_owned()).filter(|path| !path.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::{NewVolume, VolumeError, backing_path};
    use crate::settings::Format;

    const BASE: NewVolume<'_> = NewVolume { name: "v", capacity: 10 << 30, format: Format::Raw, over: None };

    #[test]
    fn a_volume_is_described_as_the_format_says_lv_50() {
        assert_eq!(
            BASE.to_xml().unwrap(),
            "<volume><name>v</name><capacity unit=\"bytes\">10737418240</capacity><target><format type=\"raw\"/></target></volume>"
        );
        let overlay = NewVolume { format: Format::Qcow2, over: Some(("/pool/b & c", Format::Raw)), ..BASE };
        assert_eq!(
            overlay.to_xml().unwrap(),
            "<volume><name>v</name><capacity unit=\"bytes\">10737418240</capacity><target><format type=\"qcow2\"/></target>\
             <backingStore><path>/pool/b &amp; c</path><format type=\"raw\"/></backingStore></volume>"
        );
        assert_eq!(backing_path(&overlay.to_xml().unwrap()).unwrap().as_deref(), Some("/pool/b & c"));
        assert_eq!(backing_path(&BASE.to_xml().unwrap()).unwrap(), None);
    }

    #[test]
    fn a_volume_without_a_name_or_a_size_is_refused_lv_50() {
        assert!(matches!(NewVolume { name: "", ..BASE }.to_xml(), Err(VolumeError::Empty { .. })));
        assert!(matches!(NewVolume { capacity: 0, ..BASE }.to_xml(), Err(VolumeError::Empty { .. })));
        assert!(matches!(NewVolume { name: "a\u{1}", ..BASE }.to_xml(), Err(VolumeError::Xml(_))));
    }

    #[test]
    fn a_volume_that_lies_over_nothing_has_no_base() {
        for xml in ["<volume/>", "<volume><backingStore/></volume>", "<volume><backingStore><path/></backingStore></volume>"] {
            assert_eq!(backing_path(xml).unwrap(), None);
        }
        assert!(backing_path("no XML").is_err());
    }
}

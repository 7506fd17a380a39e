//! The head of an image, looked at before it goes near a machine (LV-107). Pure.
//!
//! A qcow2 image may name another file: published with it, that file of the *host* would be copied into the guest's disk
//! (F11). So what names one is refused, and what is not what it is said to be, too.

use crate::settings::Format;

/// So many bytes are enough.
pub const HEAD: usize = 104;

const MAGIC: [u8; 4] = *b"QFI\xfb";
/// Incompatible feature: data are in another file.
const EXTERNAL_DATA: u64 = 1 << 2;

/// Why an image is refused. It is what the image is, and no other attempt changes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It is said to be qcow2.
    #[error("it is not a qcow2 image, though its format says so")]
    NotQcow2,
    /// It is said to be raw.
    #[error("it is a qcow2 image, though its format says raw")]
    NotRaw,
    /// Too short to be one.
    #[error("it ends within its header")]
    Short,
    /// QEMU knows 2 and 3.
    #[error("its qcow2 version is {0}, and 2 and 3 are supported")]
    Version(u32),
    /// It names another file.
    #[error("it has a backing file")]
    Backing,
    /// It names another file.
    #[error("it has an external data file")]
    ExternalData,
    /// Nobody here has the key.
    #[error("it is encrypted")]
    Encrypted,
    /// A disk of nothing.
    #[error("its virtual size is 0")]
    Empty,
}

/// Looks at the first bytes of an image, [`HEAD`] of them or all there are. The answer is its size as a disk, if it says it;
/// a raw image's is its length.
pub fn inspect(format: Format, head: &[u8]) -> Result<Option<u64>, ImageError> {
    let qcow2 = head.starts_with(&MAGIC);
    match format {
        Format::Raw if qcow2 => return Err(ImageError::NotRaw),
        Format::Raw => return Ok(None),
        Format::Qcow2 if !qcow2 => return Err(ImageError::NotQcow2),
        Format::Qcow2 => {}
    }
    let version = number32(head, 4)?;
    if version != 2 && version != 3 {
        return Err(ImageError::Version(version));
    }
    if number64(head, 8)? != 0 || number32(head, 16)? != 0 {
        return Err(ImageError::Backing);
    }
    let size = number64(head, 24)?;
    if number32(head, 32)? != 0 {
        return Err(ImageError::Encrypted);
    }
    if version == 3 && number64(head, 72)? & EXTERNAL_DATA != 0 {
        return Err(ImageError::ExternalData);
    }
    if size == 0 { Err(ImageError::Empty) } else { Ok(Some(size)) }
}

fn number32(head: &[u8], at: usize) -> Result<u32, ImageError> {
    let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or(ImageError::Short)
}

fn number64(head: &[u8], at: usize) -> Result<u64, ImageError> {
    let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| u64::from_be_bytes(*bytes)).ok_or(ImageError::Short)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HEAD, ImageError, inspect};
    use crate::settings::Format::{Qcow2, Raw};

    fn head(version: u32, change: impl Fn(&mut [u8])) -> Vec<u8> {
        let mut head = vec![0; HEAD];
        head[..4].copy_from_slice(b"QFI\xfb");
        head[4..8].copy_from_slice(&version.to_be_bytes());
        head[24..32].copy_from_slice(&(3_u64 << 30).to_be_bytes());
        change(&mut head);
        head
    }

    #[test]
    fn an_image_says_how_large_its_disk_is_lv_107() {
        for version in [2, 3] {
            assert_eq!(inspect(Qcow2, &head(version, |_| {})), Ok(Some(3 << 30)));
        }
        assert_eq!(inspect(Raw, &[0; 512]), Ok(None));
        assert_eq!(inspect(Raw, b""), Ok(None));
        assert_eq!(inspect(Qcow2, &head(2, |_| {})[..72]), Ok(Some(3 << 30)), "version 2 has a shorter head");
    }

    #[test]
    fn what_names_another_file_or_is_not_what_it_is_said_to_be_is_refused_lv_107() {
        for (head, expected) in [
            (head(3, |head| head[15] = 1), ImageError::Backing),
            (head(2, |head| head[19] = 9), ImageError::Backing),
            (head(3, |head| head[79] = 4), ImageError::ExternalData),
            (head(2, |head| head[35] = 1), ImageError::Encrypted),
            (head(3, |head| head[35] = 2), ImageError::Encrypted),
            (head(1, |_| {}), ImageError::Version(1)),
            (head(4, |_| {}), ImageError::Version(4)),
            (head(3, |head| head[24..32].fill(0)), ImageError::Empty),
            (vec![0; 512], ImageError::NotQcow2),
            (b"<html>".to_vec(), ImageError::NotQcow2),
            (Vec::new(), ImageError::NotQcow2),
        ] {
            assert_eq!(inspect(Qcow2, &head), Err(expected));
        }
        assert_eq!(inspect(Raw, &head(3, |_| {})), Err(ImageError::NotRaw));
        for length in 4..80 {
            assert_eq!(inspect(Qcow2, &head(3, |_| {})[..length]), Err(ImageError::Short), "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_image_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = inspect(Raw, &bytes);
            let _ = inspect(Qcow2, &[b"QFI\xfb", &bytes[..]].concat());
        }
    }
}

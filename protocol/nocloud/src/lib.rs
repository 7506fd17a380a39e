//! NoCloud seed images for cloud-init, built in memory.
//!
//! A virtual machine that boots a stock cloud image asks its disks for a file system labelled `cidata`. This crate makes
//! that file system: an ISO 9660 image with the files `user-data`, `meta-data` and `vendor-data`. Nothing touches a disk,
//! since user data may hold credentials (LV-61), and equal input gives equal bytes.
//!
//! - [`Seed`]: what a machine is given, and its [`image`](Seed::image)
//! - [`vendor_data`]: what the operator adds beside the user's own document: the guest agent, a configured document, or both
//! - [`Kind`]: what cloud-init takes a document for, by its first line
//!
//! The crate depends on no other crate of this project, does no I/O and starts no task.
//!
//! ```
//! use egress_nocloud::{SECTOR, Seed, vendor_data};
//!
//! let vendor = vendor_data("#cloud-config\ntimezone: UTC\n", true)?;
//! let seed = Seed { name: "proxy-aaaabbbbccccdddd", user_data: b"#cloud-config\npackages: [squid]\n", vendor_data: vendor.as_bytes() };
//! let image = seed.image()?;
//!
//! assert_eq!(image.len() % SECTOR, 0);
//! assert_eq!(&image[16 * SECTOR..][..6], b"\x01CD001", "an ISO 9660 volume descriptor");
//! assert_eq!(seed.image()?, image, "the same seed is the same bytes");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod iso;
mod seed;
mod vendor;

pub use iso::SECTOR;
pub use seed::{MAX_USER_DATA, Seed, SeedError};
pub use vendor::{AGENT_SCRIPT, Kind, VendorError, vendor_data};

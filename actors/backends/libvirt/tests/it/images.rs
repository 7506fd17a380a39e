//! Images that QEMU's own tool has made.

use std::path::Path;
use std::process::Command;

use egress_backend_libvirt::qcow2::{HEAD, ImageError, inspect};
use egress_backend_libvirt::settings::Format;

use crate::ssh::support::{program, skip};

fn made(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let file = folder.join("image");
    let output = Command::new("qemu-img")
        .current_dir(folder)
        .arg("create")
        .args(["-q", "-f", "qcow2"])
        .args(arguments)
        .arg(&file)
        .arg("3G")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let image = std::fs::read(file).unwrap();
    image[..image.len().min(HEAD)].to_vec()
}

#[test]
fn the_images_of_qemu_img_are_read_as_what_they_are_lv_107() {
    if program("qemu-img").is_none() {
        return skip("the_images_of_qemu_img_are_read_as_what_they_are_lv_107", "no qemu-img");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("base.raw"), [0; 512]).unwrap();
    let secret = ["--object", "secret,id=s,data=abc", "-o", "encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10"];
    for (arguments, expected) in [
        (&["-o", "compat=0.10"][..], Ok(Some(3 << 30))),
        (&["-o", "compat=1.1"], Ok(Some(3 << 30))),
        (&["-o", "compression_type=zlib,lazy_refcounts=on"], Ok(Some(3 << 30))),
        (&["-b", "base.raw", "-F", "raw"], Err(ImageError::Backing)),
        (&["-o", "data_file=data.raw"], Err(ImageError::ExternalData)),
        (&secret, Err(ImageError::Encrypted)),
    ] {
        assert_eq!(inspect(Format::Qcow2, &made(folder.path(), arguments)), expected, "{arguments:?}");
    }
}

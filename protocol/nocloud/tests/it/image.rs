//! Images before `isoinfo`, `xorriso`, `blkid` and the kernel.

use std::path::Path;

use egress_nocloud::{SECTOR, Seed};
use proptest::prelude::*;

use crate::support::{have, run, skip};

const META: &[u8] = b"instance-id: proxy-aaaabbbbccccdddd\nlocal-hostname: proxy-aaaabbbbccccdddd\n";

/// User data that is no text, and no whole number of sectors.
fn awkward() -> Vec<u8> {
    (0..3 * SECTOR + 7).map(|n| (n * 31 % 256) as u8).collect()
}

fn seed(user_data: &[u8]) -> Vec<u8> {
    Seed { name: "proxy-aaaabbbbccccdddd", user_data, vendor_data: b"#!/bin/sh\n" }.image().unwrap()
}

fn written(folder: &Path, image: &[u8]) -> std::path::PathBuf {
    let path = folder.join("seed.iso");
    std::fs::write(&path, image).unwrap();
    path
}

#[test]
fn isoinfo_finds_the_label_and_the_files_byte_for_byte_lv_60() {
    if !have("isoinfo") {
        return skip("isoinfo_finds_the_label_and_the_files_byte_for_byte_lv_60", "no isoinfo");
    }
    let folder = tempfile::tempdir().unwrap();
    let image = written(folder.path(), &seed(&awkward()));
    let image = image.to_str().unwrap();
    let about = String::from_utf8(run("isoinfo", ["-d", "-i", image]).stdout).unwrap();
    assert!(about.lines().any(|line| line == "Volume id: cidata"), "{about}");
    assert!(about.contains("Joliet with UCS level 3 found"), "{about}");
    let names = String::from_utf8(run("isoinfo", ["-J", "-f", "-i", image]).stdout).unwrap();
    assert_eq!(names.lines().collect::<Vec<_>>(), ["/meta-data", "/user-data", "/vendor-data"]);
    for (name, expected) in [("/user-data", &awkward()[..]), ("/meta-data", META), ("/vendor-data", b"#!/bin/sh\n")] {
        assert!(run("isoinfo", ["-J", "-x", name, "-i", image]).stdout == expected, "{name}");
    }
}

#[test]
fn xorriso_extracts_every_file_as_it_was_lv_60() {
    if !have("xorriso") {
        return skip("xorriso_extracts_every_file_as_it_was_lv_60", "no xorriso");
    }
    for user_data in [awkward(), Vec::new(), vec![0; SECTOR], vec![b'x'; SECTOR + 1]] {
        let folder = tempfile::tempdir().unwrap();
        let image = written(folder.path(), &seed(&user_data));
        let to = folder.path().join("out");
        run("xorriso", ["-osirrox", "on", "-indev", image.to_str().unwrap(), "-extract", "/", to.to_str().unwrap()]);
        assert!(std::fs::read(to.join("user-data")).unwrap() == user_data, "{} bytes", user_data.len());
        assert_eq!(std::fs::read(to.join("meta-data")).unwrap(), META);
        assert_eq!(std::fs::read(to.join("vendor-data")).unwrap(), b"#!/bin/sh\n");
    }
}

/// Also hard case N2: with another label no datasource is found.
#[test]
fn blkid_sees_what_cloud_init_looks_for_lv_60() {
    if !have("blkid") {
        return skip("blkid_sees_what_cloud_init_looks_for_lv_60", "no blkid");
    }
    let folder = tempfile::tempdir().unwrap();
    let image = written(folder.path(), &seed(b"#cloud-config\n"));
    let seen = String::from_utf8(run("blkid", ["-p", "-o", "export", image.to_str().unwrap()]).stdout).unwrap();
    for line in ["TYPE=iso9660", "LABEL=cidata"] {
        assert!(seen.lines().any(|l| l == line), "{line} in {seen}");
    }
}

#[test]
fn the_kernel_mounts_it_lv_60() {
    const NAME: &str = "the_kernel_mounts_it_lv_60";
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !root || !known.lines().any(|line| line.trim() == "iso9660") {
        return skip(NAME, "not root, or a kernel without iso9660");
    }
    let folder = tempfile::tempdir().unwrap();
    let image = written(folder.path(), &seed(&awkward()));
    let at = folder.path().join("mnt");
    std::fs::create_dir(&at).unwrap();
    run("mount", ["-o", "loop,ro", image.to_str().unwrap(), at.to_str().unwrap()]);
    let read = std::fs::read(at.join("user-data"));
    run("umount", [at.to_str().unwrap()]);
    assert!(read.unwrap() == awkward());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the user wrote is on the image exactly once it should be: at the place of its file, followed by zeros.
    #[test]
    fn user_data_goes_onto_the_image_byte_for_byte_lv_60(user_data in proptest::collection::vec(any::<u8>(), 0..3 * SECTOR)) {
        let image = seed(&user_data);
        prop_assert_eq!(image.len() % SECTOR, 0);
        // meta-data has the first sector of files, user-data the next ones.
        let file = &image[26 * SECTOR..][..user_data.len().next_multiple_of(SECTOR)];
        prop_assert_eq!(&file[..user_data.len()], &user_data[..]);
        prop_assert!(file[user_data.len()..].iter().all(|byte| *byte == 0));
    }
}

use proptest::prelude::*;

use super::{Delete, Found, MARKER_LIMIT, Marker, Next, next};
use crate::settings::{Firmware, Format, Image, SeedBus};

fn digest(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn marker() -> Marker {
    Marker { digest: digest('a'), size: Some(123), virtual_size: Some(1 << 30), url: Some(digest('b')) }
}

fn image(sha256: Option<String>) -> Image {
    Image { url: "https://example.com/x".into(), sha256, format: Format::Qcow2, firmware: Firmware::Uefi, seed_bus: SeedBus::Scsi }
}

#[test]
fn a_marker_is_written_and_read_lv_100() {
    let text = marker().to_text();
    assert_eq!(text, format!("{}\nsize=123\nvsize=1073741824\nurl={}\n", digest('a'), digest('b')));
    assert_eq!(Marker::parse(text.as_bytes()), Some(marker()));
    let bare = Marker { digest: digest('a'), size: None, virtual_size: None, url: None };
    for text in
        [digest('a'), format!("{}\n", digest('a')), format!("{}\0\0\0", digest('a')), format!("{}\nsize=x\nurl=y\nfuture=1\n", digest('a'))]
    {
        assert_eq!(Marker::parse(text.as_bytes()), Some(bare.clone()), "{text:?}");
    }
    for text in ["", "a", &digest('a')[1..], &digest('A'), &digest('g'), &format!(" {}", digest('a')), &format!("{}b", digest('a'))] {
        assert_eq!(Marker::parse(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn no_more_of_a_marker_is_read_than_a_marker_has_lv_74() {
    let long = marker().to_text() + &"x".repeat(MARKER_LIMIT) + "\nsize=999\n";
    assert_eq!(Marker::parse(long.as_bytes()).unwrap().size, Some(123));
}

#[test]
fn every_finding_has_its_action_lv_101() {
    let url = digest('b');
    let size = Some(1 << 30);
    let found = |marker, base| Found { marker, base };
    let fetch = |delete| Next::Fetch { delete };
    let bare = Marker { size: None, virtual_size: None, url: None, ..marker() };
    for (about, found, sha256, expected) in [
        ("nothing", found(None, None), None, fetch(Delete::Nothing)),
        ("upload debris", found(None, size), None, fetch(Delete::Base)),
        ("a marker that is none", found(Some(None), size), None, fetch(Delete::Both)),
        ("a marker that is none, alone", found(Some(None), None), None, fetch(Delete::Marker)),
        ("a marker alone", found(Some(Some(marker())), None), None, fetch(Delete::Marker)),
        ("another image", found(Some(Some(marker())), size), Some('c'), Next::Refuse { cached: digest('a'), configured: digest('c') }),
        (
            "another image, and no base",
            found(Some(Some(marker())), None),
            Some('c'),
            Next::Refuse { cached: digest('a'), configured: digest('c') },
        ),
        ("another base under the marker", found(Some(Some(marker())), Some(7)), None, fetch(Delete::Both)),
        ("as configured", found(Some(Some(marker())), size), Some('a'), Next::Use { moved: false }),
        ("no digest configured", found(Some(Some(marker())), size), None, Next::Use { moved: false }),
        ("a marker of an older version", found(Some(Some(bare)), Some(7)), None, Next::Use { moved: false }),
    ] {
        assert_eq!(next(&found, &image(sha256.map(digest)), &url), expected, "{about}");
    }
}

#[test]
fn an_edited_url_has_no_effect_and_is_said_unless_the_digest_speaks_lv_101_lv_111() {
    let found = Found { marker: Some(Some(marker())), base: Some(1 << 30) };
    assert_eq!(next(&found, &image(None), &digest('d')), Next::Use { moved: true });
    assert_eq!(next(&found, &image(Some(digest('a'))), &digest('d')), Next::Use { moved: false });
}

proptest! {
    #[test]
    fn any_bytes_are_a_marker_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Marker::parse(&bytes);
    }

    /// What is deleted is never what would be used, and a base without a marker is never used.
    #[test]
    fn a_base_is_used_only_with_its_marker_lv_100(has_marker: bool, valid: bool, base in proptest::option::of(any::<u64>())) {
        let found = Found { marker: has_marker.then(|| valid.then(marker)), base };
        if let Next::Use { .. } = next(&found, &image(None), &digest('b')) {
            prop_assert!(has_marker && valid && base == Some(1 << 30));
        }
    }
}

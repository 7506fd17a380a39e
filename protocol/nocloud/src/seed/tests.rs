use super::{MAX_USER_DATA, Seed, SeedError};

fn seed(name: &str) -> Seed<'_> {
    Seed { name, user_data: b"#!/bin/sh\necho sentinel-9f2c\n", vendor_data: b"" }
}

#[test]
fn the_name_is_instance_id_and_host_name_lv_60() {
    assert_eq!(
        seed("proxy-aaaabbbbccccdddd").meta_data().unwrap(),
        "instance-id: proxy-aaaabbbbccccdddd\nlocal-hostname: proxy-aaaabbbbccccdddd\n"
    );
}

#[test]
fn an_empty_name_is_refused_as_such_lv_61() {
    assert_eq!(seed("").image(), Err(SeedError::EmptyName));
}

#[test]
fn a_name_that_would_change_the_document_it_goes_into_is_refused() {
    let long = "a".repeat(254);
    for name in ["a\nuser-data: x", "a: b", "a b", "-a", ".a", "1e3", "null", "Yes", "ä", "a#b", "a\0", long.as_str()] {
        let refused = seed(name).image().unwrap_err();
        assert_eq!(refused, SeedError::Name(name.to_owned()));
        assert!(refused.to_string().contains("is not a host name"), "{refused}");
    }
}

#[test]
fn user_data_of_eight_mebibytes_fits_and_one_byte_more_does_not_lv_60() {
    let data = vec![b'x'; MAX_USER_DATA + 1];
    let fits = Seed { user_data: &data[..MAX_USER_DATA], ..seed("a") };
    assert!(fits.image().unwrap().len() > MAX_USER_DATA);
    let refused = Seed { user_data: &data, ..seed("a") }.image().unwrap_err();
    assert_eq!(refused, SeedError::TooLarge { document: "user-data", size: MAX_USER_DATA + 1 });
    assert_eq!(refused.to_string(), "user-data has 8388609 bytes, and at most 8388608 fit on a seed");
}

#[test]
fn a_seed_does_not_print_what_it_holds_lv_203() {
    let seed = Seed { vendor_data: b"sentinel-9f2c", ..seed("a") };
    assert_eq!(format!("{seed:?}"), r#"Seed { name: "a", user_data: <29 bytes>, vendor_data: <13 bytes> }"#);
}

use std::fmt::Debug;

use proptest::prelude::*;

use super::{Decode, Encode, XdrError, from_bytes, to_bytes};
use crate::procedures::{Domain, DomainInterface, InterfaceAddress, NodeInfo, StoragePoolInfo, StorageVolume};
use crate::wire::{Header, RemoteError};

/// A value that went over the wire is what it was, takes whole words, and cut anywhere it is refused.
fn round_trip<T: Encode + Decode + PartialEq + Debug>(value: &T) {
    let bytes = to_bytes(value);
    assert_eq!(bytes.len() % 4, 0);
    assert!(bytes.len() >= T::MIN, "{} of at least {}", bytes.len(), T::MIN);
    assert_eq!(&from_bytes::<T>(&bytes).unwrap(), value);
    for length in 0..bytes.len() {
        assert!(from_bytes::<T>(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
    }
    let mut longer = bytes;
    longer.extend([0; 4]);
    assert_eq!(from_bytes::<T>(&longer), Err(XdrError::Trailing(4)));
}

prop_compose! {
    fn domain()(name in ".{0,40}", uuid: [u8; 16], id: i32) -> Domain {
        Domain { name, uuid, id }
    }
}

prop_compose! {
    fn remote_error()(
        code: i32, domain: i32, message in proptest::option::of(".{0,80}"), level: i32, of in proptest::option::of(domain()),
        texts in proptest::array::uniform3(proptest::option::of(".{0,9}")), int1: i32, int2: i32,
    ) -> RemoteError {
        let [str1, str2, str3] = texts;
        RemoteError { code, domain, message, level, of, str1, str2, str3, int1, int2, network: None }
    }
}

prop_compose! {
    fn interface()(
        name in ".{0,15}", hardware_address in proptest::option::of("[0-9a-f:]{17}"),
        addresses in proptest::collection::vec((any::<i32>(), ".{0,39}", any::<u32>()), 0..5),
    ) -> DomainInterface {
        let addresses = addresses.into_iter().map(|(kind, address, prefix)| InterfaceAddress { kind, address, prefix }).collect();
        DomainInterface { name, hardware_address, addresses }
    }
}

proptest! {
    #[test]
    fn numbers_come_back(a: u32, b: i32, c: u64, d: i64, e: u8) {
        round_trip(&a);
        round_trip(&b);
        round_trip(&c);
        round_trip(&d);
        round_trip(&e);
    }

    #[test]
    fn texts_lists_and_optionals_come_back(text in ".{0,60}", list: Vec<u32>, maybe: Option<u64>) {
        round_trip(&text);
        round_trip(&list);
        round_trip(&maybe);
    }

    #[test]
    fn structures_come_back(
        domains in proptest::collection::vec(domain(), 0..4), error in remote_error(),
        interfaces in proptest::collection::vec(interface(), 0..4), pool in (any::<u8>(), any::<u64>(), any::<u64>(), any::<u64>()),
        volume in (".{0,9}", ".{0,9}", ".{0,9}"), header in (any::<u32>(), any::<i32>(), any::<u32>(), any::<u32>()),
    ) {
        round_trip(&domains);
        round_trip(&error);
        round_trip(&interfaces);
        let (state, capacity, allocation, available) = pool;
        round_trip(&StoragePoolInfo { state, capacity, allocation, available });
        let (pool, name, key) = volume;
        round_trip(&StorageVolume { pool, name, key });
        let (program, procedure, serial, status) = header;
        round_trip(&Header { program, version: 1, procedure, kind: 3, serial, status });
    }

    /// Bytes that nobody made for it end in an answer, whatever they are read as.
    #[test]
    fn any_bytes_decode_or_are_refused_lv_70(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = from_bytes::<RemoteError>(&bytes);
        let _ = from_bytes::<Vec<Domain>>(&bytes);
        let _ = from_bytes::<Vec<DomainInterface>>(&bytes);
        let _ = from_bytes::<NodeInfo>(&bytes);
        let _ = from_bytes::<Vec<Option<String>>>(&bytes);
        let _ = from_bytes::<Header>(&bytes);
    }
}

#[test]
fn a_length_beyond_the_end_is_refused_before_anything_is_allocated_lv_70() {
    for length in [1_u32, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        let bytes = to_bytes(&length);
        assert_eq!(from_bytes::<String>(&bytes), Err(XdrError::Short { missing: length as usize }));
        let list = from_bytes::<Vec<Domain>>(&bytes).unwrap_err();
        assert_eq!(list, XdrError::Short { missing: length as usize * Domain::MIN });
    }
}

#[test]
fn a_flag_that_is_neither_and_a_char_that_is_too_large_are_refused() {
    assert_eq!(from_bytes::<Option<u32>>(&to_bytes(&2_u32)), Err(XdrError::Value { value: 2, of: "an optional's flag" }));
    assert_eq!(from_bytes::<u8>(&to_bytes(&256_u32)), Err(XdrError::Value { value: 256, of: "a char" }));
}

#[test]
fn text_that_is_not_utf_8_is_read_with_replacements() {
    assert_eq!(from_bytes::<String>(b"\0\0\0\x03a\xffb\0").unwrap(), "a\u{fffd}b");
}

#[test]
fn the_layout_is_that_of_rfc_4506() {
    assert_eq!(to_bytes(&"abcde".to_owned()), b"\0\0\0\x05abcde\0\0\0");
    assert_eq!(to_bytes(&Some(1_u32)), b"\0\0\0\x01\0\0\0\x01");
    assert_eq!(to_bytes(&vec![1_u64]), b"\0\0\0\x01\0\0\0\0\0\0\0\x01");
    assert_eq!(to_bytes(&(-2_i32)), b"\xff\xff\xff\xfe");
}

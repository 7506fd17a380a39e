use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use proptest::prelude::*;
use russh::keys::HashAlg;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::ssh_key::{Algorithm, PublicKey};
use sha1::Sha1;

use super::{KnownHosts, UnreadableRevocation, Verdict, glob, lookup_name};

fn key(seed: u8) -> PublicKey {
    PublicKey::from(Ed25519Keypair::from_seed(&[seed; 32]).public)
}

fn line(names: &str, seed: u8) -> String {
    format!("{names} {}\n", key(seed).to_openssh().unwrap())
}

fn judge(file: &str, seed: u8) -> Verdict {
    KnownHosts::parse(file).unwrap().judge("[host-a.example.com]:2222", &key(seed))
}

fn hashed(name: &str) -> String {
    let salt = [7; 20];
    let hash = Hmac::<Sha1>::new_from_slice(&salt).unwrap().chain_update(name).finalize().into_bytes();
    format!("|1|{}|{}", BASE64.encode(&salt), BASE64.encode(&hash))
}

#[test]
fn a_host_is_listed_under_its_name_and_port_lv_15() {
    assert_eq!(lookup_name("Host-A.example.com", 22), "host-a.example.com");
    assert_eq!(lookup_name("host-a.example.com", 2222), "[host-a.example.com]:2222");
    assert_eq!(lookup_name("::1", 2222), "[::1]:2222");
    assert_eq!(lookup_name("192.0.2.1", 22), "192.0.2.1");
}

#[test]
fn plain_hashed_bracketed_and_wildcard_names_match_lv_86() {
    for names in [
        "[host-a.example.com]:2222",
        "[HOST-A.example.com]:2222",
        "other,[host-a.example.com]:2222,third",
        "[*.example.com]:2222",
        "[host-?.example.com]:2222",
        "*",
        &hashed("[host-a.example.com]:2222"),
    ] {
        assert_eq!(judge(&line(names, 1), 1), Verdict::Trusted, "{names}");
        assert_eq!(judge(&line(names, 1), 2), Verdict::Changed, "{names}");
    }
    for names in [
        "host-a.example.com",
        "[host-a.example.com]:22",
        "[host-a.example.com]:222",
        "[host-b.example.com]:2222",
        "[*.example.com]:2222,![host-a.example.com]:2222",
        "![host-a.example.com]:2222,*",
        &hashed("host-a.example.com"),
        &hashed("[HOST-A.example.com]:2222"),
    ] {
        assert_eq!(judge(&line(names, 1), 1), Verdict::Unknown, "{names}");
    }
}

#[test]
fn tabs_comments_and_blank_lines_are_read_as_openssh_reads_them_lv_86() {
    let file = format!("# a comment\n\n   \n  [host-a.example.com]:2222\t\t{}  a comment of words\n", key(1).to_openssh().unwrap());
    assert_eq!(judge(&file, 1), Verdict::Trusted);
    assert_eq!(judge("", 1), Verdict::Unknown);
}

#[test]
fn a_host_may_have_several_keys_in_any_order_lv_86() {
    let both = line("[host-a.example.com]:2222", 1) + &line("[host-a.example.com]:2222", 2);
    assert_eq!((judge(&both, 1), judge(&both, 2), judge(&both, 3)), (Verdict::Trusted, Verdict::Trusted, Verdict::Changed));
}

#[test]
fn a_revoked_key_is_refused_wherever_its_line_stands_lv_86() {
    let trusted = line("[host-a.example.com]:2222", 1);
    let revoked = format!("@revoked {}", line("*", 1));
    for file in [format!("{trusted}{revoked}"), format!("{revoked}{trusted}"), revoked.clone()] {
        assert_eq!(judge(&file, 1), Verdict::Revoked, "{file}");
    }
    assert_eq!(judge(&format!("{trusted}@revoked {}", line("*", 2)), 1), Verdict::Trusted, "another one is revoked");
    assert_eq!(judge(&format!("@revoked {}", line("other", 1)), 1), Verdict::Unknown, "revoked for another host");
}

#[test]
fn authorities_are_ignored_and_said_lv_86() {
    let known = KnownHosts::parse(&format!("@cert-authority {}", line("*", 1))).unwrap();
    assert_eq!(known.judge("[host-a.example.com]:2222", &key(1)), Verdict::Unknown);
    assert_eq!(known.remarks(), ["1 @cert-authority lines are ignored: host certificates are not supported"]);
}

#[test]
fn a_line_that_does_not_parse_is_skipped_and_said_without_quoting_it_lv_85_lv_86() {
    let known =
        KnownHosts::parse(&format!("sentinel-77\n{}@gibberish a b\nh ssh-ed25519 sentinel-77\n", line("[host-a.example.com]:2222", 1)))
            .unwrap();
    assert_eq!(known.judge("[host-a.example.com]:2222", &key(1)), Verdict::Trusted);
    assert_eq!(known.remarks(), ["3 lines cannot be read and are skipped, the first is line 1"]);
}

#[test]
fn a_revocation_that_does_not_parse_makes_the_file_unreadable_lv_86() {
    for broken in ["@revoked * ssh-ed25519 AAAAsentinel", "@revoked", "@revoked *", "@revoked\t* nonsense"] {
        let refused = KnownHosts::parse(&format!("{}{broken}\n", line("a", 1))).unwrap_err();
        assert_eq!(refused, UnreadableRevocation { line: 2 }, "{broken}");
        assert_eq!(refused.to_string(), "line 2 revokes a key and cannot be read");
    }
}

#[test]
fn what_a_host_may_choose_from_is_what_is_pinned_lv_86() {
    let rsa = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQCxO38tKAJXIs9ivPxt7AYdfgmdBT5YVBOkWF1u3mc2Gz1uWNLOVOwQ\
               Z/Iy1MrnDuVL8sJXBTUy9EKxmXTiVD1hHrAjf3l8QKnZSZuTTkpUo2pJSWKaVNWUHDGzsPGUJjvDQW4FmHUvF5T8oDkk\
               vB4UEO3Sqk2CkSgWDLGVMMBTMw==";
    let name = "[host-a.example.com]:2222";
    let file = format!("{name} {rsa}\n{}@revoked {}", line("other", 2), line(name, 3));
    let known = KnownHosts::parse(&file).unwrap();
    assert_eq!(known.remarks(), [""; 0]);
    let sha = |hash| Algorithm::Rsa { hash: Some(hash) };
    assert_eq!(known.algorithms(name), [sha(HashAlg::Sha512), sha(HashAlg::Sha256)], "never SHA-1, and nothing of another host");
    let more = KnownHosts::parse(&(file + &line(name, 1) + &line(name, 2))).unwrap();
    assert_eq!(more.algorithms(name), [Algorithm::Ed25519, sha(HashAlg::Sha512), sha(HashAlg::Sha256)]);
    assert_eq!(more.algorithms("nobody"), []);
}

/// The plain way to say what a pattern means: exponential, and right.
fn slow(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => slow(rest, name) || name.split_first().is_some_and(|(_, after)| slow(pattern, after)),
        (Some((p, rest)), Some((n, after))) if *p == b'?' || p.eq_ignore_ascii_case(n) => slow(rest, after),
        _ => false,
    }
}

proptest! {
    #[test]
    fn a_pattern_means_what_it_says(pattern in "[ab*?]{0,8}", name in "[abA]{0,8}") {
        prop_assert_eq!(glob(pattern.as_bytes(), name.as_bytes()), slow(pattern.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(\\PC|\n|@revoked |@cert-authority |\\|1\\||ssh-ed25519 ){0,40}") {
        if let Ok(known) = KnownHosts::parse(&text) {
            let _ = (known.judge("a", &key(1)), known.algorithms("a"), known.remarks());
        }
    }
}

use egress_protocol::{InstallationId, Timestamp, Uid};
use proptest::prelude::*;

use super::{Mark, MarkError, NewMark};
use crate::profile::{KVM, KVM2};

const UID: &str = "3f1c2a9e-0000-4000-8000-000000000001";

fn written() -> String {
    let (uid, installation) = (Uid::new(UID), InstallationId::new("inst-a"));
    let created_at = Timestamp::parse("2026-01-02T03:04:05.678Z").unwrap();
    let mark = NewMark { uid: &uid, installation: &installation, created_at, entry: "lab", pool: "default", mac: "02:00:00:00:00:01" };
    mark.element(KVM2).to_xml().unwrap()
}

/// As libvirt gives it back (F8).
fn given_back(xml: &str) -> String {
    xml.replace(&format!(" xmlns=\"{}\"", KVM2.namespace), "").replace("><", ">\n    <")
}

#[test]
fn a_mark_is_written_as_the_format_says_lv_56() {
    assert_eq!(
        written(),
        "<instance xmlns=\"https://egress-proxies-operator.example.com/kvm2\"><managed>true</managed>\
         <uid>3f1c2a9e-0000-4000-8000-000000000001</uid><installation>inst-a</installation><createdAt>2026-01-02T03:04:05Z</createdAt>\
         <entry>lab</entry><pool>default</pool><mac>02:00:00:00:00:01</mac></instance>"
    );
    assert!(!written().contains(&format!("{}\"", KVM.namespace)), "LV-2: never the other type's namespace");
}

#[test]
fn it_is_read_as_libvirt_gives_it_back_lv_57() {
    let mark = Mark::parse(&given_back(&written())).unwrap();
    assert_eq!(
        mark,
        Mark {
            managed: true,
            uid: UID.into(),
            installation: "inst-a".into(),
            created_at: Timestamp::parse("2026-01-02T03:04:05Z"),
            pool: "default".into(),
            mac: "02:00:00:00:00:01".into()
        }
    );
    assert_eq!(mark.differs(&Uid::new(UID), &InstallationId::new("inst-a")), None);
}

#[test]
fn texts_are_trimmed_and_case_of_a_uid_does_not_count_lv_58() {
    let mark = Mark::parse(
        "<instance><managed>\n true </managed><uid> ABC </uid><installation> inst </installation><mac> 02:AB </mac></instance>",
    )
    .unwrap();
    assert_eq!((mark.managed, mark.uid.as_str(), mark.installation.as_str(), mark.mac.as_str()), (true, "abc", "inst", "02:ab"));
    assert_eq!(mark.differs(&Uid::new(" aBc "), &InstallationId::new("INST")), None);
    for managed in ["True", "1", "yes", "", "false"] {
        assert!(!Mark::parse(&format!("<instance><managed>{managed}</managed></instance>")).unwrap().managed, "{managed}");
    }
    let blank = Mark::parse("<instance><managed>true</managed><uid> \n </uid><installation/></instance>").unwrap();
    assert_eq!((blank.uid.as_str(), blank.differs(&Uid::new(" "), &InstallationId::new("inst"))), ("", Some("uid")));
}

#[test]
fn what_older_and_newer_versions_write_is_read_lv_56() {
    let older = Mark::parse("<instance><managed>true</managed><uid>u</uid><installation>i</installation></instance>").unwrap();
    assert_eq!((older.pool.as_str(), older.mac.as_str(), older.created_at), ("", "", None));
    let newer = Mark::parse("<instance><future><uid>no</uid></future><managed>true</managed><uid>u</uid></instance>").unwrap();
    assert_eq!(newer.uid, "u");
    let odd = Mark::parse("<instance><createdAt>yesterday</createdAt></instance>").unwrap();
    assert_eq!(odd.created_at, None);
    let to_come = Mark::parse("<instance><createdAt>2999-01-01T00:00:00Z</createdAt></instance>").unwrap();
    assert_eq!(to_come.created_at, Timestamp::parse("2999-01-01T00:00:00Z"), "it is judged by PC-46");
}

#[test]
fn a_domain_is_ours_by_mark_uid_and_installation_lv_141_lv_142_lv_152() {
    let (uid, ours) = (Uid::new("u"), InstallationId::new("i"));
    let of = |managed, uid, installation| {
        Mark::parse(&format!(
            "<instance><managed>{managed}</managed><uid>{uid}</uid><installation>{installation}</installation></instance>"
        ))
        .unwrap()
    };
    assert_eq!(of("true", "u", "i").differs(&uid, &ours), None);
    assert_eq!(of("false", "u", "i").differs(&uid, &ours), Some("managed"));
    assert_eq!(of("true", "other", "i").differs(&uid, &ours), Some("uid"));
    assert_eq!(of("true", "", "i").differs(&uid, &ours), Some("uid"));
    assert_eq!(of("true", "u", "other").differs(&uid, &ours), Some("installation"));
    assert_eq!(of("true", "u", "").differs(&uid, &ours), Some("installation"));
    assert!(
        of("true", "other", "i").is_of(&ours) && !of("true", "u", "").is_of(&InstallationId::new("")) && !of("", "u", "i").is_of(&ours)
    );
}

#[test]
fn what_is_no_mark_is_an_error_of_its_own_lv_58() {
    assert!(matches!(Mark::parse("<instance><managed>"), Err(MarkError::Xml(_))));
    assert!(matches!(Mark::parse(""), Err(MarkError::Xml(_))));
    assert_eq!(Mark::parse("<other/>"), Err(MarkError::Element("other".into())));
}

proptest! {
    #[test]
    fn any_text_is_a_mark_or_an_error(text in "(\\PC|<instance>|</instance>|<uid>|</uid>|<managed>true</managed>){0,40}") {
        let _ = Mark::parse(&text);
    }
}

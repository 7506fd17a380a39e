use super::{AGENT_SCRIPT, Kind, VendorError, vendor_data};

#[test]
fn every_beginning_that_cloud_init_knows_has_its_kind_lv_26_lv_63() {
    for (document, kind, content_type) in [
        ("#cloud-config\na: 1\n", Kind::CloudConfig, Some("text/cloud-config")),
        ("#cloud-config-archive\n- x\n", Kind::CloudConfigArchive, Some("text/cloud-config-archive")),
        ("#cloud-config-jsonp\n[]\n", Kind::CloudConfigPatch, Some("text/cloud-config-jsonp")),
        ("#!/bin/sh\n", Kind::Script, Some("text/x-shellscript")),
        ("#include\nhttp://a/\n", Kind::Include, Some("text/x-include-url")),
        ("#include-once\nhttp://a/\n", Kind::IncludeOnce, Some("text/x-include-once-url")),
        ("#cloud-boothook\n", Kind::Boothook, Some("text/cloud-boothook")),
        ("## template: jinja\n#cloud-config\n", Kind::Jinja, Some("text/jinja2")),
        ("MIME-Version: 1.0\n", Kind::Mime, None),
        ("Content-Type: multipart/mixed\n", Kind::Mime, None),
    ] {
        assert_eq!(Kind::of(document), Some(kind), "{document:?}");
        assert_eq!(kind.content_type(), content_type, "{document:?}");
    }
    for document in ["", "packages: [squid]\n", " #cloud-config\n", "\n#!/bin/sh\n", "#Cloud-config\n", "# comment\n#cloud-config\n"] {
        assert_eq!(Kind::of(document), None, "{document:?}");
    }
}

#[test]
fn alone_the_agent_is_the_script_and_a_document_is_itself_lv_63() {
    assert_eq!(vendor_data("", true).unwrap(), AGENT_SCRIPT);
    assert_eq!(vendor_data("", false).unwrap(), "");
    let document = "#cloud-config\nwrite_files: [{content: \"ü\\n\"}]\r\n\n\n";
    assert_eq!(vendor_data(document, false).unwrap(), document);
    let mime = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x--\n";
    assert_eq!(vendor_data(mime, false).unwrap(), mime);
}

#[test]
fn what_cloud_init_would_ignore_is_refused_and_the_message_says_what_it_takes_lv_26() {
    for agent in [true, false] {
        let refused = vendor_data("packages: [squid]\n", agent).unwrap_err();
        assert_eq!(refused, VendorError::Unrecognised);
        assert!(refused.to_string().contains("#cloud-config, #!, #include"), "{refused}");
    }
}

#[test]
fn a_mime_document_is_not_nested_and_the_message_offers_the_way_out_lv_26() {
    let refused = vendor_data("Content-Type: multipart/mixed; boundary=x\n", true).unwrap_err();
    assert_eq!(refused, VendorError::Nested);
    assert!(refused.to_string().contains("turn the agent off"), "{refused}");
}

#[test]
fn both_in_one_begin_with_the_mime_header_and_a_boundary_of_the_contents_lv_63() {
    let first = vendor_data("#cloud-config\na: 1\n", true).unwrap();
    assert!(first.starts_with("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"==="), "{first}");
    assert_eq!(vendor_data("#cloud-config\na: 1\n", true).unwrap(), first, "equal input, equal bytes");
    let boundary = |text: &str| text.split('"').nth(1).unwrap().to_owned();
    let second = vendor_data("#cloud-config\na: 2\n", true).unwrap();
    assert_ne!(boundary(&first), boundary(&second), "the boundary derives from the contents");
    assert_eq!(first.matches(&boundary(&first)).count(), 4, "in the header, before each part, and at the end: nowhere else");
}

#[test]
fn the_boundary_is_in_no_part_even_if_a_part_holds_it_lv_63() {
    let outer = vendor_data("#!/bin/sh\necho 1\n", true).unwrap();
    let boundary = outer.split('"').nth(1).unwrap();
    let inner = vendor_data(&format!("#!/bin/sh\n--{boundary}--\n"), true).unwrap();
    let own = inner.split('"').nth(1).unwrap();
    assert_eq!((inner.matches(own).count(), inner.matches(boundary).count()), (4, 0));
}

use proptest::prelude::*;

use super::{Element, XmlError};

fn tree() -> impl Strategy<Value = Element> {
    let leaf = ("[a-z]{1,6}", proptest::collection::vec(("[a-z]{1,4}", "[ -~äß\n]{0,12}"), 0..3), "[!-~äß]{0,12}").prop_map(
        |(name, attributes, text)| {
            let mut element = Element { name, text, ..Element::default() };
            for (name, value) in attributes {
                if element.attribute(&name).is_none() {
                    // Line ends in attributes are blanks to every reader.
                    element.attributes.push((name, value.replace('\n', " ")));
                }
            }
            element
        },
    );
    leaf.prop_recursive(4, 24, 4, |inner| {
        ("[a-z]{1,6}", proptest::collection::vec(inner, 1..4)).prop_map(|(name, children)| Element { name, children, ..Element::default() })
    })
}

proptest! {
    /// Whatever a value is, it arrives as that value and as nothing else (LV-51).
    #[test]
    fn what_is_written_is_read_as_it_was_lv_51(tree in tree()) {
        prop_assert_eq!(Element::parse(&tree.to_xml().unwrap()).unwrap(), tree);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(\\PC|<a|</a>|/>|&amp;|&#0;|\"|<!|\\[CDATA\\[|\\]\\]>){0,60}") {
        let _ = Element::parse(&text);
    }
}

#[test]
fn a_value_cannot_become_markup_lv_51() {
    let evil = "</name><devices/><name a='\"&amp;";
    let xml = Element::new("domain").with("id", evil).child(Element::of("name", evil)).to_xml().unwrap();
    let read = Element::parse(&xml).unwrap();
    assert_eq!((read.attribute("id"), read.children.len(), read.children[0].text.as_str()), (Some(evil), 1, evil));
}

#[test]
fn control_characters_are_refused_since_xml_cannot_have_them_lv_51() {
    for value in ["a\0b", "a\u{1b}[0m", "\u{7f}"] {
        let refused = Element::of("name", value).to_xml().unwrap_err();
        assert_eq!(refused, XmlError::Control { element: "name".into() });
        assert!(Element::new("name").with("a", value).to_xml().is_err());
    }
}

#[test]
fn references_prefixes_and_cdata_are_read_as_what_they_mean() {
    let read = Element::parse("<?xml version='1.0'?>\n<t:a xmlns:t='u'>x&amp;y&#233;<![CDATA[<z>]]><!-- no --></t:a>\n").unwrap();
    assert_eq!((read.name.as_str(), read.text.as_str()), ("a", "x&yé<z>"));
}

#[test]
fn what_is_not_one_whole_document_is_refused() {
    let deep = "<a>".repeat(100) + &"</a>".repeat(100);
    for text in
        ["", " ", "text", "<a>", "<a></b>", "<a/><b/>", "<a/>text", "<a b=c/>", "<a>&nonsense;</a>", "<a>&#0;</a>", "</a>", "<a", &deep]
    {
        assert!(matches!(Element::parse(text), Err(XmlError::Malformed(_))), "{text:.30}");
    }
}

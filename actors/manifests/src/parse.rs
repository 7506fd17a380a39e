//! From manifests as `egress_config` reads them to contents as `folder` weighs them.

use std::collections::BTreeSet;
use std::sync::Arc;

use egress_config::Fault;
use egress_config::manifest::{self, Document, ProxyDocument, SecretDocument};
use egress_protocol::ObjectKey;
use egress_protocol::object::Annotations;
use egress_protocol::resource::secrets::SecretContent;

use crate::folder::{self, Content, Declared, DeclaredProxy, Kind, Name, Unreadable};

/// Reads one file; `file` is how its faults name it.
pub(crate) fn content(file: &str, bytes: &[u8]) -> Content {
    if bytes.is_empty() {
        // A copy that has just begun, or that a full disk cut off, looks like this; who means it removes the file.
        let fault = format!("{file}: has 0 bytes: what it declared last is kept; to delete that, remove the file or leave a comment in it");
        return Content { faults: vec![fault], unreadable: Some(Unreadable::default()), ..Content::default() };
    }
    let manifest = manifest::parse(file, bytes);
    let faults = manifest.faults.iter().map(ToString::to_string).collect();
    if !manifest.readable {
        let text = String::from_utf8_lossy(bytes).into();
        return Content { faults, unreadable: Some(Unreadable { text: Some(text) }), ..Content::default() };
    }
    let (refused, nameless) = refused(&manifest.faults);
    let mut documents: Vec<(usize, folder::Document)> =
        refused.into_iter().map(|(document, name)| (document, (name, line_of(&manifest.faults, document), Declared::Refused))).collect();
    documents.extend(manifest.documents.into_iter().map(|found| {
        let (name, declared) = declared(found.value);
        (found.document, (name, found.line, declared))
    }));
    documents.sort_by_key(|(document, _)| *document);
    Content { documents: documents.into_iter().map(|(_, declared)| declared).collect(), nameless, faults, unreadable: None }
}

fn declared(document: Document) -> (Name, Declared) {
    match document {
        Document::Proxy(ProxyDocument { namespace, name, annotations, spec, .. }) => {
            let declared = DeclaredProxy { spec: Arc::new(spec), annotations: Annotations::of(&annotations) };
            (Name { kind: Kind::Proxy, key: ObjectKey::new(namespace, name) }, Declared::Proxy(declared))
        }
        Document::Secret(SecretDocument { namespace, name, labels, data, .. }) => {
            let secret = SecretContent::new(&labels, data.into_iter().map(|(key, value)| (key, Arc::new(value))));
            (Name { kind: Kind::Secret, key: ObjectKey::new(namespace, name) }, Declared::Secret(Arc::new(secret)))
        }
    }
}

fn line_of(faults: &[Fault], document: usize) -> Option<usize> {
    faults.iter().filter(|fault| fault.document == document).find_map(|fault| fault.line)
}

/// The names of the documents that have faults, and whether there are some whose name cannot be told.
fn refused(faults: &[Fault]) -> (BTreeSet<(usize, Name)>, bool) {
    let (mut names, mut nameless) = (BTreeSet::new(), false);
    for fault in faults {
        let label = fault.object.as_deref().and_then(|label| label.split_once(' '));
        let Some((kind, key)) = label.and_then(|(kind, key)| Some((kind, ObjectKey::parse(key)?))) else {
            nameless = true;
            continue;
        };
        // A kind that is cut off is one that is being written.
        match kind {
            "List" => nameless = true,
            kind if "Proxy".starts_with(kind) => drop(names.insert((fault.document, Name { kind: Kind::Proxy, key }))),
            kind if "Secret".starts_with(kind) => drop(names.insert((fault.document, Name { kind: Kind::Secret, key }))),
            _ => {}
        }
    }
    (names, nameless)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata: {name: px-1, annotations: {crawl.example.com/retry: '1', other: x}}
spec: {mode: Managed, provider: lab}
---
apiVersion: v1
kind: Secret
metadata: {name: boot, namespace: team, labels: {crawl.example.com/cloud-init: 'true'}}
stringData: {user-data: '#cloud-config'}
";

    fn names(content: &Content) -> Vec<String> {
        content
            .documents
            .iter()
            .map(|(name, _, declared)| format!("{name}{}", if *declared == Declared::Refused { "!" } else { "" }))
            .collect()
    }

    #[test]
    fn documents_come_with_what_steers_the_operator() {
        let content = content("/m/a.yaml", TWO.as_bytes());
        assert_eq!(names(&content), ["Proxy default/px-1", "Secret team/boot"]);
        assert_eq!((content.faults.len(), content.nameless, content.unreadable.is_some()), (0, false, false));
        let (Declared::Proxy(proxy), Declared::Secret(secret)) = (&content.documents[0].2, &content.documents[1].2) else { panic!() };
        assert_eq!(proxy.annotations.retry.as_deref(), Some("1"));
        assert_eq!((secret.for_cloud_init, secret.for_credentials), (true, false));
        assert_eq!(secret.data["user-data"].expose(), b"#cloud-config");
    }

    #[test]
    fn the_content_of_a_secret_without_a_label_is_not_kept() {
        let content = content("/m/a.yaml", TWO.replace("crawl.example.com/cloud-init: 'true'", "other: 'true'").as_bytes());
        let Declared::Secret(secret) = &content.documents[1].2 else { panic!() };
        assert!(secret.data.is_empty());
    }

    #[test]
    fn a_refused_document_keeps_its_name_and_place_and_the_others_apply() {
        let content = content("/m/a.yaml", TWO.replace("mode: Managed", "mode: Managed, prot: 1").as_bytes());
        assert_eq!(names(&content), ["Proxy default/px-1!", "Secret team/boot"]);
        assert!(content.faults.iter().any(|fault| fault.contains("/m/a.yaml") && fault.contains("prot")), "{:?}", content.faults);
        assert!(!content.nameless);
    }

    #[test]
    fn another_kind_is_a_fault_and_holds_no_name() {
        let content = content("/m/a.yaml", TWO.replace("kind: Proxy", "kind: ConfigMap").as_bytes());
        assert_eq!(names(&content), ["Secret team/boot"]);
        assert!(!content.faults.is_empty() && !content.nameless);
    }

    #[test]
    fn a_manifest_cut_anywhere_tells_its_names_or_that_it_cannot() {
        for cut in 1..TWO.len() {
            let content = content("/m/a.yaml", &TWO.as_bytes()[..cut]);
            let told = content.documents.iter().any(|(name, ..)| "px-1".starts_with(&*name.key.name));
            // Blank, or a document without content, says nothing at all.
            let said_nothing = content.documents.is_empty() && content.faults.is_empty();
            assert!(told || content.nameless || content.unreadable.is_some() || said_nothing, "{cut}: {content:?}");
        }
    }

    #[test]
    fn what_is_no_yaml_keeps_its_text_only() {
        let content = content("/m/a.yaml", b"kind: [Proxy\nmetadata: {name: px-1");
        assert!(content.documents.is_empty());
        assert!(content.unreadable.is_some_and(|unreadable| unreadable.text.is_some_and(|text| text.contains("px-1"))));
        assert_eq!(content.faults.len(), 1);
    }

    /// Issue 10, 28. Blanks and comments are somebody's word that nothing is declared.
    #[test]
    fn a_file_of_0_bytes_says_nothing_and_one_with_a_comment_says_nothing_is_left_op_30() {
        let empty = content("a.yaml", b"");
        assert_eq!(empty.unreadable, Some(Unreadable::default()));
        assert!(empty.faults[0].starts_with("a.yaml: has 0 bytes: what it declared last is kept"), "{:?}", empty.faults);
        assert_eq!(content("a.yaml", b"# nothing\n"), Content::default());
    }
}

//! What the command `crds` prints: the CRDs as YAML, made from the Rust types.

use egress_protocol::resource::crd;
use serde_json::Value;

/// The CRDs in one YAML stream, ready for `kubectl apply -f -`.
pub fn crds() -> String {
    each().into_iter().map(|(_, text)| format!("---\n{text}")).collect()
}

/// Each CRD with the name of its file under `config/crd/`.
pub(crate) fn each() -> [(&'static str, String); 2] {
    [("proxies.yaml", yaml(&crd::proxy())), ("providerhealths.yaml", yaml(&crd::provider_health()))]
}

fn yaml(crd: &Value) -> String {
    // A tree of JSON can always be written; the text is for the day it cannot.
    serde_yaml::to_string(crd).unwrap_or_else(|error| format!("# cannot be written: {error}\n"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// In `config/crd/`, and in the chart, which can only read files of its own (IN-1). `UPDATE=1 cargo test -p egress-config`
    /// writes them anew.
    #[test]
    fn the_committed_crds_are_those_of_the_types() {
        #[expect(clippy::disallowed_methods, reason = "a test that is told to write")]
        let update = std::env::var_os("UPDATE").is_some();
        for folder in ["crd", "../charts/egress-proxies-operator/crds-src"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            for (file, text) in each() {
                let path = folder.join(file);
                if update {
                    std::fs::create_dir_all(&folder).unwrap();
                    std::fs::write(&path, &text).unwrap();
                }
                assert!(std::fs::read_to_string(&path).unwrap_or_default() == text, "{} differs: run with UPDATE=1", path.display());
            }
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), each().len(), "{}", folder.display());
        }
    }

    #[test]
    fn the_stream_reads_back_as_the_two_crds() {
        let nodes = crate::yaml::documents(crds().as_bytes()).unwrap();
        let back: Vec<Value> = nodes.iter().map(|node| node.to_json("", &mut |path, _| panic!("{path} twice"))).collect();
        assert_eq!(back, [crd::proxy(), crd::provider_health()]);
    }
}

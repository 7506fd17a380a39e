use std::sync::Mutex;

use serde_json::Value;

use super::*;

fn capture(format: Format, level: &str, act: impl FnOnce()) -> Vec<String> {
    let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
    let sink: Sink = {
        let lines = Arc::clone(&lines);
        Arc::new(move |line| lines.lock().unwrap().extend_from_slice(line))
    };
    tracing::subscriber::with_default(subscriber(format, level, sink).unwrap(), act);
    let text = String::from_utf8(std::mem::take(&mut *lines.lock().unwrap())).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// The keys of a flat JSON object in order, read by a parser that does not forgive a duplicate.
fn keys(line: &str) -> Vec<String> {
    struct Keys(Vec<String>);
    impl<'de> serde::Deserialize<'de> for Keys {
        fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            struct V;
            impl<'de> serde::de::Visitor<'de> for V {
                type Value = Keys;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                    let mut keys = Vec::new();
                    while let Some((key, _)) = map.next_entry::<String, Value>()? {
                        assert!(!keys.contains(&key), "{key} occurs twice");
                        keys.push(key);
                    }
                    Ok(Keys(keys))
                }
            }
            d.deserialize_map(V)
        }
    }
    serde_json::from_str::<Keys>(line).unwrap().0
}

#[test]
fn a_key_occurs_once_per_line_also_in_nested_spans_ob_2() {
    let lines = capture(Format::Json, "trace", || {
        let outer = tracing::info_span!("outer", proxy = "default/a", attempt = 1, step = "create");
        let _outer = outer.enter();
        let inner = tracing::info_span!("inner", proxy = "default/b", late = tracing::field::Empty);
        inner.record("late", true);
        let _inner = inner.enter();
        tracing::info!(attempt = 2, duration = 0.25, "instance created");
    });
    assert_eq!(lines.len(), 1);
    assert_eq!(keys(&lines[0]), ["time", "level", "message", "target", "proxy", "attempt", "step", "late", "duration"]);
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&line["proxy"], &line["attempt"], &line["duration"]), (&"default/b".into(), &2.into(), &0.25.into()));
    assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"instance created".into()));
    assert!(egress_protocol::Timestamp::parse(line["time"].as_str().unwrap()).is_some());
}

#[test]
fn odd_values_still_make_one_line_that_parses_ob_6() {
    let lines = capture(Format::Json, "trace", || {
        let error = std::io::Error::other("a \"quoted\"\nerror");
        tracing::warn!(error = &error as &(dyn std::error::Error + 'static), "line\nbreak \u{7} \"quote\"");
        tracing::info!(target: "odd", level = "mine", time = 1, message2 = ?b"\xff", nan = f64::NAN, big = u64::MAX, "x");
        tracing::info!(r#type = "kvm", "raw identifier");
    });
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert_eq!(keys(line)[..4], ["time", "level", "message", "target"]);
    }
    let line: Value = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!((&line["field.level"], &line["level"]), (&"mine".into(), &"INFO".into()));
    assert!(lines[2].contains("\"type\":\"kvm\""));
}

#[test]
fn levels_are_per_target_and_libraries_are_quiet_ob_6() {
    let say = || {
        tracing::debug!(target: "kvm2", "ours");
        tracing::debug!(target: "hyper_util::client", "theirs");
        tracing::warn!(target: "hyper::proto", "their warning");
        tracing::debug!(target: "other", "others");
    };
    assert_eq!(capture(Format::Json, "info,kvm2=debug", say).len(), 2);
    assert_eq!(capture(Format::Json, "trace", say).len(), 3);
    assert_eq!(capture(Format::Json, "info,hyper=debug", say).len(), 2);
}

/// OB-2: the library calls an error what is a request that failed; who sent it says what came of that.
#[test]
fn the_kubernetes_client_says_nothing_of_its_own_unless_it_is_asked_by_name_ob_2() {
    let say = || tracing::error!(target: "kube_client::client::builder", "failed with error connection refused");
    assert_eq!(capture(Format::Json, "trace", say).len(), 0);
    assert_eq!(capture(Format::Json, "info,kube_client=error", say).len(), 1);
}

/// OB-2: the library of actors opens a span round each life; a line carries the fields of ours alone.
#[test]
fn an_actors_lines_carry_nothing_of_the_library_below_it() {
    let lines = capture(Format::Json, "debug", || {
        let _library = tracing::info_span!(target: "ractor::actor", "Actor", id = "0.1").entered();
        tracing::info!("said");
    });
    assert_eq!(keys(&lines[0]), ["time", "level", "message", "target"]);
}

/// OB-3: without an exporter the spans that are for it alone are never enabled, and what is said to it is not in a line.
#[test]
fn spans_for_the_exporter_alone_are_off_at_every_level() {
    let lines = capture(Format::Json, "trace", || {
        assert!(!tracing::span_enabled!(target: "otel", tracing::Level::ERROR));
        let _ours = tracing::info_span!("provider.get", otel.kind = "client", provider.name = "lab").entered();
        tracing::info!("said");
    });
    assert_eq!(keys(&lines[0]), ["time", "level", "message", "target", "provider.name"]);
}

#[test]
fn text_is_one_line_too() {
    let lines = capture(Format::Text, "info", || tracing::info!(proxy = "default/a", note = "two words", "created\nnow"));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("INFO created\\nnow proxy=default/a note=\"two words\""), "{}", lines[0]);
}

#[test]
fn a_panic_is_one_line_that_parses_ob_6() {
    let lines = capture(Format::Json, "info", || {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(panicked));
        let caught = std::panic::catch_unwind(|| panic!("two\nlines and \"quotes\""));
        std::panic::set_hook(before);
        assert!(caught.is_err());
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &"panic".into()));
    assert_eq!(line["panic"], "two\nlines and \"quotes\"");
    assert!(line["location"].as_str().unwrap().contains("logging/tests.rs"));
}

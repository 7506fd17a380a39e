use std::time::Duration;

use egress_monitor::status::{Checked, Outcome, next};
use egress_protocol::provider::TargetVerdict;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;

use super::*;

#[derive(Debug)]
struct Fixed(HealthSnapshot);

impl Collector for Fixed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        provider_targets(&mut encoder, &self.0)
    }
}

fn scraped(health: HealthSnapshot) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Fixed(health)));
    let mut out = String::new();
    prometheus_text::encode(&mut out, &registry).unwrap();
    out
}

fn target(name: &str, ready: bool) -> TargetVerdict {
    TargetVerdict {
        name: name.to_owned(),
        address: String::new(),
        ready,
        reason: "Reachable",
        message: String::new(),
        latency: Duration::from_micros(12_500),
        details: Vec::new(),
    }
}

/// HT-10 (PH-44).
#[test]
fn the_gauges_of_the_provider_checks_are_these_and_no_others_ht_10() {
    let checked = |name: &str, outcome| Checked {
        name: name.into(),
        type_: "kvm",
        outcome,
        finished: Timestamp::from_millis(1_767_323_045_250),
        took: Duration::from_secs(1),
    };
    let lab = next(None, &checked("lab", Outcome::Verdicts(vec![target("a", true), target("b", false)])));
    let unchecked = next(None, &checked("other", Outcome::NotImplemented));
    assert_eq!(
        scraped(HealthSnapshot { providers: vec![lab, unchecked.clone()] }),
        "\
# HELP proxy_operator_provider_target_up 1 if the provider target passed its most recent check, 0 if it failed.
# TYPE proxy_operator_provider_target_up gauge
proxy_operator_provider_target_up{provider=\"lab\",target=\"a\"} 1
proxy_operator_provider_target_up{provider=\"lab\",target=\"b\"} 0
# HELP proxy_operator_provider_check_duration_seconds How long the most recent check of the provider target took.
# TYPE proxy_operator_provider_check_duration_seconds gauge
proxy_operator_provider_check_duration_seconds{provider=\"lab\",target=\"a\"} 0.0125
proxy_operator_provider_check_duration_seconds{provider=\"lab\",target=\"b\"} 0.0125
# HELP proxy_operator_provider_check_timestamp_seconds When the provider target was last checked, as Unix time.
# TYPE proxy_operator_provider_check_timestamp_seconds gauge
proxy_operator_provider_check_timestamp_seconds{provider=\"lab\",target=\"a\"} 1767323045.25
proxy_operator_provider_check_timestamp_seconds{provider=\"lab\",target=\"b\"} 1767323045.25
"
    );
    assert_eq!(scraped(HealthSnapshot::default()), "");
    assert_eq!(scraped(HealthSnapshot { providers: vec![unchecked] }), "");
}

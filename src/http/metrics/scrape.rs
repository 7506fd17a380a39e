//! What is read at scrape time: phases, places and leases from the broker, the last provider checks from the monitor, actors
//! from the tree. Who does not answer is left out; a scrape never waits for long.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_protocol::Timestamp;
use egress_protocol::lease::{BROKER_ID, BrokerMessage, BrokerStats};
use egress_protocol::monitor::{self, HealthSnapshot, MonitorMessage, ProviderChecked};
use egress_protocol::resource::Phase;
use egress_protocol::resource::provider_health::TargetStatus;
use egress_supervision::{Address, System};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::logging::queue;

/// How long the broker may take.
const ANSWER: Duration = Duration::from_millis(500);

/// The last answers. [`Scrape::refresh`] asks, the encoder reads.
#[derive(Debug)]
pub(super) struct Scrape {
    system: System,
    broker: Address<BrokerMessage>,
    monitor: Address<MonitorMessage>,
    last: Mutex<Snapshot>,
}

#[derive(Debug, Default)]
struct Snapshot {
    broker: Option<BrokerStats>,
    health: Arc<HealthSnapshot>,
    actors: Vec<(&'static str, u64, u64)>,
}

impl Scrape {
    pub(super) fn new(system: System) -> Self {
        let (broker, monitor) = (system.address(BROKER_ID), system.address(monitor::ACTOR_ID));
        Self { system, broker, monitor, last: Mutex::default() }
    }

    pub(super) async fn refresh(&self) {
        let broker = self.broker.call(ANSWER, |reply_to| BrokerMessage::Stats { reply_to });
        let health = self.monitor.call(ANSWER, |reply_to| MonitorMessage::Snapshot { reply_to });
        let (broker, health) = futures::future::join(broker, health).await;
        let actors = self.system.counts();
        *self.lock() = Snapshot { broker: broker.ok(), health: health.unwrap_or_default(), actors };
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Snapshot> {
        self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A gauge family: name without prefix, help, and its series.
type Series = Vec<(Vec<(&'static str, String)>, i64)>;

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let last = self.lock();
        let mut gauge = |name: &str, help: &str, series: Series| {
            let name = format!("proxy_operator_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (labels, value) in series {
                let value = ConstGauge::new(value);
                if labels.is_empty() {
                    return value.encode(family);
                }
                value.encode(family.encode_family(&labels.as_slice())?)?;
            }
            Ok(())
        };
        let int = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        if let Some(stats) = &last.broker {
            let phases = Phase::ALL.iter().map(|phase| {
                let count = stats.phases.get(phase).copied().unwrap_or(0);
                (vec![("phase", phase.as_str().to_owned())], int(count))
            });
            gauge("proxies", "Proxies by phase.", phases.collect())?;
            gauge("leases_active", "Leases that run.", vec![(Vec::new(), int(stats.active_leases))])?;
            let slots = stats.slots.iter().flat_map(|of| {
                let states = [
                    ("free", of.slots.free),
                    ("leased", of.slots.leased),
                    ("cooling", of.slots.cooling),
                    ("unhealthy", of.slots.unhealthy),
                    ("drained", of.slots.drained),
                ];
                states.map(|(state, n)| (vec![("provider", of.provider.to_string()), ("state", state.to_owned())], int(n)))
            });
            gauge("lease_slots", "Places for leases by provider and state; external proxies have no provider.", slots.collect())?;
            if let Some(at) = stats.oldest_probe {
                let age = self.system.now().since(at).as_secs();
                gauge(
                    "oldest_probe_seconds",
                    "Seconds since the end of the probe that is longest ago, over the proxies that were probed.",
                    vec![(Vec::new(), int(age))],
                )?;
            }
        }
        let by_kind = |pick: fn(&(&'static str, u64, u64)) -> u64| {
            last.actors.iter().map(|of| (vec![("kind", of.0.to_owned())], int(pick(of)))).collect::<Series>()
        };
        gauge("actors", "Actors that exist, by kind.", by_kind(|of| of.1))?;
        gauge("actor_mailbox_depth", "Messages sent to actors and not yet handled, by kind.", by_kind(|of| of.2))?;
        let dropped = encoder.encode_descriptor(
            "proxy_operator_log_lines_dropped",
            "Log lines that were dropped because stderr was not read.",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(queue::dropped()).encode(dropped)?;
        provider_targets(&mut encoder, &last.health)
    }
}

/// The gauges of PH-44. Without a target there is no series, and no family.
fn provider_targets(encoder: &mut DescriptorEncoder<'_>, health: &HealthSnapshot) -> Result<(), std::fmt::Error> {
    let targets = health.providers.iter().flat_map(|checked| {
        let targets = checked.status.targets.iter().zip(&checked.latencies);
        targets.map(move |(target, took)| (checked, target, took))
    });
    let targets: Vec<_> = targets.collect();
    if targets.is_empty() {
        return Ok(());
    }
    let labelled = |checked: &ProviderChecked, target: &TargetStatus| [checked.name.to_string(), target.name.clone()];
    by_target(
        encoder,
        "target_up",
        "1 if the provider target passed its most recent check, 0 if it failed.",
        targets.iter().map(|(checked, target, _)| (labelled(checked, target), i64::from(target.ready))),
    )?;
    by_target(
        encoder,
        "check_duration_seconds",
        "How long the most recent check of the provider target took.",
        targets.iter().map(|(checked, target, took)| (labelled(checked, target), took.as_secs_f64())),
    )?;
    // Milliseconds of this age fit a double exactly.
    let seconds = |at: Timestamp| at.unix_millis() as f64 / 1000.0;
    by_target(
        encoder,
        "check_timestamp_seconds",
        "When the provider target was last checked, as Unix time.",
        targets.iter().map(|(checked, target, _)| (labelled(checked, target), seconds(checked.finished))),
    )
}

fn by_target<N: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = ([String; 2], N)>,
) -> Result<(), std::fmt::Error> {
    let name = format!("proxy_operator_provider_{name}");
    let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
    for ([provider, target], value) in series {
        let labels = [("provider", provider), ("target", target)];
        ConstGauge::new(value).encode(family.encode_family(&labels.as_slice())?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! What is read at scrape time: phases, places and leases from the broker, actors from the tree. A broker that does not
//! answer leaves its families out; a scrape never waits for long.

use std::sync::Mutex;
use std::time::Duration;

use egress_protocol::lease::{BROKER_ID, BrokerMessage, BrokerStats};
use egress_protocol::resource::Phase;
use egress_supervision::{Address, System};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// How long the broker may take.
const ANSWER: Duration = Duration::from_millis(500);

/// The last answers. [`Scrape::refresh`] asks, the encoder reads.
#[derive(Debug)]
pub(super) struct Scrape {
    system: System,
    broker: Address<BrokerMessage>,
    last: Mutex<Snapshot>,
}

#[derive(Debug, Default)]
struct Snapshot {
    broker: Option<BrokerStats>,
    actors: Vec<(&'static str, u64, u64)>,
}

impl Scrape {
    pub(super) fn new(system: System) -> Self {
        let broker = system.address(BROKER_ID);
        Self { system, broker, last: Mutex::default() }
    }

    pub(super) async fn refresh(&self) {
        let broker = self.broker.call(ANSWER, |reply_to| BrokerMessage::Stats { reply_to }).await.ok();
        let actors = self.system.counts();
        *self.lock() = Snapshot { broker, actors };
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
        gauge("actor_mailbox_depth", "Messages sent to actors and not yet handled, by kind.", by_kind(|of| of.2))
    }
}

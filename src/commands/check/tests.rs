use egress_config::cli::{self, Command};
use egress_protocol::leadership::Fence;

use super::*;

/// What a check does; nothing else may be asked of this backend.
#[derive(Clone, Copy)]
enum Does {
    Nothing,
    Hang,
    /// Stops when it is told to.
    Obey,
    Panic,
}

struct Scripted(Does);

impl Backend for Scripted {
    fn type_name(&self) -> &'static str {
        "scripted"
    }
    fn location_of(&self, _: Subject<'_>) -> Location {
        panic!("a check changes nothing")
    }
    fn start(&self) -> BoxFuture<'_, ()> {
        panic!("a check changes nothing")
    }
    fn create<'a>(&'a self, _: &'a CreateRequest, _: &'a Call) -> BoxFuture<'a, Result<InstanceId, BackendError>> {
        panic!("a check changes nothing")
    }
    fn get<'a>(&'a self, _: &'a InstanceKey, _: &'a Call) -> BoxFuture<'a, Result<Instance, BackendError>> {
        panic!("a check changes nothing")
    }
    fn delete<'a>(&'a self, _: &'a InstanceKey, _: &'a Call) -> BoxFuture<'a, Result<DeleteOutcome, BackendError>> {
        panic!("a check changes nothing")
    }
    fn list_managed<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Result<ListResult, BackendError>> {
        panic!("a check changes nothing")
    }
    fn check<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Vec<TargetVerdict>>> {
        match self.0 {
            Does::Nothing => None,
            Does::Hang => Some(Box::pin(std::future::pending())),
            Does::Panic => Some(Box::pin(async { panic!("scripted") })),
            Does::Obey => Some(Box::pin(async {
                call.cancel.cancelled().await;
                vec![TargetVerdict {
                    name: "host-1".into(),
                    address: "192.0.2.1:22".into(),
                    ready: false,
                    reason: "Unreachable",
                    message: "no route".into(),
                    latency: Duration::from_millis(7),
                    details: Vec::new(),
                }]
            })),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_provider_has_its_row_whatever_its_check_does_ph_48_ph_15() {
    let all = [("none", Does::Nothing), ("stuck", Does::Hang), ("slow", Does::Obey), ("broken", Does::Panic)];
    let entries = all.map(|(name, does)| ProviderEntry {
        type_: "scripted",
        fingerprint: String::new(),
        foundation: String::new(),
        settings: Arc::new(()),
        args: ProviderArgs {
            name: name.into(),
            max_concurrent_creates: 1,
            stop_grace: Duration::ZERO,
            fence: Fence::open(),
            build: Arc::new(move |_| Ok(Arc::new(Scripted(does)))),
        },
    });
    let began = Instant::now();
    let round = round(entries.into(), Duration::from_secs(15)).await;
    assert!(began.elapsed() <= Duration::from_secs(17));
    assert_eq!(
        show(&round),
        "\
PROVIDER  TYPE      TARGET  READY    REASON                LATENCY  ADDRESS       MESSAGE
none      scripted  -       unknown  ChecksNotImplemented                         providers of type scripted have no check
stuck     scripted  stuck   false    Timeout               16000ms                the check did not stop when its time was over
slow      scripted  host-1  false    Unreachable           7ms      192.0.2.1:22  no route
broken    scripted  broken  false    APIError              0ms                    the check broke down"
    );
    assert_eq!((exit_code(&round), exit_code(&round[..1])), (1, 0), "no check is no failure");
}

/// PH-47: ready is an address that a socket can be bound to.
#[tokio::test]
async fn local_says_which_source_addresses_the_machine_lacks_ph_47() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.yaml");
    std::fs::write(
        &file,
        "providers:\n- {name: lab, type: local, local: {sourceAddresses: [127.0.0.1, 192.0.2.254]}}\n- {name: plain, type: local}\n",
    )
    .unwrap();
    let line = format!("egress-proxies-operator check --providers-config {}", file.display());
    let Ok(Command::Check(settings)) = cli::parse(line.split(' ').map(Into::into), |_| None) else { panic!("{line}") };
    let round = round(providers::for_a_check(&settings.providers), settings.timeout).await;
    let rows: Vec<String> = show(&round).lines().map(|line| line.split_whitespace().take(5).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        rows[1..],
        ["lab local 127.0.0.1 true Reachable", "lab local 192.0.2.254 false AddressUnavailable", "plain local process true Reachable"]
    );
    assert_eq!((exit_code(&round), exit_code(&round[1..])), (1, 0));
}

//! SV-4, O7, OP-4: a process whose lost leadership does not end exits with 3, though its one thread is blocked.
//!
//! Without a harness, for the scenario ends its process: this program runs itself once more, with an argument.

#![allow(clippy::expect_used, reason = "a test, though without a harness")]

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_cluster::leadership::{Call, LeaderSettings, LeadershipArgs, LeaseStore};
use egress_kube::ApiError;
use egress_kube::kube::core::Status;
use egress_protocol::Clock;
use egress_protocol::leadership::{BRANCH_ID, Fence, Standing, StandingCell};
use egress_protocol::message::Never;
use egress_protocol::metrics::Metrics;
use egress_supervision::{Actor, ChildSpec, Context, Failure, System};
use k8s_openapi::api::coordination::v1::Lease;

const SCENARIO: &str = "a-branch-that-defies-its-end";
const TEST: &str = "a_process_whose_lost_leadership_does_not_end_exits_with_3";

/// Whoever writes the Lease has it, until it was written three times: then a thief does.
#[derive(Default)]
struct Stolen {
    lease: Arc<Mutex<Option<Lease>>>,
    writes: AtomicU32,
}

impl Stolen {
    fn write(&self, mut lease: Lease) -> Call<Lease> {
        let written = self.writes.fetch_add(1, Ordering::Relaxed);
        let kept = Arc::clone(&self.lease);
        Box::pin(async move {
            lease.metadata.resource_version = Some(written.to_string());
            let stolen = lease.spec.as_mut().filter(|_| written > 2).map(|spec| spec.holder_identity = Some("thief".to_owned()));
            *kept.lock().expect("no thread panics") = Some(lease.clone());
            match stolen {
                Some(()) => Err(ApiError::Status(Box::new(Status::failure("stolen", "Conflict").with_code(409)))),
                None => Ok(lease),
            }
        })
    }
}

impl LeaseStore for Stolen {
    fn get(&self) -> Call<Option<Lease>> {
        let lease = self.lease.lock().expect("no thread panics").clone();
        Box::pin(async move { Ok(lease) })
    }

    fn create(&self, lease: Lease) -> Call<Lease> {
        self.write(lease)
    }

    fn replace(&self, lease: Lease) -> Call<Lease> {
        self.write(lease)
    }
}

/// Told to end, it blocks the thread for ever.
struct Defiant;

impl Actor for Defiant {
    type Message = Never;
    type Internal = Never;
    type Args = ();
    const KIND: &'static str = "leader";

    async fn start(ctx: &Context<Self>, (): ()) -> Result<Self, Failure> {
        let told = ctx.cancelled();
        let defy = async move {
            told.cancelled().await;
            loop {
                std::thread::park();
            }
        };
        ctx.spawn(defy).keep();
        Ok(Self)
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Returns only if nothing ends the process.
async fn scenario() {
    let settings = LeaderSettings {
        namespace: "ns".into(),
        name: "egress".into(),
        identity: "a_1".into(),
        lease_duration: Duration::from_millis(1500),
        renew_deadline: Duration::from_millis(900),
        retry_period: Duration::from_millis(200),
        address: "a.example:8090".into(),
    };
    let standing = StandingCell::new(Standing::Follower { leader: None, address: None });
    let branch = |ctx: &Context<_>| drop(ctx.start_child(ChildSpec::<Defiant>::essential(BRANCH_ID, ())));
    let args = LeadershipArgs::with_store(Arc::new(Stolen::default()), settings, Fence::closed(), standing, Arc::new(branch));
    let system = System::new(Clock::system(), Arc::new(Metrics::default()));
    let _root = system.start_root(args.spec()).await.expect("it starts");
    tokio::time::sleep(Duration::from_secs(60)).await;
}

fn exit_code() -> Option<i32> {
    let this = std::env::current_exe().expect("this program has a file");
    let mut process = Command::new(this).arg(SCENARIO).stderr(Stdio::inherit()).spawn().expect("it starts");
    for _ in 0..600 {
        if let Some(status) = process.try_wait().expect("it is ours") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    process.kill().expect("it is ours");
    process.wait().expect("it is ours").code()
}

#[expect(clippy::print_stdout, reason = "what a harness would say")]
fn main() {
    if std::env::args().any(|argument| argument == SCENARIO) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(scenario());
        return;
    }
    let code = exit_code();
    let (word, passed, failed) = if code == Some(3) { ("ok", 1, 0) } else { ("FAILED", 0, 1) };
    println!("\nrunning 1 test\ntest {TEST} ... {word}\n");
    println!("test result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out");
    assert_eq!(code, Some(3), "the exit code");
}

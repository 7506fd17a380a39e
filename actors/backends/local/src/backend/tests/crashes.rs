//! After a crash between any two steps the marks tell what listens (PC-12, O3, issue 3).

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::net::TcpListener;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use egress_protocol::provider::{ErrorClass, InstanceState};
use egress_provider::Backend;
use proptest::prelude::*;

use super::support::{Bed, Calls, PORT, key, request};
use crate::{LocalBackend, LocalEvent};

#[tokio::test]
async fn a_restart_listens_exactly_where_the_marks_say() {
    let bed = Bed::new();
    let backend = bed.backend();
    for n in 0..6 {
        backend.made(&request(&n.to_string(), PORT + n % 2)).await.unwrap();
    }
    backend.gone(&key("2")).await.unwrap();
    let before = bed.marked();
    assert_eq!(before.len(), 5);
    drop(backend);
    let backend = bed.restarted().await;
    assert_eq!((bed.marked(), bed.listening(&[PORT, PORT + 1])), (before.clone(), before));
    for n in [0, 1, 3, 4, 5] {
        assert_eq!(backend.read(&key(&n.to_string())).await.unwrap().state, InstanceState::Running);
    }
    assert_eq!(backend.made(&request("0", PORT)).await.unwrap(), key("0").id.unwrap(), "adopted");
    assert_eq!(
        bed.events.lock().unwrap().iter().filter(|event| matches!(event, LocalEvent::Creating { .. })).count(),
        6,
        "none made twice"
    );
}

/// Calls come before or beside `start`: they must not take what is only to be bound again (found by CT-02).
#[tokio::test]
async fn a_create_ahead_of_the_restore_leaves_marked_addresses_alone() {
    let bed = Bed::new();
    let backend = bed.backend();
    backend.made(&request("1", PORT)).await.unwrap();
    let first = bed.marked();
    drop(backend);
    let backend = bed.backend();
    backend.made(&request("2", PORT)).await.unwrap();
    assert_eq!(bed.marked().len(), 2, "an address of its own");
    backend.start().await;
    assert_eq!(bed.listening(&[PORT]), bed.marked());
    assert!(bed.marked().is_superset(&first));
    // What was deleted is free again.
    backend.gone(&key("1")).await.unwrap();
    backend.made(&request("3", PORT)).await.unwrap();
    assert!(bed.marked().is_superset(&first));
}

/// A create that was cut after its mark: whoever meets the mark binds it.
#[tokio::test]
async fn a_mark_without_a_listener_is_bound_by_the_next_create_or_get() {
    for by_get in [true, false] {
        let bed = Bed::new();
        let backend = bed.backend();
        backend.made(&request("1", PORT)).await.unwrap();
        drop(backend);
        let backend = bed.backend();
        if by_get {
            while backend.read(&key("1")).await.unwrap().state != InstanceState::Running {
                tokio::task::yield_now().await;
            }
        } else {
            backend.made(&request("1", PORT)).await.unwrap();
        }
        assert_eq!(bed.listening(&[PORT]), bed.marked());
        assert_eq!(bed.marked().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_taken_meanwhile_is_waited_for_and_then_given_up() {
    let bed = Bed::new();
    let backend = bed.backend();
    backend.made(&request("1", PORT)).await.unwrap();
    let address = *bed.marked().first().unwrap();
    backend.stop(Duration::ZERO).await;
    drop(backend);
    let stranger = TcpListener::bind(address).unwrap();
    let backend = bed.restarted().await;
    let read = backend.read(&key("1")).await.unwrap();
    assert_eq!((read.state, read.ip), (InstanceState::Provisioning, None));
    assert!(read.state_detail.unwrap().contains(&address.to_string()));
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(backend.read(&key("1")).await.unwrap().state, InstanceState::Stopped, "so that it is replaced");
    drop(stranger);
    assert_eq!(backend.read(&key("1")).await.unwrap().state, InstanceState::Running, "or serves again if it may");
    backend.gone(&key("1")).await.unwrap();
    let _stranger = TcpListener::bind(address).unwrap();
    backend.made(&request("1", PORT)).await.unwrap();
    assert_ne!(bed.marked().first(), Some(&address), "the next free address");
}

#[tokio::test]
async fn half_written_files_do_not_keep_the_others_from_coming_back() {
    let bed = Bed::new();
    let backend = bed.backend();
    backend.made(&request("1", PORT)).await.unwrap();
    drop(backend);
    fs::write(bed.marks().join(format!(".{}.tmp", key("2").name)), "{\"half").unwrap();
    fs::write(bed.marks().join(format!("{}.json", key("3").name)), "{\"half").unwrap();
    let _backend = bed.restarted().await;
    assert_eq!(bed.listening(&[PORT]).len(), 1);
    assert_eq!(fs::read_dir(bed.marks()).unwrap().count(), 2, "what was never a mark is cleared away, what may be one is not");
}

/// OP-5: what comes during the stop opens nothing again; the marks are for the next start.
#[tokio::test]
async fn a_stopped_backend_listens_nowhere_and_keeps_its_marks() {
    let bed = Bed::new();
    let backend = bed.backend();
    backend.made(&request("1", PORT)).await.unwrap();
    backend.stop(Duration::from_secs(10)).await;
    assert_ne!(backend.read(&key("1")).await.unwrap().state, InstanceState::Running);
    assert_eq!(backend.made(&request("2", PORT)).await.unwrap_err().class, ErrorClass::Transient);
    assert_eq!((bed.listening(&[PORT]).len(), bed.marked().len()), (0, 1));
}

/// Polls a future at most `polls` times, giving the runtime room in between; `None`: it was dropped unfinished.
async fn cut<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// O3: a caller that leaves at any await, with and without the backend going with it.
#[tokio::test]
async fn a_call_cut_off_at_any_await_resumes_to_the_same_single_instance() {
    for polls in 0..12 {
        for crash in [false, true] {
            let bed = Bed::new();
            let mut backend = bed.backend();
            for _ in 0..2 {
                cut(backend.made(&request("1", PORT)), polls).await;
                if crash {
                    drop(backend);
                    backend = bed.restarted().await;
                }
            }
            backend.made(&request("1", PORT)).await.unwrap();
            assert_eq!((bed.marked().len(), bed.listening(&[PORT])), (1, bed.marked()), "create cut after {polls} polls, crash: {crash}");
            cut(backend.gone(&key("1")), polls).await;
            if crash {
                drop(backend);
                backend = bed.restarted().await;
            }
            backend.gone(&key("1")).await.unwrap();
            assert_eq!((bed.marked().len(), bed.listening(&[PORT]).len()), (0, 0), "delete cut after {polls} polls, crash: {crash}");
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Create(u8, u16),
    CutCreate(u8, u16, usize),
    Delete(u8),
    CutDelete(u8, usize),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let (uid, port) = (0..4u8, (0..2u16).prop_map(|n| PORT + n));
    prop_oneof![
        4 => (uid.clone(), port.clone()).prop_map(|(uid, port)| Step::Create(uid, port)),
        2 => (uid.clone(), port, 0..8usize).prop_map(|(uid, port, polls)| Step::CutCreate(uid, port, polls)),
        3 => uid.clone().prop_map(Step::Delete),
        1 => (uid, 0..8usize).prop_map(|(uid, polls)| Step::CutDelete(uid, polls)),
        2 => Just(Step::Crash),
    ]
}

async fn take(bed: &Bed, backend: LocalBackend, step: Step, wanted: &mut BTreeSet<u8>, unsure: &mut BTreeSet<u8>) -> LocalBackend {
    match step {
        Step::Create(uid, port) => {
            backend.made(&request(&uid.to_string(), port)).await.unwrap();
            wanted.insert(uid);
            unsure.remove(&uid);
        }
        Step::Delete(uid) => {
            backend.gone(&key(&uid.to_string())).await.unwrap();
            wanted.remove(&uid);
            unsure.remove(&uid);
        }
        Step::CutCreate(uid, port, polls) => {
            cut(backend.made(&request(&uid.to_string(), port)), polls).await;
            unsure.insert(uid);
        }
        Step::CutDelete(uid, polls) => {
            cut(backend.gone(&key(&uid.to_string())), polls).await;
            unsure.insert(uid);
        }
        Step::Crash => {
            drop(backend);
            return bed.restarted().await;
        }
    }
    backend
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// marks_equal_listeners, in whatever order creates, deletes, departures and crashes come; what was answered holds.
    #[test]
    fn marks_equal_listeners(steps in prop::collection::vec(step(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bed = Bed::new();
            let mut backend = bed.backend();
            let (mut wanted, mut unsure) = (BTreeSet::new(), BTreeSet::new());
            for step in steps {
                backend = take(&bed, backend, step, &mut wanted, &mut unsure).await;
                // A list waits for nobody: let a change whose caller left come to its end first.
                backend.gone(&key("nobody")).await.unwrap();
                let (marked, listening) = (bed.marked(), bed.listening(&[PORT, PORT + 1]));
                assert_eq!(marked, listening, "marks_equal_listeners");
                let listed: BTreeSet<u8> = backend.all().await.instances.iter().map(|i| i.uid.as_str().parse().unwrap()).collect();
                assert!(wanted.difference(&unsure).all(|uid| listed.contains(uid)), "what_was_made_is_there");
                assert!(listed.iter().all(|uid| wanted.contains(uid) || unsure.contains(uid)), "what_was_deleted_is_not");
                assert_eq!(listed.len(), marked.len(), "one_mark_per_instance");
            }
        });
    }
}

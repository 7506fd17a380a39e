//! What went wrong for others (`hard-cases.md`, rows G), and what two entries must never do.
//!
//! G1 is `an_operation_that_cannot_be_read…`, G2 `a_lost_answer…` and `a_token_is_fetched_once…` of the module above.

use egress_protocol::provider::InstanceState;
use proptest::prelude::*;

use super::*;

/// G3, G5, G9: what only the finished operation says reaches the status with Google's code, and no other zone is tried.
#[tokio::test(start_paused = true)]
async fn a_late_failure_has_googles_words_and_stays_in_its_zone() {
    for (code, words, class) in [
        ("QUOTA_EXCEEDED", "Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1.", ErrorClass::QuotaExceeded),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "The zone has no e2-small available.", ErrorClass::QuotaExceeded),
        ("IP_SPACE_EXHAUSTED", "IP space of 'default' is exhausted.", ErrorClass::Transient),
    ] {
        let bed = Bed::new().await;
        bed.fake.fail_next_insert(code, words);
        bed.create("u-1").await.unwrap();
        // The others go on.
        bed.create("u-2").await.unwrap();
        let told = loop {
            match bed.get("u-1").await {
                Ok(read) => assert_eq!(read.state, InstanceState::Provisioning, "{code}"),
                Err(told) => break told,
            }
        };
        assert!(told.class == class && told.message.contains(code) && told.message.contains(words), "{told:?}");
        assert_eq!(bed.get("u-1").await.unwrap_err().class, ErrorClass::NotFound, "{code}: no zombie");
        bed.get("u-2").await.unwrap();
        assert!(bed.asked().iter().all(|asked| asked.contains(ZONE)), "no other zone is tried");
    }
}

/// G6, G11: a machine that comes later, in whatever zone, has our labels: the list has it, and a delete removes it.
#[tokio::test(start_paused = true)]
async fn a_machine_that_comes_late_or_comes_back_is_listed_and_deleted() {
    let bed = Bed::new().await;
    let ours = [("proxy-operator-managed", "true"), ("proxy-operator-uid", "u-1"), ("proxy-operator-installation", "inst")];
    for zone in ["us-central1-a", ZONE] {
        bed.create("u-1").await.unwrap();
        while bed.delete("u-1").await.unwrap() == DeleteOutcome::InProgress {}
        bed.fake.place(zone, &name("u-1"), &ours, "RUNNING");
        let listed = bed.backend.list_managed(&call()).await.unwrap().instances;
        assert_eq!(listed.len(), 1);
        let late = InstanceKey { id: Some(listed[0].id.clone()), ..key("u-1") };
        while bed.backend.delete(&late, &call()).await.unwrap() == DeleteOutcome::InProgress {}
        assert!(bed.fake.instances().is_empty(), "{zone}");
    }
}

/// G7: a preempted machine is billed and serves nobody.
#[tokio::test(start_paused = true)]
async fn a_preempted_machine_reads_terminated() {
    let bed = Bed::new().await;
    bed.create("u-1").await.unwrap();
    let terminated = |vm: &mut serde_json::Map<String, serde_json::Value>| drop(vm.insert("status".to_owned(), "TERMINATED".into()));
    bed.fake.settle();
    bed.fake.alter(ZONE, &name("u-1"), Some(&terminated));
    let read = bed.get("u-1").await.unwrap();
    assert_eq!((read.state, read.state_detail.as_deref()), (InstanceState::Terminated, Some("TERMINATED")));
}

/// An entry with a project and an account of its own.
async fn entry(number: u8) -> Bed {
    let fake = FakeGce::new("p-1");
    let account: Vec<String> = (1..50).map(|n| format!("account-{number}-{n}")).collect();
    fake.accept_tokens(&account.iter().map(String::as_str).collect::<Vec<_>>());
    Bed::with(fake, Tokens::of(&format!("account-{number}"))).await
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Two entries with two accounts, calls of both under way at once, tokens that are refused in between: no project ever sees the
    /// other's token.
    #[test]
    fn two_entries_never_mix_credentials(steps in proptest::collection::vec((any::<bool>(), 0_u8..4, 0_u8..3), 1..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let beds = [entry(1).await, entry(2).await];
            let calls = steps.iter().map(|(second, what, vm)| {
                let (bed, uid) = (&beds[usize::from(*second)], format!("u-{vm}"));
                async move {
                    match what {
                        0 => drop(bed.create(&uid).await),
                        1 => drop(bed.get(&uid).await),
                        2 => drop(bed.delete(&uid).await),
                        _ => drop(bed.backend.list_managed(&call()).await),
                    }
                }
            });
            futures::future::join_all(calls).await;
            for bed in &beds {
                // Each fake knows its own account only: another's token would have been a 401.
                let refused = bed.fake.take_log().into_iter().filter(|exchange| exchange.answer.status == 401).count();
                prop_assert_eq!(refused, 0);
            }
            Ok(())
        })?;
    }
}

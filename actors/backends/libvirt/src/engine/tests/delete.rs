use egress_protocol::provider::{DeleteOutcome, ErrorClass};

use super::*;
use crate::engine::delete;
use crate::profile::KVM;

async fn remove(fake: &Fake) -> Result<DeleteOutcome, egress_provider::BackendError> {
    delete(on(fake, &host()), &key()).await
}

fn domains(fake: &Fake) -> usize {
    fake.state.lock().unwrap().domains.len()
}

#[tokio::test]
async fn a_machine_goes_with_its_volumes_and_the_base_stays_lv_162_lv_163() {
    let fake = with(OURS);
    assert_eq!(remove(&fake).await.unwrap(), DeleteOutcome::Gone);
    assert_eq!((domains(&fake), volumes(&fake, "default")), (0, vec![]));
    assert_eq!(fake.state.lock().unwrap().pools["default"].volumes.len(), 2, "base and marker");
    let calls = fake.calls();
    let at = |rpc: &str| calls.iter().rposition(|call| call.starts_with(rpc)).unwrap();
    assert!(at("DomainDestroy") < at("StorageVolDelete") && at("StorageVolDelete") < at("DomainUndefineFlags"), "{calls:?}");
    assert_eq!(remove(&fake).await.unwrap(), DeleteOutcome::Gone, "again");
}

#[tokio::test]
async fn a_delete_cut_off_at_any_call_and_repeated_ends_the_same_lv_162() {
    let whole = {
        let fake = with(OURS);
        remove(&fake).await.unwrap();
        fake.calls().len()
    };
    for cut in 0..whole {
        let fake = with(OURS);
        {
            let host = host();
            let key = key();
            let mut delete = Box::pin(delete(on(&fake, &host), &key));
            // Each call takes one turn.
            for _ in 0..cut {
                assert!(futures::poll!(delete.as_mut()).is_pending());
            }
        }
        let marked = domains(&fake) == 1;
        assert!(marked || volumes(&fake, "default").is_empty(), "collection sees what is left: the volumes go first");
        assert_eq!(remove(&fake).await.unwrap(), DeleteOutcome::Gone, "cut at {cut}");
        assert_eq!((domains(&fake), volumes(&fake, "default")), (0, vec![]), "cut at {cut}");
    }
}

#[tokio::test]
async fn what_is_gone_already_is_gone_lv_161_lv_163() {
    let fake = with(OURS);
    fake.state.lock().unwrap().domains.clear();
    assert_eq!(remove(&fake).await.unwrap(), DeleteOutcome::Gone);
    assert_eq!(volumes(&fake, "default"), [""; 0], "volumes of the name go without a domain");
    let fake = with(OURS);
    fake.state.lock().unwrap().pools.clear();
    assert_eq!(remove(&fake).await.unwrap(), DeleteOutcome::Gone);
    assert_eq!(domains(&fake), 0, "a missing pool has no volumes");
    for (rpc, code) in
        [("DomainGetMetadata", 42), ("DomainDestroy", 42), ("DomainDestroy", 55), ("StorageVolDelete", 50), ("DomainUndefineFlags", 42)]
    {
        let fake = with(OURS);
        fake.refuse(rpc, code);
        assert_eq!(remove(&fake).await.unwrap(), DeleteOutcome::Gone, "{rpc} {code}");
    }
}

#[tokio::test]
async fn a_machine_that_is_down_goes_too_lv_162() {
    let fake = with(OURS);
    change(&fake, |domain| domain.state = 5);
    assert_eq!(remove(&fake).await.unwrap(), DeleteOutcome::Gone);
    assert_eq!((domains(&fake), volumes(&fake, "default")), (0, vec![]));
}

#[tokio::test]
async fn an_older_libvirt_that_does_not_know_checkpoints_undefines_all_the_same_lv_162() {
    let fake = with(OURS);
    fake.state.lock().unwrap().undefine_flags = 15;
    assert_eq!(remove(&fake).await.unwrap(), DeleteOutcome::Gone);
    let calls = fake.calls();
    assert!(calls.ends_with(&["DomainUndefineFlags 23".to_owned(), "DomainUndefineFlags 7".to_owned()]), "{calls:?}");
    let fake = with(OURS);
    fake.state.lock().unwrap().undefine_flags = 0;
    assert_eq!(remove(&fake).await.unwrap_err().class, ErrorClass::Permanent, "and one that knows none says so");
}

#[tokio::test]
async fn what_is_not_ours_stays_with_all_that_has_its_name_lv_161() {
    for marked in [
        Marked { uid: "other", ..OURS },
        Marked { installation: "inst-b", ..OURS },
        Marked { installation: "", ..OURS },
        Marked { profile: KVM, ..OURS },
    ] {
        let fake = with(marked);
        assert_eq!(remove(&fake).await.unwrap(), DeleteOutcome::Gone);
        assert_eq!((domains(&fake), volumes(&fake, "default").len()), (1, 2));
        assert_eq!(fake.calls().len(), 2, "nothing but look-up and mark");
    }
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_keeps_everything_lv_161() {
    let fake = with(OURS);
    fake.refuse("DomainGetMetadata", 88);
    assert_eq!(remove(&fake).await.unwrap_err().class, ErrorClass::Transient);
    fake.fail("DomainGetMetadata", lost());
    assert_eq!(remove(&fake).await.unwrap_err().class, ErrorClass::Transient);
    change(&fake, |domain| domain.xml = domain.xml.replace("<instance xmlns", "<else xmlns").replace("</instance>", "</else>"));
    assert_eq!(remove(&fake).await.unwrap_err().class, ErrorClass::Permanent);
    assert_eq!((domains(&fake), volumes(&fake, "default").len()), (1, 2));
}

#[tokio::test]
async fn volumes_are_looked_for_where_the_mark_says_and_where_the_configuration_says_lv_59() {
    let fake = with(Marked { pool: "other", ..OURS });
    fake.state.lock().unwrap().pools.get_mut("default").unwrap().volumes.insert(names::overlay(&name(), &installation()));
    assert_eq!(remove(&fake).await.unwrap(), DeleteOutcome::Gone);
    assert_eq!((volumes(&fake, "default"), volumes(&fake, "other")), (vec![], vec![]));
}

#[tokio::test]
async fn leftovers_go_by_name_and_only_while_there_is_no_domain_lv_164() {
    let without_uid = InstanceKey { uid: Uid::new(""), ..key() };
    let fake = with(OURS);
    assert_eq!(delete(on(&fake, &host()), &without_uid).await.unwrap(), DeleteOutcome::Gone);
    assert_eq!((domains(&fake), volumes(&fake, "default").len()), (1, 2), "its machine is there");
    fake.state.lock().unwrap().domains.clear();
    let foreign = names::overlay(&name(), &InstallationId::new("inst-b"));
    fake.state.lock().unwrap().pools.get_mut("default").unwrap().volumes.insert(foreign.clone());
    assert_eq!(delete(on(&fake, &host()), &without_uid).await.unwrap(), DeleteOutcome::Gone);
    assert_eq!(volumes(&fake, "default"), [foreign], "another installation's stays");
}

#[tokio::test]
async fn a_pool_that_does_not_run_is_tried_again_and_the_domain_stays_lv_163() {
    let fake = with(OURS);
    fake.state.lock().unwrap().pools.get_mut("default").unwrap().state = 0;
    assert_eq!(remove(&fake).await.unwrap_err().class, ErrorClass::Transient);
    assert_eq!(domains(&fake), 1, "collection still sees it");
}

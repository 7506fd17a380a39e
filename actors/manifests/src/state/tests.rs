//! The state folder against crashes, strangers and damage. "Process death" is a copy of the folder taken right before
//! an operation on the disk, opened anew.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use egress_protocol::ObjectKey;
use egress_protocol::object::Annotations;
use serde_json::json;

use super::*;
use crate::folder::Home;

fn record(name: &str, uid: &str) -> Record {
    let spec = json!({"mode": "Managed", "provider": "lab", "cloudInit": {"inline": "#cloud-config\n"}});
    Record {
        key: ObjectKey::new("default", name),
        uid: Uid::new(uid),
        generation: 1,
        spec: Arc::new(serde_json::from_value(spec).unwrap()),
        status: Arc::default(),
        annotations: Annotations { skip_cleanup: true, retry: Some("1".to_owned()), replace: None },
        deleting: false,
        finalizer: true,
        home: Home::new("/manifests", "a.yaml"),
    }
}

fn with_id(record: &Record, id: &str) -> Record {
    let status = egress_protocol::resource::ProxyStatus { provider_id: Some(id.to_owned()), ..(*record.status).clone() };
    Record { status: Arc::new(status), ..record.clone() }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Copies the folder before every operation on the disk.
fn dying(folder: &Path, graves: &Path) -> (Disk, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let (folder, graves, counter) = (folder.to_owned(), graves.to_owned(), Arc::clone(&count));
    let one_at_a_time = Mutex::new(());
    let before = move |_what: &'static str, _path: &Path| {
        let _guard = one_at_a_time.lock().unwrap();
        if folder.is_dir() {
            copy(&folder, &graves.join(counter.fetch_add(1, Ordering::SeqCst).to_string()));
        }
        Ok(())
    };
    (Disk { before: Some(Arc::new(before)) }, count)
}

/// Runs `act` on an open folder and answers what each death during it leaves, reopened.
fn deaths_during(prepare: &[Change], act: &[Change]) -> Vec<Vec<Record>> {
    let temp = tempfile::tempdir().unwrap();
    let (folder, graves) = (temp.path().join("state"), temp.path().join("graves"));
    let prepared = StateFolder::open(&folder, None).unwrap();
    let (reader, _) = prepared.take_over().unwrap();
    assert!(prepared.write(reader, prepare).iter().all(Result::is_ok));
    drop(prepared);

    let (disk, count) = dying(&folder, &graves);
    let state = StateFolder::open_on(disk, &folder, None).unwrap();
    let (reader, _) = state.take_over().unwrap();
    assert!(state.write(reader, act).iter().all(Result::is_ok));
    let count = count.load(Ordering::SeqCst);
    assert!(count >= act.len(), "every write is at least one operation");
    (0..count).map(|n| StateFolder::open(&graves.join(n.to_string()), None).unwrap().objects().unwrap()).collect()
}

#[test]
fn a_crash_at_any_moment_of_the_first_start_leaves_a_folder_that_opens() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, graves) = (temp.path().join("state"), temp.path().join("graves"));
    let (disk, count) = dying(&folder, &graves);
    let first = StateFolder::open_on(disk, &folder, None).unwrap();
    let count = count.load(Ordering::SeqCst);
    assert!(count >= 6);
    for n in 0..count {
        let again = StateFolder::open(&graves.join(n.to_string()), None).unwrap();
        assert!(is_label(again.installation().as_str()));
        assert!(again.objects().unwrap().is_empty());
    }
    drop(first);
}

#[test]
fn a_crash_at_any_moment_of_a_write_leaves_the_old_record_or_the_new_one() {
    let old: Vec<Record> = (0..6).map(|n| record(&format!("px-{n}"), &format!("uid-{n}"))).collect();
    let new: Vec<Record> = old.iter().map(|record| with_id(record, "instance")).collect();
    let put = |records: &[Record]| records.iter().map(|record| Change::Put(Arc::new(record.clone()))).collect::<Vec<_>>();
    for left in deaths_during(&put(&old), &put(&new)) {
        assert_eq!(left.len(), 6);
        for (n, found) in left.iter().enumerate() {
            assert!(*found == old[n] || *found == new[n], "{found:?}");
        }
    }
}

#[test]
fn a_crash_at_any_moment_of_a_removal_or_a_first_write_leaves_all_of_a_record_or_none() {
    let (stays, goes, comes) = (record("stays", "uid-s"), record("goes", "uid-g"), record("comes", "uid-c"));
    let prepare = [Change::Put(Arc::new(stays.clone())), Change::Put(Arc::new(goes.clone()))];
    let act = [Change::Remove(goes.uid.clone()), Change::Put(Arc::new(comes.clone()))];
    for left in deaths_during(&prepare, &act) {
        assert!(left.contains(&stays));
        assert!(left.iter().all(|record| [&stays, &goes, &comes].contains(&record)));
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_reopen() {
    let temp = tempfile::tempdir().unwrap();
    let state = StateFolder::open(&temp.path().join("state"), None).unwrap();
    let (reader, _) = state.take_over().unwrap();
    let kept = with_id(&record("px-1", "uid-1"), "instance-1");
    assert_eq!(state.write(reader, &[Change::Put(Arc::new(kept.clone())), Change::Remove(Uid::new("unknown"))]), [Ok(()), Ok(())]);
    let (path, id) = (state.path().to_owned(), state.installation().clone());
    drop(state);
    let again = StateFolder::open(&path, None).unwrap();
    assert_eq!((again.installation(), again.objects().unwrap()), (&id, vec![kept]));
}

#[test]
fn a_disk_that_refuses_is_an_answer_and_leaves_the_old_record() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("state");
    for failing in ["create", "write", "sync", "rename", "sync folder"] {
        let armed = Arc::new(AtomicUsize::new(0));
        let switch = Arc::clone(&armed);
        let before = move |what: &'static str, _: &Path| {
            if what == failing && switch.load(Ordering::SeqCst) == 1 { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
        };
        let state = StateFolder::open_on(Disk { before: Some(Arc::new(before)) }, &folder, None).unwrap();
        let (reader, _) = state.take_over().unwrap();
        let old = record("px-1", "uid-1");
        assert_eq!(state.write(reader, &[Change::Put(Arc::new(old.clone()))]), [Ok(())]);
        armed.store(1, Ordering::SeqCst);
        let new = with_id(&old, "instance");
        let answer = state.write(reader, &[Change::Put(Arc::new(new.clone()))]);
        assert!(answer[0].as_ref().is_err_and(|error| error.contains("cannot")), "{failing}: {answer:?}");
        let found = state.objects().unwrap();
        assert!(found == [old] || (failing == "sync folder" && found == [new]), "{failing}");
    }
}

#[test]
fn a_second_process_is_refused_with_the_pid_of_the_first_op_2() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let first = StateFolder::open(&path, None).unwrap();
    let error = StateFolder::open(&path, None).unwrap_err();
    assert!(matches!(error, StateError::Locked { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    assert!(error.to_string().contains(&format!("in use by process {}", std::process::id())), "{error}");
    assert_eq!(inspect(&path).unwrap().pid, Some(std::process::id()));
    let clone = first.clone();
    drop(first);
    assert!(StateFolder::open(&path, None).is_err(), "a clone keeps the lock");
    drop(clone);
    StateFolder::open(&path, None).unwrap();
}

#[test]
fn a_lock_held_by_another_process_is_refused_with_its_pid() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    drop(StateFolder::open(&path, None).unwrap());
    let script = "exec 9<>\"$1\"; flock -n 9 || exit 7; printf '%10d\\n' $$ >&9; echo locked; read -r _";
    let mut child = std::process::Command::new("bash")
        .args(["-c", script, "bash"])
        .arg(path.join(LOCK))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    io::BufRead::read_line(&mut io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
    assert_eq!(line, "locked\n");
    let error = StateFolder::open(&path, None).unwrap_err();
    assert!(matches!(error, StateError::Locked { pid: Some(pid), .. } if pid == child.id()), "{error}");
    drop(child.stdin.take());
    child.wait().unwrap();
    StateFolder::open(&path, None).unwrap();
}

#[test]
fn the_folder_is_private_and_so_is_every_file_in_it_op_2() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("deep/er/state");
    let state = StateFolder::open(&path, None).unwrap();
    let (reader, _) = state.take_over().unwrap();
    state.write(reader, &[Change::Put(Arc::new(record("px-1", "uid-1")))]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join(OBJECTS))), (0o700, 0o700));
    for file in [LOCK, INSTALLATION, "objects/uid-1.json"] {
        assert_eq!(mode(&path.join(file)), 0o600, "{file}");
    }
}

#[test]
fn an_open_folder_is_closed_when_it_is_ours_or_empty_and_refused_when_it_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let path = temp.path().join(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let empty = open("empty");
    drop(StateFolder::open(&empty, None).unwrap());
    drop(StateFolder::open(&open("empty"), None).unwrap());
    assert_eq!(fs::metadata(&empty).unwrap().permissions().mode() & 0o777, 0o700);

    let foreign = open("home");
    fs::write(foreign.join("letter.txt"), "dear").unwrap();
    let error = StateFolder::open(&foreign, None).unwrap_err().to_string();
    assert!(error.contains("home") && error.contains("not ours") && error.contains("--state"), "{error}");
    assert_eq!(fs::metadata(&foreign).unwrap().permissions().mode() & 0o777, 0o755, "left as it was");
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1);
}

#[test]
fn the_installation_id_is_made_once_and_a_given_one_wins_pc_51() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let id = |given| StateFolder::open(&path, given).map(|state| state.installation().as_str().to_owned());
    let made = id(None).unwrap();
    assert!(made.len() == 16 && made.chars().all(|c| c.is_ascii_lowercase() || ('2'..='7').contains(&c)), "{made}");
    assert_eq!(id(None).unwrap(), made);
    assert_eq!(id(Some("mine-1")).unwrap(), "mine-1");
    assert_eq!(id(None).unwrap(), made, "the stored one stays");
    let second = temp.path().join("second");
    drop(StateFolder::open(&second, Some("mine-2")).unwrap());
    assert_eq!(StateFolder::open(&second, None).unwrap().installation().as_str(), "mine-2", "the first one given is stored");
    for bad in ["", "-a", "a-", "UPPER", "a.b", "ä", &"a".repeat(64)] {
        assert!(matches!(id(Some(bad)), Err(StateError::InstallationId(_))), "{bad}");
    }
}

#[test]
fn a_damaged_or_foreign_file_is_an_error_that_names_it_and_the_way_out() {
    let whole = String::from_utf8(record("px-1", "uid-1").encode().unwrap()).unwrap();
    let cases: Vec<(&str, String)> = vec![
        ("uid-1.json", String::new()),
        ("uid-1.json", whole[..whole.len() / 2].to_owned()),
        ("uid-1.json", whole.replace("\"port\": 3128", "\"port\": 3129")),
        ("uid-1.json", whole.replace("\"version\": 1", "\"version\": 2")),
        ("uid-1.json", whole.replace("\"generation\"", "\"degeneration\"")),
        ("uid-2.json", whole.clone()),
        ("notes.txt", "buy milk".to_owned()),
    ];
    for (name, content) in cases {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("state");
        drop(StateFolder::open(&path, None).unwrap());
        fs::write(path.join(OBJECTS).join(name), &content).unwrap();
        let error = StateFolder::open(&path, None).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("restore it"), "{error}");
        assert!(!error.contains("cloud-config"), "{error}");
        assert_eq!(fs::read_to_string(path.join(OBJECTS).join(name)).unwrap(), content, "left as it was");
    }
}

#[test]
fn two_records_of_one_name_and_a_lost_installation_id_are_errors() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let state = StateFolder::open(&path, None).unwrap();
    let (reader, _) = state.take_over().unwrap();
    state.write(reader, &[Change::Put(Arc::new(record("px-1", "uid-1")))]);
    drop(state);
    fs::remove_file(path.join(INSTALLATION)).unwrap();
    let error = StateFolder::open(&path, None).unwrap_err().to_string();
    assert!(error.contains("installation") && error.contains("--installation-id"), "{error}");
    drop(StateFolder::open(&path, Some("mine")).unwrap());
    fs::write(path.join("objects/uid-2.json"), record("px-1", "uid-2").encode().unwrap()).unwrap();
    let error = StateFolder::open(&path, None).unwrap_err().to_string();
    assert!(error.contains("default/px-1"), "{error}");
    fs::write(path.join(INSTALLATION), "Not One\n").unwrap();
    assert!(matches!(StateFolder::open(&path, None), Err(StateError::Foreign { .. })));
}

#[test]
fn only_the_latest_reader_writes() {
    let temp = tempfile::tempdir().unwrap();
    let state = StateFolder::open(&temp.path().join("state"), None).unwrap();
    let (old, _) = state.take_over().unwrap();
    let (new, _) = state.take_over().unwrap();
    let change = [Change::Put(Arc::new(record("px-1", "uid-1")))];
    assert!(state.write(old, &change)[0].is_err());
    assert!(state.objects().unwrap().is_empty());
    assert_eq!(state.write(new, &change), [Ok(())]);
}

#[test]
fn a_used_folder_can_be_inspected_without_its_lock() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state");
    let state = StateFolder::open(&path, None).unwrap();
    let (reader, _) = state.take_over().unwrap();
    state.write(reader, &[Change::Put(Arc::new(record("px-1", "uid-1")))]);
    let seen = inspect(&path).unwrap();
    assert_eq!(seen.installation.as_ref(), Some(state.installation()));
    assert_eq!(seen.objects, [record("px-1", "uid-1")]);
    assert!(
        matches!(inspect(&temp.path().join("nowhere")), Ok(Inspection { installation: None, pid: None, objects }) if objects.is_empty())
    );
}

#[test]
fn many_writes_at_once_share_one_sync_of_the_folder_op_24() {
    let temp = tempfile::tempdir().unwrap();
    let syncs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&syncs);
    let before = move |what: &'static str, _: &Path| {
        counter.fetch_add(usize::from(what == "sync folder"), Ordering::SeqCst);
        Ok(())
    };
    let state = StateFolder::open_on(Disk { before: Some(Arc::new(before)) }, &temp.path().join("state"), None).unwrap();
    let (reader, _) = state.take_over().unwrap();
    let changes: Vec<Change> = (0..200).map(|n| Change::Put(Arc::new(record(&format!("px-{n}"), &format!("uid-{n}"))))).collect();
    syncs.store(0, Ordering::SeqCst);
    assert!(state.write(reader, &changes).iter().all(Result::is_ok));
    assert_eq!(syncs.load(Ordering::SeqCst), 1);
    assert_eq!(state.objects().unwrap().len(), 200);
}

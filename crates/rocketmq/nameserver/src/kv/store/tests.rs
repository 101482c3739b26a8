use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use super::*;
use crate::kv::ORDER_TOPIC_CONFIG;
use crate::kv::scratch::Scratch;

const LIMITS: KvLimits = KvLimits { entries: 100_000, name: 255, value: 1_024, total: 1 << 20 };

fn options(path: &Path) -> KvOptions {
    KvOptions { path: path.to_owned(), from_backup: false, limits: LIMITS }
}

#[track_caller]
fn open(path: &Path) -> KvStore {
    let (store, report) = KvStore::open(options(path), Box::new(|_| {})).unwrap();
    assert_eq!(report.warnings, Vec::<String>::new());
    store
}

fn put_option(
    store: &KvStore,
    namespace: Option<&str>,
    key: Option<&str>,
    value: Option<&str>,
) -> Result<(), KvError> {
    let (reply, answer) = oneshot::channel();
    store.put(namespace, key, value, reply);
    answer.blocking_recv().unwrap()
}

fn put(store: &KvStore, namespace: &str, key: &str, value: &str) -> Result<(), KvError> {
    put_option(store, Some(namespace), Some(key), Some(value))
}

fn delete(store: &KvStore, namespace: Option<&str>, key: Option<&str>) -> Result<(), KvError> {
    let (reply, answer) = oneshot::channel();
    store.delete(namespace, key, reply);
    answer.blocking_recv().unwrap()
}

fn list(store: &KvStore, namespace: &str) -> Option<Vec<(String, String)>> {
    let snapshot = store.snapshot();
    snapshot.list(namespace).map(|it| it.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

#[test]
fn an_answered_put_is_in_the_snapshot_in_the_file_and_there_after_a_restart() {
    let scratch = Scratch::new();
    // A45: the folders are created.
    let path = scratch.path().join("not/yet/kvConfig.json");
    let store = open(&path);
    put(&store, ORDER_TOPIC_CONFIG, "TopicA", "broker-a:8").unwrap();
    assert_eq!(store.snapshot().get(ORDER_TOPIC_CONFIG, "TopicA"), Some("broker-a:8"));
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        r#"{"configTable":{"ORDER_TOPIC_CONFIG":{"TopicA":"broker-a:8"}}}"#
    );
    assert_eq!(open(&path).snapshot(), store.snapshot());
}

#[test]
fn the_content_before_is_kept_as_bak() {
    let scratch = Scratch::new();
    let path = scratch.path().join("kvConfig.json");
    let store = open(&path);
    put(&store, "ns", "k", "1").unwrap();
    put(&store, "ns", "k", "2").unwrap();
    let backup = fs::read_to_string(scratch.path().join("kvConfig.json.bak")).unwrap();
    assert_eq!(backup, r#"{"configTable":{"ns":{"k":"1"}}}"#);
}

#[test]
fn a_missing_or_empty_namespace_or_key_is_refused() {
    let scratch = Scratch::new();
    let store = open(&scratch.path().join("kvConfig.json"));
    for (namespace, key) in
        [(None, Some("k")), (Some("ns"), None), (Some(""), Some("k")), (Some("ns"), Some("")), (None, None)]
    {
        let refusal = put_option(&store, namespace, key, Some("v")).unwrap_err();
        assert_eq!((refusal.code(), refusal.to_string().as_str()), (1, "namespace or key is null"));
        assert_eq!(delete(&store, namespace, key), Ok(()));
    }
    assert_eq!(*store.snapshot(), KvSnapshot::default());
    assert_eq!(store.statistics(), KvStatistics::default());
}

#[test]
fn a_put_without_value_makes_the_key_unfindable_and_the_namespace_known() {
    let scratch = Scratch::new();
    let path = scratch.path().join("kvConfig.json");
    let store = open(&path);
    put(&store, "ns", "k", "v").unwrap();
    put_option(&store, Some("ns"), Some("k"), None).unwrap();
    put_option(&store, Some("ns2"), Some("k"), None).unwrap();
    assert_eq!(store.snapshot().get("ns", "k"), None);
    assert_eq!(
        (list(&store, "ns"), list(&store, "ns2"), list(&store, "ns3")),
        (Some(vec![]), Some(vec![]), None)
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), r#"{"configTable":{"ns":{},"ns2":{}}}"#);
}

#[test]
fn deleting_the_last_key_leaves_an_empty_namespace() {
    let scratch = Scratch::new();
    let path = scratch.path().join("kvConfig.json");
    let store = open(&path);
    put(&store, "ns", "k", "v").unwrap();
    delete(&store, Some("ns"), Some("k")).unwrap();
    delete(&store, Some("ns"), Some("k")).unwrap();
    delete(&store, Some("unknown"), Some("k")).unwrap();
    assert_eq!((list(&store, "ns"), list(&store, "unknown")), (Some(vec![]), None));
    assert_eq!(list(&open(&path), "ns"), Some(vec![]));
}

#[test]
fn what_changes_nothing_is_not_written() {
    let scratch = Scratch::new();
    let store = open(&scratch.path().join("kvConfig.json"));
    put(&store, "ns", "k", "v").unwrap();
    put(&store, "ns", "k", "v").unwrap();
    delete(&store, Some("ns"), Some("other")).unwrap();
    assert_eq!(store.statistics(), KvStatistics { writes: 1, failures: 0, changes: 1 });
}

#[test]
fn changes_that_arrive_together_share_one_write_and_are_answered_after_it() {
    let scratch = Scratch::new();
    let path = scratch.path().join("kvConfig.json");
    let (entered, has_entered) = channel();
    let (release, released) = channel::<()>();
    let mut first = true;
    let on_change: OnChange = Box::new(move |changes| {
        entered.send(changes.len()).unwrap();
        if std::mem::take(&mut first) {
            released.recv().unwrap();
        }
    });
    let (store, _) = KvStore::open(options(&path), on_change).unwrap();
    let send = |key: &str| {
        let (reply, answer) = oneshot::channel();
        store.put(Some("ns"), Some(key), Some("v"), reply);
        answer
    };
    let mut held = send("first");
    assert_eq!(has_entered.recv().unwrap(), 1);
    // The first is durable and visible, and not answered before its change was acted upon.
    assert_eq!(store.snapshot().get("ns", "first"), Some("v"));
    assert!(held.try_recv().is_err());
    let answers: Vec<_> = (0..100).map(|number| send(&number.to_string())).collect();
    release.send(()).unwrap();
    for answer in answers {
        assert_eq!(answer.blocking_recv().unwrap(), Ok(()));
    }
    assert_eq!(held.blocking_recv().unwrap(), Ok(()));
    assert_eq!(has_entered.recv().unwrap(), 100);
    assert_eq!(store.statistics(), KvStatistics { writes: 2, failures: 0, changes: 101 });
}

#[test]
fn changes_are_told_in_their_order_with_the_value_that_holds() {
    let scratch = Scratch::new();
    let (tell, told) = channel();
    let on_change: OnChange = Box::new(move |changes| {
        for change in changes {
            let KvChange { namespace, key, value } = change.clone();
            tell.send((namespace.to_string(), key.to_string(), value.map(|value| value.to_string())))
                .unwrap();
        }
    });
    let (store, _) = KvStore::open(options(&scratch.path().join("kvConfig.json")), on_change).unwrap();
    put(&store, ORDER_TOPIC_CONFIG, "t", "a:4").unwrap();
    put(&store, ORDER_TOPIC_CONFIG, "t", "a:8").unwrap();
    delete(&store, Some(ORDER_TOPIC_CONFIG), Some("t")).unwrap();
    let values: Vec<_> = told
        .try_iter()
        .map(|(namespace, key, value)| {
            assert_eq!((namespace.as_str(), key.as_str()), (ORDER_TOPIC_CONFIG, "t"));
            value
        })
        .collect();
    assert_eq!(values, [Some("a:4".to_owned()), Some("a:8".to_owned()), None]);
}

#[test]
fn a_put_that_cannot_be_made_durable_changes_nothing_and_names_the_path() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("namesrv");
    let path = folder.join("kvConfig.json");
    let store = open(&path);
    put(&store, "ns", "k", "old").unwrap();
    let aside = scratch.path().join("aside");
    fs::rename(&folder, &aside).unwrap();
    fs::write(&folder, "no folder").unwrap();
    let refusal = put(&store, "ns", "k", "new").unwrap_err();
    assert_eq!(refusal.code(), 1);
    assert!(refusal.to_string().contains(folder.to_str().unwrap()), "{refusal}");
    assert!(delete(&store, Some("ns"), Some("k")).is_err());
    assert_eq!(store.snapshot().get("ns", "k"), Some("old"));
    assert_eq!(store.statistics(), KvStatistics { writes: 1, failures: 2, changes: 1 });
    fs::remove_file(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    // Changes nothing in memory, and yet the file has to be made sure of.
    put(&store, "ns", "k", "old").unwrap();
    assert_eq!(store.statistics().writes, 2);
    assert_eq!(open(&path).snapshot().get("ns", "k"), Some("old"));
}

/// Fails to sync folders, and to rename after so many times.
#[derive(Debug)]
struct BrokenDisk(AtomicU64);

impl Disk for BrokenDisk {
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => fs::rename(from, to),
            Err(_) => Err(rustix::io::Errno::IO.into()),
        }
    }

    fn sync_folder(&self, _folder: &fs::File) -> std::io::Result<()> {
        Err(rustix::io::Errno::IO.into())
    }
}

#[test]
fn a_put_whose_folder_cannot_be_synced_is_undone_and_gone_after_a_restart() {
    let scratch = Scratch::new();
    let path = scratch.path().join("kvConfig.json");
    let broken = |renames| {
        let disk = Box::new(BrokenDisk(AtomicU64::new(renames)));
        KvStore::open_on(disk, options(&path), None, Box::new(|_| {})).unwrap().0
    };
    assert!(put(&broken(u64::MAX), "ns", "k", "first").is_err());
    assert!(!path.exists(), "there was no file before");
    put(&open(&path), "ns", "k", "old").unwrap();
    let store = broken(u64::MAX);
    let refusal = put(&store, "ns", "k", "new").unwrap_err();
    assert_eq!(refusal.code(), 1);
    assert!(refusal.to_string().contains("the old file was put back"), "{refusal}");
    assert!(delete(&store, Some("ns"), Some("k")).is_err());
    assert_eq!(store.snapshot().get("ns", "k"), Some("old"));
    assert_eq!(open(&path).snapshot().get("ns", "k"), Some("old"));
    // The old file becomes the backup, the new one takes its place, and the way back fails.
    let refusal = put(&broken(2), "ns", "k", "new").unwrap_err();
    assert!(refusal.to_string().contains("it is open which one a restart finds"), "{refusal}");
}

#[test]
fn a_folder_that_cannot_be_written_stops_puts_and_not_the_start() {
    let scratch = Scratch::new();
    let blocker = scratch.path().join("blocker");
    fs::write(&blocker, "no folder").unwrap();
    let (store, report) =
        KvStore::open(options(&blocker.join("namesrv/kvConfig.json")), Box::new(|_| {})).unwrap();
    assert_eq!(report.warnings.len(), 1);
    assert!(report.warnings[0].contains(blocker.to_str().unwrap()), "{report:?}");
    assert_eq!(put(&store, "ns", "k", "v").unwrap_err().code(), 1);
    assert_eq!(*store.snapshot(), KvSnapshot::default());
}

#[test]
fn a_file_that_cannot_be_read_is_not_written_over() {
    let scratch = Scratch::new();
    let path = scratch.path().join("kvConfig.json");
    fs::create_dir(&path).unwrap();
    let (store, report) = KvStore::open(options(&path), Box::new(|_| {})).unwrap();
    assert!(report.warnings[0].contains("cannot be read"), "{report:?}");
    let refusal = put(&store, "ns", "k", "v").unwrap_err();
    assert_eq!(refusal.code(), 1);
    assert!(refusal.to_string().contains(path.to_str().unwrap()), "{refusal}");
    assert!(path.is_dir());
}

#[test]
fn limits_refuse_what_would_pass_them_and_name_their_setting() {
    let scratch = Scratch::new();
    let limits = KvLimits { entries: 4, name: 8, value: 10, total: 40 };
    let options = KvOptions { limits, ..options(&scratch.path().join("kvConfig.json")) };
    let (store, _) = KvStore::open(options, Box::new(|_| {})).unwrap();
    let refused = |namespace, key, value| {
        let refusal = put(&store, namespace, key, value).unwrap_err();
        assert_eq!(refusal.code(), 1);
        refusal.to_string()
    };
    assert!(refused("ninebytes", "k", "v").contains("nameLengthMax"));
    assert!(refused("ns", "ninebytes", "v").contains("nameLengthMax"));
    assert!(refused("ns", "k", "elevenbytes").contains("kvValueMax"));
    put(&store, "ns", "a", "0123456789").unwrap();
    put(&store, "ns", "b", "0123456789").unwrap();
    put(&store, "ns", "c", "0123456789").unwrap();
    assert!(refused("ns", "d", "v").contains("kvEntriesMax"));
    assert!(refused("other", "d", "v").contains("kvEntriesMax"));
    delete(&store, Some("ns"), Some("c")).unwrap();
    put(&store, "ns", "d", "01234567").unwrap();
    put(&store, "ns", "d", "0123456789").unwrap();
    delete(&store, Some("ns"), Some("d")).unwrap();
    assert!(refused("ns", "12345678", "0123456789").contains("kvTotalMax"));
    put(&store, "ns", "a", "").unwrap();
}

#[test]
fn a_file_beyond_the_limits_is_loaded_whole_and_can_shrink() {
    let scratch = Scratch::new();
    let path = scratch.path().join("kvConfig.json");
    let store = open(&path);
    for key in ["a", "b", "c"] {
        put(&store, "ns", key, "0123456789").unwrap();
    }
    let limits = KvLimits { entries: 2, name: 1, value: 5, total: 10 };
    let (store, report) = KvStore::open(KvOptions { limits, ..options(&path) }, Box::new(|_| {})).unwrap();
    assert_eq!(report.entries, 3);
    assert!(put(&store, "n", "d", "v").is_err());
    delete(&store, Some("ns"), Some("a")).unwrap();
    assert_eq!(list(&store, "ns").unwrap().len(), 2);
}

#[test]
fn after_close_everything_taken_is_answered_and_nothing_more_is_taken() {
    let scratch = Scratch::new();
    let path = scratch.path().join("kvConfig.json");
    let store = open(&path);
    let answers: Vec<_> = (0..50)
        .map(|number| {
            let (reply, answer) = oneshot::channel();
            store.put(Some("ns"), Some(&format!("k{number}")), Some("v"), reply);
            answer
        })
        .collect();
    store.close();
    for answer in answers {
        assert_eq!(answer.blocking_recv().unwrap(), Ok(()));
    }
    assert_eq!(put(&store, "ns", "late", "v"), Err(KvError::Closed));
    assert_eq!(open(&path).snapshot().keys(), 50);
}

#[test]
fn more_changes_than_may_wait_are_answered_busy() {
    let scratch = Scratch::new();
    let (entered, has_entered) = channel();
    let (release, released) = channel::<()>();
    let on_change: OnChange = Box::new(move |_| {
        let _ = entered.send(());
        let _ = released.recv();
    });
    let (store, _) = KvStore::open(options(&scratch.path().join("kvConfig.json")), on_change).unwrap();
    let send = |number: usize| {
        let (reply, answer) = oneshot::channel();
        store.put(Some("ns"), Some(&number.to_string()), Some("v"), reply);
        answer
    };
    let first = send(0);
    has_entered.recv().unwrap();
    let waiting: Vec<_> = (0..WAITING_MAX).map(send).collect();
    let refusal = send(WAITING_MAX).blocking_recv().unwrap().unwrap_err();
    assert_eq!((refusal.code(), refusal), (2, KvError::Busy));
    drop(release);
    for answer in waiting.into_iter().chain([first]) {
        assert_eq!(answer.blocking_recv().unwrap(), Ok(()));
    }
}

mod damaged {
    use super::*;

    const GOOD: &str = r#"{"configTable":{"ns":{"k":"good"}}}"#;
    const TORN: &str = r#"{"configTable":{"ns":{"k":"ne"#;

    fn files(content: Option<&str>, backup: Option<&str>) -> (Scratch, std::path::PathBuf) {
        let scratch = Scratch::new();
        let path = scratch.path().join("kvConfig.json");
        for (path, content) in [(path.clone(), content), (backup_of(&path), backup)] {
            if let Some(content) = content {
                fs::write(path, content).unwrap();
            }
        }
        (scratch, path)
    }

    fn from_backup(path: &Path) -> Result<(KvStore, KvReport), KvOpenError> {
        KvStore::open(KvOptions { from_backup: true, ..options(path) }, Box::new(|_| {}))
    }

    #[test]
    fn a_damaged_file_stops_the_start_and_says_where_and_what_to_do() {
        let (_scratch, path) = files(Some(TORN), Some(GOOD));
        let error = KvStore::open(options(&path), Box::new(|_| {})).map(|_| ()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("{} is damaged at byte 2", path.display())), "{text}");
        assert!(
            text.contains(&format!("start with --kv-from-backup to take {}.bak", path.display())),
            "{text}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), TORN);
        fs::remove_file(backup_of(&path)).unwrap();
        let text = KvStore::open(options(&path), Box::new(|_| {})).map(|_| ()).unwrap_err().to_string();
        assert!(text.contains("repair it, or move it away to start empty"), "{text}");
    }

    #[test]
    fn the_backup_is_taken_when_asked_for_and_outlives_later_changes() {
        let (scratch, path) = files(Some(TORN), Some(GOOD));
        let (store, report) = from_backup(&path).unwrap();
        assert_eq!(store.snapshot().get("ns", "k"), Some("good"));
        assert_eq!(report.warnings.len(), 1);
        assert!(report.warnings[0].contains("damaged at byte 2"), "{report:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), GOOD);
        assert_eq!(fs::read_to_string(scratch.path().join("kvConfig.json.damaged")).unwrap(), TORN);
        put(&store, "ns", "k", "newer").unwrap();
        assert_eq!(fs::read_to_string(backup_of(&path)).unwrap(), GOOD);
        assert_eq!(open(&path).snapshot().get("ns", "k"), Some("newer"));
    }

    #[test]
    fn a_sound_file_ranks_above_the_backup() {
        let (_scratch, path) = files(Some(GOOD), Some(TORN));
        let (store, report) = from_backup(&path).unwrap();
        assert_eq!(store.snapshot().get("ns", "k"), Some("good"));
        assert!(report.warnings[0].contains("its backup was not needed"), "{report:?}");
    }

    #[test]
    fn a_missing_file_is_replaced_by_the_backup_only_when_asked_for() {
        let (_scratch, path) = files(None, Some(GOOD));
        assert_eq!(*open(&path).snapshot(), KvSnapshot::default());
        let (store, _) = from_backup(&path).unwrap();
        assert_eq!(store.snapshot().get("ns", "k"), Some("good"));
        let (_scratch, path) = files(None, None);
        let (store, _) = from_backup(&path).unwrap();
        assert_eq!(*store.snapshot(), KvSnapshot::default());
    }

    #[test]
    fn a_backup_that_is_damaged_too_stops_the_start() {
        let (_scratch, path) = files(Some(TORN), Some(TORN));
        let text = from_backup(&path).map(|_| ()).unwrap_err().to_string();
        assert!(
            text.starts_with(&format!(
                "{}.bak cannot be used as backup: it is damaged at byte 2",
                path.display()
            )),
            "{text}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), TORN);
        let (_scratch, path) = files(Some(TORN), None);
        assert!(from_backup(&path).map(|_| ()).unwrap_err().to_string().contains("cannot be used as backup"));
    }

    #[test]
    fn an_empty_file_is_an_empty_table_unless_the_backup_says_otherwise() {
        let (_scratch, path) = files(Some(""), None);
        assert_eq!(*open(&path).snapshot(), KvSnapshot::default());
        let (_scratch, path) = files(Some(""), Some(GOOD));
        let text = KvStore::open(options(&path), Box::new(|_| {})).map(|_| ()).unwrap_err().to_string();
        assert!(text.contains("is damaged at byte 0: the file is empty, its backup is not"), "{text}");
        assert_eq!(from_backup(&path).unwrap().0.snapshot().get("ns", "k"), Some("good"));
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        for (content, value) in [(format!("\u{feff}{GOOD}"), Some("good")), ("\u{feff}\r\n".to_owned(), None)]
        {
            let (_scratch, path) = files(Some(&content), None);
            let (store, report) = KvStore::open(options(&path), Box::new(|_| {})).unwrap();
            assert_eq!(store.snapshot().get("ns", "k"), value);
            assert_eq!(report.warnings, [""; 0]);
        }
        let (_scratch, path) = files(Some(&format!("\u{feff}{TORN}")), None);
        let text = KvStore::open(options(&path), Box::new(|_| {})).map(|_| ()).unwrap_err().to_string();
        assert!(text.contains("is damaged at byte 32: "), "{text}");
    }

    #[test]
    fn a_file_that_is_not_utf8_is_read_as_latin_1_with_a_warning() {
        let content = b"{\"configTable\":\n{\"ns\":{\"k\":\"gr\xfc\xdf\",\"l\":\"v\"}}}";
        for of_backup in [false, true] {
            let (_scratch, path) = files(of_backup.then_some(TORN), None);
            let file = if of_backup { backup_of(&path) } else { path.clone() };
            fs::write(&file, content).unwrap();
            let options = KvOptions { from_backup: of_backup, ..options(&path) };
            let (store, report) = KvStore::open(options, Box::new(|_| {})).unwrap();
            assert_eq!(store.snapshot().get("ns", "k"), Some("grüß"));
            let told = format!("{}:2: byte 30 is not UTF-8", file.display());
            assert!(report.warnings.iter().any(|warning| warning.starts_with(&told)), "{report:?}");
            put(&store, "ns", "l", "w").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), r#"{"configTable":{"ns":{"k":"grüß","l":"w"}}}"#);
        }
        let (_scratch, path) = files(None, None);
        fs::write(&path, b"{\"configTable\":{\"\xfc\":[1]}}").unwrap();
        let text = KvStore::open(options(&path), Box::new(|_| {})).map(|_| ()).unwrap_err().to_string();
        assert!(text.contains("is damaged at byte 20: "), "bytes of the file are counted: {text}");
    }

    #[test]
    fn entries_that_were_dropped_are_reported_and_gone_after_the_next_change() {
        let (_scratch, path) =
            files(Some(r#"{"configTable":{"ORDER_TOPIC_CONFIG":{null:"a:8","t":"b:4"}}}"#), None);
        let (store, report) = KvStore::open(options(&path), Box::new(|_| {})).unwrap();
        assert_eq!((report.entries, report.dropped.len()), (1, 1));
        put(&store, ORDER_TOPIC_CONFIG, "u", "c:2").unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            r#"{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"b:4","u":"c:2"}}}"#
        );
    }

    #[test]
    fn a_link_stays_a_link() {
        let (scratch, path) = files(Some(GOOD), None);
        let link = scratch.path().join("link.json");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        put(&open(&link), "ns", "k", "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(open(&path).snapshot().get("ns", "k"), Some("new"));
    }
}

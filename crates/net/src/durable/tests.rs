use std::cell::{Cell, RefCell};

use super::*;
use waypost_testkit::peers::Scratch;

#[test]
fn missing_folders_are_created() {
    let scratch = Scratch::new("durable");
    let path = scratch.path().join("a/b/file");
    replace(&path, b"one", None).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
}

#[test]
fn the_old_content_is_kept_as_backup() {
    let scratch = Scratch::new("durable");
    let (path, backup) = (scratch.path().join("file"), scratch.path().join("file.bak"));
    replace(&path, b"one", Some(&backup)).unwrap();
    assert!(!backup.exists());
    replace(&path, b"two", Some(&backup)).unwrap();
    replace(&path, b"three", Some(&backup)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"three");
    assert_eq!(fs::read(&backup).unwrap(), b"two");
    replace(&path, b"three", None).unwrap();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2, "no temporary file stays");
}

#[test]
fn permissions_of_the_old_file_are_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new("durable");
    let path = scratch.path().join("file");
    fs::write(&path, b"one").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    replace(&path, b"two", None).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_failure_names_the_step_the_path_and_the_user() {
    let scratch = Scratch::new("durable");
    let blocker = scratch.path().join("file");
    fs::write(&blocker, b"no folder").unwrap();
    let error = replace(&blocker.join("sub/file"), b"x", None).unwrap_err().to_string();
    assert!(error.contains("cannot create the folder"), "{error}");
    assert!(error.contains(blocker.to_str().unwrap()) && error.contains("as user"), "{error}");
}

#[test]
fn leftovers_of_dead_processes_are_removed_and_nothing_else() {
    let scratch = Scratch::new("durable");
    let path = scratch.path().join("kvConfig.json");
    // The kernel's highest process id is below this number.
    let dead = scratch.path().join(".kvConfig.json.4294967294.tmp");
    let dead_link = scratch.path().join(".kvConfig.json.bak.4294967294.tmp");
    let dead_undo = scratch.path().join(".old.kvConfig.json.4294967294.tmp");
    let alive = scratch.path().join(".kvConfig.json.1.tmp");
    let other = scratch.path().join(".other.json.4294967294.tmp");
    for file in [&dead, &dead_link, &dead_undo, &alive, &other] {
        fs::write(file, b"x").unwrap();
    }
    remove_leftovers(&path);
    assert!(!dead.exists() && !dead_link.exists() && !dead_undo.exists() && alive.exists() && other.exists());
}

/// Lets the sync of folders fail as it is told, one answer after the other, and renames from a number on.
#[derive(Debug)]
struct Broken {
    syncs: RefCell<Vec<Option<Errno>>>,
    renames: Cell<u32>,
}

impl Broken {
    fn syncs(syncs: &[Option<Errno>]) -> Self {
        let mut syncs = syncs.to_vec();
        syncs.reverse();
        Self { syncs: RefCell::new(syncs), renames: Cell::new(u32::MAX) }
    }

    fn after_renames(self, good: u32) -> Self {
        self.renames.set(good);
        self
    }
}

impl Disk for Broken {
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let left = self.renames.get().checked_sub(1).ok_or(Errno::IO)?;
        self.renames.set(left);
        fs::rename(from, to)
    }

    fn sync_folder(&self, _folder: &File) -> io::Result<()> {
        self.syncs.borrow_mut().pop().flatten().map_or(Ok(()), |error| Err(error.into()))
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_that_fails_to_sync_gets_the_old_file_back() {
    for backup in [false, true] {
        let scratch = Scratch::new("durable");
        let (path, other) = (scratch.path().join("file"), scratch.path().join("file.bak"));
        let backup = backup.then_some(&*other);
        fs::write(&path, b"old").unwrap();
        let disk = Broken::syncs(&[Some(Errno::IO)]);
        let failed = replace_on(&disk, &path, b"new", backup).unwrap_err();
        assert!(matches!(failed, ReplaceError::Unchanged(_)), "{failed}");
        assert!(failed.to_string().contains("cannot sync the folder"), "{failed}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names_in(scratch.path()).len(), if backup.is_some() { 2 } else { 1 });
        replace(&path, b"new", backup).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}

#[test]
fn a_folder_that_never_syncs_gets_the_old_file_back_and_the_power_failure_is_told() {
    let scratch = Scratch::new("durable");
    let path = scratch.path().join("file");
    fs::write(&path, b"old").unwrap();
    let disk = Broken::syncs(&[Some(Errno::IO), Some(Errno::IO)]);
    let failed = replace_on(&disk, &path, b"new", None).unwrap_err();
    assert!(matches!(failed, ReplaceError::PutBack(_)), "{failed}");
    assert!(io::Error::from(failed).to_string().contains("after a power failure the new one may be there"));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names_in(scratch.path()), ["file"]);
}

#[test]
fn where_no_file_was_none_is_left() {
    let scratch = Scratch::new("durable");
    let path = scratch.path().join("file");
    let failed = replace_on(&Broken::syncs(&[Some(Errno::IO)]), &path, b"new", None).unwrap_err();
    assert!(matches!(failed, ReplaceError::Unchanged(_)), "{failed}");
    assert_eq!(names_in(scratch.path()), [""; 0]);
}

#[test]
fn an_old_file_that_cannot_be_put_back_leaves_the_outcome_open() {
    let scratch = Scratch::new("durable");
    let path = scratch.path().join("file");
    fs::write(&path, b"old").unwrap();
    // The old file gets its second name, the new one its place; the way back fails.
    let disk = Broken::syncs(&[Some(Errno::IO)]).after_renames(2);
    let failed = replace_on(&disk, &path, b"new", None).unwrap_err();
    assert!(matches!(failed, ReplaceError::Open { .. }), "{failed}");
    assert!(failed.to_string().contains("it is open which one a restart finds"), "{failed}");
    assert_eq!(names_in(scratch.path()), ["file"]);
}

#[test]
fn a_file_system_that_cannot_sync_folders_need_not() {
    for unsupported in [Errno::INVAL, Errno::NOTSUP, Errno::NOSYS] {
        let scratch = Scratch::new("durable");
        let path = scratch.path().join("new/file");
        let disk = Broken::syncs(&[Some(unsupported); 2]);
        replace_on(&disk, &path, b"new", None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}

#[test]
fn a_new_folder_that_fails_to_sync_is_removed_and_synced_next_time() {
    let scratch = Scratch::new("durable");
    let path = scratch.path().join("a/b/file");
    let disk = Broken::syncs(&[None, Some(Errno::IO)]);
    let failed = replace_on(&disk, &path, b"new", None).unwrap_err();
    assert!(matches!(failed, ReplaceError::Unchanged(_)), "{failed}");
    assert_eq!(names_in(scratch.path()), [""; 0]);
}

#[test]
fn a_rename_that_fails_changes_nothing() {
    let scratch = Scratch::new("durable");
    let path = scratch.path().join("file");
    fs::write(&path, b"old").unwrap();
    for good in [0, 1] {
        let failed = replace_on(&Broken::syncs(&[]).after_renames(good), &path, b"new", None).unwrap_err();
        assert!(matches!(failed, ReplaceError::Unchanged(_)), "{failed}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names_in(scratch.path()), ["file"]);
    }
}

#[test]
fn the_folder_of_a_file_to_be_is_probed() {
    let scratch = Scratch::new("durable");
    probe(&scratch.path().join("a/b/file")).unwrap();
    probe(Path::new("file")).unwrap();
}

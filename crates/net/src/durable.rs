//! Replacing a file so that it is whole at every moment and stays replaced.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Replaces the content of `path`. When it returns, the content survives a power failure; at any
/// earlier moment the file is whole, old or new.
///
/// 1. Missing folders are created and synced.
/// 2. The content goes into a temporary file in the same folder, with the old file's permissions,
///    and is synced.
/// 3. If `backup` is given, the old file also gets that name, atomically.
/// 4. The temporary file is renamed to `path`.
/// 5. The folder is synced.
///
/// # Errors
///
/// What the system says, with the step and path. After an error in step 5 the file is new, but
/// may not survive a power failure; after all others it is old.
pub fn replace(path: &Path, content: &[u8], backup: Option<&Path>) -> io::Result<()> {
    let folder = folder_of(path);
    create_folders(folder)?;
    let temporary = temporary_of(path);
    let result = write_and_rename(path, &temporary, content, backup);
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result?;
    sync_folder(folder)
}

fn write_and_rename(path: &Path, temporary: &Path, content: &[u8], backup: Option<&Path>) -> io::Result<()> {
    let at = |step: &'static str, path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| explained(&error, step, &path)
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(temporary)
        .map_err(at("create", temporary))?;
    if let Ok(old) = fs::metadata(path) {
        file.set_permissions(old.permissions()).map_err(at("set the permissions of", temporary))?;
    }
    file.write_all(content).map_err(at("write", temporary))?;
    file.sync_all().map_err(at("sync", temporary))?;
    drop(file);
    if let Some(backup) = backup {
        keep_as(path, backup).map_err(at("keep the old content as", backup))?;
    }
    fs::rename(temporary, path).map_err(at("replace", path))
}

/// Gives the file at `path`, if there is one, the second name `backup`.
fn keep_as(path: &Path, backup: &Path) -> io::Result<()> {
    let link = temporary_of(backup);
    let _ = fs::remove_file(&link);
    match fs::hard_link(path, &link) {
        Ok(()) => fs::rename(&link, backup),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Not every file system has links: a copy does as well, only slower.
        Err(_) => {
            fs::copy(path, &link)?;
            File::open(&link)?.sync_all()?;
            fs::rename(&link, backup)
        }
    }
}

/// The folder that `path` lies in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A name in the same folder that no other process uses.
fn temporary_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// Removes temporary files that killed processes left beside `path`.
pub fn remove_leftovers(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let Ok(entries) = fs::read_dir(folder_of(path)) else { return };
    let own = std::process::id();
    for entry in entries.flatten() {
        let file_name = entry.file_name();
        let owner = file_name
            .to_str()
            .and_then(|text| text.strip_prefix('.')?.strip_prefix(name)?.strip_suffix(".tmp"))
            .and_then(|rest| rest.rsplit('.').next()?.parse::<u32>().ok());
        if let Some(owner) = owner
            && (owner == own || !Path::new("/proc").join(owner.to_string()).exists())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn create_folders(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(|error| explained(&error, "create the folder", folder))?;
    missing.into_iter().try_for_each(|created| sync_folder(folder_of(created)))
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| explained(&error, "sync the folder", folder))
}

fn explained(error: &io::Error, step: &str, path: &Path) -> io::Error {
    let user = rustix::process::geteuid().as_raw();
    io::Error::new(error.kind(), format!("cannot {step} {} as user {user}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
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
        let alive = scratch.path().join(".kvConfig.json.1.tmp");
        let other = scratch.path().join(".other.json.4294967294.tmp");
        for file in [&dead, &dead_link, &alive, &other] {
            fs::write(file, b"x").unwrap();
        }
        remove_leftovers(&path);
        assert!(!dead.exists() && !dead_link.exists() && alive.exists() && other.exists());
    }
}

//! Replacing a file so that it is whole at every moment and stays replaced.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

/// Why a file was not replaced, and what is there now.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The old content.
    #[error("{0}")]
    Unchanged(io::Error),
    /// The old content, but a power failure may bring the new one: the folder could be synced neither with the new
    /// file nor with the old one in its place again.
    #[error("{0}; the old file was put back, but after a power failure the new one may be there")]
    PutBack(io::Error),
    /// The new content, or none of the two.
    #[error("{error}; the old file could not be put back ({back}), so it is open which one a restart finds")]
    Open {
        /// Why the new file may not stay.
        error: io::Error,
        /// Why the old file is not there again.
        back: io::Error,
    },
}

impl From<ReplaceError> for io::Error {
    fn from(failed: ReplaceError) -> Self {
        match failed {
            ReplaceError::Unchanged(error) => error,
            ReplaceError::PutBack(ref error) | ReplaceError::Open { ref error, .. } => {
                Self::new(error.kind(), failed.to_string())
            }
        }
    }
}

/// The calls by which a replacement takes place and stays, for tests to let them fail.
pub trait Disk: std::fmt::Debug {
    /// Renames a file.
    ///
    /// # Errors
    ///
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Makes the entries of a folder survive a power failure.
    ///
    /// # Errors
    ///
    /// What the system says.
    fn sync_folder(&self, folder: &File) -> io::Result<()> {
        folder.sync_all()
    }
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl Disk for System {}

/// Replaces the content of `path`. When it returns, the content survives a power failure; at any
/// earlier moment the file is whole, old or new.
///
/// 1. Missing folders are created and synced, and the folder is opened, so that nothing but its sync is left to
///    fail after step 4.
/// 2. The content goes into a temporary file in the same folder, with the old file's permissions,
///    and is synced.
/// 3. The old file also gets a second name, atomically: `backup`, or a temporary one.
/// 4. The temporary file is renamed to `path`.
/// 5. The folder is synced. If that fails, the old file is put back. A file system that cannot sync folders at all
///    (see [`probe`]) counts as one that need not.
///
/// # Errors
///
/// What the system says, with the step and path, and which content is there.
pub fn replace(path: &Path, content: &[u8], backup: Option<&Path>) -> Result<(), ReplaceError> {
    replace_on(&System, path, content, backup)
}

/// [`replace`] on a disk that may fail.
///
/// # Errors
///
/// As [`replace`].
pub fn replace_on(
    disk: &dyn Disk,
    path: &Path,
    content: &[u8],
    backup: Option<&Path>,
) -> Result<(), ReplaceError> {
    let name = folder_of(path);
    let temporary = temporary_of(path);
    let begin = || {
        create_folders(disk, name)?;
        let folder = File::open(name).map_err(at("open the folder", name))?;
        write(path, &temporary, content)?;
        let kept = backup.map_or_else(|| undo_of(path), Path::to_owned);
        let is_kept = keep_as(disk, path, &kept).map_err(at("keep the old content as", &kept))?;
        disk.rename(&temporary, path).map_err(at("replace", path))?;
        Ok((folder, is_kept.then_some(kept)))
    };
    let begun = begin();
    if begun.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    let outcome = begun.map_err(ReplaceError::Unchanged).and_then(|(folder, kept)| {
        let Err(error) = synced(disk, &folder) else { return Ok(()) };
        let error = explained(&error, "sync the folder", name);
        match put_back(disk, path, kept.as_deref()) {
            Err(back) => Err(ReplaceError::Open { error, back }),
            Ok(()) if synced(disk, &folder).is_ok() => Err(ReplaceError::Unchanged(error)),
            Ok(()) => Err(ReplaceError::PutBack(error)),
        }
    });
    // It is not there if there is a backup, or was no old file.
    let _ = fs::remove_file(undo_of(path));
    outcome
}

/// Whether the entries of the folder of `path`, or of the nearest one that exists, can be made to survive a power
/// failure.
///
/// # Errors
///
/// Why not. The kind is [`io::ErrorKind::Unsupported`] where the file system does not know how: [`replace`] does its
/// work all the same.
pub fn probe(path: &Path) -> io::Result<()> {
    let Some(name) = folder_of(path).ancestors().find(|folder| folder.is_dir()) else { return Ok(()) };
    let name = if name.as_os_str().is_empty() { Path::new(".") } else { name };
    let folder = File::open(name).map_err(at("open the folder", name))?;
    folder.sync_all().map_err(|error| {
        let kind = if is_unsupported(&error) { io::ErrorKind::Unsupported } else { error.kind() };
        io::Error::new(kind, explained(&error, "sync the folder", name).to_string())
    })
}

fn synced(disk: &dyn Disk, folder: &File) -> io::Result<()> {
    match disk.sync_folder(folder) {
        Err(error) if is_unsupported(&error) => Ok(()),
        outcome => outcome,
    }
}

/// What the system says of a file system that has no such operation.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS))
}

fn write(path: &Path, temporary: &Path, content: &[u8]) -> io::Result<()> {
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
    file.sync_all().map_err(at("sync", temporary))
}

/// Gives the file at `path` the second name `other`; false if there is no such file.
fn keep_as(disk: &dyn Disk, path: &Path, other: &Path) -> io::Result<bool> {
    let link = temporary_of(other);
    let _ = fs::remove_file(&link);
    match fs::hard_link(path, &link) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        // Not every file system has links: a copy does as well, only slower.
        Err(_) => {
            fs::copy(path, &link)?;
            File::open(&link)?.sync_all()?;
        }
    }
    let renamed = disk.rename(&link, other);
    if renamed.is_err() {
        let _ = fs::remove_file(&link);
    }
    renamed.map(|()| true)
}

/// Makes `path` what it was: the file that is kept, or none.
fn put_back(disk: &dyn Disk, path: &Path, kept: Option<&Path>) -> io::Result<()> {
    match kept {
        Some(kept) => keep_as(disk, kept, path).map(drop),
        None => fs::remove_file(path),
    }
}

/// The folder that `path` lies in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The name of the old file until the new one is sure to stay.
fn undo_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(".old.");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
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
            .and_then(|text| {
                let of_name = |begin| text.strip_prefix(begin)?.strip_prefix(name)?.strip_suffix(".tmp");
                of_name(".").or_else(|| of_name(".old."))
            })
            .and_then(|rest| rest.rsplit('.').next()?.parse::<u32>().ok());
        if let Some(owner) = owner
            && (owner == own || !Path::new("/proc").join(owner.to_string()).exists())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn create_folders(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(at("create the folder", folder))?;
    let sync = |created: &&Path| {
        let parent = folder_of(created);
        File::open(parent).and_then(|open| synced(disk, &open)).map_err(at("sync the folder", parent))
    };
    let outcome = missing.iter().try_for_each(sync);
    if outcome.is_err() {
        // The next attempt would find them and not sync them.
        for created in missing {
            let _ = fs::remove_dir(created);
        }
    }
    outcome
}

fn at<'a>(step: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> io::Error + 'a {
    move |error| explained(&error, step, path)
}

fn explained(error: &io::Error, step: &str, path: &Path) -> io::Error {
    let user = rustix::process::geteuid().as_raw();
    io::Error::new(error.kind(), format!("cannot {step} {} as user {user}: {error}", path.display()))
}

#[cfg(test)]
mod tests;

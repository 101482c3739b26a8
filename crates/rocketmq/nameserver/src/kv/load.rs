//! Reading the KV file at start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use waypost_net::durable;

use super::KvOptions;
use super::error::KvOpenError;
use super::file::KvDamage;
use super::snapshot::KvSnapshot;
use crate::text::{self, NotUtf8};

/// An entry of the file that was not taken over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DroppedEntry {
    /// Its namespace.
    pub namespace: String,
    /// Its key.
    pub key: String,
    /// Why.
    pub reason: &'static str,
}

/// What opening the KV file found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KvReport {
    /// The file, with links followed.
    pub path: PathBuf,
    /// Keys that were loaded.
    pub entries: usize,
    /// Entries that were not taken over; the next change removes them from the file.
    pub dropped: Vec<DroppedEntry>,
    /// What an operator should see, in sentences: a backup that was used, a file that cannot be
    /// read, a folder that cannot be written.
    pub warnings: Vec<String>,
}

/// The table at start, and why it must not be written, if so.
pub(crate) struct Loaded {
    pub(crate) table: KvSnapshot,
    pub(crate) report: KvReport,
    /// The file is there and cannot be read: writing would lose what it holds.
    pub(crate) unreadable: Option<String>,
    /// The file does not hold the table: the next change is written in any case.
    pub(crate) differs: bool,
}

pub(crate) fn load(options: &KvOptions) -> Result<Loaded, KvOpenError> {
    // Renaming over a link would replace the link, not the file that it names.
    let path = fs::canonicalize(&options.path).unwrap_or_else(|_| options.path.clone());
    durable::remove_leftovers(&path);
    let report = KvReport { path: path.clone(), ..KvReport::default() };
    let mut loaded = Loaded { table: KvSnapshot::default(), report, unreadable: None, differs: false };
    match fs::read(&path) {
        Ok(content) => match understand(&path, &content) {
            Ok((table, dropped)) => {
                loaded.table = table;
                loaded.report.dropped = dropped;
                loaded.report.warnings.extend(not_utf8(&path, &content));
                if options.from_backup {
                    loaded.report.warnings.push(format!(
                        "{} is sound: its backup was not needed, remove --kv-from-backup",
                        path.display()
                    ));
                }
            }
            Err(damage) if options.from_backup => restore(&path, Some(&damage), &mut loaded)?,
            Err(KvDamage { offset, reason }) => {
                let next = how_to_start(&path);
                return Err(KvOpenError::Damaged { path, offset, reason, next });
            }
        },
        Err(error) if is_absent(&error) => {
            if options.from_backup {
                restore(&path, None, &mut loaded)?;
            }
        }
        Err(error) => {
            loaded.report.warnings.push(format!(
                "{} cannot be read ({error}): the KV configuration is empty and cannot be changed until it can be \
                 read and the server restarts",
                path.display()
            ));
            loaded.unreadable = Some(error.to_string());
        }
    }
    loaded.report.entries = loaded.table.keys();
    loaded.report.warnings.extend(not_writable(&path).or_else(|| not_syncable(&path)));
    Ok(loaded)
}

/// The backup of a KV file.
pub(crate) fn backup_of(path: &Path) -> PathBuf {
    with_ending(path, ".bak")
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// A path through something that is no folder names no file either.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn understand(path: &Path, content: &[u8]) -> Result<(KvSnapshot, Vec<DroppedEntry>), KvDamage> {
    let visible = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(content);
    if !visible.iter().all(u8::is_ascii_whitespace) {
        return KvSnapshot::from_file_content(content);
    }
    // The original writes in place: an empty file beside a backup with content was cut short.
    match fs::metadata(backup_of(path)) {
        Ok(backup) if backup.len() > 0 => {
            Err(KvDamage { offset: 0, reason: "the file is empty, its backup is not".to_owned() })
        }
        _ => Ok((KvSnapshot::default(), Vec::new())),
    }
}

/// What is to be said of a file that was read as Latin-1.
fn not_utf8(path: &Path, content: &[u8]) -> Option<String> {
    let NotUtf8 { offset, line } = text::decode(content).ok()?.not_utf8?;
    Some(format!(
        "{}:{line}: byte {offset} is not UTF-8, so the file was read as Latin-1; look at its values, the next change \
         writes them as UTF-8",
        path.display()
    ))
}

fn how_to_start(path: &Path) -> String {
    let backup = backup_of(path);
    if backup.exists() {
        format!(
            "start with --kv-from-backup to take {}, or move the file away to start empty",
            backup.display()
        )
    } else {
        format!("repair it, or move it away to start empty (there is no backup {})", backup.display())
    }
}

/// Takes the table from the backup. The damaged file is moved aside first: the next change would
/// otherwise make it the backup.
fn restore(path: &Path, damage: Option<&KvDamage>, loaded: &mut Loaded) -> Result<(), KvOpenError> {
    let backup = backup_of(path);
    let content = match fs::read(&backup) {
        Ok(content) => content,
        Err(error) if damage.is_none() && is_absent(&error) => return Ok(()),
        Err(error) => return Err(KvOpenError::NoBackup { path: backup, reason: error.to_string() }),
    };
    let (table, dropped) =
        KvSnapshot::from_file_content(&content).map_err(|KvDamage { offset, reason }| {
            KvOpenError::NoBackup {
                path: backup.clone(),
                reason: format!("it is damaged at byte {offset}: {reason}"),
            }
        })?;
    let why = match damage {
        Some(KvDamage { offset, reason }) => format!("is damaged at byte {offset} ({reason})"),
        None => "is missing".to_owned(),
    };
    let mut warning = format!("{} {why}: took the content of {}", path.display(), backup.display());
    let aside = with_ending(path, ".damaged");
    let moved = if damage.is_some() { fs::rename(path, &aside) } else { Ok(()) };
    match moved.and_then(|()| Ok(durable::replace(path, &table.to_file_content(), None)?)) {
        Ok(()) if damage.is_some() => {
            warning.push_str(&format!(" and kept the damaged file as {}", aside.display()))
        }
        Ok(()) => {}
        Err(error) => {
            warning.push_str(&format!("; it could not be written back: {error}"));
            loaded.differs = true;
        }
    }
    loaded.report.warnings.push(warning);
    loaded.report.warnings.extend(not_utf8(&backup, &content));
    loaded.report.dropped = dropped;
    loaded.table = table;
    Ok(())
}

/// A folder that cannot be written stops nothing but changes (C7); the operator should know before
/// the first one.
fn not_writable(path: &Path) -> Option<String> {
    let folder = durable::folder_of(path).ancestors().find(|folder| folder.exists())?;
    if !folder.is_dir() {
        return Some(format!("{} is no folder: the KV configuration cannot be changed", folder.display()));
    }
    let error = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).err()?;
    Some(format!(
        "{} cannot be written by user {} ({error}): the KV configuration and settings cannot be changed while running",
        folder.display(),
        rustix::process::geteuid().as_raw(),
    ))
}

/// What the operator should know of a folder whose entries cannot be made to survive a power failure.
fn not_syncable(path: &Path) -> Option<String> {
    let error = durable::probe(path).err()?;
    Some(if error.kind() == io::ErrorKind::Unsupported {
        format!(
            "{error}: the file system does not know how, so a power failure may undo changes of the KV configuration and \
             of settings that were answered"
        )
    } else {
        format!("{error}: the KV configuration and settings cannot be changed while running")
    })
}

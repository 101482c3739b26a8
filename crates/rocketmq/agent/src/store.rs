//! What brokers said, on disk, so that the death of the agent does not cost their routes.
//!
//! A file for each broker, replaced as a whole: a line that names the format, a checksum, and the frames as they
//! came, which say their lengths themselves.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use waypost_net::durable;
use waypost_rocketmq_wire::frame::{FrameLimits, frame_length};
use xxhash_rust::xxh3::xxh3_64;

use crate::outbox::Frame;
use crate::state_file;

const MAGIC: &[u8] = b"waypost-agent-broker 1\n";
const SUM: usize = 8;
const EXTENSION: &str = "broker";

/// The largest file that is read: far more than the registrations of one broker.
const FILE_MAX: u64 = 256 * 1024 * 1024;

/// The folder with the files.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    folder: PathBuf,
}

/// What one file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Saved {
    /// Where.
    pub path: PathBuf,
    /// The frames of one broker, in order.
    pub frames: Vec<Bytes>,
}

impl Store {
    /// Files in this folder, which is made when the first is written.
    #[must_use]
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Replaces the file of a broker. Survives a power failure when it returns.
    ///
    /// # Errors
    ///
    /// What the system says; the old file is there then.
    pub(crate) fn save(&self, address: &str, frames: &[Frame]) -> io::Result<()> {
        let length: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
        let mut content = Vec::with_capacity(MAGIC.len().saturating_add(SUM).saturating_add(length));
        content.extend_from_slice(MAGIC);
        content.extend_from_slice(&[0; SUM]);
        let start = content.len();
        for frame in frames {
            content.extend_from_slice(&frame.bytes);
        }
        let sum = xxh3_64(content.get(start..).unwrap_or_default()).to_be_bytes();
        if let Some(place) = content.get_mut(MAGIC.len()..start) {
            place.copy_from_slice(&sum);
        }
        Ok(durable::replace(&self.path(address), &content, None)?)
    }

    /// Removes the file of a broker, if there is one.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(crate) fn remove(&self, address: &str) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.path(address)))
    }

    /// All files that are whole. What cannot be read is told and left out, damaged files are removed: their brokers
    /// come back by themselves.
    pub(crate) fn load(&self, limits: &FrameLimits) -> Vec<Saved> {
        let mut saved = Vec::new();
        for path in self.entries() {
            if let Some(whole) = whole_of(&path) {
                durable::remove_leftovers(&whole);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            match read(&path, limits) {
                Ok(frames) => saved.push(Saved { path, frames }),
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "a saved broker was thrown away");
                    // It is in nobody's way: the agent starts, and says so again at its next start.
                    if let Err(error) = absent_is_fine(fs::remove_file(&path)) {
                        tracing::warn!(file = %path.display(), %error, "it could not be removed; remove it");
                    }
                }
            }
        }
        saved
    }

    fn entries(&self) -> Vec<PathBuf> {
        let unreadable = |error: &io::Error| {
            tracing::warn!(
                folder = %self.folder.display(), %error,
                "saved brokers were left out: their folder cannot be read; mend it, or give another state folder"
            );
        };
        let entries = match fs::read_dir(&self.folder) {
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    unreadable(&error);
                }
                return Vec::new();
            }
            Ok(entries) => entries,
        };
        let readable = |entry: io::Result<fs::DirEntry>| entry.inspect_err(unreadable).ok();
        entries.filter_map(readable).map(|entry| entry.path()).collect()
    }

    fn path(&self, address: &str) -> PathBuf {
        // Addresses come from peers: a digest is always a file name.
        self.folder.join(format!("{:016x}.{EXTENSION}", xxh3_64(address.as_bytes())))
    }
}

/// The file that this one would have become if the agent had not been killed while it wrote.
fn whole_of(begun: &Path) -> Option<PathBuf> {
    let name = begun.file_name()?.to_str()?.strip_prefix('.')?.strip_suffix(".tmp")?;
    let (whole, _) = name.rsplit_once('.')?;
    Path::new(whole)
        .extension()
        .is_some_and(|extension| extension == EXTENSION)
        .then(|| begun.with_file_name(whole))
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn read(path: &Path, limits: &FrameLimits) -> io::Result<Vec<Bytes>> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let content = state_file::read(path, FILE_MAX)?;
    let mut content = Bytes::from(content.ok_or_else(|| damaged("it is gone"))?);
    if !content.starts_with(MAGIC) {
        return Err(damaged("it is no file of this format"));
    }
    drop(content.split_to(MAGIC.len()));
    if content.len() < SUM {
        return Err(damaged("it is cut off"));
    }
    let sum = content.split_to(SUM);
    if *sum != xxh3_64(&content).to_be_bytes() {
        return Err(damaged("its checksum is wrong"));
    }
    let mut frames = Vec::new();
    while !content.is_empty() {
        let length = frame_length(&content, limits).map_err(|error| damaged(&error.to_string()))?;
        let length = length.filter(|length| *length <= content.len());
        frames.push(content.split_to(length.ok_or_else(|| damaged("a frame is cut off"))?));
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_rocketmq_wire::frame::HeaderEncoding;
    use waypost_rocketmq_wire::message::Request;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("waypost-store-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn frame(opaque: i32) -> Frame {
        let mut bytes = Vec::new();
        Request { opaque, body: b"body", ..Request::new(103) }.write(HeaderEncoding::Json, &mut bytes);
        Frame { bytes: bytes.into(), code: 103, opaque, oneway: false }
    }

    #[test]
    fn frames_come_back_in_their_order() {
        let folder = Folder::new("order");
        let store = Store::new(folder.0.join("deep/brokers"));
        let limits = FrameLimits::default();
        assert_eq!(store.load(&limits), []);
        let frames = [frame(1), frame(2)];
        store.save("10.0.0.1:10911", &frames).unwrap();
        store.save("10.0.0.2:10911", &frames[..1]).unwrap();
        store.save("10.0.0.2:10911", &frames[1..]).unwrap();
        let mut loaded: Vec<Vec<Bytes>> = store.load(&limits).into_iter().map(|saved| saved.frames).collect();
        loaded.sort_by_key(Vec::len);
        let [first, second] = frames.map(|frame| frame.bytes);
        assert_eq!(loaded, [vec![second.clone()], vec![first, second]]);
        store.remove("10.0.0.1:10911").unwrap();
        store.remove("10.0.0.1:10911").unwrap();
        assert_eq!(store.load(&limits).len(), 1);
    }

    #[test]
    fn a_damaged_file_is_thrown_away_and_the_others_are_read() {
        let folder = Folder::new("damaged");
        let store = Store::new(folder.0.clone());
        for address in ["a:1", "b:1", "c:1"] {
            store.save(address, &[frame(1)]).unwrap();
        }
        let whole = fs::read(store.path("a:1")).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(store.path("a:1"), &flipped).unwrap();
        fs::write(store.path("b:1"), &whole[..30]).unwrap();
        fs::create_dir(store.path("d:1")).unwrap();
        fs::write(store.path("e:1"), "").unwrap();
        std::os::unix::fs::symlink("/dev/zero", store.path("f:1")).unwrap();
        assert_eq!(store.load(&FrameLimits::default()).len(), 1);
        assert!(!store.path("a:1").exists() && !store.path("b:1").exists());
    }

    #[test]
    fn a_file_in_place_of_the_folder_is_left_out() {
        let folder = Folder::new("file");
        fs::write(&folder.0, "no folder").unwrap();
        assert_eq!(Store::new(folder.0.clone()).load(&FrameLimits::default()), []);
        fs::remove_file(&folder.0).unwrap();
    }

    #[test]
    fn what_a_killed_agent_began_to_write_is_removed() {
        let folder = Folder::new("begun");
        let store = Store::new(folder.0.clone());
        store.save("a:1", &[frame(1)]).unwrap();
        let name = store.path("b:1").file_name().unwrap().to_str().unwrap().to_owned();
        // No process has such a number.
        let begun = folder.0.join(format!(".{name}.{}.tmp", u32::MAX));
        let foreign = folder.0.join("notes.tmp");
        for file in [&begun, &foreign] {
            fs::write(file, "half").unwrap();
        }
        assert_eq!(store.load(&FrameLimits::default()).len(), 1);
        assert!(!begun.exists() && foreign.exists());
    }
}

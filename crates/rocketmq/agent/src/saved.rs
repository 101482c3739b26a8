//! Last good routes on disk, so that programs can start while every server is down.
//!
//! A first line with the number of routes, then one line a route: topic, when it was last confirmed (milliseconds since
//! 1970), the route as JSON, a checksum of the three; separated by tabs. A line that cannot be read is left out with a
//! warning; what is older than a day is dropped.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use waypost_net::clock::{Clock, Millis};
use waypost_net::durable;
use waypost_net::tasks::Stop;
use waypost_rocketmq_discovery::client::Discovery;
use waypost_rocketmq_discovery::core::Known;
use waypost_rocketmq_wire::body::TopicRouteData;

use self::line::Line;
use crate::state_file;

mod line;

/// What is older is of no use.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// How old the confirmation on disk may be while the route stays as it is: far less than [`AGE_MAX`], and so much that
/// the disk rests.
const CONFIRMED_AGAIN: Duration = Duration::from_secs(3600);

/// How often it is looked whether there is something to write.
const PERIOD: Duration = Duration::from_secs(30);

/// The largest file that is read and written: about half a million routes.
const FILE_MAX: usize = 256 * 1024 * 1024;

/// The name of the file in the state folder.
const FILE: &str = "routes.tsv";

/// What the first line begins with; the number of routes follows.
const HEAD: &str = "#routes ";

/// What is on disk of one topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OnDisk {
    confirmed: u64,
    digest: u64,
}

/// A content of the file.
#[derive(Debug, Default)]
struct Table {
    routes: HashMap<Arc<str>, OnDisk>,
}

/// A content that should replace the one on disk.
#[derive(Debug)]
struct Next {
    table: Table,
    text: String,
    left_out: usize,
}

/// What was read.
#[derive(Debug, Default)]
struct Loaded {
    table: Table,
    routes: Vec<(Arc<str>, TopicRouteData)>,
    /// Routes that cannot be read, or that should be there and are not.
    damaged: usize,
}

impl Table {
    /// Reads the file's content at the wall-clock time `wall`, in milliseconds.
    fn load(content: &[u8], wall: u64) -> Loaded {
        let oldest = wall.saturating_sub(millis(AGE_MAX));
        let mut loaded = Loaded::default();
        let mut lines = content.split(|byte| *byte == b'\n').peekable();
        let head = lines.next_if(|line| line.starts_with(b"#"));
        let announced = head.map(|head| std::str::from_utf8(head).ok()?.strip_prefix(HEAD)?.parse().ok());
        // An earlier version wrote neither a head nor checksums.
        let unchecked_until = head.is_none().then(|| wall.saturating_add(millis(AGE_MAX)));
        let mut seen = 0_usize;
        for bytes in lines.filter(|line| !line.is_empty()) {
            seen = seen.saturating_add(1);
            let Some(line) = Line::parse(bytes, unchecked_until) else {
                loaded.damaged = loaded.damaged.saturating_add(1);
                continue;
            };
            // A clock that was set back since is no reason to forget a route.
            let confirmed = line.confirmed.min(wall);
            let topic: Arc<str> = line.topic.into();
            if confirmed >= oldest && !loaded.table.routes.contains_key(&topic) {
                let on_disk = OnDisk { confirmed, digest: line::digest(&line.route) };
                loaded.table.routes.insert(Arc::clone(&topic), on_disk);
                loaded.routes.push((topic, line.route));
            }
        }
        let missing = match announced {
            Some(Some(announced)) => usize::abs_diff(announced, seen),
            // The head is damaged.
            Some(None) => 1,
            // No version writes an empty file.
            None => usize::from(seen == 0),
        };
        loaded.damaged = loaded.damaged.saturating_add(missing);
        loaded
    }

    /// What should be on disk, if it is not: a content is written when it is another, or when its confirmation on disk
    /// is older than an hour.
    fn next(&self, known: Vec<(Arc<str>, Known)>, now: Millis, wall: u64) -> Option<Next> {
        let oldest = wall.saturating_sub(millis(AGE_MAX));
        let mut next = Next { table: Self::default(), text: String::new(), left_out: 0 };
        let mut is_due = false;
        for (topic, known) in known {
            let Some(route) = known.route else { continue };
            let before = self.routes.get(&topic).copied();
            let confirmed = match (known.checked, before) {
                (Some(at), _) => wall.saturating_sub(millis(now.since(at))),
                (None, Some(before)) => before.confirmed,
                (None, None) => wall,
            };
            if confirmed < oldest {
                continue;
            }
            let start = next.text.len();
            let digest = line::write(&mut next.text, &topic, confirmed, &route.to_wire());
            if next.text.len() > FILE_MAX {
                next.text.truncate(start);
                next.left_out = next.left_out.saturating_add(1);
                continue;
            }
            let Some(digest) = digest else { continue };
            is_due |= before.is_none_or(|before| {
                let is_old = before.confirmed.abs_diff(wall) >= millis(CONFIRMED_AGAIN);
                before.digest != digest || is_old && confirmed != before.confirmed
            });
            next.table.routes.insert(topic, OnDisk { confirmed, digest });
        }
        // What is not known any more has to leave the disk as well.
        is_due |= next.table.routes.len() != self.routes.len();
        next.text.insert_str(0, &format!("{HEAD}{}\n", next.table.routes.len()));
        is_due.then_some(next)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The file of routes.
#[derive(Debug)]
pub(crate) struct SavedRoutes {
    path: PathBuf,
    clock: Clock,
    on_disk: Mutex<Table>,
}

impl SavedRoutes {
    /// Reads the file in `folder` and gives what it holds to `discovery`. What cannot be read is told and left out, as
    /// the agent does without.
    pub(crate) fn open(folder: &Path, discovery: &Discovery) -> Self {
        let path = folder.join(FILE);
        durable::remove_leftovers(&path);
        let clock = Clock::system();
        let content = state_file::read(&path, FILE_MAX as u64).unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "the saved routes were left out: they cannot be read");
            None
        });
        let loaded = content.map(|content| Table::load(&content, clock.wall_millis())).unwrap_or_default();
        if loaded.damaged > 0 {
            tracing::warn!(
                file = %path.display(), damaged = loaded.damaged, read = loaded.routes.len(),
                "saved routes were left out: their lines are damaged or missing"
            );
        }
        for (topic, route) in loaded.routes {
            discovery.restore(&topic, route);
        }
        Self { path, clock, on_disk: Mutex::new(loaded.table) }
    }

    /// Writes what `discovery` knows, if it is to be written.
    ///
    /// # Errors
    ///
    /// What the system says; the old file stays.
    pub(crate) fn save(&self, discovery: &Discovery) -> io::Result<()> {
        let mut known = discovery.all_known();
        known.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut on_disk = self.on_disk.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = on_disk.next(known, self.clock.now(), self.clock.wall_millis()) else {
            return Ok(());
        };
        if next.left_out > 0 {
            tracing::warn!(
                file = %self.path.display(), routes = next.left_out, limit = FILE_MAX,
                "routes were not saved: the file would be too large"
            );
        }
        durable::replace(&self.path, next.text.as_bytes(), None)?;
        *on_disk = next.table;
        Ok(())
    }
}

/// Saves every half minute until everything stops, and once more then.
pub(crate) async fn keep(saved: Arc<SavedRoutes>, discovery: Discovery, stop: Stop) {
    let mut failed = false;
    loop {
        let stopped = tokio::time::timeout(PERIOD, stop.requested()).await.is_ok();
        let (saved, discovery) = (Arc::clone(&saved), discovery.clone());
        match tokio::task::spawn_blocking(move || saved.save(&discovery)).await {
            // Once until it works again: the agent serves without its disk, too.
            Ok(Err(error)) if !failed => {
                failed = true;
                tracing::warn!(%error, "the routes were not saved; a start without name servers would not know them");
            }
            Ok(Err(_)) | Err(_) => {}
            Ok(Ok(())) => failed = false,
        }
        if stopped {
            return;
        }
    }
}

#[cfg(test)]
mod tests;

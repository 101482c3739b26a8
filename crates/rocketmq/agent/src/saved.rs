//! Last good routes on disk, so that programs can start while every server is down.
//!
//! One line a route: topic, when it was last confirmed (milliseconds since 1970), the route as JSON; separated by
//! tabs. A line that cannot be read is left out with a warning; what is older than a day is dropped.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use waypost_net::clock::Clock;
use waypost_net::durable;
use waypost_rocketmq_discovery::client::Discovery;
use waypost_rocketmq_wire::body::{BodyLimits, Dialect, TopicRouteData};

/// What is older is of no use.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The name of the file in the state folder.
const FILE: &str = "routes.tsv";

/// The file of routes.
#[derive(Debug)]
pub(crate) struct SavedRoutes {
    path: PathBuf,
    clock: Clock,
    /// When routes that were read, and not confirmed since, were last confirmed.
    read: HashMap<String, u64>,
    written: Mutex<String>,
}

impl SavedRoutes {
    /// Reads the file in `folder` and gives what it holds to `discovery`. A missing file is an empty one.
    ///
    /// # Errors
    ///
    /// When the file is there but cannot be read.
    pub(crate) fn open(folder: &Path, discovery: &Discovery) -> io::Result<Self> {
        let path = folder.join(FILE);
        durable::remove_leftovers(&path);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                let explained = format!("cannot read the saved routes in {}: {error}", path.display());
                return Err(io::Error::new(error.kind(), explained));
            }
        };
        let clock = Clock::system();
        let oldest = clock.wall_millis().saturating_sub(AGE_MAX.as_millis() as u64);
        let (routes, unreadable) = parse(&text, oldest);
        if unreadable > 0 {
            tracing::warn!(file = %path.display(), lines = unreadable, "saved routes that cannot be read were left out");
        }
        let mut read = HashMap::new();
        for (topic, confirmed, route) in routes {
            discovery.restore(&topic, route);
            read.insert(topic, confirmed);
        }
        Ok(Self { path, clock, read, written: Mutex::default() })
    }

    /// Writes what `discovery` knows, if it changed.
    ///
    /// # Errors
    ///
    /// What the system says; the old file stays.
    pub(crate) fn save(&self, discovery: &Discovery) -> io::Result<()> {
        let (wall, now) = (self.clock.wall_millis(), self.clock.now());
        let oldest = wall.saturating_sub(AGE_MAX.as_millis() as u64);
        let mut known = discovery.all_known();
        known.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut text = String::new();
        for (topic, known) in known {
            let Some(route) = known.route else { continue };
            let ago = known.checked.map(|at| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX));
            let confirmed = match ago {
                Some(ago) => wall.saturating_sub(ago),
                None => self.read.get(&*topic).copied().unwrap_or(wall),
            };
            if confirmed >= oldest {
                write_line(&mut text, &topic, confirmed, &route.to_wire());
            }
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written != text {
            durable::replace(&self.path, text.as_bytes(), None)?;
            *written = text;
        }
        Ok(())
    }
}

fn write_line(text: &mut String, topic: &str, confirmed: u64, route: &TopicRouteData) {
    // A name with a tab or a line end would be another line; no broker can have such a topic.
    if topic.contains(['\t', '\n', '\r']) {
        return;
    }
    let mut json = Vec::new();
    route.encode(Dialect::Standard, &mut json);
    // Writing to a text cannot fail.
    let _ = writeln!(text, "{topic}\t{confirmed}\t{}", String::from_utf8_lossy(&json));
}

/// The routes that are not older than `oldest`, and how many lines could not be read.
fn parse(text: &str, oldest: u64) -> (Vec<(String, u64, TopicRouteData)>, usize) {
    let mut routes = Vec::new();
    let mut unreadable = 0;
    for line in text.lines() {
        let mut parts = line.splitn(3, '\t');
        let read = (|| {
            let (topic, confirmed, json) = (parts.next()?, parts.next()?, parts.next()?);
            let route = TopicRouteData::decode(json.as_bytes(), &BodyLimits::default()).ok()?;
            Some((topic.to_owned(), confirmed.parse::<u64>().ok()?, route))
        })();
        match read {
            Some(route) if route.1 >= oldest => routes.push(route),
            Some(_) => {}
            None => unreadable += 1,
        }
    }
    (routes, unreadable)
}

/// Saves every half minute until everything stops, and once more then.
pub(crate) async fn keep(saved: Arc<SavedRoutes>, discovery: Discovery, stop: waypost_net::tasks::Stop) {
    loop {
        let stopped = tokio::time::timeout(Duration::from_secs(30), stop.requested()).await.is_ok();
        let (saved, discovery) = (Arc::clone(&saved), discovery.clone());
        let written = tokio::task::spawn_blocking(move || saved.save(&discovery)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "the routes were not saved; a start without name servers would not know them");
        }
        if stopped {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_rocketmq_wire::body::QueueData;

    fn route() -> TopicRouteData {
        let queues = QueueData {
            broker_name: "a\tb".to_owned(),
            read_queue_nums: 4,
            write_queue_nums: 4,
            perm: 6,
            topic_sys_flag: 0,
        };
        TopicRouteData { queue_datas: vec![queues], ..TopicRouteData::default() }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut text = String::new();
        write_line(&mut text, "T", 5_000, &route());
        write_line(&mut text, "%RETRY%g", 4_000, &route());
        let (routes, unreadable) = parse(&text, 4_500);
        assert_eq!(routes, [("T".to_owned(), 5_000, route())]);
        assert_eq!(unreadable, 0);
    }

    #[test]
    fn broken_lines_are_left_out_and_counted() {
        let mut text = String::new();
        write_line(&mut text, "T", 5_000, &route());
        text.push_str("half a li\nU\tx\t{}\nV\t6000\t{\"queueDatas\":\n");
        let (routes, unreadable) = parse(&text, 0);
        assert_eq!((routes.len(), unreadable), (1, 3));
    }
}

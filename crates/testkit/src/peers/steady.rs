//! A Java producer that sends by the clock and tells of each message.

use std::io::{BufRead as _, BufReader};
use std::process::{ChildStdin, ChildStdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::java::java;
use super::process::{Process, Scratch, poll_until};
use super::{PeerError, Version, Workshop};

/// It takes a producer until it starts at the wanted name server, and its first message.
const START_DEADLINE: Duration = Duration::from_secs(120);

/// A send may still be waiting when it is told to stop.
const STOP_DEADLINE: Duration = Duration::from_secs(45);

/// What marks the lines of the protocol among what the library prints.
const MARK: &str = ">> ";

/// Milliseconds since the epoch, the clock of all times here.
pub fn epoch_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How it sends.
#[derive(Debug, Clone)]
pub struct SteadyPlan<'a> {
    /// Name servers, separated by semicolons.
    pub name_servers: &'a str,
    /// Name of its group.
    pub group: &'a str,
    /// Messages a second.
    pub rate: u32,
    /// The topic that it sends to.
    pub topic: &'a str,
    /// Some messages go to a topic of which there is a new one after so many seconds; 0 for none.
    pub fresh_seconds: u32,
    /// One in so many messages does.
    pub fresh_every: u32,
    /// The name server that it must use when it starts; any if `None`.
    pub first_server: Option<&'a str>,
    /// More flags of its JVM.
    pub flags: &'a [&'a str],
}

/// One message.
#[derive(Debug, Clone)]
pub struct Message {
    /// When it was due, in milliseconds since the epoch.
    pub due: u64,
    /// Its topic.
    pub topic: String,
    /// From when it was due to its end, in milliseconds.
    pub took: u64,
    /// The brokers that the client picked, one after the other, and when.
    pub picks: Vec<(String, u64)>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// One route query of the client.
#[derive(Debug, Clone)]
pub struct RouteQuery {
    /// When it was sent, in milliseconds since the epoch.
    pub started: u64,
    /// Its topic.
    pub topic: String,
    /// Whom it asked, as the client tells it.
    pub server: String,
    /// Milliseconds to the answer; `None` if there was none within the client's own limit of 3 s.
    pub took: Option<u64>,
}

/// What it has told so far.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Messages, in the order of their ends.
    pub sends: Vec<Message>,
    /// Route queries, in the order of their ends.
    pub queries: Vec<RouteQuery>,
    /// The name server that it started with.
    pub first_server: Option<String>,
    done: bool,
}

/// The process. It is killed on drop.
#[derive(Debug)]
pub struct SteadyProducer {
    told: Arc<Mutex<Told>>,
    input: Option<ChildStdin>,
    process: Process,
    _home: Scratch,
}

impl SteadyProducer {
    /// Starts it and waits until its first message has been stored; it sends from then on.
    ///
    /// # Errors
    ///
    /// If the jars cannot be had.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start(workshop: &Workshop, version: Version, plan: &SteadyPlan<'_>) -> Result<Self, PeerError> {
        let name = format!("steady producer {version}");
        let home = Scratch::new("steady");
        let mut command = java(workshop, version, home.path())?;
        command.args(["-Xmx256m", "-Drocketmq.client.logUseSlf4j=true"]).args(plan.flags);
        if let Some(server) = plan.first_server {
            command.arg(format!("-Dsteady.server={server}"));
        }
        command.args(["Steady", plan.name_servers, plan.group, &plan.rate.to_string(), plan.topic]);
        command
            .args([plan.fresh_seconds, plan.fresh_every].map(|number| number.to_string()))
            .env("HOME", home.path());
        let mut process = Process::start_piped(&name, &mut command, &home.path().join("peer.log"));
        let (input, output) = process.pipes().expect("invariant: started with pipes");
        let told = Arc::new(Mutex::new(Told::default()));
        let telling = Arc::clone(&told);
        std::thread::spawn(move || listen(output, &telling));
        let mut producer = Self { told, input: Some(input), process, _home: home };
        producer.wait("ready", START_DEADLINE, |told| told.first_server.is_some());
        Ok(producer)
    }

    /// What it has told so far.
    pub fn told(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets it end what it is sending; all that it told.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub fn stop(mut self) -> Told {
        drop(self.input.take());
        self.wait("end", STOP_DEADLINE, |told| told.done);
        self.told()
    }

    fn wait(&mut self, what: &str, deadline: Duration, condition: impl Fn(&Told) -> bool) {
        let found = poll_until(deadline, || {
            let ended = self.process.ended();
            let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let found = condition(&told);
            assert!(found || ended.is_none(), "{} ended ({ended:?}) before its {what}", self.process.name());
            found.then_some(())
        });
        assert!(found.is_some(), "{}: no {what} within {deadline:?}", self.process.name());
    }
}

fn listen(output: ChildStdout, told: &Mutex<Told>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let Some(line) = line.strip_prefix(MARK) else { continue };
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "send" => told.sends.extend(parse_send(rest)),
            "query" => told.queries.extend(parse_query(rest)),
            "ready" => told.first_server = Some(rest.to_owned()),
            _ => told.done = kind == "done",
        }
    }
}

/// `DUE TOPIC MS BROKER@MS,... ok` or `... failed REASON`.
fn parse_send(line: &str) -> Option<Message> {
    let mut words = line.splitn(5, ' ');
    let due = words.next()?.parse().ok()?;
    let topic = words.next()?.to_owned();
    let took = words.next()?.parse().ok()?;
    let picks = words.next()?.split(',').filter_map(|pick| {
        let (broker, at) = pick.rsplit_once('@')?;
        Some((broker.to_owned(), at.parse().ok()?))
    });
    let picks = picks.collect();
    let failure = words.next()?.strip_prefix("failed ").map(str::to_owned);
    Some(Message { due, topic, took, picks, failure })
}

/// `STARTED TOPIC SERVER MS CODE`, with `-` for the time that an unanswered one took.
fn parse_query(line: &str) -> Option<RouteQuery> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[started, topic, server, took, _code] = words.as_slice() else { return None };
    Some(RouteQuery {
        started: started.parse().ok()?,
        topic: topic.to_owned(),
        server: server.to_owned(),
        took: took.parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_producer_are_understood() {
        let sent = parse_send("1000 T-1 3012 a@1001,b@4003 ok").unwrap();
        assert_eq!((sent.due, sent.took, sent.failure), (1000, 3012, None));
        assert_eq!(sent.picks, [("a".to_owned(), 1001), ("b".to_owned(), 4003)]);
        let failed = parse_send("1000 T 12 - failed no route: T").unwrap();
        assert_eq!((failed.picks.len(), failed.failure.as_deref()), (0, Some("no route: T")));
        assert_eq!(parse_query("5 T 10.0.0.1:9876 - unanswered").unwrap().took, None);
        assert_eq!(parse_query("5 T 10.0.0.1:9876 7 0").unwrap().took, Some(7));
    }
}

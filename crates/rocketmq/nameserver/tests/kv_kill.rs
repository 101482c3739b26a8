//! A server that is killed in the middle of KV puts: the file always parses and holds every put
//! that was answered (field report C19).
//!
//! This program runs itself: the child opens the store and puts from several threads, printing
//! each put that was answered; the parent kills it with SIGKILL after a random number of lines,
//! and looks at the file.

#![allow(clippy::disallowed_methods, reason = "a test may look at the clock")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use waypost_rocketmq_nameserver::kv::{KvLimits, KvOptions, KvStore};

/// How often the child is killed.
const ROUNDS: u64 = 80;
/// Threads that put, each its own keys.
const WRITERS: u64 = 4;
/// Keys of each thread.
const KEYS: u64 = 16;
/// A child that answers nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, path, round] = arguments.as_slice()
        && mode == "storm"
    {
        storm(Path::new(path), round.parse().expect("a number"));
        return ExitCode::FAILURE;
    }
    let folder = std::env::temp_dir().join(format!("waypost-kv-kill-{}", std::process::id()));
    let path = folder.join("namesrv/kvConfig.json");
    let outcome = kill_again_and_again(&path);
    let _ = std::fs::remove_dir_all(&folder);
    match outcome {
        Ok(puts) => {
            println!("test kv_kill ... ok ({ROUNDS} kills, {puts} answered puts, none lost)");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("test kv_kill ... FAILED\n{failure}");
            ExitCode::FAILURE
        }
    }
}

/// The child: puts until it is killed.
fn storm(path: &Path, round: u64) {
    let store = Arc::new(open(path).expect("the file parses"));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                for number in 0.. {
                    let key = format!("w{writer}-k{}", number % KEYS);
                    // Values of all lengths, so that files grow and shrink.
                    let value = format!(
                        "{round}.{number}.{}",
                        "x".repeat(usize::try_from(number * 37 % 999).unwrap())
                    );
                    let (reply, answer) = oneshot::channel();
                    store.put(Some("storm"), Some(&key), Some(&value), reply);
                    answer.blocking_recv().expect("an answer").expect("a put that is taken");
                    // One write call a line: a line that is there is whole.
                    std::io::stdout()
                        .lock()
                        .write_all(format!("{key} {value}\n").as_bytes())
                        .expect("a parent");
                }
            })
        })
        .collect();
    for writer in writers {
        let _ = writer.join();
    }
}

fn kill_again_and_again(path: &Path) -> Result<u64, String> {
    let mut random = Random(0x5eed);
    let mut answered = 0;
    // The last answered value of each key, over all rounds.
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for round in 0..ROUNDS {
        let lines = answered_before_kill(path, round, &mut random)?;
        let mut this_round: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in &lines {
            let (key, value) = line.split_once(' ').ok_or_else(|| format!("half a line: {line}"))?;
            this_round.entry(key.to_owned()).or_default().push(value.to_owned());
        }
        answered += lines.len() as u64;
        let store = open(path).map_err(|error| format!("round {round}: {error}"))?;
        let snapshot = store.snapshot();
        for (key, values) in this_round {
            known.insert(key, values.last().cloned().unwrap_or_default());
        }
        for (key, value) in &mut known {
            let found = snapshot.get("storm", key).ok_or_else(|| format!("round {round}: {key} is lost"))?;
            // A put that was made durable and killed before its answer may be there instead; it is newer.
            if found != value && !is_newer(found, value) {
                return Err(format!("round {round}: {key} is {found}, was answered as {value}"));
            }
            found.clone_into(value);
        }
    }
    if answered < ROUNDS {
        return Err(format!("only {answered} puts in {ROUNDS} rounds: this tested nothing"));
    }
    Ok(answered)
}

fn is_newer(found: &str, value: &str) -> bool {
    let order = |value: &str| {
        let mut parts = value.split('.').map(|part| part.parse::<u64>().unwrap_or_default());
        (parts.next(), parts.next())
    };
    order(found) > order(value)
}

/// Runs a child, kills it after some answers, and gives all that it had printed.
fn answered_before_kill(path: &Path, round: u64, random: &mut Random) -> Result<Vec<String>, String> {
    let program: PathBuf = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .arg("storm")
        .arg(path)
        .arg(round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let output = child.stdout.take().ok_or("no output")?;
    let wanted = random.below(40);
    let spin = Duration::from_micros(random.below(3_000));
    let started = Instant::now();
    let mut lines = Vec::new();
    let mut reader = BufReader::new(output).lines();
    while (lines.len() as u64) < wanted {
        match reader.next() {
            Some(Ok(line)) => lines.push(line),
            other => return Err(format!("round {round}: the child ended by itself: {other:?}")),
        }
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            return Err(format!("round {round}: {} puts in {PATIENCE:?}", lines.len()));
        }
    }
    let moment = Instant::now();
    while moment.elapsed() < spin {
        std::hint::spin_loop();
    }
    child.kill().map_err(|error| error.to_string())?;
    child.wait().map_err(|error| error.to_string())?;
    for line in reader {
        lines.push(line.map_err(|error| error.to_string())?);
    }
    Ok(lines)
}

fn open(path: &Path) -> Result<KvStore, String> {
    let limits = KvLimits { entries: 1_000, name: 255, value: 4_096, total: 1 << 20 };
    let options = KvOptions { path: path.to_owned(), from_backup: false, limits };
    KvStore::open(options, Box::new(|_| {})).map(|(store, _)| store).map_err(|error| error.to_string())
}

/// A small generator (xorshift): the same kills in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

//! `play`: what scenarios run as processes of their own, to be killed, stopped or measured.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::fault::stage;

/// Longer than any request that a client has for a broker here.
const FRAME_MAX: usize = 1 << 20;

/// The flag bit of answers, and that of requests that want none.
const ANSWER: i64 = 1;
const ONEWAY: i64 = 2;

#[derive(Debug, Subcommand)]
pub(crate) enum Options {
    /// Register a broker and answer its clients
    Broker(BrokerOptions),
    /// Watch topics
    Watcher(WatcherOptions),
}

#[derive(Args, Debug)]
pub(crate) struct BrokerOptions {
    #[arg(long)]
    name: String,
    #[arg(long)]
    servers: String,
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    topics: usize,
    /// How late each answer is
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
}

#[derive(Args, Debug)]
pub(crate) struct WatcherOptions {
    #[arg(long)]
    servers: String,
    #[arg(long)]
    topics: usize,
}

impl Options {
    pub(crate) fn run(&self) -> Result<()> {
        // Whoever started this holds the other end of its standard input.
        thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
        match self {
            Self::Broker(options) => options.run(),
            Self::Watcher(options) => options.run(),
        }
    }
}

fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

impl BrokerOptions {
    fn run(&self) -> Result<()> {
        let listener = TcpListener::bind(self.address)
            .with_context(|| format!("{} cannot be listened on", self.address))?;
        let topics = stage::topics(self.topics);
        let _registrar = stage::registered_at(&self.name, self.address, &self.servers, topics)?;
        say("registering")?;
        let delay = Duration::from_millis(self.delay_ms);
        for stream in listener.incoming() {
            let stream = stream?;
            thread::spawn(move || {
                // A client that goes away is no failure of the broker.
                let _ = serve(stream, delay);
            });
        }
        Ok(())
    }
}

/// Answers every request with offset 0, each so late.
fn serve(mut stream: TcpStream, delay: Duration) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut output = stream.try_clone()?;
    let (answers, due) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        while let Ok((at, frame)) = due.recv() {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if output.write_all(&frame).is_err() {
                return;
            }
        }
    });
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        anyhow::ensure!(length <= FRAME_MAX, "a frame of {length} bytes");
        let mut frame = vec![0; length];
        stream.read_exact(&mut frame)?;
        if let Some(answer) = answer(&frame) {
            answers.send((Instant::now() + delay, answer))?;
        }
    }
}

fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let (meta, rest) = frame.split_first_chunk::<4>()?;
    let header = rest.get(..(u32::from_be_bytes(*meta) & 0x00ff_ffff) as usize)?;
    let header: Value = serde_json::from_slice(header).ok()?;
    if header["flag"].as_i64()? & ONEWAY != 0 {
        return None;
    }
    let header =
        json!({"code": 0, "flag": ANSWER, "language": "OTHER", "version": 0, "opaque": header["opaque"],
        "serializeTypeCurrentRPC": "JSON", "extFields": {"offset": "0"}})
        .to_string();
    let length = u32::try_from(header.len()).ok()?;
    let mut frame = Vec::with_capacity(header.len() + 8);
    frame.extend((length + 4).to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame.extend(header.as_bytes());
    Some(frame)
}

impl WatcherOptions {
    fn run(&self) -> Result<()> {
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let discovery = stage::discovery(&self.servers)?;
            let mut watches: Vec<_> =
                (0..self.topics).map(|index| discovery.watch(&stage::topic(index))).collect();
            for watch in &mut watches {
                while watch.changed().await?.is_none() {}
            }
            say("watching")?;
            std::future::pending::<()>().await;
            drop(watches);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_opaque_of_its_request_and_a_oneway_request_has_none() {
        let frame = |flag: i64| {
            let header = json!({"code": 30, "flag": flag, "opaque": 7}).to_string();
            [&u32::try_from(header.len()).unwrap().to_be_bytes()[..], header.as_bytes()].concat()
        };
        let answered = answer(&frame(0)).unwrap();
        let header: Value = serde_json::from_slice(&answered[8..]).unwrap();
        assert_eq!((header["opaque"].as_i64(), header["flag"].as_i64()), (Some(7), Some(1)));
        assert_eq!(answer(&frame(ONEWAY)), None);
        assert_eq!(answer(b"\0\0"), None);
    }
}

//! Simulated brokers that stay registered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::broker::Broker;
use crate::link::Link;
use crate::names;

/// Well below the 120 s after which a name server closes an idle connection.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(20);
/// Between an answered registration and its visibility to readers nothing should lie; this is generous.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Brokers, each with its connection; a thread sends their heartbeats until this value is dropped.
pub(crate) struct Fleet {
    stop: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
}

impl Fleet {
    /// Registers `count` brokers that all have the same topics, and waits until the first topic shows them.
    pub(crate) fn register(server: SocketAddr, count: usize, topics: &[String]) -> Result<Self> {
        let mut members = Vec::new();
        for index in 0..count {
            let mut broker = Broker::new(index, topics);
            let mut link = Link::connect(server)?;
            broker.register(&mut link)?;
            members.push((link, broker.heartbeat()));
        }
        if let Some(topic) = topics.first() {
            await_brokers(server, topic, count)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let keeper = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                for (link, heartbeat) in &mut members {
                    // A server that is gone is noticed by those who measure it.
                    let _ = link.send(&[heartbeat]);
                }
                thread::park_timeout(HEARTBEAT_PERIOD);
            }
        });
        Ok(Self { stop, keeper: Some(keeper) })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(keeper) = self.keeper.take() {
            keeper.thread().unpark();
            // The thread holds only its connections: a panic in it has nothing left to tell.
            let _ = keeper.join();
        }
    }
}

/// Waits until the route of `topic` lists the first `count` brokers.
pub(crate) fn await_brokers(server: SocketAddr, topic: &str, count: usize) -> Result<()> {
    let mut link = Link::connect(server)?;
    let deadline = Instant::now() + VISIBLE_TIMEOUT;
    loop {
        let route = link.route(topic).unwrap_or_default();
        let text = String::from_utf8_lossy(&route);
        if (0..count).all(|index| text.contains(&format!("\"{}\"", names::broker(index)))) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{topic} does not list {count} brokers {VISIBLE_TIMEOUT:?} after they registered: {text}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

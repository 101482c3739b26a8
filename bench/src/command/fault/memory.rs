//! `memory`: what a client needs that watches very many topics.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use waypost_rocketmq_registrar::{Quorum, Registrar, Topic};
use waypost_testkit::peers::{Scratch, Story};

use super::stage::{self, PATIENCE};
use super::{Figure, Programs, Report};
use crate::process::Memory;

const NAME: &str = "memory";

const BROKERS: usize = 4;

/// How many queue numbers are told apart where all routes are to differ.
const KINDS: usize = 12;

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    #[arg(long, default_value_t = 10_000)]
    topics: usize,
    /// How long the client watches before it is measured: three periods of polls
    #[arg(long, default_value_t = 95)]
    seconds: u64,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !self.programs.ready(NAME) {
            return Ok(None);
        }
        ensure!(self.topics <= KINDS.pow(4), "no more than {} routes are told apart", KINDS.pow(4));
        let program = self.programs.server()?;
        let done = format!(
            "A client in a process of its own watches {} topics on {BROKERS} brokers for {} s; name server: {program}. \
             First all topics have 8 queues on each broker, then no two routes are alike.",
            self.topics, self.seconds
        );
        let story = Story::begin(NAME, &done);
        let mut figures = Vec::new();
        for (what, bar, distinct) in [("8 queues each", 40.0, false), ("all different", 40.0, true)] {
            let server = stage::server(&program)?;
            let list = server.address().to_string();
            let brokers = self.register(&list, distinct)?;
            story.step(format_args!("{what}: registered"));
            let home = Scratch::new(NAME);
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["play", "watcher", "--servers", &list, "--topics", &self.topics.to_string()]);
            let (process, _input, _) = stage::start_player("watcher", &mut command, &home)?;
            let first = Memory::of(process.id())?;
            story.step(format_args!("{what}: all routes are known, {} KiB", first.resident));
            thread::sleep(Duration::from_secs(self.seconds));
            let later = Memory::of(process.id())?;
            let mib = |kib: u64| (kib as f64 / 10.24).round() / 100.0;
            figures.extend([
                Figure::at_most(
                    format!("{what}: resident once all are known"),
                    mib(first.resident),
                    "MiB",
                    bar,
                ),
                Figure::at_most(format!("{what}: resident after the polls"), mib(later.resident), "MiB", bar),
                Figure::of(format!("{what}: peak"), mib(later.peak), "MiB"),
            ]);
            drop(brokers);
        }
        Ok(Some(Report::new(NAME, done, figures)))
    }

    fn register(&self, list: &str, distinct: bool) -> Result<Vec<Registrar>> {
        let runtime = stage::runtime()?;
        let mut brokers = Vec::new();
        for broker in 0..BROKERS {
            let topics = (0..self.topics).map(|index| {
                let digit = index / KINDS.pow(u32::try_from(broker).unwrap_or_default()) % KINDS;
                let queues =
                    if distinct { 1 + i32::try_from(digit).unwrap_or_default() } else { stage::QUEUES };
                Topic::new(&stage::topic(index), queues)
            });
            let registrar = stage::registrar(&stage::broker(broker), list, topics.collect())?;
            runtime.block_on(registrar.wait_registered(Quorum::All, PATIENCE))?;
            brokers.push(registrar);
        }
        Ok(brokers)
    }
}

//! `start`: from the start of the process to its first answer.

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::process;
use crate::server::{Server, Servers};
use crate::table::{Output, median};

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    servers: Servers,
    /// Starts of each server
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    results: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    server: &'static str,
    median_ms: f64,
    slowest_ms: f64,
    rounds_ms: Vec<f64>,
}

impl Options {
    pub(crate) fn run(&self) -> Result<()> {
        if self.rounds == 0 {
            bail!("it takes at least 1 round");
        }
        let mut results = Vec::new();
        for kind in self.servers.some_kinds()? {
            let mut rounds_ms = Vec::new();
            for _ in 0..self.rounds {
                let server = Server::start(&kind, &self.servers)?;
                rounds_ms.push(server.first_answer.as_secs_f64() * 1e3);
            }
            results.push(Entry {
                server: kind.name(),
                median_ms: median(rounds_ms.iter().copied()),
                slowest_ms: rounds_ms.iter().copied().fold(0.0, f64::max),
                rounds_ms,
            });
        }
        let report = Report { machine: process::machine(), results };
        let row = |entry: &Entry| {
            vec![
                entry.server.to_owned(),
                format!("{:.1}", entry.median_ms),
                format!("{:.1}", entry.slowest_ms),
            ]
        };
        let rows: Vec<_> = report.results.iter().map(row).collect();
        self.output.print(&["server", "first answer ms", "slowest ms"], &rows, &report)
    }
}

//! The one binary: parse arguments and configuration, wire, run.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use waypost_rocketmq_nameserver::config::{Configuration, Inputs};
use waypost_rocketmq_nameserver::{NameServer, StartOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "waypost", version, about = "The routing center for message queues")]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a RocketMQ NameServer.
    Serve {
        /// Configuration file, TOML or the original's .properties.
        #[arg(short = 'c', long)]
        config_file: Option<PathBuf>,
        /// Sets one key.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    let Verb::Serve { config_file, set } = Arguments::parse().command;
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let flags = set
        .iter()
        .map(|pair| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())))
        .collect::<Option<Vec<_>>>()
        .context("--set takes KEY=VALUE")?;
    let configuration =
        Configuration::load(Inputs { file: config_file, flags, environment: std::env::vars() })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(configuration))
}

async fn serve(configuration: Configuration) -> anyhow::Result<()> {
    let bind_address = configuration.settings().listen.bind_address;
    let on_stall = Box::new(|report: &waypost_net::watchdog::StallReport| {
        tracing::error!(%report, "no progress: the process aborts so that clients leave it");
        std::process::abort();
    });
    let server = NameServer::start(configuration, StartOptions { kv_from_backup: false, on_stall })?;
    let port = server.addresses().first().map_or(0, |address| address.port());
    let mut out = std::io::stdout();
    writeln!(out, "The Name Server boot success. serializeType=JSON, address {bind_address}:{port}")?;
    out.flush()?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        result = tokio::signal::ctrl_c() => result?,
    }
    server.shutdown().await;
    Ok(())
}

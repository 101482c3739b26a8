//! The command line: one program for each question.

mod client;
mod compare;
mod fault;
mod load;
mod memory;
mod play;
mod register;
mod start;
mod storm;

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use crate::floor::Floor;

/// Measures a RocketMQ name server beside a floor and beside the original.
#[derive(Debug, Parser)]
#[command(name = "waypost-bench", version)]
struct CommandLine {
    #[command(subcommand)]
    program: Program,
}

#[derive(Debug, Subcommand)]
enum Program {
    /// Answer every frame with canned bytes: the cost of the kernel alone
    Floor(FloorOptions),
    /// Load one server that is running already
    Load(load::Options),
    /// CPU per route query of floor, Waypost and Java, in interleaved rounds
    Compare(compare::Options),
    /// What a look at a known route and a choice of a queue cost a client, beside a look into a map
    Client(client::Options),
    /// CPU for registering all topics of a broker again
    Register(register::Options),
    /// Resident memory with brokers, idle connections and after every route was asked
    Memory(memory::Options),
    /// Latency of route queries while big brokers register every second
    Storm(storm::StormOptions),
    /// Latency of route queries while a big broker dies
    Death(storm::DeathOptions),
    /// What programs notice of servers, machines and agents that fail
    Fault(fault::Options),
    /// A broker or client that a scenario runs as a process of its own
    #[command(subcommand, hide = true)]
    Play(play::Options),
    /// Time from the start of the process to the first answer
    Start(start::Options),
}

#[derive(Args, Debug)]
struct FloorOptions {
    /// Port to listen on, on loopback
    #[arg(long, default_value_t = 19876)]
    port: u16,
    /// Bytes of each answer, with the length
    #[arg(long, value_name = "BYTES", default_value_t = 1_035)]
    answer_bytes: usize,
    /// Be told once of new bytes (EPOLLET) instead of as long as there are any
    #[arg(long)]
    edge: bool,
}

impl FloorOptions {
    fn run(&self) -> Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
            .with_context(|| format!("port {} cannot be taken", self.port))?;
        println!("floor on {}", listener.local_addr()?);
        Ok(Floor::new(listener, self.answer_bytes, self.edge)?.run()?)
    }
}

/// Runs the program that the command line names.
///
/// # Errors
/// A server that does not start or breaks the protocol, a machine that lacks something.
pub fn run() -> Result<()> {
    match CommandLine::parse().program {
        Program::Floor(options) => options.run(),
        Program::Load(options) => options.run(),
        Program::Compare(options) => options.run(),
        Program::Client(options) => options.run(),
        Program::Register(options) => options.run(),
        Program::Memory(options) => options.run(),
        Program::Storm(options) => options.run(),
        Program::Death(options) => options.run(),
        Program::Fault(options) => options.run(),
        Program::Play(options) => options.run(),
        Program::Start(options) => options.run(),
    }
}

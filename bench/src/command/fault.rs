//! `fault`: what programs notice of servers, machines and agents that fail, each with its bar.

mod agent_cost;
mod agent_death;
mod agent_route_change;
mod avoidance;
mod broker_death;
mod failover;
mod hung_start;
mod java_hung_server;
mod java_silent_machine;
mod loss;
mod memory;
mod outage;
mod replacement;
mod report;
mod restart;
pub(crate) mod stage;
mod topic_creation;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use waypost_testkit::peers::{Program, Version, tools_present};

pub(crate) use report::{Figure, Report};

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Name the scenarios and end
    #[arg(long)]
    list: bool,
    /// Write the figures to FILE, as JSON
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
    /// Exit with a failure if a bar is not reached
    #[arg(long, global = true)]
    gate: bool,
    #[command(subcommand)]
    scenario: Option<Scenario>,
}

/// One file each, beside this one.
#[derive(Debug, Subcommand)]
enum Scenario {
    /// CPU of an answer from the agent's cache beside the NameServer's own
    AgentCost(agent_cost::Options),
    /// Route and sends while an agent is killed with -9 and started again
    AgentDeath(agent_death::Options),
    /// How much later than directly a route change is seen through an agent
    AgentRouteChange(agent_route_change::Options),
    /// Choices with one of four brokers stopped and one slow
    Avoidance(avoidance::Options),
    /// Choices and the route after a broker was killed with -9
    BrokerDeath(broker_death::Options),
    /// Clients while the server that they use hangs and the one that hung goes on
    Failover(failover::Options),
    /// New clients with one server hung, one out of reach and one well
    HungStart(hung_start::Options),
    /// Java broker and producer while one of three name servers is stopped, without and with agents
    JavaHungServer(java_hung_server::Options),
    /// Java clients while a machine with a name server and a broker is silent, direct and through an agent
    JavaSilentMachine(java_silent_machine::Options),
    /// A broker whose path to one server loses packets
    Loss(loss::Options),
    /// Memory of a client that watches very many topics
    Memory(memory::Options),
    /// What clients know while all servers are down
    Outage(outage::Options),
    /// Choices while the list of servers grows and shrinks
    Replacement(replacement::Options),
    /// Servers that were restarted, and brokers that stood still
    Restart(restart::Options),
    /// Topics that a broker creates while one of its servers is hung
    TopicCreation(topic_creation::Options),
}

impl Options {
    pub(crate) fn run(&self) -> Result<()> {
        if self.list {
            return list();
        }
        let report = match &self.scenario {
            None => bail!("no scenario given: `waypost-bench fault --list` names them"),
            Some(Scenario::AgentCost(options)) => options.run(),
            Some(Scenario::AgentDeath(options)) => options.run(),
            Some(Scenario::AgentRouteChange(options)) => options.run(),
            Some(Scenario::Avoidance(options)) => options.run(),
            Some(Scenario::BrokerDeath(options)) => options.run(),
            Some(Scenario::Failover(options)) => options.run(),
            Some(Scenario::HungStart(options)) => options.run(),
            Some(Scenario::JavaHungServer(options)) => options.run(),
            Some(Scenario::JavaSilentMachine(options)) => options.run(),
            Some(Scenario::Loss(options)) => options.run(),
            Some(Scenario::Memory(options)) => options.run(),
            Some(Scenario::Outage(options)) => options.run(),
            Some(Scenario::Replacement(options)) => options.run(),
            Some(Scenario::Restart(options)) => options.run(),
            Some(Scenario::TopicCreation(options)) => options.run(),
        }?;
        // What it lacked was said already.
        let Some(report) = report else { return Ok(()) };
        report.print();
        if let Some(path) = &self.json {
            std::fs::write(path, serde_json::to_string_pretty(&report)? + "\n")
                .with_context(|| format!("{} cannot be written", path.display()))?;
        }
        if self.gate && !report.reached() {
            bail!("{}: not all bars are reached", report.scenario);
        }
        Ok(())
    }
}

fn list() -> Result<()> {
    let command = Scenario::augment_subcommands(clap::Command::new("fault"));
    for scenario in command.get_subcommands() {
        let about = scenario.get_about().map(ToString::to_string).unwrap_or_default();
        println!("{:<22} {about}", scenario.get_name());
    }
    Ok(())
}

/// Which programs take part.
#[derive(Args, Clone, Debug)]
pub(crate) struct Programs {
    /// The Waypost binary [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    waypost: Option<PathBuf>,
    /// Which name servers to run
    #[arg(long, value_enum, default_value_t)]
    servers: ServerKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ServerKind {
    #[default]
    Waypost,
    /// The Java NameServer 5.5.0
    #[value(name = "java-5")]
    Java5,
    /// The Java NameServer 4.9.7
    #[value(name = "java-4")]
    Java4,
}

impl Programs {
    /// The Waypost binary.
    pub(crate) fn binary(&self) -> Result<PathBuf> {
        let beside = || Ok::<_, anyhow::Error>(std::env::current_exe()?.with_file_name("waypost"));
        let path = self.waypost.clone().map_or_else(beside, Ok)?;
        // The programs change their working folder.
        path.canonicalize()
            .with_context(|| format!("no Waypost binary at {}: give --waypost", path.display()))
    }

    /// Whether the machine has what these name servers need; says so if not.
    pub(crate) fn ready(&self, scenario: &str) -> bool {
        self.servers == ServerKind::Waypost || java_present(scenario)
    }

    /// What runs as name server.
    pub(crate) fn server(&self) -> Result<Program> {
        Ok(match self.servers {
            ServerKind::Waypost => Program::Waypost(self.binary()?),
            ServerKind::Java5 => Program::Java(Version::V5),
            ServerKind::Java4 => Program::Java(Version::V4),
        })
    }
}

/// With or without agents, or first without and then with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agents {
    Without,
    With,
    #[default]
    Both,
}

impl Agents {
    /// The runs to make.
    pub(crate) fn runs(self) -> &'static [bool] {
        match self {
            Self::Without => &[false],
            Self::With => &[true],
            Self::Both => &[false, true],
        }
    }
}

/// Whether the machine has what Java peers need; says so if not.
pub(crate) fn java_present(scenario: &str) -> bool {
    tools_present(scenario, &["java", "javac", "mvn"])
}

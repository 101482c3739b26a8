//! Commands that go on: demo, agent, watch, register, bench.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use waypost_net::host_names::HostNames;
use waypost_net::network::NetworkList;

use super::{ListArguments, OutputArguments, TlsArguments, parse_count, parse_span};
use crate::live_table::AdminUrl;

/// How `demo` runs.
#[derive(Clone, Copy, Debug, Args)]
pub struct DemoArguments {
    /// The same in twelve seconds, for tests.
    #[arg(long)]
    pub fast: bool,
}

/// `waypost agent`, or what is asked of a running one.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentArguments {
    /// A question to a running agent.
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
    /// Name servers, separated by ";"; the agent asks and informs all of them. Without it: NAMESRV_ADDR, or the
    /// address server of rocketmq.namesrv.domain.
    #[arg(
        short = 'n',
        long = "namesrv",
        alias = "namesrvAddr",
        value_name = "LIST",
        help_heading = "Servers"
    )]
    pub servers: Option<String>,
    /// Read the list from this file, again whenever it changes and on SIGHUP.
    #[arg(long, value_name = "FILE", conflicts_with = "servers", help_heading = "Servers")]
    pub servers_file: Option<PathBuf>,
    /// How the connections to name servers are protected.
    #[command(flatten)]
    pub tls: TlsArguments,
    /// Where programs of this machine connect to; can be repeated.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9876")]
    pub listen: Vec<SocketAddr>,
    /// Networks that may ask for routes, lists and values: "any", "loopback", "private", "none", addresses such as
    /// 10.0.0.0/8, separated by ",".
    #[arg(
        long,
        value_name = "NETWORKS",
        default_value = "any",
        env = "WAYPOST_AGENT_ACCESS_READ",
        help_heading = "Access"
    )]
    pub access_read: NetworkList,
    /// Networks that brokers may register from.
    #[arg(
        long,
        value_name = "NETWORKS",
        default_value = "any",
        env = "WAYPOST_AGENT_ACCESS_BROKER",
        help_heading = "Access"
    )]
    pub access_broker: NetworkList,
    /// Networks that operators may write from: KV values, permissions, topic deletion. The name servers see the
    /// agent's address, not theirs.
    #[arg(
        long,
        value_name = "NETWORKS",
        default_value = "loopback",
        env = "WAYPOST_AGENT_ACCESS_ADMIN",
        help_heading = "Access"
    )]
    pub access_admin: NetworkList,
    /// Keep routes and what brokers said in this folder, so that the agent's own end costs nothing.
    #[arg(long, value_name = "FOLDER", env = "WAYPOST_AGENT_STATE")]
    pub state: Option<PathBuf>,
    /// Where metrics and status are served over HTTP; 127.0.0.1:9881, if it is free, unless set.
    #[arg(long, value_name = "ADDRESS")]
    pub admin_listen: Option<SocketAddr>,
    /// Names by which the status may be asked for over HTTP, besides IP addresses and localhost, separated by ",".
    /// Metrics and health answer to any name.
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "",
        hide_default_value = true,
        env = "WAYPOST_AGENT_ADMIN_HOSTS"
    )]
    pub admin_hosts: HostNames,
}

/// Questions to a running agent.
#[derive(Clone, Debug, Subcommand)]
pub enum AgentCommand {
    /// Show how an agent does: name servers, routes, brokers and what each server accepted of them
    Status {
        /// The agent's HTTP side.
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9881")]
        admin: AdminUrl,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
}

/// What `watch` follows.
#[derive(Clone, Debug, Args)]
pub struct WatchArguments {
    /// The topic.
    pub topic: String,
    /// End after this time, such as 30s or 10m; without it ctrl-c ends it.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_span)]
    pub limit: Option<Duration>,
    /// How often the servers are asked. Clients ask every 30 s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_span)]
    pub every: Duration,
    /// Whom to ask.
    #[command(flatten)]
    pub list: ListArguments,
    /// How the connections are protected.
    #[command(flatten)]
    pub tls: TlsArguments,
    /// In which form; JSON is one object a line.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// What `register` simulates.
#[derive(Clone, Debug, Args)]
pub struct RegisterArguments {
    /// The brokers and their faults, in TOML; docs/drills.md explains it.
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// Only check the file.
    #[arg(long)]
    pub check: bool,
    /// End after this time, such as 30s or 10m; without it ctrl-c ends it.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_span)]
    pub limit: Option<Duration>,
    /// Where the brokers register.
    #[command(flatten)]
    pub list: ListArguments,
    /// How the connections are protected.
    #[command(flatten)]
    pub tls: TlsArguments,
    /// In which form; JSON is one object a line.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Which load.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Ask for routes as fast as they are answered, on a few connections
    Lookup(LookupArguments),
    /// Register a broker with many topics again and again; it leaves at the end
    Register(RegistrationArguments),
}

/// How `bench lookup` asks.
#[derive(Clone, Debug, Args)]
pub struct LookupArguments {
    /// A topic to ask for, once or several times; without it all that the server has.
    #[arg(long = "topic", value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// How long is measured, such as 5s.
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = parse_span)]
    pub duration: Duration,
    /// Connections at once.
    #[arg(long, value_name = "NUMBER", default_value = "8", value_parser = parse_count)]
    pub connections: usize,
    /// Queries in flight on each connection.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = parse_count)]
    pub depth: usize,
    /// Whom to load, one after the other.
    #[command(flatten)]
    pub list: ListArguments,
    /// In which form.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// How `bench register` registers.
#[derive(Clone, Debug, Args)]
pub struct RegistrationArguments {
    /// Topics of the broker.
    #[arg(long, value_name = "NUMBER", default_value = "1000", value_parser = parse_count)]
    pub topics: usize,
    /// Registrations of each kind.
    #[arg(long, value_name = "NUMBER", default_value = "100", value_parser = parse_count)]
    pub rounds: usize,
    /// Whom to load, one after the other.
    #[command(flatten)]
    pub list: ListArguments,
    /// In which form.
    #[command(flatten)]
    pub output: OutputArguments,
}

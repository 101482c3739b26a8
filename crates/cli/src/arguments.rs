//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use waypost_rocketmq_remoting::source::ADDRESS_VARIABLE;

use crate::live_table::AdminUrl;
use crate::servers::{Servers, ServersError};

mod ongoing;

pub use self::ongoing::{
    AgentArguments, AgentCommand, BenchCommand, DemoArguments, LookupArguments, RegisterArguments,
    RegistrationArguments, WatchArguments,
};

/// Whom commands ask when nobody says.
const DEFAULT_LIST: &str = "127.0.0.1:9876";

/// What a user sees at the end of `waypost -h`.
const EXAMPLES: &str = "\
Start here:
  waypost demo                        what it is about, in a minute
  waypost serve                       a NameServer on port 9876
  waypost route TopicTest             where a topic lives
  waypost brokers -n \"a:9876;b:9876\"  who is registered, on any RocketMQ NameServer

Exit codes of commands: 0 done; 1 the server said no or does not have it; 2 wrong usage;
3 no server could be reached; 4 done on some servers of the list, not on others.
Exit codes of serve: 0 stopped by a signal; 1 could not start; 2 wrong usage or configuration.";

/// The routing center for message queues: a RocketMQ NameServer, and commands for any of them.
#[derive(Clone, Debug, Parser)]
#[command(name = "waypost", version, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Watch a NameServer, brokers that come, go and fail, and a client, for a minute
    Demo(DemoArguments),
    /// Run a NameServer, on port 9876 unless told otherwise
    Serve(ServeArguments),
    /// Run an agent: a name server on this machine for programs that cannot be changed
    Agent(AgentArguments),
    /// Commands that ask NameServers.
    #[command(flatten)]
    Remote(RemoteCommand),
    /// Follow a topic's route: each change, and each outage of a server, as it happens
    Watch(WatchArguments),
    /// Run simulated brokers that a file describes, with faults at set times: for drills
    Register(RegisterArguments),
    /// Put load on name servers and tell how fast they answer
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Look at the configuration of this machine's server, or at that of running ones
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell, to be sourced by it
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Print a man page (`waypost man kv put | man -l -`)
    Man {
        /// A command, word by word; none for waypost itself.
        command: Vec<String>,
    },
}

/// Commands that ask NameServers.
#[derive(Clone, Debug, Subcommand)]
pub enum RemoteCommand {
    /// Show where a topic lives: brokers, queues, permissions, addresses
    Route {
        /// The topic.
        topic: String,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// Whom else to ask.
        #[command(flatten)]
        admin: AdminArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List topics
    Topics {
        /// Only those of this cluster.
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List registered brokers
    Brokers {
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// Whom else to ask.
        #[command(flatten)]
        admin: AdminArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List clusters and their brokers
    Clusters {
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Read and change the key-value configuration
    #[command(subcommand)]
    Kv(KvCommand),
    /// Take the write permission from all topics of a broker, on every server of the list
    WipeWrite {
        /// The broker's name.
        broker: String,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Give the write permission back to all topics of a broker, on every server of the list
    AddWrite {
        /// The broker's name.
        broker: String,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Delete the routes of a topic, on every server of the list
    ///
    /// A broker that still has the topic brings it back with its next registration: delete it there first.
    DeleteTopic {
        /// The topic.
        topic: String,
        /// Only in this cluster.
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// Whom else to ask.
        #[command(flatten)]
        admin: AdminArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Test that servers serve routes; for container probes and scripts
    Check {
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Find out why a cluster cannot be seen or reached
    ///
    /// Asks every server of the list, connects to every broker address that they advertise, and says what is
    /// wrong.
    Doctor {
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
}

/// Commands of the key-value configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum KvCommand {
    /// Print the value of a key
    Get {
        /// The namespace.
        namespace: String,
        /// The key.
        key: String,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Set a key, on every server of the list
    Put {
        /// The namespace.
        namespace: String,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Delete a key, on every server of the list
    Delete {
        /// The namespace.
        namespace: String,
        /// The key.
        key: String,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List the keys of a namespace
    List {
        /// The namespace.
        #[arg(default_value = crate::call::DEFAULT_NAMESPACE)]
        namespace: String,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
}

/// Commands of the configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration that `serve` would run with, without running it
    Check {
        /// Where the configuration comes from.
        #[command(flatten)]
        configuration: ConfigurationArguments,
    },
    /// Print every effective value with its source
    Show {
        /// Where the configuration comes from.
        #[command(flatten)]
        configuration: ConfigurationArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Print the reference of all settings, in Markdown
    Reference,
    /// Print a configuration file with all settings, in TOML
    Example,
    /// Commands for running servers.
    #[command(flatten)]
    Remote(RemoteConfigCommand),
}

/// Commands for the configuration of running servers.
#[derive(Clone, Debug, Subcommand)]
pub enum RemoteConfigCommand {
    /// Print the settings of a running server
    Get {
        /// Only this one.
        key: Option<String>,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Change settings of a running server
    Set {
        /// What to set: KEY=VALUE, once or several times; all are applied or none.
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = parse_pair)]
        pairs: Vec<(String, String)>,
        /// Set it on every server of the list; without this the list must have exactly one.
        #[arg(long)]
        all: bool,
        /// Whom to ask.
        #[command(flatten)]
        servers: ServerArguments,
        /// In which form.
        #[command(flatten)]
        output: OutputArguments,
    },
}

/// How `serve` runs.
#[derive(Clone, Debug, Args)]
pub struct ServeArguments {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub configuration: ConfigurationArguments,
    /// Print every setting as key=value and exit.
    #[arg(short = 'p', long, alias = "printConfigItem")]
    pub print_config: bool,
    /// Accepted for the sake of scripts of the original, and ignored: a NameServer knows no others.
    #[arg(short = 'n', long, alias = "namesrvAddr", value_name = "LIST", hide = true)]
    pub namesrv_addr: Option<String>,
    /// Start with the backup of the key-value configuration, when its file is damaged.
    #[arg(long)]
    pub kv_from_backup: bool,
}

/// Where the configuration comes from.
#[derive(Clone, Debug, Default, Args)]
pub struct ConfigurationArguments {
    /// The configuration: TOML, or a .properties file of the original.
    #[arg(short = 'c', long, aliases = ["configFile", "config-file"], value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Listen on this port; the same as --set listenPort=PORT.
    #[arg(long, value_name = "PORT")]
    pub listen_port: Option<u16>,
    /// Set any key; it ranks above the file and the environment.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub settings: Vec<(String, String)>,
}

impl ConfigurationArguments {
    /// The flags as pairs of key and value.
    #[must_use]
    pub fn pairs(&self) -> Vec<(String, String)> {
        // With its dashes: errors and `config show` name the flag that was given.
        let port = self.listen_port.map(|port| ("--listen-port".to_owned(), port.to_string()));
        self.settings.iter().cloned().chain(port).collect()
    }
}

/// Whom a command asks.
#[derive(Clone, Debug, Args)]
pub struct ServerArguments {
    /// Which.
    #[command(flatten)]
    pub list: ListArguments,
    /// How long the command may wait in all, such as 500ms or 3s.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_span, help_heading = "Servers")]
    pub timeout: Duration,
    /// How the connections are protected.
    #[command(flatten)]
    pub tls: TlsArguments,
}

/// A list of NameServers.
#[derive(Clone, Debug, Args)]
pub struct ListArguments {
    /// NameServers, separated by ";"; a missing port is 9876. An empty list is as good as none.
    #[arg(short = 'n', long = "namesrv", alias = "namesrvAddr", value_name = "LIST", env = ADDRESS_VARIABLE)]
    #[arg(default_value = DEFAULT_LIST, value_parser = parse_servers, help_heading = "Servers")]
    pub servers: Servers,
}

/// How connections to NameServers are protected.
#[derive(Clone, Debug, Args)]
pub struct TlsArguments {
    /// Encrypt the connections; needs --tls-ca or --tls-insecure.
    #[arg(long, help_heading = "Servers")]
    pub tls: bool,
    /// Take a server for the right one if these authorities (a PEM file) say so.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls",
        conflicts_with = "tls_insecure",
        help_heading = "Servers"
    )]
    pub tls_ca: Option<PathBuf>,
    /// Encrypt, but take anybody for the server.
    #[arg(long, requires = "tls", help_heading = "Servers")]
    pub tls_insecure: bool,
}

/// Where the admin side of a Waypost is.
#[derive(Clone, Debug, Default, Args)]
pub struct AdminArguments {
    /// Also ask the admin side of a Waypost (http://HOST:9880), which knows more; a server on this machine is
    /// asked anyway.
    #[arg(long, value_name = "URL", help_heading = "Servers")]
    pub admin: Option<AdminUrl>,
}

/// In which form data are printed.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct OutputArguments {
    /// `table` for people, `json` for programs.
    #[arg(short = 'o', long, value_name = "FORM", default_value = "table")]
    pub output: Output,
}

/// A form of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Output {
    /// Tables for people.
    #[default]
    Table,
    /// JSON for programs.
    Json,
}

/// A list that is given but empty, as a script has it whose variable is not set, gives way to the next source.
fn parse_servers(text: &str) -> Result<Servers, ServersError> {
    let variable = std::env::var(ADDRESS_VARIABLE).unwrap_or_default();
    Servers::first_set([text, &variable, DEFAULT_LIST])
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

/// A number from 1 to 100,000: more of anything here would measure the generator.
fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=100_000) => Ok(count),
        _ => Err("write a number from 1 to 100000".to_owned()),
    }
}

/// A span of time: `500ms`, `3s`, `2m`; a bare number is seconds.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let wrong = || "write a span of time between 1ms and 1h, such as 500ms or 3s".to_owned();
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        _ => return Err(wrong()),
    };
    match number.checked_mul(unit) {
        Some(span @ 1..=3_600_000) => Ok(Duration::from_millis(span)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(words.split(' '))
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_options_of_the_original_are_taken() {
        for words in [
            "waypost serve -c f.properties -n a:9876",
            "waypost serve --configFile f.properties --namesrvAddr a:9876",
            "waypost serve -p",
            "waypost serve --printConfigItem",
        ] {
            assert!(parse(words).is_ok(), "{words}");
        }
    }

    #[test]
    fn a_port_is_a_flag_like_any_other() {
        let Command::Serve(serve) =
            parse("waypost serve --set adminListen=off --listen-port 0").unwrap().command
        else {
            panic!("not serve")
        };
        let pairs = serve.configuration.pairs();
        let expected = [("adminListen", "off"), ("--listen-port", "0")];
        assert_eq!(pairs, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn spans_are_read_and_bounded() {
        for (text, milliseconds) in [("500ms", 500), ("3s", 3_000), ("2", 2_000), ("2m", 120_000)] {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "0", "-1s", "1d", "61m", "99999999999999999999s", "1.5s"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wrong_usage_is_refused_by_the_parser() {
        for words in [
            "waypost route",
            "waypost route T --tls-insecure",
            "waypost route T --output xml",
            "waypost route T -n a:port",
            "waypost config set",
            "waypost config set key",
            "waypost serve --set key",
            "waypost fly",
        ] {
            let error = parse(words).expect_err(words);
            assert_eq!(error.exit_code(), 2, "{words}");
        }
    }
}

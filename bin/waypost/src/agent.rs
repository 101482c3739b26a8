//! `waypost agent`: the agent, its HTTP side, its list of name servers, and how they end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use waypost_admin::Site;
use waypost_cli::arguments::{AgentArguments, AgentCommand};
use waypost_cli::exit::Exit;
use waypost_cli::{agent_status, run};
use waypost_net::address::AddressList;
use waypost_net::tasks::Tasks;
use waypost_net::watchdog::{Watchdog, WatchdogOptions};
use waypost_rocketmq_access::access::AccessPolicy;
use waypost_rocketmq_agent::agent::{Agent, Options, StartError};
use waypost_rocketmq_nameserver::config::{LogFormat, LogLevel, Logs};
use waypost_rocketmq_remoting::source::{Source, SourceError};

use crate::serve::abort;
use crate::signals::{Signals, Wish};
use crate::{ask, logs, options, output, report, systemd};

/// Where the HTTP side is unless set.
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9881);

/// How often the file of servers is looked at.
const FILE_PERIOD: Duration = Duration::from_secs(2);

/// How long readers of the HTTP side may take at the end.
const REST_LIMIT: Duration = Duration::from_millis(500);

pub(crate) fn agent(arguments: AgentArguments) -> ExitCode {
    if let Some(AgentCommand::Status { admin, output }) = &arguments.command {
        return report(ask(agent_status::status(admin, *output)));
    }
    let dialer = match run::dialer(&arguments.tls) {
        Ok(dialer) => dialer,
        Err(wrong) => return report(Ok(wrong)),
    };
    // Before anything is read: entries of the list that are left out are told in the log.
    if let Err(error) = logs::start(&Logs { format: LogFormat::Text, level: LogLevel::Info }) {
        output::error(&format!("no thread for the logs: {error:#}"));
        return ExitCode::from(Exit::No.code());
    }
    let watchdog = match Watchdog::start(WatchdogOptions::default(), abort) {
        Ok(watchdog) => watchdog,
        Err(error) => {
            output::error(&format!(
                "no thread for the watchdog: {error}; raise the limit of processes (ulimit -u)"
            ));
            return ExitCode::from(Exit::No.code());
        }
    };
    let source = match source(&arguments) {
        Ok(source) => source,
        Err(error) => {
            logs::flush();
            output::error(&format!("{error:#}"));
            return ExitCode::from(Exit::Usage.code());
        }
    };
    let access = AccessPolicy {
        read: arguments.access_read.clone(),
        broker: arguments.access_broker.clone(),
        admin: arguments.access_admin.clone(),
        ..AccessPolicy::of_agent()
    };
    let options = Options {
        listen: arguments.listen.clone(),
        servers: source,
        dialer,
        access,
        state: arguments.state.clone(),
        watchdog,
    };
    let ended = start(options, &arguments);
    logs::flush();
    match ended {
        Ok(code) => code,
        Err(error) => {
            output::error(&format!("{error:#}"));
            ExitCode::from(Exit::No.code())
        }
    }
}

fn source(arguments: &AgentArguments) -> anyhow::Result<Source> {
    match &arguments.servers_file {
        Some(file) => Ok(Source::List(read_list(file)?)),
        None => Source::from_environment(arguments.servers.as_deref()).map_err(|error| match error {
            SourceError::NoAddress { setting: None, .. } => anyhow::anyhow!("-n: {error}"),
            error => error.into(),
        }),
    }
}

/// The list in a file; `#` begins a remark.
fn read_list(file: &Path) -> anyhow::Result<AddressList> {
    let content = std::fs::read(file)
        .with_context(|| format!("the list of name servers in {} cannot be read", file.display()))?;
    // Remarks may be in any encoding, and editors put a byte order mark in front.
    let text = String::from_utf8_lossy(&content);
    match Source::parse_file(text.trim_start_matches('\u{feff}'))
        .with_context(|| format!("the list in {}", file.display()))?
    {
        Source::List(list) => Ok(list),
        Source::AddressServer(server) => anyhow::bail!("the list in {} is {server}", file.display()),
    }
}

fn start(options: Options, arguments: &AgentArguments) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("waypost")
        .enable_all()
        .build()
        .context("no threads; raise the limit of processes (ulimit -u)")?;
    let ended = runtime.block_on(serve(options, arguments));
    runtime.shutdown_background();
    ended
}

async fn serve(options: Options, arguments: &AgentArguments) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::of_server().context("signals cannot be caught")?;
    let admin = bind_admin(arguments.admin_listen)?.map(|site| site.named(arguments.admin_hosts.clone()));
    if options.state.is_none() {
        tracing::warn!(
            "no --state folder: after the agent's own end brokers are off the route until they register"
        );
    }
    let watchdog = options.watchdog.clone();
    let agent = Arc::new(Agent::start(options).map_err(with_next_step)?);
    let tasks = Tasks::new();
    let admin = admin.map(|site| waypost_admin::agent::serve(site, Arc::clone(&agent), &tasks));
    let listening: Vec<String> = agent.addresses().iter().map(ToString::to_string).collect();
    let mut text = format!("agent ready: programs of this machine use namesrvAddr={}\n", listening.join(";"));
    match admin {
        Some(address) => text.push_str(&format!("admin: http://{address}/ (metrics, status)\n")),
        None => text.push_str("admin: none; choose an address with --admin-listen\n"),
    }
    output::text(&text);
    tracing::info!(listening = listening.join(", "), version = env!("CARGO_PKG_VERSION"), "agent started");
    systemd::ready(&watchdog).context("no thread for systemd's watchdog")?;

    let signal = follow(&agent, arguments.servers_file.clone(), &mut signals).await;
    tracing::info!(signal = signal.name(), "stopping; a second signal ends the process at once");
    systemd::stopping();
    agent.shutdown().await;
    tasks.cancel();
    tasks.drain(REST_LIMIT).await;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Reads the list of servers again when its file changed or SIGHUP came, until a signal asks to stop.
async fn follow(agent: &Agent, file: Option<PathBuf>, signals: &mut Signals) -> crate::signals::Stopping {
    let changed =
        |file: &Option<PathBuf>| file.as_ref().and_then(|file| std::fs::metadata(file).ok()?.modified().ok());
    let mut seen = changed(&file);
    let mut ticks = tokio::time::interval(FILE_PERIOD);
    loop {
        tokio::select! {
            wish = signals.next() => match wish {
                Wish::Stop(signal) => return signal,
                Wish::Reload => {}
            },
            _ = ticks.tick() => {
                let now = changed(&file);
                if now == seen {
                    continue;
                }
                seen = now;
            }
        }
        let Some(file) = &file else {
            tracing::info!(
                "SIGHUP changes nothing: the list of name servers is not from a file (--servers-file)"
            );
            continue;
        };
        match read_list(file) {
            Ok(list) => {
                tracing::info!(servers = %list, file = %file.display(), "the list of name servers was read");
                agent.replace_servers(list);
            }
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "the known list of name servers stays")
            }
        }
    }
}

/// What an error of the start does not say: the option, which the library does not know.
fn with_next_step(error: StartError) -> anyhow::Error {
    match error {
        StartError::State(_) => {
            let option = options::given("--state", "WAYPOST_AGENT_STATE");
            anyhow::anyhow!("{error}; mend it, or give another folder with {option}")
        }
        error => error.into(),
    }
}

/// A taken port stops the start only if somebody chose it: several agents on one machine are possible.
fn bind_admin(chosen: Option<SocketAddr>) -> anyhow::Result<Option<Site>> {
    match (waypost_admin::bind(chosen.unwrap_or(DEFAULT_ADMIN), "--admin-listen"), chosen) {
        (Ok(site), _) => Ok(Some(site)),
        (Err(error), Some(_)) => Err(error.into()),
        (Err(error), None) => {
            tracing::warn!(%error, "no HTTP side: the agent runs without metrics and status");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_one_server_a_line_and_remarks() {
        let folder = std::env::temp_dir().join(format!("waypost-agent-list-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("servers");
        std::fs::write(&file, "# production\na:9876; b:9876\n\nc:9876 # new\n").expect("a file");
        let list = read_list(&file).expect("a list");
        assert_eq!(list.to_string(), "a:9876;b:9876;c:9876");
        std::fs::write(&file, b"\xef\xbb\xbfa:9876 # \xb6\xcb\xbf\xda\n").expect("a file");
        assert_eq!(read_list(&file).expect("a list").to_string(), "a:9876");
        std::fs::write(&file, "# nobody\n").expect("a file");
        let error = format!("{:#}", read_list(&file).expect_err("no list"));
        assert!(error.contains("servers"), "{error}");
        std::fs::remove_dir_all(&folder).expect("it is removed");
    }
}

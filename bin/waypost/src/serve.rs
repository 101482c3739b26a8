//! `waypost serve`: the server, its admin side, and how they end.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use waypost_admin::{Admin, Site};
use waypost_cli::arguments::ServeArguments;
use waypost_cli::exit::Exit;
use waypost_cli::servers::DEFAULT_PORT;
use waypost_net::tasks::Tasks;
use waypost_net::watchdog::{StallReport, beating};
use waypost_rocketmq_nameserver::config::{Configuration, Source};
use waypost_rocketmq_nameserver::{NameServer, StartOptions};

use crate::signals::Signals;
use crate::{configuration, logs, output, systemd};

/// How long readers of the admin side may take to end.
const REST_LIMIT: Duration = Duration::from_millis(500);

pub(crate) fn serve(arguments: ServeArguments) -> ExitCode {
    let configuration = match configuration::load(&arguments.configuration) {
        Ok(configuration) => configuration,
        Err(code) => return code,
    };
    if arguments.print_config {
        return output::text(&configuration.properties_text());
    }
    let ended = start(configuration, &arguments);
    logs::flush();
    match ended {
        Ok(code) => code,
        Err(error) => {
            output::error(&format!("{error:#}"));
            ExitCode::from(Exit::No.code())
        }
    }
}

fn start(configuration: Configuration, arguments: &ServeArguments) -> anyhow::Result<ExitCode> {
    logs::start(&configuration.settings().logs).context("no thread for the logs")?;
    for warning in configuration.warnings() {
        tracing::warn!("{warning}");
    }
    if arguments.namesrv_addr.is_some() {
        tracing::warn!("-n has no effect: a NameServer knows no others");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("waypost")
        .enable_all()
        .build()
        .context("no threads; raise the limit of processes (ulimit -u)")?;
    let ended = runtime.block_on(run(configuration, arguments));
    // Whatever still reads a table is not waited for.
    runtime.shutdown_background();
    ended
}

async fn run(configuration: Configuration, arguments: &ServeArguments) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::of_server().context("signals cannot be caught")?;
    let admin_site = bind_admin(&configuration)?;
    let listen = &configuration.settings().listen;
    let (bind_address, wanted_admin) = (listen.bind_address, listen.admin);
    let options = StartOptions { kv_from_backup: arguments.kv_from_backup, on_stall: Box::new(abort) };
    let server = NameServer::start(configuration, options)?;
    let admin_tasks = Tasks::new();
    let admin = admin_site.map(|site| Admin::start(site, server.view(), server.addresses(), &admin_tasks));
    let local = local_address(server.addresses());
    // The first line is the original's, which scripts wait for (decision 16).
    let mut text = format!(
        "The Name Server boot success. serializeType=JSON, address {bind_address}:{}\n",
        local.port()
    );
    describe(&mut text, &server, admin.as_ref(), wanted_admin);
    let _ = writeln!(
        text,
        "next:   start brokers with namesrvAddr={local}, then `{} brokers{}`",
        program(),
        reach(local)
    );
    output::text(&text);
    report_start(&server);
    systemd::ready(server.watchdog()).context("no thread for systemd's watchdog")?;

    let signal = beating(server.watchdog().watch("main thread", 0), signals.stopping()).await;
    tracing::info!(signal = signal.name(), "stopping; a second signal ends the process at once");
    systemd::stopping();
    if let Some(admin) = &admin {
        admin.note_stopping();
    }
    server.shutdown().await;
    admin_tasks.cancel();
    admin_tasks.drain(REST_LIMIT).await;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// A taken port of the admin side stops the start only if somebody chose it: two servers on one machine with
/// their defaults are common, and routes matter more.
fn bind_admin(configuration: &Configuration) -> anyhow::Result<Option<Site>> {
    let Some(address) = configuration.settings().listen.admin else { return Ok(None) };
    match waypost_admin::bind(address, configuration.option("adminListen")) {
        Ok(site) => Ok(Some(site.named(configuration.settings().listen.admin_hosts.clone()))),
        Err(error) => {
            if configuration.source("adminListen") != Some(&Source::Default) {
                return Err(error.into());
            }
            tracing::warn!(%error, "no admin side: the server runs without metrics and health");
            Ok(None)
        }
    }
}

pub(crate) fn abort(report: &StallReport) {
    tracing::error!(%report, "no progress: the process aborts, so that clients leave it");
    logs::flush();
    std::process::abort();
}

fn describe(text: &mut String, server: &NameServer, admin: Option<&Admin>, wanted: Option<SocketAddr>) {
    let name = |address: &SocketAddr| match address.ip() {
        ip if ip.is_ipv6() && ip.is_unspecified() => format!("port {} of every address", address.port()),
        _ => address.to_string(),
    };
    let addresses: Vec<String> = server.addresses().iter().map(name).collect();
    let _ = writeln!(text, "routes: {}", addresses.join(", "));
    let _ = match (admin, wanted) {
        (Some(admin), _) => {
            writeln!(text, "admin:  http://{}/ (metrics, health, live table)", admin.address())
        }
        (None, Some(taken)) => {
            writeln!(
                text,
                "admin:  none, {taken} is not to be had; choose another with --set adminListen=HOST:PORT"
            )
        }
        (None, None) => writeln!(text, "admin:  off (adminListen)"),
    };
}

fn report_start(server: &NameServer) {
    let addresses: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
    tracing::info!(listening = addresses.join(", "), version = env!("CARGO_PKG_VERSION"), "started");
    let limit = server.file_limit();
    if !limit.is_enough() {
        tracing::warn!("{limit}");
    }
    let kv = server.kv_report();
    // A start writes no file, so a missing one was missing before.
    if kv.entries == 0 && matches!(kv.path.try_exists(), Ok(false)) {
        tracing::info!(file = %kv.path.display(), "no KV file yet: starts empty, the first change creates it");
    } else {
        tracing::info!(file = %kv.path.display(), entries = kv.entries, "KV configuration loaded");
    }
    for warning in &kv.warnings {
        tracing::warn!("{warning}");
    }
    for dropped in &kv.dropped {
        tracing::warn!(entry = ?dropped, "entry of the KV file was not taken over");
    }
}

/// How this program was called, so that a command that is told can be typed as it stands.
fn program() -> String {
    std::env::args().next().filter(|name| name.contains('/')).unwrap_or_else(|| "waypost".to_owned())
}

/// The options that lead a command to the server, if it needs any.
fn reach(local: SocketAddr) -> String {
    if local == SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)) {
        return String::new();
    }
    format!(" -n {local}")
}

/// The address under which this machine reaches the server.
fn local_address(addresses: &[SocketAddr]) -> SocketAddr {
    let first = addresses.first().copied().unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let ip = match first.ip().to_canonical() {
        // `::` takes IPv4 as well.
        ip if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, first.port())
}

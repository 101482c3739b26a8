//! `waypost demo`: a name server in this process, and the show that is played at it.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Context as _;
use waypost_cli::arguments::{DemoArguments, Output};
use waypost_cli::demo::{Pace, play};
use waypost_cli::exit::Exit;
use waypost_cli::run::Report;
use waypost_cli::servers::DEFAULT_PORT;
use waypost_net::address::HostPort;
use waypost_rocketmq_nameserver::config::{Configuration, Inputs};
use waypost_rocketmq_nameserver::{NameServer, StartOptions};

use crate::ongoing;
use crate::serve::abort;

pub(crate) fn demo(arguments: DemoArguments) -> ExitCode {
    let pace = if arguments.fast { Pace::FAST } else { Pace::NORMAL };
    ongoing::go_on(Output::Table, async |voice, stop| {
        // The usual port, so that commands find it without -n, unless a name server is there already.
        let server = match start(DEFAULT_PORT, pace).or_else(|_| start(0, pace)) {
            Ok(server) => server,
            Err(error) => return Report::failed(Exit::No, format!("{error:#}")),
        };
        let address = server.addresses().first().copied();
        let address = address.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)));
        let report = play(&HostPort::from(address), pace, voice, stop).await;
        server.shutdown().await;
        report
    })
}

/// A server of this machine only, with a configuration of its own: nothing of the user's is read or written.
fn start(port: u16, pace: Pace) -> anyhow::Result<NameServer> {
    // Never written: nobody sets a key.
    let kv = std::env::temp_dir().join(format!("waypost-demo-{}", std::process::id())).join("kvConfig.json");
    let scan = pace.beat.as_millis() / 4;
    let flags = [
        ("bindAddress", Ipv4Addr::LOCALHOST.to_string()),
        ("listenPort", port.to_string()),
        ("kvConfigPath", kv.display().to_string()),
        ("scanNotActiveBrokerInterval", scan.to_string()),
    ];
    let flags = flags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let inputs = Inputs { file: None, flags, environment: std::iter::empty() };
    let configuration = Configuration::load(inputs).context("the demo's name server does not start")?;
    let options = StartOptions { kv_from_backup: false, on_stall: Box::new(abort) };
    NameServer::start(configuration, options).context("the demo's name server does not start")
}

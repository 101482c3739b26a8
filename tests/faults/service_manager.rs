//! A frozen process is ended and started again by whoever runs it, as the units under `deploy/` say: a test plays
//! systemd, with the times of the units.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use waypost_testkit::faults::{Service, Unit};
use waypost_testkit::peers::free_port;

use crate::harness::{Broker, Client, SOON, Scratch, Server, Signal, poll_until};

/// From the standstill to the next answer.
const BACK_WITHIN: Duration = Duration::from_secs(15);

fn unit(name: &str) -> Unit {
    Unit::read(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name))
}

/// `waypost` with `arguments`, at home in `folder`.
fn start(unit: Unit, folder: &Path, arguments: String) -> Service {
    let home = folder.to_owned();
    Service::start("waypost", unit, &folder.join("log"), move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
        command.args(arguments.split(' ')).env("HOME", &home).env_remove("NAMESRV_ADDR").current_dir(&home);
        command
    })
}

/// Waits until it has been ready `times` times.
fn wait_until_ready(service: &Service, times: u32, limit: Duration) {
    let ready = poll_until(limit, || (service.ready() == times).then_some(()));
    assert!(ready.is_some(), "{} times ready, not {times}\n{}", service.ready(), service.log());
}

/// Lives for longer than what is granted, freezes, and is back in time; `answers` says when.
fn freeze_and_come_back(service: &Service, unit: Unit, answers: impl Fn() -> bool) {
    let lived = Instant::now();
    let signs = service.signs() + 5;
    let told = poll_until(unit.watchdog * 3, || {
        (service.signs() >= signs && lived.elapsed() > unit.watchdog).then_some(())
    });
    assert!(told.is_some(), "{} signs of life\n{}", service.signs(), service.log());
    assert_eq!((service.kills(), service.ready()), (0, 1), "a healthy process was ended\n{}", service.log());

    let frozen = Instant::now();
    service.send(Signal::Stop);
    let back = poll_until(BACK_WITHIN * 3, || (service.ready() == 2 && answers()).then(|| frozen.elapsed()));
    eprintln!("back after {back:?}");
    assert!(back.is_some_and(|back| back <= BACK_WITHIN), "back after {back:?}\n{}", service.log());
    assert_eq!(service.kills(), 1);
}

#[test]
fn a_frozen_server_is_ended_and_serves_again_within_15_s() {
    let (unit, folder) = (unit("waypost.service"), Scratch::new("frozen-server"));
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let arguments = format!(
        "serve --listen-port {} --set bindAddress={} --set adminListen=off",
        address.port(),
        address.ip()
    );
    let service = start(unit, folder.path(), arguments);
    wait_until_ready(&service, 1, SOON);
    freeze_and_come_back(&service, unit, || {
        Client::try_to(address)
            .is_ok_and(|mut client| client.route("TopicA").is_some_and(|answer| answer.code == 17))
    });
}

#[test]
fn a_frozen_agent_is_ended_and_serves_again_within_15_s() {
    let server = Server::with_defaults();
    let _broker = server.register(&Broker::new("broker-a", "127.0.0.1:10911", &["TopicA"]));
    let (unit, folder) = (unit("waypost-agent.service"), Scratch::new("frozen-agent"));
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let state = folder.path().join("state");
    let arguments = format!(
        "agent -n {} --listen {address} --admin-listen 127.0.0.1:0 --state {}",
        server.address(),
        state.display()
    );
    let service = start(unit, folder.path(), arguments);
    wait_until_ready(&service, 1, SOON);
    freeze_and_come_back(&service, unit, || {
        Client::try_to(address).is_ok_and(|mut client| client.has_route("TopicA"))
    });
}

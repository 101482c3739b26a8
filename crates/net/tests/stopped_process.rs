//! A process that is stopped and continued notices by its pulse that it stood still, and its watchdog does
//! not take the standing still for a stall. The test runs itself as a child, to have a process to stop.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use waypost_net::clock::{Clock, Pulse};
use waypost_net::watchdog::{Watchdog, WatchdogOptions};

const CHILD: &str = "WAYPOST_NET_STOPPED_CHILD";

/// Works without a pause, tells when its pulse noticed a freeze, and then really stalls.
fn child() {
    let clock = Clock::system();
    let pulse = Pulse::start(clock.clone()).unwrap();
    let options =
        WatchdogOptions { tick: Duration::from_millis(100), patience: Duration::from_millis(2_000) };
    let watchdog = Watchdog::start(options, |report| {
        println!("stall {}", report.number);
        std::process::exit(0);
    })
    .unwrap();
    let mut watch = watchdog.watch("child", 1);
    watch.begin(0);
    println!("working");
    let deadline = clock.now().after(Duration::from_secs(60));
    while pulse.freeze_epoch() == 0 && clock.now() < deadline {
        watch.progress(0);
        thread::sleep(Duration::from_millis(1));
    }
    println!("frozen {}", pulse.freeze_epoch());
    let mut stuck = watchdog.watch("child", 2);
    stuck.begin(0);
    while clock.now() < deadline {
        watch.progress(0);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stopped_process_notices_the_freeze_and_is_no_stall() {
    if std::env::var_os(CHILD).is_some() {
        child();
        return;
    }
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_stopped_process_notices_the_freeze_and_is_no_stall", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&process);
    let (sender, lines) = mpsc::channel();
    let output = BufReader::new(process.stdout.take().unwrap());
    thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let next = |wanted: &[&str]| loop {
        let line = lines.recv_timeout(Duration::from_secs(60)).expect("a line of the child");
        if let Some(found) = wanted.iter().find(|wanted| line.ends_with(**wanted)) {
            break (*found).to_owned();
        }
    };
    next(&["working"]);
    kill_process(pid, Signal::STOP).unwrap();
    // Being stopped for longer than the threshold is what is tested; there is nothing to poll for.
    thread::sleep(Duration::from_millis(3_300));
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(next(&["frozen 1", "stall 1", "frozen 0"]), "frozen 1");
    assert_eq!(next(&["stall 1", "stall 2"]), "stall 2", "the watchdog bites whoever stalls");
    assert!(process.wait().unwrap().success());
}

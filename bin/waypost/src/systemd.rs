//! What systemd, or another supervisor that speaks its protocol, is told: that the process is ready, and, as long
//! as all of it goes on, that it lives.
//!
//! A process that stands still as a whole notices nothing: its watchdog stands still as well. So the proof of life
//! goes to somebody outside, who ends the process when it stays away (`WatchdogSec=`).

use std::io;
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;
use waypost_net::watchdog::{Vitals, Watchdog};

/// Signs of life in the time that the supervisor grants: some may be lost or late on a busy machine.
const SIGNS: u32 = 4;

/// How far apart they are at most.
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// Says that the process is ready, and from then on that it lives, if the supervisor wants to know
/// (`WATCHDOG_USEC`). Without a supervisor there is nobody to tell.
///
/// # Errors
///
/// When the operating system gives no thread.
pub(crate) fn ready(watchdog: &Watchdog) -> io::Result<()> {
    if let Some(granted) = sd_notify::watchdog_enabled().filter(|granted| !granted.is_zero()) {
        let vitals = watchdog.vitals();
        // A thread of its own: it may wait for a supervisor that hangs.
        thread::Builder::new().name("systemd".into()).spawn(move || keep_telling(vitals, granted))?;
        tracing::info!(
            seconds = granted.as_secs_f64(),
            "systemd ends this process if it stands still for so long"
        );
    }
    // A supervisor that is gone is no reason not to serve.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    Ok(())
}

/// Says that the process is about to end.
pub(crate) fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// Until the watchdog is gone, which ends with what it watches. Also while that stops: a stop may take longer than
/// what is granted.
fn keep_telling(mut vitals: Vitals, granted: Duration) {
    let period = granted.checked_div(SIGNS).unwrap_or(granted).min(PERIOD_MAX);
    while let Some(are_good) = vitals.are_good() {
        if are_good {
            // The next one may reach it.
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
        thread::sleep(period);
    }
}

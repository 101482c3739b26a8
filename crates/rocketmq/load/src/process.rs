//! What another process used: CPU time and memory, from `/proc`.

use std::collections::HashMap;
use std::time::Duration;
use std::{fs, io};

use crate::error::LoadError;

/// Adds up the CPU time of all threads of a process, in nanoseconds.
///
/// `/proc/PID/stat` counts in ticks of 10 ms, too coarse for a registration of 5 ms; the scheduler's own
/// statistics are exact at each switch. Threads that have ended keep what they were last seen with.
#[derive(Debug)]
pub struct CpuMeter {
    pid: u32,
    threads: HashMap<String, u64>,
}

impl CpuMeter {
    /// A meter for this process.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        Self { pid, threads: HashMap::new() }
    }

    /// CPU time since the process started, user and system together.
    ///
    /// # Errors
    ///
    /// [`LoadError::Io`] when the process is gone.
    pub fn read(&mut self) -> Result<Duration, LoadError> {
        let folder = format!("/proc/{}/task", self.pid);
        let threads =
            fs::read_dir(&folder).map_err(LoadError::io(format!("process {} is gone", self.pid)))?;
        for thread in threads.flatten() {
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let Some(used) = text.split_whitespace().next().and_then(|text| text.parse().ok()) else {
                continue;
            };
            self.threads.insert(thread.file_name().to_string_lossy().into_owned(), used);
        }
        Ok(Duration::from_nanos(self.threads.values().sum()))
    }
}

/// Memory of a process in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// The most that was ever resident.
    pub peak: u64,
}

impl Memory {
    /// What the process uses now.
    ///
    /// # Errors
    ///
    /// [`LoadError::Io`] when the process is gone.
    pub fn of(pid: u32) -> Result<Self, LoadError> {
        let gone = || format!("process {pid} is gone");
        let text = fs::read_to_string(format!("/proc/{pid}/status")).map_err(LoadError::io(gone()))?;
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        // A process that is ending has no memory any more.
        let missing = || LoadError::io(gone())(io::ErrorKind::InvalidData.into());
        Ok(Self {
            resident: value("VmRSS:").ok_or_else(missing)?,
            peak: value("VmHWM:").ok_or_else(missing)?,
        })
    }
}

/// CPU time that all processes of the machine together have used, with what the hypervisor took.
///
/// It is counted in ticks: good enough to see whether somebody else is at work.
///
/// # Errors
///
/// [`LoadError::Io`] where there is no `/proc`.
pub fn machine_cpu() -> Result<Duration, LoadError> {
    let text = fs::read_to_string("/proc/stat").map_err(LoadError::io("/proc/stat"))?;
    let line = text.lines().next().unwrap_or_default();
    let ticks = line.split_whitespace().skip(1).map(|text| text.parse().unwrap_or(0));
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
    let busy: u64 =
        ticks.take(8).enumerate().filter(|(column, _)| !(3..5).contains(column)).map(|(_, n)| n).sum();
    // The unit is 10 ms on every Linux that matters.
    Ok(Duration::from_millis(busy * 10))
}

/// The CPU's name, the number of cores and the kernel: figures mean little without them.
pub fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split(':').nth(1)).unwrap_or("unknown CPU").trim();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {cores} cores, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meter_sees_work_and_only_work() {
        let mut meter = CpuMeter::new(std::process::id());
        let before = meter.read().unwrap();
        let mut sum = 0_u64;
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(100) {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        std::hint::black_box(sum);
        assert!(meter.read().unwrap() - before > Duration::from_millis(20));
    }

    #[test]
    fn a_process_that_never_was_is_an_error() {
        assert!(CpuMeter::new(u32::MAX).read().is_err());
        assert!(Memory::of(u32::MAX).is_err());
    }
}

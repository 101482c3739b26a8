//! `waypost bench`: the load, with a bar that shows how far it is.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use waypost_cli::arguments::{BenchCommand, Output};
use waypost_cli::bench::{self, Progress};

use crate::ongoing;

/// The bar counts in thousandths.
const WHOLE: u64 = 1_000;

pub(crate) fn bench(command: &BenchCommand) -> ExitCode {
    // Drawn on standard error, and only if that is a terminal.
    let bar = ProgressBar::with_draw_target(Some(WHOLE), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} %");
    bar.set_style(style.expect("invariant: the template is good"));
    let shown = bar.clone();
    let progress: Progress = Arc::new(move |what: &str, share: f64| {
        shown.set_message(what.to_owned());
        shown.set_position((share.clamp(0.0, 1.0) * WHOLE as f64) as u64);
    });
    bar.enable_steady_tick(Duration::from_millis(200));
    ongoing::go_on(Output::Table, async |_, stop| {
        let report = bench::bench(command, &progress, stop).await;
        bar.finish_and_clear();
        report
    })
}

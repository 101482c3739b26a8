//! The one binary: parse arguments and configuration, wire, run.

mod agent;
mod bench;
mod configuration;
mod demo;
mod logs;
mod ongoing;
mod options;
mod output;
mod serve;
mod signals;
mod systemd;

use std::process::ExitCode;

use waypost_cli::arguments::{Command, ConfigCommand};
use waypost_cli::exit::Exit;
use waypost_cli::run::{Report, run, run_config};
use waypost_cli::{manual, register, watch};

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(output::panic));
    match options::parse().command {
        Command::Demo(arguments) => demo::demo(arguments),
        Command::Serve(arguments) => serve::serve(arguments),
        Command::Agent(arguments) => agent::agent(arguments),
        Command::Remote(command) => report(ask(run(command))),
        Command::Watch(arguments) => ongoing::go_on(arguments.output.output, async |voice, stop| {
            watch::watch(&arguments, voice, stop).await
        }),
        Command::Register(arguments) => {
            let form = arguments.output.output;
            ongoing::go_on(form, async |voice, stop| register::register(&arguments, voice, stop).await)
        }
        Command::Bench(command) => bench::bench(&command),
        Command::Config(ConfigCommand::Remote(command)) => report(ask(run_config(command))),
        Command::Config(ConfigCommand::Check { configuration }) => configuration::check(&configuration),
        Command::Config(ConfigCommand::Show { configuration, output }) => {
            configuration::show(&configuration, output)
        }
        Command::Config(ConfigCommand::Reference) => configuration::reference(),
        Command::Config(ConfigCommand::Example) => configuration::example(),
        Command::Completions { shell } => output::data(&manual::completions(shell)),
        Command::Man { command } => man(&command),
    }
}

/// Runs a command for other servers: one thread is enough.
fn ask(command: impl Future<Output = Report>) -> Result<Report, std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(command);
    // A name that is still being looked up must not hold the process.
    runtime.shutdown_background();
    Ok(report)
}

fn report(report: Result<Report, std::io::Error>) -> ExitCode {
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            output::error(&format!("the process could not start: {error}; raise its limits (ulimit -a)"));
            return ExitCode::from(Exit::No.code());
        }
    };
    let written = output::text(&report.data);
    for note in &report.notes {
        output::note(note);
    }
    for warning in &report.warnings {
        output::warning(warning);
    }
    for error in &report.errors {
        output::error(error);
    }
    if report.exit == Exit::Done { written } else { ExitCode::from(report.exit.code()) }
}

fn man(command: &[String]) -> ExitCode {
    match manual::page(command) {
        Ok(Some(page)) => output::data(&page),
        Ok(None) => {
            let name = command.join(" ");
            output::error(&format!("there is no command \"{name}\"; `waypost help` lists them"));
            ExitCode::from(Exit::Usage.code())
        }
        Err(error) => {
            output::error(&format!("no man page: {error}"));
            ExitCode::from(Exit::No.code())
        }
    }
}

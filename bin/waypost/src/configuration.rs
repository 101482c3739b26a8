//! The configuration of this machine's server: `serve` runs with it, `config` shows it.

use std::process::ExitCode;

use waypost_cli::arguments::{ConfigurationArguments, Output, OutputArguments};
use waypost_cli::configuration::ConfigurationRow;
use waypost_cli::exit::Exit;
use waypost_cli::render;
use waypost_rocketmq_nameserver::config::setting::Effect;
use waypost_rocketmq_nameserver::config::{Configuration, Inputs, example_toml, reference_markdown};
use waypost_rocketmq_nameserver::load_tls;

use crate::output;

/// Loads and checks the configuration; every problem is printed, and the exit code is then 2.
pub(crate) fn load(arguments: &ConfigurationArguments) -> Result<Configuration, ExitCode> {
    // A variable that is no Unicode cannot be one of ours.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let inputs = Inputs { file: arguments.config.clone(), flags: arguments.pairs(), environment };
    Configuration::load(inputs).map_err(|error| {
        for problem in &error.problems {
            output::error(&problem.to_string());
        }
        ExitCode::from(Exit::Usage.code())
    })
}

pub(crate) fn check(arguments: &ConfigurationArguments) -> ExitCode {
    let configuration = match load(arguments) {
        Ok(configuration) => configuration,
        Err(code) => return code,
    };
    for warning in configuration.warnings() {
        output::note(&warning.to_string());
    }
    if let Err(error) = load_tls(&configuration.settings().tls) {
        output::error(&error.to_string());
        return ExitCode::from(Exit::Usage.code());
    }
    let of = arguments.config.as_ref().map_or_else(String::new, |file| format!(" of {}", file.display()));
    output::text(&format!("the configuration{of} is good\n"))
}

pub(crate) fn show(arguments: &ConfigurationArguments, form: OutputArguments) -> ExitCode {
    let configuration = match load(arguments) {
        Ok(configuration) => configuration,
        Err(code) => return code,
    };
    let rows: Vec<ConfigurationRow> = configuration
        .show()
        .into_iter()
        .map(|row| ConfigurationRow {
            key: row.key,
            value: row.value,
            source: row.source.to_string(),
            acts: row.effect == Some(Effect::Acts),
        })
        .collect();
    let text = match form.output {
        Output::Table => render::configuration(&rows),
        Output::Json => render::json(&rows),
    };
    output::text(&text)
}

pub(crate) fn reference() -> ExitCode {
    output::text(&reference_markdown())
}

pub(crate) fn example() -> ExitCode {
    output::text(&example_toml())
}

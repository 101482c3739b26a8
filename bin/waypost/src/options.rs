//! The options of the command line and of the environment, as the user gave them.

use std::borrow::Cow;
use std::ffi::OsStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use waypost_cli::arguments::Arguments;

/// Parses the command line; a usage error ends the process with code 2, help and version with 0.
pub(crate) fn parse() -> Arguments {
    clap::Parser::try_parse().unwrap_or_else(|error| name_variable(error).exit())
}

/// The name of an option that has a flag and a variable: the one that it was given by.
pub(crate) fn given(flag: &'static str, variable: &'static str) -> &'static str {
    let by_variable =
        !is_on_command_line(std::env::args_os(), &[flag]) && std::env::var_os(variable).is_some();
    if by_variable { variable } else { flag }
}

/// An error about a value names the flag of its option; a user who set the variable does not know the flag.
fn name_variable(mut error: clap::Error) -> clap::Error {
    let of_value = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
    if of_value
        && let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
        && let Some(variable) = variable_of(&built(), argument)
    {
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
    error
}

/// The definition with everything that follows from it: errors show arguments as they are then.
fn built() -> Command {
    let mut command = Arguments::command();
    command.build();
    command
}

/// The variable of the argument that errors call `shown`, if it is set and no flag ranks above it.
fn variable_of(command: &Command, shown: &str) -> Option<String> {
    let of_this = command.get_arguments().filter(|argument| argument.to_string() == shown);
    let mut variables = of_this.filter_map(|argument| {
        let variable = argument.get_env().filter(|name| std::env::var_os(name).is_some())?;
        let long = argument.get_long_and_visible_aliases().unwrap_or_default();
        let hidden = argument.get_all_aliases().unwrap_or_default();
        let mut flags: Vec<String> = long.iter().chain(&hidden).map(|name| format!("--{name}")).collect();
        flags.extend(argument.get_short().map(|letter| format!("-{letter}")));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        (!is_on_command_line(std::env::args_os(), &flags)).then(|| variable.to_string_lossy().into_owned())
    });
    variables.next().or_else(|| command.get_subcommands().find_map(|command| variable_of(command, shown)))
}

/// Whether one of `flags` stands there: alone, or with its value.
fn is_on_command_line(words: impl Iterator<Item = impl AsRef<OsStr>>, flags: &[&str]) -> bool {
    let stands = |word: &Cow<'_, str>| {
        flags.iter().any(|flag| {
            let rest = word.strip_prefix(flag);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || !flag.starts_with("--"))
        })
    };
    words.skip(1).any(|word| stands(&word.as_ref().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_found_with_and_without_its_value() {
        let stands = |words: &str| is_on_command_line(words.split(' '), &["-n", "--namesrv"]);
        assert!(stands("waypost check -n a") && stands("waypost check -na") && stands("waypost --namesrv=a"));
        assert!(stands("waypost --namesrv a"));
        assert!(!stands("waypost check --namesrv-other a") && !stands("-n"));
    }
}

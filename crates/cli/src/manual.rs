//! The man pages and completions, made from the arguments.

use std::io;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::arguments::Arguments;

/// The man page of `waypost`, or of the command that `path` leads to (`["kv", "put"]`). None if there is no
/// such command.
///
/// # Errors
///
/// Never: writing to memory does not fail.
pub fn page(path: &[String]) -> io::Result<Option<Vec<u8>>> {
    let mut command = Arguments::command();
    command.build();
    let Some(command) = find(&command, path) else { return Ok(None) };
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(Some(page))
}

fn find<'a>(command: &'a Command, path: &[String]) -> Option<&'a Command> {
    match path.split_first() {
        None => Some(command),
        Some((name, rest)) => find(command.find_subcommand(name)?, rest),
    }
}

/// The completions of `waypost` for a shell.
#[must_use]
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "waypost", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_purpose() {
        let mut command = Arguments::command();
        command.build();
        let mut open = vec![(Vec::new(), &command)];
        let mut pages = 0;
        while let Some((path, command)) = open.pop() {
            let text = page(&path).expect("memory").expect("the command exists");
            let text = String::from_utf8(text).expect("text");
            assert!(text.contains(".SH SYNOPSIS"), "{path:?}");
            assert!(command.get_about().is_some(), "{path:?} says no purpose");
            pages += 1;
            for child in command.get_subcommands().filter(|child| child.get_name() != "help") {
                let mut path = path.clone();
                path.push(child.get_name().to_owned());
                open.push((path, child));
            }
        }
        assert!(pages > 20, "{pages}");
    }

    #[test]
    fn a_command_that_does_not_exist_has_no_page() {
        assert!(page(&["kv".into(), "burn".into()]).expect("memory").is_none());
    }

    #[test]
    fn completions_know_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completions(shell)).expect("text");
            assert!(script.contains("wipe-write"), "{shell}");
        }
    }
}

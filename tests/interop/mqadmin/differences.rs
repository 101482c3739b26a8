//! Every difference between the original and Waypost that an operator sees in mqadmin, and who wants it.

/// A line that one side may have more than the other.
#[derive(Debug)]
pub(super) struct Difference {
    /// Start of the command.
    command: &'static str,
    /// Start of the line, with its mark: `-` only the original prints it, `+` only Waypost.
    line: &'static str,
    /// Why.
    #[allow(dead_code, reason = "for the reader, and for the message about unused entries")]
    reason: &'static str,
}

/// All of them. An entry that nothing needs any more fails the test.
pub(super) const INTENDED: &[Difference] = &[];

/// Whether `line` is an intended difference of `command`; remembers which entries were needed.
pub(super) fn intended(command: &str, line: &str, used: &mut [bool]) -> bool {
    let mut is_intended = false;
    for (entry, used) in INTENDED.iter().zip(used) {
        if command.starts_with(entry.command) && line.starts_with(entry.line) {
            *used = true;
            is_intended = true;
        }
    }
    is_intended
}

//! What the process tells its caller by its exit code.

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// It did what it was asked.
    Done,
    /// The server said no, does not have it, or answered nonsense.
    No,
    /// The command line makes no sense.
    Usage,
    /// No server answered: it could not be reached, was silent, or closed the connection.
    Unreachable,
    /// Some servers did it, some did not.
    Partial,
}

impl Exit {
    /// The exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Partial => 4,
        }
    }
}

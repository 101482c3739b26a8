use thiserror::Error;

/// What is wrong with a JSON text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// The text ends within a value.
    #[error("the text ends too early")]
    End,
    /// A byte that cannot stand where it stands.
    #[error("this is not what was expected here: {expected}")]
    Unexpected {
        /// What could have stood here.
        expected: &'static str,
    },
    /// An escape sequence that does not exist.
    #[error("the escape sequence is invalid")]
    Escape,
    /// A number that is none, or that its field cannot hold.
    #[error("the number is invalid or out of range")]
    Number,
    /// A text that is neither true nor false.
    #[error("the value is not a boolean")]
    Boolean,
    /// More nested objects and arrays than the limit.
    #[error("the nesting is deeper than the limit")]
    Depth,
    /// Something follows the value.
    #[error("something follows the value")]
    Trailing,
}

/// What is wrong with a JSON text, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("at byte {offset}: {kind}")]
pub struct JsonError {
    /// What is wrong.
    pub kind: JsonErrorKind,
    /// Bytes of the text before the place.
    pub offset: usize,
}

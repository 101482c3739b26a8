//! The JSON that RocketMQ peers read and write: a tolerant reader and a compact writer.
//!
//! No general JSON library reads or writes the bare integer keys of the legacy dialect, so both are here.

mod reader;
mod writer;

pub(crate) use reader::members;
pub use reader::{JsonError, JsonErrorKind, Reader};
pub use writer::{write_integer, write_string};

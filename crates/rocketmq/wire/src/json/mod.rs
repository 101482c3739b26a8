//! The JSON that RocketMQ peers read and write: a tolerant reader and a compact writer.
//!
//! No general JSON library reads or writes the bare integer keys of the legacy dialect, so both are here.
//!
//! The reader takes what fastjson 1.2.83 takes and means: keys that are quoted either way, bare identifiers or
//! bare numbers, and that may differ in case, `-` and `_`; any number of commas; comments; numbers and booleans
//! as texts and the other way round. Three things it does not follow: junk between a value and the next comma,
//! which fastjson skips in some places; references to other places of a document; and the type names that
//! fastjson loads classes for.

mod error;
pub(crate) mod members;
mod number;
mod reader;
mod text;
mod writer;

pub use error::{JsonError, JsonErrorKind};
pub use reader::Reader;
pub use writer::{write_integer, write_string};

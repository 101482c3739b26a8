//! The RocketMQ remoting protocol: frames, headers, codes and bodies.
//!
//! Everything here turns bytes into values and values into bytes. There is no IO, no clock and no state: a
//! caller hands over what it has read and gets borrowed views back; what is written is appended to a buffer of
//! the caller. What a code *means* is the business of the crates above.
//!
//! The readers are as tolerant as the Java NameServer 5.3.3 (bare integer keys, bare identifiers, single quotes,
//! numbers as strings and strings as numbers, stray commas, unknown members); the writers produce the exact
//! bytes of the Java NameServer 5.5.0.
//!
//! ```
//! use waypost_rocketmq_wire::frame::{FrameLimits, decode_frame};
//! use waypost_rocketmq_wire::header::Header;
//! use waypost_rocketmq_wire::message::{Request, Response};
//! use waypost_rocketmq_wire::{code, version};
//!
//! let mut wire = Vec::new();
//! Request { ext: &[("topic", "TopicA")], opaque: 7, ..Request::new(code::request::GET_ROUTEINFO_BY_TOPIC) }
//!     .write(waypost_rocketmq_wire::frame::HeaderEncoding::Json, &mut wire);
//! let limits = FrameLimits::default();
//! let (frame, consumed) = decode_frame(&wire, &limits)?.expect("the frame is whole");
//! assert_eq!(consumed, wire.len());
//! let header = Header::decode(&frame, &limits)?;
//! assert_eq!(header.ext.get("topic"), Some("TopicA"));
//! let mut answer = Vec::new();
//! Response { opaque: header.opaque, ..Response::new(code::response::SUCCESS) }
//!     .write(frame.encoding, &mut answer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants: no input panics; nothing is allocated in proportion to a length that a peer only claims; a value
//! that was decoded, written and decoded again is the same value.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::panic
    )
)]

pub mod body;
pub mod checksum;
pub mod code;
pub mod frame;
#[doc(hidden)]
#[allow(clippy::panic, clippy::panic_in_result_fn, reason = "it asserts: its callers look for panics")]
pub mod fuzzing;
pub mod header;
pub mod json;
pub mod language;
pub mod message;
pub mod properties;
pub mod renumber;
pub mod route_query;
mod utf8;
pub mod version;

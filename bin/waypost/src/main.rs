//! The one binary: parse arguments and configuration, wire, run.
fn main() {}

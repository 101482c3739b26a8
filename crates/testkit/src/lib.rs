//! For tests only: fake brokers, scenario runner, foreign peers, faults, golden corpora.

pub mod agent;
pub mod faults;
pub mod peers;
pub mod scenario;
pub mod server;

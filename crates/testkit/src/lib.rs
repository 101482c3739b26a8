//! For tests only: fake brokers, scenario runner, foreign peers, golden corpora.

pub mod peers;
pub mod scenario;
pub mod server;

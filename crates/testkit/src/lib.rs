//! For tests only: fake brokers, scenario runner, foreign peers, golden corpora.

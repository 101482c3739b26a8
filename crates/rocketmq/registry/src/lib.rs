//! The NameServer's route table as a pure state machine, and the index that readers use.

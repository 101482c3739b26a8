//! What the table does, one rule a test. Numbers in brackets are those of the NameServer specification
//! (sections, K, D, and S for the scenarios of its section 10), of the decisions and of the field
//! reports (A).

mod acting_master;
mod conflicts;
mod deleted;
mod digest;
mod efficiency;
mod expiry;
mod fixture;
mod identity;
mod lists;
mod min_broker;
mod permissions;
mod purge;
mod registration;
mod removal;
mod roles;
mod routes;
mod static_topics;
mod topics;

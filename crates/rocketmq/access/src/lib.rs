//! Who may send which requests, and the log of who changed what: the same for a name server and for an agent,
//! which speaks for its callers with an address that name servers trust.
//!
//! The crate decides and logs; it refuses to know connections and configuration.
//!
//! ```
//! use waypost_rocketmq_access::access::AccessPolicy;
//!
//! let policy = AccessPolicy::default();
//! let outsider = policy.permits("203.0.113.9".parse().unwrap());
//! assert!(outsider.check(105).is_ok());
//! assert_eq!(outsider.check(216).unwrap_err().response_code(), 16);
//! ```
//!
//! Invariant: every request code has exactly one class.

pub mod access;
pub mod audit;

//! Hooks for those who count.

use std::fmt;

pub use crate::core::Notice;

/// Is told what happens. Called from the task that drives the discovery: it must be quick and must not block.
pub trait Observer: Send + Sync + fmt::Debug {
    /// Something happened.
    fn notice(&self, notice: &Notice);
}

use std::collections::HashSet;
use std::sync::Arc;

/// Names that many routes share.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: HashSet<Arc<str>>,
}

impl Names {
    /// The one copy of `name`.
    pub(crate) fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }

    /// Forgets the names that nobody has any more.
    pub(crate) fn prune(&mut self) {
        self.names.retain(|name| Arc::strong_count(name) > 1);
    }
}

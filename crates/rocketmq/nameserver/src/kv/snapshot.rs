//! One state of the KV configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A namespace: each key with its value, or with none (a put without a value).
type Namespace = BTreeMap<Arc<str>, Option<Arc<str>>>;

/// One state of the KV configuration. A clone is cheap: it shares the namespaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KvSnapshot {
    namespaces: BTreeMap<Arc<str>, Arc<Namespace>>,
    /// Keys of all namespaces.
    keys: usize,
    /// Bytes of all namespaces, keys and values.
    bytes: usize,
}

/// One change that is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvChange {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The key.
    pub key: Arc<str>,
    /// The value now; none if there is none any more.
    pub value: Option<Arc<str>>,
}

impl KvSnapshot {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, namespace: &str, key: &str) -> Option<&str> {
        self.namespaces.get(namespace)?.get(key)?.as_deref()
    }

    /// The keys of a namespace that have a value, in order; none if there is no such namespace,
    /// which an empty one is (spec 1.3, request 219).
    pub fn list(&self, namespace: &str) -> Option<impl Iterator<Item = (&str, &str)>> {
        let namespace = self.namespaces.get(namespace)?;
        Some(namespace.iter().filter_map(|(key, value)| Some((&**key, value.as_deref()?))))
    }

    /// All namespaces, in order, empty ones included.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.keys().map(|name| &**name)
    }

    /// Number of keys, of all namespaces together, those without a value included.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// Bytes of all namespaces, keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many keys and namespaces there would be with this key.
    pub(crate) fn entries_with(&self, namespace: &str, key: &str) -> usize {
        let (new_namespace, new_key) = match self.namespaces.get(namespace) {
            None => (1, 1),
            Some(keys) => (0, usize::from(!keys.contains_key(key))),
        };
        self.keys + self.namespaces.len() + new_namespace + new_key
    }

    /// How many bytes there would be with this key set to a value.
    pub(crate) fn bytes_with(&self, namespace: &str, key: &str, value: Option<&str>) -> usize {
        let added = value.map_or(0, str::len);
        match self.namespaces.get(namespace).map(|keys| keys.get(key)) {
            None => self.bytes + namespace.len() + key.len() + added,
            Some(None) => self.bytes + key.len() + added,
            Some(Some(old)) => self.bytes - old.as_ref().map_or(0, |old| old.len()) + added,
        }
    }

    pub(crate) fn create_namespace(&mut self, namespace: &str) {
        if !self.namespaces.contains_key(namespace) {
            self.bytes += namespace.len();
            self.namespaces.insert(Arc::from(namespace), Arc::default());
        }
    }

    pub(crate) fn insert(&mut self, namespace: &str, key: &str, value: Option<&str>) {
        self.create_namespace(namespace);
        let bytes = self.bytes_with(namespace, key, value);
        if let Some(keys) = self.namespaces.get_mut(namespace) {
            let old = Arc::make_mut(keys).insert(Arc::from(key), value.map(Arc::from));
            self.keys += usize::from(old.is_none());
            self.bytes = bytes;
        }
    }

    /// Removes a key; the namespace stays, as in the original. Says whether there was one.
    pub(crate) fn remove(&mut self, namespace: &str, key: &str) -> bool {
        let Some(keys) = self.namespaces.get_mut(namespace) else { return false };
        if !keys.contains_key(key) {
            return false;
        }
        let old = Arc::make_mut(keys).remove(key).flatten();
        self.keys -= 1;
        self.bytes -= key.len() + old.map_or(0, |old| old.len());
        true
    }

    /// Whether a put of this value would change anything.
    pub(crate) fn holds(&self, namespace: &str, key: &str, value: Option<&str>) -> bool {
        self.namespaces.get(namespace).and_then(|keys| keys.get(key)).is_some_and(|it| it.as_deref() == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_every_change() {
        let mut table = KvSnapshot::default();
        assert_eq!((table.entries_with("ns", "k"), table.bytes_with("ns", "k", Some("vv"))), (2, 5));
        table.insert("ns", "k", Some("vv"));
        assert_eq!((table.keys(), table.bytes()), (1, 5));
        assert_eq!((table.entries_with("ns", "k"), table.bytes_with("ns", "k", Some("v"))), (2, 4));
        table.insert("ns", "k", None);
        assert_eq!((table.keys(), table.bytes()), (1, 3));
        table.insert("ns", "k2", Some("v"));
        assert_eq!((table.keys(), table.bytes()), (2, 6));
        assert!(table.remove("ns", "k2") && table.remove("ns", "k"));
        assert!(!table.remove("ns", "k") && !table.remove("other", "k"));
        assert_eq!((table.keys(), table.bytes()), (0, 2));
        assert_eq!(table.list("ns").map(Iterator::count), Some(0));
        assert!(table.list("other").is_none());
    }

    #[test]
    fn a_key_without_value_is_neither_found_nor_listed() {
        let mut table = KvSnapshot::default();
        table.insert("ns", "k", None);
        assert_eq!(table.get("ns", "k"), None);
        assert_eq!(table.list("ns").map(Iterator::count), Some(0));
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut table = KvSnapshot::default();
        table.insert("ns", "k", Some("old"));
        let before = table.clone();
        table.insert("ns", "k", Some("new"));
        assert_eq!((before.get("ns", "k"), table.get("ns", "k")), (Some("old"), Some("new")));
    }
}

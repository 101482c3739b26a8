//! The key-value configuration.

use std::collections::BTreeMap;

use serde::Serialize;
use waypost_rocketmq_wire::body::KvTable;
use waypost_rocketmq_wire::code::{request, response};

use crate::call::{CallError, Caller, Fault, Missing, body_limits, request};
use crate::everywhere::{Outcomes, tell_all};
use crate::first::{First, NoAnswer, ask_first};
use crate::servers::Servers;

/// The value of a key, for programs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct KvValue {
    /// The server that answered.
    pub server: String,
    /// Its namespace.
    pub namespace: String,
    /// The key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// The keys of a namespace, for programs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct KvNamespace {
    /// The server that answered.
    pub server: String,
    /// The namespace.
    pub namespace: String,
    /// Values by key.
    pub entries: BTreeMap<String, String>,
}

/// Asks for the value of a key.
///
/// # Errors
///
/// [`CallError::NotFound`] in it where a server has none.
pub async fn get(
    caller: &Caller,
    servers: &Servers,
    namespace: &str,
    key: &str,
) -> Result<First<KvValue>, NoAnswer> {
    ask_first(servers, caller.limit, |server| async move {
        let fields = [("namespace", namespace), ("key", key)];
        let answer = caller.call(&server, request(request::GET_KV_CONFIG, &fields)).await?;
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        if answer.code == response::QUERY_NOT_FOUND {
            return Err(CallError::not_found(&server, Missing::Key { namespace, key }));
        }
        let answer = answer.success(&server)?;
        let value =
            answer.field("value").ok_or_else(|| CallError::malformed(&server, Fault::Field("value")))?;
        Ok(KvValue { server: server.to_string(), namespace, key, value: value.to_owned() })
    })
    .await
}

/// Asks for all keys of a namespace.
///
/// # Errors
///
/// [`CallError::NotFound`] in it where a server does not have the namespace.
pub async fn list(
    caller: &Caller,
    servers: &Servers,
    namespace: &str,
) -> Result<First<KvNamespace>, NoAnswer> {
    ask_first(servers, caller.limit, |server| async move {
        let fields = [("namespace", namespace)];
        let answer = caller.call(&server, request(request::GET_KVLIST_BY_NAMESPACE, &fields)).await?;
        if answer.code == response::QUERY_NOT_FOUND {
            return Err(CallError::not_found(&server, Missing::Namespace(namespace.to_owned())));
        }
        let answer = answer.success(&server)?;
        let table = KvTable::decode(&answer.body, &body_limits())
            .map_err(|fault| CallError::malformed(&server, fault))?;
        Ok(KvNamespace { server: server.to_string(), namespace: namespace.to_owned(), entries: table.table })
    })
    .await
}

/// Sets a key on every server. A Waypost answers once the value is on its disk.
pub async fn put(
    caller: &Caller,
    servers: &Servers,
    namespace: &str,
    key: &str,
    value: &str,
) -> Outcomes<()> {
    tell_all(servers, |server| async move {
        let fields = [("namespace", namespace), ("key", key), ("value", value)];
        let answer = caller.call(&server, request(request::PUT_KV_CONFIG, &fields)).await?;
        answer.success(&server).map(drop)
    })
    .await
}

/// Deletes a key on every server, which answer the same whether it was there or not.
pub async fn delete(caller: &Caller, servers: &Servers, namespace: &str, key: &str) -> Outcomes<()> {
    tell_all(servers, |server| async move {
        let fields = [("namespace", namespace), ("key", key)];
        let answer = caller.call(&server, request(request::DELETE_KV_CONFIG, &fields)).await?;
        answer.success(&server).map(drop)
    })
    .await
}

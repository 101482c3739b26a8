//! 100, 101, 102 and 219: the KV configuration.

use tokio::sync::oneshot;
use waypost_net::session::Answer;
use waypost_rocketmq_access::audit::Changed;
use waypost_rocketmq_wire::body::KvTable;
use waypost_rocketmq_wire::code::{request as code, response};
use waypost_rocketmq_wire::frame::decode_frame;
use waypost_rocketmq_wire::header::Header;

use super::Request;
use crate::connection::Errand;
use crate::kv::{KvError, ORDER_TOPIC_CONFIG};
use crate::reply::Reply;
use crate::state::State;

/// 101.
pub(crate) fn get(state: &State, request: &Request<'_, '_>) -> Reply {
    let ext = &request.header.ext;
    let (namespace, key) = (ext.get("namespace"), ext.get("key"));
    let table = state.kv.snapshot();
    let value = namespace.zip(key).and_then(|(namespace, key)| table.get(namespace, key));
    match value {
        Some(value) => Reply::success().with("value", value),
        None => {
            let (namespace, key) = (namespace.unwrap_or("null"), key.unwrap_or("null"));
            let remark = format!("No config item, Namespace: {namespace} Key: {key}");
            Reply::error(response::QUERY_NOT_FOUND, remark).with_typed_header()
        }
    }
}

/// 219.
pub(crate) fn list(state: &State, request: &Request<'_, '_>) -> Reply {
    let namespace = request.header.ext.get("namespace");
    match namespace.and_then(|namespace| encoded(state, namespace)) {
        Some(body) => Reply::body(body),
        None => {
            let remark = format!("No config item, Namespace: {}", namespace.unwrap_or("null"));
            Reply::error(response::QUERY_NOT_FOUND, remark)
        }
    }
}

/// The body of registration answers; `None` while nobody has put any order configuration.
pub(crate) fn order_configuration(state: &State) -> Option<Vec<u8>> {
    encoded(state, ORDER_TOPIC_CONFIG)
}

fn encoded(state: &State, namespace: &str) -> Option<Vec<u8>> {
    let snapshot = state.kv.snapshot();
    let entries = snapshot.list(namespace)?;
    let table = entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let mut body = Vec::new();
    KvTable { table }.encode(&mut body);
    Some(body)
}

/// 100 and 102: answered once the change is on disk, or with what prevented it (decision 12).
pub(crate) async fn change(errand: Errand) -> Answer {
    let done = begin(&errand).await;
    errand.answer(|errand, request| {
        let ext = &request.header.ext;
        let audit = &errand.state.audit;
        if let Err(error) = done {
            let remark = error.to_string();
            audit.refused(request.peer, request.header.code, &remark, errand.state.pulse.now());
            return Reply::error(error.code(), remark);
        }
        if let (Some(namespace), Some(key)) = (ext.get("namespace"), ext.get("key")) {
            let changed = if request.header.code == code::PUT_KV_CONFIG {
                Changed::KvPut { namespace, key, value: ext.get("value") }
            } else {
                Changed::KvDeleted { namespace, key }
            };
            audit.changed(request.peer, changed);
        }
        Reply::success()
    })
}

async fn begin(errand: &Errand) -> Result<(), KvError> {
    let (reply, done) = oneshot::channel();
    {
        let limits = &errand.state.frame_limits;
        let frame = decode_frame(&errand.frame.bytes, limits).ok().flatten();
        let header = frame.and_then(|(frame, _)| Header::decode(&frame, limits).ok());
        let Some(header) = header else { return Err(KvError::Closed) };
        let (namespace, key) = (header.ext.get("namespace"), header.ext.get("key"));
        if header.code == code::PUT_KV_CONFIG {
            errand.state.kv.put(namespace, key, header.ext.get("value"), reply);
        } else {
            errand.state.kv.delete(namespace, key, reply);
        }
    }
    done.await.unwrap_or(Err(KvError::Closed))
}

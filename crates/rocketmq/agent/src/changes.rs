//! The audit lines of what the agent passed on: a name server sees the agent's address, so only the agent knows who
//! asked.

use std::net::SocketAddr;

use waypost_rocketmq_access::audit::{Audit, Changed};
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_wire::body::{BodyLimits, TopicRouteData};
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::{FrameLimits, decode_frame};
use waypost_rocketmq_wire::header::Header;

/// Logs the change that the request in `bytes` made, if it is one and `answer` says that it was made.
pub(crate) fn log(audit: &Audit, peer: SocketAddr, bytes: &[u8], limits: &FrameLimits, answer: &Answer) {
    if !answer.is_success() {
        return;
    }
    let Ok(Some((frame, _))) = decode_frame(bytes, limits) else { return };
    let Ok(header) = Header::decode(&frame, limits) else { return };
    if let Some(changed) = change(&header, frame.body, answer) {
        audit.changed(peer, changed);
    }
}

/// The same where the answer is a frame already.
pub(crate) fn log_framed(audit: &Audit, peer: SocketAddr, bytes: &[u8], limits: &FrameLimits, answer: &[u8]) {
    let Ok(Some((frame, _))) = decode_frame(answer, limits) else { return };
    let Ok(header) = Header::decode(&frame, limits) else { return };
    log(audit, peer, bytes, limits, &crate::reply::code(header.code));
}

fn change<'a>(header: &'a Header<'_>, body: &[u8], answer: &Answer) -> Option<Changed<'a>> {
    let text = |name| header.ext.get(name).unwrap_or_default();
    let count = |name| answer.field(name).and_then(|count| count.parse().ok()).unwrap_or_default();
    Some(match header.code {
        request::PUT_KV_CONFIG => {
            Changed::KvPut { namespace: text("namespace"), key: text("key"), value: header.ext.get("value") }
        }
        request::DELETE_KV_CONFIG => Changed::KvDeleted { namespace: text("namespace"), key: text("key") },
        request::UNREGISTER_BROKER => Changed::BrokerUnregistered {
            cluster: text("clusterName"),
            broker: text("brokerName"),
            address: text("brokerAddr"),
            id: header.ext.get_i64("brokerId").unwrap_or_default(),
        },
        request::WIPE_WRITE_PERM_OF_BROKER => {
            Changed::WritePermissionWiped { broker: text("brokerName"), topics: count("wipeTopicCount") }
        }
        request::ADD_WRITE_PERM_OF_BROKER => {
            Changed::WritePermissionAdded { broker: text("brokerName"), topics: count("addTopicCount") }
        }
        request::DELETE_TOPIC_IN_NAMESRV => Changed::TopicDeleted {
            topic: text("topic"),
            cluster: header.ext.get("clusterName").filter(|cluster| !cluster.is_empty()),
        },
        request::REGISTER_TOPIC_IN_NAMESRV => {
            let data = TopicRouteData::decode(body, &BodyLimits::default());
            let brokers = data.map_or(0, |data| data.queue_datas.len());
            Changed::TopicRegistered { topic: text("topic"), brokers }
        }
        _ => return None,
    })
}

//! All other reads: a healthy server answers them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use waypost_net::clock::{Clock, Millis};
use waypost_rocketmq_discovery::client::Discovery;
use waypost_rocketmq_discovery::error::LookupError;
use waypost_rocketmq_discovery::read::Read;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_wire::code::request;

/// How old the members of a group (901) and the cluster (106) may be.
const FRESH: Duration = Duration::from_secs(1);

/// How long a caller waits: the time-out of the original's clients (spec B3).
const LIMIT: Duration = Duration::from_millis(2_900);

/// Different questions whose answers are kept; more are asked for each time.
const KEPT_MAX: usize = 1_024;

/// What is asked: everything on which an answer depends.
type Question = (i32, i32, Vec<(String, String)>);

/// Reads that are no route queries.
#[derive(Debug)]
pub(crate) struct Reads {
    discovery: Discovery,
    clock: Clock,
    kept: Mutex<HashMap<Question, (Millis, Answer)>>,
}

/// Whether `code` is a read that any server can answer (decision 13).
pub(crate) fn is_read(code: i32) -> bool {
    matches!(
        code,
        request::GET_KV_CONFIG
            | request::GET_BROKER_CLUSTER_INFO
            | request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            | request::GET_KVLIST_BY_NAMESPACE
            | request::GET_TOPICS_BY_CLUSTER
            | request::GET_SYSTEM_TOPIC_LIST_FROM_NS
            | request::GET_UNIT_TOPIC_LIST
            | request::GET_HAS_UNIT_SUB_TOPIC_LIST
            | request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
            | request::GET_NAMESRV_CONFIG
            | request::GET_BROKER_MEMBER_GROUP
    )
}

impl Reads {
    pub(crate) fn new(discovery: Discovery) -> Self {
        Self { clock: discovery.clock().clone(), discovery, kept: Mutex::default() }
    }

    pub(crate) async fn answer(&self, read: Read) -> Result<Answer, LookupError> {
        let kept = matches!(read.code, request::GET_BROKER_MEMBER_GROUP | request::GET_BROKER_CLUSTER_INFO);
        if !kept {
            return self.discovery.ask(read, LIMIT).await;
        }
        let question = (read.code, read.version, read.ext.clone());
        let now = self.clock.now();
        let known = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.get(&question).filter(|(until, _)| now < *until).map(|(_, answer)| answer.clone())
        };
        if let Some(answer) = known {
            return Ok(answer);
        }
        let answer = self.discovery.ask(read, LIMIT).await?;
        // It is as old as the question, not as the answer.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, (until, _)| now < *until);
        }
        if kept.len() < KEPT_MAX {
            kept.insert(question, (now.after(FRESH), answer.clone()));
        }
        Ok(answer)
    }
}

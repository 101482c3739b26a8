//! All other reads: a healthy server answers them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use waypost_net::clock::Clock;
use waypost_rocketmq_discovery::client::Discovery;
use waypost_rocketmq_discovery::error::LookupError;
use waypost_rocketmq_discovery::read::Read;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_wire::code::request;

use crate::kept::KeptAnswers;

/// How old the members of a group (901) and the cluster (106) may be.
const FRESH: Duration = Duration::from_secs(1);

/// How long a caller waits: the time-out of the original's clients (spec B3).
const LIMIT: Duration = Duration::from_millis(2_900);

/// Reads that are no route queries.
#[derive(Debug)]
pub(crate) struct Reads {
    discovery: Discovery,
    clock: Clock,
    kept: Mutex<KeptAnswers>,
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
        if let Some(answer) = self.kept().get(&question, now) {
            return Ok(answer);
        }
        let answer = self.discovery.ask(read, LIMIT).await?;
        // It is as old as the question, not as the answer.
        self.kept().keep(question, answer.clone(), now.after(FRESH), self.clock.now());
        Ok(answer)
    }

    fn kept(&self) -> MutexGuard<'_, KeptAnswers> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

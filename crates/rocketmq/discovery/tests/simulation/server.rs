//! An invented name server.

use std::collections::BTreeMap;

use waypost_rocketmq_discovery::core::{Question, Reply};
use waypost_rocketmq_discovery::health::Fault;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_wire::body::{BrokerData, QueueData, TopicRouteData};

/// How it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Well,
    /// Stopped: answers what was asked when it goes on.
    Hung,
    /// Nothing is listening.
    Dead,
    /// Packets vanish.
    Vanished,
    /// Answers after so many milliseconds.
    Slow(u64),
    Busy(i32),
    Nonsense,
    /// Well, but hears of no changes.
    Stale,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) mode: Mode,
    /// What it knows: topic to version; a topic that is missing was lost by a restart.
    pub(crate) known: BTreeMap<String, u64>,
}

impl Server {
    /// Whether brokers reach it.
    pub(crate) fn hears(&self) -> bool {
        !matches!(self.mode, Mode::Hung | Mode::Dead | Mode::Vanished | Mode::Stale)
    }

    /// What it answers once it gets to it.
    pub(crate) fn answer(&self, question: &Question) -> Reply {
        let refused = |code: i32| Reply::Failed(Fault::Refused, format!("code {code}"));
        match (self.mode, question) {
            (Mode::Busy(code), _) => refused(code),
            (Mode::Nonsense, _) => Reply::Failed(Fault::Nonsense, "its route cannot be read".to_owned()),
            (_, Question::Route(topic)) => match self.known.get(&**topic) {
                Some(version) => Reply::Route(route(*version)),
                None => Reply::NotExist,
            },
            _ => Reply::Answer(Answer {
                code: 22,
                version: 0,
                remark: None,
                ext: None,
                body: bytes::Bytes::new(),
            }),
        }
    }
}

/// A route that shows its version. Every third version lacks the second broker, so that routes shrink as well.
fn route(version: u64) -> TopicRouteData {
    let names: &[&str] = if version % 3 == 2 { &["a"] } else { &["a", "b"] };
    let queues = names.iter().map(|name| QueueData {
        broker_name: (*name).to_owned(),
        read_queue_nums: i32::try_from(version).expect("few versions"),
        write_queue_nums: 4,
        perm: 6,
        topic_sys_flag: 0,
    });
    let groups = names.iter().map(|name| BrokerData {
        cluster: "c".to_owned(),
        broker_name: (*name).to_owned(),
        broker_addrs: [(0, format!("{name}:10911"))].into(),
        ..BrokerData::default()
    });
    TopicRouteData {
        queue_datas: queues.collect(),
        broker_datas: groups.collect(),
        ..TopicRouteData::default()
    }
}

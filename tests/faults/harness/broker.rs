//! A broker as far as a NameServer sees one.

use std::io::{Read, Write};

use serde_json::{Map, Value, json};
use waypost_rocketmq_wire::message::Request;

use super::{Answer, Client};

/// What a broker announces of itself.
#[derive(Debug, Clone)]
pub(crate) struct Broker {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) topics: Vec<String>,
    /// `heartbeatTimeoutMillis`, if it sends one.
    pub(crate) timeout_ms: Option<u64>,
    /// The counter of its data version.
    pub(crate) version: i64,
}

/// The cluster of all brokers here.
pub(crate) const CLUSTER: &str = "FaultCluster";

impl Broker {
    /// A master with `topics`. A broker that is new may not come with exactly one topic, so `TBW102` is always
    /// among them, as with real brokers.
    pub(crate) fn new(name: &str, address: &str, topics: &[&str]) -> Self {
        let topics = topics.iter().copied().chain(["TBW102"]).map(str::to_owned).collect();
        Self { name: name.to_owned(), address: address.to_owned(), topics, timeout_ms: None, version: 1 }
    }

    /// A master with `count` topics `PREFIX-0`, `PREFIX-1` and so on.
    pub(crate) fn with_topics(name: &str, address: &str, prefix: &str, count: usize) -> Self {
        let topics: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
        Self { topics, ..Self::new(name, address, &[]) }
    }

    /// The same with a timeout of its own.
    pub(crate) fn timeout_ms(self, millis: u64) -> Self {
        Self { timeout_ms: Some(millis), ..self }
    }

    /// The body of its registration.
    pub(crate) fn body(&self) -> Vec<u8> {
        let table: Map<String, Value> = self
            .topics
            .iter()
            .map(|topic| {
                let entry = json!({
                    "order": false, "perm": 6, "readQueueNums": 8, "topicFilterType": "SINGLE_TAG",
                    "topicName": topic, "topicSysFlag": 0, "writeQueueNums": 8,
                });
                (topic.clone(), entry)
            })
            .collect();
        let version = json!({"counter": self.version, "stateVersion": 0, "timestamp": 1_700_000_000_000_i64});
        let wrapper = json!({"dataVersion": version, "topicConfigTable": table});
        json!({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).to_string().into_bytes()
    }

    /// Sends its registration with `body`, without waiting for the answer.
    pub(crate) fn send_registration<S: Read + Write>(&self, client: &mut Client<S>, body: &[u8]) {
        let timeout = self.timeout_ms.map(|millis| millis.to_string());
        let mut ext = vec![
            ("brokerAddr", self.address.as_str()),
            ("brokerId", "0"),
            ("brokerName", self.name.as_str()),
            ("clusterName", CLUSTER),
            ("haServerAddr", "10.9.0.1:10912"),
        ];
        ext.extend(timeout.as_deref().map(|millis| ("heartbeatTimeoutMillis", millis)));
        client.send_request(&Request { ext: &ext, body, ..Request::new(103) });
    }

    /// Registers over `client`, which it must keep open: the end of the connection removes it.
    ///
    /// # Panics
    ///
    /// If it is refused.
    pub(crate) fn register<S: Read + Write>(&self, client: &mut Client<S>) -> Answer {
        self.send_registration(client, &self.body());
        let answer = client.next().expect("an answer to the registration");
        assert_eq!(answer.code, 0, "{answer:?}");
        answer
    }

    /// Sends a heartbeat (904), which gets no answer.
    pub(crate) fn beat<S: Read + Write>(&self, client: &mut Client<S>) {
        let ext = [
            ("brokerAddr", self.address.as_str()),
            ("brokerName", self.name.as_str()),
            ("clusterName", CLUSTER),
        ];
        client.send_request(&Request { oneway: true, ext: &ext, ..Request::new(904) });
    }
}

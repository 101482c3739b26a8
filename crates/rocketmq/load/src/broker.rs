//! A simulated broker: its registration, prepared once and patched in place.
//!
//! The body is what a 5.5.0 broker sends, member for member. Everything that changes between two
//! registrations (counter of the data version, queue numbers) has a fixed width.

use crate::error::LoadError;
use crate::frame::{END_OPAQUE, FIRST_OPAQUE, Head, VERSION_5_5_0, code, patch_digits, request};
use crate::link::Link;
use crate::names;

/// The cluster of all simulated brokers.
pub const CLUSTER: &str = "DefaultCluster";
/// Brokers of a benchmark that runs for minutes are not to expire in it.
const HEARTBEAT_TIMEOUT_MS: &str = "600000";
/// The queue numbers that a topic takes in turn.
const QUEUES: [u8; 6] = [8, 4, 5, 6, 7, 9];
const COUNTER_DIGITS: usize = 6;
const FIRST_COUNTER: u32 = 100_000;

/// How many queues a topic has after so many changes.
pub fn queues_after(changes: u32) -> u8 {
    QUEUES[changes as usize % QUEUES.len()]
}

/// How many changes a topic has behind it on a new broker.
///
/// Topics and brokers differ in it: a thousand different routes, so that a server cannot live from a few
/// that all topics share.
pub fn first_changes(broker: usize, topic: usize) -> u32 {
    let mixed = (topic * 16 + broker + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    (mixed % QUEUES.len()) as u32
}

/// One broker with all its topics.
#[derive(Debug)]
pub struct Broker {
    cluster: String,
    /// The broker group, of which it is the master.
    pub name: String,
    /// The address that it announces. Nobody connects to it.
    pub address: String,
    ha_address: String,
    body: Vec<u8>,
    crc: u32,
    /// Where the digits of the data version's counter stand.
    counter_at: usize,
    counter: u32,
    /// Where the read and the write queues of each topic stand, one digit each.
    queues_at: Vec<(usize, usize)>,
    opaque: u32,
}

impl Broker {
    /// The `index`-th broker, master of its own group in [`CLUSTER`].
    #[must_use]
    pub fn new(index: usize, topics: &[String]) -> Self {
        Self::named(CLUSTER, names::broker(index), names::broker_address(index), index, topics)
    }

    /// A broker for a server that others use: with a cluster, a name and an address of its own. `index` only decides
    /// how many queues its topics have.
    #[must_use]
    pub fn named(cluster: &str, name: String, address: String, index: usize, topics: &[String]) -> Self {
        let mut body =
            br#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":"#.to_vec();
        let counter_at = body.len();
        let version = format!(
            "{FIRST_COUNTER},\"stateVersion\":0,\"timestamp\":17960012214{index:02}}},\"mappingDataVersion\":\
             {{\"counter\":0,\"stateVersion\":0,\"timestamp\":17960012275{index:02}}},\"topicConfigTable\":{{"
        );
        body.extend_from_slice(version.as_bytes());
        let mut queues_at = Vec::with_capacity(topics.len());
        for (position, topic) in topics.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            let queues = queues_after(first_changes(index, position));
            let start = format!(
                "{comma}\"{topic}\":{{\"attributes\":{{}},\"order\":false,\"perm\":6,\"readQueueNums\":"
            );
            body.extend_from_slice(start.as_bytes());
            let read_at = body.len();
            let middle = format!(
                "{queues},\"topicFilterType\":\"SINGLE_TAG\",\"topicName\":\"{topic}\",\"topicSysFlag\":0,\"writeQueueNums\":"
            );
            body.extend_from_slice(middle.as_bytes());
            queues_at.push((read_at, body.len()));
            body.extend_from_slice(format!("{queues}}}").as_bytes());
        }
        body.extend_from_slice(b"},\"topicQueueMappingDetailMap\":{},\"topicQueueMappingInfoMap\":{}}}");
        let mut broker = Self {
            cluster: cluster.to_owned(),
            name,
            ha_address: address.replace(":10911", ":10912"),
            address,
            crc: 0,
            body,
            counter_at,
            counter: FIRST_COUNTER,
            queues_at,
            opaque: FIRST_OPAQUE,
        };
        broker.crc = broker.body_crc();
        broker
    }

    /// Bytes of the body.
    pub fn body_length(&self) -> usize {
        self.body.len()
    }

    /// Gives one topic another number of queues, under a new data version.
    ///
    /// # Panics
    ///
    /// When there is no such topic.
    pub fn change(&mut self, topic: usize, changes: u32) {
        let digit = b'0' + queues_after(changes);
        let (read_at, write_at) = self.queues_at[topic];
        self.body[read_at] = digit;
        self.body[write_at] = digit;
        self.counter += 1;
        patch_digits(&mut self.body[self.counter_at..self.counter_at + COUNTER_DIGITS], self.counter);
        self.crc = self.body_crc();
    }

    /// The checksum as brokers send it: without the sign bit.
    fn body_crc(&self) -> u32 {
        crc32fast::hash(&self.body) & 0x7FFF_FFFF
    }

    /// Registers and waits for the answer.
    ///
    /// # Errors
    ///
    /// As [`Link::succeed`].
    pub fn register(&mut self, link: &mut Link) -> Result<(), LoadError> {
        self.count();
        let crc = self.crc.to_string();
        let fields: &[(&str, &str)] = &[
            ("heartbeatTimeoutMillis", HEARTBEAT_TIMEOUT_MS),
            ("brokerId", "0"),
            ("bodyCrc32", &crc),
            ("clusterName", &self.cluster),
            ("brokerAddr", &self.address),
            ("enableActingMaster", "false"),
            ("haServerAddr", &self.ha_address),
            ("compressed", "false"),
            ("brokerName", &self.name),
        ];
        let head = Head {
            code: code::REGISTER_BROKER,
            fields,
            oneway: false,
            version: VERSION_5_5_0,
            body_length: self.body.len(),
        };
        let (head, _) = head.encode(self.opaque);
        link.succeed(&[&head, &self.body]).map_err(|error| of("the registration", error))?;
        Ok(())
    }

    /// Leaves and waits for the answer: the server forgets its topics.
    ///
    /// # Errors
    ///
    /// As [`Link::succeed`].
    pub fn unregister(&mut self, link: &mut Link) -> Result<(), LoadError> {
        self.count();
        let fields: &[(&str, &str)] = &[
            ("brokerName", &self.name),
            ("brokerAddr", &self.address),
            ("clusterName", &self.cluster),
            ("brokerId", "0"),
        ];
        let frame = request(code::UNREGISTER_BROKER, fields, self.opaque);
        link.succeed(&[&frame]).map_err(|error| of("the end of the registration", error))?;
        Ok(())
    }

    fn count(&mut self) {
        self.opaque = if self.opaque + 1 < END_OPAQUE { self.opaque + 1 } else { FIRST_OPAQUE };
    }

    /// The one-way heartbeat that keeps the registration and its connection alive.
    pub fn heartbeat(&self) -> Vec<u8> {
        let fields: &[(&str, &str)] =
            &[("clusterName", &self.cluster), ("brokerAddr", &self.address), ("brokerName", &self.name)];
        let head =
            Head { code: code::HEARTBEAT, fields, oneway: true, version: VERSION_5_5_0, body_length: 0 };
        head.encode(FIRST_OPAQUE).0
    }
}

/// Says what it was that was refused.
fn of(what: &str, error: LoadError) -> LoadError {
    match error {
        LoadError::Refused { header, .. } => LoadError::Refused { what: what.to_owned(), header },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_body_is_json_with_the_change_and_a_new_version() {
        let topics = names::topics(20);
        let mut broker = Broker::new(3, &topics);
        let length = broker.body_length();
        broker.change(7, first_changes(3, 7) + 1);
        assert_eq!(broker.body_length(), length);
        let body: serde_json::Value = serde_json::from_slice(&broker.body).unwrap();
        let wrapper = &body["topicConfigSerializeWrapper"];
        assert_eq!(wrapper["dataVersion"]["counter"], 100_001);
        let table = wrapper["topicConfigTable"].as_object().unwrap();
        assert_eq!(table.len(), 20);
        for (index, topic) in topics.iter().enumerate() {
            let queues = queues_after(first_changes(3, index) + u32::from(index == 7));
            assert_eq!(table[topic]["readQueueNums"], queues);
            assert_eq!(table[topic]["writeQueueNums"], queues);
            assert_eq!(table[topic]["topicName"], **topic);
        }
    }

    #[test]
    fn fifty_thousand_topics_make_eight_and_a_half_megabytes() {
        let length = Broker::new(0, &names::topics(50_000)).body_length();
        assert!((8_000_000..9_000_000).contains(&length), "{length}");
    }
}

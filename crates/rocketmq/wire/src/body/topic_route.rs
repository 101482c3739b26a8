use std::collections::BTreeMap;

use super::{
    BodyError, BodyLimits, BrokerData, Dialect, QueueData, TopicQueueMapping, read_texts, read_whole,
    write_comma, write_texts,
};
use crate::json::{Reader, members, write_string};

/// Where a topic lives: the answer to a route query, and what a broker sends to announce a single topic.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TopicRouteData {
    /// The order configuration of the topic, `broker-a:8;broker-b:8`.
    pub order_topic_conf: Option<String>,
    /// The broker groups that have queues of the topic.
    pub broker_datas: Vec<BrokerData>,
    /// Their queues.
    pub queue_datas: Vec<QueueData>,
    /// Filter servers by broker address.
    pub filter_server_table: BTreeMap<String, Vec<String>>,
    /// Mappings of a static topic by broker name.
    pub topic_queue_mapping_by_broker: Option<BTreeMap<String, TopicQueueMapping>>,
}

members::declare!(Member {
    BrokerDatas = "brokerDatas",
    FilterServerTable = "filterServerTable",
    OrderTopicConf = "orderTopicConf",
    QueueDatas = "queueDatas",
    TopicQueueMappingByBroker = "topicQueueMappingByBroker",
});

impl TopicRouteData {
    /// Appends the JSON to `out`: lists in their order, maps sorted by key, absent members left out.
    pub fn encode(&self, dialect: Dialect, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"brokerDatas\":[");
        let mut first = true;
        for broker in &self.broker_datas {
            write_comma(out, &mut first);
            broker.encode(dialect, out);
        }
        out.extend_from_slice(b"],\"filterServerTable\":{");
        first = true;
        for (address, servers) in &self.filter_server_table {
            write_comma(out, &mut first);
            write_string(out, address);
            out.push(b':');
            write_texts(out, servers);
        }
        out.push(b'}');
        if let Some(conf) = &self.order_topic_conf {
            out.extend_from_slice(b",\"orderTopicConf\":");
            write_string(out, conf);
        }
        out.extend_from_slice(b",\"queueDatas\":[");
        first = true;
        for queues in &self.queue_datas {
            write_comma(out, &mut first);
            queues.encode(out);
        }
        out.push(b']');
        if let Some(mappings) = &self.topic_queue_mapping_by_broker {
            out.extend_from_slice(b",\"topicQueueMappingByBroker\":{");
            first = true;
            for (broker, mapping) in mappings {
                write_comma(out, &mut first);
                write_string(out, broker);
                out.push(b':');
                mapping.encode(dialect, out);
            }
            out.push(b'}');
        }
        out.push(b'}');
    }

    /// Leaves out the brokers of other zones that have a master, with their queues and filter servers
    /// (spec 3.5).
    pub fn keep_zone(&mut self, zone: &str) {
        let (queues, filter_servers) = (&mut self.queue_datas, &mut self.filter_server_table);
        self.broker_datas.retain(|broker| {
            let in_zone = broker.zone_name.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(zone));
            let keep = !broker.broker_addrs.contains_key(&0) || in_zone;
            if !keep {
                queues.retain(|queue| queue.broker_name != broker.broker_name);
                for address in broker.broker_addrs.values() {
                    filter_servers.remove(address);
                }
            }
            keep
        });
    }

    /// Decodes the JSON of either dialect; absent members are empty.
    ///
    /// # Errors
    /// When the JSON is malformed or has a member of the wrong type, or a list is longer than
    /// [`BodyLimits::entries_max`].
    pub fn decode(body: &[u8], limits: &BodyLimits) -> Result<Self, BodyError> {
        read_whole(body, limits, |reader| {
            let mut route = Self::default();
            reader.object(|reader, key| route.read_member(reader, &key, limits.entries_max))?;
            Ok(route)
        })
    }

    fn read_member(&mut self, reader: &mut Reader<'_>, key: &str, limit: usize) -> Result<(), BodyError> {
        let room = |section, entries: usize| {
            if entries < limit { Ok(()) } else { Err(BodyError::TooManyEntries { section, limit }) }
        };
        match Member::of(key) {
            Member::BrokerDatas => {
                reader.array_or_null(|reader| {
                    room("brokers", self.broker_datas.len())?;
                    if !reader.null() {
                        self.broker_datas.push(BrokerData::read(reader)?);
                    }
                    Ok::<(), BodyError>(())
                })?;
            }
            Member::FilterServerTable => {
                reader.table_or_null(|reader, address| {
                    room("filter servers", self.filter_server_table.len())?;
                    if let Some(servers) = read_texts(reader)? {
                        self.filter_server_table.insert(address.into_owned(), servers);
                    }
                    Ok::<(), BodyError>(())
                })?;
            }
            Member::OrderTopicConf => self.order_topic_conf = reader.owned_text()?,
            Member::QueueDatas => {
                reader.array_or_null(|reader| {
                    room("queues", self.queue_datas.len())?;
                    if !reader.null() {
                        self.queue_datas.push(QueueData::read(reader)?);
                    }
                    Ok::<(), BodyError>(())
                })?;
            }
            Member::TopicQueueMappingByBroker => {
                let mut mappings = BTreeMap::new();
                let present = reader.table_or_null(|reader, broker| {
                    room("mappings", mappings.len())?;
                    if !reader.null() {
                        mappings.insert(broker.into_owned(), TopicQueueMapping::read(reader)?);
                    }
                    Ok::<(), BodyError>(())
                })?;
                self.topic_queue_mapping_by_broker = present.then_some(mappings);
            }
            Member::Unknown => reader.skip()?,
        }
        Ok(())
    }
}

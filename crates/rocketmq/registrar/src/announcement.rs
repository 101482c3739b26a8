//! What is said to servers: header fields and bodies, encoded once for all of them.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use waypost_rocketmq_wire::body::{
    DataVersion, Dialect, QueueData, RegisterBrokerBody, TopicConfig, TopicRouteData, deflate,
};
use waypost_rocketmq_wire::checksum::body_crc32;
use waypost_rocketmq_wire::code::request;

use crate::identity::{Identity, Role};
use crate::options::{Beat, Form, Timing};
use crate::topics::{Topic, TopicTable};

/// Read and write.
const READ_WRITE: i32 = 6;

/// Bodies that are kept: the whole table in both forms, and the last changes. Servers that lag behind for
/// different times lack different changes; more than a few are not worth the memory.
const KEPT_MAX: usize = 4;

/// The broker as it is at one moment. Cheap to clone; a clone does not change.
#[derive(Clone, Debug)]
pub(crate) struct Announcement {
    pub(crate) identity: Arc<Identity>,
    pub(crate) role: Role,
    /// Counts changes of role and identity; a server that accepted under another one needs everything again.
    pub(crate) role_epoch: u64,
    pub(crate) timing: Timing,
    pub(crate) form: Form,
    pub(crate) topics: TopicTable,
    /// Nothing is sent, on purpose.
    pub(crate) paused: bool,
    kept: Arc<Mutex<Vec<Kept>>>,
}

/// A body that may be sent again.
type Kept = (Key, Arc<[Part]>);

/// Which body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    revision: u64,
    /// What changed after this; `None` for the whole table.
    since: Option<u64>,
    compressed: bool,
    parts: bool,
    permission: i32,
}

/// One registration body, as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    body: Bytes,
    crc: i32,
}

/// One request, all but its opaque.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outgoing {
    pub(crate) code: i32,
    pub(crate) ext: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    pub(crate) oneway: bool,
}

impl Announcement {
    pub(crate) fn new(identity: Identity, role: Role, timing: Timing, form: Form, wall: i64) -> Self {
        Self {
            identity: Arc::new(identity),
            role,
            role_epoch: 0,
            timing,
            form,
            topics: TopicTable::new(form.state_version, wall),
            paused: false,
            kept: Arc::default(),
        }
    }

    /// The topics that brokers have for themselves: named after their cluster and their name (7 = all but
    /// priority).
    pub(crate) fn own_topics(&self) -> Vec<Topic> {
        if !self.form.own_topics {
            return Vec::new();
        }
        let own = |name: &str, queues| Topic { permission: 7, ..Topic::new(name, queues) };
        vec![own(&self.identity.cluster, 16), own(&self.identity.broker, 1)]
    }

    /// The whole table, in `parts` or in one piece. Servers of 4.x need it in one piece: they ignore what
    /// comes with a version that they have. Newer ones get parts, although only one unless that is
    /// configured. The first part never has exactly one topic: servers of 5.x refuse that from a broker that
    /// they do not know (part C 7), so an empty one goes before it.
    pub(crate) fn whole(&self, compressed: bool, parts: bool) -> Arc<[Part]> {
        self.encoded(None, compressed, parts)
    }

    /// What changed after `revision`, in parts.
    pub(crate) fn changes(&self, revision: u64, compressed: bool) -> Arc<[Part]> {
        self.encoded(Some(revision), compressed, true)
    }

    fn encoded(&self, since: Option<u64>, compressed: bool, parts: bool) -> Arc<[Part]> {
        let revision = self.topics.revision();
        let key = Key { revision, since, compressed, parts, permission: self.form.permission };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, parts)) = kept.iter().find(|(other, _)| *other == key) {
            return Arc::clone(parts);
        }
        let topics: Vec<&Topic> = match since {
            None => self.topics.all().collect(),
            Some(revision) => self.topics.changed_since(revision).collect(),
        };
        let parts: Arc<[Part]> = if parts {
            self.encode(&topics, since.is_none(), compressed).into()
        } else {
            Arc::new([self.part(&topics, &topics, compressed)])
        };
        kept.retain(|(other, _)| other.revision == revision);
        kept.truncate(KEPT_MAX - 1);
        kept.insert(0, (key, Arc::clone(&parts)));
        parts
    }

    fn encode(&self, topics: &[&Topic], whole: bool, compressed: bool) -> Vec<Part> {
        let size = self.form.split.map_or(usize::MAX, |size| size.max(2));
        let mut chunks: Vec<&[&Topic]> = topics.chunks(size).collect();
        if whole && (chunks.is_empty() || chunks.first().is_some_and(|first| first.len() == 1)) {
            chunks.insert(0, &[]);
        }
        let last = chunks.len().saturating_sub(1);
        chunks
            .iter()
            .enumerate()
            .map(|(index, chunk)| {
                // Mappings go with the last part (part C 5); their table is additive, too.
                let mapped = if index == last { topics } else { &[] };
                self.part(chunk, mapped, compressed)
            })
            .collect()
    }

    fn part(&self, topics: &[&Topic], mapped: &[&Topic], compressed: bool) -> Part {
        let mappings = mapped.iter().filter_map(|topic| {
            topic.mapping.clone().map(|mapping| (Cow::Borrowed(topic.name.as_str()), mapping))
        });
        let body = RegisterBrokerBody {
            data_version: self.topics.version(),
            topics: topics.iter().map(|topic| self.config(topic)).collect(),
            mappings: mappings.collect(),
            filter_servers: Some(Vec::new()),
        };
        let mut bytes = Vec::new();
        if compressed {
            body.encode_binary(true, &mut bytes);
            bytes = deflate(&bytes);
        } else {
            body.encode_json(&mut bytes);
        }
        Part { crc: body_crc32(&bytes), body: bytes.into() }
    }

    fn config<'a>(&self, topic: &'a Topic) -> TopicConfig<'a> {
        TopicConfig {
            topic_name: Some(Cow::Borrowed(&topic.name)),
            read_queue_nums: topic.read_queues,
            write_queue_nums: topic.write_queues,
            perm: self.permission(topic),
            topic_sys_flag: topic.system_flag,
            order: topic.order,
            ..TopicConfig::empty(Cow::Borrowed(&topic.name))
        }
    }

    /// A broker that may not be read or written lends its topics no more than it has (part C 5).
    const fn permission(&self, topic: &Topic) -> i32 {
        if self.form.permission & READ_WRITE == READ_WRITE {
            topic.permission
        } else {
            topic.permission & self.form.permission
        }
    }

    /// Cluster, name, address and id, which every request has. `id` is what the server knows this broker by.
    fn names(&self, id: u64) -> Vec<(&'static str, String)> {
        vec![
            ("brokerName", self.identity.broker.clone()),
            ("brokerAddr", self.identity.address.to_string()),
            ("clusterName", self.identity.cluster.clone()),
            ("brokerId", id.to_string()),
        ]
    }

    /// 103 with one part of the table (part C 7).
    pub(crate) fn registration(&self, id: u64, part: &Part, compressed: bool) -> Outgoing {
        let mut ext = self.names(id);
        ext.push(("haServerAddr", self.identity.announced_ha_address()));
        ext.push(("enableActingMaster", self.timing.acting_master.is_some().to_string()));
        ext.push(("compressed", compressed.to_string()));
        ext.push(("bodyCrc32", part.crc.to_string()));
        if let Some(acting) = self.timing.acting_master {
            ext.push(("heartbeatTimeoutMillis", acting.timeout.as_millis().to_string()));
        }
        if let Some(zone) = &self.identity.zone {
            ext.push(("__ZONE_NAME", zone.clone()));
        }
        Outgoing { code: request::REGISTER_BROKER, ext, body: part.body.clone(), oneway: false }
    }

    /// 217 with one topic (part C 10).
    pub(crate) fn single_topic(&self, topic: &Topic) -> Outgoing {
        let route = TopicRouteData {
            queue_datas: vec![QueueData {
                broker_name: self.identity.broker.clone(),
                read_queue_nums: topic.read_queues,
                write_queue_nums: topic.write_queues,
                perm: self.permission(topic),
                topic_sys_flag: topic.system_flag,
            }],
            ..TopicRouteData::default()
        };
        let mut body = Vec::new();
        route.encode(Dialect::Standard, &mut body);
        Outgoing {
            code: request::REGISTER_TOPIC_IN_NAMESRV,
            ext: vec![("topic", topic.name.clone())],
            body: body.into(),
            oneway: false,
        }
    }

    /// 322 with the version that the server should have (part C 6); one-way it is a heartbeat (part C 11).
    pub(crate) fn version_query(&self, id: u64, version: DataVersion, oneway: bool) -> Outgoing {
        let mut body = Vec::new();
        version.encode(&mut body);
        Outgoing { code: request::QUERY_DATA_VERSION, ext: self.names(id), body: body.into(), oneway }
    }

    /// The heartbeat (part C 11). 904 carries no id.
    pub(crate) fn heartbeat(&self, with: Beat, id: u64, version: DataVersion) -> Outgoing {
        match with {
            Beat::DataVersion => self.version_query(id, version, true),
            Beat::Heartbeat => {
                let mut ext = self.names(id);
                ext.retain(|(name, _)| *name != "brokerId");
                Outgoing { code: request::BROKER_HEARTBEAT, ext, body: Bytes::new(), oneway: true }
            }
        }
    }

    /// 104 (part C 12).
    pub(crate) fn goodbye(&self, id: u64) -> Outgoing {
        let ext = self.names(id);
        Outgoing { code: request::UNREGISTER_BROKER, ext, body: Bytes::new(), oneway: false }
    }
}

impl Outgoing {
    /// The request in words.
    pub(crate) const fn name(&self) -> &'static str {
        match self.code {
            request::REGISTER_BROKER => "registration",
            request::REGISTER_TOPIC_IN_NAMESRV => "single-topic registration",
            request::QUERY_DATA_VERSION => "version query",
            request::BROKER_HEARTBEAT => "heartbeat",
            request::UNREGISTER_BROKER => "unregistration",
            _ => "request",
        }
    }
}

#[cfg(test)]
mod tests {
    use waypost_net::clock::Millis;
    use waypost_rocketmq_wire::body::{BodyForm, BodyLimits, TopicQueueMapping, inflate};

    use super::*;

    fn announcement(form: Form, topics: usize) -> Announcement {
        let identity = Identity::new("C", "b", "10.0.0.1:10911".parse().expect("an address"));
        let mut announcement = Announcement::new(identity, Role::Master, Timing::default(), form, 1_000);
        let topics = (0..topics).map(|index| Topic::new(&format!("t{index:03}"), 4));
        announcement.topics.set(topics, Millis::ZERO, 1_000);
        announcement
    }

    fn plain(form: Form) -> Form {
        Form { own_topics: false, ..form }
    }

    fn sizes(parts: &[Part]) -> Vec<usize> {
        parts.iter().map(|part| decode(part).topics.len()).collect()
    }

    fn decode(part: &Part) -> RegisterBrokerBody<'_> {
        RegisterBrokerBody::decode(&part.body, BodyForm::Json, &BodyLimits::default()).expect("a body")
    }

    #[test]
    fn a_whole_table_never_begins_with_exactly_one_topic() {
        let whole = |topics, split| {
            sizes(&announcement(plain(Form { split, ..Form::default() }), topics).whole(false, true))
        };
        assert_eq!(whole(0, None), [0]);
        assert_eq!(whole(1, None), [0, 1]);
        assert_eq!(whole(2, None), [2]);
        assert_eq!(whole(5, Some(2)), [2, 2, 1]);
        assert_eq!(whole(1, Some(800)), [0, 1]);
        assert_eq!(whole(3, Some(1)), [2, 1], "parts of one topic are made two");
    }

    #[test]
    fn parts_share_a_version_and_mappings_go_with_the_last() {
        let mut announcement = announcement(plain(Form { split: Some(2), ..Form::default() }), 4);
        let mapping = Some(TopicQueueMapping { epoch: 3, ..TopicQueueMapping::default() });
        announcement.topics.set([Topic { mapping, ..Topic::new("t000", 4) }], Millis::ZERO, 1_001);
        let parts = announcement.whole(false, true);
        let bodies: Vec<_> = parts.iter().map(decode).collect();
        assert_eq!(bodies[0].data_version, bodies[1].data_version);
        assert!(bodies[0].mappings.is_empty());
        assert_eq!(bodies[1].mappings[0].0, "t000");
    }

    #[test]
    fn changes_are_the_changed_topics_with_the_new_version() {
        let mut announcement = announcement(plain(Form::default()), 3);
        let known = announcement.topics.revision();
        announcement.topics.set([Topic::new("new", 8)], Millis::ZERO, 2_000);
        let parts = announcement.changes(known, false);
        let body = decode(&parts[0]);
        assert_eq!(sizes(&parts), [1]);
        assert_eq!(body.topics[0].key, "new");
        assert_eq!(body.data_version, announcement.topics.version());
    }

    #[test]
    fn a_body_is_encoded_once_for_all_servers_and_forgotten_when_it_is_old() {
        let mut announcement = announcement(Form::default(), 3);
        let first = announcement.whole(false, true);
        assert!(Arc::ptr_eq(&first, &announcement.clone().whole(false, true)));
        assert!(!Arc::ptr_eq(&first, &announcement.whole(true, true)));
        announcement.topics.set([Topic::new("new", 8)], Millis::ZERO, 2_000);
        assert!(!Arc::ptr_eq(&first, &announcement.whole(false, true)));
        assert_eq!(Arc::strong_count(&first), 1, "only the test holds it still");
    }

    #[test]
    fn a_deflated_registration_says_so_and_its_checksum_is_of_what_is_sent() {
        let announcement = announcement(plain(Form::default()), 3);
        let parts = announcement.whole(true, true);
        let request = announcement.registration(0, &parts[0], true);
        let field = |name| request.ext.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str());
        assert_eq!(field("compressed"), Some("true"));
        assert_eq!(field("bodyCrc32"), Some(body_crc32(&request.body).to_string().as_str()));
        let inflated = inflate(&request.body, 1 << 20).expect("a zlib stream");
        let form = BodyForm::Binary { mappings: true };
        let body = RegisterBrokerBody::decode(&inflated, form, &BodyLimits::default()).expect("a body");
        assert_eq!(body.topics.len(), 3);
    }

    #[test]
    fn the_permission_of_the_broker_masks_topics_only_if_it_lacks_something() {
        let with = |permission| {
            let form = plain(Form { permission, ..Form::default() });
            let mut announcement = announcement(form, 0);
            announcement.topics.set(
                [Topic { permission: 7, ..Topic::new("t", 1) }, Topic::new("u", 1)],
                Millis::ZERO,
                0,
            );
            let parts = announcement.whole(false, true);
            decode(&parts[0]).topics.iter().map(|topic| topic.perm).collect::<Vec<_>>()
        };
        assert_eq!(with(6), [7, 6]);
        assert_eq!(with(4), [4, 4]);
        assert_eq!(with(2), [2, 2]);
    }

    #[test]
    fn the_fields_of_a_registration_are_those_of_a_broker_of_5() {
        let identity = Identity {
            zone: Some("z1".to_owned()),
            ..Identity::new("C", "b", "10.0.0.1:10911".parse().expect("an address"))
        };
        let timing =
            Timing { acting_master: Some(crate::options::ActingMaster::default()), ..Timing::default() };
        let announcement = Announcement::new(identity, Role::Slave(2), timing, Form::default(), 0);
        let request = announcement.registration(2, &announcement.whole(false, true)[0], false);
        let fields: Vec<String> = request.ext.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let crc = format!("bodyCrc32={}", body_crc32(&request.body));
        assert_eq!(
            fields,
            [
                "brokerName=b",
                "brokerAddr=10.0.0.1:10911",
                "clusterName=C",
                "brokerId=2",
                "haServerAddr=10.0.0.1:10912",
                "enableActingMaster=true",
                "compressed=false",
                crc.as_str(),
                "heartbeatTimeoutMillis=10000",
                "__ZONE_NAME=z1",
            ]
        );
    }

    #[test]
    fn heartbeats_are_oneway_and_904_has_no_id() {
        let announcement = announcement(Form::default(), 0);
        let beat = announcement.heartbeat(Beat::Heartbeat, 3, DataVersion::default());
        assert!(beat.oneway && beat.code == 904 && beat.ext.iter().all(|(name, _)| *name != "brokerId"));
        let beat = announcement.heartbeat(Beat::DataVersion, 3, DataVersion::default());
        assert!(beat.oneway && beat.code == 322 && beat.ext.iter().any(|(name, _)| *name == "brokerId"));
    }

    #[test]
    fn a_single_topic_is_a_route_with_one_entry() {
        let announcement = announcement(Form::default(), 0);
        let request = announcement.single_topic(&Topic::new("T", 4));
        let body = std::str::from_utf8(&request.body).expect("text");
        assert_eq!(
            body,
            "{\"brokerDatas\":[],\"filterServerTable\":{},\"queueDatas\":[{\"brokerName\":\"b\",\"perm\":6,\
             \"readQueueNums\":4,\"topicSysFlag\":0,\"writeQueueNums\":4}]}"
        );
        assert_eq!(request.ext, [("topic", "T".to_owned())]);
    }
}

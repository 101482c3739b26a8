//! What a broker says, decoded as far as the agent has to understand it, with the frame as it came.
//!
//! What a NameServer would refuse for itself alone is refused here, in its words: a wrong checksum, a header that
//! lacks a field, a body that cannot be decoded. Such frames go nowhere.

use std::hash::BuildHasher;
use std::time::Duration;

use bytes::Bytes;
use waypost_rocketmq_registry::{BrokerIdentity, RegistrationRefusal, TableLimits};
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_wire::body::{
    BodyForm, BodyLimits, DataVersion, RegisterBrokerBody, TopicRouteData, inflate,
};
use waypost_rocketmq_wire::checksum::body_crc32;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::{Frame as WireFrame, FrameLimits, decode_frame};
use waypost_rocketmq_wire::header::Header;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::outbox::{Frame, Topics};
use crate::reply;
use crate::room::SIGN_MAX;

/// The names of a broker: an address has one cluster, one name and one id (decision 4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// Cluster name.
    pub cluster: String,
    /// Broker name, shared by a master and its slaves.
    pub name: String,
    /// Advertised address, `host:port`.
    pub address: String,
    /// 0 is the master.
    pub id: i64,
    /// After which silence servers drop it, if it says so.
    pub timeout: Option<Duration>,
}

/// What a registration lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    /// Its topics.
    pub topics: Topics,
    /// Their version.
    pub version: DataVersion,
}

/// A 103 without its topics: those are decoded only if they are not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Registration {
    /// Who.
    pub identity: Identity,
    /// Tells bodies apart.
    pub digest: u128,
    /// The frame.
    pub frame: Frame,
    form: BodyForm,
}

/// A sign of life: 322 or 904.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Beat {
    /// Advertised address.
    pub address: String,
    /// Cluster name.
    pub cluster: String,
    /// The version that the broker has; `None` equals none.
    pub version: Option<DataVersion>,
    /// The frame.
    pub frame: Frame,
}

/// A 104.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leave {
    /// Advertised address.
    pub address: String,
    /// Broker name.
    pub name: String,
    /// The frame.
    pub frame: Frame,
}

/// A 217.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Topic {
    /// The topic.
    pub topic: String,
    /// The names of the brokers that have queues of it.
    pub brokers: Vec<String>,
    /// The frame.
    pub frame: Frame,
}

/// A request of a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// 103.
    Registration(Registration),
    /// 322 or 904.
    Beat(Beat),
    /// 104.
    Leave(Leave),
    /// 217.
    Topic(Topic),
}

impl Heard {
    /// The frame as it came.
    #[must_use]
    pub(crate) fn frame(&self) -> &Frame {
        match self {
            Self::Registration(registration) => &registration.frame,
            Self::Beat(beat) => &beat.frame,
            Self::Leave(leave) => &leave.frame,
            Self::Topic(topic) => &topic.frame,
        }
    }

    /// Decodes a frame of a broker; `None` if its code is no broker's.
    ///
    /// # Errors
    ///
    /// The answer that refuses it.
    pub(crate) fn decode(bytes: &Bytes, limits: &FrameLimits) -> Result<Option<Self>, Box<Answer>> {
        let undecodable = |what: String| Box::new(reply::error(what));
        let Some((frame, _)) = decode_frame(bytes, limits).map_err(|error| undecodable(error.to_string()))?
        else {
            return Ok(None);
        };
        let header = Header::decode(&frame, limits).map_err(|error| undecodable(error.to_string()))?;
        let kept = Frame {
            bytes: bytes.clone(),
            code: header.code,
            opaque: header.opaque,
            oneway: header.is_oneway(),
        };
        Ok(Some(match header.code {
            request::REGISTER_BROKER => Self::Registration(registration(&header, &frame, kept)?),
            request::QUERY_DATA_VERSION => Self::Beat(beat(&header, frame.body, kept, "QUERY_DATA_VERSION")?),
            request::BROKER_HEARTBEAT => Self::Beat(beat(&header, &[], kept, "BROKER_HEARTBEAT")?),
            request::UNREGISTER_BROKER => Self::Leave(leave(&header, kept)?),
            request::REGISTER_TOPIC_IN_NAMESRV => Self::Topic(topic(&header, frame.body, kept)?),
            _ => return Ok(None),
        }))
    }
}

fn registration(
    header: &Header<'_>,
    frame: &WireFrame<'_>,
    kept: Frame,
) -> Result<Registration, Box<Answer>> {
    const NAME: &str = "REGISTER_BROKER";
    if header.version < 0 {
        let remark = format!("{NAME}: the version {} of the header is negative", header.version);
        return Err(Box::new(reply::error(remark)));
    }
    let expected = header.ext.get_i32("bodyCrc32").unwrap_or(0);
    if expected != 0 && expected != body_crc32(frame.body) {
        return Err(Box::new(reply::typed(reply::error("crc32 not match"))));
    }
    let identity =
        BrokerIdentity::of(header).map_err(|field| Box::new(reply::typed(reply::missing(NAME, field))))?;
    let names = [
        ("clusterName", identity.cluster),
        ("brokerName", identity.broker),
        ("brokerAddr", identity.address),
    ];
    for (what, name) in names {
        let (length, limit) = (name.len(), TableLimits::default().name_length);
        if length > limit {
            let refusal = RegistrationRefusal::NameLength { what, length, limit };
            return Err(Box::new(reply::typed(reply::error(refusal.to_string()))));
        }
    }
    let form = BodyForm::of(header, frame.body);
    Ok(Registration {
        identity: Identity {
            cluster: identity.cluster.to_owned(),
            name: identity.broker.to_owned(),
            address: identity.address.to_owned(),
            id: identity.id,
            timeout: identity.timeout.filter(|timeout| !timeout.is_zero()),
        },
        digest: xxh3_128_with_seed(frame.body, form.seed()),
        frame: kept,
        form,
    })
}

impl Registration {
    /// Decodes the topics, which takes time in proportion to their number.
    ///
    /// # Errors
    ///
    /// The answer that refuses the registration.
    pub(crate) fn table(
        &self,
        frame_limits: &FrameLimits,
        limits: &BodyLimits,
        hasher: &impl BuildHasher,
    ) -> Result<Table, Box<Answer>> {
        let undecodable = |error: &dyn std::fmt::Display| {
            let remark = format!("Failed to decode RegisterBrokerBody: {error}");
            Box::new(reply::typed(reply::error(remark)))
        };
        let frame = decode_frame(&self.frame.bytes, frame_limits).map_err(|error| undecodable(&error))?;
        let body = frame.map_or(&[][..], |(frame, _)| frame.body);
        let inflated = match self.form {
            BodyForm::Binary { .. } => inflate(body, limits.inflated_max).map_err(|e| undecodable(&e))?,
            BodyForm::Legacy | BodyForm::Json => Vec::new(),
        };
        let plain = if matches!(self.form, BodyForm::Binary { .. }) { &inflated[..] } else { body };
        let body =
            RegisterBrokerBody::decode(plain, self.form, limits).map_err(|error| undecodable(&error))?;
        // Of several entries with one key only the last counts, so they are one topic.
        let single = body
            .topics
            .split_first()
            .is_some_and(|(first, rest)| rest.iter().all(|topic| topic.key == first.key));
        let topics = body.topics.iter().map(|topic| hash_of(hasher, &topic.key));
        let mappings = body.mappings.iter().map(|(topic, _)| mapping_hash_of(hasher, topic));
        let topics = Topics::new(topics.chain(mappings).collect(), single);
        Ok(Table { topics, version: body.data_version })
    }
}

/// How topics are told apart. The hasher is keyed, because names come from peers.
pub(crate) fn hash_of(hasher: &impl BuildHasher, topic: &str) -> u64 {
    hasher.hash_one(("topic", topic))
}

/// The same for the mapping of a static topic.
pub(crate) fn mapping_hash_of(hasher: &impl BuildHasher, topic: &str) -> u64 {
    hasher.hash_one(("mapping", topic))
}

fn beat(header: &Header<'_>, body: &[u8], kept: Frame, name: &str) -> Result<Beat, Box<Answer>> {
    sign(&kept, name)?;
    let version = match body {
        [] => None,
        body => DataVersion::decode_comparable(body, &BodyLimits::default()).map_err(|error| {
            Box::new(reply::error(format!("{name}: the body is no DataVersion: {error}")))
        })?,
    };
    Ok(Beat {
        address: required(header, name, "brokerAddr")?.to_owned(),
        cluster: required(header, name, "clusterName")?.to_owned(),
        version,
        frame: kept,
    })
}

fn leave(header: &Header<'_>, kept: Frame) -> Result<Leave, Box<Answer>> {
    const NAME: &str = "UNREGISTER_BROKER";
    sign(&kept, NAME)?;
    let name = required(header, NAME, "brokerName")?.to_owned();
    let address = required(header, NAME, "brokerAddr")?.to_owned();
    required(header, NAME, "clusterName")?;
    Ok(Leave { address, name, frame: kept })
}

/// Refuses what is no sign of a broker by its size: signs are kept beside the tables, whose bytes are counted.
fn sign(kept: &Frame, name: &str) -> Result<(), Box<Answer>> {
    let length = kept.bytes.len();
    if length <= SIGN_MAX {
        return Ok(());
    }
    let remark =
        format!("{name}: the frame has {length} bytes, and the agent takes at most {SIGN_MAX} of it");
    Err(Box::new(reply::error(remark)))
}

fn topic(header: &Header<'_>, body: &[u8], kept: Frame) -> Result<Topic, Box<Answer>> {
    const NAME: &str = "REGISTER_TOPIC_IN_NAMESRV";
    let topic = required(header, NAME, "topic")?.to_owned();
    let brokers = if body.is_empty() {
        Vec::new()
    } else {
        let data = TopicRouteData::decode(body, &BodyLimits::default()).map_err(|error| {
            Box::new(reply::error(format!("{NAME}: the body is no route of topic {topic}: {error}")))
        })?;
        data.queue_datas.into_iter().map(|queues| queues.broker_name).collect()
    };
    Ok(Topic { topic, brokers, frame: kept })
}

fn required<'a>(header: &'a Header<'_>, request: &str, field: &str) -> Result<&'a str, Box<Answer>> {
    let value = header.ext.get(field).filter(|value| !value.is_empty());
    value.ok_or_else(|| Box::new(reply::missing(request, field)))
}

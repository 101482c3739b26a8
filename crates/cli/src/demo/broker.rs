//! The half of a simulated broker that registers.

use std::borrow::Cow;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use waypost_net::address::HostPort;
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Stop;
use waypost_rocketmq_wire::body::{DataVersion, RegisterBrokerBody, TopicConfig};
use waypost_rocketmq_wire::checksum::body_crc32;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;

use crate::call::{CallError, Channel};

/// The cluster of the simulated brokers.
pub const CLUSTER: &str = "DemoCluster";

/// How often brokers register by default.
const PERIOD: Duration = Duration::from_secs(30);
/// How long one exchange with the server may take: what brokers of 5.x allow.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(24);
/// How long to wait before a server that is away is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A simulated broker.
#[derive(Debug)]
pub(super) struct DemoBroker {
    name: &'static str,
    address: String,
    server: HostPort,
    body: Vec<u8>,
    channel: Option<Channel>,
}

impl DemoBroker {
    pub(super) fn new(
        name: &'static str,
        address: &str,
        index: usize,
        now_millis: u64,
        server: HostPort,
    ) -> Self {
        let body = body(name, index, now_millis);
        Self { name, address: address.to_owned(), server, body, channel: None }
    }

    /// Registers once, on the connection of the last time if it still is.
    pub(super) async fn register(&mut self) -> Result<(), CallError> {
        let crc = body_crc32(&self.body).to_string();
        let fields = [
            ("brokerId", "0"),
            ("bodyCrc32", crc.as_str()),
            ("clusterName", CLUSTER),
            ("brokerAddr", self.address.as_str()),
            ("enableActingMaster", "false"),
            ("haServerAddr", self.address.as_str()),
            ("compressed", "false"),
            ("brokerName", self.name),
        ];
        let question = Request { ext: &fields, body: &self.body, ..Request::new(request::REGISTER_BROKER) };
        let mut channel = match self.channel.take() {
            Some(channel) => channel,
            None => Channel::open(&Dialer::default(), &self.server, EXCHANGE_LIMIT).await?,
        };
        channel.ask(question).await?.success(&self.server)?;
        self.channel = Some(channel);
        Ok(())
    }

    /// Registers again and again; unregisters when it is told to stop.
    pub(super) async fn stay_registered(mut self, stop: &Stop) {
        loop {
            let wait = match &mut self.channel {
                Some(channel) => tokio::select! {
                    () = stop.requested() => break,
                    () = channel.closed() => {
                        self.channel = None;
                        RETRY
                    }
                    () = sleep(PERIOD) => Duration::ZERO,
                },
                None => RETRY,
            };
            tokio::select! {
                () = stop.requested() => break,
                () = sleep(wait) => {}
            }
            tokio::select! {
                () = stop.requested() => break,
                // A server that is away is tried again; it logs for itself why it refused.
                _ = timeout(EXCHANGE_LIMIT, self.register()) => {}
            }
        }
        self.unregister().await;
    }

    async fn unregister(&mut self) {
        let fields = [
            ("brokerName", self.name),
            ("brokerAddr", self.address.as_str()),
            ("clusterName", CLUSTER),
            ("brokerId", "0"),
        ];
        let question = Request { ext: &fields, ..Request::new(request::UNREGISTER_BROKER) };
        if let Some(channel) = &mut self.channel {
            // The server notices the end of the connection as well.
            drop(timeout(Duration::from_millis(500), channel.ask(question)).await);
        }
    }
}

/// What the broker with this index has: topics that both have, and one of its own.
fn body(name: &'static str, index: usize, now_millis: u64) -> Vec<u8> {
    let own = if index == 0 { ("payments", 4, 6) } else { ("archive", 4, 4) };
    // Brokers have a topic each for their cluster and for themselves.
    let topics = [(CLUSTER, 16, 7), (name, 1, 7), (super::TOPIC, 4, 6), ("orders", 8, 6), own];
    let topic = |(name, queues, perm)| TopicConfig {
        topic_name: Some(Cow::Borrowed(name)),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm,
        ..TopicConfig::empty(Cow::Borrowed(name))
    };
    let body = RegisterBrokerBody {
        data_version: DataVersion {
            state_version: 0,
            timestamp: i64::try_from(now_millis).unwrap_or_default(),
            counter: 1,
        },
        topics: topics.into_iter().map(topic).collect(),
        mappings: Vec::new(),
        filter_servers: Some(Vec::new()),
    };
    let mut bytes = Vec::new();
    body.encode_json(&mut bytes);
    bytes
}

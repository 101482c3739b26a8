//! Where a topic lives.

use std::collections::BTreeMap;

use serde::Serialize;
use waypost_net::address::HostPort;
use waypost_rocketmq_wire::body::TopicRouteData;
use waypost_rocketmq_wire::code::{request, response};

use crate::brokers::Details;
use crate::call::{CallError, Caller, Missing, body_limits, request};
use crate::first::{First, NoAnswer, ask_first};
use crate::live_table::LiveTable;
use crate::permission::letters;
use crate::servers::Servers;

/// The route of a topic, for programs.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Route {
    /// The topic.
    pub topic: String,
    /// The server that answered.
    pub server: String,
    /// `broker-a:8;broker-b:8`, if the topic is ordered and the server attaches that.
    pub order_configuration: Option<String>,
    /// The broker groups that have queues of it, in the order of the answer.
    pub brokers: Vec<RouteBroker>,
    /// Its logical queues, if it is a static topic.
    pub static_queues: Vec<StaticQueues>,
}

/// A broker group of a route.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RouteBroker {
    /// Broker name.
    pub broker: String,
    /// Cluster; null where the server told no addresses.
    pub cluster: Option<String>,
    /// Zone, if it has one.
    pub zone: Option<String>,
    /// Whether a slave may stand in for a lost master.
    pub acting_master: bool,
    /// Queues to read from.
    pub read_queues: i32,
    /// Queues to write to.
    pub write_queues: i32,
    /// Permission bits: 4 read, 2 write, 1 inherit.
    pub perm: i32,
    /// The same in letters.
    pub permission: String,
    /// Bits of units.
    pub sys_flag: i32,
    /// What the broker announced; a different value of `perm` is overlaid. Only from a Waypost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announced_perm: Option<i32>,
    /// By broker id.
    pub addresses: Vec<RouteAddress>,
}

/// A member of a broker group.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RouteAddress {
    /// Broker id; 0 is the master.
    pub id: i64,
    /// `host:port`.
    pub address: String,
    /// What only a Waypost tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
}

/// The logical queues of a static topic that one broker group hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct StaticQueues {
    /// Broker name.
    pub broker: String,
    /// Logical queues over all brokers.
    pub total_queues: i32,
    /// Of the mapping; the newest wins.
    pub epoch: i64,
    /// Logical queue to physical queue.
    pub queues: BTreeMap<i32, i32>,
}

/// Asks for the route of a topic.
///
/// # Errors
///
/// [`CallError::NotFound`] in it where a server knows none.
pub async fn ask(caller: &Caller, servers: &Servers, topic: &str) -> Result<First<Route>, NoAnswer> {
    ask_first(servers, caller.limit, |server| async move {
        let fields = [("topic", topic), ("acceptStandardJsonOnly", "true")];
        let answer = caller.call(&server, request(request::GET_ROUTEINFO_BY_TOPIC, &fields)).await?;
        if answer.code == response::TOPIC_NOT_EXIST {
            return Err(CallError::not_found(&server, Missing::Topic(topic.to_owned())));
        }
        let answer = answer.success(&server)?;
        let data = TopicRouteData::decode(&answer.body, &body_limits())
            .map_err(|fault| CallError::malformed(&server, fault))?;
        Ok(Route::new(topic, &server, data))
    })
    .await
}

impl Route {
    fn new(topic: &str, server: &HostPort, data: TopicRouteData) -> Self {
        let groups: BTreeMap<&str, _> =
            data.broker_datas.iter().map(|group| (group.broker_name.as_str(), group)).collect();
        let broker = |queues: &waypost_rocketmq_wire::body::QueueData| {
            let group = groups.get(queues.broker_name.as_str());
            let addresses = group.map(|group| {
                let address = |(id, address): (&i64, &String)| RouteAddress {
                    id: *id,
                    address: address.clone(),
                    details: None,
                };
                group.broker_addrs.iter().map(address).collect()
            });
            RouteBroker {
                broker: queues.broker_name.clone(),
                cluster: group.map(|group| group.cluster.clone()),
                zone: group.and_then(|group| group.zone_name.clone()),
                acting_master: group.is_some_and(|group| group.enable_acting_master),
                read_queues: queues.read_queue_nums,
                write_queues: queues.write_queue_nums,
                perm: queues.perm,
                permission: letters(queues.perm),
                sys_flag: queues.topic_sys_flag,
                announced_perm: None,
                addresses: addresses.unwrap_or_default(),
            }
        };
        let brokers = data.queue_datas.iter().map(broker).collect();
        let mappings = data.topic_queue_mapping_by_broker.into_iter().flatten();
        let static_queues = mappings.map(|(broker, mapping)| StaticQueues {
            broker,
            total_queues: mapping.total_queues,
            epoch: mapping.epoch,
            queues: mapping.curr_id_map,
        });
        Self {
            topic: topic.to_owned(),
            server: server.to_string(),
            order_configuration: data.order_topic_conf,
            brokers,
            static_queues: static_queues.collect(),
        }
    }

    /// Adds what the live table of the same server tells.
    pub fn enrich(&mut self, table: &LiveTable) {
        let topic = table.topics.iter().find(|topic| topic.topic == self.topic);
        for group in &mut self.brokers {
            let queues =
                topic.and_then(|topic| topic.queues.iter().find(|queues| queues.broker == group.broker));
            group.announced_perm = queues.map(|queues| queues.announced_perm);
            for member in &mut group.addresses {
                member.details = Details::of(table, &member.address);
            }
        }
    }
}

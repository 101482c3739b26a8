//! What a random history is made of: plain data that prints as a readable scenario.

use std::fmt::{self, Display, Formatter, Write};
use std::time::Duration;

use waypost_rocketmq_registry::{ConnectionEnd, Policy, TableLimits};
use waypost_rocketmq_wire::body::{DataVersion, QueueData, RegisterBrokerBody};

/// A table's life: how it starts and what is done to it.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) policy: Policy,
    pub(crate) limits: TableLimits,
    pub(crate) steps: Vec<Step>,
}

/// One command, and how much time passes before it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) wait: Duration,
    /// Which of the few connections carries it.
    pub(crate) slot: usize,
    /// Not by the slot's connection of now, but by the one that the slot lost last.
    pub(crate) late: bool,
    pub(crate) action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Register(Box<Announce>),
    Unregister { broker: String, address: String, id: Option<i64> },
    Heartbeat { cluster: String, address: String },
    Query { cluster: String, address: String, version: Option<DataVersion> },
    Lose(ConnectionEnd),
    Idle,
    Tick,
    RegisterTopic { topic: String, queues: Vec<QueueData> },
    DeleteTopic { topic: String, cluster: Option<String> },
    Wipe { broker: String },
    Add { broker: String },
    SetOrder { topic: String, configuration: Option<String> },
    SetPolicy(Policy),
}

#[derive(Clone, Debug)]
pub(crate) struct Announce {
    pub(crate) cluster: String,
    pub(crate) broker: String,
    pub(crate) address: String,
    pub(crate) id: i64,
    pub(crate) ha_address: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) acting_master: Option<bool>,
    pub(crate) body: RegisterBrokerBody<'static>,
    /// The table is first asked whether it knows the body by its digest.
    pub(crate) digest_first: bool,
    /// The body comes with its digest.
    pub(crate) with_digest: bool,
}

impl Display for History {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.limits)?;
        writeln!(f, "start: {}", policy(&self.policy))?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{number:3}: {step}")?;
        }
        Ok(())
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let late = if self.late { " (lost before)" } else { "" };
        write!(f, "+{:<7} connection {}{late}: ", format!("{:?}", self.wait), self.slot)?;
        match &self.action {
            Action::Register(announce) => write!(f, "103 {announce}"),
            Action::Unregister { broker, address, id } => write!(f, "104 {broker} {address} id={id:?}"),
            Action::Heartbeat { cluster, address } => write!(f, "904 {cluster} {address}"),
            Action::Query { cluster, address, version } => {
                write!(f, "322 {cluster} {address} {}", version.map_or("none".to_owned(), version_text))
            }
            Action::Lose(how) => write!(f, "lost, {how:?}"),
            Action::Idle => write!(f, "idle"),
            Action::Tick => write!(f, "tick"),
            Action::RegisterTopic { topic, queues } => write!(f, "217 {topic} {queues:?}"),
            Action::DeleteTopic { topic, cluster } => write!(f, "216 {topic} {cluster:?}"),
            Action::Wipe { broker } => write!(f, "205 {broker}"),
            Action::Add { broker } => write!(f, "327 {broker}"),
            Action::SetOrder { topic, configuration } => write!(f, "order of {topic}: {configuration:?}"),
            Action::SetPolicy(new) => write!(f, "policy: {}", policy(new)),
        }
    }
}

impl Display for Announce {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} id={} {}", self.cluster, self.broker, self.id, self.address)?;
        write!(f, " {}", version_text(self.body.data_version))?;
        for (name, value) in [("ha", &self.ha_address), ("zone", &self.zone)] {
            if let Some(value) = value {
                write!(f, " {name}={value}")?;
            }
        }
        if let Some(timeout) = self.timeout {
            write!(f, " timeout={timeout:?}")?;
        }
        if let Some(acting) = self.acting_master {
            write!(f, " acting={acting}")?;
        }
        f.write_str(" [")?;
        for topic in &self.body.topics {
            let name = topic.topic_name.as_deref().unwrap_or("null");
            if name != topic.key {
                write!(f, " key {}:", topic.key)?;
            }
            let (read, write, flag) = (topic.read_queue_nums, topic.write_queue_nums, topic.topic_sys_flag);
            write!(f, " {name} {read}/{write} perm={} flag={flag}", topic.perm)?;
        }
        f.write_str(" ]")?;
        for (topic, mapping) in &self.body.mappings {
            write!(f, " map {topic}->{:?} epoch={}", mapping.bname, mapping.epoch)?;
        }
        match &self.body.filter_servers {
            None => f.write_str(" filter=null")?,
            Some(servers) if !servers.is_empty() => write!(f, " filter={servers:?}")?,
            Some(_) => {}
        }
        if self.digest_first {
            f.write_str(" digest-first")?;
        }
        if !self.with_digest {
            f.write_str(" without-digest")?;
        }
        Ok(())
    }
}

fn version_text(version: DataVersion) -> String {
    format!("v{}.{}.{}", version.state_version, version.timestamp, version.counter)
}

fn policy(policy: &Policy) -> String {
    let mut out = format!(
        "expire={:?} scan={:?} grace={:?}",
        policy.broker_expire, policy.scan_interval, policy.suspect_grace
    );
    for (name, on) in [
        ("support_acting_master", policy.support_acting_master),
        ("order_message", policy.order_message),
        ("notify_min_broker_change", policy.notify_min_broker_change),
        ("delete_unlisted_topics", policy.delete_unlisted_topics),
        ("refuse_name_in_other_cluster", policy.refuse_name_in_other_cluster),
        ("refuse_master_address_change", policy.refuse_master_address_change),
        ("wipe_survives_registration", policy.wipe_survives_registration),
        ("add_restores_announced", policy.add_restores_announced),
    ] {
        if on {
            let _ = write!(out, " {name}");
        }
    }
    out
}

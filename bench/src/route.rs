//! The body of a route answer, in standard JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

/// Brokers and queues of one topic.
#[derive(Debug, Deserialize)]
pub(crate) struct Route<'a> {
    #[serde(borrow, rename = "brokerDatas")]
    pub(crate) brokers: Vec<BrokerData<'a>>,
    #[serde(borrow, rename = "queueDatas")]
    pub(crate) queues: Vec<QueueData<'a>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct BrokerData<'a> {
    #[serde(borrow, rename = "brokerName")]
    pub(crate) name: Cow<'a, str>,
    /// By identity, `0` for the master.
    #[serde(borrow, rename = "brokerAddrs")]
    pub(crate) addresses: BTreeMap<&'a str, Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct QueueData<'a> {
    #[serde(borrow, rename = "brokerName")]
    pub(crate) broker: Cow<'a, str>,
    #[serde(rename = "readQueueNums")]
    pub(crate) read: u8,
    #[serde(rename = "writeQueueNums")]
    pub(crate) write: u8,
}

impl<'a> Route<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }
}

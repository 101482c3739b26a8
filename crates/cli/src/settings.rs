//! The settings of running servers (requests 319 and 318).

use std::collections::BTreeMap;

use serde::Serialize;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;
use waypost_rocketmq_wire::properties;

use crate::call::{CallError, Caller, Fault, Missing, request};
use crate::everywhere::{Outcomes, tell_all};
use crate::first::{First, NoAnswer, ask_first};
use crate::servers::Servers;

/// Effective settings, for programs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Settings {
    /// The server that answered.
    pub server: String,
    /// Values by key.
    pub settings: BTreeMap<String, String>,
}

/// Asks for the effective settings, or one of them.
///
/// # Errors
///
/// [`CallError::NotFound`] in it where a server reports no such key.
pub async fn get(caller: &Caller, servers: &Servers, key: Option<&str>) -> Result<First<Settings>, NoAnswer> {
    ask_first(servers, caller.limit, |server| async move {
        let answer = caller.call(&server, request(request::GET_NAMESRV_CONFIG, &[])).await?;
        let answer = answer.success(&server)?;
        let text =
            std::str::from_utf8(&answer.body).map_err(|_| CallError::malformed(&server, Fault::Text))?;
        let mut settings: BTreeMap<_, _> = properties::read_answer(text).into_iter().collect();
        if let Some(key) = key {
            settings.retain(|known, _| known == key);
            if settings.is_empty() {
                return Err(CallError::not_found(&server, Missing::Setting(key.to_owned())));
            }
        }
        Ok(Settings { server: server.to_string(), settings })
    })
    .await
}

/// Sets keys on every server of the list. A server applies all of them or none. What comes back are its warnings: the
/// lines of the remark beside its success.
pub async fn set(caller: &Caller, servers: &Servers, pairs: &[(String, String)]) -> Outcomes<Vec<String>> {
    let mut text = String::new();
    for (key, value) in pairs {
        properties::write(&mut text, key, value);
    }
    let body = text.as_bytes();
    tell_all(servers, |server| async move {
        let question = Request { body, ..request(request::UPDATE_NAMESRV_CONFIG, &[]) };
        let answer = caller.call(&server, question).await?.success(&server)?;
        let remark = answer.remark.unwrap_or_default();
        Ok(remark.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
    })
    .await
}

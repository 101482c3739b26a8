//! What may be done with the queues of a topic, and commands that change it.

use waypost_net::address::HostPort;
use waypost_rocketmq_wire::code::request;

use crate::call::{Answer, CallError, Caller, Fault, Missing, request};
use crate::everywhere::{Outcomes, tell_all};
use crate::servers::Servers;

/// Permission bits for people: `RW-` is read and write, `X` stands for inherit; bits without a letter follow
/// as a number.
#[must_use]
pub fn letters(perm: i32) -> String {
    let letter = |bit: i32, letter: char| if perm & bit == 0 { '-' } else { letter };
    let mut text: String = [letter(4, 'R'), letter(2, 'W'), letter(1, 'X')].into_iter().collect();
    let rest = perm & !7;
    if rest != 0 {
        text.push_str(&format!("+{rest}"));
    }
    text
}

/// Takes the write permission from all topics of a broker, on every server. Tells how many topics each
/// server visited; one that knows none is [`CallError::NotFound`].
pub async fn wipe_write(caller: &Caller, servers: &Servers, broker: &str) -> Outcomes<u64> {
    tell_all(servers, |server| async move {
        change(caller, &server, request::WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount", broker).await
    })
    .await
}

/// Gives the write permission back to all topics of a broker, on every server. As [`wipe_write`].
pub async fn add_write(caller: &Caller, servers: &Servers, broker: &str) -> Outcomes<u64> {
    tell_all(servers, |server| async move {
        change(caller, &server, request::ADD_WRITE_PERM_OF_BROKER, "addTopicCount", broker).await
    })
    .await
}

async fn change(
    caller: &Caller,
    server: &HostPort,
    code: i32,
    counts: &'static str,
    broker: &str,
) -> Result<u64, CallError> {
    let answer = caller.call(server, request(code, &[("brokerName", broker)])).await?;
    let answer: Answer = answer.success(server)?;
    let count = answer.field(counts).ok_or_else(|| CallError::malformed(server, Fault::Field(counts)))?;
    match count.parse() {
        Ok(0) => Err(CallError::not_found(server, Missing::Broker(broker.to_owned()))),
        Ok(count) => Ok(count),
        Err(_) => Err(CallError::malformed(server, Fault::Field(counts))),
    }
}

#[cfg(test)]
mod tests {
    use super::letters;

    #[test]
    fn bits_have_letters_and_unknown_ones_stay_visible() {
        for (perm, text) in [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"), (14, "RW-+8")] {
            assert_eq!(letters(perm), text);
        }
    }
}

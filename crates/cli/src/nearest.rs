//! Names that may have been meant.

use std::time::Duration;

use waypost_net::address::AddressList;

use crate::call::Caller;
use crate::everywhere::tell_all;
use crate::first::NoAnswer;
use crate::servers::Servers;
use crate::topics;
use waypost_net::plain::plain;

/// How long the list of topics may take: somebody waits for an answer that is known already.
const LIMIT: Duration = Duration::from_millis(200);

/// The largest list that is looked through, in bytes: a list of 20,000 topics.
const LIST_MAX: usize = 1024 * 1024;

/// Names that are told at most.
const TOLD_MAX: usize = 3;

/// A short name that is a part of a long one says nothing.
const PART_MIN: usize = 3;

/// A question for the names that are nearest to `topic`, of which `error` says that no server has it. `None` if no server
/// said so, if their lists are long or late, or if no name is near.
pub async fn did_you_mean(caller: &Caller, topic: &str, error: &NoAnswer) -> Option<String> {
    let servers: AddressList = error.without_topic().cloned().collect();
    let servers = Servers::of(servers)?;
    let caller = Caller { limit: LIMIT.min(caller.limit), answer_max: LIST_MAX, ..caller.clone() };
    let lists = tell_all(&servers, |server| {
        let caller = &caller;
        async move { topics::all(caller, &server).await }
    });
    let lists = lists.await.by_server.into_iter().filter_map(|(_, list)| list.ok());
    let names = nearest(topic, lists.flatten());
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{}\"", plain(name))).collect();
    (!quoted.is_empty()).then(|| format!("did you mean {}?", quoted.join(" or ")))
}

/// The names that differ least from `meant`, nearest first, each once.
fn nearest(meant: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let mut near: Vec<(usize, String)> =
        names.filter_map(|name| Some((distance(meant, &name)?, name))).collect();
    near.sort_unstable();
    near.dedup();
    near.truncate(TOLD_MAX);
    near.into_iter().map(|(_, name)| name).collect()
}

/// How many characters must be added, left out, replaced or swapped with the next one, but for upper and lower case, to
/// get from one name to the other; `None` if the two are far from each other.
#[must_use]
pub fn distance(from: &str, to: &str) -> Option<usize> {
    let (from, to) = (from.to_lowercase(), to.to_lowercase());
    let (shorter, longer) = {
        let (a, b) = (from.chars().count(), to.chars().count());
        (a.min(b), a.max(b))
    };
    let near = (longer / 3).max(1);
    let is_part = shorter >= PART_MIN && (from.contains(&to) || to.contains(&from));
    // What is much longer is not worth the comparison.
    if is_part {
        return Some(longer - shorter);
    }
    if longer - shorter > near {
        return None;
    }
    let distance = strsim::osa_distance(&from, &to);
    (distance <= near && distance < longer).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first_and_far_ones_not_at_all() {
        let names = ["orders", "orders-eu", "order", "stock", "payments", "ordesr", "order"];
        let near = |meant| nearest(meant, names.iter().map(|name| (*name).to_owned()));
        assert_eq!(near("ordrs"), ["orders", "ordesr"]);
        assert_eq!(near("Payments"), ["payments"]);
        assert_eq!(near("paymnets"), ["payments"]);
        assert_eq!(near("orders-e"), ["orders-eu", "orders", "order"]);
        assert!(near("Nope").is_empty() && near("s").is_empty(), "nothing is near");
    }

    #[test]
    fn short_names_have_to_share_something() {
        for (from, to, expected) in [
            ("T", "T1", Some(1)),
            ("T1", "T2", Some(1)),
            ("T", "X", None),
            ("ab", "ba", Some(1)),
            ("", "a", None),
        ] {
            assert_eq!(distance(from, to), expected, "{from:?} {to:?}");
        }
    }
}

//! What went wrong at several servers, in sentences: what they have in common is told once.

use waypost_net::address::HostPort;

use crate::call::CallError;

/// One sentence for all failures that differ in nothing but the name of the server, in the order of the first of
/// each.
pub fn sentences<'a>(failures: impl IntoIterator<Item = &'a CallError>) -> Vec<String> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for failure in failures {
        let key = without_name(failure);
        match groups.iter_mut().find(|group| group.key == key) {
            Some(group) => group.others.push(failure.server()),
            None => groups.push(Group { key, first: failure, others: Vec::new() }),
        }
    }
    groups.iter().map(Group::sentence).collect()
}

/// Failures that say the same.
struct Group<'a> {
    /// What they say, without the name.
    key: String,
    first: &'a CallError,
    others: Vec<&'a HostPort>,
}

impl Group<'_> {
    fn sentence(&self) -> String {
        let Some((last, before)) = self.others.split_last() else { return self.first.to_string() };
        let before: Vec<String> = before.iter().map(ToString::to_string).collect();
        let names =
            if before.is_empty() { last.to_string() } else { format!("{} and {last}", before.join(", ")) };
        if self.first.is_unanswered() {
            format!("{} (the same goes for {names})", self.first)
        } else {
            format!("{} ({names} answered the same)", self.first)
        }
    }
}

fn without_name(failure: &CallError) -> String {
    failure.to_string().replace(&failure.server().to_string(), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Missing, Reason};

    fn unknown(server: &str, topic: &str) -> CallError {
        CallError::not_found(&server.parse().expect("an address"), Missing::Topic(topic.into()))
    }

    fn closed(server: &str) -> CallError {
        let server: HostPort = server.parse().expect("an address");
        CallError::Unanswered { server: server.clone(), reason: Reason::Closed { server } }
    }

    #[test]
    fn equal_answers_are_told_once() {
        let failures = [unknown("a:1", "T"), closed("b:1"), unknown("c:1", "T"), unknown("d:1", "T")];
        let told = sentences(&failures);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("a:1 has no route for topic \"T\""), "{told:?}");
        assert!(told[0].ends_with(" (c:1 and d:1 answered the same)"), "{told:?}");
        assert_eq!(told[1], closed("b:1").to_string());
    }

    #[test]
    fn failures_that_differ_are_all_told() {
        let failures = [unknown("a:1", "T"), unknown("b:1", "U"), closed("c:1")];
        assert_eq!(sentences(&failures), failures.each_ref().map(ToString::to_string));
    }

    #[test]
    fn servers_that_do_not_answer_are_not_said_to_have_answered() {
        let told = sentences(&[closed("a:1"), closed("b:1"), closed("c:1"), closed("d:1")]);
        assert_eq!(told.len(), 1);
        assert!(told[0].ends_with(" (the same goes for b:1, c:1 and d:1)"), "{told:?}");
    }
}

//! Names as they are seen on real clusters.

/// What the topics of a shop are about.
const DOMAINS: [&str; 10] =
    ["order", "payment", "stock", "user", "coupon", "delivery", "search", "ledger", "refund", "invoice"];

/// `count` distinct topic names of about a dozen characters. One in ten is a consumer group's retry topic.
///
/// The order is that of a hash map, as in the bodies of real brokers: neighbours have nothing in common.
pub fn topics(count: usize) -> Vec<String> {
    // A stride without a common divisor visits every index once.
    let mut stride = (count * 618 / 1000).max(1);
    while gcd(stride, count) != 1 {
        stride += 1;
    }
    (0..count).map(|position| topic(position * stride % count.max(1))).collect()
}

fn topic(index: usize) -> String {
    let domain = DOMAINS[index % DOMAINS.len()];
    let number = index / DOMAINS.len();
    if number % 10 == 9 { format!("%RETRY%{domain}{number:04}") } else { format!("{domain}-{number:04}") }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The name of the `index`-th simulated broker.
pub fn broker(index: usize) -> String {
    format!("broker-prod-{}", index + 1)
}

/// The address that the `index`-th simulated broker announces. Nobody connects to it.
pub fn broker_address(index: usize) -> String {
    format!("10.20.30.{}:10911", 11 + index)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn topic_names_are_distinct() {
        for count in [1, 2, 10, 1_000, 50_000] {
            let names: HashSet<_> = super::topics(count).into_iter().collect();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn fifty_thousand_topic_names_are_about_a_dozen_characters_long() {
        let total: usize = super::topics(50_000).iter().map(String::len).sum();
        assert!((10..14).contains(&(total / 50_000)), "{}", total / 50_000);
    }
}

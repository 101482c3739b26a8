//! Ports for peers that cannot be told to take any free one.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Where the search starts and ends: below the range from which Linux picks ports of outgoing connections, so
/// that a port found free stays free until the peer binds it.
const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;

/// A broker at port `p` takes `p - 2` (its fast listener), `p` and `p + 1` (high availability).
const BROKER_SPAN: u16 = 4;

/// A port on which nothing listens, never handed out twice by this process.
pub fn free_port() -> u16 {
    free_run(1)
}

/// A port `p` such that `p - 2`, `p - 1`, `p` and `p + 1` are free: what a broker takes when it listens on `p`.
pub fn free_broker_port() -> u16 {
    free_run(BROKER_SPAN) + 2
}

fn free_run(length: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = LAST - FIRST;
    for _ in 0..span {
        let offset =
            NEXT.fetch_add(length, Ordering::Relaxed).wrapping_add(own_offset()) % (span - BROKER_SPAN);
        let first = FIRST + offset;
        // All are held until the last one is found free.
        let probes: Result<Vec<_>, _> =
            (first..first + length).map(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))).collect();
        if probes.is_ok() {
            return first;
        }
    }
    panic!("no {length} free ports in a row between {FIRST} and {LAST}");
}

/// Test programs that run at the same time start their search at different places.
fn own_offset() -> u16 {
    u16::try_from(std::process::id() % 997).expect("below 997") * 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_brokers_never_share_a_port() {
        let (first, second) = (free_broker_port(), free_broker_port());
        assert!(first.abs_diff(second) >= BROKER_SPAN, "{first} and {second} overlap");
    }
}

//! PROXY preambles: the address in one counts only if the network that it comes from is trusted.

use std::net::Ipv4Addr;

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Client, Server, Settings};

const PROXY: [u8; 3] = [0, 7, 7];
const STRANGER: [u8; 3] = [0, 8, 8];

fn settings() -> Settings {
    Settings::new()
        .with("bindAddress", "0.0.0.0")
        .with("proxyProtocolTrusted", "127.0.7.7/32")
        .with("accessAdmin", "192.0.2.0/24")
        .with("accessConfig", "none")
}

/// Version 1: a line of text.
fn line(source: &str) -> Vec<u8> {
    format!("PROXY TCP4 {source} 10.0.0.1 4567 9876\r\n").into_bytes()
}

/// Version 2: binary, with a list of extras that nobody here reads.
fn block(command: u8, source: Ipv4Addr) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([0x20 | command, 0x11, 0, 12 + 5]);
    bytes.extend(source.octets());
    bytes.extend([10, 0, 0, 1, 0x11, 0xd7, 0x26, 0x94]);
    bytes.extend([0x04, 0, 2, b'h', b'i']);
    bytes
}

/// The code of a request of operators (205), sent behind `preamble`.
fn admin_code(mut client: Client, preamble: &[u8]) -> Option<i32> {
    client.send(preamble);
    client
        .try_call(&Request { ext: &[("brokerName", "broker-a")], ..Request::new(205) })
        .map(|answer| answer.code)
}

#[test]
fn only_trusted_proxies_say_for_whom_they_speak() {
    let mut server = Server::start(&settings());
    let (allowed, other) = (Ipv4Addr::new(192, 0, 2, 9), Ipv4Addr::new(203, 0, 113, 9));
    let preambles = [
        ("v1, allowed", line("192.0.2.9"), 0),
        ("v1, another", line("203.0.113.9"), 16),
        ("v1, unknown", b"PROXY UNKNOWN\r\n".to_vec(), 16),
        ("v1, IPv6 form of the allowed", b"PROXY TCP6 ::ffff:192.0.2.9 ::1 4567 9876\r\n".to_vec(), 0),
        ("v2, allowed", block(1, allowed), 0),
        ("v2, another", block(1, other), 16),
        ("v2, the proxy itself", block(0, allowed), 16),
        ("none", Vec::new(), 16),
    ];
    for (name, preamble, expected) in preambles {
        let trusted = admin_code(server.client_from(PROXY), &preamble);
        assert_eq!(trusted, Some(expected), "{name} from the trusted proxy");
        let claimed = admin_code(server.client_from(STRANGER), &preamble);
        assert_eq!(claimed, Some(16), "{name} from a stranger");
    }
    // The log and the audit name the address that was believed.
    server.expect_log("peer=203.0.113.9:4567");
    assert!(server.log_lines("peer=192.0.2.9:4567").iter().all(|line| !line.contains("refused")));
    server.expect_log("peer=127.0.8.8");
    server.assert_alive();
}

#[test]
fn malformed_preambles_close_the_connection() {
    let mut server = Server::start(&settings());
    let preambles = [
        b"PROXY TCP4 nonsense\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.9 10.0.0.1 4567 98765\r\n".to_vec(),
        [b"PROXY TCP4 ", &[b'1'; 200][..]].concat(),
        [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[0x31, 0x11, 0, 12]].concat(),
        [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[0x21, 0x11, 0, 4, 1, 2, 3, 4]].concat(),
        [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[0x21, 0x11, 0xff, 0xff]].concat(),
    ];
    let count = preambles.len() as u64;
    for preamble in preambles {
        let name = String::from_utf8_lossy(&preamble).into_owned();
        for source in [PROXY, STRANGER] {
            assert_eq!(admin_code(server.client_from(source), &preamble), None, "{name:?}");
        }
    }
    server.expect_count("connections_ended_total", "reason=\"preamble_refused\"", count);
    server.expect_log("connection closed before its first request");
    server.assert_alive();
}

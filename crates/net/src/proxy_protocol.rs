//! The PROXY preamble, versions 1 and 2, by which a load balancer tells whom it speaks for
//! (remoting 15 in `docs/behaviour.md`).
//!
//! [`parse`] is called with all bytes that the connection has sent so far and decides at the first byte
//! that decides: a short first frame never waits for the twelve bytes of a signature.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// The longest version 1 preamble, with its CR LF.
pub const V1_MAX: usize = 107;

/// The longest version 2 preamble that is taken, with its first 16 bytes. The format could say 64 KiB;
/// addresses take at most 216 bytes and balancers add a few hundred.
pub const V2_MAX: usize = 4_096;

const V1_START: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preamble {
    /// So far they could become a preamble.
    NeedMore,
    /// They are not a preamble; nothing is to be skipped.
    None,
    /// They start with a preamble.
    Found {
        /// Its length in bytes: what follows is the connection's own.
        consumed: usize,
        /// Whom the balancer speaks for; `None` if it speaks for itself or does not say.
        source: Option<SocketAddr>,
    },
}

/// Why bytes that start like a preamble are none. The connection cannot be understood any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// No CR LF within [`V1_MAX`] bytes, or a declared length beyond [`V2_MAX`].
    #[error("the PROXY preamble is longer than {limit} bytes")]
    TooLong {
        /// [`V1_MAX`] or [`V2_MAX`].
        limit: usize,
    },
    /// A version 1 line that does not have the words it must have.
    #[error("the PROXY line does not have the form of version 1")]
    MalformedLine,
    /// A version, command, family or protocol that version 2 does not have.
    #[error("the PROXY header has the version and command {version_command:#04x}, family {family:#04x}")]
    UnknownKind {
        /// Byte 12.
        version_command: u8,
        /// Byte 13.
        family: u8,
    },
    /// A version 2 header that is too short for the addresses that it declares.
    #[error("the PROXY header has {length} bytes for addresses that need {needed}")]
    ShortAddresses {
        /// What is there.
        length: usize,
        /// What the family needs.
        needed: usize,
    },
}

/// Looks for a preamble at the start of `bytes`.
///
/// # Errors
///
/// When the bytes start as a preamble does and then break its form.
pub fn parse(bytes: &[u8]) -> Result<Preamble, ProxyError> {
    if bytes.starts_with(V2_SIGNATURE) {
        return parse_v2(bytes);
    }
    if bytes.starts_with(V1_START) {
        return parse_v1(bytes);
    }
    if V2_SIGNATURE.starts_with(bytes) || V1_START.starts_with(bytes) {
        return Ok(Preamble::NeedMore);
    }
    Ok(Preamble::None)
}

fn parse_v1(bytes: &[u8]) -> Result<Preamble, ProxyError> {
    let window = bytes.get(..V1_MAX).unwrap_or(bytes);
    let end = window.windows(2).position(|pair| pair == b"\r\n");
    // A CR may be the last byte that has come; anywhere else before the end it, like any control character
    // or byte beyond ASCII, cannot be in a line.
    let line = end.and_then(|end| window.get(..end));
    let line = line.unwrap_or_else(|| window.strip_suffix(b"\r").unwrap_or(window));
    if !line.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return Err(ProxyError::MalformedLine);
    }
    let Some(length) = end else {
        let full = window.len() >= V1_MAX;
        return if full { Err(ProxyError::TooLong { limit: V1_MAX }) } else { Ok(Preamble::NeedMore) };
    };
    let line = std::str::from_utf8(line).map_err(|_| ProxyError::MalformedLine)?;
    let source = parse_v1_line(line).ok_or(ProxyError::MalformedLine)?;
    Ok(Preamble::Found { consumed: length.saturating_add(2), source })
}

/// `PROXY TCP4|TCP6 source destination source-port destination-port`, or `PROXY UNKNOWN` and anything.
/// The outer `None` is a malformed line.
fn parse_v1_line(line: &str) -> Option<Option<SocketAddr>> {
    let mut words = line.split(' ');
    let _proxy = words.next()?;
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(None);
    }
    let source: IpAddr = words.next()?.parse().ok()?;
    let destination: IpAddr = words.next()?.parse().ok()?;
    let source_port = parse_port(words.next()?)?;
    let _destination_port = parse_port(words.next()?)?;
    let family_fits = match family {
        "TCP4" => source.is_ipv4() && destination.is_ipv4(),
        "TCP6" => source.is_ipv6() && destination.is_ipv6(),
        _ => false,
    };
    (family_fits && words.next().is_none()).then(|| Some(SocketAddr::new(source.to_canonical(), source_port)))
}

fn parse_port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// After the signature: version and command, family and protocol, the length of the rest, addresses, TLVs.
fn parse_v2(bytes: &[u8]) -> Result<Preamble, ProxyError> {
    let rest = bytes.get(V2_SIGNATURE.len()..).unwrap_or_default();
    let [version_command, family, high, low, body @ ..] = rest else {
        return match rest {
            // A wrong version need not wait for the rest.
            [version_command, ..] if version_command & 0xF0 != 0x20 => {
                Err(ProxyError::UnknownKind { version_command: *version_command, family: 0 })
            }
            _ => Ok(Preamble::NeedMore),
        };
    };
    let (version_command, family) = (*version_command, *family);
    let unknown = ProxyError::UnknownKind { version_command, family };
    let needed = match (version_command, family >> 4, family & 0x0F) {
        (0x20 | 0x21, 0, 0..=2) => 0,
        (0x20 | 0x21, 1, 0..=2) => 12,
        (0x20 | 0x21, 2, 0..=2) => 36,
        (0x20 | 0x21, 3, 0..=2) => 216,
        _ => return Err(unknown),
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let consumed = V2_SIGNATURE.len().saturating_add(4).saturating_add(length);
    if consumed > V2_MAX {
        return Err(ProxyError::TooLong { limit: V2_MAX });
    }
    let local = version_command == 0x20;
    if length < needed && !local {
        return Err(ProxyError::ShortAddresses { length, needed });
    }
    let Some(body) = body.get(..length) else { return Ok(Preamble::NeedMore) };
    // A local connection (a health check of the balancer) has no source, whatever stands there.
    let source = if local { None } else { v2_source(family >> 4, body) };
    Ok(Preamble::Found { consumed, source })
}

fn v2_source(family: u8, body: &[u8]) -> Option<SocketAddr> {
    match family {
        1 => {
            let (source, rest) = body.split_first_chunk::<4>()?;
            let port = rest.get(4..)?.first_chunk::<2>()?;
            Some(SocketAddr::new(Ipv4Addr::from(*source).into(), u16::from_be_bytes(*port)))
        }
        2 => {
            let (source, rest) = body.split_first_chunk::<16>()?;
            let port = rest.get(16..)?.first_chunk::<2>()?;
            let source = IpAddr::from(Ipv6Addr::from(*source)).to_canonical();
            Some(SocketAddr::new(source, u16::from_be_bytes(*port)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v2(version_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = V2_SIGNATURE.to_vec();
        bytes.extend([version_command, family]);
        bytes.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn v4_body() -> Vec<u8> {
        [&[192, 0, 2, 1, 10, 0, 0, 1][..], &4567u16.to_be_bytes(), &9876u16.to_be_bytes()].concat()
    }

    fn found(consumed: usize, source: Option<&str>) -> Result<Preamble, ProxyError> {
        Ok(Preamble::Found { consumed, source: source.map(|source| source.parse().unwrap()) })
    }

    #[test]
    fn version_1_lines_tell_the_source() {
        let table = [
            ("PROXY TCP4 192.0.2.1 10.0.0.1 4567 9876\r\n", Some("192.0.2.1:4567")),
            ("PROXY TCP6 2001:db8::1 ::1 65535 9876\r\n", Some("[2001:db8::1]:65535")),
            ("PROXY TCP6 ::ffff:192.0.2.1 ::ffff:10.0.0.1 1 2\r\n", Some("192.0.2.1:1")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
        ];
        for (line, source) in table {
            assert_eq!(parse(line.as_bytes()), found(line.len(), source), "{line}");
            let with_more = [line.as_bytes(), b"\0\0\0\x10 more"].concat();
            assert_eq!(parse(&with_more), found(line.len(), source), "{line}");
        }
    }

    #[test]
    fn malformed_version_1_lines_are_refused() {
        for line in [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 4567\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 4567 9876 1\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 4567 65536\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 +456 9876\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1  4567 9876\r\n",
            "PROXY TCP4 2001:db8::1 ::1 4567 9876\r\n",
            "PROXY TCP6 192.0.2.1 10.0.0.1 4567 9876\r\n",
            "PROXY UDP4 192.0.2.1 10.0.0.1 4567 9876\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 4567 9876\n",
            "PROXY TCP4 192.0.2.1\r10.0.0.1 ",
            "PROXY TCP4 \u{e9}",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(ProxyError::MalformedLine), "{line:?}");
        }
    }

    #[test]
    fn a_version_1_line_without_an_end_is_refused_at_its_bound() {
        let line = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
        assert_eq!(parse(&line[..V1_MAX - 1]), Ok(Preamble::NeedMore));
        assert_eq!(parse(&line[..V1_MAX]), Err(ProxyError::TooLong { limit: V1_MAX }));
        let mut longest = line[..V1_MAX].to_vec();
        longest[V1_MAX - 2..].copy_from_slice(b"\r\n");
        assert_eq!(parse(&longest), found(V1_MAX, None));
    }

    #[test]
    fn version_2_headers_tell_the_source() {
        let tcp4 = v2(0x21, 0x11, &v4_body());
        assert_eq!(parse(&tcp4), found(28, Some("192.0.2.1:4567")));
        let with_tlv = v2(0x21, 0x11, &[&v4_body()[..], &[0x02, 0, 1, b'x']].concat());
        assert_eq!(parse(&with_tlv), found(32, Some("192.0.2.1:4567")));

        let mut body = Vec::new();
        body.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        body.extend(Ipv6Addr::LOCALHOST.octets());
        body.extend([0x11, 0xD7, 0x26, 0x94]);
        assert_eq!(parse(&v2(0x21, 0x21, &body)), found(52, Some("[2001:db8::1]:4567")));

        assert_eq!(parse(&v2(0x20, 0x11, &v4_body())), found(28, None));
        assert_eq!(parse(&v2(0x20, 0x00, &[])), found(16, None));
        assert_eq!(parse(&v2(0x21, 0x00, b"anything")), found(24, None));
        assert_eq!(parse(&v2(0x21, 0x31, &[b'/'; 216])), found(232, None));
    }

    #[test]
    fn malformed_version_2_headers_are_refused() {
        for (version_command, family) in [(0x11, 0x11), (0x22, 0x11), (0x21, 0x41), (0x21, 0x13)] {
            let error = ProxyError::UnknownKind { version_command, family };
            assert_eq!(parse(&v2(version_command, family, &v4_body())), Err(error));
        }
        assert_eq!(
            parse(&v2(0x21, 0x21, &v4_body())),
            Err(ProxyError::ShortAddresses { length: 12, needed: 36 })
        );
        let mut wrong_version = V2_SIGNATURE.to_vec();
        wrong_version.push(0x11);
        assert!(matches!(parse(&wrong_version), Err(ProxyError::UnknownKind { .. })));
        let mut long = v2(0x21, 0x00, &[]);
        long[14..16].copy_from_slice(&4_081u16.to_be_bytes());
        assert_eq!(parse(&long), Err(ProxyError::TooLong { limit: V2_MAX }));
        long[14..16].copy_from_slice(&4_080u16.to_be_bytes());
        assert_eq!(parse(&long), Ok(Preamble::NeedMore));
    }

    #[test]
    fn bytes_that_cannot_become_a_preamble_are_let_go_at_once() {
        for bytes in
            [&b"\0"[..], b"\0\0\0\x84", b"\x16\x03\x01", b"PX", b"PROXX", b"\r\0", b"GET / ", b"\r\n\r\nX"]
        {
            assert_eq!(parse(bytes), Ok(Preamble::None), "{bytes:?}");
        }
        for bytes in [&b""[..], b"P", b"PROXY", b"PROXY ", b"\r", b"\r\n\r\n\0\r\nQUIT"] {
            assert_eq!(parse(bytes), Ok(Preamble::NeedMore), "{bytes:?}");
        }
    }

    #[test]
    fn every_shorter_piece_of_a_preamble_asks_for_more() {
        let line = b"PROXY TCP4 192.0.2.1 10.0.0.1 4567 9876\r\n".to_vec();
        for preamble in [line, v2(0x21, 0x11, &v4_body()), v2(0x20, 0x00, &[])] {
            for length in 0..preamble.len() {
                assert_eq!(parse(&preamble[..length]), Ok(Preamble::NeedMore), "{length}");
            }
        }
    }

    fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
        let start = prop_oneof![
            Just(Vec::new()),
            Just(V1_START.to_vec()),
            Just(b"PROXY TCP4 1.2.3.4 ".to_vec()),
            Just(V2_SIGNATURE.to_vec()),
            Just([V2_SIGNATURE, &[0x21, 0x11, 0]].concat()),
        ];
        (start, proptest::collection::vec(any::<u8>(), 0..160)).prop_map(|(mut start, rest)| {
            start.extend(rest);
            start
        })
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer_within_their_length(bytes in likely_bytes()) {
            if let Ok(Preamble::Found { consumed, .. }) = parse(&bytes) {
                prop_assert!(consumed <= bytes.len());
            }
        }

        #[test]
        fn an_answer_stays_when_more_bytes_come(bytes in likely_bytes(), cut in 0usize..170) {
            let cut = cut.min(bytes.len());
            match parse(&bytes[..cut]) {
                Ok(Preamble::NeedMore) => {}
                Err(ProxyError::UnknownKind { family: 0, .. }) => prop_assert!(parse(&bytes).is_err()),
                decided => prop_assert_eq!(parse(&bytes), decided),
            }
        }

        #[test]
        fn bytes_that_are_enough_never_ask_for_more(bytes in proptest::collection::vec(any::<u8>(), V2_MAX)) {
            prop_assert_ne!(parse(&bytes), Ok(Preamble::NeedMore));
            let line = [V1_START, &bytes].concat();
            prop_assert_ne!(parse(&line), Ok(Preamble::NeedMore));
            let header = [V2_SIGNATURE, &bytes].concat();
            prop_assert_ne!(parse(&header), Ok(Preamble::NeedMore));
        }
    }
}

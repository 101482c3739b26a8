//! What the first bytes of a connection decide: whom it speaks for, and whether it is encrypted
//! (0.3 and remoting 14.1 in `docs/behaviour.md`).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

use crate::network::NetworkList;
use crate::proxy_protocol::{self, Preamble, ProxyError};

/// The first byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// More bytes than any preamble has before its decision.
pub const MAX_PREAMBLE: usize = proxy_protocol::V2_MAX + 1;

/// Whether connections may, must or must not be encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Plain only; a TLS handshake closes the connection.
    Disabled,
    /// Both; TLS needs a certificate, else its handshake closes the connection.
    #[default]
    Permissive,
    /// TLS only.
    Enforcing,
}

/// A text that is no [`TlsMode`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{text}\" is no TLS mode; write disabled, permissive or enforcing")]
pub struct TlsModeError {
    /// What was given.
    pub text: String,
}

impl fmt::Display for TlsMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Disabled => "disabled",
            Self::Permissive => "permissive",
            Self::Enforcing => "enforcing",
        })
    }
}

impl FromStr for TlsMode {
    type Err = TlsModeError;

    fn from_str(text: &str) -> Result<Self, TlsModeError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "disabled" => Ok(Self::Disabled),
            "permissive" => Ok(Self::Permissive),
            "enforcing" => Ok(Self::Enforcing),
            _ => Err(TlsModeError { text: text.to_owned() }),
        }
    }
}

/// What a listener lets in.
#[derive(Clone, Debug, Default)]
pub struct PreamblePolicy {
    /// Plain, encrypted or both.
    pub tls_mode: TlsMode,
    /// Whether there is a certificate to encrypt with.
    pub tls_available: bool,
    /// Whose PROXY preambles are believed. Those of others are consumed and ignored.
    pub trusted_proxies: NetworkList,
}

/// What to do with a connection whose first bytes are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Read on, then decide with all bytes again.
    NeedMore,
    /// Serve the connection as it is.
    Plain {
        /// How many of the first bytes to skip.
        consumed: usize,
        /// Whom the peer speaks for, if it may say so.
        source: Option<SocketAddr>,
    },
    /// Start TLS with the bytes that follow.
    Tls {
        /// How many of the first bytes to skip.
        consumed: usize,
        /// Whom the peer speaks for, if it may say so.
        source: Option<SocketAddr>,
    },
    /// Close the connection without a word.
    Close(CloseReason),
}

/// Why a connection is closed before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// TLS where the mode is [`TlsMode::Disabled`].
    #[error("the peer starts TLS, which this server has disabled")]
    TlsDisabled,
    /// TLS where no certificate is configured.
    #[error("the peer starts TLS, but this server has no certificate; configure a certificate and its key")]
    TlsWithoutCertificate,
    /// Plain bytes where the mode is [`TlsMode::Enforcing`].
    #[error("the peer does not start TLS, which this server enforces")]
    PlainRefused,
    /// Bytes that start as a PROXY preamble and break its form.
    #[error("{0}")]
    MalformedProxy(#[from] ProxyError),
}

impl PreamblePolicy {
    /// Decides by all `bytes` that `peer` has sent so far, at the first byte that decides. After
    /// [`MAX_PREAMBLE`] bytes it never needs more.
    pub fn decide(&self, bytes: &[u8], peer: IpAddr) -> Decision {
        let (consumed, claimed) = match proxy_protocol::parse(bytes) {
            Ok(Preamble::NeedMore) => return Decision::NeedMore,
            Ok(Preamble::None) => (0, None),
            Ok(Preamble::Found { consumed, source }) => (consumed, source),
            Err(error) => return Decision::Close(CloseReason::MalformedProxy(error)),
        };
        let Some(first) = bytes.get(consumed) else { return Decision::NeedMore };
        let source = claimed.filter(|_| self.trusted_proxies.contains(peer));
        match (*first == TLS_HANDSHAKE, self.tls_mode) {
            (false, TlsMode::Disabled | TlsMode::Permissive) => Decision::Plain { consumed, source },
            (false, TlsMode::Enforcing) => Decision::Close(CloseReason::PlainRefused),
            (true, TlsMode::Disabled) => Decision::Close(CloseReason::TlsDisabled),
            (true, _) if !self.tls_available => Decision::Close(CloseReason::TlsWithoutCertificate),
            (true, _) => Decision::Tls { consumed, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 10.0.0.1 4567 9876\r\n";

    fn policy(tls_mode: TlsMode, tls_available: bool) -> PreamblePolicy {
        PreamblePolicy { tls_mode, tls_available, trusted_proxies: "10.0.0.0/8".parse().unwrap() }
    }

    fn decide(mode: TlsMode, available: bool, bytes: &[u8]) -> Decision {
        policy(mode, available).decide(bytes, "10.0.0.9".parse().unwrap())
    }

    #[test]
    fn the_first_byte_and_the_mode_decide() {
        use TlsMode::{Disabled, Enforcing, Permissive};
        let plain = Decision::Plain { consumed: 0, source: None };
        let tls = Decision::Tls { consumed: 0, source: None };
        let table = [
            (Disabled, true, 0x00, plain),
            (Disabled, true, 0x16, Decision::Close(CloseReason::TlsDisabled)),
            (Permissive, true, 0x00, plain),
            (Permissive, true, 0x16, tls),
            (Permissive, false, 0x00, plain),
            (Permissive, false, 0x16, Decision::Close(CloseReason::TlsWithoutCertificate)),
            (Enforcing, true, 0x00, Decision::Close(CloseReason::PlainRefused)),
            (Enforcing, true, 0x16, tls),
            (Enforcing, false, 0x16, Decision::Close(CloseReason::TlsWithoutCertificate)),
        ];
        for (mode, available, first, expected) in table {
            assert_eq!(decide(mode, available, &[first]), expected, "{mode} {available} {first}");
        }
    }

    #[test]
    fn nothing_is_decided_before_the_byte_after_the_preamble() {
        assert_eq!(decide(TlsMode::Permissive, true, b""), Decision::NeedMore);
        assert_eq!(decide(TlsMode::Permissive, true, &LINE[..20]), Decision::NeedMore);
        assert_eq!(decide(TlsMode::Permissive, true, LINE), Decision::NeedMore);
    }

    #[test]
    fn a_trusted_proxy_tells_the_source_and_others_are_ignored() {
        let source = Some("192.0.2.1:4567".parse().unwrap());
        let plain = [LINE, b"\0"].concat();
        let encrypted = [LINE, b"\x16"].concat();
        let consumed = LINE.len();
        let policy = policy(TlsMode::Permissive, true);
        for peer in ["10.0.0.9", "::ffff:10.0.0.9"] {
            let peer = peer.parse().unwrap();
            assert_eq!(policy.decide(&plain, peer), Decision::Plain { consumed, source });
            assert_eq!(policy.decide(&encrypted, peer), Decision::Tls { consumed, source });
        }
        let stranger = "203.0.113.7".parse().unwrap();
        assert_eq!(policy.decide(&plain, stranger), Decision::Plain { consumed, source: None });
        assert_eq!(policy.decide(&encrypted, stranger), Decision::Tls { consumed, source: None });
    }

    #[test]
    fn a_broken_proxy_preamble_closes() {
        let decision = decide(TlsMode::Permissive, true, b"PROXY TCP4 nonsense\r\n");
        assert_eq!(decision, Decision::Close(CloseReason::MalformedProxy(ProxyError::MalformedLine)));
    }

    #[test]
    fn modes_are_read_in_any_case_and_written_in_lower_case() {
        for mode in [TlsMode::Disabled, TlsMode::Permissive, TlsMode::Enforcing] {
            assert_eq!(mode.to_string().to_uppercase().parse(), Ok(mode));
        }
        let error = "on".parse::<TlsMode>().unwrap_err();
        assert_eq!(error.to_string(), "\"on\" is no TLS mode; write disabled, permissive or enforcing");
    }

    proptest! {
        #[test]
        fn enough_bytes_always_decide(bytes in proptest::collection::vec(any::<u8>(), MAX_PREAMBLE)) {
            prop_assert_ne!(decide(TlsMode::Permissive, true, &bytes), Decision::NeedMore);
        }
    }
}

//! What a Waypost server tells beyond the protocol: its `/v1/table` over HTTP.

use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use waypost_net::address::{AddressError, Host, HostPort};
use waypost_net::dialer::{DialError, Dialer};

use waypost_net::plain::plain;

/// The port of the admin side unless another is set.
pub const DEFAULT_ADMIN_PORT: u16 = 9880;

/// How long a server that was not asked for by `--admin` may take: it only adds columns.
pub const UNASKED_LIMIT: Duration = Duration::from_millis(200);

/// The largest answer that is taken, in bytes.
const ANSWER_MAX: u64 = 256 * 1024 * 1024;

/// Where a server's admin side is: `http://host:port`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminUrl {
    address: HostPort,
}

/// Why a text is no [`AdminUrl`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AdminUrlError {
    /// It is encrypted, which the admin side is not.
    #[error("the admin side speaks http, not https; write http://HOST:9880")]
    Encrypted,
    /// There is a path.
    #[error("write only http://HOST:PORT, without a path")]
    Path,
    /// The address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl FromStr for AdminUrl {
    type Err = AdminUrlError;

    /// Reads `http://host:9880`; the scheme and the port may be left out.
    fn from_str(text: &str) -> Result<Self, AdminUrlError> {
        if text.starts_with("https://") {
            return Err(AdminUrlError::Encrypted);
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('/') {
            return Err(AdminUrlError::Path);
        }
        Ok(Self { address: HostPort::parse_with_port(rest, DEFAULT_ADMIN_PORT)? })
    }
}

impl std::fmt::Display for AdminUrl {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "http://{}", self.address)
    }
}

/// Where the admin side of `server` is unless somebody changed it: only servers on this machine have one
/// that can be reached.
#[must_use]
pub fn usual_place(server: &HostPort) -> Option<AdminUrl> {
    let local = match &server.host {
        Host::Ip(address) => address.is_loopback(),
        Host::Name(name) => name == "localhost",
    };
    // It listens on the IPv4 loopback.
    let host = Host::Ip(IpAddr::from([127, 0, 0, 1]));
    local.then_some(AdminUrl { address: HostPort { host, port: DEFAULT_ADMIN_PORT } })
}

/// The live table of a server, or a part of it.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
pub struct LiveTable {
    /// What the server listens on, to know it from another one on the same machine.
    #[serde(default)]
    pub listening: Vec<String>,
    /// Brokers by address.
    #[serde(default)]
    pub brokers: Vec<LiveBroker>,
    /// Topics by name.
    #[serde(default)]
    pub topics: Vec<LiveTopic>,
    /// Topics that were deleted while brokers have them.
    #[serde(default)]
    pub deleted: Vec<LiveDeleted>,
}

impl LiveTable {
    /// Whether this is the table of `server`, which is on this machine.
    pub(crate) fn is_of(&self, server: &HostPort) -> bool {
        self.listening.iter().filter_map(|address| address.parse().ok()).any(|listening: HostPort| {
            let same_host = match (&listening.host, &server.host) {
                (Host::Ip(listening), Host::Ip(asked)) => listening.is_unspecified() || listening == asked,
                (Host::Name(_), _) | (_, Host::Name(_)) => true,
            };
            same_host && listening.port == server.port
        })
    }

    /// What to tell who asked for the table of `server` and got this one.
    fn of_another(&self, url: &AdminUrl, server: &HostPort) -> Option<String> {
        // Something that does not say who it is may be no server at all.
        let listening = self.listening.iter().map(|address| plain(address)).collect::<Vec<_>>().join(", ");
        (!listening.is_empty()).then(|| {
            format!(
                "no details: the admin side at {url} belongs to another server, which listens on {listening}; name \
                 that of {server} with --admin"
            )
        })
    }
}

/// A broker of the live table. Times are in milliseconds.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LiveBroker {
    /// Broker name.
    pub broker: String,
    /// Broker id.
    pub id: i64,
    /// Advertised address.
    pub address: String,
    /// Replication address.
    pub ha_address: Option<String>,
    /// Since 1970.
    pub registered_at_ms: u64,
    /// Since 1970.
    pub last_heartbeat_at_ms: u64,
    /// Before the answer was made.
    pub last_heartbeat_age_ms: u64,
    /// Removed after this long without a sign of life.
    pub timeout_ms: u64,
    /// Set while its connection is broken by time-out.
    pub removed_in_ms: Option<u64>,
    /// The data version that it announced last.
    pub data_version: LiveDataVersion,
    /// The other end of its connection.
    pub peer: Option<String>,
}

/// A data version of the live table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LiveDataVersion {
    /// Orders registrations of one id.
    pub state_version: i64,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Counts changes.
    pub counter: i64,
}

/// A topic of the live table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LiveTopic {
    /// The topic.
    pub topic: String,
    /// Its queues by broker name.
    pub queues: Vec<LiveQueues>,
}

/// A deleted topic of the live table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LiveDeleted {
    /// The topic.
    pub topic: String,
    /// The broker names that had announced it.
    pub brokers: Vec<String>,
    /// How long ago it was deleted, in milliseconds.
    pub deleted_age_ms: u64,
}

/// The queues of a topic on one broker name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LiveQueues {
    /// Broker name.
    pub broker: String,
    /// What readers get.
    pub perm: i32,
    /// What the broker announced.
    pub announced_perm: i32,
}

/// Why there is no live table.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LiveTableError {
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection broke.
    #[error("the admin side at {url} broke the connection: {source}")]
    Broken {
        /// Where.
        url: AdminUrl,
        /// What the system said.
        source: io::Error,
    },
    /// No answer in time.
    #[error("the admin side at {url} did not answer within {limit:?}")]
    Silent {
        /// Where.
        url: AdminUrl,
        /// The time that was given.
        limit: Duration,
    },
    /// Not a table.
    #[error("{url} answered something else than the table of a Waypost server: {reason}")]
    Strange {
        /// Where.
        url: AdminUrl,
        /// What is wrong with it.
        reason: String,
    },
}

/// Asks for the table; `query` is the part of the URL behind `?`, already encoded.
///
/// # Errors
///
/// Why there is none.
pub async fn fetch(url: &AdminUrl, query: &str, limit: Duration) -> Result<LiveTable, LiveTableError> {
    let path = format!("/v1/table?{query}");
    let (status, body) = get(url, &path, limit).await?;
    let strange = |reason: String| LiveTableError::Strange { url: url.clone(), reason };
    if status != 200 {
        return Err(strange(format!("HTTP status {status}")));
    }
    serde_json::from_slice(&body).map_err(|error| strange(error.to_string()))
}

/// One GET: the status and the body.
///
/// # Errors
///
/// When there is no whole answer within `limit`.
pub async fn get(url: &AdminUrl, path: &str, limit: Duration) -> Result<(u16, Vec<u8>), LiveTableError> {
    let broken = |source| LiveTableError::Broken { url: url.clone(), source };
    let exchange = async {
        let mut stream = Dialer::default().dial(&url.address, limit).await?;
        // By its address: an admin side takes only names that its operator listed.
        let host = stream.peer().map_err(broken)?;
        // With 1.0 the answer ends with the connection and never comes in chunks.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(broken)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_MAX).read_to_end(&mut answer).await.map_err(broken)?;
        Ok::<_, LiveTableError>(answer)
    };
    let answer = match timeout(limit, exchange).await {
        Ok(answer) => answer?,
        Err(_) => return Err(LiveTableError::Silent { url: url.clone(), limit }),
    };
    split(&answer).ok_or_else(|| {
        let reason = "it is no HTTP".to_owned();
        LiveTableError::Strange { url: url.clone(), reason }
    })
}

/// Status and body of a whole answer.
fn split(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(answer.get(..end)?).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.get(end.checked_add(4)?..)?.to_vec()))
}

/// A text as the value of a query.
#[must_use]
pub fn query_text(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// What the admin side adds to an answer of `server`: asked for by `url`, or tried at its usual place.
///
/// The second is a note for the user when an admin side that was asked for gave nothing.
pub async fn details(
    url: Option<&AdminUrl>,
    server: &HostPort,
    query: &str,
    limit: Duration,
) -> (Option<LiveTable>, Option<String>) {
    if let Some(url) = url {
        return match fetch(url, query, limit).await {
            // Behind a translation of addresses it may listen elsewhere, so whoever named it is believed.
            Ok(table) => (Some(table), None),
            Err(error) => (None, Some(format!("no details: {error}"))),
        };
    }
    let Some(url) = usual_place(server) else { return (None, None) };
    match fetch(&url, query, UNASKED_LIMIT.min(limit)).await {
        Ok(table) if table.is_of(server) => (Some(table), None),
        Ok(table) => (None, table.of_another(&url, server)),
        // Most servers have no admin side.
        Err(_) => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_with_scheme_and_port_left_out() {
        let table = [
            ("http://a:1", "http://a:1"),
            ("http://a/", "http://a:9880"),
            ("127.0.0.1", "http://127.0.0.1:9880"),
            ("[::1]:80", "http://[::1]:80"),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<AdminUrl>().expect(text).to_string(), expected);
        }
        assert_eq!("https://a".parse::<AdminUrl>(), Err(AdminUrlError::Encrypted));
        assert_eq!("http://a:1/v1/table".parse::<AdminUrl>(), Err(AdminUrlError::Path));
    }

    #[test]
    fn only_servers_on_this_machine_have_a_usual_place() {
        for (server, place) in [
            ("127.0.0.1:9876", true),
            ("localhost:1", true),
            ("[::1]:9876", true),
            ("10.0.0.1:9876", false),
            ("a:9876", false),
        ] {
            let server: HostPort = server.parse().expect("an address");
            assert_eq!(usual_place(&server).is_some(), place, "{server}");
        }
    }

    #[test]
    fn a_table_of_another_server_of_this_machine_is_told_with_a_note() {
        for (listening, asked, own) in [
            (&["127.0.0.1:9876"][..], "127.0.0.1:9876", true),
            (&["127.0.0.1:9876"], "localhost:9876", true),
            (&["0.0.0.0:9876"], "127.0.0.2:9876", true),
            (&["[::]:9876"], "127.0.0.1:9876", true),
            (&["0.0.0.0:9875", "0.0.0.0:9876"], "127.0.0.1:9876", true),
            (&["127.0.0.1:9876"], "127.0.0.2:9876", false),
            (&["127.0.0.1:9877"], "127.0.0.1:9876", false),
        ] {
            let table = LiveTable {
                listening: listening.iter().map(|it| (*it).to_owned()).collect(),
                ..LiveTable::default()
            };
            let server: HostPort = asked.parse().expect("an address");
            assert_eq!(table.is_of(&server), own, "{listening:?} for {asked}");
            let url = usual_place(&server).expect("it is on this machine");
            let note = table.of_another(&url, &server).expect("it says where it listens");
            assert!(note.contains("http://127.0.0.1:9880 belongs to another server"), "{note}");
            assert!(note.contains(listening[0]) && note.contains(asked), "{note}");
        }
        let (url, server) = ("a".parse().expect("a URL"), "a:1".parse().expect("an address"));
        assert_eq!(LiveTable::default().of_another(&url, &server), None, "it does not say who it is");
    }

    #[test]
    fn names_are_encoded_for_a_query() {
        assert_eq!(query_text("%RETRY%a b&c=ü"), "%25RETRY%25a%20b%26c%3D%C3%BC");
    }

    #[test]
    fn answers_are_split_into_status_and_body() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nbody";
        assert_eq!(split(answer), Some((200, b"body".to_vec())));
        assert_eq!(split(b"SSH-2.0-x\r\n\r\n"), None);
        assert_eq!(split(b""), None);
    }
}

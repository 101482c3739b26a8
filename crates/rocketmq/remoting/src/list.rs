//! The one reader for lists of name servers, wherever they come from: options, variables, files, address servers.
//!
//! People write these lists for Java and Go clients too, and each of those takes what the other does not. So
//! everything is taken that can only mean one thing:
//!
//! * `;`, commas, blanks and line ends separate; empty entries and repeated addresses do not count;
//! * a missing port is [`DEFAULT_PORT`];
//! * IPv6 addresses stand with or without brackets; without them the last group is the port if what is left is an
//!   address, too;
//! * `http://`, `https://` and `tcp://` in front are dropped, and a path before the address, as in the endpoints of the
//!   original (spec B1.1).

use std::fmt;

use thiserror::Error;
use waypost_net::address::{AddressError, AddressList, Host, HostPort};

/// The port that a name server has unless another is named.
pub const DEFAULT_PORT: u16 = 9876;

/// What may stand in front of an address. It says nothing: whether a connection is encrypted is decided elsewhere.
const SCHEMES: [&str; 3] = ["http", "https", "tcp"];

/// What a text of addresses holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The servers, in the order of the text, each once.
    pub servers: AddressList,
    /// Entries that are no server.
    pub left_out: Vec<EntryError>,
}

/// An entry that is no server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("entry {position} of the name server list: {fault}")]
pub struct EntryError {
    /// Which entry, counted from 1; empty ones do not count.
    pub position: usize,
    /// What is wrong with it.
    pub fault: EntryFault,
}

/// Why an entry is no server. The message names the entry and says how to write it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EntryFault {
    /// A number between separators. A host without a port in front of it is left out, too: which port it has is open.
    #[error("{entry:?} is a port without a host, {}", meant(.host.as_ref(), .entry))]
    NumberAlone {
        /// The entry.
        entry: String,
        /// The entry before it, if that has no port.
        host: Option<Host>,
    },
    /// Nobody listens on port 0.
    #[error("{entry:?} has the port 0; write a port from 1 to 65535, most name servers have {DEFAULT_PORT}")]
    PortZero {
        /// The entry.
        entry: String,
    },
    /// Four numbers or more that are no IPv4 address.
    #[error("{entry:?} is no IPv4 address; write it as 127.0.0.1:{DEFAULT_PORT}")]
    Numbers {
        /// The entry.
        entry: String,
    },
    /// Something that is no name server's.
    #[error("{entry:?} has the scheme {scheme:?}; write host:{DEFAULT_PORT}")]
    Scheme {
        /// The entry.
        entry: String,
        /// What stands before `://`.
        scheme: String,
    },
    /// There is something behind the address.
    #[error("{entry:?} has a path; write host:{DEFAULT_PORT} without one")]
    Path {
        /// The entry.
        entry: String,
    },
    /// It is no address.
    #[error("{error}{hint}", error = .0, hint = hint(.0))]
    Address(AddressError),
}

fn meant(host: Option<&Host>, entry: &str) -> String {
    let port = entry.trim_start_matches(':');
    match (host, port.parse::<u16>()) {
        (Some(host), Ok(port)) => {
            format!(
                "a separator stands for a colon: did you mean \"{}\"?",
                HostPort { host: host.clone(), port }
            )
        }
        (_, Ok(port)) => format!("write host:{port}"),
        (_, Err(_)) => format!("and too large for one; write host:{DEFAULT_PORT}"),
    }
}

fn hint(error: &AddressError) -> String {
    match error {
        AddressError::BadPort { .. } | AddressError::BadHost { .. } => format!("; write host:{DEFAULT_PORT}"),
        // The others say it themselves.
        _ => String::new(),
    }
}

/// Reads a list.
#[must_use]
pub fn read(text: &str) -> Reading {
    let mut reader = Reader::default();
    for (position, entry) in (1..).zip(entries(text)) {
        reader.take(position, entry);
    }
    reader.finish()
}

/// Reads a list in a file, where `#` begins a remark.
#[must_use]
pub fn read_file(text: &str) -> Reading {
    // Editors of some systems begin a file with a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let lines: Vec<&str> = text.lines().map(|line| line.split('#').next().unwrap_or_default()).collect();
    read(&lines.join("\n"))
}

/// Whether nothing stands there, so that the text is as good as none.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    entries(text).next().is_none()
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    let separates = |character: char| matches!(character, ';' | ',') || character.is_whitespace();
    text.split(separates).filter(|entry| !entry.is_empty())
}

/// A server of the list, and whether its port was written.
struct Entry {
    address: HostPort,
    has_port: bool,
}

#[derive(Default)]
struct Reader {
    servers: Vec<HostPort>,
    left_out: Vec<EntryError>,
    /// The entry before, if it has no port: a number behind it casts doubt on it.
    open: Option<Host>,
}

impl Reader {
    fn take(&mut self, position: usize, entry: &str) {
        let before = self.open.take();
        let read = if is_port(entry) {
            Err(EntryFault::NumberAlone { entry: entry.to_owned(), host: before })
        } else {
            self.settle(before);
            entry_of(entry)
        };
        match read {
            Ok(Entry { address, has_port: true }) => self.servers.push(address),
            Ok(Entry { address, has_port: false }) => self.open = Some(address.host),
            Err(fault) => self.left_out.push(EntryError { position, fault }),
        }
    }

    fn settle(&mut self, open: Option<Host>) {
        self.servers.extend(open.map(|host| HostPort { host, port: DEFAULT_PORT }));
    }

    fn finish(mut self) -> Reading {
        let open = self.open.take();
        self.settle(open);
        Reading { servers: AddressList::from_iter(self.servers), left_out: self.left_out }
    }
}

fn is_port(entry: &str) -> bool {
    let digits = entry.strip_prefix(':').unwrap_or(entry);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn entry_of(entry: &str) -> Result<Entry, EntryFault> {
    let bare = without_scheme(entry)?.trim_end_matches('/');
    let (in_front, last) = bare.rsplit_once('/').map_or(("", bare), |(front, last)| (front, last));
    let address: HostPort = match last.parse() {
        Ok(address) => address,
        // What stands behind a slash is an address only if it has a port; else it is a path.
        Err(_) if !in_front.is_empty() => return Err(EntryFault::Path { entry: entry.to_owned() }),
        Err(AddressError::NoPort { .. }) => {
            let address = HostPort::parse_with_port(last, DEFAULT_PORT).map_err(EntryFault::Address)?;
            return checked(entry, address, false);
        }
        Err(error) => return Err(EntryFault::Address(error)),
    };
    checked(entry, address, true)
}

fn checked(entry: &str, address: HostPort, has_port: bool) -> Result<Entry, EntryFault> {
    let entry = || entry.to_owned();
    if address.port == 0 {
        return Err(EntryFault::PortZero { entry: entry() });
    }
    if matches!(&address.host, Host::Name(name) if is_broken_ipv4(name)) {
        return Err(EntryFault::Numbers { entry: entry() });
    }
    Ok(Entry { address, has_port })
}

/// Resolvers take three numbers, and leading zeros, for an address; what they never take is no name either.
fn is_broken_ipv4(name: &str) -> bool {
    let numbers: Option<Vec<u64>> = name
        .split('.')
        .map(|part| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().unwrap_or(u64::MAX)))
        .collect();
    numbers.is_some_and(|numbers| {
        numbers.len() > 4 || (numbers.len() == 4 && numbers.iter().any(|it| *it > 255))
    })
}

fn without_scheme(entry: &str) -> Result<&str, EntryFault> {
    let Some((scheme, rest)) = entry.split_once("://") else { return Ok(entry) };
    if SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
        return Ok(rest);
    }
    Err(EntryFault::Scheme { entry: entry.to_owned(), scheme: scheme.to_owned() })
}

impl fmt::Display for Reading {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.servers.fmt(formatter)
    }
}

#[cfg(test)]
mod tests;

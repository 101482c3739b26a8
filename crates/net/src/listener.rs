//! Listening sockets, and the limit of open files that they need.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};

/// Connections that may wait to be accepted, by default.
pub const DEFAULT_BACKLOG: u32 = 1_024;

/// Where to listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BindAddress {
    /// On all addresses of both families.
    #[default]
    Any,
    /// On one address. `::` is all addresses of both families, `0.0.0.0` all of IPv4.
    Ip(IpAddr),
    /// On all addresses that a name has.
    Name(String),
}

impl FromStr for BindAddress {
    type Err = std::convert::Infallible;

    /// Nothing, `*` and `any` are all addresses; an address may stand in brackets; anything else is a name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        Ok(match bare.parse() {
            Ok(address) => Self::Ip(address),
            Err(_) if matches!(text, "" | "*" | "any") => Self::Any,
            Err(_) => Self::Name(text.to_owned()),
        })
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("any"),
            Self::Ip(address) => address.fmt(formatter),
            Self::Name(name) => formatter.write_str(name),
        }
    }
}

/// How to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that may wait to be accepted; the system may allow fewer (`net.core.somaxconn`).
    pub backlog: u32,
    /// Bytes of the send buffers of accepted connections; `None` lets the kernel tune them.
    pub send_buffer: Option<usize>,
    /// Bytes of the receive buffers of accepted connections; `None` lets the kernel tune them.
    pub receive_buffer: Option<usize>,
    /// The option by which the operator chose the address, for errors about it.
    pub address_setting: Cow<'static, str>,
    /// The option by which the operator chose the port, for errors about it.
    pub port_setting: Cow<'static, str>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: DEFAULT_BACKLOG,
            send_buffer: None,
            receive_buffer: None,
            address_setting: "bindAddress".into(),
            port_setting: "listenPort".into(),
        }
    }
}

/// Why nothing listens.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another socket has the port.
    #[error(
        "cannot listen on {address}: port {} is in use by another program; stop it (`ss -ltnp` shows it) or \
         choose another port with {port_setting}", address.port()
    )]
    AddressInUse {
        /// What was asked for.
        address: SocketAddr,
        /// [`ListenOptions::port_setting`].
        port_setting: Cow<'static, str>,
    },
    /// No interface of this machine has the address.
    #[error(
        "cannot listen on {address}: no interface of this machine has this address; `ip address` shows those \
         that there are; choose one of them with {address_setting}"
    )]
    AddressNotHere {
        /// What was asked for.
        address: SocketAddr,
        /// [`ListenOptions::address_setting`].
        address_setting: Cow<'static, str>,
    },
    /// The system reserves the port for root.
    #[error(
        "cannot listen on {address}: the system does not permit it; ports below 1024 need root or \
         CAP_NET_BIND_SERVICE, or choose another port with {port_setting}"
    )]
    NotPermitted {
        /// What was asked for.
        address: SocketAddr,
        /// [`ListenOptions::port_setting`].
        port_setting: Cow<'static, str>,
    },
    /// A name that has no address.
    #[error(
        "cannot listen on \"{name}\": the name has no address ({source}); give {address_setting} an IP address"
    )]
    UnknownName {
        /// What was asked for.
        name: String,
        /// [`ListenOptions::address_setting`].
        address_setting: Cow<'static, str>,
        /// What the resolver said.
        source: io::Error,
    },
    /// Any other refusal of the system.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    dual_stack: bool,
}

impl fmt::Display for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let families = if self.dual_stack { " (IPv4 and IPv6)" } else { "" };
        write!(formatter, "{}{families}", self.address)
    }
}

impl Listener {
    /// The address that it is bound to, with the port that it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it accepts IPv4 and IPv6.
    pub fn is_dual_stack(&self) -> bool {
        self.dual_stack
    }

    /// Takes the next connection that waits. The peer's address is as the system says it: on a dual-stack
    /// socket, IPv4 is mapped.
    pub(crate) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.socket.poll_accept(context)
    }
}

/// Listens on `address` and `port`; port 0 lets the system choose one, the same for all addresses of a name.
/// [`BindAddress::Any`] and `::` give one socket for both families, on a host without IPv6 one for IPv4.
/// A name is resolved here, which blocks: this is for the start of a program.
///
/// # Errors
///
/// The first address that cannot be listened on; nothing listens then.
///
/// # Panics
///
/// Outside a tokio runtime.
pub fn bind(address: &BindAddress, port: u16, options: &ListenOptions) -> Result<Vec<Listener>, ListenError> {
    let addresses = match address {
        BindAddress::Any => vec![SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)],
        BindAddress::Ip(address) => vec![SocketAddr::new(*address, port)],
        BindAddress::Name(name) => resolve(name, port, options)?,
    };
    let mut listeners: Vec<Listener> = Vec::with_capacity(addresses.len());
    for mut address in addresses {
        if let Some(first) = listeners.first() {
            address.set_port(first.address.port());
        }
        listeners.push(bind_one(address, options)?);
    }
    Ok(listeners)
}

fn resolve(name: &str, port: u16, options: &ListenOptions) -> Result<Vec<SocketAddr>, ListenError> {
    let unknown = |source| ListenError::UnknownName {
        name: name.to_owned(),
        address_setting: options.address_setting.clone(),
        source,
    };
    let mut addresses: Vec<SocketAddr> = (name, port).to_socket_addrs().map_err(unknown)?.collect();
    addresses.sort();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(unknown(io::ErrorKind::NotFound.into()));
    }
    Ok(addresses)
}

fn bind_one(address: SocketAddr, options: &ListenOptions) -> Result<Listener, ListenError> {
    let everywhere = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match open(address, options) {
        Ok(socket) => finish(socket, address, everywhere, options),
        Err(error) if everywhere && means_no_ipv6(&error) => {
            let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
            let socket = open(address, options).map_err(|source| refused(address, source, options))?;
            finish(socket, address, false, options)
        }
        Err(source) => Err(refused(address, source, options)),
    }
}

fn open(address: SocketAddr, options: &ListenOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A restarted server takes its port back at once, though connections of the last one linger.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // Not left to `net.ipv6.bindv6only`. Only `::` can take IPv4 as well.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Before listening: the window that a connection offers is settled by its first packet.
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

fn finish(
    socket: Socket,
    asked: SocketAddr,
    dual_stack: bool,
    options: &ListenOptions,
) -> Result<Listener, ListenError> {
    let failed = |source| refused(asked, source, options);
    let socket = TcpListener::from_std(socket.into()).map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    Ok(Listener { socket, address, dual_stack })
}

/// What a host says that has no IPv6 in its kernel, or has it switched off.
fn means_no_ipv6(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL | Errno::PROTONOSUPPORT))
}

fn refused(address: SocketAddr, source: io::Error, options: &ListenOptions) -> ListenError {
    let port_setting = options.port_setting.clone();
    match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::AddressInUse { address, port_setting },
        io::ErrorKind::AddrNotAvailable => {
            ListenError::AddressNotHere { address, address_setting: options.address_setting.clone() }
        }
        io::ErrorKind::PermissionDenied => ListenError::NotPermitted { address, port_setting },
        _ => ListenError::System { address, source },
    }
}

/// How many files and sockets this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// What holds now; `u64::MAX` is without limit.
    pub soft: u64,
    /// Up to where the process may raise it.
    pub hard: u64,
    /// What was asked for.
    pub wanted: u64,
}

impl FileLimit {
    /// Whether what was asked for is there.
    pub fn is_enough(&self) -> bool {
        self.soft >= self.wanted
    }
}

impl fmt::Display for FileLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { soft, wanted, .. } = self;
        if self.is_enough() {
            return write!(formatter, "{soft} files may be open");
        }
        write!(
            formatter,
            "{soft} files may be open, but {wanted} are wanted for all connections; raise the hard limit \
             (`ulimit -Hn`, or LimitNOFILE= in the systemd unit)"
        )
    }
}

/// Raises this process's limit of open files to `wanted`, or as far as the system lets it. A limit that is
/// higher stays.
pub fn raise_file_limit(wanted: u64) -> FileLimit {
    let read = || {
        let limit = getrlimit(Resource::Nofile);
        (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX))
    };
    let (soft, hard) = read();
    if soft < wanted {
        if hard < wanted {
            // Root may raise the hard limit; who else tries is refused, and nothing changes.
            let raised = Rlimit { current: Some(wanted), maximum: Some(wanted) };
            let _ = setrlimit(Resource::Nofile, raised);
        }
        let (_, hard) = read();
        let maximum = (hard != u64::MAX).then_some(hard);
        // The caller sees in the result whether it helped.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted.min(hard)), maximum });
    }
    let (soft, hard) = read();
    FileLimit { soft, hard, wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn listen(address: &str) -> Vec<Listener> {
        bind(&address.parse().unwrap(), 0, &ListenOptions::default()).unwrap()
    }

    async fn accepts(listener: &Listener, from: &str) -> bool {
        let target = SocketAddr::new(from.parse().unwrap(), listener.address().port());
        let Ok(dialled) = TcpStream::connect(target).await else { return false };
        let (_accepted, peer) = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
        peer.port() == dialled.local_addr().unwrap().port()
    }

    /// Whether this host has IPv6 on its loopback. Says so once if not, and fails in CI.
    fn has_ipv6() -> bool {
        let there = std::net::TcpListener::bind("[::1]:0").is_ok();
        if !there {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "no IPv6 on the loopback");
            eprintln!("not run: this host has no IPv6 on its loopback");
        }
        there
    }

    #[tokio::test]
    async fn any_and_the_unspecified_ipv6_address_take_both_families() {
        if !has_ipv6() {
            return;
        }
        for address in ["", "*", "any", "::", "[::]"] {
            let listeners = listen(address);
            assert_eq!(listeners.len(), 1);
            assert!(listeners[0].is_dual_stack());
            assert!(listeners[0].to_string().ends_with(" (IPv4 and IPv6)"));
            assert!(accepts(&listeners[0], "127.0.0.1").await, "{address}");
            assert!(accepts(&listeners[0], "::1").await, "{address}");
        }
    }

    #[tokio::test]
    async fn the_unspecified_ipv4_address_takes_ipv4_only() {
        let listeners = listen("0.0.0.0");
        assert!(!listeners[0].is_dual_stack());
        assert!(accepts(&listeners[0], "127.0.0.1").await);
        assert!(!accepts(&listeners[0], "::1").await);
    }

    #[tokio::test]
    async fn an_address_binds_just_that() {
        let listeners = listen("127.0.0.1");
        assert_eq!(listeners[0].address().ip(), IpAddr::from(Ipv4Addr::LOCALHOST));
        assert!(accepts(&listeners[0], "127.0.0.1").await);
        assert!(!accepts(&listeners[0], "127.0.0.2").await);
        if has_ipv6() {
            let listeners = listen("::1");
            assert!(accepts(&listeners[0], "::1").await);
            assert!(!accepts(&listeners[0], "127.0.0.1").await);
        }
    }

    #[tokio::test]
    async fn a_name_binds_all_its_addresses_on_one_port() {
        let listeners = listen("localhost");
        let port = listeners[0].address().port();
        assert!(listeners.iter().all(|listener| listener.address().port() == port));
        assert!(listeners.iter().all(|listener| listener.address().ip().is_loopback()));
    }

    #[tokio::test]
    async fn a_taken_port_is_named_with_the_next_step() {
        for address in ["127.0.0.1", "any"] {
            let taken = listen(address);
            let port = taken[0].address().port();
            let options = ListenOptions { port_setting: "--port".into(), ..ListenOptions::default() };
            let error = bind(&address.parse().unwrap(), port, &options).unwrap_err();
            assert!(matches!(error, ListenError::AddressInUse { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(&format!("port {port} is in use")), "{text}");
            assert!(text.ends_with("choose another port with --port"), "{text}");
        }
    }

    #[tokio::test]
    async fn both_families_on_a_port_that_ipv4_has_are_refused() {
        let taken = listen("0.0.0.0");
        let error =
            bind(&BindAddress::Any, taken[0].address().port(), &ListenOptions::default()).unwrap_err();
        assert!(matches!(error, ListenError::AddressInUse { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn addresses_that_are_not_here_are_refused() {
        let options = ListenOptions::default();
        // 192.0.2.0/24 is for documentation only.
        let error = bind(&"192.0.2.1".parse().unwrap(), 0, &options).unwrap_err();
        assert!(matches!(error, ListenError::AddressNotHere { .. }), "{error:?}");
        let error = bind(&"no-such-host.invalid".parse().unwrap(), 0, &options).unwrap_err();
        assert!(error.to_string().contains("\"no-such-host.invalid\": the name has no address"), "{error}");
    }

    #[tokio::test]
    async fn a_port_is_taken_back_while_old_connections_linger() {
        let listeners = listen("127.0.0.1");
        let address = listeners[0].address();
        let dialled = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = poll_fn(|context| listeners[0].poll_accept(context)).await.unwrap();
        // The side that closes first keeps the port in TIME_WAIT.
        drop(accepted);
        dialled.readable().await.unwrap();
        drop((dialled, listeners));
        bind(&BindAddress::Ip(address.ip()), address.port(), &ListenOptions::default()).unwrap();
    }

    #[test]
    fn hosts_without_ipv6_are_recognised_by_what_they_say() {
        for errno in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL, Errno::PROTONOSUPPORT] {
            assert!(means_no_ipv6(&errno.into()));
        }
        assert!(!means_no_ipv6(&Errno::ADDRINUSE.into()));
    }

    #[test]
    fn the_file_limit_is_raised_as_far_as_it_goes() {
        let before = raise_file_limit(0);
        assert!(before.is_enough());
        let wanted = before.hard.min(before.soft.saturating_add(10));
        let after = raise_file_limit(wanted);
        assert!(after.is_enough(), "{after}");
        assert!(after.soft >= wanted);
        let short = FileLimit { soft: 1_024, hard: 4_096, wanted: 65_600 };
        assert!(short.to_string().contains("1024 files may be open, but 65600 are wanted"));
    }
}

//! What the server counts, from its `/metrics`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::SOON;

/// The samples of one look.
#[derive(Debug)]
pub(crate) struct Metrics(String);

impl Metrics {
    /// Reads them from `admin`.
    pub(crate) fn read(admin: SocketAddr) -> Self {
        let read = || {
            let mut stream = TcpStream::connect_timeout(&admin, SOON)?;
            stream.set_read_timeout(Some(SOON))?;
            write!(stream, "GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            std::io::Result::Ok(text)
        };
        let text = read().unwrap_or_else(|error| panic!("no /metrics from {admin}: {error}"));
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        Self(text)
    }

    /// The sum of all samples of `name` (without the common prefix) whose labels contain `label`, for example
    /// `reason="idle"`; 0 if there is none.
    pub(crate) fn sum(&self, name: &str, label: &str) -> f64 {
        let of_name = |line: &&str| {
            let rest = line.strip_prefix("waypost_nameserver_").and_then(|line| line.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
        };
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        self.0.lines().filter(of_name).filter_map(value).sum()
    }
}

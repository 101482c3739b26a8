//! The HTTP address server: a page that holds the list (spec B1.2).

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::time::timeout;
use waypost_net::address::{AddressError, AddressList, HostPort};
use waypost_net::clock::Clock;
use waypost_net::dialer::{DialError, Dialer};
use waypost_rocketmq_wire::version::{V5_5_0, version_name};

use crate::list::{self, Reading};

/// The port when the host names none.
const DEFAULT_PORT: u16 = 8080;

/// The end of the path when none is set.
const DEFAULT_SUBGROUP: &str = "nsaddr";

/// Time to connect, and time to read the page (spec B1.2).
const LIMIT: Duration = Duration::from_secs(3);

/// The largest page: some thousand addresses.
const PAGE_MAX: usize = 256 * 1024;

/// An HTTP server whose page holds the list of name servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressServer {
    host: HostPort,
    subgroup: String,
}

/// Why there is no list from an address server.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No connection.
    #[error("address server {server}: {source}")]
    Connect {
        /// Its page.
        server: AddressServer,
        /// Why.
        source: DialError,
    },
    /// No page in time.
    #[error("address server {server} sent no page within {limit:?}; the known list stays")]
    TimedOut {
        /// Its page.
        server: AddressServer,
        /// The time that was given.
        limit: Duration,
    },
    /// HTTP went wrong.
    #[error("address server {server} does not speak HTTP as expected: {reason}; the known list stays")]
    Http {
        /// Its page.
        server: AddressServer,
        /// What went wrong.
        reason: String,
    },
    /// It answered another status than 200.
    #[error("address server {server} answered {status}; the known list stays")]
    Status {
        /// Its page.
        server: AddressServer,
        /// The status.
        status: u16,
    },
    /// The page holds no address.
    #[error("address server {server} has a page without addresses: \"{text}\"; the known list stays")]
    NoAddress {
        /// Its page.
        server: AddressServer,
        /// The page's first line.
        text: String,
    },
}

impl AddressServer {
    /// The page on `domain`, a host or `host:port` (8080 if none), for `subgroup` (`nsaddr` if none).
    ///
    /// # Errors
    ///
    /// When `domain` is no address.
    pub fn new(domain: &str, subgroup: Option<&str>) -> Result<Self, AddressError> {
        let host = HostPort::parse_with_port(domain, DEFAULT_PORT)?;
        let subgroup = subgroup.map_or(DEFAULT_SUBGROUP, str::trim).trim_matches('/').to_owned();
        Ok(Self { host, subgroup })
    }

    /// Fetches the list. Cancel safe.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub async fn fetch(&self) -> Result<AddressList, FetchError> {
        let stream = Dialer::default().dial(&self.host, LIMIT).await;
        let stream = stream.map_err(|source| FetchError::Connect { server: self.clone(), source })?;
        let page = timeout(LIMIT, self.page(TokioIo::new(stream))).await;
        let page = page.map_err(|_| FetchError::TimedOut { server: self.clone(), limit: LIMIT })??;
        let text = String::from_utf8_lossy(&page);
        let text = text.trim().split(['\r', '\n']).next().unwrap_or_default();
        let Reading { servers, left_out } = list::read(text);
        if servers.is_empty() {
            return Err(FetchError::NoAddress {
                server: self.clone(),
                text: text.chars().take(200).collect(),
            });
        }
        if let Some(first) = left_out.first() {
            tracing::warn!(server = %self, left_out = left_out.len(), error = %first, "address server's list has entries that are no name server");
        }
        Ok(servers)
    }

    async fn page(&self, io: TokioIo<waypost_net::stream::Stream>) -> Result<Bytes, FetchError> {
        let wrong = |reason: String| FetchError::Http { server: self.clone(), reason };
        let (mut sender, connection) =
            http1::handshake(io).await.map_err(|error| wrong(error.to_string()))?;
        let request = Request::get(format!("/rocketmq/{}", self.subgroup))
            .header(HOST, self.host.to_string())
            .header("Client-Version", format!("V{}", version_name(V5_5_0).replace('.', "_")))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded;charset=UTF-8")
            .header("Metaq-Client-RequestTS", Clock::system().wall_millis())
            .body(Empty::<Bytes>::new())
            .map_err(|error| wrong(error.to_string()))?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(|error| wrong(error.to_string()))?;
            if answer.status() != StatusCode::OK {
                return Err(FetchError::Status { server: self.clone(), status: answer.status().as_u16() });
            }
            let page = Limited::new(answer.into_body(), PAGE_MAX).collect().await;
            Ok(page.map_err(|error| wrong(error.to_string()))?.to_bytes())
        };
        tokio::pin!(exchange);
        tokio::pin!(connection);
        tokio::select! {
            page = &mut exchange => page,
            ended = &mut connection => {
                ended.map_err(|error| wrong(error.to_string()))?;
                // The connection is done, what it read is still to be taken.
                exchange.await
            }
        }
    }
}

impl fmt::Display for AddressServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}/rocketmq/{}", self.host, self.subgroup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use waypost_net::tasks::Tasks;

    async fn serve(answer: &'static str) -> (AddressServer, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let domain = listener.local_addr().unwrap().to_string();
        let seen = Tasks::new().spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        (AddressServer::new(&domain, None).unwrap(), seen)
    }

    #[tokio::test]
    async fn the_first_line_of_the_page_is_the_list() {
        let page = "HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\na:9876;;b:9876 \r\njunk\r\n";
        let (server, seen) = serve(page).await;
        assert_eq!(server.fetch().await.unwrap().to_string(), "a:9876;b:9876");
        let seen = seen.await.unwrap().to_lowercase();
        assert!(seen.starts_with("get /rocketmq/nsaddr http/1.1\r\n"), "{seen}");
        for header in
            ["client-version: v5_5_0", "metaq-client-requestts: ", "content-type: application/x-www"]
        {
            assert!(seen.contains(header), "{seen}");
        }
    }

    #[tokio::test]
    async fn another_status_and_an_empty_page_are_errors() {
        let (server, _seen) = serve("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
        assert!(matches!(server.fetch().await, Err(FetchError::Status { status: 404, .. })));
        let (server, _seen) = serve("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\r\n").await;
        assert!(matches!(server.fetch().await, Err(FetchError::NoAddress { .. })));
        let (server, _seen) = serve("what?").await;
        assert!(matches!(server.fetch().await, Err(FetchError::Http { .. })));
    }

    #[test]
    fn the_port_is_8080_unless_the_host_names_one() {
        let page = |domain, subgroup| AddressServer::new(domain, subgroup).unwrap().to_string();
        assert_eq!(page("jmenv.example", None), "http://jmenv.example:8080/rocketmq/nsaddr");
        assert_eq!(page("jmenv.example:80", Some("x")), "http://jmenv.example:80/rocketmq/x");
    }
}

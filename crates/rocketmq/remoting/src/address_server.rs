//! The HTTP address server: a page that holds the list (spec B1.2).

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, LOCATION};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::time::timeout;
use waypost_net::address::{AddressError, AddressList, HostPort};
use waypost_net::clock::Clock;
use waypost_net::dialer::{DialError, Dialer};
use waypost_rocketmq_wire::version::{V5_5_0, version_name};

use crate::list::{self, Reading};
use crate::page::Page;

pub use crate::page::RedirectFault;

/// The port when the host names none.
const DEFAULT_PORT: u16 = 8080;

/// The end of the path when none is set.
const DEFAULT_SUBGROUP: &str = "nsaddr";

/// Time to connect, and time to read the page (spec B1.2).
const LIMIT: Duration = Duration::from_secs(3);

/// The largest page: some thousand addresses.
const PAGE_MAX: usize = 256 * 1024;

/// How much of a text that cannot be used is told, in characters.
const TEXT_SHOWN: usize = 200;

/// What sends elsewhere for the same question.
const REDIRECTS: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

/// An HTTP server whose page holds the list of name servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressServer {
    host: HostPort,
    subgroup: String,
}

/// Why there is no list from an address server. `page` is its page, and the one to which that leads if it was followed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No connection.
    #[error("address server {page}: {source}; the known list stays")]
    Connect {
        /// Its page.
        page: String,
        /// Why.
        source: DialError,
    },
    /// No page in time.
    #[error("address server {page} sent no page within {limit:?}; the known list stays")]
    TimedOut {
        /// Its page.
        page: String,
        /// The time that was given.
        limit: Duration,
    },
    /// HTTP went wrong.
    #[error("address server {page} does not speak HTTP as expected: {reason}; the known list stays")]
    Http {
        /// Its page.
        page: String,
        /// What went wrong.
        reason: String,
    },
    /// It answered another status than 200.
    #[error("address server {page} answered {status}; the known list stays")]
    Status {
        /// Its page.
        page: String,
        /// The status.
        status: u16,
    },
    /// It leads elsewhere, and that is not followed.
    #[error("address server {page} answered {status} to {location:?}: {fault}; the known list stays")]
    Redirect {
        /// Its page.
        page: String,
        /// The status.
        status: u16,
        /// Where to.
        location: String,
        /// Why it is not followed.
        fault: RedirectFault,
    },
    /// The page holds no address.
    #[error("address server {page} has a page without addresses: \"{text}\"; the known list stays")]
    NoAddress {
        /// Its page.
        page: String,
        /// The page's first line.
        text: String,
    },
}

/// What a server answers that is asked for a page.
enum Answer {
    Page(Bytes),
    /// The status, and where to.
    Redirect(StatusCode, String),
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

    /// Fetches the list. A redirect is followed once, to a page of HTTP. Cancel safe.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub async fn fetch(&self) -> Result<AddressList, FetchError> {
        let own = self.page();
        let mut asked = own.to_string();
        let (status, location) = match ask(&own, &asked).await? {
            Answer::Page(text) => return list_of(&text, asked),
            Answer::Redirect(status, location) => (status, location),
        };
        let refused = |page, status: StatusCode, location: String, fault| FetchError::Redirect {
            page,
            status: status.as_u16(),
            location: shortened(&location),
            fault,
        };
        let next = match own.leads_to(&location) {
            Ok(next) => next,
            Err(fault) => return Err(refused(asked, status, location, fault)),
        };
        asked = format!("{own} (which leads to {next})");
        match ask(&next, &asked).await? {
            Answer::Page(text) => list_of(&text, asked),
            Answer::Redirect(status, location) => {
                Err(refused(asked, status, location, RedirectFault::Second))
            }
        }
    }

    fn page(&self) -> Page {
        Page { host: self.host.clone(), path: format!("/rocketmq/{}", self.subgroup) }
    }
}

/// Asks for one page. `asked` is what an error calls it.
async fn ask(page: &Page, asked: &str) -> Result<Answer, FetchError> {
    let stream = Dialer::default().dial(&page.host, LIMIT).await;
    let stream = stream.map_err(|source| FetchError::Connect { page: asked.to_owned(), source })?;
    match timeout(LIMIT, exchange(page, asked, TokioIo::new(stream))).await {
        Ok(answer) => answer,
        Err(_) => Err(FetchError::TimedOut { page: asked.to_owned(), limit: LIMIT }),
    }
}

async fn exchange(
    page: &Page,
    asked: &str,
    io: TokioIo<waypost_net::stream::Stream>,
) -> Result<Answer, FetchError> {
    let wrong = |reason: String| FetchError::Http { page: asked.to_owned(), reason };
    let (mut sender, connection) = http1::handshake(io).await.map_err(|error| wrong(error.to_string()))?;
    let request = Request::get(&page.path)
        .header(HOST, page.host_header())
        .header("Client-Version", format!("V{}", version_name(V5_5_0).replace('.', "_")))
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded;charset=UTF-8")
        .header("Metaq-Client-RequestTS", Clock::system().wall_millis())
        .body(Empty::<Bytes>::new())
        .map_err(|error| wrong(error.to_string()))?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|error| wrong(error.to_string()))?;
        match answer.status() {
            StatusCode::OK => {
                let page = Limited::new(answer.into_body(), PAGE_MAX).collect().await;
                Ok(Answer::Page(page.map_err(|error| wrong(error.to_string()))?.to_bytes()))
            }
            status if REDIRECTS.contains(&status) => {
                let location = answer.headers().get(LOCATION).map(|value| value.as_bytes());
                let location = String::from_utf8_lossy(location.unwrap_or_default()).into_owned();
                Ok(Answer::Redirect(status, location))
            }
            status => Err(FetchError::Status { page: asked.to_owned(), status: status.as_u16() }),
        }
    };
    tokio::pin!(exchange);
    tokio::pin!(connection);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = &mut connection => {
            ended.map_err(|error| wrong(error.to_string()))?;
            // The connection is done, what it read is still to be taken.
            exchange.await
        }
    }
}

fn list_of(text: &[u8], page: String) -> Result<AddressList, FetchError> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim().split(['\r', '\n']).next().unwrap_or_default();
    let Reading { servers, left_out } = list::read(text);
    if servers.is_empty() {
        return Err(FetchError::NoAddress { page, text: shortened(text) });
    }
    if let Some(first) = left_out.first() {
        tracing::warn!(server = page, left_out = left_out.len(), error = %first, "address server's list has entries that are no name server");
    }
    Ok(servers)
}

/// As much of what a peer sent as an error shows.
fn shortened(text: &str) -> String {
    text.chars().take(TEXT_SHOWN).collect()
}

impl fmt::Display for AddressServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.page().fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;
    use waypost_net::tasks::Tasks;

    /// Answers one request after the other, each on a connection of its own, and gives what was asked.
    async fn serve<const N: usize>(answers: [&str; N]) -> (AddressServer, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let domain = listener.local_addr().unwrap().to_string();
        let answers = answers.map(|answer| answer.replace("HERE", &domain));
        let seen = Tasks::new().spawn(async move {
            let mut seen = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
                seen.push(String::from_utf8(request).unwrap());
            }
            seen
        });
        (AddressServer::new(&domain, None).unwrap(), seen)
    }

    fn redirect(status: u16, location: &str) -> String {
        format!("HTTP/1.1 {status} Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
    }

    #[tokio::test]
    async fn the_first_line_of_the_page_is_the_list() {
        let page = "HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\na:9876;;b:9876 \r\njunk\r\n";
        let (server, seen) = serve([page]).await;
        assert_eq!(server.fetch().await.unwrap().to_string(), "a:9876;b:9876");
        let seen = seen.await.unwrap().concat().to_lowercase();
        assert!(seen.starts_with("get /rocketmq/nsaddr http/1.1\r\n"), "{seen}");
        for header in
            ["client-version: v5_5_0", "metaq-client-requestts: ", "content-type: application/x-www"]
        {
            assert!(seen.contains(header), "{seen}");
        }
    }

    #[tokio::test]
    async fn another_status_and_an_empty_page_are_errors() {
        let (server, _seen) = serve(["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"]).await;
        assert!(matches!(server.fetch().await, Err(FetchError::Status { status: 404, .. })));
        let (server, _seen) = serve(["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\r\n"]).await;
        assert!(matches!(server.fetch().await, Err(FetchError::NoAddress { .. })));
        let (server, _seen) = serve(["what?"]).await;
        assert!(matches!(server.fetch().await, Err(FetchError::Http { .. })));
    }

    #[tokio::test]
    async fn a_redirect_is_followed_once() {
        let page = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na:9876";
        for status in [301, 302, 303, 307, 308] {
            for location in ["http://HERE/lists/blue?zone=1", "/lists/blue?zone=1", "../lists/blue?zone=1"] {
                let (server, seen) = serve([&redirect(status, location), page]).await;
                assert_eq!(server.fetch().await.unwrap().to_string(), "a:9876", "{status} {location}");
                let seen = seen.await.unwrap().concat();
                assert!(seen.contains("GET /lists/blue?zone=1 HTTP/1.1\r\n"), "{seen}");
            }
        }
    }

    #[tokio::test]
    async fn a_second_redirect_is_an_error_that_says_so() {
        let (server, _seen) = serve([&redirect(302, "/one"), &redirect(307, "/two")]).await;
        let error = server.fetch().await.unwrap_err().to_string();
        let expected = format!(
            "address server {server} (which leads to http://{}/one) answered 307 to \"/two\": it is the second \
             redirect, only one is followed; the known list stays",
            server.host
        );
        assert_eq!(error, expected);
    }

    #[tokio::test]
    async fn a_redirect_to_elsewhere_than_http_is_an_error_that_names_both_pages() {
        let (server, _seen) = serve([&redirect(302, "https://HERE/list")]).await;
        let error = server.fetch().await.unwrap_err().to_string();
        let expected = format!(
            "address server {server} answered 302 to \"https://{}/list\": only http is followed; the known list stays",
            server.host
        );
        assert_eq!(error, expected);
        let (server, _seen) = serve(["HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"]).await;
        assert!(server.fetch().await.unwrap_err().to_string().contains("it has no Location"));
        let (server, _seen) = serve(["HTTP/1.1 304 Not Modified\r\n\r\n"]).await;
        assert!(matches!(server.fetch().await, Err(FetchError::Status { status: 304, .. })));
    }

    #[tokio::test]
    async fn an_error_behind_a_redirect_names_the_page_it_led_to() {
        let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        let (server, _seen) = serve([&redirect(302, "http://HERE/list"), missing]).await;
        let error = server.fetch().await.unwrap_err().to_string();
        let expected =
            format!("address server {server} (which leads to http://{}/list) answered 404", server.host);
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn the_port_is_8080_unless_the_host_names_one() {
        let page = |domain, subgroup| AddressServer::new(domain, subgroup).unwrap().to_string();
        assert_eq!(page("jmenv.example", None), "http://jmenv.example:8080/rocketmq/nsaddr");
        assert_eq!(page("jmenv.example:80", Some("x")), "http://jmenv.example:80/rocketmq/x");
    }
}

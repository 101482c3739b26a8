//! The half of a simulated broker that clients connect to.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use waypost_net::address::HostPort;
use waypost_net::tasks::{Stop, Tasks};
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::frame::{FrameLimits, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Response;

use super::fault::Conduct;

/// What requests are answered that a broker without a storage cannot carry out.
const REMARK: &str = "this is a simulated broker: it stores no messages";
/// Connections at once; further ones are closed.
const CONNECTIONS_MAX: usize = 1_024;
/// The largest request that is read, in bytes.
const REQUEST_MAX: usize = 8 * 1024 * 1024;
/// How long to wait when no connection could be taken, for want of files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A port that is open.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    address: SocketAddr,
    conduct: watch::Receiver<Conduct>,
    messages: Arc<AtomicU64>,
}

impl Door {
    /// Opens the port of `address`, or a free one if that is 0. Messages that are sent there are counted in `messages`.
    pub(super) async fn open(
        address: &HostPort,
        conduct: watch::Receiver<Conduct>,
        messages: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((address.host.to_string(), address.port)).await?;
        Ok(Self { address: listener.local_addr()?, listener, conduct, messages })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers every connection until it is told to stop.
    pub(super) async fn answer_all(self, stop: Stop) {
        let connections = Tasks::new();
        let mut conduct = self.conduct.clone();
        loop {
            let accepted = tokio::select! {
                () = stop.requested() => break,
                accepted = accept(&self.listener, &mut conduct) => accepted,
            };
            let Ok(stream) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            if connections.running() < CONNECTIONS_MAX {
                let client = Client::new(self.address, self.conduct.clone(), Arc::clone(&self.messages));
                let stop = stop.clone();
                connections.spawn(async move {
                    tokio::select! {
                        () = stop.requested() => {}
                        // Whatever a client does to the simulation concerns nobody.
                        _ = client.serve(stream) => {}
                    }
                });
            }
        }
    }
}

/// A stopped process takes no connections; those that come meanwhile wait in the kernel.
async fn accept(listener: &TcpListener, conduct: &mut watch::Receiver<Conduct>) -> io::Result<TcpStream> {
    run_on(conduct).await;
    listener.accept().await.map(|(stream, _)| stream)
}

/// Waits while the broker stands still.
async fn run_on(conduct: &mut watch::Receiver<Conduct>) {
    if conduct.wait_for(|conduct| !conduct.paused).await.is_err() {
        // The broker is gone, and whoever waits here with it.
        pending().await
    }
}

/// One connection of a client.
struct Client {
    address: SocketAddr,
    conduct: watch::Receiver<Conduct>,
    messages: Arc<AtomicU64>,
    received: Vec<u8>,
    /// Answers and when they are due.
    answers: VecDeque<(Instant, Vec<u8>)>,
}

impl Client {
    fn new(address: SocketAddr, conduct: watch::Receiver<Conduct>, messages: Arc<AtomicU64>) -> Self {
        Self { address, conduct, messages, received: Vec::new(), answers: VecDeque::new() }
    }

    async fn serve(mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (mut reader, mut writer) = stream.into_split();
        loop {
            run_on(&mut self.conduct).await;
            let due = self.answers.front().map(|(due, _)| *due);
            tokio::select! {
                changed = self.conduct.changed() => if changed.is_err() {
                    return Ok(());
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if let Some((_, answer)) = self.answers.pop_front() {
                        writer.write_all(&answer).await?;
                    }
                }
                read = reader.read_buf(&mut self.received) => {
                    if read? == 0 || !self.take_requests() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Answers what was received whole; false if it is no request.
    fn take_requests(&mut self) -> bool {
        let limits = FrameLimits { frame_max: REQUEST_MAX, ..FrameLimits::default() };
        let conduct = *self.conduct.borrow();
        loop {
            let Ok(decoded) = decode_frame(&self.received, &limits) else { return false };
            let Some((frame, length)) = decoded else { return true };
            let Ok(header) = Header::decode(&frame, &limits) else { return false };
            let lost = conduct.loss > 0.0 && rand::rng().random::<f64>() < conduct.loss;
            if !header.is_response() && !header.is_oneway() && !lost {
                let mut answer = Vec::new();
                self.answer(&header, frame.encoding, &mut answer);
                self.answers.push_back((Instant::now() + conduct.delay, answer));
            }
            drop(header);
            self.received.drain(..length);
        }
    }

    fn answer(
        &self,
        header: &Header<'_>,
        encoding: waypost_rocketmq_wire::frame::HeaderEncoding,
        out: &mut Vec<u8>,
    ) {
        let success = Response { opaque: header.opaque, ..Response::new(response::SUCCESS) };
        match header.code {
            request::HEART_BEAT | request::UNREGISTER_CLIENT => success.write(encoding, out),
            request::GET_MAX_OFFSET => {
                Response { ext: Some(&[("offset", "0")]), ..success }.write(encoding, out);
            }
            request::SEND_MESSAGE | request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => {
                let number = self.messages.fetch_add(1, Ordering::Relaxed);
                let (id, offset) = (message_id(self.address, number), number.to_string());
                // The short names of the second form: `e` is the queue.
                let queue = header.ext.get("queueId").or_else(|| header.ext.get("e")).unwrap_or("0");
                let ext = [("msgId", id.as_str()), ("queueId", queue), ("queueOffset", offset.as_str())];
                Response { ext: Some(&ext), ..success }.write(encoding, out);
            }
            _ => {
                let refusal = Response::new(response::SYSTEM_ERROR);
                Response { opaque: header.opaque, remark: Some(REMARK), ..refusal }.write(encoding, out);
            }
        }
    }
}

/// As brokers make it: the address, then where the message would be stored.
fn message_id(address: SocketAddr, number: u64) -> String {
    let mut id = String::new();
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    for byte in ip {
        // Writing to a text does not fail.
        let _ = write!(id, "{byte:02X}");
    }
    let _ = write!(id, "{:08X}{number:016X}", address.port());
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_id_is_the_address_and_a_number() {
        let address = SocketAddr::from(([127, 0, 0, 1], 10_911));
        assert_eq!(message_id(address, 7), "7F00000100002A9F0000000000000007");
    }
}

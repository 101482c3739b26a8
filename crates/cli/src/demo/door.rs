//! The half of a simulated broker that clients connect to.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use waypost_net::tasks::{Stop, Tasks};
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::frame::{FrameLimits, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Response;

/// What every request but a heartbeat is answered.
const REMARK: &str = "this is a simulated broker of `waypost serve --demo`: it stores no messages";
/// Connections at once; further ones are closed.
const CONNECTIONS_MAX: usize = 64;
/// The largest request that is read, in bytes.
const REQUEST_MAX: usize = 4 * 1024 * 1024;

/// A port that is open.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    address: SocketAddr,
}

/// Opens a free port of the loopback.
pub(super) async fn open() -> io::Result<Door> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    Ok(Door { address: listener.local_addr()?, listener })
}

impl Door {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers every connection until it is told to stop.
    pub(super) async fn answer_all(self, stop: &Stop) {
        let connections = Tasks::new();
        loop {
            let accepted = tokio::select! {
                () = stop.requested() => break,
                accepted = self.listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            if connections.running() < CONNECTIONS_MAX {
                let stop = stop.clone();
                connections.spawn(async move {
                    tokio::select! {
                        () = stop.requested() => {}
                        // Whatever a client does to the demo concerns nobody.
                        _ = answer(stream) => {}
                    }
                });
            }
        }
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    let limits = FrameLimits { frame_max: REQUEST_MAX, ..FrameLimits::default() };
    let (mut received, mut answers) = (Vec::new(), Vec::new());
    loop {
        loop {
            let Ok(decoded) = decode_frame(&received, &limits) else { return Ok(()) };
            let Some((frame, length)) = decoded else { break };
            let Ok(header) = Header::decode(&frame, &limits) else { return Ok(()) };
            if !header.is_response() && !header.is_oneway() {
                let heartbeat = matches!(header.code, request::HEART_BEAT | request::UNREGISTER_CLIENT);
                let (code, remark) = match heartbeat {
                    true => (response::SUCCESS, None),
                    false => (response::SYSTEM_ERROR, Some(REMARK)),
                };
                Response { opaque: header.opaque, remark, ..Response::new(code) }
                    .write(frame.encoding, &mut answers);
            }
            drop(header);
            received.drain(..length);
        }
        stream.write_all(&answers).await?;
        answers.clear();
        if stream.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
    }
}

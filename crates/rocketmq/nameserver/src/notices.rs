//! Sends 905 NOTIFY_MIN_BROKER_ID_CHANGE to brokers (spec 1.4, 2.8): one way, over connections of
//! the server's own, which are used again while they are open. Brokers poll as well, so a notice
//! that cannot be sent in time is counted and forgotten.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use waypost_net::address::HostPort;
use waypost_net::dialer::Dialer;
use waypost_net::stream::Stream;
use waypost_net::tasks::{Stop, Tasks};
use waypost_rocketmq_registry::MinBrokerNotice;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::HeaderEncoding;
use waypost_rocketmq_wire::message::Request;

use crate::metrics::Metrics;
use crate::owner::NOTICES_MAX;

/// How long connecting to a broker may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How long sending a notice may take.
const SEND_LIMIT: Duration = Duration::from_millis(300);
/// Connections that are kept for the next notice.
const CONNECTIONS_MAX: usize = 1_024;

/// A connection to one broker; empty until it is needed. Notices to one broker go in order.
type Line = Arc<Mutex<Option<Stream>>>;

/// Sends notices until the server stops.
pub(crate) async fn send_all(
    mut notices: mpsc::Receiver<MinBrokerNotice>,
    metrics: Arc<Metrics>,
    stop: Stop,
) {
    // Of their own: a stop does not wait for brokers that do not take their notices.
    let sending = Tasks::new();
    let mut lines: HashMap<Arc<str>, Line> = HashMap::new();
    let opaque = AtomicI32::new(0);
    loop {
        let notice = tokio::select! {
            notice = notices.recv() => notice,
            () = stop.requested() => return,
        };
        let Some(notice) = notice else { return };
        for recipient in &notice.recipients {
            if sending.running() >= NOTICES_MAX {
                metrics.notices_dropped.inc();
                continue;
            }
            if lines.len() >= CONNECTIONS_MAX && !lines.contains_key(recipient) {
                lines.clear();
            }
            let line = Arc::clone(lines.entry(Arc::clone(recipient)).or_default());
            let frame = frame(&notice, opaque.fetch_add(1, Ordering::Relaxed));
            let (recipient, metrics) = (Arc::clone(recipient), Arc::clone(&metrics));
            sending.spawn(async move {
                match send(&line, &recipient, &frame).await {
                    Ok(()) => metrics.notices_sent.inc(),
                    Err(error) => {
                        tracing::warn!(
                            broker_address = %recipient, %error,
                            "notice of a changed smallest broker id could not be sent"
                        );
                        metrics.notices_dropped.inc()
                    }
                };
            });
        }
    }
}

fn frame(notice: &MinBrokerNotice, opaque: i32) -> Vec<u8> {
    let min_id = notice.min_id.to_string();
    let mut ext: Vec<(&str, &str)> = vec![
        ("minBrokerId", &min_id),
        ("minBrokerAddr", &notice.min_address),
        // The original declares it and never fills it (D9).
        ("brokerName", &notice.broker),
    ];
    ext.extend(notice.offline_address.as_deref().map(|address| ("offlineBrokerAddr", address)));
    ext.extend(notice.ha_address.as_deref().map(|address| ("haBrokerAddr", address)));
    let mut frame = Vec::new();
    Request { opaque, oneway: true, ext: &ext, ..Request::new(request::NOTIFY_MIN_BROKER_ID_CHANGE) }
        .write(HeaderEncoding::Json, &mut frame);
    frame
}

async fn send(line: &Line, recipient: &str, frame: &[u8]) -> Result<(), String> {
    let mut line = line.lock().await;
    if let Some(stream) = line.as_mut().filter(|stream| is_open(stream))
        && matches!(timeout(SEND_LIMIT, stream.write_all(frame)).await, Ok(Ok(())))
    {
        return Ok(());
    }
    *line = None;
    let address: HostPort = recipient.parse().map_err(|error| format!("{error}"))?;
    let mut stream =
        Dialer::default().dial(&address, CONNECT_LIMIT).await.map_err(|error| error.to_string())?;
    match timeout(SEND_LIMIT, stream.write_all(frame)).await {
        Ok(Ok(())) => {
            *line = Some(stream);
            Ok(())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("not taken within {SEND_LIMIT:?}")),
    }
}

/// Whether the broker has not closed the connection since the last notice. What it may have sent
/// is thrown away.
fn is_open(stream: &Stream) -> bool {
    let mut scratch = [0; 256];
    loop {
        match stream.socket().try_read(&mut scratch) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

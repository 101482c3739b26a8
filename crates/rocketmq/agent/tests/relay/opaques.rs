//! Which answer of a server belongs to which frame of a broker.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::{Request, Response};

use crate::alone;
use crate::world::{Broker, CLUSTER, Folder, LONG, until};

/// A server that refuses 904 and 217, but only when it hears the frame behind them, and accepts everything else.
async fn late_server() -> (SocketAddr, Arc<Mutex<BTreeSet<i32>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let heard = Arc::new(Mutex::new(BTreeSet::new()));
    let codes = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&codes)));
        }
    });
    (address, heard)
}

async fn serve(mut stream: TcpStream, heard: Arc<Mutex<BTreeSet<i32>>>) {
    let limits = FrameLimits::default();
    let (mut received, mut late) = (Vec::new(), Vec::new());
    while stream.read_buf(&mut received).await.is_ok_and(|count| count > 0) {
        while let Ok(Some((frame, length))) = decode_frame(&received, &limits) {
            let header = Header::decode(&frame, &limits).expect("a header");
            let (code, opaque) = (header.code, header.opaque);
            drop(header);
            drop(received.drain(..length));
            heard.lock().unwrap_or_else(PoisonError::into_inner).insert(code);
            if matches!(code, request::BROKER_HEARTBEAT | request::REGISTER_TOPIC_IN_NAMESRV) {
                let refusal = Response { opaque, remark: Some("late"), ..Response::new(1) };
                refusal.write(HeaderEncoding::Json, &mut late);
                continue;
            }
            let mut answers = std::mem::take(&mut late);
            let ext = Some(&[("changed", "false")][..]);
            Response { opaque, ext, ..Response::new(0) }.write(HeaderEncoding::Json, &mut answers);
            if stream.write_all(&answers).await.is_err() {
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_is_not_taken_for_the_answer_to_a_later_frame_with_the_same_opaque() {
    let folder = Folder::new();
    let (server, heard) = late_server().await;
    let agent = folder.agent(&[server]);
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    let names =
        [("clusterName", CLUSTER), ("brokerName", "a"), ("brokerAddr", &*broker.address), ("brokerId", "0")];
    // Whatever it sends has the same opaque.
    let say = async |code: i32, more: &[(&str, &str)], body: &[u8]| {
        let ext = [&names[..], more].concat();
        let mut frame = Vec::new();
        Request { ext: &ext, body, opaque: 9, ..Request::new(code) }.write(HeaderEncoding::Json, &mut frame);
        let answer = broker.connection().exchange(frame.into(), 9, LONG).await.expect("an answer");
        assert!(answer.is_success(), "{answer:?}");
    };
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    say(request::BROKER_HEARTBEAT, &[], &[]).await;
    until("the sign of life", LONG, async || heard.lock().expect("whole").contains(&904)).await;
    say(request::REGISTER_TOPIC_IN_NAMESRV, &[("topic", "alone")], &alone("a")).await;
    until("the topic", LONG, async || heard.lock().expect("whole").contains(&217)).await;
    say(request::QUERY_DATA_VERSION, &[], &[]).await;
    until("an empty queue", LONG, async || agent.status().await.brokers[0].servers[0].queue == 0).await;
    assert_eq!(agent.status().await.brokers[0].servers[0].error, None);
    agent.shutdown().await;
}

//! A server that reads no more.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Response;

use crate::alone;
use crate::world::{Broker, Folder, LONG, until};

/// Answers what comes until it has accepted one registration on a connection, of which it reads no more.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

async fn serve(mut stream: TcpStream) {
    let limits = FrameLimits::default();
    let mut received = Vec::new();
    while stream.read_buf(&mut received).await.is_ok_and(|count| count > 0) {
        while let Ok(Some((frame, length))) = decode_frame(&received, &limits) {
            let header = Header::decode(&frame, &limits).expect("a header");
            let (code, opaque) = (header.code, header.opaque);
            drop(header);
            drop(received.drain(..length));
            let mut answer = Vec::new();
            Response { opaque, ..Response::new(0) }.write(HeaderEncoding::Json, &mut answer);
            stream.write_all(&answer).await.expect("it reads");
            if code == request::REGISTER_BROKER {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_without_answers_wait_in_the_queue_of_a_server_that_does_not_read() {
    let folder = Folder::new();
    let agent = folder.agent(&[server().await]);
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    let accepted = async || agent.status().await.brokers[0].servers[0].accepted_ms.is_some();
    until("the registration", LONG, accepted).await;
    // More than the system takes of somebody who does not read.
    let remark = "x".repeat(1024 * 1024 - 2_048);
    for number in 0..32 {
        let topic = number.to_string();
        let more = [("topic", topic.as_str()), ("more", remark.as_str())];
        let answer = broker.call(request::REGISTER_TOPIC_IN_NAMESRV, &more, &alone("a")).await;
        assert!(answer.is_success(), "{answer:?}");
    }
    let queue = async || agent.status().await.brokers[0].servers[0].queue;
    until("a queue that is shown", LONG, async || queue().await > 10).await;
    agent.shutdown().await;
}

//! Topics that a broker of the machine announces, and programs that ask for them in the same moment.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use waypost_net::tasks::Tasks;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::{FrameLimits, decode_frame};
use waypost_rocketmq_wire::header::Header;

use crate::alone;
use crate::world::{Broker, Folder, LONG, all_have, hung, route};

/// How late the registrations of brokers reach the server behind [`late`].
const LATE: Duration = Duration::from_millis(50);

/// A way to `server` on which everything but registrations is quick.
async fn late(server: SocketAddr, tasks: &Tasks) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let inner = tasks.clone();
    tasks.spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(server).await.expect("the server");
            let ((near_in, mut near_out), (mut far_in, far_out)) = (near.into_split(), far.into_split());
            inner.spawn(async move {
                // Either end may close.
                let _ = tokio::io::copy(&mut far_in, &mut near_out).await;
            });
            inner.spawn(forward(near_in, far_out));
        }
    });
    address
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let (limits, mut received) = (FrameLimits::default(), Vec::new());
    while matches!(from.read_buf(&mut received).await, Ok(count) if count > 0) {
        while let Some((frame, length)) = decode_frame(&received, &limits).expect("frames") {
            let code = Header::decode(&frame, &limits).expect("a header").code;
            if matches!(code, request::REGISTER_BROKER | request::REGISTER_TOPIC_IN_NAMESRV) {
                tokio::time::sleep(LATE).await;
            }
            let frame: Vec<u8> = received.drain(..length).collect();
            if to.write_all(&frame).await.is_err() {
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_found_as_soon_as_its_broker_has_announced_it() {
    let (folder, tasks) = (Folder::new(), Tasks::new());
    let live = folder.server();
    let server = late(live.addresses()[0], &tasks).await;
    let agent = folder.agent(&[server]);
    let through = agent.addresses()[0];
    let broker = Broker::start("a", "0", through).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&[server], "T", &["a"], LONG).await;
    for number in 0..10 {
        let [whole, single] = ["whole", "single"].map(|kind| format!("{kind}-{number}"));
        for topic in [&whole, &single] {
            assert!(route(through, topic).await.is_none(), "{topic} is not created yet");
        }
        assert!(broker.register(&["T", "U", &whole], number + 2).await.is_success());
        assert!(route(through, &whole).await.is_some(), "{whole}: its registration is on its way");
        let answer =
            broker.call(request::REGISTER_TOPIC_IN_NAMESRV, &[("topic", &single)], &alone("a")).await;
        assert!(answer.is_success(), "{answer:?}");
        assert!(route(through, &single).await.is_some(), "{single}: its registration is on its way");
    }
    agent.shutdown().await;
    tasks.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_an_announced_topic_waits_for_no_hung_server() {
    let folder = Folder::new();
    let live = folder.server();
    let (hung, _listener) = hung().await;
    let agent = folder.agent(&[hung, live.addresses()[0]]);
    let through = agent.addresses()[0];
    let broker = Broker::start("a", "0", through).await;
    for number in 0..5 {
        let topic = format!("T-{number}");
        assert!(broker.register(&["T", "U", &topic], number).await.is_success());
        let began = Instant::now();
        assert!(route(through, &topic).await.is_some(), "{topic}");
        assert!(began.elapsed() < Duration::from_millis(1_500), "{topic}: {:?}", began.elapsed());
    }
    agent.shutdown().await;
}

use super::*;
use tokio::net::{TcpListener, TcpStream};
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Response;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

async fn pair() -> (Connection, TcpStream, Tasks) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::from(listener.local_addr().unwrap());
    let tasks = Tasks::new();
    let dialer = Dialer::default();
    let (connection, accepted) =
        tokio::join!(Connection::open(&dialer, &endpoint, LONG, &tasks), listener.accept());
    (connection.unwrap(), accepted.unwrap().0, tasks)
}

/// Reads `count` requests and returns their opaques.
async fn requests(stream: &mut TcpStream, count: usize) -> Vec<i32> {
    let limits = FrameLimits::default();
    let mut received = BytesMut::new();
    let mut opaques = Vec::new();
    while opaques.len() < count {
        assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
        while let Some((frame, length)) = decode_frame(&received, &limits).unwrap() {
            opaques.push(Header::decode(&frame, &limits).unwrap().opaque);
            received.advance(length);
        }
    }
    opaques
}

fn answer(opaque: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Response { opaque, body, ..Response::new(0) }.write(HeaderEncoding::Json, &mut frame);
    frame
}

#[tokio::test]
async fn answers_find_their_calls_in_any_order() {
    let (connection, mut server, _tasks) = pair().await;
    let question = Request::new(request::GET_BROKER_CLUSTER_INFO);
    let serve = async {
        let opaques = requests(&mut server, 2).await;
        for opaque in opaques.iter().rev() {
            server.write_all(&answer(*opaque, opaque.to_string().as_bytes())).await.unwrap();
        }
        opaques
    };
    let (first, second, opaques) =
        tokio::join!(connection.call(&question, LONG), connection.call(&question, LONG), serve);
    assert_eq!(first.unwrap().body, opaques[0].to_string());
    assert_eq!(second.unwrap().body, opaques[1].to_string());
}

#[tokio::test]
async fn a_call_without_an_answer_ends_in_time_and_closes_the_connection() {
    let (connection, mut server, _tasks) = pair().await;
    let question = Request::new(request::GET_BROKER_CLUSTER_INFO);
    let (short, long) = tokio::join!(connection.call(&question, SHORT), connection.call(&question, LONG));
    assert!(matches!(short, Err(CallError::TimedOut { limit: SHORT, .. })), "{short:?}");
    assert!(matches!(long, Err(CallError::Closed { .. })), "{long:?}");
    assert!(!connection.is_open());
    assert!(matches!(connection.call(&question, LONG).await, Err(CallError::Closed { .. })));
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn a_dropped_call_leaves_the_connection_alone() {
    let (connection, mut server, _tasks) = pair().await;
    let question = Request::new(request::GET_BROKER_CLUSTER_INFO);
    assert!(timeout(SHORT, connection.call(&question, LONG)).await.is_err());
    let serve = async {
        let opaques = requests(&mut server, 2).await;
        for opaque in opaques {
            server.write_all(&answer(opaque, b"")).await.unwrap();
        }
    };
    let (answered, ()) = tokio::join!(connection.call(&question, LONG), serve);
    assert!(answered.unwrap().is_success());
    assert!(connection.shared.pending().calls.is_empty());
}

#[tokio::test]
async fn a_close_by_the_server_fails_what_waits() {
    let (connection, mut server, _tasks) = pair().await;
    let question = Request::new(request::GET_BROKER_CLUSTER_INFO);
    let serve = async {
        requests(&mut server, 1).await;
        drop(server);
    };
    let (failed, ()) = tokio::join!(connection.call(&question, LONG), serve);
    assert!(matches!(failed, Err(CallError::Closed { .. })), "{failed:?}");
    timeout(LONG, connection.closed()).await.unwrap();
}

#[tokio::test]
async fn nonsense_is_named_and_closes() {
    let (connection, mut server, _tasks) = pair().await;
    let question = Request::new(request::GET_BROKER_CLUSTER_INFO);
    let serve = async {
        requests(&mut server, 1).await;
        server.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    };
    let (failed, ()) = tokio::join!(connection.call(&question, LONG), serve);
    let error = failed.unwrap_err();
    assert!(matches!(error, CallError::Malformed { .. }), "{error:?}");
    assert!(error.to_string().contains("is the address right?"), "{error}");
}

#[tokio::test]
async fn an_answer_of_more_than_64_mib_is_not_waited_for() {
    let (connection, mut server, _tasks) = pair().await;
    let serve = async {
        requests(&mut server, 1).await;
        let length: u32 = 64 * 1024 * 1024 + 1;
        server.write_all(&length.to_be_bytes()).await.expect("written");
        server
    };
    let request = Request::new(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER);
    let (answered, _server) = tokio::join!(connection.call(&request, LONG), serve);
    let error = answered.expect_err("too large");
    assert!(matches!(error, CallError::Malformed { .. }), "{error}");
    assert!(!connection.is_open());
}

#[tokio::test]
async fn the_last_clone_closes_the_socket() {
    let (connection, mut server, tasks) = pair().await;
    let clone = connection.clone();
    drop(connection);
    assert!(clone.is_open());
    drop(clone);
    let mut rest = Vec::new();
    timeout(LONG, server.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(tasks.drain(LONG).await, 0);
}

#[tokio::test]
async fn one_way_requests_are_marked_and_bounded() {
    let (connection, mut server, _tasks) = pair().await;
    connection.send(&Request::new(request::QUERY_DATA_VERSION)).unwrap();
    assert_eq!(requests(&mut server, 1).await.len(), 1);
    let megabyte = Bytes::from(vec![0; 1024 * 1024]);
    let full = (0..100).find_map(|_| connection.send_frame(megabyte.clone()).err());
    assert!(matches!(full, Some(CallError::Full { .. })), "{full:?}");
}

#[tokio::test]
async fn a_late_answer_to_a_frame_that_was_not_awaited_completes_no_other() {
    let (connection, mut server, _tasks) = pair().await;
    let frame = |code: i32| {
        let mut frame = Vec::new();
        Request { opaque: 9, ..Request::new(code) }.write(HeaderEncoding::Binary, &mut frame);
        Bytes::from(frame)
    };
    connection.forward_unawaited(&frame(request::BROKER_HEARTBEAT)).unwrap();
    let serve = async {
        let opaques = requests(&mut server, 2).await;
        for (opaque, body) in opaques.iter().zip([&b"late"[..], b"awaited"]) {
            server.write_all(&answer(*opaque, body)).await.unwrap();
        }
    };
    let query = frame(request::QUERY_DATA_VERSION);
    let (answered, ()) = tokio::join!(connection.forward(&query, LONG), serve);
    assert_eq!(answered.unwrap().body, &b"awaited"[..]);
}

#[tokio::test]
async fn a_frame_without_room_for_another_opaque_keeps_its_own() {
    let (connection, mut server, _tasks) = pair().await;
    connection.shared.opaque.store(10, Ordering::Relaxed);
    let request = |body| Request { opaque: 7, body, ..Request::new(request::REGISTER_BROKER) };
    let mut frame = Vec::new();
    request(&[]).write(HeaderEncoding::Json, &mut frame);
    let body = vec![0; FrameLimits::default().frame_max - frame.len()];
    frame.clear();
    request(&body).write(HeaderEncoding::Json, &mut frame);
    let serve = async {
        assert_eq!(requests(&mut server, 1).await, [7]);
        server.write_all(&answer(7, b"taken")).await.unwrap();
    };
    let frame = Bytes::from(frame);
    let (answered, ()) = tokio::join!(connection.forward(&frame, LONG), serve);
    assert_eq!(answered.unwrap().body, &b"taken"[..]);
}

#[tokio::test]
async fn who_waits_for_the_other_end_to_read_is_woken_when_it_has_or_is_gone() {
    let (connection, mut server, _tasks) = pair().await;
    timeout(LONG, connection.drained()).await.expect("nothing waits");
    let (megabyte, mut sent) = (Bytes::from(vec![0; 1024 * 1024]), 0_usize);
    // More than the system takes of somebody who does not read.
    while sent < 24 {
        connection.send_frame(megabyte.clone()).unwrap();
        sent += 1;
    }
    assert!(timeout(SHORT, connection.drained()).await.is_err());
    let read = async {
        let mut room = vec![0; megabyte.len()];
        for _ in 0..sent {
            server.read_exact(&mut room).await.unwrap();
        }
    };
    let (drained, ()) = tokio::join!(timeout(LONG, connection.drained()), read);
    drained.expect("it was read");
    for _ in 0..24 {
        connection.send_frame(megabyte.clone()).unwrap();
    }
    let (ended, ()) = tokio::join!(timeout(LONG, connection.drained()), async { drop(server) });
    ended.expect("it is gone");
}

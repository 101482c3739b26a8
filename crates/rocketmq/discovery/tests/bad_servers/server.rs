//! A name server that behaves as it is told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use waypost_net::tasks::Tasks;
use waypost_rocketmq_wire::body::{BrokerData, Dialect, QueueData, TopicRouteData};
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Response;

/// How it behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Well,
    /// Takes connections and requests, answers nothing: a stopped process.
    Hung,
    /// Takes connections and closes them at the first request.
    Closing,
    Slow(Duration),
    /// Answers with this code.
    Code(i32),
    /// Answers success with a body that is no route.
    Nonsense,
    /// Answers success without a body.
    Empty,
    /// Sends what is no frame.
    Garbage,
}

#[derive(Debug)]
struct State {
    behaviour: Mutex<Behaviour>,
    routes: Mutex<HashMap<String, TopicRouteData>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
    route_queries: AtomicUsize,
}

/// A server on a port of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    tasks: Tasks,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Server {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            behaviour: Mutex::new(behaviour),
            routes: Mutex::default(),
            connections: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            route_queries: AtomicUsize::new(0),
        });
        let tasks = Tasks::new();
        let (stop, inner, shared) = (tasks.stop(), tasks.clone(), Arc::clone(&state));
        tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.requested() => return,
                    accepted = listener.accept() => {
                        let (stream, _) = accepted.unwrap();
                        let (state, stop) = (Arc::clone(&shared), stop.clone());
                        inner.spawn(async move {
                            state.connections.fetch_add(1, Ordering::SeqCst);
                            tokio::select! {
                                () = stop.requested() => {}
                                () = serve(stream, &state) => {}
                            }
                            state.closed.fetch_add(1, Ordering::SeqCst);
                        });
                    }
                }
            }
        });
        Self { address, state, tasks }
    }

    /// One that has a topic of these brokers.
    pub(crate) async fn with(behaviour: Behaviour, topic: &str, brokers: &[&str]) -> Self {
        let server = Self::start(behaviour).await;
        server.put(topic, brokers);
        server
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.state.behaviour.lock().unwrap() = behaviour;
    }

    pub(crate) fn put(&self, topic: &str, brokers: &[&str]) {
        self.state.routes.lock().unwrap().insert(topic.to_owned(), route(brokers));
    }

    pub(crate) fn delete(&self, topic: &str) {
        self.state.routes.lock().unwrap().remove(topic);
    }

    pub(crate) fn closed(&self) -> usize {
        self.state.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn route_queries(&self) -> usize {
        self.state.route_queries.load(Ordering::SeqCst)
    }
}

pub(crate) fn route(brokers: &[&str]) -> TopicRouteData {
    let queues = brokers.iter().map(|broker| QueueData {
        broker_name: (*broker).to_owned(),
        read_queue_nums: 4,
        write_queue_nums: 4,
        perm: 6,
        topic_sys_flag: 0,
    });
    let groups = brokers.iter().map(|broker| BrokerData {
        cluster: "c".to_owned(),
        broker_name: (*broker).to_owned(),
        broker_addrs: [(0, "127.0.0.1:1".to_owned())].into(),
        ..BrokerData::default()
    });
    TopicRouteData {
        queue_datas: queues.collect(),
        broker_datas: groups.collect(),
        ..TopicRouteData::default()
    }
}

async fn serve(mut stream: TcpStream, state: &State) {
    let mut received = Vec::new();
    while matches!(stream.read_buf(&mut received).await, Ok(count) if count > 0) {
        loop {
            let limits = FrameLimits::default();
            let Some((frame, length)) = decode_frame(&received, &limits).unwrap() else { break };
            let header = Header::decode(&frame, &limits).unwrap();
            let (code, opaque) = (header.code, header.opaque);
            let topic = header.ext.get("topic").unwrap_or_default().to_owned();
            drop(header);
            received.drain(..length);
            if code == request::GET_ROUTEINFO_BY_TOPIC {
                state.route_queries.fetch_add(1, Ordering::SeqCst);
            }
            let behaviour = *state.behaviour.lock().unwrap();
            match behaviour {
                Behaviour::Hung => continue,
                Behaviour::Closing => return,
                Behaviour::Slow(time) => tokio::time::sleep(time).await,
                _ => {}
            }
            let out = answer(state, behaviour, code, opaque, &topic);
            if stream.write_all(&out).await.is_err() {
                return;
            }
        }
    }
}

fn answer(state: &State, behaviour: Behaviour, code: i32, opaque: i32, topic: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let mut result = response::SUCCESS;
    match behaviour {
        Behaviour::Garbage => return b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        Behaviour::Code(code) => result = code,
        Behaviour::Nonsense => body.extend_from_slice(b"]["),
        Behaviour::Empty => {}
        _ if code != request::GET_ROUTEINFO_BY_TOPIC => result = response::QUERY_NOT_FOUND,
        _ => match state.routes.lock().unwrap().get(topic) {
            Some(route) => route.encode(Dialect::Standard, &mut body),
            None => result = response::TOPIC_NOT_EXIST,
        },
    }
    let mut out = Vec::new();
    let remark = (result != response::SUCCESS).then_some("told to");
    Response { opaque, remark, body: &body, ..Response::new(result) }.write(HeaderEncoding::Json, &mut out);
    out
}

//! Brokers of an agent among real name servers, some of which hang, come back empty or are gone.
#![allow(
    clippy::disallowed_methods,
    reason = "tests measure how long calls take and drive peers of their own"
)]

mod announced;
mod bounds;
mod deletion;
mod goodbye;
mod java;
mod loops;
mod opaques;
mod path;
mod unread;
mod world;

use std::time::{Duration, Instant};

use waypost_net::address::HostPort;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_wire::body::{BodyLimits, Dialect, KvTable, QueueData, TopicRouteData};
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::frame::{FrameLimits, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Request;
use waypost_rocketmq_wire::renumber::renumber;

use path::Path;
use world::{Broker, CLUSTER, Folder, LONG, all_have, ask, brokers_of, hung, route, until};

/// The codes of the frames in `bytes`.
fn codes(mut bytes: &[u8]) -> Vec<i32> {
    let limits = FrameLimits::default();
    let mut codes = Vec::new();
    while let Some((frame, length)) = decode_frame(bytes, &limits).expect("frames") {
        codes.push(Header::decode(&frame, &limits).expect("a header").code);
        bytes = &bytes[length..];
    }
    codes
}

/// The frames with the same opaque, which is the agent's own.
fn without_opaques(mut bytes: &[u8]) -> Vec<u8> {
    let limits = FrameLimits::default();
    let mut frames = Vec::new();
    while let Some((_, length)) = decode_frame(bytes, &limits).expect("frames") {
        let (frame, rest) = bytes.split_at(length);
        let renumbered = renumber(frame, 0, &limits).expect("a frame");
        frames.extend_from_slice(&renumbered.head);
        frames.extend_from_slice(&frame[renumbered.body_at..]);
        bytes = rest;
    }
    frames
}

/// The body of a registration of a topic alone: its queues on one broker.
fn alone(broker: &str) -> Vec<u8> {
    let queues = QueueData {
        broker_name: broker.to_owned(),
        read_queue_nums: 3,
        write_queue_nums: 3,
        perm: 6,
        topic_sys_flag: 0,
    };
    let data = TopicRouteData { queue_datas: vec![queues], ..TopicRouteData::default() };
    let mut body = Vec::new();
    data.encode(Dialect::Standard, &mut body);
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn no_broker_waits_for_a_hung_server() {
    let folder = Folder::new();
    let live = [folder.server(), folder.server()];
    let servers = [live[0].addresses()[0], live[1].addresses()[0]];
    let (hung, _listener) = hung().await;
    let agent = folder.agent(&[servers[0], hung, servers[1]]);
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&servers, "T", &["a"], LONG).await;
    let (mut answered, mut known) = (Vec::new(), Vec::new());
    for number in 0..21 {
        let topic = format!("new-{number}");
        let began = Instant::now();
        assert!(broker.register(&[&topic], 2 + number).await.is_success());
        answered.push(began.elapsed());
        all_have(&servers, &topic, &["a"], LONG).await;
        known.push(began.elapsed());
    }
    answered.sort_unstable();
    known.sort_unstable();
    // The median: other tests may have the machine for a moment.
    assert!(answered[10] <= Duration::from_millis(50), "{answered:?}");
    assert!(known[10] <= Duration::from_millis(200), "{known:?}");
    let status = agent.status().await;
    let queue = |server: std::net::SocketAddr| {
        let upstream = status.brokers[0].servers.iter().find(|it| it.server == server.to_string());
        upstream.expect("a server of the list").queue
    };
    assert_eq!((queue(servers[0]), queue(servers[1])), (0, 0));
    assert!(queue(hung) >= 22, "every topic waits for it: {}", queue(hung));
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_hear_what_each_broker_said_and_nothing_else() {
    let folder = Folder::new();
    let server = folder.server();
    let path = Path::to(server.addresses()[0]).await;
    let agent = folder.agent(&[path.address]);
    let (a, b) = tokio::join!(
        Broker::start("a", "0", agent.addresses()[0]),
        Broker::start("b", "0", agent.addresses()[0]),
    );
    // The agent has questions of its own on other connections.
    let of_brokers = || {
        let mut heard = path.heard();
        heard.retain(|bytes| codes(bytes).contains(&103));
        let mut heard: Vec<Vec<u8>> = heard.iter().map(|bytes| without_opaques(bytes)).collect();
        heard.sort_unstable_by_key(|bytes| std::cmp::Reverse(bytes.len()));
        heard
    };
    let mut of_a = without_opaques(&a.register_oddly(&["T", "U"], 1, 77).await);
    until("a's first frame", LONG, async || of_brokers() == [&of_a[..]]).await;
    let of_b = without_opaques(&b.register_oddly(&["V", "W"], 1, 77).await);
    until("b's frame on its own connection", LONG, async || of_brokers().len() == 2).await;
    of_a.extend(without_opaques(&a.register_oddly(&["T", "U", "X"], 2, -1).await));
    until("a's second frame", LONG, async || of_brokers() == [&of_a[..], &of_b[..]]).await;
    all_have(&[server.addresses()[0]], "X", &["a"], LONG).await;
    assert!(of_brokers() == [&of_a[..], &of_b[..]], "nothing is added");
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_server_that_goes_on_hears_the_latest_instead_of_everything() {
    let folder = Folder::new();
    let server = folder.server();
    let address = server.addresses()[0];
    let path = Path::to(address).await;
    let agent = folder.agent(&[path.address]);
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&[address], "T", &["a"], LONG).await;
    path.hold(true);
    for counter in 2..30 {
        assert!(broker.register(&["T", "U", "V"], counter).await.is_success());
        if counter == 10 {
            assert!(broker.register(&["kept", "kept too"], counter).await.is_success());
        }
        broker.beat();
        assert_eq!(broker.query(counter).await.field("changed"), Some("false"));
    }
    assert!(brokers_of(address, "V").await.is_empty(), "the way is held");
    path.hold(false);
    for topic in ["T", "V", "kept", "kept too"] {
        all_have(&[address], topic, &["a"], LONG).await;
    }
    until("an empty queue", LONG, async || agent.status().await.brokers[0].servers[0].queue == 0).await;
    let connections: Vec<Vec<i32>> = path.heard().iter().map(|bytes| codes(bytes)).collect();
    let heard = connections.iter().find(|codes| codes.contains(&103)).expect("a connection");
    let registrations = heard.iter().filter(|code| **code == 103).count();
    // The first, the one under way while the server hung, what stayed, the last.
    assert!((3..=4).contains(&registrations), "{heard:?}");
    assert!(heard.len() - registrations <= 2, "signs of life that nobody needs any more: {heard:?}");
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_empty_is_told_everything_at_once() {
    let folder = Folder::new();
    let (old, other) = (folder.server(), folder.server());
    let path = Path::to(old.addresses()[0]).await;
    let agent = folder.agent(&[path.address, other.addresses()[0]]);
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    assert!(broker.register(&["single"], 2).await.is_success());
    all_have(&[old.addresses()[0], other.addresses()[0]], "single", &["a"], LONG).await;
    let new = folder.server();
    let began = Instant::now();
    path.lead_to(new.addresses()[0]);
    for topic in ["single", "T", "U"] {
        all_have(&[new.addresses()[0]], topic, &["a"], LONG).await;
    }
    // The broker itself says nothing any more.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(brokers_of(other.addresses()[0], "T").await, ["a"]);
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_reconnects_never_leaves_a_route() {
    let folder = Folder::new();
    let server = folder.server();
    let address = server.addresses()[0];
    let agent = folder.agent(&[address]);
    let mut broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&[address], "T", &["a"], LONG).await;
    let watch = async |time: Duration| {
        let began = Instant::now();
        while began.elapsed() < time {
            assert_eq!(brokers_of(address, "T").await, ["a"], "after {:?}", began.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    broker.disconnect();
    watch(Duration::from_secs(2)).await;
    broker.connect(agent.addresses()[0]).await;
    assert_eq!(broker.query(1).await.field("changed"), Some("false"));
    watch(Duration::from_secs(5)).await;
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_is_withdrawn_at_once_and_others_stay() {
    let folder = Folder::new();
    let live = [folder.server(), folder.server()];
    let servers = [live[0].addresses()[0], live[1].addresses()[0]];
    let agent = folder.agent(&servers);
    let mut dying = Broker::start("a", "0", agent.addresses()[0]).await;
    let staying = Broker::start("b", "0", agent.addresses()[0]).await;
    assert!(dying.register(&["T", "U"], 1).await.is_success());
    assert!(staying.register(&["T", "U"], 1).await.is_success());
    all_have(&servers, "T", &["a", "b"], LONG).await;
    dying.die();
    let took = all_have(&servers, "T", &["b"], LONG).await;
    // A port that accepts would have given it 5 s.
    assert!(took < Duration::from_millis(4_500), "{took:?}");
    assert_eq!(agent.status().await.brokers.len(), 1);
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_a_connection_is_withdrawn_after_five_seconds() {
    let folder = Folder::new();
    let server = folder.server();
    let servers = [server.addresses()[0]];
    let agent = folder.agent(&servers);
    let mut broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&servers, "T", &["a"], LONG).await;
    broker.disconnect();
    let took = all_have(&servers, "T", &[], LONG).await;
    assert!(took > Duration::from_millis(4_500) && took < Duration::from_secs(8), "{took:?}");
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_flaps_is_not_dialled_more_often_for_it() {
    let folder = Folder::new();
    let server = folder.server();
    let agent = folder.agent(&[server.addresses()[0]]);
    let mut broker = Broker::start("a", "0", agent.addresses()[0]).await;
    for _ in 0..50 {
        assert!(broker.register(&["T", "U"], 1).await.is_success());
        broker.disconnect();
        broker.connect(agent.addresses()[0]).await;
    }
    // The dials of each loss itself: they wait in the backlog.
    broker.dialled(Duration::from_millis(500)).await;
    let dialled = broker.dialled(Duration::from_secs(1)).await;
    assert!((1..=5).contains(&dialled), "{dialled} dials in a second");
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_broker_loses_its_lease_though_its_connection_stays() {
    let folder = Folder::new();
    let server = folder.server();
    let servers = [server.addresses()[0]];
    let path = Path::to(servers[0]).await;
    let agent = folder.agent(&[path.address]);
    let mut broker = Broker::start("a", "0", agent.addresses()[0]).await;
    broker.fields = vec![("heartbeatTimeoutMillis", "6000")];
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&servers, "T", &["a"], LONG).await;
    // A reconnect of the agent is no sign of life of the broker.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let began = Instant::now();
    path.lead_to(servers[0]);
    all_have(&servers, "T", &["a"], LONG).await;
    all_have(&servers, "T", &[], LONG).await;
    let took = began.elapsed();
    assert!(took < Duration::from_millis(5_500), "the lease had 2 s left: {took:?}");
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_started_again_speaks_for_living_brokers() {
    let folder = Folder::new();
    let live = [folder.server(), folder.server()];
    let servers = [live[0].addresses()[0], live[1].addresses()[0]];
    let first = folder.agent(&servers);
    let mut living = Broker::start("a", "0", first.addresses()[0]).await;
    let mut dead = Broker::start("b", "0", first.addresses()[0]).await;
    for broker in [&living, &dead] {
        assert!(broker.register(&["T", "U"], 1).await.is_success());
        assert!(broker.register(&["single"], 2).await.is_success());
    }
    all_have(&servers, "single", &["a", "b"], LONG).await;
    let whole = route(servers[0], "U").await;
    first.shutdown().await;
    all_have(&servers, "T", &[], LONG).await;
    living.disconnect();
    dead.die();
    let second = folder.agent(&servers);
    all_have(&servers, "single", &["a"], LONG).await;
    all_have(&servers, "T", &["a"], LONG).await;
    let again = route(servers[0], "U").await.expect("a route");
    assert_eq!(again.queue_datas, whole.expect("a route").queue_datas[..1]);
    assert_eq!(brokers_of(servers[1], "T").await, ["a"], "the port of b refuses");
    living.connect(second.addresses()[0]).await;
    assert_eq!(living.query(2).await.field("changed"), Some("false"));
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stops_while_it_saves_forgets_nobody() {
    const BROKERS: usize = 40;
    let folder = Folder::new();
    let server = folder.server();
    let servers = [server.addresses()[0]];
    let first = folder.agent(&servers);
    let mut brokers = Vec::new();
    for _ in 0..BROKERS {
        let name = format!("b{}", brokers.len()).leak();
        let broker = Broker::start(name, "0", first.addresses()[0]).await;
        assert!(broker.register(&["T", "U"], 1).await.is_success());
        brokers.push(broker);
    }
    first.shutdown().await;
    let second = folder.agent(&servers);
    until("all brokers", LONG, async || second.status().await.brokers.len() == BROKERS).await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goodbye_is_answered_when_every_server_knows_or_after_a_second() {
    let folder = Folder::new();
    let live = [folder.server(), folder.server()];
    let servers = [live[0].addresses()[0], live[1].addresses()[0]];
    let path = Path::to(servers[1]).await;
    let agent = folder.agent(&[servers[0], path.address]);
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    for is_held in [false, true] {
        assert!(broker.register(&["T", "U"], 1).await.is_success());
        all_have(&servers, "T", &["a"], LONG).await;
        path.hold(is_held);
        let began = Instant::now();
        assert!(broker.unregister().await.is_success());
        let took = began.elapsed();
        assert!(brokers_of(servers[0], "T").await.is_empty());
        if is_held {
            assert!(took > Duration::from_millis(950) && took < Duration::from_secs(4), "{took:?}");
            path.hold(false);
            all_have(&servers, "T", &[], LONG).await;
        } else {
            assert!(brokers_of(servers[1], "T").await.is_empty());
        }
    }
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slave_is_told_its_master_if_any_server_knows_it() {
    let folder = Folder::new();
    let live = [folder.server(), folder.server()];
    let servers = [live[0].addresses()[0], live[1].addresses()[0]];
    let agent = folder.agent(&servers);
    // From another machine, whose agent or network reaches one server only.
    let master = Broker::start("a", "0", servers[1]).await;
    assert!(master.register(&["T", "U"], 1).await.is_success());
    let slave = Broker::start("a", "1", agent.addresses()[0]).await;
    for counter in 1..6 {
        let answer = slave.register(&["T", "U"], counter).await;
        let expected = [("haServerAddr", "127.0.0.1:1"), ("masterAddr", master.address.as_str())];
        for (field, value) in expected {
            assert_eq!(answer.field(field), Some(value), "registration {counter}: {answer:?}");
        }
    }
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_is_given_the_order_configuration_of_the_servers() {
    let folder = Folder::new();
    let server = folder.server();
    let (hung, _listener) = hung().await;
    let fields = [("namespace", "ORDER_TOPIC_CONFIG"), ("key", "T"), ("value", "a:4")];
    let put = Request { ext: &fields, ..Request::new(request::PUT_KV_CONFIG) };
    assert!(ask(server.addresses()[0], &put).await.is_success());
    let agent = folder.agent(&[hung, server.addresses()[0]]);
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    let given = |answer: &Answer| {
        let table = KvTable::decode(&answer.body, &BodyLimits::default()).expect("a table");
        table.table.get("T").cloned()
    };
    broker.register(&["T", "U"], 1).await;
    until("a server's first answer", LONG, async || route(server.addresses()[0], "T").await.is_some()).await;
    let answer = broker.register(&["T", "U"], 2).await;
    assert_eq!(given(&answer).as_deref(), Some("a:4"), "{answer:?}");
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_refuses_is_refused_in_its_words() {
    let folder = Folder::new();
    let server = folder.server();
    let agent = folder.agent(&[server.addresses()[0]]);
    let names =
        [("clusterName", CLUSTER), ("brokerName", "x"), ("brokerAddr", "127.0.0.1:2"), ("brokerId", "0")];
    let wrong_sum = [&names[..], &[("bodyCrc32", "5")]].concat();
    let body = b"{\"topicConfigSerializeWrapper\":{\"topicConfigTable\":{\"T\":{\"topicName\":\"T\"}}}}";
    let registration = |ext| Request { ext, body, ..Request::new(request::REGISTER_BROKER) };
    let questions = [
        registration(&wrong_sum),
        // A single topic of a broker that nobody knows.
        registration(&names),
        registration(&names[..3]),
        Request { body: b"{", ..registration(&names) },
        Request { ext: &names[1..], ..Request::new(request::UNREGISTER_BROKER) },
        Request { ext: &names[1..], ..Request::new(request::QUERY_DATA_VERSION) },
        Request { ext: &names, body: b"[", ..Request::new(request::QUERY_DATA_VERSION) },
        Request { ext: &names[..2], ..Request::new(request::BROKER_HEARTBEAT) },
    ];
    for question in questions {
        let (mine, theirs) =
            tokio::join!(ask(agent.addresses()[0], &question), ask(server.addresses()[0], &question));
        assert_eq!(theirs.code, response::SYSTEM_ERROR, "{question:?}");
        assert_eq!(mine, theirs, "{question:?}");
    }
    assert!(agent.status().await.brokers.is_empty());
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_about_versions_are_answered_as_a_server_would() {
    let folder = Folder::new();
    let server = folder.server();
    let address = server.addresses()[0];
    let agent = folder.agent(&[address]);
    let through = Broker::start("a", "0", agent.addresses()[0]).await;
    let directly = Broker::start("b", "0", address).await;
    for counter in [1, 1, 2] {
        let (mine, theirs) = tokio::join!(through.query(counter), directly.query(counter));
        assert_eq!(mine, theirs, "counter {counter}");
        tokio::join!(through.register(&["T", "U"], 1), directly.register(&["T", "U"], 1));
    }
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_a_broker_announces_alone_reaches_every_server() {
    let folder = Folder::new();
    let live = [folder.server(), folder.server()];
    let servers = [live[0].addresses()[0], live[1].addresses()[0]];
    let agent = folder.agent(&servers);
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    let answer = broker.call(request::REGISTER_TOPIC_IN_NAMESRV, &[("topic", "alone")], &alone("a")).await;
    assert!(answer.is_success(), "{answer:?}");
    all_have(&servers, "alone", &["a"], LONG).await;
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_of_the_list_gets_everything_and_a_removed_one_is_left() {
    let folder = Folder::new();
    let [first, second, third] = [folder.server(), folder.server(), folder.server()];
    let [first, second, third] = [&first, &second, &third].map(|server| server.addresses()[0]);
    let agent = folder.agent(&[first, second]);
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    assert!(broker.register(&["single"], 2).await.is_success());
    all_have(&[first, second], "single", &["a"], LONG).await;
    agent.replace_servers([second, third].map(Into::into).into_iter().collect());
    all_have(&[second, third], "single", &["a"], LONG).await;
    all_have(&[second, third], "T", &["a"], LONG).await;
    all_have(&[first], "T", &[], LONG).await;
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_no_name_server_of_itself() {
    let folder = Folder::new();
    let server = folder.server();
    let agent = folder.agent(&[server.addresses()[0]]);
    let own = agent.addresses()[0];
    let localhost: HostPort = format!("localhost:{}", own.port()).parse().expect("an address");
    agent.replace_servers([own.into(), localhost, server.addresses()[0].into()].into_iter().collect());
    let mut broker = Broker::start("a", "0", own).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&[server.addresses()[0]], "T", &["a"], LONG).await;
    // Had it heard itself, the broker would have a connection for ever.
    broker.disconnect();
    until("the end of the broker", LONG, async || agent.status().await.brokers.is_empty()).await;
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ends_unregisters_nobody() {
    let folder = Folder::new();
    let server = folder.server();
    let path = Path::to(server.addresses()[0]).await;
    let agent = folder.agent(&[path.address]);
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&[server.addresses()[0]], "T", &["a"], LONG).await;
    agent.shutdown().await;
    all_have(&[server.addresses()[0]], "T", &[], LONG).await;
    let heard: Vec<i32> = path.heard().iter().flat_map(|bytes| codes(bytes)).collect();
    assert!(!heard.contains(&request::UNREGISTER_BROKER), "{heard:?}");
}

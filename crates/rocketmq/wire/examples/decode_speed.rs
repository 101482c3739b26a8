//! How fast headers and registrations are read and written. Run it in release:
//!
//! ```text
//! cargo run --release -p waypost-rocketmq-wire --example decode_speed
//! ```

#![allow(clippy::disallowed_methods)] // a benchmark reads the real clock

use std::hint::black_box;
use std::time::{Duration, Instant};

use waypost_rocketmq_wire::body::{
    BodyForm, BodyLimits, DataVersion, RegisterBrokerBody, TopicConfig, deflate, inflate,
};
use waypost_rocketmq_wire::code;
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::{Request, Response};

/// Topics of the registration that is measured.
const TOPICS: usize = 50_000;

fn main() {
    for encoding in [HeaderEncoding::Json, HeaderEncoding::Binary] {
        headers(encoding);
    }
    registration();
}

/// The shortest of ten means, which is what a machine with other work to do disturbs least.
fn shortest(rounds: u32, mut work: impl FnMut()) -> Duration {
    (0..10)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..rounds {
                work();
            }
            start.elapsed() / rounds
        })
        .min()
        .unwrap_or_default()
}

fn headers(encoding: HeaderEncoding) {
    let limits = FrameLimits::default();
    let mut wire = Vec::new();
    let request = Request {
        opaque: 123_456,
        ext: &[("topic", "TopicTest")],
        ..Request::new(code::request::GET_ROUTEINFO_BY_TOPIC)
    };
    request.write(encoding, &mut wire);
    let read = shortest(100_000, || {
        let (frame, _) = decode_frame(black_box(&wire), &limits).unwrap().unwrap();
        let header = Header::decode(&frame, &limits).unwrap();
        assert_eq!(black_box(&header).ext.get("topic"), Some("TopicTest"));
    });
    let body = vec![b'x'; 1000];
    let response = Response { opaque: 123_456, body: &body, ..Response::new(code::response::SUCCESS) };
    let mut out = Vec::with_capacity(4096);
    let write = shortest(100_000, || {
        out.clear();
        black_box(&response).write(encoding, &mut out);
    });
    println!("{encoding:?}: read a 105 of {} bytes in {read:?}, write its answer in {write:?}", wire.len());
}

fn registration() {
    let names: Vec<String> = (0..TOPICS).map(|index| format!("orders-of-region-{index:05}")).collect();
    let topics = names.iter().map(|name| TopicConfig {
        topic_name: Some(name.into()),
        read_queue_nums: 8,
        write_queue_nums: 8,
        ..TopicConfig::empty(name.into())
    });
    let body = RegisterBrokerBody {
        data_version: DataVersion { state_version: 0, timestamp: 1_700_000_000_000, counter: 3 },
        topics: topics.collect(),
        mappings: Vec::new(),
        filter_servers: Some(Vec::new()),
    };
    let mut json = Vec::new();
    body.encode_json(&mut json);
    let mut binary = Vec::new();
    body.encode_binary(true, &mut binary);
    let deflated = deflate(&binary);
    let spaced = String::from_utf8(json.clone()).unwrap().replace(':', ": ").into_bytes();
    measure("broker's JSON", &json, BodyForm::Json);
    measure("other JSON", &spaced, BodyForm::Json);
    measure("inflated layout", &binary, BodyForm::Binary { mappings: true });
    let limits = BodyLimits::default();
    let took = shortest(2, || {
        black_box(inflate(black_box(&deflated), limits.inflated_max).unwrap());
    });
    println!("inflate {} to {} bytes: {took:?}", deflated.len(), binary.len());
}

fn measure(name: &str, bytes: &[u8], form: BodyForm) {
    let limits = BodyLimits::default();
    let took = shortest(3, || {
        let body = RegisterBrokerBody::decode(black_box(bytes), form, &limits).unwrap();
        assert_eq!(body.topics.len(), TOPICS);
    });
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = bytes.len() as f64 / 1e6 / took.as_secs_f64();
    println!("{name}: {TOPICS} topics in {} bytes: {took:?}, {rate:.0} MB/s", bytes.len());
}

//! Prints each change of a topic's route as it happens.
//!
//! ```text
//! cargo run -p waypost-rocketmq-discovery --example follow -- "127.0.0.1:9876" Orders
//! ```

use std::time::Duration;

use waypost_rocketmq_discovery::client::{Discovery, Options, Readiness};
use waypost_rocketmq_remoting::source::Source;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(servers), Some(topic)) = (arguments.next(), arguments.next()) else {
        return Err("usage: follow SERVERS TOPIC, for example: follow 127.0.0.1:9876 Orders".into());
    };
    let discovery = Discovery::start(Options::new(Source::from_environment(Some(&servers))?))?;
    // A service that cannot work without routes may as well say so at its start.
    discovery.wait_ready(Readiness::FailFast, Duration::from_secs(3)).await?;
    let mut watch = discovery.watch(&topic);
    loop {
        match watch.changed().await? {
            Some(route) => {
                let brokers: Vec<&str> =
                    route.groups().iter().map(|group| group.broker_name.as_str()).collect();
                println!("{topic} is on {}", brokers.join(", "));
            }
            None => println!("{topic} is gone"),
        }
    }
}

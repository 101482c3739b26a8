//! Looks a topic up once and prints where it lives.
//!
//! ```text
//! cargo run -p waypost-rocketmq-discovery --example find -- "127.0.0.1:9876" Orders
//! ```

use std::time::Duration;

use waypost_rocketmq_discovery::client::{Discovery, Options};
use waypost_rocketmq_remoting::source::Source;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(servers), Some(topic)) = (arguments.next(), arguments.next()) else {
        return Err("usage: find SERVERS TOPIC, for example: find 127.0.0.1:9876 Orders".into());
    };
    let discovery = Discovery::start(Options::new(Source::from_environment(Some(&servers))?))?;
    let route = discovery.route(&topic, Duration::from_secs(3)).await?;
    for group in route.groups() {
        println!("broker {} of cluster {}", group.broker_name, group.cluster);
        for (id, address) in &group.broker_addrs {
            println!("  {} {address}", if *id == 0 { "master" } else { "slave " });
        }
    }
    println!("{} queues to send to, {} to read from", route.publish().len(), route.subscribe().len());
    discovery.close(Duration::from_secs(1)).await;
    Ok(())
}

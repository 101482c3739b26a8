//! A broker that only registers: `cargo run -p waypost-rocketmq-registrar --example broker -- 127.0.0.1:9876`
//!
//! It adds a topic after three seconds, prints how the servers stand whenever that changes, and says goodbye
//! after ten seconds, or as many as a second argument says.

use std::error::Error;
use std::time::Duration;

use waypost_rocketmq_registrar::{Identity, Options, Quorum, Registrar, Role, Topic};
use waypost_rocketmq_remoting::source::Source;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let servers = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let seconds: u32 = std::env::args().nth(2).map_or(Ok(10), |text| text.parse())?;
    let identity = Identity::new("ExampleCluster", "example-broker", "127.0.0.1:10911".parse()?);
    let mut options = Options::new(identity, Source::parse(&servers)?);
    options.role = Role::Master;
    options.topics = vec![Topic::new("ExampleTopic", 4)];
    // 127.0.0.1 is no address for clients elsewhere; an example may be tried with any server.
    options.allow_unreachable = true;
    let registrar = Registrar::start(options)?;

    match registrar.wait_registered(Quorum::All, Duration::from_secs(3)).await {
        Ok(states) => println!("registered with all {} servers", states.len()),
        Err(error) => println!("{error}"),
    }
    let mut lines = Vec::new();
    for step in 0..seconds * 10 {
        if step == 30 {
            registrar.set_topic(Topic::new("LaterTopic", 8))?;
            println!("a topic was added");
        }
        let now: Vec<String> = registrar
            .servers()
            .iter()
            .map(|state| format!("{state}{}", if state.current { ", up to date" } else { "" }))
            .collect();
        if now != lines {
            now.iter().for_each(|line| println!("  {line}"));
            lines = now;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for farewell in registrar.close(Duration::from_secs(3)).await {
        println!("{farewell}");
    }
    Ok(())
}

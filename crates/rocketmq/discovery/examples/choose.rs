//! Chooses queues for messages the way a producer would, and reports how each try ended.
//!
//! The "message" is a question that the broker must work for, so that the example runs against any broker without
//! leaving messages behind. Stop a broker while it runs: its queues are avoided from the first failure on.
//!
//! ```text
//! cargo run -p waypost-rocketmq-discovery --example choose -- "127.0.0.1:9876" Orders
//! ```

use std::time::{Duration, Instant};

use waypost_net::dialer::{Dialer, resolve};
use waypost_net::tasks::Tasks;
use waypost_rocketmq_discovery::chooser::Choice;
use waypost_rocketmq_discovery::client::{Discovery, Options};
use waypost_rocketmq_discovery::faults::Outcome;
use waypost_rocketmq_discovery::picker::per_try_budget;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::source::Source;
use waypost_rocketmq_wire::code::request::GET_MAX_OFFSET;
use waypost_rocketmq_wire::message::Request;

const ATTEMPTS: u32 = 3;

#[tokio::main(flavor = "current_thread")]
#[allow(clippy::disallowed_methods, reason = "an application has its own clock")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(servers), Some(topic)) = (arguments.next(), arguments.next()) else {
        return Err("usage: choose SERVERS TOPIC, for example: choose 127.0.0.1:9876 Orders".into());
    };
    let discovery = Discovery::start(Options::new(Source::from_environment(Some(&servers))?))?;
    discovery.route(&topic, Duration::from_secs(3)).await?;
    let mut chooser = discovery.chooser(&topic);
    for number in 1.. {
        let began = Instant::now();
        let mut last_broker = None;
        for attempt in (1..=ATTEMPTS).rev() {
            let choice = chooser.choose(last_broker.as_deref())?;
            let broker = choice.queue.broker.to_string();
            // No attempt gets all the time, so that a hung broker leaves some for another.
            let budget = per_try_budget(Duration::from_secs(3).saturating_sub(began.elapsed()), attempt);
            let tried = Instant::now();
            let sent = send(&topic, &choice, budget).await;
            let outcome = match &sent {
                Ok(()) => Outcome::Success { latency: tried.elapsed() },
                Err(_) if tried.elapsed() >= budget => Outcome::TimedOut { limit: budget },
                Err(_) => Outcome::TransportError,
            };
            discovery.report(&topic, &broker, outcome);
            match sent {
                Ok(()) => {
                    println!("message {number} to queue {} of {broker}", choice.queue.id);
                    break;
                }
                Err(error) => println!("message {number} not to {broker}: {error}"),
            }
            last_broker = Some(broker);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

async fn send(topic: &str, choice: &Choice, limit: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let name = choice.address.parse()?;
    let address = resolve(&name).await?[0];
    let connection =
        Connection::open(&Dialer::default(), &Endpoint { name, address }, limit, &Tasks::new()).await?;
    let queue = choice.queue.id.to_string();
    let request = Request { ext: &[("topic", topic), ("queueId", &queue)], ..Request::new(GET_MAX_OFFSET) };
    connection.call(&request, limit).await?;
    Ok(())
}

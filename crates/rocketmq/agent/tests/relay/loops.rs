//! Agents that have each other for name servers.

use std::net::SocketAddr;

use waypost_net::network::NetworkList;
use waypost_rocketmq_access::access::AccessPolicy;
use waypost_rocketmq_agent::agent::Agent;
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::message::Request;

use crate::path::Path;
use crate::world::{Broker, Folder, LONG, all_have, ask, until};

/// An agent, and what it has on disk: two of them share nothing.
struct Own(Agent, #[expect(dead_code, reason = "removed with the agent")] Folder);

impl Own {
    fn start(servers: &[SocketAddr]) -> Self {
        let folder = Folder::new();
        Self(folder.agent(servers), folder)
    }

    fn address(&self) -> SocketAddr {
        self.0.addresses()[0]
    }

    fn list(&self, servers: &[SocketAddr]) {
        self.0.replace_servers(servers.iter().map(|server| (*server).into()).collect());
    }

    /// Waits until it has these servers and has left those out.
    async fn wait_for(&self, servers: &[SocketAddr], left_out: &[SocketAddr]) {
        let texts = |all: &[SocketAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (servers, left_out) = (texts(servers), texts(left_out));
        until(&format!("{servers:?} without {left_out:?}"), LONG, async || {
            let status = self.0.status().await;
            let mut used: Vec<String> = status.servers.into_iter().map(|server| server.server).collect();
            used.sort_by_key(|server| servers.iter().position(|expected| expected == server));
            used == servers && status.left_out == left_out
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_of_two_agents_that_name_each_other_ends_with_its_connection() {
    let folder = Folder::new();
    let name_server = folder.server();
    let server = name_server.addresses()[0];
    let a = Own::start(&[server]);
    let b = Own::start(&[a.address(), server]);
    let mut broker = Broker::start("a", "0", a.address()).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&[server], "T", &["a"], LONG).await;
    // From here on the broker's frames go round until the agents know.
    a.list(&[b.address(), server]);
    a.wait_for(&[server], &[b.address()]).await;
    b.wait_for(&[server], &[a.address()]).await;
    assert!(broker.register(&["T", "U", "V"], 2).await.is_success());
    all_have(&[server], "V", &["a"], LONG).await;
    broker.disconnect();
    all_have(&[server], "T", &[], LONG).await;
    for agent in [&a, &b] {
        until("no broker", LONG, async || agent.0.status().await.brokers.is_empty()).await;
    }
    a.wait_for(&[server], &[b.address()]).await;
    b.wait_for(&[server], &[a.address()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_comes_back_when_it_leads_back_no_longer() {
    let folder = Folder::new();
    let name_server = folder.server();
    let server = name_server.addresses()[0];
    let a = Own::start(&[server]);
    let b = Own::start(&[a.address()]);
    a.list(&[b.address()]);
    a.wait_for(&[], &[b.address()]).await;
    b.wait_for(&[], &[a.address()]).await;
    let question = Request { ext: &[("topic", "T")], ..Request::new(request::GET_ROUTEINFO_BY_TOPIC) };
    let answer = ask(a.address(), &question).await;
    assert_eq!(answer.code, response::SYSTEM_ERROR, "nobody is left to ask: {answer:?}");

    b.list(&[server]);
    a.wait_for(&[b.address()], &[]).await;
    b.wait_for(&[server], &[]).await;
    let broker = Broker::start("a", "0", a.address()).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&[server, a.address()], "T", &["a"], LONG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_agents_in_a_ring_leave_the_next_one_out() {
    let folder = Folder::new();
    let name_server = folder.server();
    let server = name_server.addresses()[0];
    let a = Own::start(&[server]);
    let c = Own::start(&[a.address(), server]);
    let b = Own::start(&[c.address()]);
    a.list(&[b.address(), server]);
    a.wait_for(&[server], &[b.address()]).await;
    b.wait_for(&[], &[c.address()]).await;
    c.wait_for(&[server], &[a.address()]).await;

    // Once the ring is open, each has what its list says.
    c.list(&[server]);
    a.wait_for(&[b.address(), server], &[]).await;
    b.wait_for(&[c.address()], &[]).await;
    c.wait_for(&[server], &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_used_until_it_says_that_it_leads_back() {
    let folder = Folder::new();
    let name_server = folder.server();
    let a = Own::start(&[name_server.addresses()[0]]);
    let b = Own::start(&[a.address()]);
    let path = Path::to(b.address()).await;
    path.hold(true);
    a.list(&[path.address]);
    a.wait_for(&[path.address], &[]).await;
    path.hold(false);
    a.wait_for(&[], &[path.address]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_the_place_of_a_server_is_noticed_with_the_new_connection() {
    let folder = Folder::new();
    let name_server = folder.server();
    let server = name_server.addresses()[0];
    let path = Path::to(server).await;
    let a = Own::start(&[path.address]);
    let b = Own::start(&[a.address()]);
    a.wait_for(&[path.address], &[]).await;
    until("it was asked", LONG, async || !path.heard().concat().is_empty()).await;
    path.lead_to(b.address());
    a.wait_for(&[], &[path.address]).await;
    path.lead_to(server);
    a.wait_for(&[path.address], &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_says_who_it_is_to_everybody_and_a_name_server_does_not_know_the_question() {
    let folder = Folder::new();
    let name_server = folder.server();
    let server = name_server.addresses()[0];
    let question = Request::new(request::IDENTIFY_AGENT);
    assert_eq!(ask(server, &question).await.code, response::REQUEST_CODE_NOT_SUPPORTED);
    let nobody: NetworkList = "192.0.2.0/24".parse().expect("a network");
    let access = AccessPolicy { read: nobody.clone(), broker: nobody, ..AccessPolicy::of_agent() };
    let closed = folder.agent_with(&[server], access);
    let own = closed.addresses()[0];
    assert_eq!(ask(own, &Request::new(999)).await.code, response::NO_PERMISSION);
    let (first, again) = (ask(own, &question).await, ask(own, &question).await);
    assert_eq!((first.code, first.field("leadsTo")), (response::SUCCESS, Some("")));
    assert!(first.field("agentId").is_some_and(|id| id.len() == 32), "{first:?}");
    assert_eq!(first, again);
}

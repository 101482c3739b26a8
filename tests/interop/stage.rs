//! What every scenario starts with.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use waypost_testkit::agent::Agent;
use waypost_testkit::peers::{
    Broker, JavaPeer, Mqadmin, NameServer, Program, Route, Settings, Story, Version, Workshop,
    broker_settings, poll_until, tools_present,
};

/// For what a broker or a name server does by itself: a broker 5.5.0 first registers 10 s after its start.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// For what waits for the next registration, every 30 s.
pub(crate) const NEXT_REGISTRATION: Duration = Duration::from_secs(45);

/// Within this time a broker killed with -9 must be off the route. The original has no such promise.
pub(crate) const GONE_AFTER_KILL: Duration = Duration::from_secs(1);

/// The tools that every Java peer needs.
pub(crate) const JAVA_TOOLS: &[&str] = &["java", "javac", "mvn"];

/// A scenario with its name server program and its peers' workshop.
pub(crate) struct Stage {
    pub(crate) workshop: Workshop,
    pub(crate) program: Program,
    pub(crate) story: Story,
}

impl Stage {
    /// Prints the scenario; `None`, and one line, if a tool is missing.
    pub(crate) fn open(name: &str, tools: &[&str], text: &str) -> Option<Self> {
        if !tools_present(name, tools) {
            return None;
        }
        let program = Program::from_environment(env!("CARGO_BIN_EXE_waypost"));
        let story = Story::begin(name, text);
        story.step(format_args!("on {program}"));
        Some(Self { workshop: Workshop::open().expect("the folder of the peers"), program, story })
    }

    /// A name server with `settings`.
    pub(crate) fn name_server(&self, settings: &Settings) -> NameServer {
        let what = format!("{} is ready", self.program);
        self.story
            .timed(what, || NameServer::start(&self.workshop, &self.program, settings))
            .0
            .expect("a name server")
    }

    /// An agent for `servers`. It is ours whatever the name servers are.
    pub(crate) fn agent(&self, servers: &[NameServer]) -> Agent {
        let list: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
        let binary = Path::new(env!("CARGO_BIN_EXE_waypost"));
        self.story.timed("the agent is ready", || Agent::start(binary, &list.join(";"))).0
    }

    /// A broker with `extra` settings, ready.
    pub(crate) fn broker(&self, version: Version, broker: &Broker<'_>, extra: &Settings) -> JavaPeer {
        let mut settings = broker_settings(version, broker);
        settings.extend(extra);
        let what = format!("broker {version} {} {} is ready", broker.name, broker.id);
        self.story.timed(what, || JavaPeer::broker(&self.workshop, version, &settings)).0.expect("a broker")
    }

    /// mqadmin of a version.
    pub(crate) fn mqadmin(&self, version: Version) -> Mqadmin {
        let what = format!("mqadmin {version} is ready");
        self.story.timed(what, || Mqadmin::start(&self.workshop, version)).0.expect("mqadmin")
    }

    /// Creates `topic` with four queues on every master of `cluster`.
    pub(crate) fn create_topic(&self, admin: &mut Mqadmin, server: &NameServer, cluster: &str, topic: &str) {
        let address = server.address().to_string();
        let output =
            admin.run(&["updateTopic", "-n", &address, "-c", cluster, "-t", topic, "-r", "4", "-w", "4"]);
        assert!(output.text.contains("success"), "updateTopic {topic}: {}", output.text);
        self.story.step(format_args!("mqadmin {} updateTopic {topic}: done", admin.version()));
    }

    /// Waits until the route of `topic` satisfies `condition`, prints how long that took, and returns the route.
    pub(crate) fn wait_for_route(
        &self,
        server: &NameServer,
        topic: &str,
        what: &str,
        deadline: Duration,
        condition: impl Fn(&Route) -> bool,
    ) -> (Route, Duration) {
        let probe = server.probe();
        let before = Instant::now();
        let mut last = Route::default();
        let found = poll_until(deadline, || {
            // No route and an empty one are the same to a caller.
            last = probe.route(topic).unwrap_or_default();
            condition(&last).then_some(())
        });
        let took = before.elapsed();
        assert!(found.is_some(), "route of {topic}: not within {deadline:?}: {what}; it is {last:?}");
        self.story.step(format_args!("route of {topic}: {what} after {} ms", took.as_millis()));
        (last, took)
    }

    /// Waits until the brokers that `server` lists (106) are exactly `names`.
    pub(crate) fn wait_for_brokers(
        &self,
        server: &NameServer,
        names: &[&str],
        deadline: Duration,
    ) -> Duration {
        let probe = server.probe();
        let before = Instant::now();
        let mut last = BTreeMap::new();
        let found = poll_until(deadline, || {
            last = probe.brokers().unwrap_or_default();
            last.retain(|_, addresses| !addresses.is_empty());
            last.keys().eq(names).then_some(())
        });
        let took = before.elapsed();
        assert!(found.is_some(), "brokers: not {names:?} within {deadline:?} but {last:?}");
        self.story.step(format_args!("brokers are {names:?} after {} ms", took.as_millis()));
        took
    }

    /// Waits until the group (901) has exactly these members by id.
    pub(crate) fn wait_for_members(
        &self,
        server: &NameServer,
        cluster: &str,
        group: &str,
        members: &[(u64, &JavaPeer)],
    ) {
        let expected: BTreeMap<u64, String> =
            members.iter().map(|(id, peer)| (*id, peer.address().to_string())).collect();
        let probe = server.probe();
        let before = Instant::now();
        let mut last = BTreeMap::new();
        let found = poll_until(SOON, || {
            last = probe.members(cluster, group).unwrap_or_default();
            (last == expected).then_some(())
        });
        assert!(found.is_some(), "members of {group}: not {expected:?} within {SOON:?} but {last:?}");
        self.story
            .step(format_args!("members of {group} are {last:?} after {} ms", before.elapsed().as_millis()));
    }
}

//! The name servers of a client: their health and the order in which they are asked.

use std::sync::Arc;
use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use waypost_net::clock::Millis;
use waypost_rocketmq_remoting::endpoint::Endpoint;

use crate::health::{Fault, Health, jittered};

/// A chosen server that answered nothing for so long is probed, so that a hung one is known before a caller
/// meets it (spec B17 item 8).
const IDLE_PROBE: Duration = Duration::from_secs(10);

/// How often the order of healthy servers is drawn again, so that a restarted server regains its share
/// (spec B17 item 10).
const REDRAW: Duration = Duration::from_secs(3600);

/// A server, as long as the client knows it. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(u64);

/// One server and what is known of it.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name in the core.
    pub id: ServerId,
    /// Where it is.
    pub endpoint: Endpoint,
    /// How it does.
    pub health: Health,
    /// Whether a probe is under way.
    pub probing: bool,
}

/// The servers. The order of the list is the order in which equally healthy ones are asked; it is random.
#[derive(Debug, Default)]
pub struct Fleet {
    servers: Vec<Server>,
    next_id: u64,
    redraw_at: Option<Millis>,
}

impl Fleet {
    /// Takes over a new list: servers that stay keep their health and place, new ones get a random place.
    /// Returns those that left.
    pub fn replace(
        &mut self,
        endpoints: &Arc<[Endpoint]>,
        now: Millis,
        random: &mut impl Rng,
    ) -> Vec<Server> {
        let (stayed, left) =
            self.servers.drain(..).partition(|server: &Server| endpoints.contains(&server.endpoint));
        self.servers = stayed;
        for endpoint in endpoints.iter() {
            if self.servers.iter().any(|server| server.endpoint == *endpoint) {
                continue;
            }
            let id = ServerId(self.next_id);
            self.next_id = self.next_id.saturating_add(1);
            let server = Server { id, endpoint: endpoint.clone(), health: Health::default(), probing: false };
            let place = random.random_range(0..=self.servers.len());
            self.servers.insert(place, server);
        }
        self.redraw_at.get_or_insert_with(|| now.after(jittered(REDRAW, random)));
        left
    }

    /// Draws the order again when it is time.
    pub fn redraw(&mut self, now: Millis, random: &mut impl Rng) {
        if self.redraw_at.is_some_and(|at| now >= at) {
            self.servers.shuffle(random);
            self.redraw_at = Some(now.after(jittered(REDRAW, random)));
        }
    }

    /// The servers in the order in which to ask them. One that was never asked is as good as the best that
    /// answers, no better: it may be hung, and a caller would pay for finding out.
    #[must_use]
    pub fn ranked(&self) -> Vec<ServerId> {
        let known = |server: &&Server| !server.health.is_suspect() && server.health.latency.is_some();
        let best = self.servers.iter().filter(known).map(|server| server.health.class()).min();
        let mut order: Vec<&Server> = self.servers.iter().collect();
        // Stable: the random order decides among equals.
        order.sort_by_key(|server| match best {
            Some(best) if is_untried(server) => best,
            _ => server.health.class(),
        });
        order.into_iter().map(|server| server.id).collect()
    }

    /// How many servers at the front of [`Fleet::ranked`] are no suspects.
    #[must_use]
    pub fn healthy(&self) -> usize {
        self.servers.iter().filter(|server| !server.health.is_suspect()).count()
    }

    /// The server, unless it left the list.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&Server> {
        self.servers.iter().find(|server| server.id == id)
    }

    /// All servers.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Notes an answer.
    pub fn answered(&mut self, id: ServerId, latency: Duration, now: Millis) {
        if let Some(server) = self.servers.iter_mut().find(|server| server.id == id) {
            server.health.answered(latency, now);
        }
    }

    /// Notes a failure.
    pub fn failed(&mut self, id: ServerId, fault: Fault, now: Millis, random: &mut impl Rng) {
        if let Some(server) = self.servers.iter_mut().find(|server| server.id == id) {
            server.health.failed(fault, now, random);
        }
    }

    /// The servers to probe now: those whose quarantine is over, the chosen one if it was idle, and once those
    /// that were never asked if the chosen one is slow. Each is marked until [`Fleet::probed`].
    pub fn start_probes(&mut self, now: Millis) -> Vec<ServerId> {
        let chosen = self.chosen();
        let due = |server: &Server| probe_time(server, chosen).is_some_and(|at| now >= at);
        let mut started = Vec::new();
        for server in self.servers.iter_mut().filter(|server| due(server)) {
            server.probing = true;
            started.push(server.id);
        }
        started
    }

    /// Ends a probe.
    pub fn probed(&mut self, id: ServerId) {
        if let Some(server) = self.servers.iter_mut().find(|server| server.id == id) {
            server.probing = false;
        }
    }

    /// When [`Fleet::start_probes`] has something to start.
    #[must_use]
    pub fn next_probe(&self) -> Option<Millis> {
        let chosen = self.chosen();
        self.servers.iter().filter_map(|server| probe_time(server, chosen)).min()
    }

    /// The server that is asked first, if it answers.
    fn chosen(&self) -> Option<Chosen> {
        let first = self.server(*self.ranked().first()?)?;
        if first.health.is_suspect() {
            return None;
        }
        let slow = first.health.class() > Health::default().class();
        Some(Chosen { id: first.id, last_answer: first.health.last_answer?, slow })
    }
}

#[derive(Clone, Copy, Debug)]
struct Chosen {
    id: ServerId,
    last_answer: Millis,
    slow: bool,
}

fn probe_time(server: &Server, chosen: Option<Chosen>) -> Option<Millis> {
    if server.probing {
        return None;
    }
    if server.health.probe_at.is_some() {
        return server.health.probe_at;
    }
    let chosen = chosen?;
    if chosen.id == server.id {
        return Some(chosen.last_answer.after(IDLE_PROBE));
    }
    (chosen.slow && is_untried(server)).then_some(chosen.last_answer)
}

/// Whether nothing is known of it.
fn is_untried(server: &Server) -> bool {
    !server.health.is_suspect() && server.health.latency.is_none()
}

#[cfg(test)]
pub(crate) mod tests_support {
    use super::ServerId;

    pub(crate) fn ids(count: u64) -> Vec<ServerId> {
        (0..count).map(ServerId).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn endpoints(ports: &[u16]) -> Arc<[Endpoint]> {
        ports.iter().map(|port| Endpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], *port)))).collect()
    }

    fn fleet(ports: &[u16], seed: u64) -> (Fleet, StdRng) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut fleet = Fleet::default();
        fleet.replace(&endpoints(ports), Millis::ZERO, &mut random);
        (fleet, random)
    }

    #[test]
    fn clients_start_with_different_servers() {
        let mut firsts = [0_usize; 3];
        for seed in 0..3_000 {
            let (fleet, _) = fleet(&[1, 2, 3], seed);
            let first = fleet.server(fleet.ranked()[0]).expect("known").endpoint.address.port();
            firsts[usize::from(first) - 1] += 1;
        }
        assert!(firsts.iter().all(|count| (800..1_200).contains(count)), "{firsts:?}");
    }

    #[test]
    fn a_failed_server_is_asked_last_until_it_answers() {
        let (mut fleet, mut random) = fleet(&[1, 2, 3], 1);
        let first = fleet.ranked()[0];
        fleet.failed(first, Fault::Silent, Millis::ZERO, &mut random);
        assert_eq!(*fleet.ranked().last().expect("three"), first);
        // The end of the quarantine asks for a probe, it does not bring the server back.
        let later = Millis::new(5_000);
        assert_eq!(fleet.start_probes(later), [first]);
        assert_eq!(fleet.start_probes(later), []);
        assert_eq!(*fleet.ranked().last().expect("three"), first);
        fleet.answered(first, Duration::from_millis(1), later);
        fleet.probed(first);
        assert_eq!(fleet.ranked()[0], first);
    }

    #[test]
    fn a_slow_server_is_asked_after_quick_ones() {
        let (mut fleet, _) = fleet(&[1, 2], 1);
        let order = fleet.ranked();
        fleet.answered(order[0], Duration::from_millis(900), Millis::ZERO);
        fleet.answered(order[1], Duration::from_millis(2), Millis::ZERO);
        assert_eq!(fleet.ranked(), [order[1], order[0]]);
    }

    #[test]
    fn a_server_that_was_never_asked_is_not_better_than_one_that_answers() {
        let (mut fleet, _) = fleet(&[1, 2, 3], 1);
        let order = fleet.ranked();
        fleet.answered(order[0], Duration::from_millis(60), Millis::ZERO);
        assert_eq!(fleet.ranked(), order);
    }

    #[test]
    fn whether_another_server_is_nearer_than_a_slow_one_is_found_by_one_probe() {
        let (mut fleet, mut random) = fleet(&[1, 2, 3], 1);
        let order = fleet.ranked();
        let now = Millis::new(1_000);
        fleet.answered(order[0], Duration::from_millis(5), now);
        assert_eq!(fleet.start_probes(now), [], "it is near enough");
        for _ in 0..20 {
            fleet.answered(order[0], Duration::from_millis(60), now);
        }
        assert_eq!(fleet.next_probe(), Some(now));
        let mut probed = fleet.start_probes(now);
        probed.sort();
        let mut others = order[1..].to_vec();
        others.sort();
        assert_eq!(probed, others);
        fleet.answered(order[1], Duration::from_millis(5), now);
        fleet.probed(order[1]);
        fleet.failed(order[2], Fault::Silent, now, &mut random);
        fleet.probed(order[2]);
        assert_eq!(fleet.ranked(), [order[1], order[0], order[2]]);
        assert_eq!(fleet.start_probes(now), [], "each is known now");
    }

    #[test]
    fn the_chosen_server_is_probed_when_it_was_idle() {
        let (mut fleet, _) = fleet(&[1, 2], 1);
        let chosen = fleet.ranked()[0];
        fleet.answered(chosen, Duration::ZERO, Millis::ZERO);
        assert_eq!(fleet.start_probes(Millis::new(9_999)), []);
        assert_eq!(fleet.next_probe(), Some(Millis::new(10_000)));
        assert_eq!(fleet.start_probes(Millis::new(10_000)), [chosen]);
    }

    #[test]
    fn servers_that_stay_keep_their_health() {
        let (mut fleet, mut random) = fleet(&[1, 2], 1);
        let sick = fleet.ranked()[0];
        let port = fleet.server(sick).expect("known").endpoint.address.port();
        fleet.failed(sick, Fault::Connect, Millis::ZERO, &mut random);
        let left = fleet.replace(&endpoints(&[port, 7]), Millis::ZERO, &mut random);
        assert_eq!(left.len(), 1);
        assert!(fleet.server(sick).expect("stayed").health.is_suspect());
        assert_eq!(fleet.servers().len(), 2);
    }
}

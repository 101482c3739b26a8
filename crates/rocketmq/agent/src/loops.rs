//! Which servers of the list are agents that lead back to this one.
//!
//! Two agents that have each other for a name server would send each other every question, and renew leases that no
//! broker renews. So each asks its servers who they are ([`request::IDENTIFY_AGENT`]). An agent names itself and every
//! agent that it leads to, with the number of steps. A server whose answer holds our own id leads back and is left out.
//!
//! 1. What counts is whom the list names, also those that are left out: if two agents told only whom they ask, each would
//!    leave the other out, see that it is left out itself, and take the other back.
//! 2. Steps are counted up to [`STEPS_MAX`]: agents of a ring tell each other of one that has left it, one step further
//!    each time, so it is forgotten at the end of the count.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::SocketAddr;

use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::endpoint::Endpoint;

/// From agent to agent; no chain of agents is as long.
const STEPS_MAX: u8 = 16;

/// The most agents that one answer names: far more than lead to one, and the header of an answer holds them.
const AGENTS_MAX: usize = 1_000;

/// The longest id that is believed to be one.
const ID_MAX: usize = 32;

/// The field with the id of an agent.
const ID_FIELD: &str = "agentId";

/// The field with the agents that it leads to: ids and steps, `id=steps,id=steps`.
const LEADS_TO_FIELD: &str = "leadsTo";

/// The name of one agent from its start to its end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct AgentId(String);

impl AgentId {
    pub(crate) fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }

    fn parse(text: &str) -> Option<Self> {
        let is_id =
            (1..=ID_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_id.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What an agent says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    id: AgentId,
    /// The agents that its list leads to, and in how many steps.
    leads_to: BTreeMap<AgentId, u8>,
}

impl Identity {
    /// What a server's answer says; `None` if it is no agent.
    pub(crate) fn of(answer: &Answer) -> Option<Self> {
        if !answer.is_success() {
            return None;
        }
        let id = AgentId::parse(answer.field(ID_FIELD)?)?;
        let entry = |entry: &str| {
            let (id, steps) = entry.split_once('=')?;
            Some((AgentId::parse(id)?, steps.parse().ok()?))
        };
        let leads_to = answer.field(LEADS_TO_FIELD).unwrap_or_default().split(',').filter_map(entry);
        Some(Self { id, leads_to: leads_to.take(AGENTS_MAX).collect() })
    }

    /// The fields of the answer that says it.
    pub(crate) fn fields(&self) -> [(&'static str, String); 2] {
        let entries: Vec<String> =
            self.leads_to.iter().take(AGENTS_MAX).map(|(id, steps)| format!("{id}={steps}")).collect();
        [(ID_FIELD, self.id.to_string()), (LEADS_TO_FIELD, entries.join(","))]
    }

    fn holds(&self, id: &AgentId) -> bool {
        self.id == *id || self.leads_to.contains_key(id)
    }
}

/// Something to tell the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It leads back: it is left out.
    LeadsBack(Endpoint),
    /// It leads back no longer: it is asked again.
    LeadsOn(Endpoint),
    /// Every server of the list leads back: nobody is left to ask.
    NobodyLeft,
}

/// The servers of the list and what is known of each.
#[derive(Debug)]
pub(crate) struct Loops {
    own: AgentId,
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    endpoint: Endpoint,
    /// What it said of itself last; `None` if it said nothing yet, or is a name server.
    identity: Option<Identity>,
}

impl Loops {
    pub(crate) fn new(own: AgentId) -> Self {
        Self { own, servers: Vec::new() }
    }

    /// The list is this one now. What is known of a server that stays is kept.
    pub(crate) fn follow(&mut self, list: &[Endpoint]) -> Vec<Change> {
        let was_left = self.is_somebody_left();
        let mut known = std::mem::take(&mut self.servers);
        for endpoint in list {
            let position = known.iter().position(|server| server.endpoint == *endpoint);
            let identity = position.and_then(|position| known.swap_remove(position).identity);
            self.servers.push(Server { endpoint: endpoint.clone(), identity });
        }
        self.nobody_left(was_left).into_iter().collect()
    }

    /// A server said who it is.
    pub(crate) fn heard(&mut self, endpoint: &Endpoint, identity: Option<Identity>) -> Vec<Change> {
        let was_left = self.is_somebody_left();
        let own = &self.own;
        let leads_back = |identity: &Option<Identity>| identity.as_ref().is_some_and(|it| it.holds(own));
        let Some(server) = self.servers.iter_mut().find(|server| server.endpoint == *endpoint) else {
            return Vec::new();
        };
        let (before, after) = (leads_back(&server.identity), leads_back(&identity));
        server.identity = identity;
        let change = match (before, after) {
            (false, true) => Some(Change::LeadsBack(endpoint.clone())),
            (true, false) => Some(Change::LeadsOn(endpoint.clone())),
            (false, false) | (true, true) => None,
        };
        change.into_iter().chain(self.nobody_left(was_left)).collect()
    }

    /// Who is left out.
    pub(crate) fn left_out(&self) -> Vec<&Endpoint> {
        self.servers.iter().filter(|server| self.leads_back(server)).map(|server| &server.endpoint).collect()
    }

    /// Their addresses.
    pub(crate) fn addresses_left_out(&self) -> HashSet<SocketAddr> {
        self.left_out().into_iter().map(|endpoint| endpoint.address).collect()
    }

    /// What this agent says of itself.
    pub(crate) fn identity(&self) -> Identity {
        let mut leads_to = BTreeMap::new();
        for identity in self.servers.iter().filter_map(|server| server.identity.as_ref()) {
            let further = identity.leads_to.iter().map(|(id, steps)| (id, steps.saturating_add(1)));
            for (id, steps) in further.chain([(&identity.id, 1)]) {
                if *id == self.own || steps > STEPS_MAX {
                    continue;
                }
                let known = leads_to.entry(id.clone()).or_insert(steps);
                *known = steps.min(*known);
            }
        }
        Identity { id: self.own.clone(), leads_to }
    }

    fn leads_back(&self, server: &Server) -> bool {
        server.identity.as_ref().is_some_and(|identity| identity.holds(&self.own))
    }

    fn is_somebody_left(&self) -> bool {
        self.servers.is_empty() || self.servers.iter().any(|server| !self.leads_back(server))
    }

    fn nobody_left(&self, was_left: bool) -> Option<Change> {
        (was_left && !self.is_somebody_left()).then_some(Change::NobodyLeft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply;

    /// Agents that know each other by number; what one lists is asked for in `ask`.
    struct World {
        agents: Vec<Loops>,
    }

    fn endpoint(number: usize) -> Endpoint {
        SocketAddr::from(([127, 0, 0, 1], u16::try_from(number).expect("a port"))).into()
    }

    impl World {
        /// Agent 0 lists the first of `lists`, and so on; numbers beyond the agents are name servers.
        fn new(lists: &[&[usize]]) -> Self {
            let agents = (0..lists.len()).map(|number| Loops::new(AgentId(format!("id{number}")))).collect();
            let mut world = Self { agents };
            for (number, list) in lists.iter().enumerate() {
                world.list(number, list);
            }
            world
        }

        fn list(&mut self, number: usize, list: &[usize]) -> Vec<Change> {
            let list: Vec<Endpoint> = list.iter().map(|server| endpoint(*server)).collect();
            self.agents[number].follow(&list)
        }

        /// Each agent asks each of its servers once.
        fn round(&mut self) -> Vec<(usize, Change)> {
            let mut changes = Vec::new();
            for asking in 0..self.agents.len() {
                let list: Vec<Endpoint> =
                    self.agents[asking].servers.iter().map(|server| server.endpoint.clone()).collect();
                for server in list {
                    let asked = self.agents.get(usize::from(server.address.port()));
                    let identity = asked.and_then(|agent| said(&agent.identity()));
                    let heard = self.agents[asking].heard(&server, identity);
                    changes.extend(heard.into_iter().map(|change| (asking, change)));
                }
            }
            changes
        }

        /// Rounds until nothing changes; how many there were.
        fn settle(&mut self) -> usize {
            for round in 1..200 {
                let before: Vec<_> = self.agents.iter().map(Loops::identity).collect();
                self.round();
                if before == self.agents.iter().map(Loops::identity).collect::<Vec<_>>() {
                    return round;
                }
            }
            panic!("it never comes to rest");
        }

        fn left_out(&self, number: usize) -> Vec<usize> {
            self.agents[number].left_out().iter().map(|it| usize::from(it.address.port())).collect()
        }
    }

    /// An identity as it comes over the wire.
    fn said(identity: &Identity) -> Option<Identity> {
        let fields = identity.fields().map(|(name, value)| (name.to_owned(), value));
        let heard = Identity::of(&Answer { ext: Some(fields.to_vec()), ..reply::success() });
        assert_eq!(heard.as_ref(), Some(identity));
        heard
    }

    #[test]
    fn two_agents_that_name_each_other_leave_each_other_out_for_good() {
        let mut world = World::new(&[&[1, 9], &[0, 9]]);
        world.settle();
        assert_eq!((world.left_out(0), world.left_out(1)), (vec![1], vec![0]));
        for _ in 0..5 {
            assert_eq!(world.round(), [], "they do not take each other back");
        }
    }

    #[test]
    fn agents_in_a_ring_leave_the_next_one_out() {
        for count in [3, 5, usize::from(STEPS_MAX)] {
            let lists: Vec<Vec<usize>> = (0..count).map(|number| vec![(number + 1) % count, 99]).collect();
            let mut world = World::new(&lists.iter().map(Vec::as_slice).collect::<Vec<_>>());
            world.settle();
            for number in 0..count {
                assert_eq!(world.left_out(number), [(number + 1) % count], "{number} of {count}");
            }
        }
    }

    #[test]
    fn a_chain_of_agents_loses_nobody() {
        let mut world = World::new(&[&[1], &[2], &[9]]);
        assert_eq!(world.round(), []);
        world.settle();
        assert_eq!(world.round(), []);
        assert_eq!(world.left_out(0), Vec::<usize>::new());
    }

    #[test]
    fn an_agent_comes_back_when_it_no_longer_leads_back() {
        let mut world = World::new(&[&[1, 9], &[2], &[0]]);
        world.settle();
        assert_eq!(world.left_out(0), [1]);
        world.list(2, &[9]);
        world.round();
        assert!(world.round().contains(&(0, Change::LeadsOn(endpoint(1)))));
        world.settle();
        assert_eq!((world.left_out(0), world.left_out(1)), (vec![], vec![]));
    }

    #[test]
    fn an_agent_that_left_a_ring_is_forgotten_by_the_ring() {
        // 1 and 2 lead to each other, and 2 to 0.
        let mut world = World::new(&[&[1], &[2], &[1, 0]]);
        world.settle();
        assert_eq!(world.left_out(0), [1]);
        world.list(2, &[1]);
        assert!(world.settle() <= usize::from(STEPS_MAX), "each round counts");
        assert_eq!(world.left_out(0), Vec::<usize>::new());
        assert_eq!((world.left_out(1), world.left_out(2)), (vec![2], vec![1]));
    }

    #[test]
    fn the_agent_itself_under_another_address_leads_back() {
        let mut world = World::new(&[&[0, 9]]);
        assert_eq!(world.round(), [(0, Change::LeadsBack(endpoint(0)))]);
        assert_eq!(world.agents[0].identity().leads_to, BTreeMap::new());
    }

    #[test]
    fn an_agent_left_with_nobody_says_so_once() {
        let mut world = World::new(&[&[1], &[0]]);
        let changes = world.settle();
        assert!(changes < 5, "{changes}");
        let mut world = World::new(&[&[1], &[0]]);
        let mut changes = world.round();
        changes.extend(world.round());
        for number in [0, 1] {
            let of = changes.iter().filter(|(of, _)| *of == number).map(|(_, change)| change.clone());
            assert_eq!(of.collect::<Vec<_>>(), [Change::LeadsBack(endpoint(1 - number)), Change::NobodyLeft]);
        }
        assert_eq!(world.list(0, &[1, 9]), []);
        assert_eq!(world.list(0, &[1]), [Change::NobodyLeft]);
        assert_eq!(world.list(0, &[]), [], "a list that is not known yet is no list of agents");
    }

    #[test]
    fn a_name_server_in_the_place_of_an_agent_is_asked_again() {
        let mut world = World::new(&[&[1], &[0]]);
        world.settle();
        let changes = world.agents[0].heard(&endpoint(1), None);
        assert_eq!(changes, [Change::LeadsOn(endpoint(1))]);
        assert_eq!(world.agents[0].heard(&endpoint(5), None), [], "of a server that left the list");
    }

    #[test]
    fn what_is_no_identity_is_that_of_no_agent() {
        let fields = |fields: &[(&str, &str)]| {
            let ext = fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Identity::of(&Answer { ext: Some(ext.collect()), ..reply::success() })
        };
        assert_eq!(Identity::of(&reply::code(3)), None);
        assert_eq!(Identity::of(&reply::success()), None);
        for id in ["", "a b", &"a".repeat(ID_MAX + 1)] {
            assert_eq!(fields(&[(ID_FIELD, id)]), None, "{id}");
        }
        let odd = fields(&[(ID_FIELD, "a"), (LEADS_TO_FIELD, "b=1,,c,=2,d=x,e=300,f=2")]).expect("an agent");
        assert_eq!(odd.leads_to.keys().map(ToString::to_string).collect::<Vec<_>>(), ["b", "f"]);
        let many: Vec<String> = (0..5_000).map(|number| format!("id{number}=1")).collect();
        let many = fields(&[(ID_FIELD, "a"), (LEADS_TO_FIELD, &many.join(","))]).expect("an agent");
        assert_eq!(many.leads_to.len(), AGENTS_MAX);
    }
}

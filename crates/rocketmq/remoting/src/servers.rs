//! The live list of servers: names are resolved again, the list can be replaced.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use waypost_net::address::{AddressList, HostPort};
use waypost_net::dialer::resolve;
use waypost_net::tasks::Tasks;

use crate::address_server::AddressServer;
use crate::endpoint::Endpoint;
use crate::source::Source;

/// How often names are resolved again while all is well: what a name means now is known within 10 s, with time for a
/// slow resolver.
const RESOLVE_PERIOD: Duration = Duration::from_secs(8);

/// How soon after a failed connect, or after a name that was not found.
const RESOLVE_SOON: Duration = Duration::from_secs(1);

/// How long one name may take.
const RESOLVE_LIMIT: Duration = Duration::from_secs(3);

/// When the address server is asked for the second time, and how often after that (spec B1.2).
const FETCH_SECOND: Duration = Duration::from_secs(10);
const FETCH_PERIOD: Duration = Duration::from_secs(120);

/// The live list of servers. Clones share it.
#[derive(Clone, Debug)]
pub struct Servers {
    listed: watch::Receiver<Arc<[Endpoint]>>,
    endpoints: watch::Receiver<Arc<[Endpoint]>>,
    left_out: Arc<watch::Sender<HashSet<SocketAddr>>>,
    replacements: mpsc::UnboundedSender<AddressList>,
    failures: Arc<Notify>,
}

impl Servers {
    /// Starts to follow `source` with a task of `tasks`, on the current runtime. Literal addresses are in the
    /// list at once, names and address servers when they are resolved.
    pub fn start(source: Source, tasks: &Tasks) -> Self {
        Self::start_without(source, Vec::new(), tasks)
    }

    /// The same for a program that is a server itself, on the addresses `own`: it never is in its own list, also
    /// not under a name. What it sends on would come back to it without end.
    pub fn start_without(source: Source, own: Vec<SocketAddr>, tasks: &Tasks) -> Self {
        let (page, list) = match source {
            Source::List(list) => (None, list),
            Source::AddressServer(server) => (Some(server), AddressList::default()),
        };
        let lookup: Lookup = Arc::new(|name| Box::pin(async move { resolve(&name).await }));
        Self::follow(Follower { page, list, own, lookup, known: HashMap::new() }, tasks)
    }

    fn follow(mut follower: Follower, tasks: &Tasks) -> Self {
        let (publish, listed) = watch::channel(follower.endpoints());
        let (left_out, leave_out) = watch::channel(HashSet::new());
        let endpoints = without(listed.clone(), leave_out, tasks);
        let (replacements, replaced) = mpsc::unbounded_channel();
        let failures = Arc::new(Notify::new());
        let stop = tasks.stop();
        let asked = Arc::clone(&failures);
        tasks.spawn(async move {
            tokio::select! {
                () = stop.requested() => {}
                () = follower.run(publish, replaced, &asked) => {}
            }
        });
        Self { listed, endpoints, left_out: Arc::new(left_out), replacements, failures }
    }

    /// Replaces the list from now on; an address server is not asked any more. An empty list is ignored with a
    /// warning (spec B1.3 step 1).
    pub fn replace(&self, list: AddressList) {
        if list.is_empty() {
            tracing::warn!("an empty name server list was ignored");
            return;
        }
        // Fails only when the tasks were stopped.
        let _ = self.replacements.send(list);
    }

    /// The list now, and how it changes. Each address of a name is an entry.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<[Endpoint]>> {
        self.endpoints.clone()
    }

    /// The same with the servers that are left out.
    #[must_use]
    pub fn subscribe_to_all(&self) -> watch::Receiver<Arc<[Endpoint]>> {
        self.listed.clone()
    }

    /// Leaves the servers at `addresses` out of the list from now on, and nobody else.
    pub fn leave_out(&self, addresses: HashSet<SocketAddr>) {
        self.left_out.send_if_modified(|known| {
            let changed = *known != addresses;
            *known = addresses;
            changed
        });
    }

    /// Asks to resolve the names soon: a connect failed, so an address may have moved.
    pub fn recheck(&self) {
        self.failures.notify_one();
    }
}

/// The list without those that are left out, by a task of its own: a slow resolver must not hold up who leads into a
/// loop.
fn without(
    mut listed: watch::Receiver<Arc<[Endpoint]>>,
    mut left_out: watch::Receiver<HashSet<SocketAddr>>,
    tasks: &Tasks,
) -> watch::Receiver<Arc<[Endpoint]>> {
    let (publish, endpoints) = watch::channel(Arc::clone(&listed.borrow_and_update()));
    let stop = tasks.stop();
    let filter = async move {
        loop {
            let changed = tokio::select! {
                changed = listed.changed() => changed,
                changed = left_out.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            let left_out = left_out.borrow_and_update().clone();
            let all = Arc::clone(&listed.borrow_and_update());
            let kept = all.iter().filter(|endpoint| !left_out.contains(&endpoint.address)).cloned().collect();
            put(&publish, kept);
        }
    };
    tasks.spawn(async move {
        tokio::select! {
            () = stop.requested() => {}
            () = filter => {}
        }
    });
    endpoints
}

/// Publishes what differs from what is published.
fn put(publish: &watch::Sender<Arc<[Endpoint]>>, endpoints: Arc<[Endpoint]>) {
    publish.send_if_modified(|known| {
        let changed = **known != *endpoints;
        if changed {
            *known = endpoints;
        }
        changed
    });
}

/// Whether a connection to `address` ends at one of the listening addresses `own` of this program.
#[must_use]
pub fn is_own(address: SocketAddr, own: &[SocketAddr]) -> bool {
    // An address belongs to this machine if a socket can be bound to it.
    let is_local = || UdpSocket::bind((address.ip(), 0)).is_ok();
    own.iter().filter(|own| own.port() == address.port()).any(|own| {
        own.ip() == address.ip()
            || (own.ip().is_unspecified() && is_local())
            || (own.ip().is_loopback() && address.ip().is_unspecified())
    })
}

/// Finds the addresses of a name.
type Lookup =
    Arc<dyn Fn(HostPort) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>> + Send + Sync>;

struct Follower {
    page: Option<AddressServer>,
    list: AddressList,
    /// Where this program itself listens.
    own: Vec<SocketAddr>,
    lookup: Lookup,
    /// The addresses that each name had when it was last found.
    known: HashMap<HostPort, Vec<SocketAddr>>,
}

impl Follower {
    fn endpoints(&self) -> Arc<[Endpoint]> {
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for name in self.list.addresses() {
            let resolved = self.known.get(name).cloned();
            let addresses = name.socket_address().map(|address| vec![address]).or(resolved);
            for address in addresses.into_iter().flatten().filter(|address| !is_own(*address, &self.own)) {
                if !endpoints.iter().any(|known| known.address == address) {
                    endpoints.push(Endpoint { name: name.clone(), address });
                }
            }
        }
        endpoints.into()
    }

    async fn run(
        &mut self,
        publish: watch::Sender<Arc<[Endpoint]>>,
        mut replaced: mpsc::UnboundedReceiver<AddressList>,
        failures: &Notify,
    ) {
        self.fetch().await;
        let fetch = sleep(FETCH_SECOND);
        tokio::pin!(fetch);
        loop {
            let all_found = self.resolve(&publish).await;
            let names = self.list.addresses().iter().any(|name| name.socket_address().is_none());
            let resolve_in = if all_found { RESOLVE_PERIOD } else { RESOLVE_SOON };
            tokio::select! {
                () = sleep(resolve_in), if names => {}
                () = async { failures.notified().await; sleep(RESOLVE_SOON).await }, if names => {}
                () = &mut fetch, if self.page.is_some() => {
                    self.fetch().await;
                    fetch.set(sleep(FETCH_PERIOD));
                }
                list = replaced.recv() => match list {
                    Some(list) => {
                        (self.list, self.page) = (list, None);
                        self.known.retain(|name, _| self.list.addresses().contains(name));
                    }
                    None => return,
                },
            }
        }
    }

    async fn fetch(&mut self) {
        let Some(page) = &self.page else { return };
        match page.fetch().await {
            Ok(list) => self.list = list,
            Err(error) => tracing::warn!(%error, "the name server list was not fetched"),
        }
    }

    /// Resolves all names and publishes what changed. Returns whether all were found; a name that is not found
    /// keeps the addresses that it had.
    async fn resolve(&mut self, publish: &watch::Sender<Arc<[Endpoint]>>) -> bool {
        let mut all_found = true;
        self.publish(publish);
        // All at once: a name that no resolver answers for holds up none of the others.
        let mut lookups = JoinSet::new();
        for name in self.list.addresses().iter().filter(|name| name.socket_address().is_none()).cloned() {
            let found = (self.lookup)(name.clone());
            lookups.spawn(async move {
                let found = timeout(RESOLVE_LIMIT, found).await;
                (name, found)
            });
        }
        while let Some(Ok((name, found))) = lookups.join_next().await {
            match found {
                Ok(Ok(mut addresses)) => {
                    // Resolvers rotate their answers; the order means nothing here.
                    addresses.sort_unstable();
                    let is_own = addresses.iter().any(|address| is_own(*address, &self.own));
                    if is_own && self.known.get(&name) != Some(&addresses) {
                        tracing::warn!(server = %name, "the program's own address was left out of its list of name servers");
                    }
                    self.known.insert(name, addresses);
                    self.publish(publish);
                }
                Ok(Err(error)) => {
                    all_found = false;
                    tracing::warn!(server = %name, %error, "a name server's name was not found");
                }
                Err(_) => {
                    all_found = false;
                    tracing::warn!(server = %name, "a name server's name was not found in time");
                }
            }
        }
        all_found
    }

    fn publish(&self, publish: &watch::Sender<Arc<[Endpoint]>>) {
        put(publish, self.endpoints());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn list(text: &str) -> AddressList {
        crate::list::read(text).servers
    }

    async fn wait_for(servers: &Servers, expected: &str) {
        let mut endpoints = servers.subscribe();
        let seen = endpoints.wait_for(|endpoints| {
            endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect::<Vec<_>>().join(";")
                == expected
        });
        timeout(Duration::from_secs(20), seen).await.expect("in time").expect("alive");
    }

    #[tokio::test]
    async fn literal_addresses_are_there_at_once() {
        let tasks = Tasks::new();
        let servers = Servers::start(Source::List(list("127.0.0.1:1;127.0.0.2:2")), &tasks);
        assert_eq!(servers.subscribe().borrow().len(), 2);
    }

    #[tokio::test]
    async fn a_name_becomes_its_addresses_and_unknown_names_hold_up_nobody() {
        let tasks = Tasks::new();
        let servers =
            Servers::start(Source::List(list("localhost:7;no-such-host.invalid:8;127.0.0.2:2")), &tasks);
        let mut endpoints = servers.subscribe();
        let found = endpoints.wait_for(|endpoints| endpoints.len() >= 2);
        let found = timeout(Duration::from_secs(20), found).await.unwrap().unwrap();
        assert!(found.iter().any(|endpoint| endpoint.to_string().starts_with("localhost:7 (")), "{found:?}");
    }

    /// Follows `text` with a resolver that says what `named` holds, and never answers for `hung.invalid`.
    fn follow(text: &str, named: &Arc<Mutex<Vec<SocketAddr>>>, tasks: &Tasks) -> Servers {
        let named = Arc::clone(named);
        let lookup: Lookup = Arc::new(move |name| {
            let addresses = named.lock().unwrap().clone();
            Box::pin(async move {
                if name.host.to_string() == "hung.invalid" {
                    std::future::pending::<()>().await;
                }
                Ok(addresses)
            })
        });
        let follower =
            Follower { page: None, list: list(text), own: Vec::new(), lookup, known: HashMap::new() };
        Servers::follow(follower, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_changes_is_seen_within_10_s() {
        for text in
            ["name.invalid:1", "hung.invalid:1;hung.invalid:2;hung.invalid:3;hung.invalid:4;name.invalid:1"]
        {
            let tasks = Tasks::new();
            let named = Arc::new(Mutex::new(vec!["127.0.0.1:1".parse().unwrap()]));
            let servers = follow(text, &named, &tasks);
            for round in 1..=20_u16 {
                // At other points of the period in each round.
                sleep(Duration::from_millis(u64::from(round) * 730)).await;
                let address = SocketAddr::from(([127, 0, 0, 1], round));
                *named.lock().unwrap() = vec![address];
                let mut endpoints = servers.subscribe();
                let seen = endpoints.wait_for(|all| all.iter().map(|one| one.address).eq([address]));
                timeout(Duration::from_secs(10), seen).await.expect("within 10 s").expect("alive");
            }
            tasks.cancel();
        }
    }

    #[tokio::test]
    async fn a_program_is_not_in_its_own_list() {
        let tasks = Tasks::new();
        let own = vec!["127.0.0.1:9".parse().unwrap(), "[::1]:9".parse().unwrap()];
        let source = Source::List(list("localhost:9;127.0.0.1:9;0.0.0.0:9;127.0.0.1:8;localhost:7"));
        let servers = Servers::start_without(source, own, &tasks);
        let mut endpoints = servers.subscribe();
        let resolved = endpoints.wait_for(|all| all.iter().any(|one| one.address.port() == 7));
        timeout(Duration::from_secs(20), resolved).await.unwrap().unwrap();
        assert!(servers.subscribe().borrow().iter().all(|one| one.address.port() != 9));
        assert!(servers.subscribe().borrow().iter().any(|one| one.address.port() == 8));
    }

    #[test]
    fn who_listens_everywhere_is_meant_by_every_address_of_the_machine() {
        let own: [SocketAddr; 1] = ["0.0.0.0:9".parse().unwrap()];
        assert!(is_own("127.0.0.1:9".parse().unwrap(), &own));
        assert!(!is_own("127.0.0.1:8".parse().unwrap(), &own));
        // No machine has an address for documentation.
        assert!(!is_own("192.0.2.1:9".parse().unwrap(), &own));
    }

    #[tokio::test]
    async fn who_is_left_out_stays_in_the_whole_list_and_can_come_back() {
        let tasks = Tasks::new();
        let servers = Servers::start(Source::List(list("127.0.0.1:1;127.0.0.2:2")), &tasks);
        servers.leave_out(HashSet::from(["127.0.0.1:1".parse().unwrap()]));
        wait_for(&servers, "127.0.0.2:2").await;
        assert_eq!(servers.subscribe_to_all().borrow().len(), 2);
        servers.replace(list("127.0.0.1:1;127.0.0.3:3"));
        wait_for(&servers, "127.0.0.3:3").await;
        servers.leave_out(HashSet::new());
        wait_for(&servers, "127.0.0.1:1;127.0.0.3:3").await;
    }

    #[tokio::test]
    async fn the_list_is_replaced_and_an_empty_one_is_ignored() {
        let tasks = Tasks::new();
        let servers = Servers::start(Source::List(list("127.0.0.1:1;127.0.0.2:2")), &tasks);
        servers.replace(AddressList::default());
        servers.replace(list("127.0.0.2:2;127.0.0.3:3"));
        wait_for(&servers, "127.0.0.2:2;127.0.0.3:3").await;
        tasks.cancel();
        assert_eq!(tasks.drain(Duration::from_secs(20)).await, 0);
    }
}

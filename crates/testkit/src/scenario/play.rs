//! Plays a scenario to a server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::ScenarioError;
use super::connection::{Arrival, Connection, Listener};
use super::json::canonical;
use super::observe::{BodyKind, Marks, observe};
use super::request::Request;
use super::server::Server;
use super::step::{Action, Scenario, Step, Wanted};
use super::trace::{Observation, START, Trace};

/// How long an answer may take: the first ones of a JVM on a busy machine take seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a step that waits for a state asks.
const POLL: Duration = Duration::from_millis(40);

/// Plays a scenario to a fresh server and tells what was seen. `check` says whether the scenario's own
/// expectations are to be checked: they are about the reference server.
///
/// # Errors
///
/// [`ScenarioError::Expectation`] if one is not met, [`ScenarioError::Server`] if a restart fails.
pub fn play(scenario: &Scenario, server: &mut dyn Server, check: bool) -> Result<Trace, ScenarioError> {
    let marks = Marks::new(server.home(), server.address());
    let mut player =
        Player { server, marks, connections: BTreeMap::new(), listeners: BTreeMap::new(), next_opaque: 1 };
    let mut trace = Trace::default();
    if scenario.may_not_start {
        trace.observations.push(Observation { step: START.to_owned(), seen: json!({"event": "started"}) });
    }
    for step in &scenario.steps {
        if let Action::Expect { wanted } = &step.action {
            let last = trace.observations.last().map_or(Value::Null, |observation| observation.seen.clone());
            if check && !meets(wanted, &last) {
                return Err(ScenarioError::Expectation {
                    scenario: scenario.name.clone(),
                    line: step.line,
                    expected: wanted.to_string(),
                    seen: canonical(&last),
                });
            }
        } else if let Some(seen) = player.step(step)? {
            trace.observations.push(Observation { step: step.text.clone(), seen });
        }
    }
    Ok(trace)
}

fn meets(wanted: &Wanted, seen: &Value) -> bool {
    let text = canonical(seen);
    wanted.code.is_none_or(|code| seen.get("code").and_then(Value::as_i64) == Some(code))
        && wanted.with.iter().all(|part| text.contains(part))
        && !wanted.without.iter().any(|part| text.contains(part))
}

struct Player<'a> {
    server: &'a mut dyn Server,
    marks: Marks,
    connections: BTreeMap<String, Connection>,
    listeners: BTreeMap<String, Listener>,
    next_opaque: i64,
}

impl Player<'_> {
    fn step(&mut self, step: &Step) -> Result<Option<Value>, ScenarioError> {
        match &step.action {
            Action::Ask { connection, request } => return Ok(self.ask(connection, request)),
            Action::Until { connection, request, wanted, within } => {
                return Ok(Some(self.until(connection, request, wanted, *within)));
            }
            Action::Repeat { connection, request, times, every } => {
                let mut last = None;
                for _ in 0..*times {
                    std::thread::sleep(*every);
                    last = self.ask(connection, request);
                }
                return Ok(last);
            }
            Action::Send { connection, request } => {
                self.send(connection, request);
            }
            Action::Bytes { connection, bytes } => {
                if let Some(connection) = self.connection(connection) {
                    connection.send(bytes);
                }
            }
            Action::Next { connection, within } | Action::Silence { connection, lasts: within } => {
                return Ok(Some(self.next(connection, *within)));
            }
            Action::Answer { connection, opaque } => {
                let Some(open) = self.connection(connection) else { return Ok(Some(refused())) };
                let arrival = open.answer(Some(*opaque), PATIENCE);
                return Ok(Some(observe(arrival, Some(*opaque), BodyKind::Json, &self.marks)));
            }
            Action::Closed { connection, within } => return Ok(Some(self.closed(connection, *within))),
            Action::Receive { listener, code, within } => {
                return Ok(Some(self.receive(listener, *code, *within)));
            }
            Action::Show { file } => return Ok(Some(self.show(file))),
            Action::Wait { lasts } => std::thread::sleep(*lasts),
            Action::Open { connection } => {
                self.connections.remove(connection);
                self.connection(connection);
            }
            Action::Close { connection } => self.take(connection, Connection::close),
            Action::Reset { connection } => self.take(connection, Connection::reset),
            Action::HalfClose { connection } => {
                if let Some(connection) = self.connection(connection) {
                    connection.half_close();
                }
            }
            Action::Listen { listener } => self.listen(listener)?,
            Action::Restart => {
                self.connections.clear();
                self.server.restart()?;
                let mut marks = Marks::new(self.server.home(), self.server.address());
                for (name, listener) in &self.listeners {
                    marks.add_listener(name, listener.address);
                }
                self.marks = marks;
            }
            Action::Expect { .. } => {}
        }
        Ok(None)
    }

    fn connection(&mut self, name: &str) -> Option<&mut Connection> {
        if !self.connections.contains_key(name) {
            let open = Connection::open(self.server.address()).ok()?;
            self.connections.insert(name.to_owned(), open);
        }
        self.connections.get_mut(name)
    }

    fn take(&mut self, name: &str, end: fn(Connection)) {
        if let Some(connection) = self.connections.remove(name) {
            end(connection);
        }
    }

    fn listen(&mut self, name: &str) -> Result<(), ScenarioError> {
        let listener = Listener::open().map_err(|error| ScenarioError::Server {
            server: format!("listener {name}"),
            reason: error.to_string(),
        })?;
        self.marks.add_listener(name, listener.address);
        self.listeners.insert(name.to_owned(), listener);
        Ok(())
    }

    /// Sends a request; the number that its answer will carry.
    fn send(&mut self, name: &str, request: &Request) -> Option<Option<i64>> {
        let encoded = request.encode(self.next_opaque, &|text| self.marks.fill(text)).ok()?;
        self.next_opaque += 1;
        self.connection(name)?.send(&encoded.bytes);
        Some(encoded.opaque)
    }

    fn ask(&mut self, name: &str, request: &Request) -> Option<Value> {
        let Some(opaque) = self.send(name, request) else { return Some(refused()) };
        if request.is_oneway() {
            return None;
        }
        let kind = if request.code == Some(319) { BodyKind::Properties } else { BodyKind::Json };
        let Some(open) = self.connection(name) else { return Some(refused()) };
        let arrival = open.answer(opaque, PATIENCE);
        Some(observe(arrival, opaque, kind, &self.marks))
    }

    fn until(&mut self, name: &str, request: &Request, wanted: &Wanted, within: Duration) -> Value {
        let deadline = Instant::now() + within;
        loop {
            let seen = self.ask(name, request).unwrap_or_else(refused);
            let reached = meets(wanted, &seen);
            if reached || Instant::now() >= deadline {
                let mut seen = seen;
                if let Some(members) = seen.as_object_mut() {
                    members.insert("reached".to_owned(), reached.into());
                }
                return seen;
            }
            if seen.get("code").is_none() {
                self.connections.remove(name); // closed by the server: the next question takes a new one
            }
            std::thread::sleep(POLL);
        }
    }

    fn next(&mut self, name: &str, within: Duration) -> Value {
        let arrival = match self.listeners.get_mut(name) {
            Some(listener) => listener.next(within),
            None => match self.connection(name) {
                Some(connection) => connection.next(within),
                None => return refused(),
            },
        };
        observe(arrival, None, BodyKind::Json, &self.marks)
    }

    fn closed(&mut self, name: &str, within: Duration) -> Value {
        let deadline = Instant::now() + within;
        let Some(open) = self.connection(name) else { return refused() };
        loop {
            match open.next(deadline.saturating_duration_since(Instant::now())) {
                Arrival::Closed => return json!({"event": "closed"}),
                Arrival::Nothing => return json!({"event": "open"}),
                _ => {}
            }
        }
    }

    fn receive(&mut self, name: &str, code: i64, within: Duration) -> Value {
        let deadline = Instant::now() + within;
        let Some(listener) = self.listeners.get_mut(name) else {
            return json!({"event": "no such listener"});
        };
        loop {
            match listener.next(deadline.saturating_duration_since(Instant::now())) {
                Arrival::Frame(frame) if frame.code != code => {}
                arrival => return observe(arrival, None, BodyKind::Json, &self.marks),
            }
        }
    }

    fn show(&self, file: &str) -> Value {
        if file == "banner" {
            let address = self.server.address();
            return json!({"text": self.server.banner().replace(&format!(":{}", address.port()), ":{port}")});
        }
        match std::fs::read_to_string(self.server.home().join(file)) {
            Ok(text) => match serde_json::from_str::<Value>(&text) {
                Ok(value) => json!({"content": value}),
                Err(_) => json!({"text": self.marks.hide(&text)}),
            },
            Err(_) => json!({"event": "no such file"}),
        }
    }
}

fn refused() -> Value {
    json!({"event": "connection refused"})
}

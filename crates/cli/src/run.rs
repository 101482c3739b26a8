//! From a parsed command to what is printed.

use std::time::Duration;

use serde::Serialize;
use waypost_net::dialer::Dialer;
use waypost_net::plain::plain;
use waypost_net::tls::ServerTrust;
use waypost_net::tls::TlsConnector;

use crate::announcers::{Announcers, Deletion};
use crate::arguments::{
    KvCommand, Output, OutputArguments, RemoteCommand, RemoteConfigCommand, ServerArguments, TlsArguments,
};
use crate::call::Caller;
use crate::everywhere::{self, Detail, Outcomes};
use crate::exit::Exit;
use crate::first::{First, NoAnswer};
use crate::live_table::{AdminUrl, LiveTable, details, query_text};
use crate::nearest::did_you_mean;
use crate::sentences::sentences;
use crate::servers::Servers;
use crate::{brokers, check, deletion, doctor, kv, permission, render, route, settings, topics};

/// What a command has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Data, for standard output.
    pub data: String,
    /// Remarks beside the data, for standard error.
    pub notes: Vec<String>,
    /// What is done and probably not wanted, for standard error.
    pub warnings: Vec<String>,
    /// What went wrong, for standard error.
    pub errors: Vec<String>,
    /// How it ended.
    pub exit: Exit,
}

impl Report {
    fn data(data: String) -> Self {
        Self { data, notes: Vec::new(), warnings: Vec::new(), errors: Vec::new(), exit: Exit::Done }
    }

    /// Nothing to add: all was said while it went on.
    #[must_use]
    pub fn done() -> Self {
        Self::data(String::new())
    }

    /// It did not go well.
    pub fn failed(exit: Exit, error: impl Into<String>) -> Self {
        Self { errors: vec![error.into()], exit, ..Self::done() }
    }

    fn usage(error: impl Into<String>) -> Self {
        Self::failed(Exit::Usage, error)
    }

    /// The first answer, told by `text` or as JSON.
    fn first<T: Serialize>(
        found: Result<First<T>, NoAnswer>,
        output: OutputArguments,
        text: impl Fn(&T) -> String,
    ) -> Self {
        match found {
            Ok(found) => {
                Self { notes: sentences(&found.failures), ..Self::data(shown(&found.value, output, text)) }
            }
            Err(error) => {
                // Beside the one that answered, those that did not: they might have known.
                let (exit, notes) = (error.exit(), sentences(error.untold()));
                Self { exit, notes, errors: vec![error.to_string()], ..Self::data(String::new()) }
            }
        }
    }

    /// What became of a change on every server.
    fn change<T>(
        outcomes: &Outcomes<T>,
        output: OutputArguments,
        done: &str,
        detail: impl Fn(&T) -> Detail,
    ) -> Self {
        let rows = outcomes.rows(detail);
        Self {
            data: shown(&rows, output, |rows| render::outcomes(rows, done)),
            notes: Vec::new(),
            warnings: everywhere::warnings(&rows),
            errors: outcomes.errors(),
            exit: outcomes.exit(),
        }
    }

    /// Adds something to the last error.
    fn with_remark(mut self, remark: Option<String>) -> Self {
        if let (Some(error), Some(remark)) = (self.errors.last_mut(), remark) {
            error.push_str("; ");
            error.push_str(&remark);
        }
        self
    }

    fn with_note(mut self, note: Option<String>) -> Self {
        self.notes.extend(note);
        self
    }
}

fn counted(topics: &u64) -> Detail {
    Detail { topics: Some(*topics), ..Detail::default() }
}

fn nothing_more(_: &()) -> Detail {
    Detail::default()
}

fn shown<T: Serialize>(data: &T, output: OutputArguments, text: impl Fn(&T) -> String) -> String {
    match output.output {
        Output::Table => text(data),
        Output::Json => render::json(data),
    }
}

/// Runs a command that asks NameServers.
pub async fn run(command: RemoteCommand) -> Report {
    match command {
        RemoteCommand::Route { topic, servers, admin, output } => {
            with_caller(&servers, async |caller| {
                run_route(&caller, &servers.list.servers, admin.admin.as_ref(), &topic, output).await
            })
            .await
        }
        RemoteCommand::Brokers { servers, admin, output } => {
            with_caller(&servers, async |caller| {
                let mut found = brokers::ask(&caller, &servers.list.servers).await;
                let add = brokers::Brokers::enrich;
                let note = enrich(&mut found, admin.admin.as_ref(), "", caller.limit, add).await;
                let empty = nothing(&found, &servers, "broker", |brokers| brokers.brokers.is_empty());
                Report::first(found, output, render::brokers).with_note(empty).with_note(note)
            })
            .await
        }
        RemoteCommand::Topics { cluster, servers, output } => {
            with_caller(&servers, async |caller| {
                let found = topics::ask(&caller, &servers.list.servers, cluster.as_deref()).await;
                let empty = nothing(&found, &servers, "topic", |topics| topics.topics.is_empty());
                Report::first(found, output, render::topics).with_note(empty)
            })
            .await
        }
        RemoteCommand::Clusters { servers, output } => {
            with_caller(&servers, async |caller| {
                let found = brokers::ask_clusters(&caller, &servers.list.servers).await;
                let empty = nothing(&found, &servers, "cluster", |clusters| clusters.clusters.is_empty());
                Report::first(found, output, render::clusters).with_note(empty)
            })
            .await
        }
        RemoteCommand::Kv(command) => run_kv(command).await,
        RemoteCommand::WipeWrite { broker, servers, output } => {
            with_caller(&servers, async |caller| {
                let outcomes = permission::wipe_write(&caller, &servers.list.servers, &broker).await;
                Report::change(&outcomes, output, "wiped", counted)
            })
            .await
        }
        RemoteCommand::AddWrite { broker, servers, output } => {
            with_caller(&servers, async |caller| {
                let outcomes = permission::add_write(&caller, &servers.list.servers, &broker).await;
                Report::change(&outcomes, output, "added", counted)
            })
            .await
        }
        RemoteCommand::DeleteTopic { topic, cluster, servers, admin, output } => {
            with_caller(&servers, async |caller| {
                let outcomes =
                    deletion::delete_topic(&caller, &servers.list.servers, &topic, cluster.as_deref()).await;
                let announcers =
                    Announcers::ask(admin.admin.as_ref(), outcomes.done(), &topic, caller.limit).await;
                let mut report = Report::change(&outcomes, output, "deleted", nothing_more);
                report.notes = announcers.sentences();
                report.with_note(announcers.ignorance())
            })
            .await
        }
        RemoteCommand::Check { servers, output } => {
            with_caller(&servers, async |caller| {
                let outcomes = check::check(&caller, &servers.list.servers).await;
                Report::change(&outcomes, output, "serves", nothing_more)
            })
            .await
        }
        RemoteCommand::Doctor { servers, output } => {
            with_caller(&servers, async |caller| {
                let findings = doctor::examine(&caller, &servers.list.servers).await;
                Report {
                    data: shown(&findings, output, render::findings),
                    notes: Vec::new(),
                    warnings: Vec::new(),
                    errors: findings.problems.clone(),
                    exit: findings.exit(),
                }
            })
            .await
        }
    }
}

async fn run_route(
    caller: &Caller,
    servers: &Servers,
    admin: Option<&AdminUrl>,
    topic: &str,
    output: OutputArguments,
) -> Report {
    let mut found = route::ask(caller, servers, topic).await;
    let query = format!("topic={}", query_text(topic));
    let mut deletion = None;
    let add = |route: &mut route::Route, table: &LiveTable| {
        route.enrich(table);
        deletion = Deletion::of(table, &route.server, topic);
    };
    let note = enrich(&mut found, admin, &query, caller.limit, add).await;
    let remark = match &found {
        Ok(_) => None,
        Err(error) => absence(caller, admin, topic, error).await,
    };
    let report = Report::first(found, output, render::route).with_note(note).with_remark(remark);
    report.with_note(deletion.map(|deletion| deletion.sentence()))
}

/// What may be behind it that no server has a topic: it was deleted, or mistyped, or nobody knows.
async fn absence(caller: &Caller, admin: Option<&AdminUrl>, topic: &str, error: &NoAnswer) -> Option<String> {
    let announcers = Announcers::ask(admin, error.without_topic(), topic, caller.limit).await;
    let deleted = announcers.sentences();
    if !deleted.is_empty() {
        return Some(deleted.join("; "));
    }
    let question = did_you_mean(caller, topic, error).await;
    question.or_else(|| announcers.ignorance())
}

async fn run_kv(command: KvCommand) -> Report {
    match command {
        KvCommand::Get { namespace, key, servers, output } => {
            with_caller(&servers, async |caller| {
                let found = kv::get(&caller, &servers.list.servers, &namespace, &key).await;
                Report::first(found, output, |found| plain(&found.value) + "\n")
            })
            .await
        }
        KvCommand::List { namespace, servers, output } => {
            with_caller(&servers, async |caller| {
                let found = kv::list(&caller, &servers.list.servers, &namespace).await;
                Report::first(found, output, render::kv)
            })
            .await
        }
        KvCommand::Put { namespace, key, value, servers, output } => {
            with_caller(&servers, async |caller| {
                let outcomes = kv::put(&caller, &servers.list.servers, &namespace, &key, &value).await;
                Report::change(&outcomes, output, "put", nothing_more)
            })
            .await
        }
        KvCommand::Delete { namespace, key, servers, output } => {
            with_caller(&servers, async |caller| {
                let outcomes = kv::delete(&caller, &servers.list.servers, &namespace, &key).await;
                Report::change(&outcomes, output, "deleted", nothing_more)
            })
            .await
        }
    }
}

/// Runs a command for the configuration of running servers.
pub async fn run_config(command: RemoteConfigCommand) -> Report {
    match command {
        RemoteConfigCommand::Get { key, servers, output } => {
            with_caller(&servers, async |caller| {
                let found = settings::get(&caller, &servers.list.servers, key.as_deref()).await;
                Report::first(found, output, render::settings)
            })
            .await
        }
        RemoteConfigCommand::Set { pairs, all, servers, output } => {
            let count = servers.list.servers.addresses().len();
            if count > 1 && !all {
                return Report::usage(format!(
                    "the list has {count} servers ({}); name one with -n, or set it on every one with --all",
                    servers.list.servers
                ));
            }
            with_caller(&servers, async |caller| {
                let outcomes = settings::set(&caller, &servers.list.servers, &pairs).await;
                Report::change(&outcomes, output, "set", |warnings| Detail {
                    warnings: warnings.clone(),
                    ..Detail::default()
                })
            })
            .await
        }
    }
}

async fn with_caller(servers: &ServerArguments, command: impl AsyncFnOnce(Caller) -> Report) -> Report {
    match caller(servers) {
        Ok(caller) => command(caller).await,
        Err(report) => report,
    }
}

fn caller(servers: &ServerArguments) -> Result<Caller, Report> {
    Ok(Caller::new(dialer(&servers.tls)?, servers.timeout))
}

/// Opens connections that are protected as asked.
///
/// # Errors
///
/// A report of wrong usage.
pub fn dialer(arguments: &TlsArguments) -> Result<Dialer, Report> {
    let trust = match (arguments.tls, &arguments.tls_ca, arguments.tls_insecure) {
        (false, ..) => None,
        (true, Some(file), _) => Some(ServerTrust::Authorities(file.clone())),
        (true, None, true) => Some(ServerTrust::Anybody),
        (true, None, false) => {
            return Err(Report::usage(
                "--tls does not say whom to trust: add --tls-ca FILE with the server's authority, or --tls-insecure",
            ));
        }
    };
    let tls = trust.map(|trust| TlsConnector::new(&trust, None)).transpose();
    let tls = tls.map_err(|error| Report::usage(error.to_string()))?;
    Ok(Dialer { tls, ..Dialer::default() })
}

/// What to say beside an empty list. It is one server's, and others may know more.
fn nothing<T>(
    found: &Result<First<T>, NoAnswer>,
    servers: &ServerArguments,
    what: &str,
    is_empty: impl Fn(&T) -> bool,
) -> Option<String> {
    let First { server, failures, .. } = found.as_ref().ok().filter(|found| is_empty(&found.value))?;
    let others = servers.list.servers.addresses().len() > failures.len().saturating_add(1);
    Some(if others {
        format!(
            "{server} knows no {what}; the servers after it were not waited for, `waypost doctor` compares all"
        )
    } else {
        format!("{server} knows no {what}; `waypost doctor` looks for the reason")
    })
}

/// Adds what the admin side of the server that answered knows. Returns a note for the user.
async fn enrich<T>(
    found: &mut Result<First<T>, NoAnswer>,
    url: Option<&AdminUrl>,
    query: &str,
    limit: Duration,
    add: impl FnOnce(&mut T, &LiveTable),
) -> Option<String> {
    let Ok(found) = found else { return None };
    let (table, note) = details(url, &found.server, query, limit).await;
    if let Some(table) = table {
        add(&mut found.value, &table);
    }
    note
}

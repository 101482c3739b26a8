//! `/v1/table`.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use waypost_rocketmq_nameserver::{TableFilter, TableView};

use crate::Shared;
use crate::answer::say;

/// Topics in an answer unless asked otherwise.
const LIMIT_DEFAULT: usize = 1_000;
/// Topics in an answer at most.
const LIMIT_MAX: usize = 1_000_000;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableQuery {
    /// List topics as well; a topic that is asked for by name is listed anyway.
    #[serde(default)]
    topics: bool,
    /// Only this topic.
    topic: Option<String>,
    /// Only this broker name, and topics that have queues on it.
    broker: Option<String>,
    /// Only brokers of this cluster.
    cluster: Option<String>,
    /// At most so many topics.
    limit: Option<usize>,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Table<'a> {
    /// What the server listens on.
    listening: &'a [String],
    #[serde(flatten)]
    table: TableView,
}

impl TableQuery {
    /// The filter, or what is wrong with the question.
    fn filter(self) -> Result<TableFilter, String> {
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if limit > LIMIT_MAX {
            return Err(format!("limit={limit} is too much; {LIMIT_MAX} is the most"));
        }
        Ok(TableFilter {
            topics: self.topics || self.topic.is_some(),
            topic: self.topic,
            broker: self.broker,
            cluster: self.cluster,
            limit,
        })
    }
}

pub(crate) async fn table(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<TableQuery>, QueryRejection>,
) -> Response {
    let bad = |reason: String| {
        let known = "topics=true, topic=NAME, broker=NAME, cluster=NAME and limit=NUMBER are known";
        say(StatusCode::BAD_REQUEST, &format!("{reason}; {known}\n"))
    };
    let filter = match query {
        Ok(Query(query)) => query.filter(),
        Err(rejection) => Err(rejection.body_text()),
    };
    let filter = match filter {
        Ok(filter) => filter,
        Err(reason) => return bad(reason),
    };
    let listening = shared.listening.clone();
    // A big table takes long to read and to write down; both happen on the same thread.
    let answer = shared
        .read(move |view| serde_json::to_vec(&Table { listening: &listening, table: view.table(&filter) }));
    match answer.await {
        Ok(Ok(json)) => {
            let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
            (headers, json).into_response()
        }
        Ok(Err(error)) => say(StatusCode::INTERNAL_SERVER_ERROR, &format!("no JSON: {error}\n")),
        Err(busy) => busy.into_response(),
    }
}

//! The documents of a session's agent: its activity and the last published thought.

use protocol::thought::{RestState, Thought, ThoughtSource, ThoughtState};
use protocol::{Activity, ActivityState, Ask, Source, Timestamp};
use serde::{Serialize, Serializer};

use super::form::{Json, form, forms, optional};

forms!(Activity => ActivityFields, Thought => ThoughtFields);

/// The activity, as keys of the document of its session. Source and time are null if no source tells it.
#[derive(Serialize)]
#[serde(remote = "Activity")]
struct ActivityFields {
    #[serde(rename = "activity")]
    state: ActivityState,
    #[serde(rename = "activity_source", serialize_with = "source")]
    source: Source,
    #[serde(getter = "since")]
    activity_since: Option<Json<Timestamp>>,
    #[serde(rename = "activity_detail")]
    detail: Option<String>,
    ask: Option<Ask>,
    #[serde(serialize_with = "optional")]
    limited_until: Option<Timestamp>,
}

fn source<S: Serializer>(source: &Source, s: S) -> Result<S::Ok, S::Error> {
    Some(source).filter(|source| **source != Source::Nothing).serialize(s)
}

fn since(activity: &Activity) -> Option<Json<Timestamp>> {
    (activity.source != Source::Nothing).then_some(Json(activity.since))
}

/// A thought. Unknown numbers are null.
#[derive(Serialize)]
#[serde(remote = "Thought")]
struct ThoughtFields {
    text: Option<String>,
    state: ThoughtState,
    source: ThoughtSource,
    #[serde(serialize_with = "unless_zero")]
    token_count: u64,
    #[serde(serialize_with = "unless_zero")]
    context_limit: u64,
    #[serde(serialize_with = "optional")]
    objective_changed_at: Option<Timestamp>,
    commit_candidate: bool,
    #[serde(serialize_with = "form")]
    updated_at: Timestamp,
    rest_state: Option<RestState>,
    objective: Option<String>,
    #[serde(getter = "stream")]
    stream: Option<String>,
    #[serde(getter = "seq")]
    seq: Option<u64>,
}

/// The number of a thought, which is 0 if it is unknown.
pub(crate) fn known(number: u64) -> Option<u64> {
    Some(number).filter(|number| *number > 0)
}

fn unless_zero<S: Serializer>(number: &u64, s: S) -> Result<S::Ok, S::Error> {
    known(*number).serialize(s)
}

fn stream(thought: &Thought) -> Option<String> {
    thought.place.as_ref().map(|place| place.stream.clone())
}

fn seq(thought: &Thought) -> Option<u64> {
    thought.place.as_ref().map(|place| place.seq)
}

//! An event as one flat JSON document, and as a line for people.

mod fields;

use protocol::{AgentEvent, Event, Seq, SessionId, Stamped, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::show::json::Json;
use fields::fields;

/// The document of an event: the envelope, and beside it the event's own fields.
#[derive(Serialize)]
struct EventJson {
    seq: Seq,
    /// Null in the initial state, whose events do not tell when they happened.
    at: Option<Json<Timestamp>>,
    kind: &'static str,
    session: Option<SessionId>,
    #[serde(flatten)]
    fields: Option<Value>,
    /// True in the initial state; absent unless events are followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<bool>,
}

/// Returns the document of an event, with its keys in alphabetical order.
pub(crate) fn document(stamped: &Stamped, snapshot: Option<bool>) -> Value {
    let Stamped { seq, at, event } = stamped;
    json!(EventJson {
        seq: *seq,
        at: Some(*at).filter(|at| *at != Timestamp::default()).map(Json),
        kind: event.kind().as_str(),
        session: event.session(),
        fields: fields(event),
        snapshot,
    })
}

/// Returns the mark between the initial state and the events that follow.
pub(crate) fn synced(seq: Seq) -> Value {
    let (at, session, fields) = (None, None, None);
    json!(EventJson { seq, at, kind: "synced", session, fields, snapshot: Some(true) })
}

/// Returns the event's own fields in one line for people, in alphabetical order and without long ones.
pub(crate) fn line(event: &Event) -> String {
    let Some(Value::Object(mut fields)) = fields(event) else { return String::new() };
    if let Event::Agent(AgentEvent::ActivityChanged { activity, .. }) = event
        && let Some(ask) = &activity.ask
    {
        fields.insert("ask".to_owned(), format!("{}: {}", ask.kind.as_str(), ask.text).into());
    }
    let shown = fields.iter().filter(|(_, value)| is_short(value));
    let words = shown.map(|(key, value)| match value {
        Value::String(text) => format!("{key}={text}"),
        other => format!("{key}={other}"),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// True for a value that is neither null nor an empty or long list or object.
fn is_short(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(map) => (1..=3).contains(&map.len()),
        Value::Array(items) => (1..=3).contains(&items.len()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

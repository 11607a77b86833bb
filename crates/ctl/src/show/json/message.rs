//! The JSON document of a message.

use protocol::message::{Breaker, MessageState, Step};
use protocol::{Message, OsBytes, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::show::time::rfc3339;

/// A message, as `queue ls` and `send` print it.
#[derive(Debug, Serialize)]
pub(crate) struct MessageJson<'a> {
    id: u64,
    session: String,
    kind: &'a str,
    key: Option<&'a str>,
    origin: &'a str,
    cause: Option<u64>,
    state: MessageState,
    priority: i8,
    attempts: u32,
    max_attempts: u32,
    size: u32,
    created_at: String,
    not_before: Option<String>,
    expires_at: Option<String>,
    claim: Option<Claim>,
    accepted_at: Option<String>,
    finished_at: Option<String>,
    result: Option<&'a OsBytes>,
    reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Claim {
    generator: Option<u64>,
    token: String,
    deadline_at: Option<String>,
}

impl<'a> MessageJson<'a> {
    /// The document of a message.
    #[must_use]
    pub(crate) fn new(message: &'a Message) -> Self {
        let status = &message.status;
        let waits = status.state == MessageState::Queued;
        Self {
            id: message.id.0,
            session: message.session.to_string(),
            kind: &message.kind,
            key: message.key.as_deref(),
            origin: &message.origin,
            cause: message.cause.map(|cause| cause.0),
            state: status.state,
            priority: message.priority,
            attempts: status.attempts,
            max_attempts: message.max_attempts,
            size: message.size,
            created_at: rfc3339(message.created_at),
            not_before: status.not_before.filter(|_| waits).map(rfc3339),
            expires_at: message.expires_at.map(rfc3339),
            claim: claim(message),
            accepted_at: accepted_at(message).map(rfc3339),
            finished_at: status.state.is_final().then(|| rfc3339(status.changed_at)),
            result: status.result.as_ref(),
            reason: status.reason.as_deref(),
        }
    }
}

fn claim(message: &Message) -> Option<Claim> {
    let status = &message.status;
    let token = status.token.filter(|_| status.state.in_flight())?;
    let generator = status.holder.as_ref().and_then(|holder| holder.generator).map(|id| id.0);
    Some(Claim { generator, token: token.to_string(), deadline_at: None })
}

/// When the agent confirmed it, as far as that is known.
fn accepted_at(message: &Message) -> Option<Timestamp> {
    let last = message.status.step();
    let mut steps = [&last].into_iter().chain(message.steps.iter().rev());
    steps.find(|step| step.state == MessageState::Accepted).map(|step| step.at)
}

/// A message with what happened to it and, where it was asked for, its body, as `queue show` prints it.
///
/// # Errors
/// None that can occur: every key is a string.
pub(crate) fn with_history(message: &Message, body: Option<&OsBytes>) -> serde_json::Result<Value> {
    let mut document = serde_json::to_value(MessageJson::new(message))?;
    document["history"] = message.steps.iter().map(step).collect();
    if let Some(body) = body {
        document["body"] = serde_json::to_value(body)?;
    }
    Ok(document)
}

fn step(step: &Step) -> Value {
    json!({"at": rfc3339(step.at), "state": step.state, "attempts": step.attempts, "reason": step.reason})
}

/// The failures of a kind.
#[must_use]
pub(crate) fn breaker(breaker: &Breaker) -> Map<String, Value> {
    let mut document = Map::new();
    document.insert("failures".into(), json!(breaker.failures));
    document.insert("opened_at".into(), json!(breaker.opened_at.map(rfc3339)));
    document.insert("probe_at".into(), json!(breaker.probe_at.map(rfc3339)));
    document.insert("reason".into(), json!(breaker.reason));
    document
}

#[cfg(test)]
mod tests {
    use protocol::message::Holder;
    use protocol::{GeneratorId, MessageId};

    use super::*;
    use crate::manual::contract_tests;
    use crate::testing;

    #[test]
    fn a_message_has_every_key_of_the_contract() {
        let mut message = testing::message(7);
        let value = serde_json::to_value(MessageJson::new(&message)).unwrap();
        contract_tests::check(&value, "JSON of a message");
        assert_eq!((&value["priority"], &value["max_attempts"]), (&json!(0), &json!(5)));
        let generator = Some(GeneratorId(4));
        message.cause = Some(MessageId(3));
        message.status.state = MessageState::Claimed;
        message.status.token = Some("3.17".parse().unwrap());
        message.status.holder = Some(Holder { generator, process: None, lease_ms: 60_000, op: None });
        let value = serde_json::to_value(MessageJson::new(&message)).unwrap();
        assert_eq!(value["cause"], 3);
        assert_eq!(value["claim"], json!({"generator": 4, "token": "3.17", "deadline_at": null}));
        contract_tests::check(&value, "JSON of a message");
    }

    #[test]
    fn a_message_that_is_shown_has_its_history() {
        let mut message = testing::message(7);
        let step = |at, state| Step { at: Timestamp(at), state, attempts: 1, reason: None };
        message.steps = vec![step(1000, MessageState::Accepted), step(2000, MessageState::Done)];
        message.status.state = MessageState::Done;
        message.status.changed_at = Timestamp(2000);
        message.status.result = Some(OsBytes(vec![0xff]));
        let shown = with_history(&message, Some(&"hi".into())).unwrap();
        assert_eq!(shown["accepted_at"], "1970-01-01T00:00:01.000Z");
        assert_eq!(shown["finished_at"], "1970-01-01T00:00:02.000Z");
        assert_eq!((&shown["result"], &shown["body"]), (&json!({"hex": "ff"}), &json!("hi")));
        let first =
            json!({"at": "1970-01-01T00:00:01.000Z", "state": "accepted", "attempts": 1, "reason": null});
        assert_eq!(shown["history"][0], first);
        assert!(with_history(&message, None).unwrap().get("body").is_none());
    }
}

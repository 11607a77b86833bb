//! The JSON document of a message.

use protocol::{
    GeneratorId, InDoubt, Message, MessageId, MessageReason, MessageState, OsBytes, SessionId, Step,
    Timestamp, Token,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::form::{Json, document};

document! {
    /// A message, as `queue ls` and `send` print it.
    pub(crate) struct MessageJson<'a>(
        message: &'a Message;
        status = &message.status, waits = status.state == MessageState::Queued
    ) {
        id: MessageId = message.id,
        session: SessionId = message.session,
        kind: &'a str = &message.kind,
        key: Option<&'a str> = message.key.as_deref(),
        origin: &'a str = &message.origin,
        cause: Option<MessageId> = message.cause,
        state: MessageState = status.state,
        priority: i8 = message.priority,
        attempts: u32 = status.attempts,
        max_attempts: u32 = message.max_attempts,
        size: u32 = message.size,
        created_at: Json<Timestamp> = Json(message.created_at),
        not_before: Option<Json<Timestamp>> = status.not_before.filter(|_| waits).map(Json),
        expires_at: Option<Json<Timestamp>> = message.expires_at.map(Json),
        claim: Option<Claim> = claim(message),
        accepted_at: Option<Json<Timestamp>> = accepted_at(message).map(Json),
        finished_at: Option<Json<Timestamp>> = status.state.is_final().then_some(Json(status.changed_at)),
        result: Option<&'a OsBytes> = status.result.as_ref(),
        reason: Option<String> = status.reason.as_ref().map(ToString::to_string),
        reason_code: Option<&'static str> = status.reason.as_ref().and_then(MessageReason::code),
        in_doubt: Option<InDoubt> = message.in_doubt,
    }
}

#[derive(Debug, Serialize)]
struct Claim {
    generator: Option<GeneratorId>,
    pid: Option<u32>,
    token: Token,
    deadline_at: Option<Json<Timestamp>>,
}

fn claim(message: &Message) -> Option<Claim> {
    let status = &message.status;
    let token = status.token.filter(|_| status.state.in_flight())?;
    let holder = status.holder.as_ref();
    let generator = holder.and_then(|holder| holder.generator);
    let pid = holder.and_then(|holder| Some(holder.process?.pid));
    Some(Claim { generator, pid, token, deadline_at: message.deadline_at.map(Json) })
}

/// Returns the time at which the agent confirmed the message, if it is known.
fn accepted_at(message: &Message) -> Option<Timestamp> {
    let last = message.status.step();
    let mut steps = [&last].into_iter().chain(message.steps.iter().rev());
    steps.find(|step| step.state == MessageState::Accepted).map(|step| step.at)
}

/// A message with its history and, if it was requested, its body.
#[derive(Serialize)]
struct MessageWithHistory<'a> {
    #[serde(flatten)]
    message: MessageJson<'a>,
    history: Vec<StepJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a OsBytes>,
}

/// A step of the history.
#[derive(Serialize)]
struct StepJson {
    at: Json<Timestamp>,
    state: MessageState,
    attempts: u32,
    reason: Option<String>,
    reason_code: Option<&'static str>,
}

fn step(step: &Step) -> StepJson {
    let Step { at, state, attempts, reason } = step;
    StepJson {
        at: Json(*at),
        state: *state,
        attempts: *attempts,
        reason: reason.as_ref().map(ToString::to_string),
        reason_code: reason.as_ref().and_then(MessageReason::code),
    }
}

/// Returns the document of a message with its history and, if it was requested, its body, as `queue show`
/// prints it: sorted by key.
pub(crate) fn with_history(message: &Message, body: Option<&OsBytes>) -> Value {
    let history = message.steps.iter().map(step).collect();
    json!(MessageWithHistory { message: MessageJson::new(message), history, body })
}

#[cfg(test)]
mod tests {
    use protocol::message::Holder;

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
        message.status.holder =
            Some(Holder { generator, process: None, lease_ms: 60_000, op: None, host: None });
        message.deadline_at = Some(Timestamp(61_000));
        let value = serde_json::to_value(MessageJson::new(&message)).unwrap();
        assert_eq!(value["cause"], 3);
        assert_eq!(
            value["claim"],
            json!({"generator": 4, "pid": null, "token": "3.17", "deadline_at": "1970-01-01T00:01:01.000Z"})
        );
        contract_tests::check(&value, "JSON of a message");
    }

    #[test]
    fn a_reason_is_a_sentence_for_people_and_a_code_for_scripts() {
        let mut message = testing::message(7);
        message.status.reason = Some(MessageReason::NoReceipt);
        message.in_doubt = Some(InDoubt::Dead);
        let value = serde_json::to_value(MessageJson::new(&message)).unwrap();
        let sentence = "its typing was cut off, and its terminal does not tell whether it arrived";
        assert_eq!((&value["reason"], &value["reason_code"]), (&json!(sentence), &json!("no_receipt")));
        assert_eq!(value["in_doubt"], "dead");
        message.status.reason = Some("exit 3".into());
        let value = serde_json::to_value(MessageJson::new(&message)).unwrap();
        assert_eq!((&value["reason"], &value["reason_code"]), (&json!("exit 3"), &Value::Null));
    }

    #[test]
    fn a_message_that_is_shown_has_its_history() {
        let mut message = testing::message(7);
        let step = |at, state| Step { at: Timestamp(at), state, attempts: 1, reason: None };
        message.steps = vec![step(1000, MessageState::Accepted), step(2000, MessageState::Done)];
        message.status.state = MessageState::Done;
        message.status.changed_at = Timestamp(2000);
        message.status.result = Some(OsBytes(vec![0xff]));
        let shown = with_history(&message, Some(&"hi".into()));
        assert_eq!(shown["accepted_at"], "1970-01-01T00:00:01.000Z");
        assert_eq!(shown["finished_at"], "1970-01-01T00:00:02.000Z");
        assert_eq!((&shown["result"], &shown["body"]), (&json!({"hex": "ff"}), &json!("hi")));
        let first = json!({"at": "1970-01-01T00:00:01.000Z", "state": "accepted", "attempts": 1, "reason": null,
            "reason_code": null});
        assert_eq!(shown["history"][0], first);
        assert!(with_history(&message, None).get("body").is_none());
    }
}

//! An event as one flat JSON document, and as a line for people.

use protocol::event::{AgentEvent, Event, Stamped};
use protocol::session::Spec;
use protocol::{Seq, Timestamp, redact};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::show::json::{BudgetJson, LimitsJson, PolicyJson};
use crate::show::time::{rfc3339, rfc3339_of_seconds};

/// `{"seq", "at", "kind", "session", …}` with the event's own fields beside them. Where one of those
/// has a name of these four, it gets its owner's name in front (`message_kind`, `candidate_kind`).
#[must_use]
pub(crate) fn document(stamped: &Stamped) -> Map<String, Value> {
    let event = &stamped.event;
    let mut document = envelope(stamped.seq, Some(stamped.at), event.kind());
    document.insert("session".into(), json!(event.session().map(|id| id.to_string())));
    for (key, value) in fields(event) {
        let key = own_name(event, key);
        let value = readable(&key, value);
        document.entry(key).or_insert(value);
    }
    document
}

/// The mark between the state at the start and what follows.
#[must_use]
pub(crate) fn synced(seq: Seq) -> Map<String, Value> {
    envelope(seq, None, "synced")
}

/// One line for people: the fields in a row, without what the columns before them say.
#[must_use]
pub(crate) fn details(stamped: &Stamped) -> String {
    let envelope = ["seq", "at", "kind", "session"];
    let shown = |(key, value): (&String, &Value)| {
        let hidden = envelope.contains(&key.as_str()) || value.is_null() || is_long(value);
        (!hidden).then(|| format!("{key}={}", plain(value)))
    };
    let mut document = document(stamped);
    if let Some(ask) = document.get_mut("ask").filter(|ask| ask.is_object()) {
        *ask = json!(format!("{}: {}", plain(&ask["kind"]), plain(&ask["text"])));
    }
    document.iter().filter_map(shown).collect::<Vec<_>>().join(" ")
}

fn envelope(seq: Seq, at: Option<Timestamp>, kind: &str) -> Map<String, Value> {
    let mut document = Map::new();
    document.insert("seq".into(), json!(seq));
    // What is told of the state at the start happened before: when, no event says.
    let at = at.filter(|at| *at != Timestamp::default()).map(rfc3339);
    document.insert("at".into(), json!(at));
    document.insert("kind".into(), json!(kind));
    document.insert("session".into(), Value::Null);
    document
}

fn is_long(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty() || map.len() > 3,
        Value::Array(items) => items.is_empty() || items.len() > 3,
        _ => false,
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The fields of the variant, and those of what it wraps, side by side. What a program must not learn from
/// the journal is not in it.
fn fields(event: &Event) -> Map<String, Value> {
    // The tag of an enum and its content: {"session_live": {…}}.
    let value = match event {
        Event::Agent(event) => serde_json::to_value(event),
        event => serde_json::to_value(event),
    };
    let Ok(Value::Object(tagged)) = value else { return Map::new() };
    let Some(Value::Object(mut fields)) = tagged.into_iter().next().map(|(_, content)| content) else {
        return Map::new();
    };
    for inner in ["status", "breaker", "lock", "activity", "thought"] {
        if let Some(Value::Object(inner)) = fields.remove(inner) {
            fields.extend(inner);
        }
    }
    // Of use to the daemon alone. A message that is only queued now has one step at most.
    ["digest", "op", "hops", "steps", "turned"].iter().for_each(|name| drop(fields.remove(*name)));
    if let Some(Value::Object(holder)) = fields.get_mut("holder") {
        holder.remove("op");
    }
    match event {
        Event::SessionCreated(session) => {
            fields.insert("labels".into(), json!(redact::labels(&session.labels)));
            fields.insert("spec".into(), spec(&session.spec));
            fields.insert("policy".into(), json!(PolicyJson::new(&session.policy)));
            fields.insert("budget".into(), json!(BudgetJson::new(&session.budget)));
        }
        Event::SessionLabelled { labels, .. } => {
            fields.insert("labels".into(), json!(redact::labels(labels)));
        }
        Event::SessionPolicyChanged { policy, .. } => {
            instead(&mut fields, "policy", &PolicyJson::new(policy));
        }
        Event::LockGranted { lock, .. } => {
            fields.insert("purpose".into(), json!(redact::text(&lock.purpose)));
        }
        // Which incarnation it is about is of use to the daemon alone.
        Event::Agent(AgentEvent::ActivityChanged { .. }) => drop(fields.remove("tag")),
        Event::BudgetChanged { budget, .. } => instead(&mut fields, "budget", &BudgetJson::new(budget)),
        _ => {}
    }
    fields
}

/// What a session runs, without its environment.
fn spec(spec: &Spec) -> Value {
    json!({
        "agent": spec.agent,
        "command": redact::command(&spec.command),
        "cwd": spec.cwd,
        "size": spec.size,
        "start_args": redact::command(&spec.start_args),
        "resume_args": redact::command(&spec.resume_args),
        "limits": LimitsJson::new(&spec.limits),
        "context_limit": spec.context_limit,
    })
}

/// The keys of a document, as those of a session have it, instead of one field.
fn instead(fields: &mut Map<String, Value>, field: &str, document: &impl Serialize) {
    fields.remove(field);
    if let Ok(Value::Object(document)) = serde_json::to_value(document) {
        fields.extend(document);
    }
}

fn own_name(event: &Event, key: String) -> String {
    let owner = match event {
        Event::SessionCreated(_) => "session",
        Event::MessageQueued(_) | Event::BreakerChanged { .. } => "message",
        _ => "candidate",
    };
    if matches!(key.as_str(), "seq" | "at" | "kind") { format!("{owner}_{key}") } else { key }
}

/// Times as text: everything named `…_at`, `at`, `not_before`, `since`, `…_since` or `…_until` is in milliseconds, but what tmux says
/// of its server's start is in seconds.
fn readable(key: &str, value: Value) -> Value {
    match value {
        Value::Object(map) if key == "server" => {
            Value::Object(map.into_iter().map(|(key, value)| seconds(key, value)).collect())
        }
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| {
                    let value = readable(&key, value);
                    (key, value)
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| readable(key, item)).collect()),
        Value::Number(number) if is_time(key) => number.as_u64().map(|ms| rfc3339(Timestamp(ms))).into(),
        other => other,
    }
}

fn seconds(key: String, value: Value) -> (String, Value) {
    let value = match value.as_u64() {
        Some(seconds) if key == "started_at" => json!(rfc3339_of_seconds(seconds)),
        _ => value,
    };
    (key, value)
}

fn is_time(key: &str) -> bool {
    ["at", "not_before", "since"].contains(&key)
        || ["_at", "_since", "_until"].iter().any(|end| key.ends_with(end))
}

#[cfg(test)]
mod tests {
    use protocol::activity::{Ask, AskKind, Source};
    use protocol::message::Holder;
    use protocol::policy::{Budget, Policy};
    use protocol::reap::{Action, CandidateKind, Outcome, Rule};
    use protocol::session::{Exit, SessionLock};
    use protocol::thought::{StreamPosition, Thought};
    use protocol::{
        Activity, ActivityState, Breaker, GeneratorId, MessageId, MessageState, MessageStatus, OpId, ProcId,
        Reason, SessionId, Tag,
    };

    use super::*;
    use crate::testing::{message, session};

    fn shown(event: Event) -> Value {
        let at = Timestamp(1_700_000_000_000);
        Value::Object(document(&Stamped { seq: Seq(9), at, event }))
    }

    #[test]
    fn an_event_is_flat_and_its_times_are_text() {
        let exit = Some(Exit { code: Some(3), signal: None, at: Timestamp(1000) });
        let stopped = Event::SessionStopped { session: SessionId(12), reason: Reason::Exited, exit };
        let expected = json!({
            "seq": 9, "at": "2023-11-14T22:13:20.000Z", "kind": "session_stopped", "session": "sess_12",
            "reason": "exited", "exit": {"code": 3, "signal": null, "at": "1970-01-01T00:00:01.000Z"}
        });
        assert_eq!(shown(stopped), expected);
    }

    #[test]
    fn an_event_of_no_session_says_null() {
        let value = shown(Event::WatcherLost { reason: "gone".into() });
        assert_eq!(value["session"], Value::Null);
        assert_eq!((&value["kind"], &value["reason"]), (&json!("watcher_lost"), &json!("gone")));
    }

    #[test]
    fn a_foreign_session_is_named_as_tmux_does() {
        let (tmux, name) = (protocol::TmuxSessionId(3), "my own".to_owned());
        let expected = json!({
            "seq": 9, "at": "2023-11-14T22:13:20.000Z", "kind": "foreign_seen", "session": null,
            "tmux": "$3", "name": "my own"
        });
        assert_eq!(shown(Event::ForeignSeen { tmux, name: name.clone() }), expected);
        let event = Event::ForeignGone { tmux, name };
        assert_eq!(event.kind(), "foreign_gone");
        let people = details(&Stamped { seq: Seq(1), at: Timestamp(0), event });
        assert!(people == "name=my own tmux=$3", "{people}");
    }

    #[test]
    fn no_field_hides_the_kind_of_the_event() {
        let value = shown(Event::MessageQueued(Box::new(message(7))));
        assert_eq!((&value["kind"], &value["message_kind"]), (&json!("message_queued"), &json!("prompt")));
        assert_eq!((&value["id"], &value["session"]), (&json!(7), &json!("sess_1")));
        assert!(value.get("digest").is_none());
        let (kind, tag, token) = (CandidateKind::Requested, Tag([1; 16]), "1.2".parse().unwrap());
        let value = shown(Event::ReapStarted { session: SessionId(1), kind, tag, token });
        assert_eq!((&value["kind"], &value["candidate_kind"]), (&json!("reap_started"), &json!("requested")));
    }

    #[test]
    fn what_is_wrapped_is_flat_too() {
        let generator = Some(GeneratorId(4));
        let op = Some(OpId::Named("x".into()));
        let status = MessageStatus {
            state: MessageState::Done,
            attempts: 2,
            token: "3.17".parse().ok(),
            holder: Some(Holder { generator, process: None, lease_ms: 60_000, op }),
            result: Some("fine".into()),
            not_before: Some(Timestamp(1000)),
            ..MessageStatus::default()
        };
        let changed =
            Event::MessageChanged { id: MessageId(7), session: SessionId(1), status: Box::new(status) };
        let value = shown(changed);
        assert_eq!((&value["kind"], &value["id"]), (&json!("message_done"), &json!(7)));
        assert_eq!(
            (&value["state"], &value["attempts"], &value["token"]),
            (&json!("done"), &json!(2), &json!("3.17"))
        );
        assert_eq!(value["holder"], json!({"generator": 4, "process": null, "lease_ms": 60_000}));
        assert_eq!(
            (&value["result"], &value["not_before"]),
            (&json!("fine"), &json!("1970-01-01T00:00:01.000Z"))
        );
        let breaker = Breaker {
            failures: 3,
            opened_at: Some(Timestamp(0)),
            probe_at: Some(Timestamp(1000)),
            reason: Some("exit 1".into()),
        };
        let (session, kind) = (SessionId(1), "summarize".to_owned());
        let value = shown(Event::BreakerChanged { session, kind, breaker, turned: true });
        let expected = json!({
            "seq": 9, "at": "2023-11-14T22:13:20.000Z", "kind": "breaker_opened", "session": "sess_1",
            "message_kind": "summarize", "failures": 3, "opened_at": "1970-01-01T00:00:00.000Z",
            "probe_at": "1970-01-01T00:00:01.000Z", "reason": "exit 1"
        });
        assert_eq!(value, expected);
        let (kinds, process) = (vec!["a".to_owned()], Some(ProcId { pid: 5, start: 6 }));
        let (id, session) = (GeneratorId(9), SessionId(1));
        let value = shown(Event::GeneratorRegistered { id, session, kinds, process });
        assert_eq!((&value["id"], &value["kinds"]), (&json!(9), &json!(["a"])));
        assert_eq!(value["process"], json!({"pid": 5, "start": 6}));
    }

    #[test]
    fn a_created_session_keeps_its_secrets() {
        let mut record = session("web").session;
        record.spec.command = vec!["x".into(), "--token=hunter2".into()];
        record.spec.resume_args = vec!["--password".into(), "hunter2".into()];
        record.policy.ttl_ms = Some(u64::MAX);
        let value = shown(Event::SessionCreated(Box::new(record)));
        assert_eq!((&value["session"], &value["name"]), (&json!("sess_1"), &json!("web")));
        assert_eq!(value["incarnation"]["server"]["started_at"], "2023-11-14T22:13:20.000Z");
        assert!(!value.to_string().contains("hunter2"), "{value}");
        assert_eq!(
            (&value["policy"]["ttl_ms"], &value["budget"]["exhausted"]),
            (&json!("never"), &json!(false))
        );
        assert_eq!(
            (&value["spec"]["agent"], &value["spec"]["limits"]["text"]),
            (&json!("shell"), &json!(""))
        );
    }

    #[test]
    fn what_becomes_of_a_session_is_told_as_it_is_shown() {
        let session = SessionId(12);
        let (at, envelope) = ("2023-11-14T22:13:20.000Z", ["seq", "at", "kind", "session"]);
        let parked = Event::SessionParked { session, reason: Reason::Evicted, exit: None };
        let expected = json!({
            "seq": 9, "at": at, "kind": "session_parked", "session": "sess_12", "reason": "evicted", "exit": null
        });
        assert_eq!(shown(parked), expected);
        let reap = [(Rule::Hung, Action::Report)].into();
        let policy = Policy { pinned: true, idle_timeout_ms: Some(u64::MAX), reap, ..Policy::default() };
        let mut value = shown(Event::SessionPolicyChanged { session, policy });
        assert_eq!(value["kind"], "session_policy_changed");
        envelope.iter().for_each(|key| drop(value.as_object_mut().unwrap().remove(*key)));
        let expected = json!({
            "restart": "no", "max_restarts": null, "idle_timeout_ms": "never", "ttl_ms": null,
            "max_runtime_ms": null, "ephemeral": false, "pinned": true, "reap": {"hung": "report"}
        });
        assert_eq!(value, expected);
        let budget = Budget { starts: vec![Timestamp(0)], failures: 1, due_at: None, exhausted: true };
        let expected = json!({
            "seq": 9, "at": at, "kind": "restarts_exhausted", "session": "sess_12",
            "restarts_in_window": 1, "failures": 1, "due_at": null, "exhausted": true
        });
        assert_eq!(shown(Event::BudgetChanged { session, budget }), expected);
        let limit = "memory".to_owned();
        let over = Event::LimitExceeded { session, limit, used: 2, allowed: 1, ended: true };
        let expected = json!({
            "seq": 9, "at": at, "kind": "limit_exceeded", "session": "sess_12", "limit": "memory", "used": 2,
            "allowed": 1, "ended": true
        });
        assert_eq!(shown(over.clone()), expected);
        let line = details(&Stamped { seq: Seq(1), at: Timestamp(0), event: over });
        assert_eq!(line, "allowed=1 ended=true limit=memory used=2");
        assert_eq!(shown(Event::LogResumed { session })["kind"], "log_resumed");
    }

    #[test]
    fn a_lock_is_told_without_its_secrets() {
        let session = SessionId(12);
        let lock = SessionLock {
            token: "3.17".parse().unwrap(),
            purpose: "deploy --token=hunter2".into(),
            holder: Some(ProcId { pid: 5, start: 6 }),
            lease_ms: 60_000,
            since: Timestamp(0),
            op: OpId::Named("x".into()),
            used_for_send: false,
        };
        let granted = Event::LockGranted { session, lock };
        let expected = json!({
            "seq": 9, "at": "2023-11-14T22:13:20.000Z", "kind": "lock_granted", "session": "sess_12",
            "token": "3.17", "purpose": "deploy --token=…redacted…", "holder": {"pid": 5, "start": 6},
            "fed": false, "lease_ms": 60_000, "since": "1970-01-01T00:00:00.000Z"
        });
        assert_eq!(shown(granted), expected);
        let (token, reason) = ("3.17".parse().unwrap(), "given back".to_owned());
        let released = Event::LockReleased { session, token, reason: reason.clone() };
        let line = details(&Stamped { seq: Seq(1), at: Timestamp(0), event: released.clone() });
        assert_eq!((line.as_str(), released.kind()), ("reason=given back token=3.17", "lock_released"));
        assert_eq!(shown(Event::LockRevoked { session, token, reason })["kind"], "lock_revoked");
    }

    #[test]
    fn what_a_rule_found_and_what_was_spared_is_told() {
        let session = SessionId(12);
        let evidence = "nothing since 10m".to_owned();
        let found = Event::StaleFound { session, rule: Rule::Hung, action: Action::Report, evidence };
        let expected = json!({
            "seq": 9, "at": "2023-11-14T22:13:20.000Z", "kind": "stale_found", "session": "sess_12",
            "rule": "hung", "action": "report", "evidence": "nothing since 10m"
        });
        assert_eq!(shown(found.clone()), expected);
        let line = details(&Stamped { seq: Seq(1), at: Timestamp(0), event: found });
        assert_eq!(line, "action=report evidence=nothing since 10m rule=hung");
        let killed = (1..=4).map(|pid| ProcId { pid, start: 1 }).collect();
        let outcome = Outcome::Spared { killed, left: vec!["5 (tmux) serves others".into()] };
        let (kind, tag) = (CandidateKind::Requested, Tag([1; 16]));
        let event = Event::ReapFinished { session, kind, tag, outcome };
        let value = shown(event.clone());
        assert_eq!(value["outcome"]["spared"]["left"], json!(["5 (tmux) serves others"]));
        let line = details(&Stamped { seq: Seq(1), at: Timestamp(0), event });
        assert!(line.contains(r#""left":["5 (tmux) serves others"]"#), "{line}");
    }

    #[test]
    fn what_an_agent_does_is_told() {
        let session = SessionId(12);
        let ask = Ask {
            id: 5,
            kind: AskKind::Permission,
            text: "rm -rf build".into(),
            tool: Some("Bash".into()),
            answerable: true,
        };
        let activity = Activity {
            state: ActivityState::Attention,
            source: Source::Hook,
            since: Timestamp(1000),
            ask: Some(ask),
            detail: None,
            limited_until: Some(Timestamp(2000)),
            tag: Some(Tag([1; 16])),
        };
        let event = Event::Agent(AgentEvent::ActivityChanged { session, activity, turned: true });
        let expected = json!({
            "seq": 9, "at": "2023-11-14T22:13:20.000Z", "kind": "activity_changed", "session": "sess_12",
            "state": "attention", "source": "hook", "since": "1970-01-01T00:00:01.000Z", "detail": null,
            "limited_until": "1970-01-01T00:00:02.000Z",
            "ask": {"id": "5", "kind": "permission", "text": "rm -rf build", "tool": "Bash", "answerable": true}
        });
        assert_eq!(shown(event.clone()), expected);
        let line = details(&Stamped { seq: Seq(1), at: Timestamp(0), event });
        assert!(line.starts_with("ask=permission: rm -rf build limited_until="), "{line}");
        assert!(line.ends_with("source=hook state=attention"), "{line}");
        let by = "approve".to_owned();
        let event = Event::Agent(AgentEvent::AskAnswered { session, ask: 5, allowed: false, by });
        let line = details(&Stamped { seq: Seq(1), at: Timestamp(0), event });
        assert_eq!(line, "allowed=false ask=5 by=approve");
    }

    #[test]
    fn a_thought_is_told_flat() {
        let place = Some(StreamPosition { stream: "s".into(), seq: 3 });
        let thought = Thought { text: Some("Reading".into()), token_count: 5, place, ..Thought::default() };
        let event = Event::Agent(AgentEvent::ThoughtPublished { session: SessionId(12), thought });
        let value = shown(event);
        assert_eq!((&value["kind"], &value["session"]), (&json!("thought_published"), &json!("sess_12")));
        assert_eq!((&value["text"], &value["state"]), (&json!("Reading"), &json!("holding")));
        assert_eq!((&value["token_count"], &value["seq"]), (&json!(5), &json!(9)));
        assert_eq!(value["place"], json!({"stream": "s", "seq": 3}));
        assert_eq!(value["updated_at"], "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn people_read_one_line() {
        let event = Event::SessionStopped { session: SessionId(1), reason: Reason::Killed, exit: None };
        assert_eq!(details(&Stamped { seq: Seq(1), at: Timestamp(0), event }), "reason=killed");
    }
}

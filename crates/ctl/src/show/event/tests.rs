//! Tests of the documents of events.

use protocol::event::EventKind;
use protocol::policy::{Budget, Policy};
use protocol::reap::{Action, CandidateKind, Outcome, Rule};
use protocol::session::SessionLock;
use protocol::thought::{StreamPosition, Thought};
use protocol::{
    Activity, ActivityState, Ask, AskKind, Breaker, Exit, GeneratorId, Holder, MessageId, MessageState,
    MessageStatus, OpId, ProcId, Reason, SessionId, Source, Tag,
};

use serde_json::json;

use super::*;
use crate::testing::{message, session};

fn shown(event: Event) -> Value {
    let at = Timestamp(1_700_000_000_000);
    document(&Stamped { seq: Seq(9), at, event }, None)
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
    assert_eq!(event.kind(), EventKind::ForeignGone);
    let people = line(&event);
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
fn nested_records_are_flat() {
    let generator = Some(GeneratorId(4));
    let op = Some(OpId::Named("x".into()));
    let status = MessageStatus {
        state: MessageState::Done,
        attempts: 2,
        token: "3.17".parse().ok(),
        holder: Some(Holder { generator, process: None, lease_ms: 60_000, op, host: None }),
        result: Some("fine".into()),
        not_before: Some(Timestamp(1000)),
        ..MessageStatus::default()
    };
    let changed = Event::MessageChanged { id: MessageId(7), session: SessionId(1), status: Box::new(status) };
    let value = shown(changed);
    assert_eq!((&value["kind"], &value["id"]), (&json!("message_done"), &json!(7)));
    assert_eq!(
        (&value["state"], &value["attempts"], &value["token"]),
        (&json!("done"), &json!(2), &json!("3.17"))
    );
    assert_eq!(
        value["holder"],
        json!({"generator": 4, "process": null, "lease_ms": 60_000, "deadline_at": null})
    );
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
    let value = shown(Event::GeneratorRegistered { id, session: Some(session), kinds, process });
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
    assert_eq!((&value["policy"]["ttl_ms"], &value["budget"]["exhausted"]), (&json!("never"), &json!(false)));
    assert_eq!((&value["spec"]["agent"], &value["spec"]["limits"]["text"]), (&json!("shell"), &json!("")));
}

#[test]
fn policy_and_budget_have_the_keys_of_a_session() {
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
    let line = super::line(&over);
    assert_eq!(line, "allowed=1 ended=true limit=memory used=2");
    assert_eq!(shown(Event::LogResumed { session })["kind"], "log_resumed");
}

#[test]
fn a_lock_has_no_secrets() {
    let session = SessionId(12);
    let lock = SessionLock {
        token: "3.17".parse().unwrap(),
        purpose: "deploy --token=hunter2".into(),
        holder: Some(ProcId { pid: 5, start: 6 }),
        lease_ms: 60_000,
        since: Timestamp(0),
        op: OpId::Named("x".into()),
        prompts: Default::default(),
        outer: None,
    };
    let granted = Event::LockGranted { session, lock };
    let expected = json!({
        "seq": 9, "at": "2023-11-14T22:13:20.000Z", "kind": "lock_granted", "session": "sess_12",
        "token": "3.17", "purpose": "deploy --token=…redacted…", "holder": {"pid": 5, "start": 6},
        "prompts": [], "outer": null, "lease_ms": 60_000, "since": "1970-01-01T00:00:00.000Z"
    });
    assert_eq!(shown(granted), expected);
    let (token, reason) = ("3.17".parse().unwrap(), "given back".to_owned());
    let released = Event::LockReleased { session, token, reason: reason.clone() };
    let line = super::line(&released);
    assert_eq!((line.as_str(), released.kind()), ("reason=given back token=3.17", EventKind::LockReleased));
    assert_eq!(shown(Event::LockRevoked { session, token, reason })["kind"], "lock_revoked");
}

#[test]
fn findings_and_outcomes_of_the_reaper_are_shown() {
    let session = SessionId(12);
    let evidence = "nothing since 10m".to_owned();
    let found = Event::StaleFound { session, rule: Rule::Hung, action: Action::Report, evidence };
    let expected = json!({
        "seq": 9, "at": "2023-11-14T22:13:20.000Z", "kind": "stale_found", "session": "sess_12",
        "rule": "hung", "action": "report", "evidence": "nothing since 10m"
    });
    assert_eq!(shown(found.clone()), expected);
    let line = super::line(&found);
    assert_eq!(line, "action=report evidence=nothing since 10m rule=hung");
    let killed = (1..=4).map(|pid| ProcId { pid, start: 1 }).collect();
    let outcome = Outcome::Spared { killed, left: vec!["5 (tmux) serves others".into()] };
    let (kind, tag) = (CandidateKind::Requested, Tag([1; 16]));
    let event = Event::ReapFinished { session, kind, tag, outcome };
    let value = shown(event.clone());
    assert_eq!(value["outcome"]["spared"]["left"], json!(["5 (tmux) serves others"]));
    let line = super::line(&event);
    assert!(line.contains(r#""left":["5 (tmux) serves others"]"#), "{line}");
}

#[test]
fn activities_and_answers_are_shown() {
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
    let line = super::line(&event);
    assert!(line.starts_with("ask=permission: rm -rf build limited_until="), "{line}");
    assert!(line.ends_with("source=hook state=attention"), "{line}");
    let by = "approve".to_owned();
    let event = Event::Agent(AgentEvent::AskAnswered { session, ask: 5, allowed: false, by });
    let line = super::line(&event);
    assert_eq!(line, "allowed=false ask=5 by=approve");
}

#[test]
fn a_thought_is_flat() {
    let place = Some(StreamPosition { stream: "s".into(), seq: 3 });
    let thought = Thought { text: Some("Reading".into()), token_count: 5, place, ..Thought::default() };
    let event = Event::Agent(AgentEvent::ThoughtPublished { session: SessionId(12), thought });
    let value = shown(event);
    assert_eq!((&value["kind"], &value["session"]), (&json!("thought_published"), &json!("sess_12")));
    assert_eq!((&value["text"], &value["state"]), (&json!("Reading"), &json!("holding")));
    assert_eq!((&value["token_count"], &value["seq"]), (&json!(5), &json!(9)));
    assert_eq!(value.get("context_limit"), Some(&Value::Null), "what is unknown");
    assert_eq!(value["place"], json!({"stream": "s", "seq": 3}));
    assert_eq!(value["updated_at"], "1970-01-01T00:00:00.000Z");
}

#[test]
fn the_generator_that_ends_is_a_worker_or_a_run_of_a_session() {
    let (session, tag, process) = (SessionId(12), Tag([1; 16]), ProcId { pid: 60, start: 6 });
    let id = GeneratorId(4);
    let kinds = vec!["build".to_owned()];
    let worker = Event::GeneratorRegistered { session: Some(session), id, kinds, process: Some(process) };
    let gone = Event::GeneratorEnded { session: None, id, reason: "left".into() };
    let run = Event::TagRetired { session, tag };
    let cases = [
        (worker, "generator_registered", json!("sess_12"), &["id", "kinds", "process"][..]),
        (gone, "generator_ended", Value::Null, &["id", "reason"]),
        (run, "generator_ended", json!("sess_12"), &["tag"]),
    ];
    for (event, kind, session, keys) in cases {
        let value = shown(event);
        assert_eq!((&value["kind"], &value["session"]), (&json!(kind), &session));
        let own = value.as_object().unwrap().keys().map(String::as_str);
        let own: Vec<&str> = own.filter(|key| !["seq", "at", "kind", "session"].contains(key)).collect();
        assert_eq!(own, keys, "{value}");
    }
}

#[test]
fn people_read_one_line() {
    let event = Event::SessionStopped { session: SessionId(1), reason: Reason::Killed, exit: None };
    assert_eq!(line(&event), "reason=killed");
}

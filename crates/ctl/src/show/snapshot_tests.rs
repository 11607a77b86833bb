//! Compares the documents and lines of every kind of event, and the documents of sessions, messages and the
//! status, with those in `snapshots/`. The values are the protocol's golden vectors, and those below.
//! `BLESS=1 cargo test -p ctl` writes the snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use protocol::policy::{Budget, Policy, RestartPolicy};
use protocol::reap::{CandidateKind, Outcome};
use protocol::reply::LockView;
use protocol::session::SessionLock;
use protocol::thought::{StreamPosition, Thought};
use protocol::{
    AgentEvent, Event, Exit, Frame, GeneratorId, Holder, MessageId, MessageState, MessageStatus, OpId,
    ProcId, Reason, Response, Seq, Session, SessionId, Stamped, Tag, Timestamp,
};

use super::event::{document, line};
use super::json::{Json, MessageJson, SessionJson, with_history};
use super::status;
use crate::testing::{message, session};

const EVENTS: [&str; 2] = [
    include_str!("../../../protocol/tests/golden/events.json.txt"),
    include_str!("../../../protocol/tests/golden/agents.json.txt"),
];
const FRAMES: &str = include_str!("../../../protocol/tests/golden/frames.json.txt");

const SESSION: SessionId = SessionId(12);

/// The events of the protocol's golden vectors: each variant with all and with no optional values.
fn golden() -> impl Iterator<Item = (String, Event)> {
    EVENTS.iter().flat_map(|file| file.lines()).filter_map(|line| {
        let (name, json) = line.split_once(' ')?;
        let is_event = name.starts_with("event.") || name.starts_with("agent-event.");
        is_event.then(|| (name.to_owned(), serde_json::from_str(json).unwrap()))
    })
}

/// An event of each state of a message.
fn messages() -> impl Iterator<Item = (String, Event)> {
    let word = |state: &MessageState| serde_json::to_value(state).unwrap().as_str().unwrap().to_owned();
    let states = [
        MessageState::Queued,
        MessageState::Claimed,
        MessageState::Typing,
        MessageState::Typed,
        MessageState::Accepted,
        MessageState::InDoubt,
        MessageState::Done,
        MessageState::Dead,
        MessageState::Cancelled,
        MessageState::Expired,
        MessageState::Revoking,
        MessageState::Suspended,
    ];
    let status = |state, not_before| MessageStatus {
        state,
        attempts: 2,
        token: "3.17".parse().ok(),
        holder: Some(Holder {
            generator: Some(GeneratorId(4)),
            process: None,
            lease_ms: 60_000,
            op: Some(OpId::Random([7; 16])),
            host: None,
        }),
        not_before,
        changed_at: Timestamp(1_700_000_000_123),
        reason: None,
        result: Some(protocol::OsBytes(vec![0xff])),
    };
    let later = status(MessageState::Queued, Some(Timestamp(1_700_000_060_000)));
    let statuses = states.into_iter().map(move |state| status(state, None)).chain([later]);
    statuses.enumerate().map(move |(n, status)| {
        let name = format!("message.{n}.{}", word(&status.state));
        (name, Event::MessageChanged { id: MessageId(7), session: SESSION, status: Box::new(status) })
    })
}

/// A created session with secrets, a lock and a policy without limits.
fn created() -> Session {
    let mut record = session("web").session;
    record.spec.command = vec!["x".into(), "--token=hunter2".into(), protocol::OsBytes(vec![0xff])];
    record.spec.start_args = vec!["--api-key=hunter2".into()];
    record.spec.resume_args = vec!["--password".into(), "hunter2".into()];
    record.spec.limits = "mem=2G,cpu=150%,cpus=0-1,4".parse().unwrap();
    record.labels = [("password".to_owned(), "hunter2".to_owned()), ("a".to_owned(), "b".to_owned())].into();
    record.policy = policy();
    record.budget = Budget { starts: vec![Timestamp(1), Timestamp(2)], ..Budget::default() };
    record.incarnation.as_mut().unwrap().unenforced = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
    record.exit = Some(Exit { code: None, signal: Some(9), at: Timestamp(1_700_000_000_000) });
    record.lock = Some(lock("deploy"));
    record
}

fn policy() -> Policy {
    Policy {
        restart: RestartPolicy::OnFailure,
        idle_timeout_ms: Some(u64::MAX),
        ttl_ms: Some(u64::MAX),
        max_runtime_ms: Some(5),
        ..Policy::default()
    }
}

fn lock(purpose: &str) -> SessionLock {
    SessionLock {
        token: "3.17".parse().unwrap(),
        purpose: purpose.to_owned(),
        holder: Some(ProcId { pid: 5, start: 6 }),
        lease_ms: 60_000,
        since: Timestamp(1_700_000_000_000),
        op: OpId::Named("x".into()),
        prompts: BTreeSet::from([MessageId(4)]),
        outer: None,
    }
}

fn others() -> Vec<(String, Event)> {
    let processes = |n| (1..=n).map(|pid| ProcId { pid, start: 1 }).collect::<Vec<_>>();
    let finished = |outcome| Event::ReapFinished {
        session: SESSION,
        kind: CandidateKind::StaleWorker,
        tag: Tag([1; 16]),
        outcome,
    };
    let said = || "curl --token=hunter2\x1b[2J".to_owned();
    let mut queued = message(7);
    queued.steps = vec![queued.status.step()];
    queued.op = Some(OpId::Named("x".into()));
    let thought = Thought {
        text: Some("Reading\nit".into()),
        place: Some(StreamPosition { stream: "s".into(), seq: u64::MAX }),
        ..Thought::default()
    };
    let kinds = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
    let events = [
        ("created", Event::SessionCreated(Box::new(created()))),
        ("created-from-testing", Event::SessionCreated(Box::new(session("web").session))),
        ("queued", Event::MessageQueued(Box::new(queued))),
        ("policy", Event::SessionPolicyChanged { session: SESSION, policy: policy() }),
        ("locked", Event::LockGranted { session: SESSION, lock: lock("deploy --token=hunter2") }),
        ("labels", Event::SessionLabelled { session: SESSION, labels: created().labels }),
        ("gone.one", finished(Outcome::Gone { killed: processes(1) })),
        ("gone.many", finished(Outcome::Gone { killed: processes(4) })),
        ("spared", finished(Outcome::Spared { killed: processes(4), left: vec![said()] })),
        ("untouched", finished(Outcome::Untouched { why: said() })),
        ("refused", finished(Outcome::Refused { why: said() })),
        ("parked", Event::SessionParked { session: SESSION, reason: Reason::Evicted, exit: None }),
        ("thought", Event::Agent(AgentEvent::ThoughtPublished { session: SESSION, thought })),
        (
            "generator",
            Event::GeneratorRegistered { id: GeneratorId(9), session: Some(SESSION), kinds, process: None },
        ),
        (
            "answered",
            Event::Agent(AgentEvent::AskAnswered {
                session: SESSION,
                ask: u64::MAX,
                allowed: true,
                by: "approve".into(),
            }),
        ),
    ];
    events.into_iter().map(|(name, event)| (format!("other.{name}"), event)).collect()
}

fn events() -> BTreeMap<String, Event> {
    golden().chain(messages()).chain(others()).filter(|(_, event)| event.is_journaled()).collect()
}

/// Compares text with a snapshot, line by line.
fn check(name: &str, rendered: &str, expected: &str) {
    if std::env::var_os("BLESS").is_some() {
        let file = format!("{}/src/show/snapshots/{name}", env!("CARGO_MANIFEST_DIR"));
        return std::fs::write(file, rendered).unwrap();
    }
    for (now, before) in rendered.lines().zip(expected.lines()) {
        assert_eq!(now, before);
    }
    assert_eq!(rendered.lines().count(), expected.lines().count());
}

#[test]
fn every_event_is_rendered_as_before() {
    let mut rendered = String::new();
    for (name, event) in events() {
        let at = Timestamp(if name.ends_with(".least") { 0 } else { 1_700_000_000_123 });
        let stamped = Stamped { seq: Seq(9), at, event };
        let (json, line) = (text(&document(&stamped, None)), line(&stamped.event));
        // `ReapFinished` has the reaper's words about processes, which the daemon redacts before they become an event.
        let is_redacted_before = matches!(stamped.event, Event::ReapFinished { .. });
        assert!(
            is_redacted_before || !(json.contains("hunter2") || line.contains("hunter2")),
            "{json}\n{line}"
        );
        writeln!(rendered, "{name}\n{json}\n{line:?}").unwrap();
    }
    check("events.txt", &rendered, include_str!("snapshots/events.txt"));
}

/// The documents of a response, as they are printed.
fn documents(response: &Response) -> Vec<String> {
    let now = Timestamp(1_700_000_000_123);
    match response {
        Response::Session(view) => {
            let full = SessionJson::new(view, now).in_full(view, (None, Some("end".to_owned())));
            vec![text(&SessionJson::new(view, now)), text(&full)]
        }
        Response::Message(message) => {
            let history = with_history(message, Some(&"body".into()));
            vec![text(&MessageJson::new(message)), text(&history)]
        }
        Response::Status(status) => vec![text(&status::document(status))],
        Response::Usage(views) => views.iter().map(|view| text(&Json(&view.usage))).collect(),
        _ => Vec::new(),
    }
}

fn text(document: &impl serde::Serialize) -> String {
    serde_json::to_string(document).unwrap()
}

/// Further sessions and messages: of other states, and with special values.
fn more() -> Vec<(&'static str, Response)> {
    let mut stopped = session("web");
    stopped.session.lifecycle = protocol::Lifecycle::Stopped;
    stopped.session.incarnation = None;
    let mut secret = session("web");
    secret.session = created();
    secret.usage = Some(protocol::usage::Usage::default());
    secret.thought = Some(Thought::default());
    secret.lock = Some(LockView {
        token: "3.17".parse().unwrap(),
        purpose: "deploy --token=hunter2".into(),
        ..LockView::default()
    });
    let queued = message(7);
    let mut done = message(8);
    done.status.state = MessageState::Done;
    done.status.result = Some(protocol::OsBytes(vec![0xff]));
    done.status.not_before = Some(Timestamp(5));
    done.steps = vec![done.status.step()];
    let status = crate::testing::status();
    vec![
        ("session.live", Response::Session(Box::new(session("web")))),
        ("session.stopped", Response::Session(Box::new(stopped))),
        ("session.secret", Response::Session(Box::new(secret))),
        ("message.queued", Response::Message(Box::new(queued))),
        ("message.done", Response::Message(Box::new(done))),
        ("status", Response::Status(Box::new(status))),
    ]
}

#[test]
fn every_document_is_rendered_as_before() {
    let golden = FRAMES.lines().filter_map(|line| {
        let (name, json) = line.split_once(' ')?;
        name.starts_with("response.").then_some(())?;
        let Frame::Reply { reply: Ok(response), .. } = serde_json::from_str(json).unwrap() else {
            panic!("{line}")
        };
        Some((name, response))
    });
    let mut rendered = String::new();
    for (name, response) in golden.chain(more()) {
        for json in documents(&response) {
            assert!(!json.contains("hunter2"), "{json}");
            writeln!(rendered, "{name}\n{json}").unwrap();
        }
    }
    check("documents.txt", &rendered, include_str!("snapshots/documents.txt"));
}

//! `queue` and `generators`.

use protocol::reply::{ClaimView, GeneratorView};
use protocol::request::{ClaimRef, Messages, Purge, ResolveMessage};
use protocol::{
    Call, Frame, GeneratorId, Holder, Message, MessageId, MessageState, OpId, OsBytes, ProcId, Refusal,
    Request, Response, SessionId, SessionRef, Step, Timestamp,
};
use serde_json::json;

use crate::fake::{Answer, Pool, Ran, lines, ok};
use crate::samples::{message, session, status};

crate::tests! {
    a_queue_is_listed_as_it_is_asked_for, a_message_is_shown_with_its_history_and_body,
    a_message_in_work_names_its_worker, messages_are_cancelled_and_tried_again, many_are_mended_by_one_flag,
    dead_letters_are_printed_as_they_come, a_message_of_another_session_is_left_alone,
    dead_letters_are_purged_and_counted, generators_are_listed,
}

fn of(id: u64, kind: &str, state: MessageState) -> Message {
    let mut message = message(id);
    message.kind = kind.into();
    message.status.state = state;
    message
}

/// A daemon with one session and these messages.
fn holds(messages: Vec<Message>) -> impl Fn(&Call) -> Answer + Send + Sync {
    let one = move |id: MessageId| messages.iter().find(|message| message.id == id).cloned();
    move |call| {
        let changed = |id: &MessageId, state: MessageState| match one(*id) {
            Some(mut message) => {
                message.status.state = state;
                ok(Response::Message(Box::new(message)))
            }
            None => Answer::Reply(Err(Refusal::not_found(format!("no message {id}")))),
        };
        match &call.request {
            Request::Show(_) => ok(Response::Session(Box::new(session("web")))),
            Request::ShowMessage(id) => match one(*id) {
                Some(message) => ok(Response::Message(Box::new(message))),
                None => changed(id, MessageState::Queued),
            },
            Request::Messages(which) => {
                let wanted = |message: &Message| {
                    (which.kinds.is_empty() || which.kinds.contains(&message.kind))
                        && (which.states.is_empty() || which.states.contains(&message.status.state))
                };
                let found = (1..20).filter_map(|id| one(MessageId(id))).filter(wanted);
                let parts = found.map(|message| Response::Messages(vec![message])).collect();
                Answer::Parts(parts, Response::Messages(Vec::new()))
            }
            Request::Body(_) => ok(Response::Body(OsBytes(b"a\x1b[2J\xff\n".to_vec()))),
            Request::Cancel(id) => changed(id, MessageState::Cancelled),
            Request::Retry(id) => changed(id, MessageState::Queued),
            Request::ResolveMessage(ResolveMessage { id, .. }) => changed(id, MessageState::Done),
            Request::Purge(_) => ok(Response::Purged { messages: 3 }),
            Request::Status => ok(Response::Status(Box::new(status()))),
            other => panic!("{other:?}"),
        }
    }
}

/// The changes, with their operation ids.
fn changes(pool: &Pool) -> Vec<(Request, Option<OpId>)> {
    let calls = pool.calls().into_iter().filter(|call| call.op.is_some());
    calls.map(|call| (call.request, call.op)).collect()
}

fn a_queue_is_listed_as_it_is_asked_for() {
    let all = || vec![of(2, "prompt", MessageState::Queued), of(3, "a", MessageState::Done)];
    let pool = Pool::new(holds(all()));
    assert_eq!(pool.run("queue ls web -q").success(), "2\n3\n");
    assert_eq!(pool.run("queue ls web").success().lines().count(), 3);
    let pool = Pool::new(holds(all()));
    let found =
        lines(&pool.run("queue ls web --state done --state dead --kind a --limit 7 --json").success());
    assert_eq!((found.len(), &found[0]["id"], &found[0]["state"]), (1, &json!(3), &json!("done")));
    let expected = Messages {
        session: SessionRef("web".into()),
        kinds: vec!["a".into()],
        states: vec![MessageState::Done, MessageState::Dead],
        limit: 7,
    };
    assert_eq!(pool.request(), Request::Messages(expected));
}

fn a_message_is_shown_with_its_history_and_body() {
    let mut shown = of(2, "a", MessageState::Dead);
    let step = |at, state| Step { at: Timestamp(at), state, attempts: 1, reason: Some("why\x07".into()) };
    shown.steps = vec![step(0, MessageState::Claimed), step(1000, MessageState::Dead)];
    let pool = Pool::new(holds(vec![shown]));
    let text = pool.run("queue show web 2").success();
    assert!(text.contains("1970-01-01T00:00:01.000Z  dead     try 1  why\\x07\n"), "{text}");
    let document = pool.json("queue show web 2 --json");
    assert_eq!((document["history"].as_array().unwrap().len(), document.get("body")), (2, None));
    let document = pool.json("queue show web 2 --body --json");
    assert_eq!(document["body"], json!({"hex": "611b5b324aff0a"}));
    let raw = pool.poolctl(["queue", "show", "web", "2", "--body"]).output().unwrap();
    assert_eq!((raw.status.code(), raw.stdout.as_slice()), (Some(0), &b"a\x1b[2J\xff\n"[..]));
    assert_eq!(pool.run("queue show web 9").code, 3);
}

fn a_message_in_work_names_its_worker() {
    let mut shown = of(2, "a", MessageState::Claimed);
    let process = Some(ProcId { pid: 60, start: 6 });
    let holder = Holder { generator: Some(GeneratorId(4)), process, lease_ms: 1, op: None, host: None };
    (shown.status.holder, shown.status.token) = (Some(holder), Some("3.17".parse().unwrap()));
    let claim = ClaimView {
        held: ClaimRef { id: MessageId(2), token: "3.17".parse().unwrap() },
        session: SessionId(1),
        kind: "a".into(),
        deadline_at: None,
    };
    let view = GeneratorView {
        id: Some(GeneratorId(4)),
        generation: 3,
        session: Some(SessionId(5)),
        name: Some(protocol::Name::of_worker("w").unwrap()),
        sessions: "all".into(),
        role: "worker".into(),
        process,
        holds: vec![claim],
        ..GeneratorView::default()
    };
    let holds = holds(vec![shown]);
    let pool = Pool::new(move |call| match call.request {
        Request::Generators => ok(Response::Generators(vec![view.clone()])),
        _ => holds(call),
    });
    let text = pool.run("queue show web 2").success();
    assert!(text.ends_with("held by worker 4 of @w, pid 60\n"), "{text}");
    let document = pool.json("queue show web 2 --json");
    assert_eq!((&document["claim"]["pid"], &document["claim"]["generator"]), (&json!(60), &json!(4)));
}

fn messages_are_cancelled_and_tried_again() {
    let all = vec![of(2, "a", MessageState::Queued), of(3, "a", MessageState::Dead)];
    let pool = Pool::new(holds(all));
    assert_eq!(pool.run("queue cancel web 2 --op-id x").success(), "2  cancelled\n");
    assert_eq!(pool.run("queue retry web 3").success(), "3  queued\n");
    let ran = pool.run("queue cancel web 9 2");
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (3, "2  cancelled\n", "poolctl: no message 9\n")
    );
    let done = changes(&pool);
    assert_eq!(done[0], (Request::Cancel(MessageId(2)), Some(OpId::Named("x".into()))));
    assert!(matches!(&done[1], (Request::Retry(MessageId(3)), Some(OpId::Random(_)))), "{done:?}");
    assert_eq!(pool.run("queue cancel web 2 3 --op-id x").code, 2, "one operation has one id");
    assert_eq!(pool.run("queue resolve web 2 --as done --json").code, 0);
    for nothing in
        ["queue cancel web", "queue retry web", "queue cancel web 2 --all", "queue retry web 3 --dead"]
    {
        assert_eq!(pool.run(nothing).code, 2, "{nothing}");
    }
}

fn many_are_mended_by_one_flag() {
    let all = vec![
        of(2, "a", MessageState::Queued),
        of(3, "a", MessageState::Dead),
        of(4, "b", MessageState::Queued),
        of(5, "a", MessageState::Claimed),
        of(6, "b", MessageState::Dead),
    ];
    let pool = Pool::new(holds(all.clone()));
    assert_eq!(pool.run("queue cancel web --all").success(), "2  cancelled\n4  cancelled\n");
    assert_eq!(pool.run("queue cancel web --all --kind b").success(), "4  cancelled\n");
    assert_eq!(pool.run("queue retry web --dead --kind a").success(), "3  queued\n");
    assert_eq!(pool.run("queue cancel web --kind a --kind b").success(), "2  cancelled\n4  cancelled\n");
    assert_eq!(pool.run("queue retry web --kind b").success(), "4  queued\n", "the dead stay so");
    assert_eq!(pool.run("queue cancel web 2 --kind a").code, 2, "ids, or a kind");
    assert_eq!(pool.run("queue cancel web --all --kind none").success(), "");
    assert_eq!(pool.run("queue dead web -q").success(), "3\n6\n");
    let dead = lines(&pool.run("queue dead web --kind b --json").success());
    assert_eq!((dead.len(), &dead[0]["max_attempts"]), (1, &json!(5)));
}

fn dead_letters_are_printed_as_they_come() {
    let part = || Response::Messages(vec![of(3, "a", MessageState::Dead)]);
    let pool = Pool::new(move |call| Answer::Frames(vec![Frame::Part { id: call.id, part: part() }]));
    let ran = pool.run("queue dead web -q");
    assert_eq!((ran.code, ran.out.as_str(), pool.calls().len()), (7, "3\n", 1), "{}", ran.err);
}

fn a_message_of_another_session_is_left_alone() {
    let mut other = of(2, "a", MessageState::Queued);
    other.session = SessionId(7);
    let pool = Pool::new(holds(vec![other]));
    for verb in ["cancel web 2", "retry web 2", "show web 2 --body", "resolve web 2 --as dead"] {
        let ran = pool.run(&format!("queue {verb}"));
        assert_eq!((ran.code, ran.err.contains("belongs to sess_7")), (3, true), "{verb}: {}", ran.err);
    }
    assert_eq!(changes(&pool), []);
}

fn dead_letters_are_purged_and_counted() {
    let pool = Pool::new(holds(Vec::new()));
    assert_eq!(pool.run("queue purge web").success(), "3 deleted\n");
    assert_eq!(pool.run("queue purge web 4 5 --json").success(), "{\"purged\":3}\n");
    pool.run("queue purge web --state done --state expired --older-than 2s --op-id x").success();
    let purge = |ids: &[u64], states: &[MessageState], older_ms| {
        let ids = ids.iter().map(|id| MessageId(*id)).collect();
        Request::Purge(Purge { session: SessionRef("web".into()), ids, states: states.to_vec(), older_ms })
    };
    let asked: Vec<Request> = changes(&pool).into_iter().map(|(request, _)| request).collect();
    let expected = [
        purge(&[], &[MessageState::Dead], 0),
        purge(&[4, 5], &[], 0),
        purge(&[], &[MessageState::Done, MessageState::Expired], 2000),
    ];
    assert_eq!(asked, expected);
}

fn generators_are_listed() {
    let view = |session: u64, id: Option<u64>| GeneratorView {
        id: id.map(GeneratorId),
        generation: 3,
        session: Some(SessionId(session)),
        name: Some("web".parse().unwrap()),
        sessions: "web".into(),
        role: if id.is_some() { "worker" } else { "agent" }.into(),
        kinds: vec!["a".into(), "b".into()],
        process: Some(ProcId { pid: 50, start: 5 }),
        since: Timestamp(0),
        last_activity_at: Timestamp(1000),
        holds: vec![ClaimView {
            held: ClaimRef { id: MessageId(12), token: "3.17".parse().unwrap() },
            session: SessionId(session),
            kind: "a".into(),
            deadline_at: Some(Timestamp(2000)),
        }],
    };
    let pool = Pool::new(move |call| match call.request {
        Request::Show(_) => ok(Response::Session(Box::new(session("web")))),
        _ => Answer::Parts(
            vec![Response::Generators(vec![view(1, Some(4))])],
            Response::Generators(vec![view(2, None)]),
        ),
    });
    let text = pool.run("generators").success();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let at = ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:01.000Z"];
    assert_eq!(rows[1], ["4", "sess_1", "web", "worker", "3", "a,b", "50", at[0], at[1], "12(a)"]);
    assert_eq!((rows.len(), &rows[2][..4]), (3, &["-", "sess_2", "web", "agent"][..]));
    let found = lines(&pool.run("generators web --json").success());
    let expected = json!({
        "id": 4, "generation": 3, "session": "sess_1", "name": "web", "sessions": "web", "role": "worker",
        "kinds": ["a", "b"], "pid": 50,
        "start_time": 5, "since": at[0], "last_activity_at": at[1],
        "holds": [{"id": 12, "session": "sess_1", "kind": "a", "token": "3.17", "deadline_at": "1970-01-01T00:00:02.000Z"}]
    });
    assert_eq!(found, [expected]);
    let ran = Ran::new(&pool.poolctl(["generators", "-"]).output().unwrap());
    assert_eq!(ran.code, 2, "this shell is in no session");
}

//! `reap` and `update`: the rules of the reaper, and their actions.

use protocol::policy::RestartPolicy;
use protocol::reap::{Action, Candidate, CandidateKind, Rule};
use protocol::reply::Explained;
use protocol::request::Update;
use protocol::{Call, OpId, ProcId, Request, Response, SessionId, SessionRef, Tag, Timestamp};
use serde_json::{Value, json};

use crate::fake::{Answer, Pool, Ran, ok};
use crate::samples::session;

crate::tests! {
    reap_prints_what_it_named, reap_explains_each_rule, update_changes_what_is_said,
    a_policy_for_a_rule_goes_with_a_new_session,
}

fn candidate() -> Candidate {
    Candidate {
        session: SessionId(1),
        name: "web".parse().unwrap(),
        kind: CandidateKind::Orphan,
        evidence: "its incarnation is over".into(),
        tag: Tag([7; 16]),
        server: None,
        pane: None,
        init: Some(ProcId { pid: 60, start: 6 }),
        agent: None,
        grace_ms: 5000,
        remove_pane: false,
        cgroup: None,
        rule: Some(Rule::Orphans),
    }
}

fn reap_prints_what_it_named() {
    let pool = Pool::new(|_| ok(Response::Candidates(vec![candidate()])));
    let expected = "SESSION  NAME  KIND    RULE     PANE  PID  EVIDENCE\n\
                    sess_1   web   orphan  orphans  -     60   its incarnation is over\n";
    for line in ["reap --dry-run", "reap --op-id x", "reap --force"] {
        assert_eq!(pool.run(line).success(), expected, "{line}");
    }
    let calls = pool.calls();
    let asked: Vec<_> = calls.iter().map(|call| &call.request).collect();
    let reap = |force| Request::Reap { force };
    assert_eq!(asked, [&Request::Candidates, &reap(false), &reap(true)]);
    assert_eq!((&calls[0].op, &calls[1].op), (&None, &Some(OpId::Named("x".into()))));
    assert!(calls[2].op.is_some());
    let document = pool.json("reap --json");
    let found = &document["candidates"][0];
    assert_eq!((&found["rule"], &found["kind"]), (&json!("orphans"), &json!("orphan")));
}

fn reap_explains_each_rule() {
    let says = |rule, action, by: &str, applies, at: Option<u64>| Explained {
        rule,
        action,
        by: by.into(),
        applies,
        why: "it writes".into(),
        at: at.map(Timestamp),
    };
    let pool = Pool::new(move |call| match &call.request {
        Request::Explain(_) => ok(Response::Explained(vec![
            says(Rule::Hung, Action::Report, "default", false, Some(1000)),
            says(Rule::IdleSession, Action::Park, "session", true, None),
        ])),
        _ => ok(Response::Session(Box::new(session("web")))),
    });
    let expected = "RULE          ACTION  BY       APPLIES  WHEN                      WHY\n\
                    hung          report  default  no       1970-01-01T00:00:01.000Z  it writes\n\
                    idle_session  park    session  yes      -                         it writes\n";
    assert_eq!(pool.run("reap --explain web").success(), expected);
    let asked: Vec<_> = pool.calls().into_iter().map(|call| call.request).collect();
    assert_eq!(asked, [Request::Show(SessionRef("web".into())), Request::Explain(SessionId(1).into())]);
    let document = pool.json("reap --explain web --json");
    let first = json!({
        "rule": "hung", "action": "report", "by": "default", "applies": false, "why": "it writes",
        "at": "1970-01-01T00:00:01.000Z"
    });
    assert_eq!((&document["session"], &document["rules"][0]), (&json!("sess_1"), &first));
    assert_eq!(document["rules"][1]["at"], Value::Null);
    let mut shell = pool.poolctl(["reap", "--explain", "-", "-q"]);
    let ran = Ran::new(&shell.env("POOL_SESSION", "sess_1").output().unwrap());
    assert!(ran.success().starts_with("hung  "));
    assert_eq!(pool.run("reap --explain -").code, 2, "this shell is in no session");
}

/// A daemon that stores the actions of rules.
fn obeys(call: &Call) -> Answer {
    let mut view = session("web");
    match &call.request {
        Request::Update(update) => {
            let said = update.reap.iter().filter_map(|(rule, action)| Some((*rule, (*action)?)));
            view.session.policy.reap = said.collect();
        }
        Request::New(new) => view.session.policy.reap.clone_from(&new.reap),
        other => panic!("{other:?}"),
    }
    ok(Response::Session(Box::new(view)))
}

fn update_changes_what_is_said() {
    let pool = Pool::new(obeys);
    let line = "update web --reap hung=restart --reap idle-session=default --reap hung=park --op-id x";
    assert_eq!(pool.run(line).success(), "sess_1  web  no restart, reap hung=park\n");
    let nothing = Update {
        session: SessionRef("web".into()),
        reap: [(Rule::Hung, Some(Action::Park)), (Rule::IdleSession, None)].into(),
        ..Update::default()
    };
    assert_eq!(pool.request(), Request::Update(nothing.clone()));
    assert_eq!(pool.calls()[0].op, Some(OpId::Named("x".into())));
    let line =
        "update web --json --restart always --max-restarts 3 --idle-timeout never --ttl 1m --max-runtime 2m";
    let document = pool.json(line);
    assert_eq!((&document["id"], &document["policy"]["reap"]), (&json!("sess_1"), &json!({})));
    let all = Update {
        restart: Some(RestartPolicy::Always),
        max_restarts: Some(3),
        idle_timeout_ms: Some(u64::MAX),
        ttl_ms: Some(60_000),
        max_runtime_ms: Some(120_000),
        reap: [].into(),
        ..nothing
    };
    assert_eq!(pool.calls()[1].request, Request::Update(all));
    for (line, says) in [
        ("update web", "nothing to change"),
        ("update web --reap orphans=park", "rule orphans does not allow the action park"),
        ("update web --reap hang=kill", "there are zombie_pane"),
        ("update web --reap hung=end", "kill, restart, park or report"),
    ] {
        let ran = pool.run(line);
        assert_eq!((ran.code, ran.err.contains(says)), (2, true), "{line}: {}", ran.err);
    }
    assert_eq!(pool.calls().len(), 2);
    let help = pool.run("update --help").success();
    assert!(help.contains("Start it again when") && !help.contains("from the configuration"), "{help}");
}

fn a_policy_for_a_rule_goes_with_a_new_session() {
    let pool = Pool::new(obeys);
    let line = "new --json --reap stale_agent=report --reap memory=restart";
    let document = pool.json(line);
    assert_eq!(document["policy"]["reap"], json!({"stale_agent": "report", "memory": "restart"}));
    let Request::New(new) = pool.request() else { panic!() };
    assert_eq!(new.reap, [(Rule::StaleAgent, Action::Report), (Rule::Memory, Action::Restart)].into());
}

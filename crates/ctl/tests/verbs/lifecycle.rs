//! Verbs about the lifecycle of sessions: limits, policies and usage.

use std::io::Read;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::policy::RestartPolicy;
use protocol::reply::{Pruned, Sent, UsageView};
use protocol::request::{
    Attach, Drain, Label, List, Park, Pin, Prune, Remove, Restart, Restore, Until, Wait,
};
use protocol::{
    ActivityState, Call, ErrorCode, Exit, Lifecycle, Limits, MessageState, OpId, OsBytes, Reason, Request,
    Response, SessionId, SessionRef, SessionView, Standstill, StuckLane, StuckReason, Timestamp, Usage,
};
use serde_json::{Value, json};

use crate::fake::{Answer, Pool, Ran, ok, refused, shown, until};
use crate::samples::{message, session, status};

crate::tests! {
    new_says_what_bounds_a_session, flags_that_contradict_each_other_are_refused,
    a_slot_is_waited_for_patiently, run_removes_what_is_ephemeral_when_it_is_shown,
    run_ends_with_the_code_of_a_program_that_is_not_there, run_removes_what_tmux_did_not_start,
    park_and_restart_say_how,
    restore_starts_each_that_is_named, restore_all_waits_for_each_and_names_what_failed,
    restore_all_leaves_those_that_wait_for_a_slot_in_line, restore_all_ends_when_its_time_is_over,
    an_agent_that_ended_before_the_answer_is_reported, drain_waits_for_the_end,
    a_drain_does_not_wait_for_itself,
    a_drain_that_is_cut_off_fails_and_a_session_that_had_ended_is_drained,
    a_selection_is_asked_for_and_its_size_is_told, label_and_update_take_several, pin_and_unpin_say_how_it_is,
    clear_empties_each, reset_is_a_fresh_restart_or_the_agents_own_command, prune_says_what_went,
    rm_archives_and_takes_all_that_are_over, rm_tells_of_files_that_stay, stats_looks_twice,
    wait_for_started_ends_well_only_where_it_runs,
    wait_for_nothing_named_is_for_the_work_or_for_somebody,
    wait_for_several_is_for_all_of_them_or_the_first_that_needs_somebody,
    a_wait_that_ran_out_is_not_said_to_be_the_daemons, a_wait_has_its_time_once,
    attach_waits_for_what_is_woken,
    nothing_shown_holds_a_key, how_many_have_answered_is_told_on_a_terminal_alone,
}

fn view(id: u64, name: &str, lifecycle: Lifecycle, reason: Option<Reason>) -> SessionView {
    let mut view = session(name);
    let session = &mut view.session;
    (session.id, session.lifecycle, session.reason) = (SessionId(id), lifecycle, reason);
    view
}

fn live(_: &Call) -> Answer {
    shown(session("web"))
}

fn requests(pool: &Pool) -> Vec<Request> {
    pool.calls().into_iter().map(|call| call.request).collect()
}

fn named(name: &str) -> SessionRef {
    SessionRef(name.into())
}

fn new_says_what_bounds_a_session() {
    let pool = Pool::new(live);
    let line = "new --limit mem=1G,nice=5 --limit mem=2G --limits best-effort --max-runtime 2h --restart on-failure \
                --max-restarts 3 --idle-timeout never --ttl 30d --pin --wait-slot 0 --prompt hi";
    pool.run(line).success();
    let Request::New(new) = pool.request() else { panic!() };
    let limits: Limits = "mem=2G,nice=5".parse().unwrap();
    assert_eq!(new.limits, Limits { best_effort: true, ..limits });
    assert_eq!((new.restart, new.max_restarts), (Some(RestartPolicy::OnFailure), Some(3)));
    assert_eq!((new.idle_timeout_ms, new.ttl_ms), (Some(u64::MAX), Some(30 * 86_400_000)));
    assert_eq!((new.max_runtime_ms, new.wait_slot_ms), (Some(7_200_000), Some(0)));
    assert_eq!((new.pinned, new.ephemeral, new.prompt), (true, false, Some("hi".into())));
    let pool = Pool::new(live);
    pool.run("new --ephemeral").success();
    let Request::New(new) = pool.request() else { panic!() };
    assert_eq!((new.limits, new.restart, new.ephemeral), (Limits::default(), None, true));
    assert_eq!((new.max_restarts, new.idle_timeout_ms, new.ttl_ms), (None, None, None));
    assert_eq!((new.max_runtime_ms, new.wait_slot_ms, new.prompt), (None, None, None));
}

fn flags_that_contradict_each_other_are_refused() {
    let pool = Pool::new(live);
    for (ran, says) in [
        (pool.run("new --ephemeral --restart always"), "cannot be used with"),
        (pool.run("new --limit memory=2G"), "there are mem, cpu"),
        (pool.run("new --limit mem=2X"), "size like 2G"),
        (pool.run("new --idle-timeout 0"), "longer than 0, or never"),
        (pool.run("new --restart sometimes"), "on-failure"),
        (pool.run("rm web --keep-tmux --purge"), "cannot be used with"),
        (pool.run("rm web --keep-tmux --archive"), "cannot be used with"),
        (pool.run("rm --stopped"), "--all"),
        (pool.run("rm web --all"), "cannot be used with"),
        (pool.run("kill web --label a=b"), "cannot be used with"),
        (pool.run("kill"), "SESSION"),
        (pool.run("kill --all --op-id x"), "one operation"),
        (pool.run("label web --all a=b"), "not both"),
        (pool.run("label a=b"), "which session"),
        (pool.run("label web"), "no label"),
        (pool.run("label web =b"), "the key is empty"),
        (pool.run("restore"), "SESSION"),
        (pool.run("park a b --op-id x"), "one operation"),
        (pool.run("restore a b --op-id x"), "one operation"),
        (pool.run("drain a b --op-id x"), "one operation"),
        (pool.run("pin a b --op-id x"), "one operation"),
        (pool.run("clear a b --op-id x"), "one operation"),
    ] {
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.contains(says)),
            (2, "", true),
            "{says}: {}",
            ran.err
        );
    }
    assert!(pool.calls().is_empty(), "{:?}", pool.calls());
    // A verb that ends with the exit code of a program has a code of its own for a command line that does not parse.
    for line in ["run --rm --restart always -- true", "run --no-such", "wait web --for idle,exit --no-such"] {
        assert_eq!(pool.run(line).code, 125, "{line}");
    }
    assert_eq!((pool.run("wait exit --for idle --no-such").code, pool.run("run --help").code), (2, 0));
}

fn a_slot_is_waited_for_patiently() {
    let pool = Pool::new(|_| refused(ErrorCode::Refused, "the pool is full: 16 of 16 slots are taken"));
    for line in [
        "new --wait-slot 1m",
        "new --wait-slot 1m --timeout 2s",
        "new --wait-slot 1m --timeout 1h",
        "new --wait-slot 1m --timeout 2s --op-id one",
        "restart web --wait-slot 1m",
        "restore web --wait-slot 1m",
    ] {
        let ran = pool.run(line);
        assert_eq!((ran.code, ran.err.contains("is full")), (5, true), "{line}: {}", ran.err);
    }
    let waits: Vec<_> = requests(&pool)
        .into_iter()
        .map(|request| match request {
            Request::New(new) => new.wait_slot_ms,
            Request::Restart(restart) => restart.wait_slot_ms,
            Request::Restore(restore) => restore.wait_slot_ms,
            other => panic!("{other:?}"),
        })
        .collect();
    // poold says itself why there was none in time.
    assert_eq!(waits, [60_000, 1500, 60_000, 60_000, 60_000, 60_000].map(Some));
    let pool = Pool::new(|_| Answer::Silence);
    assert_eq!(pool.run("restore web --wait-slot 1m --timeout 2s").code, 6);
}

fn run_removes_what_is_ephemeral_when_it_is_shown() {
    let pool = Pool::new(|call| match &call.request {
        Request::New(_) => shown(session("web")),
        Request::Wait(_) => {
            let mut view = view(1, "web", Lifecycle::Stopped, Some(Reason::Killed));
            view.session.policy.ephemeral = true;
            shown(view)
        }
        _ => refused(ErrorCode::NotFound, "no session sess_1"),
    });
    let ran = pool.run("run --rm --no-stream --prompt hi -- program");
    assert_eq!((ran.code, ran.err.contains("not removed")), (125, false), "{}", ran.err);
    let Request::New(new) = requests(&pool)[0].clone() else { panic!() };
    assert_eq!((new.ephemeral, new.prompt), (true, Some("hi".into())));
    let remove = Remove { session: named("sess_1"), ..Remove::default() };
    assert_eq!(requests(&pool).last(), Some(&Request::Remove(remove)));
}

fn run_ends_with_the_code_of_a_program_that_is_not_there() {
    let pool = Pool::new(|call| match &call.request {
        Request::New(new) if new.name.is_some() => {
            refused(ErrorCode::Conflict, "sess_3 has that name already")
        }
        Request::New(_) => {
            refused(ErrorCode::Failed, "sess_3 (web) failed to start: no; `poolctl restart` …")
        }
        Request::Show(session) => {
            assert_eq!(session.0, "sess_3");
            let mut view = view(3, "web", Lifecycle::Failed, Some(Reason::ExecFailed));
            view.session.detail = Some("no nosuchprog".into());
            view.session.policy.ephemeral = true;
            view.session.exit = Some(Exit { code: Some(127), signal: None, at: Timestamp(0) });
            shown(view)
        }
        _ => ok(Response::Done),
    });
    let ran = pool.run("run -- nosuchprog");
    let told = "poolctl: sess_3 (web) failed to start: no; `poolctl restart` …\n";
    assert_eq!((ran.code, ran.err.as_str()), (127, told));
    assert!(!requests(&pool).iter().any(|request| matches!(request, Request::Remove(_))));
    let ran = pool.run("run --rm -- nosuchprog");
    let told = "poolctl: sess_3 is failed: its program could not be executed; no nosuchprog; exit 127\n";
    assert_eq!((ran.code, ran.err.as_str()), (127, told));
    assert!(matches!(requests(&pool).last(), Some(Request::Remove(remove)) if remove.session.0 == "sess_3"));
    assert_eq!(pool.run("run web --rm -- nosuchprog").code, 125);
    assert!(matches!(requests(&pool).last(), Some(Request::New(_))), "what was there before stays");
}

fn run_removes_what_tmux_did_not_start() {
    for code in [ErrorCode::Unavailable, ErrorCode::Conflict] {
        let pool = Pool::new(move |call| match &call.request {
            Request::New(_) => refused(code, "sess_3 failed to start: no; it keeps the name web: …"),
            Request::Show(_) => {
                let mut view = view(3, "web", Lifecycle::Failed, Some(Reason::TmuxFailed));
                view.session.policy.ephemeral = true;
                view.session.detail = Some("no".into());
                shown(view)
            }
            _ => ok(Response::Done),
        });
        let ran = pool.run("run --rm -- program");
        let told = "poolctl: sess_3 is failed: tmux refused or did not answer; no\n";
        assert_eq!((ran.code, ran.err.as_str()), (125, told));
        assert!(
            matches!(requests(&pool).last(), Some(Request::Remove(remove)) if remove.session.0 == "sess_3")
        );
    }
}

fn park_and_restart_say_how() {
    let pool = Pool::new(|_| shown(view(1, "web", Lifecycle::Parked, Some(Reason::Parked))));
    assert_eq!(pool.run("park web --force --grace 1s --op-id x").success(), "sess_1  web  parked(user)\n");
    let park = Park { session: named("web"), force: true, grace_ms: Some(1000) };
    assert_eq!(pool.request(), Request::Park(park));
    assert_eq!(pool.calls()[0].op, Some(OpId::Named("x".into())));
    let document = pool.json("park web --json");
    assert_eq!((&document["lifecycle"], &document["reason"]), (&json!("parked"), &json!("parked")));
    let pool = Pool::new(live);
    assert_eq!(pool.run("restart web --fresh --wait-slot 5s").success(), "sess_1  web  live\n");
    let restart =
        Restart { session: named("web"), fresh: true, wait_slot_ms: Some(5000), ..Restart::default() };
    assert_eq!(pool.request(), Request::Restart(restart));
}

fn restore_starts_each_that_is_named() {
    let pool = Pool::new(|call| match &call.request {
        Request::Restore(restore) if restore.session == Some(named("bad")) => {
            refused(ErrorCode::NotFound, "no bad")
        }
        _ => shown(session("web")),
    });
    let ran = pool.run("restore bad web");
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (3, "sess_1  web  live\n", "poolctl: no bad\n")
    );
    let restore = Restore { session: Some(named("web")), wait_slot_ms: None };
    assert!(requests(&pool).contains(&Request::Restore(restore)));
}

fn restore_all_waits_for_each_and_names_what_failed() {
    let pool = Pool::new(|call| match &call.request {
        Request::Restore(_) => {
            let lost = |id, name| view(id, name, Lifecycle::Lost, Some(Reason::ServerGone));
            Answer::Parts(
                vec![Response::Sessions(vec![lost(1, "one"), lost(2, "two")])],
                Response::Sessions(vec![lost(3, "three"), lost(4, "four")]),
            )
        }
        Request::Wait(wait) => match wait.session.0.as_str() {
            "sess_1" => shown(view(1, "one", Lifecycle::Live, None)),
            "sess_2" => {
                let mut failed = view(2, "two", Lifecycle::Failed, Some(Reason::TmuxFailed));
                failed.session.detail = Some("no server".into());
                shown(failed)
            }
            "sess_3" => refused(ErrorCode::NotFound, "no sess_3"),
            // The session was restored, and has ended since.
            _ => shown(view(4, "four", Lifecycle::Stopped, Some(Reason::Exited))),
        },
        other => panic!("{other:?}"),
    });
    let ran = pool.run("restore --all --wait-slot 1m");
    assert_eq!((ran.code, ran.out.as_str()), (1, "sess_1  one  live\nsess_4  four  stopped(exited)\n"));
    let told = "poolctl: 2 of 4 sessions do not run:\ntwo: sess_2 is failed: tmux refused or did not answer; no server\n\
                three: no sess_3\n";
    assert_eq!(ran.err, told);
    let requests = requests(&pool);
    assert_eq!(requests[0], Request::Restore(Restore { session: None, wait_slot_ms: Some(60_000) }));
    let wait = Wait { session: named("sess_1"), until: vec![Until::Started], timeout_ms: Some(1000) };
    assert_eq!((requests.len(), &requests[1]), (5, &Request::Wait(wait)));
    let ran = pool.run("restore --all --json");
    let ids: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone()).collect();
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((ran.code, ids), (1, vec![json!("sess_1"), json!("sess_4")]));
    assert_eq!(error["error"]["code"], "failed");
    let pool = Pool::new(|_| ok(Response::Sessions(Vec::new())));
    assert_eq!(pool.run("restore --all").success(), "no session was lost\n");
}

fn restore_all_leaves_those_that_wait_for_a_slot_in_line() {
    let pool = Pool::new(|call| match &call.request {
        Request::Restore(_) => {
            let lost = |id, name| view(id, name, Lifecycle::Lost, Some(Reason::ServerGone));
            ok(Response::Sessions(vec![lost(1, "one"), lost(2, "two"), lost(3, "three")]))
        }
        Request::Wait(wait) if wait.session == named("sess_1") => {
            shown(view(1, "one", Lifecycle::Live, None))
        }
        Request::Wait(wait) => {
            std::thread::sleep(Duration::from_millis(wait.timeout_ms.unwrap()));
            refused(ErrorCode::Timeout, "it does not run yet")
        }
        Request::Show(_) => {
            let waits = view(2, "two", Lifecycle::Lost, Some(Reason::ServerGone));
            shown(SessionView { slot_wait: Some(1), ..waits })
        }
        _ => refused(ErrorCode::Unavailable, "not asked"),
    });
    let ran = pool.run("restore --all --wait-slot 1s");
    assert_eq!((ran.code, ran.out.as_str()), (5, "sess_1  one  live\n"));
    assert!(
        ran.err.contains("2 of 3 sessions wait for a slot") && ran.err.ends_with("two, three\n"),
        "{}",
        ran.err
    );
}

fn restore_all_ends_when_its_time_is_over() {
    let pool = Pool::new(|call| match &call.request {
        Request::Restore(_) => {
            let lost = |id, name| view(id, name, Lifecycle::Lost, Some(Reason::ServerGone));
            ok(Response::Sessions(vec![lost(1, "one"), lost(2, "two")]))
        }
        _ => refused(ErrorCode::Timeout, "it does not run yet"),
    });
    let ran = pool.run("restore --all --timeout 900ms");
    assert_eq!((ran.code, ran.err.as_str()), (6, "poolctl: it does not run yet\n"));
    let mut requests = requests(&pool);
    requests.retain(|request| *request != Request::Status);
    let Request::Wait(Wait { timeout_ms: Some(ms), .. }) = requests[1] else { panic!("{requests:?}") };
    assert!(ms <= 900 && requests.len() == 2, "{requests:?}");
}

fn an_agent_that_ended_before_the_answer_is_reported() {
    let ended = || {
        let mut view = view(1, "web", Lifecycle::Stopped, Some(Reason::Exited));
        view.confirm = "hook".into();
        shown(view)
    };
    let pool = Pool::new(move |call| match &call.request {
        Request::Restore(_) | Request::Restart(_) | Request::Wait(_) => ended(),
        other => panic!("{other:?}"),
    });
    for line in ["restore web", "restart web"] {
        let ran = pool.run(line);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("`poolctl logs web`"), "{ran:?}");
    }
    assert_eq!(pool.run("restore web --no-block").code, 0);
}

fn drain_waits_for_the_end() {
    let pool = Pool::new(|call| match &call.request {
        Request::Drain(drain) if drain.session == named("bad") => refused(ErrorCode::NotFound, "no bad"),
        Request::Drain(_) => shown(view(1, "web", Lifecycle::Draining, Some(Reason::Drained))),
        Request::Wait(_) => shown(view(1, "web", Lifecycle::Stopped, Some(Reason::Drained))),
        other => panic!("{other:?}"),
    });
    assert_eq!(pool.run("drain web").success(), "sess_1  web  draining(drained)\n");
    assert_eq!(pool.request(), Request::Drain(Drain { session: named("web"), deadline_ms: None }));
    let ran = pool.run("drain bad web --wait");
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (3, "sess_1  web  stopped(drained)\n", "poolctl: no bad\n")
    );
    let wait = Wait { session: named("sess_1"), until: vec![Until::Exit], timeout_ms: None };
    assert_eq!(requests(&pool)[3], Request::Wait(wait));
    pool.run("drain web --deadline 5m").success();
    let drain = Drain { session: named("web"), deadline_ms: Some(300_000) };
    assert_eq!(requests(&pool)[4], Request::Drain(drain));
}

fn a_drain_does_not_wait_for_itself() {
    let pool = Pool::new(live);
    for (line, session) in [("drain - --wait", "sess_1"), ("drain web sess_2 --wait", "sess_2")] {
        let ran = Ran::new(&pool.poolctl(line.split(' ')).env("POOL_SESSION", session).output().unwrap());
        assert!(ran.code == 2 && ran.err.ends_with("leave out --wait\n"), "{ran:?}");
    }
    assert!(requests(&pool).iter().all(|request| *request == Request::Show(named("web"))));
    let by_name = pool.poolctl(["drain", "web", "--wait"]).env("POOL_SESSION", "sess_1").output().unwrap();
    assert_eq!(Ran::new(&by_name).code, 2, "{by_name:?}");
}

fn a_drain_that_is_cut_off_fails_and_a_session_that_had_ended_is_drained() {
    let waits = AtomicU32::new(0);
    let pool = Pool::new(move |call| match &call.request {
        Request::Drain(drain) if drain.session == named("over") => {
            shown(view(2, "over", Lifecycle::Stopped, Some(Reason::TmuxGone)))
        }
        Request::Drain(_) => shown(view(1, "web", Lifecycle::Draining, Some(Reason::Drained))),
        Request::Wait(wait) if wait.session == named("sess_1") => {
            let reasons = [Reason::ServerGone, Reason::Restarted, Reason::Killed];
            let reason = reasons[waits.fetch_add(1, Ordering::Relaxed) as usize];
            let lifecycle = if reason == Reason::ServerGone { Lifecycle::Lost } else { Lifecycle::Stopped };
            shown(view(1, "web", lifecycle, Some(reason)))
        }
        other => panic!("{other:?}"),
    });
    for over in ["over ", "", ""] {
        let ran = pool.run(&format!("drain {over}web --wait"));
        let told = if over.is_empty() { "" } else { "sess_2  over  stopped(tmux_gone)\n" };
        assert_eq!((ran.code, ran.out.as_str()), (1, told));
        assert!(ran.err.contains("its work may be cut off"), "{}", ran.err);
    }
}

/// Requests of a command for several sessions, which come in any order.
fn unordered(mut requests: Vec<Request>) -> Vec<Request> {
    requests.sort_by_key(|request| format!("{request:?}"));
    requests
}

fn a_selection_is_asked_for_and_its_size_is_told() {
    let pool = Pool::new(|call| match &call.request {
        Request::List(list) => {
            let mut all = vec![
                view(1, "one", Lifecycle::Live, None),
                view(2, "two", Lifecycle::Stopped, Some(Reason::Exited)),
                view(3, "three", Lifecycle::Draining, Some(Reason::Drained)),
                view(4, "four", Lifecycle::Lost, Some(Reason::ServerGone)),
                view(5, "five", Lifecycle::Stopped, Some(Reason::Exited)),
            ];
            all[4].session.budget.due_at = Some(Timestamp(1));
            all.retain(|_| list.labels.get("team").is_none_or(|team| team == "core"));
            ok(Response::Sessions(all))
        }
        Request::Kill(kill) if kill.session == named("sess_5") => refused(ErrorCode::Failed, "no reaper"),
        Request::Kill(kill) => {
            shown(view(9, &kill.session.0.replace("sess_", "s"), Lifecycle::Stopped, Some(Reason::Killed)))
        }
        _ => live(call),
    });
    let ran = pool.run("kill --all");
    let killed = ["s1", "s3"].map(|name| format!("sess_9  {name}  stopped(killed)\n")).concat();
    assert_eq!(
        (ran.code, ran.out),
        (1, format!("3 sessions to end\n{killed}")),
        "what is about to start, too"
    );
    assert_eq!(ran.err, "poolctl: five: no reaper\n", "each failure by the name of its session");
    let list = List { all: true, ..List::default() };
    assert_eq!(requests(&pool)[0], Request::List(list.clone()));
    assert_eq!(
        pool.run("park --label team=core --agent shell").success(),
        "1 session to park\nsess_1  web  live\n"
    );
    assert_eq!(
        pool.run("restart --all").success(),
        "1 session to restart\nsess_1  web  live\n",
        "what is over stays so"
    );
    let restarted = |request: Request| match request {
        Request::Restart(restart) => Some(restart.session),
        _ => None,
    };
    assert_eq!(requests(&pool).into_iter().filter_map(restarted).collect::<Vec<_>>(), [named("sess_1")]);
    let labels = [("team".to_owned(), "core".to_owned())].into();
    let asked = List { labels, agent: Some("shell".to_owned()), ..list };
    assert!(requests(&pool).contains(&Request::List(asked)));
    for (line, none) in [
        ("kill --label team=web", "no session with the label team=web runs"),
        ("restore --label team=web --agent x", "no session with the label team=web of the agent x was lost"),
        ("pin --label team=web", "no session with the label team=web exists"),
        ("rm --label team=web --stopped", "no session with the label team=web is stopped or failed"),
    ] {
        let ran = pool.run(line);
        assert_eq!((ran.code, ran.err.starts_with(&format!("poolctl: {none}"))), (3, true), "{}", ran.err);
        assert_eq!(pool.run(&format!("{line} --all")).success(), format!("{none}\n"));
    }
    assert_eq!(pool.run("kill --all --label team=web --json").success(), "");
}

fn label_and_update_take_several() {
    let pool = Pool::new(live);
    assert_eq!(pool.run("label web www a=b c= --remove d").success().lines().count(), 2);
    let label = |name| {
        let set = [("a".to_owned(), "b".to_owned()), ("c".to_owned(), String::new())].into();
        Request::Label(Label { session: named(name), set, remove: vec!["d".into()] })
    };
    assert_eq!(unordered(requests(&pool)), [label("web"), label("www")]);
    let pool = Pool::new(live);
    pool.run("update web www --ttl 1m").success();
    let ttl = |request: &Request| matches!(request, Request::Update(update) if update.ttl_ms == Some(60_000));
    assert_eq!(requests(&pool).iter().filter(|request| ttl(request)).count(), 2);
}

fn pin_and_unpin_say_how_it_is() {
    let pool = Pool::new(|call| {
        let Request::Pin(pin) = &call.request else { panic!("{call:?}") };
        let mut view = session("web");
        view.session.policy.pinned = pin.pinned;
        shown(view)
    });
    assert_eq!(pool.run("pin web --op-id x").success(), "sess_1  web  pinned\n");
    assert_eq!(pool.run("unpin web www").success(), "sess_1  web  not pinned\n".repeat(2));
    let pin = |name, pinned| Request::Pin(Pin { session: named(name), pinned });
    assert_eq!(unordered(requests(&pool)), [pin("web", false), pin("web", true), pin("www", false)]);
    let document = pool.json("pin web --json");
    assert_eq!(document["policy"]["pinned"], true);
    let help = pool.run("--help").out;
    assert!(help.contains("Never park sessions") && help.contains("be parked automatically again"), "{help}");
}

fn clear_empties_each() {
    let pool = Pool::new(|_| ok(Response::Done));
    assert_eq!(pool.run("clear web www").success(), "web  cleared\nwww  cleared\n");
    assert_eq!(unordered(requests(&pool)), [Request::Clear(named("web")), Request::Clear(named("www"))]);
    let document = pool.json("clear web --json");
    assert_eq!(document, json!({"session": "web", "cleared": true}));
}

fn reset_is_a_fresh_restart_or_the_agents_own_command() {
    let pool = Pool::new(|_| shown(session("web")));
    assert_eq!(pool.run("reset web --grace 1s --wait-slot 5s").success(), "sess_1  web  live\n");
    let restart = Restart {
        session: named("web"),
        grace_ms: Some(1000),
        fresh: true,
        clear: true,
        wait_slot_ms: Some(5000),
    };
    assert_eq!(requests(&pool)[0], Request::Restart(restart));
    let ends = |state: MessageState| {
        Pool::new(move |call| match &call.request {
            Request::ClearContext(_) => {
                ok(Response::Sent(Box::new(Sent { message: message(7), held_back: None })))
            }
            Request::Wait(_) => {
                let mut message = message(7);
                message.status.state = state;
                ok(Response::Message(Box::new(message)))
            }
            Request::Clear(_) => ok(Response::Done),
            _ => shown(session("web")),
        })
    };
    let pool = ends(MessageState::Done);
    assert_eq!(pool.run("reset web --soft --op-id x").success(), "sess_1  web  live\n");
    assert_eq!(requests(&pool)[2], Request::Clear(named("sess_1")), "once the agent has taken it");
    for state in [MessageState::InDoubt, MessageState::Dead] {
        let pool = ends(state);
        assert_eq!(pool.run("reset web --soft").code, 1, "{state:?}");
        assert!(!requests(&pool).iter().any(|asked| matches!(asked, Request::Clear(_))), "{state:?}");
    }
}

fn prune_says_what_went() {
    let pruned = || Pruned {
        sessions: vec![(SessionId(3), "web".parse().unwrap())],
        directories: vec![OsBytes::from("/state/sessions/sess_2\x1b")],
        bytes: 3 << 19,
        failed: Vec::new(),
        kept: vec![(SessionId(5), "busy".parse().unwrap(), 2)],
    };
    let pool = Pool::new(move |_| ok(Response::Pruned(pruned())));
    let expected = "sess_3  web  removed\n/state/sessions/sess_2\\x1b  removed\n\
                    sess_5  busy  left: 2 messages wait there; `poolctl rm --force busy` removes it all the same\n1.5M freed\n";
    assert_eq!(pool.run("prune").success(), expected);
    let prune = |older_ms, all| Prune { older_ms, archive: all, purge: all, dry_run: all };
    assert_eq!(pool.request(), Request::Prune(prune(0, false)));
    let expected = expected.replace("  removed", "  would be removed").replace("1.5M freed\n", "");
    assert_eq!(pool.run("prune --older 7d --archive --purge --dry-run").success(), expected);
    assert_eq!(requests(&pool)[1], Request::Prune(prune(7 * 86_400_000, true)));
    assert_eq!(pool.run("prune -q").success(), "");
    let document = pool.json("prune --json");
    let sessions = json!([{"id": "sess_3", "name": "web"}]);
    assert_eq!((&document["sessions"], &document["bytes"]), (&sessions, &json!(3 << 19)));
    assert_eq!(document["kept"], json!([{"id": "sess_5", "name": "busy", "messages": 2}]));
    assert_eq!((&document["dry_run"], &document["failed"]), (&json!(false), &json!([])));
    let pool = Pool::new(move |_| {
        ok(Response::Pruned(Pruned { failed: vec!["sess_4: its archive is damaged".into()], ..pruned() }))
    });
    let ran = pool.run("prune");
    assert_eq!((ran.code, ran.err.as_str()), (1, "poolctl: not removed:\nsess_4: its archive is damaged\n"));
    assert!(ran.out.contains("sess_3  web  removed\n"), "{}", ran.out);
}

fn rm_archives_and_takes_all_that_are_over() {
    let pool = Pool::new(|call| match &call.request {
        Request::List(_) => {
            let all = [
                (1, Lifecycle::Live),
                (2, Lifecycle::Stopped),
                (3, Lifecycle::Failed),
                (4, Lifecycle::Parked),
                (5, Lifecycle::Lost),
            ];
            ok(Response::Sessions(all.map(|(id, lifecycle)| view(id, "web", lifecycle, None)).to_vec()))
        }
        Request::Status => ok(Response::Status(Box::new(status()))),
        _ => ok(Response::Done),
    });
    let told = "2 sessions to remove\nsess_2  removed\nsess_3  removed\narchived in /state/archive\n";
    assert_eq!(pool.run("rm --all --stopped --archive").success(), told);
    let remove = |name| Remove { session: named(name), archive: true, only_ended: true, ..Remove::default() };
    let removes = [Request::Remove(remove("sess_2")), Request::Remove(remove("sess_3"))];
    let mut asked = requests(&pool);
    // Requests for the sessions' directories, which tell the files that stay, are left out.
    asked.retain(|request| !matches!(request, Request::Show(_)));
    assert_eq!(unordered(asked[1..3].to_vec()), removes);
    assert_eq!(asked[3..], [Request::Status]);
}

fn rm_tells_of_files_that_stay() {
    let left = "sess_1 is removed, but not all of its files: it is\x1bbusy; `poolctl prune` tries again";
    let pool = Pool::new(move |call| match &call.request {
        Request::Remove(_) => ok(Response::Text(left.into())),
        Request::Wait(_) => {
            let mut view = view(1, "web", Lifecycle::Stopped, Some(Reason::Exited));
            view.session.policy.ephemeral = true;
            view.session.exit = Some(Exit { code: Some(3), signal: None, at: Timestamp(0) });
            shown(view)
        }
        _ => live(call),
    });
    let told = format!("poolctl: {}\n", left.replace('\x1b', "\\x1b"));
    for (line, code, out) in [("rm web", 0, "web  removed\n"), ("run --rm --no-stream -- program", 3, "")] {
        let ran = pool.run(line);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (code, out, told.as_str()), "{line}");
    }
}

fn stats_looks_twice() {
    let looks = AtomicU32::new(0);
    let pool = Pool::new(move |call| match &call.request {
        Request::Usage(Some(session)) if session.0 == "bad" => refused(ErrorCode::NotFound, "no bad"),
        Request::Usage(_) => {
            let cpu_us = u64::from(looks.fetch_add(1, Ordering::SeqCst));
            let usage = Usage {
                processes: 3,
                memory: 120 << 20,
                memory_by: "cgroup".into(),
                cpu_us,
                cpu_percent: None,
                disk: Some(3 << 29),
                log: None,
            };
            ok(Response::Usage(vec![UsageView {
                session: SessionId(1),
                name: "web".parse().unwrap(),
                usage,
                stuck: vec![StuckLane {
                    session: SessionId(1),
                    name: "web".parse().unwrap(),
                    kind: "build".into(),
                    standstill: Standstill {
                        since: Timestamp(1000),
                        waiting: 3,
                        reason: StuckReason::NoWorker,
                    },
                }],
            }]))
        }
        Request::List(_) => {
            let mut view = session("web");
            view.session.spec.limits = "mem=2G".parse().unwrap();
            ok(Response::Sessions(vec![view]))
        }
        other => panic!("{other:?}"),
    });
    let expected = "NAME  CPU%  MEM   PROCS  DISK  LOG  LIMITS  STUCK\n\
                    web   0%    120M  3      1.5G  -    mem=2G  build\n";
    assert_eq!(pool.run("stats").success(), expected);
    assert_eq!(requests(&pool)[..2], [Request::Usage(None), Request::Usage(None)]);
    let document = pool.json("stats web --json");
    assert_eq!((&document["id"], &document["name"]), (&json!("sess_1"), &json!("web")));
    let stuck = json!([{
        "session": "sess_1", "name": "web", "kind": "build", "since": "1970-01-01T00:00:01.000Z", "waiting": 3,
        "reason": "no worker is registered for them", "reason_code": "no_worker"
    }]);
    assert_eq!(document["stuck"], stuck);
    assert_eq!((&document["cpu_percent"], &document["log"]), (&json!(0), &Value::Null));
    assert_eq!(document["limits"]["memory"], 2_u64 << 30);
    let ran = pool.run("stats bad web");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (3, expected, "poolctl: no bad\n"));
}

fn wait_for_started_ends_well_only_where_it_runs() {
    let pool = Pool::new(live);
    assert_eq!(pool.run("wait web --for started").success(), "");
    let wait = Wait { session: named("web"), until: vec![Until::Started], timeout_ms: None };
    assert_eq!(pool.request(), Request::Wait(wait));
    let pool = Pool::new(|_| shown(view(1, "web", Lifecycle::Lost, Some(Reason::ServerGone))));
    let ran = pool.run("wait web --for started");
    assert_eq!((ran.code, ran.err.as_str()), (1, "poolctl: sess_1 is lost: its tmux server went away\n"));
}

fn wait_for_nothing_named_is_for_the_work_or_for_somebody() {
    let pool = Pool::new(live);
    pool.run("wait web").success();
    let states = [ActivityState::Idle, ActivityState::Attention, ActivityState::Error];
    let wait = Wait { session: named("web"), until: states.map(Until::Activity).to_vec(), timeout_ms: None };
    assert_eq!(pool.request(), Request::Wait(wait));
}

fn wait_for_several_is_for_all_of_them_or_the_first_that_needs_somebody() {
    let needs = |name: &str, state| {
        let mut view = view(1, name, Lifecycle::Live, None);
        view.activity.state = state;
        shown(view)
    };
    let pool = Pool::new(move |call| match &call.request {
        Request::Wait(wait) if wait.session.0 == "asks" => needs("asks", ActivityState::Attention),
        // Does not delay the result of another session.
        Request::Wait(wait) if wait.session.0 == "busy" => {
            std::thread::sleep(Duration::from_secs(5));
            needs("busy", ActivityState::Idle)
        }
        _ => needs("web", ActivityState::Idle),
    });
    let mut lines: Vec<String> = pool.run("wait web api").success().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["api  idle", "web  idle"]);
    let ran = pool.run("wait busy asks");
    assert_eq!((ran.code, ran.out.as_str()), (10, "asks  attention\n"));
}

fn a_wait_that_ran_out_is_not_said_to_be_the_daemons() {
    for silent in [false, true] {
        let pool = Pool::new(move |_| {
            if silent {
                std::thread::sleep(Duration::from_millis(900));
            }
            refused(ErrorCode::Timeout, "the wait ran out")
        });
        let ran = pool.run("--timeout 300ms wait web --for idle,exit");
        assert_eq!(ran.err, "poolctl: timed out waiting for idle, exit\n", "{silent}");
    }
}

fn a_wait_has_its_time_once() {
    let pool = Pool::new(|call| match &call.request {
        Request::Wait(_) => refused(ErrorCode::Timeout, "it did not happen in time"),
        _ => {
            std::thread::sleep(Duration::from_millis(50));
            shown(session("web"))
        }
    });
    pool.run("--timeout 60s wait web --for exit,output:x");
    let waits = requests(&pool).into_iter().filter_map(|request| match request {
        Request::Wait(wait) => wait.timeout_ms,
        _ => None,
    });
    let waits: Vec<u64> = waits.collect();
    assert!(
        waits.len() == 1 && waits[0] <= 59_950,
        "it waits as long again after a look at the session: {waits:?}"
    );
}

fn attach_waits_for_what_is_woken() {
    let pool = Pool::new(|_| refused(ErrorCode::Refused, "the pool is full"));
    let Some(ran) = on_a_terminal(&pool, "attach web --read-only") else { return };
    assert_eq!((ran.code, ran.out.contains("the pool is full")), (5, true), "{ran:?}");
    let Request::Attach(asked) = pool.request() else { panic!("no attach") };
    assert!(asked.terminal.is_some(), "{asked:?}");
    let attach = Attach {
        session: named("web"),
        read_only: true,
        terminal: asked.terminal.clone(),
        tmux_env: None,
        window: false,
        wait_slot_ms: None,
    };
    assert_eq!(asked, attach);
}

/// Runs a command on a terminal of its own, by `script`; `None` if that is not installed.
fn on_a_terminal(pool: &Pool, line: &str) -> Option<Ran> {
    match script(&pool.poolctl(line.split(' '))).stdin(std::process::Stdio::null()).output() {
        Ok(output) => Some(Ran::new(&output)),
        Err(_) => {
            println!("skipped: no `script`");
            None
        }
    }
}

/// The command on a terminal of its own; its keyboard works even if the test runner ignores INT.
pub(crate) fn script(poolctl: &std::process::Command) -> std::process::Command {
    let words: Vec<_> = [poolctl.get_program()].into_iter().chain(poolctl.get_args()).collect();
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let words: Vec<String> = words.iter().map(|word| quoted(word.to_str().unwrap())).collect();
    let mut script = std::process::Command::new("script");
    let line = format!("env --default-signal=INT {}", words.join(" "));
    script.args(["-qec", &line, "/dev/null"]).env_clear().env("TERM", "xterm-256color");
    script.envs(poolctl.get_envs().filter_map(|(key, value)| Some((key, value?))));
    if let Some(dir) = poolctl.get_current_dir() {
        script.current_dir(dir);
    }
    script
}

fn nothing_shown_holds_a_key() {
    let pool = Pool::new(|call| {
        let mut view = session("web");
        view.session.labels.insert("tok".into(), "ghp_hunter2hunter2".into());
        let words = ["claude", "--api-key", "hunter2", "--token=hunter2", "ghp_hunter2hunter2"];
        view.session.spec.command = words.map(OsBytes::from).to_vec();
        match &call.request {
            Request::List(_) => ok(Response::Sessions(vec![view])),
            Request::Logs(_) => refused(ErrorCode::NotFound, "no session web"),
            Request::Config => ok(Response::Text("[agents.x.env]\nOPENAI_API_KEY = \"hunter2\"\n".into())),
            _ => shown(view),
        }
    });
    let lines =
        ["show web", "show web --json", "ls --json", "ls", "new --json --env KEY=hunter2", "config show"];
    for line in lines {
        let shown = pool.run(line).success();
        assert!(!shown.contains("hunter2"), "{line}: {shown}");
    }
    assert!(pool.run("show web").success().contains("claude --api-key '…redacted…' '--token=…redacted…'"));
}

/// A pool that ends sessions, `three` after this.
fn ends_three_after(held: impl Fn() + Send + Sync + 'static) -> Pool {
    Pool::new(move |call| {
        let Request::Kill(kill) = &call.request else { panic!("{call:?}") };
        if kill.session.0 == "three" {
            held();
        }
        shown(view(1, &kill.session.0, Lifecycle::Stopped, Some(Reason::Killed)))
    })
}

fn how_many_have_answered_is_told_on_a_terminal_alone() {
    // Longer than the time after which the line appears.
    let pool = ends_three_after(|| std::thread::sleep(Duration::from_millis(1500)));
    let told = pool.run("kill one two three").success();
    assert!(!told.contains(" of 3") && told.lines().count() == 3, "{told}");
    let seen = Arc::new(Mutex::new(String::new()));
    let is_told = Arc::clone(&seen);
    let pool = ends_three_after(move || {
        let is_told = || is_told.lock().unwrap().contains("waiting for the sessions to end: 2 of 3 (");
        until("the progress", is_told);
    });
    let mut command = script(&pool.poolctl(["kill", "one", "two", "three"]));
    let Ok(mut child) = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() else {
        return println!("skipped: no `script`");
    };
    let (mut screen, mut part) = (child.stdout.take().unwrap(), [0; 4096]);
    while let Ok(read @ 1..) = screen.read(&mut part) {
        seen.lock().unwrap().push_str(&String::from_utf8_lossy(&part[..read]));
    }
    assert!(child.wait().unwrap().success(), "{}", seen.lock().unwrap());
    let seen = seen.lock().unwrap();
    assert!(seen.contains("2 of 3") && seen.ends_with("three  stopped(killed)\r\n"), "{seen}");
}

//! `work`: the lifecycle of a worker, with a daemon that hands out scripted messages.

use std::collections::VecDeque;
#[cfg(target_os = "linux")]
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::identity;
use protocol::reply::Registered;
use protocol::request::{Ack, Disposition, Fail};
use protocol::{
    Call, Claimed, ErrorCode, GeneratorId, MessageState, OsBytes, ProcId, Request, Response, SessionId,
    Timestamp,
};
use serde_json::{Value, json};

use crate::fake::{Answer, Pool, Ran, lines, ok, refused, until};
use crate::samples::message;

crate::tests! {
    work_settles_by_how_the_handler_ends, work_tells_the_handler_what_it_works_on,
    work_keeps_what_is_printed_as_the_result, work_takes_the_body_as_it_is,
    a_handler_that_cannot_be_run_burns_no_attempt,
    #[cfg(target_os = "linux")]
    a_worker_survives_that_its_handler_cannot_be_run_for_a_moment,
    a_stale_message_is_not_settled_and_its_handler_ends, heartbeats_are_sent_however_many_handlers_end,
    work_of_no_session_is_refused, work_goes_on_while_poold_is_away, the_first_signal_lets_handlers_end,
    the_second_signal_ends_handlers_and_gives_back, nothing_is_given_back_while_what_was_started_runs,
    a_nul_in_a_key_is_passed_as_it_is_shown, what_a_handler_leaves_holds_nothing_up,
    a_database_that_fails_again_is_final, a_database_that_ends_its_daemon_is_passing,
    work_until_empty_sees_past_the_prompts, work_once_works_one,
    work_until_empty_waits_for_what_is_tried_again, handlers_run_side_by_side, a_handler_dies_with_its_worker,
}

/// A claimed message.
fn claimed(id: u64, kind: &str, body: &str) -> Claimed {
    let mut message = message(id);
    message.kind = kind.into();
    message.status.state = MessageState::Claimed;
    message.status.token = format!("3.{id}").parse().ok();
    message.status.attempts = 1;
    Claimed { message, body: body.into() }
}

fn registered() -> Response {
    let generator = GeneratorId(4);
    Response::Registered(Registered { generator, session: Some(SessionId(1)), lease_ms: 60_000 })
}

/// A daemon that answers each claim with one of these messages.
fn gives(messages: Vec<Claimed>) -> impl Fn(&Call) -> Answer + Send + Sync {
    let waiting = Mutex::new(VecDeque::from(messages));
    move |call| match &call.request {
        Request::Register(_) => ok(registered()),
        Request::Claim(claim) => match waiting.lock().unwrap().pop_front() {
            Some(first) => ok(Response::Claimed(vec![first])),
            None if claim.wait_ms > 1000 => Answer::Silence,
            None => {
                std::thread::sleep(Duration::from_millis(claim.wait_ms.min(10)));
                ok(Response::Claimed(Vec::new()))
            }
        },
        Request::Messages(_) => ok(Response::Messages(Vec::new())),
        Request::Heartbeat(_) => ok(Response::Done),
        Request::Ack(Ack { held, .. }) | Request::Fail(Fail { held, .. }) => {
            ok(Response::Message(Box::new(message(held.id.0))))
        }
        other => panic!("{other:?}"),
    }
}

fn work(pool: &Pool, flags: &str, handler: &str) -> std::process::Command {
    let mut command = pool.poolctl(["work", "web"]);
    command.args(flags.split(' ').filter(|flag| !flag.is_empty()));
    command.args(["--", "sh", "-c", handler]).current_dir(pool.dir.path());
    command
}

/// A `poolctl` that is killed at the end of its test.
pub(crate) struct Started(Option<Child>);

impl Started {
    pub(crate) fn new(mut command: std::process::Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.0.as_ref().unwrap().id();
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ran {
        let child = self.0.as_mut().unwrap();
        until("the end of poolctl", || child.try_wait().unwrap().is_some());
        Ran::new(&self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

fn fails(pool: &Pool) -> Vec<(u64, String, Disposition)> {
    let of = |call: Call| match call.request {
        Request::Fail(fail) => Some((fail.held.id.0, fail.reason, fail.then)),
        _ => None,
    };
    pool.calls().into_iter().filter_map(of).collect()
}

fn acks(pool: &Pool) -> Vec<Ack> {
    let of = |call: Call| if let Request::Ack(ack) = call.request { Some(ack) } else { None };
    pool.calls().into_iter().filter_map(of).collect()
}

/// Waits for a process id in this file.
pub(crate) fn written(path: &Path) -> ProcId {
    let read = || std::fs::read_to_string(path).ok()?.strip_suffix('\n')?.parse::<u32>().ok();
    until("the process id", || read().is_some());
    identity::identify(read().unwrap()).unwrap().unwrap()
}

fn work_settles_by_how_the_handler_ends() {
    let bodies = ["exit 0", "exit 75", "exit 3", "kill -9 $$", "exit 65"];
    let all = bodies.iter().zip(10..).map(|(body, id)| claimed(id, "a", body));
    let pool = Pool::new(gives(all.collect()));
    let ran = Ran::new(&work(&pool, "--until-empty --json --kind a", "eval $(cat)").output().unwrap());
    let out = lines(&ran.success());
    let outcomes: Vec<_> = out.iter().map(|line| (&line["id"], &line["outcome"], &line["reason"])).collect();
    let expected = [
        (&json!(10), &json!("done"), &json!(null)),
        (&json!(11), &json!("later"), &json!("exit 75")),
        (&json!(12), &json!("retry"), &json!("exit 3")),
        (&json!(13), &json!("retry"), &json!("killed by signal 9")),
        (&json!(14), &json!("dead"), &json!("exit 65")),
    ];
    assert_eq!(outcomes, expected);
    assert!(out.iter().all(|line| line["kind"] == "a" && line["duration_ms"].is_u64()), "{out:?}");
    let expected = [
        (11, "exit 75".to_owned(), Disposition::Later(None)),
        (12, "exit 3".to_owned(), Disposition::Retry),
        (13, "killed by signal 9".to_owned(), Disposition::Retry),
        (14, "exit 65".to_owned(), Disposition::Dead),
    ];
    assert_eq!(fails(&pool), expected);
    let acks = acks(&pool);
    assert_eq!((acks.len(), acks[0].held.token.to_string(), &acks[0].result), (1, "3.10".into(), &None));
    let calls = pool.calls();
    assert!(matches!(&calls[0].request, Request::Register(register) if register.kinds == ["a"]));
    let Request::Claim(claim) = &calls[1].request else { panic!("{calls:?}") };
    assert_eq!((claim.max, claim.lease_ms), (1, None));
    assert!(calls[1].op.is_some(), "its repeat is the same claim");
}

fn work_tells_the_handler_what_it_works_on() {
    let mut first = claimed(12, "summarize", "body");
    first.message.key = Some("k y".into());
    first.message.created_at = Timestamp(0);
    let pool = Pool::new(gives(vec![first, claimed(13, "summarize", "")]));
    let mut command = work(&pool, "--until-empty", "env | grep ^POOL_ | sort; cat; echo");
    command.env("POOL_MESSAGE_KEY", "outer").env("POOL_LOCK_TOKEN", "3.1").env("POOL_LOCK_SESSION", "sess_9");
    let ran = Ran::new(&command.output().unwrap());
    let text = ran.success();
    assert!(!text.contains("POOL_LOCK"), "the lock is not the handler's: {text}");
    let socket = pool.socket();
    for line in [
        "POOL_MESSAGE_ATTEMPT=1",
        "POOL_MESSAGE_CREATED_AT=1970-01-01T00:00:00.000Z",
        "POOL_MESSAGE_ID=12",
        "POOL_MESSAGE_KEY=k y",
        "POOL_MESSAGE_KIND=summarize",
        "POOL_MESSAGE_MAX_ATTEMPTS=5",
        "POOL_MESSAGE_ORIGIN=cli",
        "POOL_MESSAGE_TOKEN=3.12",
        "POOL_NAME=default",
        "POOL_SESSION=sess_1",
        &format!("POOL_SOCKET={}", socket.display()),
        "body",
        "POOL_MESSAGE_ID=13",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
    assert!(!text.contains("outer"), "a message without a key has none");
}

fn work_keeps_what_is_printed_as_the_result() {
    let pool = Pool::new(gives(vec![claimed(12, "a", "one"), claimed(13, "a", "two")]));
    let handler = "if test $POOL_MESSAGE_ID = 12; then cat; else yes | head -c 200000; fi";
    let ran = Ran::new(&work(&pool, "--until-empty --result", handler).output().unwrap());
    assert_eq!(ran.success(), "", "it is kept, not printed");
    let results: Vec<Vec<u8>> = acks(&pool).into_iter().map(|ack| ack.result.unwrap().0).collect();
    assert_eq!((results[0].as_slice(), results[1].len()), (&b"one"[..], 65_536));
}

fn work_takes_the_body_as_it_is() {
    let mut big = claimed(12, "a", "");
    big.body = OsBytes((0..=255).cycle().take(256 * 1024).collect());
    let body = big.body.0.clone();
    let pool = Pool::new(gives(vec![claimed(11, "a", &"x".repeat(200_000)), big]));
    let handler = "test $POOL_MESSAGE_ID = 11 || cat > body";
    Ran::new(&work(&pool, "--until-empty", handler).output().unwrap()).success();
    assert!(std::fs::read(pool.dir.path().join("body")).unwrap() == body);
    assert_eq!(acks(&pool).len(), 2, "one that does not read its body may do so");
}

fn a_handler_that_cannot_be_run_burns_no_attempt() {
    let pool = Pool::new(gives(vec![claimed(12, "a", ""), claimed(13, "a", "")]));
    let ran = pool.run("work web --json -- /nonexistent/handler");
    let line = lines(&ran.out);
    assert_eq!((ran.code, line.len(), &line[0]["outcome"]), (1, 1, &json!("given_back")));
    let error: Value = serde_json::from_str(ran.err.trim()).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("cannot run /nonexistent/handler: "), "{message}");
    let fails = fails(&pool);
    assert_eq!((fails.len(), fails[0].0, fails[0].2), (1, 12, Disposition::GiveBack));
    assert!(fails[0].1.starts_with("cannot run "), "{fails:?}");
}

/// Linux runs no program that is open for writing.
#[cfg(target_os = "linux")]
fn a_worker_survives_that_its_handler_cannot_be_run_for_a_moment() {
    let pool = Pool::new(gives(vec![claimed(12, "a", ""), claimed(13, "a", "")]));
    let handler = pool.dir.path().join("handler");
    std::fs::write(&handler, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&handler, std::fs::Permissions::from_mode(0o755)).unwrap();
    let written = std::fs::File::options().append(true).open(&handler).unwrap();
    let mut command = pool.poolctl(["work", "web", "--until-empty", "--"]);
    let child = command.arg(&handler).spawn().unwrap();
    until("the message is given back", || !fails(&pool).is_empty());
    drop(written);
    let ran = Ran::new(&child.wait_with_output().unwrap());
    assert!(ran.code == 0 && ran.err.contains("tries again"), "{} {}", ran.code, ran.err);
    assert_eq!((fails(&pool)[0].0, fails(&pool)[0].2), (12, Disposition::GiveBack));
    assert_eq!(acks(&pool).len(), 1);
}

fn a_stale_message_is_not_settled_and_its_handler_ends() {
    let rest = gives(vec![claimed(12, "a", ""), claimed(13, "b", "")]);
    let stale = Arc::new(AtomicBool::new(false));
    let is_stale = stale.clone();
    let pool = Pool::new(move |call| match &call.request {
        // Refuses heartbeats that contain one message.
        Request::Heartbeat(held)
            if is_stale.load(Ordering::SeqCst) && held.iter().any(|held| held.id.0 == 12) =>
        {
            refused(ErrorCode::Conflict, "no")
        }
        _ => rest(call),
    });
    let handler = "if test $POOL_MESSAGE_ID = 12; then sh -c 'echo $$ > pid; sleep 1000; true'; true; else
        while ! test -e go; do sleep 0.01; done; fi";
    let flags = "--until-empty --json --concurrency 2 --heartbeat 20ms";
    let child = Started::new(work(&pool, flags, handler));
    let descendant = written(&pool.dir.path().join("pid"));
    stale.store(true, Ordering::SeqCst);
    until("its end", || identity::exited(descendant).unwrap());
    std::fs::write(pool.dir.path().join("go"), "").unwrap();
    let ran = child.end();
    let out = lines(&ran.out);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let outcome = |id: u64| out.iter().find(|line| line["id"] == id).map(|line| &line["outcome"]);
    assert_eq!((out.len(), outcome(12), outcome(13)), (2, Some(&json!("stale")), Some(&json!("done"))));
    assert_eq!((acks(&pool).len(), fails(&pool).len()), (1, 0));
}

fn heartbeats_are_sent_however_many_handlers_end() {
    let (ids, beats) = (AtomicU32::new(11), Arc::new(AtomicU32::new(0)));
    let (rest, counted) = (gives(Vec::new()), Arc::clone(&beats));
    let pool = Pool::new(move |call| match &call.request {
        Request::Claim(_) => {
            let id = ids.fetch_add(1, Ordering::SeqCst);
            ok(Response::Claimed(vec![claimed(id.into(), &format!("kind{id}"), "")]))
        }
        Request::Heartbeat(held) => {
            let has_first = held.iter().any(|held| held.id.0 == 11);
            counted.fetch_add(u32::from(has_first), Ordering::SeqCst);
            ok(Response::Done)
        }
        // Slower than the handlers.
        Request::Ack(_) => {
            std::thread::sleep(Duration::from_millis(100));
            rest(call)
        }
        _ => rest(call),
    });
    let handler = "if test $POOL_MESSAGE_ID = 11; then while ! test -e go; do sleep 0.01; done; fi";
    let child = Started::new(work(&pool, "--concurrency 6 --json --heartbeat 50ms", handler));
    until("heartbeats", || beats.load(Ordering::SeqCst) >= 10);
    let settled = acks(&pool).len();
    child.signal(Signal::SIGTERM);
    std::fs::write(pool.dir.path().join("go"), "").unwrap();
    assert_eq!(child.end().code, 0);
    assert!(settled < 40, "one for each settled message at least: {settled}");
}

fn work_of_no_session_is_refused() {
    let pool = Pool::new(|_| refused(ErrorCode::NotFound, "no"));
    let ran = pool.run("work web -- true");
    assert_eq!((ran.code, ran.err.as_str()), (3, "poolctl: no\n"));
    assert_eq!(Pool::empty().run("work web -- true").code, 7);
}

fn work_goes_on_while_poold_is_away() {
    let (claims, acked) = (AtomicU32::new(0), AtomicU32::new(0));
    let rest = gives(vec![claimed(12, "a", "")]);
    let pool = Pool::new(move |call| match &call.request {
        Request::Claim(_) if claims.fetch_add(1, Ordering::SeqCst) == 1 => Answer::HangUp,
        Request::Ack(_) if acked.fetch_add(1, Ordering::SeqCst) == 0 => Answer::HangUp,
        _ => rest(call),
    });
    let handler = "while ! test -e go; do sleep 0.01; done";
    let child = Started::new(work(&pool, "--concurrency 2 --json", handler));
    let of =
        |wanted: fn(&Request) -> bool| pool.calls().into_iter().filter(move |call| wanted(&call.request));
    until("the repeat of the claim", || of(|request| matches!(request, Request::Claim(_))).count() == 3);
    let claims: Vec<Call> = of(|request| matches!(request, Request::Claim(_))).collect();
    assert_eq!(claims[1].op, claims[2].op, "what was given out on the lost connection comes again");
    assert_ne!(claims[0].op, claims[1].op);
    assert_eq!(of(|request| matches!(request, Request::Register(_))).count(), 2);
    until("a sign of life", || of(|request| matches!(request, Request::Heartbeat(_))).count() == 1);
    std::fs::write(pool.dir.path().join("go"), "").unwrap();
    until("the repeat of the ack", || acks(&pool).len() == 2);
    let settling = of(|request| matches!(request, Request::Ack(_) | Request::Heartbeat(_)));
    let words: Vec<bool> = settling.map(|call| matches!(call.request, Request::Ack(_))).collect();
    assert_eq!(words, [false, true, false, true], "a new connection begins with a sign of life");
    child.signal(Signal::SIGTERM);
    let ran = child.end();
    assert_eq!((ran.code, lines(&ran.out)[0]["outcome"].clone()), (0, json!("done")));
    assert!(
        ran.err.contains("lost the connection") && ran.err.contains("connected to poold again"),
        "{}",
        ran.err
    );
}

fn the_first_signal_lets_handlers_end() {
    let rest = gives(vec![claimed(12, "a", "")]);
    let pool = Pool::new(move |call| match &call.request {
        // The messages of the last claim, asked for again on another connection.
        Request::Claim(claim) if claim.wait_ms == 0 => ok(Response::Claimed(vec![claimed(13, "b", "")])),
        _ => rest(call),
    });
    let handler = "echo $$ > pid; while ! test -e go; do sleep 0.01; done";
    let child = Started::new(work(&pool, "--concurrency 2 --json", handler));
    let running = written(&pool.dir.path().join("pid"));
    until("the second claim", || {
        pool.calls().iter().filter(|call| matches!(call.request, Request::Claim(_))).count() == 2
    });
    child.signal(Signal::SIGINT);
    std::fs::write(pool.dir.path().join("go"), "").unwrap();
    let ran = child.end();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(identity::exited(running).unwrap());
    let out = lines(&ran.out);
    let outcomes: Vec<_> = out.iter().map(|line| (&line["id"], &line["outcome"])).collect();
    assert_eq!(outcomes, [(&json!(12), &json!("done")), (&json!(13), &json!("given_back"))]);
    assert_eq!(fails(&pool), [(13, "not started".to_owned(), Disposition::GiveBack)]);
    let claims: Vec<Call> =
        pool.calls().into_iter().filter(|call| matches!(call.request, Request::Claim(_))).collect();
    assert_eq!((claims.len(), &claims[1].op), (3, &claims[2].op));
}

fn the_second_signal_ends_handlers_and_gives_back() {
    let pool = Pool::new(gives(vec![claimed(12, "a", "")]));
    let child = Started::new(work(&pool, "--json", "echo $$ > pid; sleep 1000; true"));
    let running = written(&pool.dir.path().join("pid"));
    child.signal(Signal::SIGTERM);
    child.signal(Signal::SIGINT);
    let ran = child.end();
    assert!(matches!(ran.code, 130 | 143), "{ran:?}");
    assert!(identity::exited(running).unwrap());
    assert_eq!(lines(&ran.out)[0]["outcome"], "given_back");
    assert_eq!(fails(&pool), [(12, "told to end".to_owned(), Disposition::GiveBack)]);
}

fn work_once_works_one() {
    let pool = Pool::new(gives(vec![claimed(12, "a", ""), claimed(13, "a", "")]));
    let ran = Ran::new(&work(&pool, "--once --concurrency 4", "exit 3").output().unwrap());
    assert_eq!(ran.success(), "", "only a terminal is told in words");
    assert_eq!(fails(&pool).len(), 1);
}

fn work_until_empty_waits_for_what_is_tried_again() {
    let tried = Arc::new(AtomicBool::new(false));
    let (again, rest) = (tried.clone(), gives(vec![claimed(12, "a", "")]));
    let pool = Pool::new(move |call| match &call.request {
        Request::Messages(which) => {
            assert_eq!(which.states, [MessageState::Queued]);
            let waits =
                if again.load(Ordering::SeqCst) { Vec::new() } else { vec![claimed(12, "a", "").message] };
            ok(Response::Messages(waits))
        }
        Request::Claim(claim) if claim.wait_ms > 0 => {
            again.store(true, Ordering::SeqCst);
            ok(Response::Claimed(vec![claimed(12, "a", "")]))
        }
        _ => rest(call),
    });
    Ran::new(&work(&pool, "--until-empty", "true").output().unwrap()).success();
    assert_eq!(acks(&pool).len(), 2);
    assert!(tried.load(Ordering::SeqCst));
}

fn handlers_run_side_by_side() {
    let all = ["a", "b", "c"].iter().zip(11..).map(|(kind, id)| claimed(id, kind, ""));
    let pool = Pool::new(gives(all.collect()));
    // Each handler waits until all three have begun.
    let handler = "touch $POOL_MESSAGE_ID; while ! test -e 11 -a -e 12 -a -e 13; do sleep 0.01; done";
    Ran::new(&work(&pool, "--until-empty --concurrency 3", handler).output().unwrap()).success();
    assert_eq!(acks(&pool).len(), 3);
}

fn a_handler_dies_with_its_worker() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let pool = Pool::new(gives(vec![claimed(12, "a", "")]));
    let child = Started::new(work(&pool, "", "echo $$ > pid; exec sleep 1000"));
    let running = written(&pool.dir.path().join("pid"));
    assert_eq!(identity::read(running.pid).unwrap().unwrap().pgid, running.pid, "in a group of its own");
    drop(child);
    until("its end", || identity::exited(running).unwrap());
}

fn nothing_is_given_back_while_what_was_started_runs() {
    let (rest, alone) = (gives(vec![claimed(12, "a", "")]), Arc::new(AtomicBool::new(false)));
    let (started, was_alone) = (Arc::new(OnceLock::new()), alone.clone());
    let of_it = started.clone();
    let pool = Pool::new(move |call| {
        if let Request::Fail(_) = &call.request {
            let gone = of_it.get().is_some_and(|process| identity::exited(*process).unwrap());
            was_alone.store(gone, Ordering::SeqCst);
        }
        rest(call)
    });
    // The handler ends at once; its descendant takes longer, and is no child of the worker.
    let slow = "trap 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit' TERM
        echo $$ > pid; while :; do sleep 0.05; done";
    let mut command = work(&pool, "--json", "sh -c \"$SLOW\" & wait");
    command.env("SLOW", slow);
    let child = Started::new(command);
    let descendant = *started.get_or_init(|| written(&pool.dir.path().join("pid")));
    child.signal(Signal::SIGTERM);
    child.signal(Signal::SIGINT);
    let ran = child.end();
    assert_eq!(lines(&ran.out)[0]["outcome"], "given_back", "{}", ran.err);
    assert!(identity::exited(descendant).unwrap());
    assert!(alone.load(Ordering::SeqCst), "it ran when its message was given back");
}

fn a_nul_in_a_key_is_passed_as_it_is_shown() {
    let mut first = claimed(12, "a", "");
    (first.message.key, first.message.origin) = (Some("k\0\ny".into()), "o\0".into());
    let mut second = claimed(13, "a", "");
    second.message.key = Some("k\ny".into());
    let pool = Pool::new(gives(vec![first, second]));
    let handler = "printf '%s %s.' \"$POOL_MESSAGE_KEY\" \"$POOL_MESSAGE_ORIGIN\"";
    let ran = Ran::new(&work(&pool, "--until-empty", handler).output().unwrap());
    assert_eq!(ran.success(), "k\\x00\\ny o\\x00.k\ny cli.");
    assert_eq!(acks(&pool).len(), 2);
}

fn what_a_handler_leaves_holds_nothing_up() {
    let pool = Pool::new(gives(vec![claimed(12, "a", "")]));
    // The descendant writes before the handler ends, and ends when its output is closed.
    let handler = "echo first; sh -c 'echo more; echo $$ > pid; while echo more; do sleep 0.05; done' &
        while ! test -e go; do sleep 0.01; done";
    let child = Started::new(work(&pool, "--until-empty --result", handler));
    let left = written(&pool.dir.path().join("pid"));
    std::fs::write(pool.dir.path().join("go"), "").unwrap();
    until("the ack", || acks(&pool).len() == 1);
    let result = String::from_utf8(acks(&pool)[0].result.clone().unwrap().0).unwrap();
    assert!(result.starts_with("first\n") && result.ends_with("more\n"), "{result}");
    child.end();
    until("its end", || identity::exited(left).unwrap());
}

fn a_database_that_fails_again_is_final() {
    let rest = gives(vec![claimed(12, "a", "")]);
    let pool = Pool::new(move |call| match &call.request {
        Request::Ack(_) => refused(ErrorCode::Storage, "no"),
        _ => rest(call),
    });
    let ran = Ran::new(&work(&pool, "--once --json", "true").output().unwrap());
    assert_eq!((ran.code, &lines(&ran.out)[0]["outcome"]), (0, &json!("stale")), "{}", ran.err);
    assert!(ran.err.contains("not settled: no"), "{}", ran.err);
    assert_eq!(acks(&pool).len(), 2);
    let pool = Pool::new(|call| match &call.request {
        Request::Claim(_) => refused(ErrorCode::Storage, "no"),
        _ => ok(registered()),
    });
    assert_eq!(pool.run("work web -- true").code, 9);
    let calls = pool.calls();
    assert_eq!((calls.len(), &calls[1]), (3, &Call { id: calls[1].id, ..calls[2].clone() }), "as it was");
}

fn a_database_that_ends_its_daemon_is_passing() {
    let (rest, acked) = (gives(vec![claimed(12, "a", "")]), AtomicU32::new(0));
    let pool = Pool::new(move |call| match &call.request {
        Request::Ack(_) => match acked.fetch_add(1, Ordering::SeqCst) {
            0 => refused(ErrorCode::Storage, "no"),
            1 => Answer::HangUp,
            _ => rest(call),
        },
        _ => rest(call),
    });
    let ran = Ran::new(&work(&pool, "--once --json", "true").output().unwrap());
    assert_eq!(lines(&ran.success())[0]["outcome"], "done");
    assert_eq!(acks(&pool).len(), 3);
}

fn work_until_empty_sees_past_the_prompts() {
    let (worked, rest) = (AtomicBool::new(false), gives(Vec::new()));
    let pool = Pool::new(move |call| match &call.request {
        Request::Messages(which) => {
            let mut waiting: Vec<_> = (1..=1500).map(|id| claimed(id, "prompt", "").message).collect();
            if !worked.load(Ordering::SeqCst) {
                waiting.push(claimed(1501, "a", "").message);
            }
            waiting.truncate(which.limit as usize);
            let last = waiting.split_off(waiting.len() / 2);
            Answer::Parts(vec![Response::Messages(waiting)], Response::Messages(last))
        }
        Request::Claim(claim) if claim.wait_ms > 0 && !worked.swap(true, Ordering::SeqCst) => {
            ok(Response::Claimed(vec![claimed(1501, "a", "")]))
        }
        _ => rest(call),
    });
    Ran::new(&work(&pool, "--until-empty", "true").output().unwrap()).success();
    assert_eq!(acks(&pool).len(), 1);
}

//! Verbs that stream.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::reply::LogFiles;
use protocol::request::{Keys, Pin, Subscribe};
use protocol::{
    ErrorCode, Event, Exit, Frame, Lifecycle, Reason, Refusal, Request, Response, Seq, SessionId, Stamped,
    Timestamp, logs,
};
use serde_json::Value;

use crate::fake::{Answer, Pool, Ran, lines, ok, refused, until};
use crate::samples::session;

crate::tests! {
    run_shows_everything_and_ends_alike, run_keeps_the_code_where_it_cannot_remove,
    run_holds_the_log_and_says_that_it_was_removed_all_the_same,
    run_ends_alike_where_it_cannot_read_the_output, run_says_what_goes_on_where_it_cannot_wait,
    run_keeps_the_session_whose_output_the_disk_does_not_take,
    keys_that_send_signals_go_to_the_session_first, a_signal_that_comes_twice_ends_the_session,
    a_session_goes_on_only_if_its_end_is_refused,
    logs_are_shown_as_they_are_asked_for, logs_follow_until_the_session_is_over, the_journal_is_read_in_pages,
    following_goes_on_where_it_was_cut, following_outlasts_the_daemon,
}

fn stopped(code: i32) -> Response {
    let mut view = session("web");
    view.session.lifecycle = Lifecycle::Stopped;
    view.session.policy.ephemeral = true;
    view.session.reason = Some(Reason::Exited);
    view.session.exit = Some(Exit { code: Some(code), signal: None, at: Timestamp(0) });
    Response::Session(Box::new(view))
}

/// The log files in the directory of this file.
fn log_files(path: &Path) -> Response {
    Response::Logs(LogFiles { dir: path.parent().unwrap().into() })
}

/// Creates the lock of a log writer, which is held while it runs.
fn begin_log(path: &Path) -> File {
    let lock = File::create(path.with_file_name(logs::LOCK)).unwrap();
    lock.lock_shared().unwrap();
    let tag = session("web").session.incarnation.unwrap().tag;
    std::fs::write(path.with_file_name(logs::TIMES), format!("1500 0 {tag}\n")).unwrap();
    lock
}

fn run_shows_everything_and_ends_alike() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("output.log");
    let log = path.clone();
    let pool = Pool::new(move |call| match &call.request {
        Request::New(_) => ok(Response::Session(Box::new(session("web")))),
        Request::Logs(_) => ok(log_files(&log)),
        Request::Wait(_) => {
            // The program has ended, and its log writer still writes.
            let lock = begin_log(&log);
            let mut writer = File::options().create(true).append(true).open(&log).unwrap();
            writer.write_all(b"one\r\n").unwrap();
            std::thread::spawn(move || {
                let rest: String = (0..100_000).map(|n| format!("line {n}\r\n")).collect();
                writer.write_all(rest.as_bytes()).unwrap();
                drop(lock);
            });
            ok(stopped(3))
        }
        _ => ok(Response::Done),
    });
    let ran = pool.run("run web --rm -- program");
    assert_eq!((ran.code, ran.err.as_str()), (3, ""));
    let expected: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
    assert!(ran.out == format!("one\n{expected}"), "{} bytes", ran.out.len());
    assert!(matches!(pool.calls().last().unwrap().request, Request::Remove(_)));
    let ran = pool.run("run web --json -- program");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, document["exit"]["code"].as_i64()), (3, Some(3)));
}

fn run_keeps_the_code_where_it_cannot_remove() {
    let pool = Pool::new(|call| match &call.request {
        Request::New(_) => ok(Response::Session(Box::new(session("web")))),
        Request::Wait(_) => ok(stopped(3)),
        _ => Answer::Reply(Err(Refusal::refused("not\x1bnow"))),
    });
    let ran = pool.run("run web --rm --no-stream -- program");
    assert_eq!((ran.code, ran.err.as_str()), (3, "poolctl: sess_1 could not be removed: not\\x1bnow\n"));
}

fn run_holds_the_log_and_says_that_it_was_removed_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("logs/output.log");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    drop(begin_log(&path));
    std::fs::write(&path, "one\r\n").unwrap();
    let (log, gone) = (path.clone(), Arc::new(AtomicBool::new(false)));
    let is_gone = gone.clone();
    let pool = Pool::new(move |call| match &call.request {
        Request::New(_) => ok(Response::Session(Box::new(session("web")))),
        Request::Logs(_) => ok(log_files(&log)),
        Request::Wait(_) => {
            until("the removal", || is_gone.load(Ordering::SeqCst));
            ok(stopped(3))
        }
        _ => ok(Response::Done),
    });
    let mut child = pool.poolctl(["run", "web", "--", "program"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    assert!(::logs::is_held(path.parent().unwrap()));
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    gone.store(true, Ordering::SeqCst);
    let ran = Ran::new(&child.wait_with_output().unwrap());
    let told = "poolctl: the log was removed; the end of the output may be missing\n";
    assert_eq!((ran.code, ran.err.as_str(), lines.next().is_none()), (3, told, true));
    assert!(!::logs::is_held(path.parent().unwrap()));
}

fn run_ends_alike_where_it_cannot_read_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("output.log");
    // Not even root reads it.
    std::fs::create_dir(&log).unwrap();
    let pool = Pool::new(move |call| match &call.request {
        Request::New(_) => ok(Response::Session(Box::new(session("web")))),
        Request::Logs(_) => ok(log_files(&log)),
        Request::Wait(_) | Request::Show(_) | Request::Pin(_) => ok(stopped(3)),
        _ => ok(Response::Done),
    });
    let ran = pool.run("run web --rm -- program");
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{}", ran.err);
    let told = "the rest of its output is not printed: `poolctl logs sess_1`, while it is there";
    assert_eq!(ran.err.matches("cannot read the log in").count(), 1, "{}", ran.err);
    assert!(ran.err.contains(told), "{}", ran.err);
    assert!(ran.err.contains("sess_1 is kept, and pinned"), "{}", ran.err);
    let pin = Pin { session: SessionId(1).into(), pinned: true };
    assert_eq!(pool.calls().last().map(|call| call.request.clone()), Some(Request::Pin(pin)));
}

fn run_keeps_the_session_whose_output_the_disk_does_not_take() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("output.log");
    drop(begin_log(&log));
    std::fs::write(&log, "one\n").unwrap();
    let pool = Pool::new(move |call| match &call.request {
        Request::New(_) => ok(Response::Session(Box::new(session("web")))),
        Request::Logs(_) => ok(log_files(&log)),
        Request::Wait(_) | Request::Show(_) | Request::Pin(_) => ok(stopped(0)),
        _ => ok(Response::Done),
    });
    for (full, pins) in [(true, 1), (false, 0)] {
        let mut command = pool.poolctl(["run", "--rm", "--", "program"]);
        if full {
            command.stdout(File::options().write(true).open("/dev/full").unwrap());
        }
        let before = pool.calls().len();
        let ran = Ran::new(&command.output().unwrap());
        let calls = pool.calls().split_off(before);
        let pinned = calls.iter().filter(|call| matches!(call.request, Request::Pin(_))).count();
        assert_eq!((ran.code == 0, pinned), (!full, pins), "{ran:?}");
    }
}

fn run_says_what_goes_on_where_it_cannot_wait() {
    let web = || Ok(Response::Session(Box::new(session("web"))));
    let Response::Session(over) = stopped(3) else { panic!() };
    let runs = "; sess_1 still runs: see `poolctl attach sess_1`, `poolctl kill sess_1`";
    for (code, looked, more) in [
        (ErrorCode::Refused, web(), runs),
        (ErrorCode::Refused, Ok(Response::Session(over)), "; sess_1 is stopped: exit 3"),
        (ErrorCode::Refused, Err(Refusal::not_found("gone")), "; sess_1 is removed"),
        (
            ErrorCode::Refused,
            Err(Refusal::refused("nor now")),
            "; sess_1 may still run: see `poolctl show sess_1`",
        ),
        (ErrorCode::NotFound, web(), ""),
    ] {
        let pool = Pool::new(move |call| match &call.request {
            Request::New(_) => ok(Response::Session(Box::new(session("web")))),
            Request::Wait(_) => refused(code, "not now"),
            Request::Show(_) => Answer::Reply(looked.clone()),
            _ => ok(Response::Done),
        });
        let ran = pool.run("run web --no-stream -- program");
        assert_eq!((ran.code, ran.err), (125, format!("poolctl: not now{more}\n")));
    }
}

fn keys_that_send_signals_go_to_the_session_first() {
    goes_to_the_session_first("C-c", Signal::SIGINT, 130);
    goes_to_the_session_first("C-\\", Signal::SIGQUIT, 131);
}

fn goes_to_the_session_first(key: &'static str, signal: Signal, code: i32) {
    let (dir, pressed) = (tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
    let (log, seen) = (dir.path().join("output.log"), pressed.clone());
    let pool = Pool::new(move |call| match &call.request {
        Request::New(_) | Request::Show(_) => ok(Response::Session(Box::new(session("web")))),
        Request::Logs(_) => ok(log_files(&log)),
        Request::Keys(Keys { keys, .. }) => {
            assert_eq!(keys, &[key]);
            seen.store(true, Ordering::SeqCst);
            ok(Response::Done)
        }
        _ => Answer::Silence,
    });
    let mut child = pool.poolctl(["run", "web", "--", "program"]).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    until("the wait", || pool.calls().iter().any(|call| matches!(call.request, Request::Wait(_))));
    kill(pid, signal).unwrap();
    until("the key", || pressed.load(Ordering::SeqCst));
    // The first one may not count as passed on yet.
    until("its end", || kill(pid, signal).is_err() || child.try_wait().unwrap().is_some());
    let ran = Ran::new(&child.wait_with_output().unwrap());
    assert_eq!(ran.code, code);
    assert!(ran.err.contains("sess_1 still runs"), "{}", ran.err);
}

/// As by `timeout`, which signals the process and its group.
fn a_signal_that_comes_twice_ends_the_session() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
    let (log, asked) = (dir.path().join("output.log"), killed.clone());
    std::fs::write(&log, "").unwrap();
    let pool = Pool::new(move |call| match &call.request {
        Request::New(_) | Request::Show(_) => ok(Response::Session(Box::new(session("web")))),
        Request::Logs(_) => ok(log_files(&log)),
        Request::Kill(_) => {
            asked.store(true, Ordering::SeqCst);
            Answer::Silence
        }
        _ => Answer::Silence,
    });
    let mut child = pool.poolctl(["run", "web", "--", "program"]).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    until("the wait", || pool.calls().iter().any(|call| matches!(call.request, Request::Wait(_))));
    (0..2).for_each(|_| kill(pid, Signal::SIGTERM).unwrap());
    until("the request", || killed.load(Ordering::SeqCst));
    until("its end", || kill(pid, Signal::SIGTERM).is_err() || child.try_wait().unwrap().is_some());
    let ran = Ran::new(&child.wait_with_output().unwrap());
    assert!(ran.code == 143 && ran.err.contains("sess_1 is being ended"), "{} {}", ran.code, ran.err);
}

fn a_session_goes_on_only_if_its_end_is_refused() {
    for (code, says) in
        [(ErrorCode::Conflict, "sess_1 still runs"), (ErrorCode::Storage, "sess_1 is being ended")]
    {
        let pool = Pool::new(move |call| match &call.request {
            Request::New(_) | Request::Show(_) => ok(Response::Session(Box::new(session("web")))),
            Request::Kill(_) => refused(code, "it is so"),
            _ => Answer::Silence,
        });
        let mut child = pool.poolctl(["run", "web", "--no-stream", "--", "program"]).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        until("the wait", || pool.calls().iter().any(|call| matches!(call.request, Request::Wait(_))));
        kill(pid, Signal::SIGTERM).unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
        assert_eq!(told.next().unwrap().unwrap(), "poolctl: the session was not ended: it is so");
        until("its end", || kill(pid, Signal::SIGTERM).is_err() || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(143));
        assert!(told.next().unwrap().unwrap().contains(says));
    }
}

fn logs_are_shown_as_they_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("output.log");
    std::fs::write(&path, "one\r\ntwo\x1b[0m\r\nthree").unwrap();
    let log = path.clone();
    let pool = Pool::new(move |call| match &call.request {
        Request::Logs(_) => ok(log_files(&log)),
        _ => ok(Response::Session(Box::new(session("web")))),
    });
    assert_eq!(pool.run("logs web").success(), "one\ntwo\nthree");
    assert_eq!(pool.run("logs web --raw --lines 2").success(), "two\x1b[0m\r\nthree");
    let documents = lines(&pool.run("logs web --json --lines 2").success());
    let document = |offset: u64, at: Option<&str>, text: &str| serde_json::json!({"session": "sess_1", "offset": offset, "at": at, "text": text});
    assert_eq!(documents, [document(5, None, "two\x1b[0m"), document(14, None, "three")]);
    std::fs::write(path.with_file_name(logs::TIMES), "1500 5\n5000 14\n").unwrap();
    let documents = lines(&pool.run("logs web --json --since 1970-01-01T00:00:02Z").success());
    let (two, three) = (Some("1970-01-01T00:00:01.500Z"), Some("1970-01-01T00:00:05.000Z"));
    assert_eq!(documents, [document(5, two, "two\x1b[0m"), document(14, three, "three")]);
    assert_eq!(pool.run("logs web --since 2h").success(), "three");
    assert_eq!(pool.run("logs web --since 1h --lines 0").success(), "");
    assert_eq!(pool.run("logs web --since soon").code, 2);
    std::fs::rename(&path, path.with_file_name("output.log.00000000000000000050")).unwrap();
    let ran = pool.run("logs web");
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\ntwo\nthree"));
    assert_eq!(ran.err, "poolctl: 50 bytes of older output were deleted; the first line may be incomplete\n");
    let ran = pool.run("logs web --since 1970-01-01T00:00:01Z");
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\ntwo\nthree"));
    assert_eq!(ran.err, "poolctl: 50 bytes are missing (cleared, over the size limit, or unreadable)\n");
    std::fs::remove_file(path.with_file_name("output.log.00000000000000000050")).unwrap();
    assert_eq!(pool.run("logs web --lines 5 --json").success(), "", "no log yet");
}

fn logs_follow_until_the_session_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("output.log");
    let over = Arc::new(AtomicBool::new(false));
    let (log, is_over, asked) = (path.clone(), over.clone(), Arc::new(AtomicU32::new(0)));
    let counted = asked.clone();
    let pool = Pool::new(move |call| match (&call.request, is_over.load(Ordering::SeqCst)) {
        (Request::Logs(_), _) => ok(log_files(&log)),
        (_, true) => ok(stopped(0)),
        // Between two incarnations.
        (_, false) => {
            counted.fetch_add(1, Ordering::SeqCst);
            let Response::Session(mut view) = stopped(1) else { panic!() };
            view.session.budget.due_at = Some(Timestamp(5));
            ok(Response::Session(view))
        }
    });
    let mut child = pool.poolctl(["logs", "web", "-f"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lock = begin_log(&path);
    let mut file = File::create(&path).unwrap();
    file.write_all(b"one\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    file.write_all(b"two\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    until("it is asked again", || asked.load(Ordering::SeqCst) >= 3);
    over.store(true, Ordering::SeqCst);
    // The log is rotated, and the session has ended for good.
    std::fs::rename(&path, path.with_file_name("output.log.00000000000000000000")).unwrap();
    let mut file = File::create(&path).unwrap();
    file.write_all(b"three\n").unwrap();
    drop(lock);
    assert_eq!(lines.next().unwrap().unwrap(), "three");
    assert!(lines.next().is_none());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

fn event(seq: u64) -> Stamped {
    let event = Event::SessionStopped { session: SessionId(1), reason: Reason::Exited, exit: None };
    Stamped { seq: Seq(seq), at: Timestamp(0), event }
}

fn seqs(text: &str) -> Vec<u64> {
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap()).collect()
}

fn the_journal_is_read_in_pages() {
    let pool = Pool::new(|call| match &call.request {
        Request::Events(events) if events.since.0 < 9 => {
            let first = events.since.0 + 1;
            Answer::Parts(
                vec![Response::Events(vec![event(first)])],
                Response::Events(vec![event(first + 1)]),
            )
        }
        _ => ok(Response::Events(Vec::new())),
    });
    assert_eq!(seqs(&pool.run("events --since 5 --json").success()), [6, 7, 8, 9]);
    assert_eq!(pool.run("events --since 5 --json --kind message_done").success(), "");
    assert_eq!(pool.run("events --since 5 --json --session sess_2").success(), "");
    let expected = "     9  1970-01-01T00:00:00.000Z  session_stopped         sess_1    reason=exited\n";
    assert!(pool.run("events --since 7").success().contains(expected));
    let pool = Pool::new(|call| match &call.request {
        Request::Events(events) if events.since.0 < 9 => ok(Response::Events(vec![event(9)])),
        _ => ok(Response::Events(Vec::new())),
    });
    let ran = pool.run("events --since 7 --json");
    assert_eq!(
        (seqs(&ran.out), ran.err.as_str()),
        (vec![9], "poolctl: events before 9 are no longer in the journal\n")
    );
    assert_eq!(seqs(&pool.run("events --since 8 --json").success()), [9]);
    assert_eq!(seqs(&pool.run("events --json").success()), [9], "all there is was asked for");
}

fn following_outlasts_the_daemon() {
    let connections = Arc::new(AtomicU32::new(0));
    let counted = connections.clone();
    let pool = Pool::new(move |call| {
        let frame = |seq| Frame::Event { stamped: Box::new(event(seq)), snapshot: false };
        let Request::Subscribe(Subscribe { since }) = &call.request else { panic!("{call:?}") };
        let next = since.map_or(0, |seq| seq.0) + 1;
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::Frames(vec![frame(next), Frame::Lagged { from: Seq(next), to: Seq(99) }]),
            1 | 2 => Answer::Frames(vec![frame(next)]),
            3 => Answer::Frames(Vec::new()),
            4 => Answer::Frames(vec![frame(next), Frame::Lagged { from: Seq(0), to: Seq(99) }]),
            _ => Answer::Silence,
        }
    });
    let mut child = pool.poolctl(["events", "--follow", "--since", "5", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen: Vec<u64> = lines.by_ref().take(4).map(|line| seqs(&line.unwrap())[0]).collect();
    assert_eq!(seen, [6, 7, 8, 9], "none twice, none left out");
    until("the last connection", || connections.load(Ordering::SeqCst) == 6);
    let Request::Subscribe(last) = pool.calls()[5].request.clone() else { panic!() };
    assert_eq!(last.since, Some(Seq(9)), "after what it has, whatever it was told");
    drop(lines);
    let ran = Ran::new(&child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (141, ""), "the daemon was there all the time");
}

fn following_goes_on_where_it_was_cut() {
    let connections = AtomicU32::new(0);
    let pool = Pool::new(move |call| {
        let frame = |seq, snapshot| Frame::Event { stamped: Box::new(event(seq)), snapshot };
        let Request::Subscribe(Subscribe { since }) = &call.request else { panic!("{call:?}") };
        match (connections.fetch_add(1, Ordering::SeqCst), since.map(|seq| seq.0)) {
            // Lost before the state was complete: it is sent again from the start.
            (0, None) => Answer::Frames(vec![frame(3, true)]),
            (1, None) => Answer::Frames(vec![frame(3, true), Frame::Synced { seq: Seq(4) }, frame(5, false)]),
            (2, Some(5)) => Answer::Frames(vec![frame(6, false), Frame::Lagged { from: Seq(6), to: Seq(9) }]),
            (3, Some(6)) => Answer::Reply(Err(protocol::Refusal::refused("enough"))),
            other => panic!("{other:?}"),
        }
    });
    let ran = pool.run("events --follow --json");
    assert_eq!((ran.code, ran.err.contains("enough")), (5, true), "{}", ran.err);
    assert_eq!(seqs(&ran.out), [3, 3, 4, 5, 6]);
    let last: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    let synced: Value = serde_json::from_str(ran.out.lines().nth(2).unwrap()).unwrap();
    assert_eq!((&last["snapshot"], &synced["kind"]), (&Value::Bool(false), &Value::from("synced")));
}

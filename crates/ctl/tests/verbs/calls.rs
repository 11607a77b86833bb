//! Verbs with one answer.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use protocol::reply::Sent;
use protocol::{
    Breaker, Exit, Lifecycle, MessageId, MessageState, OpId, Refusal, Request, Response, SessionRef,
    Timestamp,
};
use serde_json::{Value, json};

use crate::fake::{Answer, Pool, Ran, lines, ok, until};
use crate::samples::{message, session, status};

crate::tests! {
    no_daemon_says_how_to_start_one, usage_is_refused_in_both_forms, status_is_zero_only_when_healthy,
    what_a_session_is_told_is_of_its_pool_only, a_list_comes_in_parts, a_refusal_has_its_code,
    new_takes_what_it_should_from_its_caller, a_prompt_goes_with_its_session,
    a_lost_connection_repeats_the_same_operation, no_answer_is_a_timeout,
    a_daemon_that_does_not_take_a_connection_within_the_users_limit_is_no_absence,
    a_daemon_without_a_socket_is_named_though_nobody_keeps_it, a_timeout_says_what_was_waited_for,
    a_lock_token_goes_along, send_reads_standard_input, a_send_whose_wait_runs_out_names_its_message,
    a_send_that_wakes_goes_by_the_state_of_its_message, a_repeated_send_is_answered_as_the_first_one,
    send_says_where_it_comes_from_and_what_holds_it_back, a_daemon_that_recovers_says_how_far_it_is,
    wait_ends_with_the_code_of_the_session, a_session_is_also_the_one_of_this_shell,
    kill_goes_on_after_a_failure, attach_needs_a_terminal, rpc_answers_every_line,
    rpc_ends_once_nobody_can_read_its_answer, a_closed_pipe_is_no_panic,
}

fn sent(id: u64) -> Response {
    Response::Sent(Box::new(Sent { message: message(id), held_back: None }))
}

fn no_daemon_says_how_to_start_one() {
    let pool = Pool::empty();
    let ran = pool.run("status");
    assert_eq!((ran.code, ran.out.as_str()), (7, ""));
    assert!(ran.err.contains("poolctl up"), "{}", ran.err);
    let ran = pool.run("ls --json");
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(
        (ran.code, &error["error"]["code"], &error["error"]["exit"]),
        (7, &json!("unavailable"), &json!(7))
    );
    assert_eq!(pool.run("wait web --for exit").code, 125);
    assert_eq!(pool.run("run -- true").code, 125);
}

fn usage_is_refused_in_both_forms() {
    let pool = Pool::empty();
    let ran = pool.run("new --size 5");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.starts_with("error: invalid value '5'"), "{}", ran.err);
    let ran = pool.run("--json new --size 5");
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((ran.code, &error["error"]["code"], &error["error"]["exit"]), (2, &json!("usage"), &json!(2)));
    assert_eq!(pool.run("show -").code, 2, "this shell is in no session");
    assert_eq!(pool.run("status --pool No").code, 2);
    for limit in ["1ms", "999ms"] {
        let ran = pool.run(&format!("up --watchdog {limit}"));
        assert!(ran.code == 2 && ran.err.contains("1s at least"), "{ran:?}");
    }
    let ran = pool.run("--help");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("attach") && !ran.out.contains("become"), "{}", ran.out);
}

fn what_a_session_is_told_is_of_its_pool_only() {
    let pool = Pool::new(|_| ok(Response::Messages(Vec::new())));
    let socket = pool.dir.path().join("run/poold.sock");
    let within_by = |dir: &Path, args: &[&str]| {
        let mut command = pool.poolctl(args);
        command.env("POOL_NAME", "default").env("POOL_SOCKET", &socket).env("POOL_STATE_DIR", dir);
        command.env("POOL_SESSION", "sess_1").env("POOL_LOCK_TOKEN", "no token");
        Ran::new(&command.output().unwrap())
    };
    let within = |args: &[&str]| within_by(pool.dir.path(), args);
    let given = within_by(Path::new("/elsewhere"), &["--pool", "other", "queue", "ls", "web"]);
    assert!(given.err.contains("/elsewhere/run/poold.sock"), "a user's own: {}", given.err);
    let other = within(&["--pool", "other", "queue", "ls", "-"]);
    assert_eq!((other.code, other.err.contains("no session of the pool other")), (2, true), "{}", other.err);
    let other = within(&["--pool", "other", "queue", "ls", "web"]);
    assert_eq!((other.code, other.err.contains("other/run/poold.sock")), (7, true), "{}", other.err);
    let own = within(&["--pool", "default", "queue", "ls", "-"]);
    assert_eq!((own.code, own.err.contains("POOL_LOCK_TOKEN")), (2, true), "{}", own.err);
}

fn status_is_zero_only_when_healthy() {
    let pool = Pool::new(|_| ok(Response::Status(Box::new(status()))));
    assert!(pool.run("status").success().starts_with("pool default: healthy\n"));
    let pool = Pool::new(|_| {
        let mut status = status();
        status.components[0].connected = false;
        ok(Response::Status(Box::new(status)))
    });
    let ran = pool.run("status --json");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &document["healthy"]), (1, &json!(false)));
}

fn a_daemon_that_recovers_says_how_far_it_is() {
    let pool = Pool::empty();
    let file = pool.dir.path().join("run/recovery");
    std::fs::write(&file, format!("{} 43\n", std::process::id())).unwrap();
    let ran = pool.run("status");
    let said = format!("poolctl: poold (pid {}) is recovering its database: 43 %\n", std::process::id());
    assert_eq!((ran.code, ran.err), (7, said));
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    std::fs::write(&file, format!("{} 43\n", ended.id())).unwrap();
    let ran = pool.run("status");
    assert_eq!((ran.code, ran.err.contains("poolctl up")), (7, true), "{}", ran.err);
    let pool = Pool::new(|_| ok(Response::Status(Box::new(status()))));
    let file = pool.dir.path().join("run/recovery");
    std::fs::write(&file, format!("{} 100\n", std::process::id())).unwrap();
    assert!(pool.run("status").success().starts_with("pool default: healthy\n"), "it answers");
}

fn a_list_comes_in_parts() {
    let pool = Pool::new(|_| {
        let sessions = |name| Response::Sessions(vec![session(name)]);
        Answer::Parts(vec![sessions("one")], sessions("two"))
    });
    let text = pool.run("ls").success();
    assert_eq!(
        text.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect::<Vec<_>>(),
        ["NAME", "one", "two"]
    );
    let documents = lines(&pool.run("ls --json").success());
    assert_eq!(documents.iter().map(|d| d["name"].as_str().unwrap()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(pool.run("ls -q").success(), "sess_1\nsess_1\n");
}

fn a_refusal_has_its_code() {
    let no = || Refusal::not_found("no session \"wen\x1b\": did you mean web?");
    let pool = Pool::new(move |_| Answer::Reply(Err(no())));
    let ran = pool.run("show wen");
    assert_eq!((ran.code, ran.err.as_str()), (3, "poolctl: no session \"wen\\x1b\": did you mean web?\n"));
    let ran = pool.run("show wen --json");
    let expected = json!({"error": {"code": "not_found", "message": no().message, "exit": 3}});
    assert_eq!((ran.code, serde_json::from_str::<Value>(&ran.err).unwrap()), (3, expected));
}

fn new_takes_what_it_should_from_its_caller() {
    let pool = Pool::new(|_| ok(Response::Session(Box::new(session("web")))));
    let mut command =
        pool.poolctl(["new", "web", "--cwd", "sub", "--env", "A=1", "--env", "SECRET", "--op-id", "x"]);
    command.args(["--label", "k=v=w", "--size", "80x24", "--", "sh", "-c", "--json"]);
    command
        .current_dir(pool.dir.path())
        .env("SECRET", "s3")
        .env("TMUX", "t")
        .env("POOL_NAME", "p")
        .env("TERM", "x");
    assert_eq!(Ran::new(&command.output().unwrap()).success(), "sess_1\n");
    let calls = pool.calls();
    assert_eq!(calls[0].op, Some(OpId::Named("x".into())));
    let Request::New(new) = calls[0].request.clone() else { panic!("{calls:?}") };
    assert_eq!(new.cwd, Some(std::fs::canonicalize(pool.dir.path()).unwrap().join("sub").into()));
    assert_eq!(new.env, [("A".into(), "1".into()), ("SECRET".into(), "s3".into())]);
    let mut names: Vec<String> = new.caller_env.iter().map(|(name, _)| name.to_string_lossy()).collect();
    names.retain(|name| !name.starts_with("CTL_TEST_"));
    names.sort();
    assert_eq!(names, ["HOME", "LC_ALL", "PATH", "SECRET"], "without its terminal's and its session's");
    assert_eq!(new.command, ["sh".into(), "-c".into(), "--json".into()]);
    assert_eq!(new.labels["k"], "v=w");
}

fn a_prompt_goes_with_its_session() {
    let pool = Pool::new(|_| ok(Response::Session(Box::new(session("web")))));
    pool.run("new web --prompt hi --op-id x").success();
    let Request::New(new) = pool.request() else { panic!() };
    assert_eq!(new.prompt, Some("hi".into()));
}

fn a_lost_connection_repeats_the_same_operation() {
    let lost = AtomicU32::new(0);
    let pool = Pool::new(move |_| match lost.fetch_add(1, Ordering::SeqCst) {
        0..3 => Answer::HangUp,
        _ => ok(Response::Session(Box::new(session("www")))),
    });
    assert_eq!(pool.run("rename web www").success(), "sess_1  www  live\n");
    let calls = pool.calls();
    assert_eq!(calls.len(), 4);
    assert!(matches!(calls[0].op, Some(OpId::Random(_))));
    assert!(calls.iter().all(|call| call.op == calls[0].op && call.request == calls[0].request));
    let pool = Pool::new(|_| Answer::HangUp);
    let ran = pool.run("rename web www --timeout 2s");
    // The time may be over during a try, or between two.
    let told = [(6, "may still be done"), (7, "may have been done")];
    assert!(told.iter().any(|(code, words)| ran.code == *code && ran.err.contains(words)), "{ran:?}");
}

fn no_answer_is_a_timeout() {
    let pool = Pool::new(|_| Answer::Silence);
    let ran = pool.run("sync --timeout 2s");
    assert_eq!((ran.code, pool.request()), (6, Request::Sync));
    // A read changes nothing, so nothing can have been done.
    for read in ["sync", "show web", "ls", "capture web", "inbox"] {
        for hangs_up in [false, true] {
            let ran = Pool::new(move |_| if hangs_up { Answer::HangUp } else { Answer::Silence })
                .run(&format!("{read} --timeout 300ms"));
            assert!(matches!(ran.code, 6 | 7) && !ran.err.contains("done"), "{read}: {ran:?}");
        }
    }
}

fn a_daemon_that_does_not_take_a_connection_within_the_users_limit_is_no_absence() {
    let pool = Pool::empty();
    // It takes connections into its backlog, as a poold that is stopped does.
    let _listener = std::os::unix::net::UnixListener::bind(pool.socket()).unwrap();
    let lock = std::fs::File::create(pool.dir.path().join("run/poold.lock")).unwrap();
    let mut held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).ok().unwrap();
    write!(held, "{}", std::process::id()).unwrap();
    let said = format!("poolctl: poold (pid {}) did not answer within 300ms\n", std::process::id());
    for line in ["ls", "show web", "send web text"] {
        let ran = pool.run(&format!("{line} --timeout 300ms"));
        assert_eq!((ran.code, ran.err.as_str()), (6, said.as_str()), "{line}");
    }
    let ran = pool.run("wait web --for idle --timeout 300ms");
    let said = format!("timed out waiting for idle: poold (pid {}) does not answer", std::process::id());
    assert!(ran.code == 6 && ran.err.contains(&said), "{ran:?}");
}

fn a_daemon_without_a_socket_is_named_though_nobody_keeps_it() {
    let pool = Pool::empty();
    let lock = std::fs::File::create(pool.dir.path().join("run/poold.lock")).unwrap();
    let mut held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).ok().unwrap();
    write!(held, "{}", std::process::id()).unwrap();
    assert!(pool.run("ls").err.contains("is starting"));
    held.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let who = format!("(pid {})", std::process::id());
    for (line, code) in [("ls", 7), ("status", 7), ("events --follow", 7), ("up", 7), ("down", 1)] {
        let ran = pool.run(line);
        assert!(ran.code == code && ran.err.contains(&who), "{line}: {ran:?}");
    }
    assert!(!pool.dir.path().join("run/up.lock").exists(), "no supervisor is left that could start none");
}

fn a_timeout_says_what_was_waited_for() {
    let run = |line: &str, state: &'static str, bare: bool| {
        let pool = Pool::new(move |call| match &call.request {
            Request::Status => {
                let mut status = status();
                status.tmux.state = state.to_owned();
                status.tmux.detail = Some("its process 5 is stopped".to_owned());
                ok(Response::Status(Box::new(status)))
            }
            Request::Show(_) => {
                let mut view = session("web");
                (view.session.lifecycle, view.session.reason) =
                    (Lifecycle::Draining, Some(protocol::Reason::Drained));
                ok(Response::Session(Box::new(view)))
            }
            Request::Drain(_) => ok(Response::Session(Box::new(session("web")))),
            _ if bare => Answer::Reply(Err(Refusal::timeout("the wait timed out"))),
            _ => Answer::Silence,
        });
        let ran = pool.run(&format!("{line} --timeout 500ms"));
        assert_eq!(ran.code, 6, "{ran:?}");
        ran.err
    };
    for bare in [false, true] {
        let told = run("kill web", "stopped", bare);
        assert!(told.contains("its process 5 is stopped"), "{told}");
        for line in ["kill web", "drain web --wait", "new x --workspace web --reuse"] {
            let told = run(line, "up", bare);
            assert!(told.contains("sess_1 is draining: "), "{line}: {told}");
            assert_eq!(told.contains("may still be done"), !bare && !line.starts_with("drain"), "{told}");
        }
    }
}

fn a_lock_token_goes_along() {
    let pool = Pool::new(|_| ok(Response::Done));
    let output = pool.poolctl(["keys", "web", "C-c"]).env("POOL_LOCK_TOKEN", "3.17").output().unwrap();
    assert_eq!(Ran::new(&output).success(), "");
    assert_eq!(pool.calls()[0].lock, "3.17".parse().ok());
    let output = pool.poolctl(["keys", "web", "C-c"]).env("POOL_LOCK_TOKEN", "x").output().unwrap();
    assert_eq!(Ran::new(&output).code, 2);
}

fn send_reads_standard_input() {
    let pool = Pool::new(|_| ok(sent(7)));
    let mut child = pool
        .poolctl(["send", "web", "-", "--key", "k", "--ttl", "2s"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"one\n!two\n").unwrap();
    assert_eq!(Ran::new(&child.wait_with_output().unwrap()).success(), "7\n");
    let Request::Send(send) = pool.request() else { panic!() };
    assert_eq!((send.body, send.key, send.ttl_ms), ("one\n!two".into(), Some("k".into()), Some(2000)));
    assert!(send.enter && !send.wake);
    assert_eq!((send.kind.as_str(), send.priority, send.origin.as_str()), ("prompt", 0, "cli"));
    let pool = Pool::new(|_| ok(sent(7)));
    pool.run("send web hello world --json --wake --wait queued").success();
    let Request::Send(send) = pool.request() else { panic!() };
    assert_eq!((send.body, send.wake), ("hello world".into(), true));
}

/// Also where the id is not printed by itself.
fn a_send_whose_wait_runs_out_names_its_message() {
    let pool = Pool::new(|call| match &call.request {
        Request::Send(_) => ok(sent(7)),
        _ => Answer::Reply(Err(Refusal::timeout("the wait timed out"))),
    });
    for line in ["send web x --wait done", "send web x --result", "send web x --wait done --json"] {
        let ran = pool.run(&format!("{line} --timeout 500ms"));
        assert_eq!(ran.code, 6, "{ran:?}");
        assert!(ran.err.contains("message 7 is sent: the wait timed out"), "{ran:?}");
        assert!(!line.contains("--json") || ran.out.contains("\"id\":7"), "{ran:?}");
    }
}

fn a_send_that_wakes_goes_by_the_state_of_its_message() {
    let run = |line: &str, state: MessageState| {
        let pool = Pool::new(move |call| match &call.request {
            Request::Send(_) => ok(sent(7)),
            Request::Show(_) => ok(Response::Session(Box::new(session("web")))),
            Request::Status => ok(Response::Status(Box::new(status()))),
            Request::ShowMessage(_) => {
                let mut message = message(7);
                message.status.state = state;
                ok(Response::Message(Box::new(message)))
            }
            _ => Answer::Reply(Err(Refusal::timeout("the wait timed out"))),
        });
        let ran = pool.run(line);
        assert!(ran.code == 0 && (ran.out == "7\n" || line.ends_with("--json")), "{ran:?}");
        ran.err
    };
    let plain = "send web x --wake";
    assert_eq!(run(plain, MessageState::Done), "");
    let queued = "poolctl: message 7 is queued, and web was not ready within 30 s: see `poolctl show web`\n";
    assert_eq!(run(plain, MessageState::Queued), queued);
    assert_eq!(run("send web x --wake --json", MessageState::Queued), "");
}

fn a_repeated_send_is_answered_as_the_first_one() {
    let pool = Pool::new(|_| {
        let mut message = message(7);
        (message.status.state, message.status.reason) = (MessageState::Dead, Some("interrupted".into()));
        ok(Response::Sent(Box::new(Sent { message, held_back: None })))
    });
    let ran = pool.run("send web x --op-id a");
    assert_eq!((ran.code, ran.out.as_str()), (0, "7\n"), "{ran:?}");
    assert_eq!(ran.err, "poolctl: it was sent before: message 7 is dead: interrupted\n");
    assert_eq!(pool.run("send web x --op-id a -q").success(), "7\n");
    assert_eq!(pool.json("send web x --op-id a --json")["state"], "dead");
    let ran = pool.run("send web x --op-id a --wait queued");
    assert!(ran.code == 1 && ran.err.contains("message 7 is dead: interrupted"), "{ran:?}");
}

fn send_says_where_it_comes_from_and_what_holds_it_back() {
    let pool = Pool::new(|_| {
        let (probe_at, reason) = (Some(Timestamp(0)), Some("exit 1\x1b".to_owned()));
        let breaker = Breaker { failures: 3, opened_at: Some(Timestamp(0)), probe_at, reason };
        let mut message = message(7);
        message.kind = "summarize".into();
        ok(Response::Sent(Box::new(Sent { message, held_back: Some(breaker) })))
    });
    let line = ["send", "web", "hi", "--kind", "summarize", "--priority", "-7"];
    let mut command = pool.poolctl(line);
    let ran = Ran::new(&command.env("POOL_SESSION", "sess_9").env("POOL_MESSAGE_ID", "5").output().unwrap());
    let held = "poolctl: held back: summarize failed 3 times in a row, last: exit 1\\x1b; next probe now\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "7\n", held));
    let Request::Send(send) = pool.request() else { panic!() };
    assert_eq!((send.kind.as_str(), send.priority), ("summarize", -7));
    assert_eq!((send.origin.as_str(), send.cause), ("session:sess_9", Some(MessageId(5))));
    let document = pool.json("send web hi --kind summarize --json");
    assert_eq!((&document["held_back"]["failures"], &document["kind"]), (&json!(3), &json!("summarize")));
    let mut command = pool.poolctl(["send", "web", "hi"]);
    assert_eq!(Ran::new(&command.env("POOL_MESSAGE_ID", "x").output().unwrap()).code, 2);
}

fn wait_ends_with_the_code_of_the_session() {
    let pool = Pool::new(|_| {
        let mut view = session("web");
        view.session.lifecycle = Lifecycle::Stopped;
        view.session.exit = Some(Exit { code: Some(42), signal: None, at: Timestamp(0) });
        ok(Response::Session(Box::new(view)))
    });
    let ran = pool.run("wait web --for exit");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (42, "", ""));
    assert_eq!(pool.run("wait web --for queue-empty").code, 0);
}

fn a_session_is_also_the_one_of_this_shell() {
    let pool = Pool::new(|_| ok(Response::Session(Box::new(session("web")))));
    let output = pool.poolctl(["show", "-"]).env("POOL_SESSION", "sess_9").output().unwrap();
    assert!(Ran::new(&output).success().starts_with("id             sess_1\n"));
    assert_eq!(pool.calls()[0].request, Request::Show(SessionRef("sess_9".into())));
}

fn kill_goes_on_after_a_failure() {
    let pool = Pool::new(|call| match &call.request {
        Request::Kill(kill) if kill.session.0.starts_with("bad") => {
            Answer::Reply(Err(Refusal::not_found(format!("no {}", kill.session))))
        }
        _ => ok(Response::Session(Box::new(session("web")))),
    });
    let ran = pool.run("kill bad web --grace 1s");
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (3, "sess_1  web  live\n", "poolctl: no bad\n")
    );
    assert_eq!(pool.run("kill a b --op-id x").code, 2);
    let ran = pool.run("kill bad bad-too bad --json");
    let errors = lines(&ran.err);
    let error = |message: &str| json!({"error": {"code": "not_found", "message": message, "exit": 3}});
    assert_eq!((ran.code, errors), (3, vec![error("no bad-too"), error("no bad")]));
}

fn attach_needs_a_terminal() {
    let pool = Pool::empty();
    assert_eq!(pool.run("attach web").code, 2);
}

fn rpc_answers_every_line() {
    let pool = Pool::new(|call| match call.request {
        Request::Ping => ok(Response::Done),
        _ => Answer::Reply(Err(Refusal::not_found("no"))),
    });
    let mut child = pool.poolctl(["rpc"]).stdin(Stdio::piped()).spawn().unwrap();
    let input =
        "\"ping\"\nnonsense\n\n{\"op\":\"x\",\"request\":{\"rename\":{\"session\":\"a\",\"name\":\"b\"}}}\n";
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let text = Ran::new(&child.wait_with_output().unwrap()).success();
    let answers = lines(&text);
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0], json!({"ok": "done"}));
    assert_eq!(answers[1]["error"]["code"], "usage");
    assert_eq!(answers[2], json!({"error": {"code": "not_found", "message": "no", "exit": 3}}));
    assert_eq!(pool.calls()[1].op, Some(OpId::Named("x".into())));
}

fn rpc_ends_once_nobody_can_read_its_answer() {
    let pool = Pool::new(|_| Answer::Silence);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut rpc = pool.poolctl(["rpc", "--timeout", "off"]);
    let mut child = rpc.stdin(Stdio::piped()).stdout(writer).spawn().unwrap();
    drop(rpc);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\"status\"\n").unwrap();
    until("it waits for the answer", || pool.calls().len() == 1);
    drop(reader);
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

fn a_closed_pipe_is_no_panic() {
    let pool = Pool::new(|_| ok(Response::Sessions(vec![session("web")])));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = pool.poolctl(["ls"]).stdout(writer).output().unwrap();
    let ran = Ran::new(&output);
    assert_eq!((ran.code, ran.err.as_str()), (141, ""));
}

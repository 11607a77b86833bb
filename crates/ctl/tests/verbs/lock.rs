//! `lock`: a command under a session's lock, with a daemon that grants, renews or revokes it.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::reply::{LockView, Locked};
use protocol::request::Lock;
use protocol::{Call, ErrorCode, ProcId, Request, Response, SessionId, SessionRef, Timestamp, Token};
use serde_json::{Value, json};

use crate::fake::{Answer, Pool, Ran, ok, refused, until};
use crate::lifecycle::script;
use crate::samples::session;
use crate::work::{Started, written};

crate::tests! {
    lock_runs_its_command_and_gives_the_lock_back, lock_passes_on_how_its_command_ended,
    a_lock_that_is_not_given_runs_nothing, lock_tells_others_what_for_without_secrets,
    a_command_that_cannot_be_run_ends_like_in_a_shell, a_lock_is_kept_while_poold_restarts,
    a_lock_that_is_taken_away_ends_its_command, a_lock_is_lost_when_poold_is_away_too_long,
    a_lock_that_was_lost_at_the_end_is_no_success, a_holder_that_was_stopped_finds_its_lock_lost,
    signals_of_others_reach_the_command, the_keyboard_reaches_the_command, a_command_ends_with_its_lock,
    what_is_nested_goes_under_the_lock, a_lock_inside_itself_is_the_same,
    a_session_that_is_removed_under_its_lock_is_not_lost, who_holds_the_lock_is_told_on_a_terminal,
}

fn token() -> Token {
    "3.17".parse().unwrap()
}

fn held() -> LockView {
    LockView {
        token: token(),
        purpose: "deploy --token=hunter2".into(),
        holder: Some(ProcId { pid: 4321, start: 1 }),
        since: Some(Timestamp(0)),
        waiting: 1,
        ..LockView::default()
    }
}

fn locked(lease_ms: u64) -> Answer {
    ok(Response::Locked(Locked { session: SessionId(12), token: token(), lease_ms, is_inside: false }))
}

/// A daemon that grants locks with this lease in milliseconds, and renews them.
fn gives(lease_ms: u64) -> impl Fn(&Call) -> Answer + Send + Sync {
    move |call| match call.request {
        Request::Lock(_) => locked(lease_ms),
        Request::RenewLock { session, token: of } | Request::Unlock { session, token: of } => {
            assert_eq!((session, of), (SessionId(12), token()));
            ok(Response::Done)
        }
        _ => ok(Response::Session(Box::new(session("web")))),
    }
}

/// The same, with a flag that revokes the lock, and the number of renewals.
fn revocable(lease_ms: u64) -> (Pool, Arc<AtomicBool>, Arc<AtomicU32>) {
    let (revoked, kept, rest) = (Arc::new(AtomicBool::new(false)), Arc::default(), gives(lease_ms));
    let (taken, counted): (_, Arc<AtomicU32>) = (revoked.clone(), Arc::clone(&kept));
    let pool = Pool::new(move |call| match call.request {
        Request::RenewLock { .. } if taken.load(Ordering::SeqCst) => refused(ErrorCode::Conflict, "no"),
        Request::RenewLock { .. } => {
            counted.fetch_add(1, Ordering::SeqCst);
            rest(call)
        }
        _ => rest(call),
    });
    (pool, revoked, kept)
}

/// `lock web` with a shell script, in the directory of the pool.
fn lock(pool: &Pool, script: &str) -> Command {
    let mut command = pool.poolctl(["lock", "web", "--", "sh", "-c", script]);
    command.current_dir(pool.dir.path());
    command
}

fn count(pool: &Pool, wanted: fn(&Request) -> bool) -> usize {
    pool.calls().iter().filter(|call| wanted(&call.request)).count()
}

fn renewals(pool: &Pool) -> usize {
    count(pool, |request| matches!(request, Request::RenewLock { .. }))
}

fn given_back(pool: &Pool) -> bool {
    count(pool, |request| matches!(request, Request::Unlock { .. })) == 1
}

/// Writes its process id, and ends when the file `go` appears, or by TERM.
const WAITS: &str = "trap 'echo x > terminated; exit 3' TERM; echo $$ > pid
    while ! test -e go; do sleep 0.01; done";

fn lock_runs_its_command_and_gives_the_lock_back() {
    let pool = Pool::new(gives(60_000));
    let script = "echo $POOL_LOCK_TOKEN $POOL_LOCK_SESSION $POOL_NAME $POOL_SOCKET \"$@\"; exit 7";
    let mut command = pool.poolctl("lock web --wait 5s --lease 30s -- sh -c".split(' '));
    command.args([script, "sh", "--json", "--", "-x y"]);
    let ran = Ran::new(&command.output().unwrap());
    let expected = format!("3.17 sess_12 default {} --json -- -x y\n", pool.socket().display());
    assert_eq!((ran.code, ran.out, ran.err.as_str()), (7, expected, ""));
    let calls = pool.calls();
    let Request::Lock(asked) = &calls[0].request else { panic!("{calls:?}") };
    let purpose = format!("sh -c {script} sh --json -- -x y");
    let session = SessionRef("web".into());
    let (wait_ms, lease_ms) = (Some(5000), Some(30_000));
    assert_eq!(*asked, Lock { session, purpose, wait_ms, lease_ms, force: false });
    assert!(calls[0].op.is_some(), "its repeat is the same lock");
    assert!(given_back(&pool), "{calls:?}");
    // The command under a lock of another pool gets nothing of the session in which it was started.
    let socket = pool.socket().display().to_string();
    let words =
        ["--socket", &socket, "lock", "web", "--", "sh", "-c", "echo [$POOL_SESSION$POOL_MESSAGE_ID]"];
    let mut command = pool.poolctl(words);
    command.env("POOL_SOCKET", "/other").env("POOL_SESSION", "sess_9").env("POOL_MESSAGE_ID", "msg_9");
    assert_eq!(Ran::new(&command.output().unwrap()).out, "[]\n");
}

fn lock_passes_on_how_its_command_ended() {
    let pool = Pool::new(gives(60_000));
    let code = |script| Ran::new(&lock(&pool, script).output().unwrap()).code;
    assert_eq!([code("exit 0"), code("exit 75"), code("kill -KILL $$")], [0, 75, 137]);
    let mut command = lock(&pool, "cat >&2; kill -TERM $$");
    let input = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let output = command.stdin(input).output().unwrap();
    assert_eq!(output.status.code(), Some(143));
    let whole = std::fs::metadata(std::env::current_exe().unwrap()).unwrap().len();
    assert_eq!(output.stderr.len() as u64, whole, "its input and output are those of the command");
}

fn a_lock_that_is_not_given_runs_nothing() {
    let codes = [(ErrorCode::NotFound, 3), (ErrorCode::Timeout, 6), (ErrorCode::Conflict, 4)];
    for (refusal, code) in codes {
        let pool = Pool::new(move |_| refused(refusal, "no"));
        let ran = Ran::new(&lock(&pool, "touch ran").output().unwrap());
        let asked = pool.calls().iter().filter(|call| call.request != Request::Status).count();
        assert_eq!((ran.code, ran.err.as_str(), asked), (code, "poolctl: no\n", 1));
        assert!(!pool.dir.path().join("ran").exists());
    }
    assert_eq!(Pool::empty().run("lock web -- true").code, 7);
    assert_eq!(Pool::empty().run("lock - -- true").code, 2, "this shell is in no session");
    let pool = Pool::new(|_| Answer::Silence);
    assert_eq!(pool.run("lock web --timeout 2s -- true").code, 6);
    let Request::Lock(asked) = pool.calls()[0].request.clone() else { panic!() };
    assert_eq!(asked.wait_ms, Some(2000));
}

fn lock_tells_others_what_for_without_secrets() {
    let pool = Pool::new(gives(60_000));
    let mut command = pool.poolctl(["lock", "-", "--force", "--", "true", "--token=hunter2"]);
    let ran = Ran::new(&command.arg("x".repeat(500)).env("POOL_SESSION", "sess_12").output().unwrap());
    ran.success();
    let Request::Lock(asked) = pool.calls()[0].request.clone() else { panic!() };
    assert!(asked.purpose.starts_with("true --token=…redacted… xxx"), "{asked:?}");
    assert_eq!((asked.purpose.len(), asked.session.0.as_str()), (200, "sess_12"));
    assert_eq!((asked.force, asked.wait_ms, asked.lease_ms), (true, None, None));
}

fn a_command_that_cannot_be_run_ends_like_in_a_shell() {
    let pool = Pool::new(gives(60_000));
    let ran = pool.run("lock web -- /nonexistent/command");
    assert_eq!((ran.code, ran.out.as_str()), (127, ""));
    assert!(ran.err.starts_with("poolctl: cannot run /nonexistent/command: "), "{}", ran.err);
    assert!(given_back(&pool));
    let file = pool.dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let ran = Ran::new(&pool.poolctl(["lock", "web", "--json", "--"]).arg(&file).output().unwrap());
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((ran.code, &error["error"]["exit"]), (126, &json!(126)));
}

fn a_lock_is_kept_while_poold_restarts() {
    let (renewed, rest) = (AtomicU32::new(0), gives(6000));
    let pool = Pool::new(move |call| match call.request {
        Request::RenewLock { .. } if renewed.fetch_add(1, Ordering::SeqCst) % 2 == 1 => Answer::HangUp,
        _ => rest(call),
    });
    let child = Started::new(lock(&pool, WAITS));
    // The lock is renewed at once, after a third of the lease (this renewal is lost), and again.
    until("renewals", || renewals(&pool) >= 3);
    std::fs::write(pool.dir.path().join("go"), "").unwrap();
    assert_eq!(child.end().success(), "");
    assert!(given_back(&pool));
}

fn a_lock_that_is_taken_away_ends_its_command() {
    let (pool, revoked, _) = revocable(6000);
    let child = Started::new(lock(&pool, WAITS));
    written(&pool.dir.path().join("pid"));
    revoked.store(true, Ordering::SeqCst);
    let ran = child.end();
    let told = "poolctl: the lock of sess_12 is lost: no; the command gets TERM\n";
    assert_eq!((ran.code, ran.err.as_str()), (4, told));
    assert!(pool.dir.path().join("terminated").exists() && !given_back(&pool));
    let (pool, revoked, _) = revocable(6000);
    // A stopped command gets TERM too, and its exit code is ignored.
    let script = "trap 'exit 0' TERM; echo $$ > pid; kill -STOP $$; while :; do sleep 0.01; done";
    let mut command = lock(&pool, script);
    command.args(["sh", "--json"]);
    let child = Started::new(command);
    written(&pool.dir.path().join("pid"));
    revoked.store(true, Ordering::SeqCst);
    assert_eq!(child.end().code, 4);
}

fn a_lock_is_lost_when_poold_is_away_too_long() {
    let rest = gives(4500);
    let pool = Pool::new(move |call| match call.request {
        Request::RenewLock { .. } => Answer::Silence,
        _ => rest(call),
    });
    let mut command = pool.poolctl(["lock", "web", "--json", "--", "sh", "-c", WAITS]);
    command.current_dir(pool.dir.path());
    let ran = Ran::new(&command.output().unwrap());
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    let why =
        "it was not renewed before its lease ended (this command was stopped, or poold was not reached)";
    assert!(message.contains(why), "{message}");
    assert_eq!(
        (ran.code, &error["error"]["code"], &error["error"]["exit"]),
        (4, &json!("conflict"), &json!(4))
    );
    assert!(renewals(&pool) > 1 && !given_back(&pool), "it was tried again");
}

fn a_lock_that_was_lost_at_the_end_is_no_success() {
    let (pool, revoked, kept) = revocable(60_000);
    let child = Started::new(lock(&pool, WAITS));
    until("the first renewal", || kept.load(Ordering::SeqCst) == 1);
    revoked.store(true, Ordering::SeqCst);
    std::fs::write(pool.dir.path().join("go"), "").unwrap();
    let ran = child.end();
    assert_eq!((ran.code, ran.err.as_str()), (4, "poolctl: the lock of sess_12 is lost: no\n"));
    assert!(!given_back(&pool));
}

fn a_holder_that_was_stopped_finds_its_lock_lost() {
    let lease = Duration::from_secs(4);
    let (pool, revoked, _) = revocable(4000);
    let child = Started::new(lock(&pool, WAITS));
    written(&pool.dir.path().join("pid"));
    child.signal(Signal::SIGSTOP);
    let stopped = Instant::now();
    revoked.store(true, Ordering::SeqCst);
    until("the end of the lease", || stopped.elapsed() > lease);
    assert!(!pool.dir.path().join("terminated").exists());
    child.signal(Signal::SIGCONT);
    let ran = child.end();
    assert_eq!((ran.code, ran.err.contains("sess_12 is lost")), (4, true), "{}", ran.err);
    assert!(pool.dir.path().join("terminated").exists());
}

fn signals_of_others_reach_the_command() {
    if cfg!(target_os = "linux") {
        let pool = Pool::new(gives(60_000));
        let held_back = pool.run("lock web -- grep SigBlk /proc/self/status").success();
        assert_eq!(held_back, "SigBlk:\t0000000000000000\n");
    }
    let script = "trap 'exit 5' TERM; trap 'exit 6' HUP; trap 'exit 8' INT; trap 'exit 9' QUIT; echo $$ > pid
        while ! test -e go; do sleep 0.01; done";
    // No shell can trap what it ignored when it began, as HUP below `nohup`.
    let signals = [(Signal::SIGTERM, 5), (Signal::SIGHUP, 6)].into_iter();
    for (signal, code) in signals.filter(|(signal, _)| !process::identity::caller_ignores(*signal)) {
        let pool = Pool::new(gives(60_000));
        let child = Started::new(lock(&pool, script));
        written(&pool.dir.path().join("pid"));
        // Signals of the keyboard reach the command directly, and must not end poolctl before it.
        child.signal(Signal::SIGINT);
        child.signal(Signal::SIGQUIT);
        child.signal(signal);
        assert_eq!(child.end().code, code);
        assert!(given_back(&pool));
    }
}

fn the_keyboard_reaches_the_command() {
    let pool = Pool::new(gives(60_000));
    let shell = "trap 'echo x > interrupted; exit 9' INT; echo $$ > pid; while :; do sleep 0.01; done";
    let mut command = script(&lock(&pool, shell));
    command.current_dir(pool.dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return println!("skipped: no `script`") };
    let mut keyboard = child.stdin.take().unwrap();
    written(&pool.dir.path().join("pid"));
    std::io::Write::write_all(&mut keyboard, b"\x03").unwrap();
    let ran = Ran::new(&child.wait_with_output().unwrap());
    assert!(pool.dir.path().join("interrupted").exists(), "{ran:?}");
    assert!(given_back(&pool), "{ran:?}");
}

fn a_command_ends_with_its_lock() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let pool = Pool::new(gives(60_000));
    let child = Started::new(lock(&pool, WAITS));
    written(&pool.dir.path().join("pid"));
    // Kills poolctl.
    drop(child);
    until("TERM", || pool.dir.path().join("terminated").exists());
}

fn what_is_nested_goes_under_the_lock() {
    let pool = Pool::new(|call| match call.request {
        Request::Keys(_) => ok(Response::Done),
        _ => gives(60_000)(call),
    });
    let program = std::env::current_exe().unwrap();
    let mut command = pool.poolctl(["lock", "web", "--"]);
    command.arg(program).args(["keys", "web", "C-c"]).env("POOL_LOCK_TOKEN", "2.9");
    Ran::new(&command.output().unwrap()).success();
    let calls = pool.calls();
    let of = |call: &Call| match call.request {
        Request::Lock(_) => ("lock", call.lock),
        Request::Keys(_) => ("keys", call.lock),
        Request::RenewLock { .. } => ("renew", call.lock),
        Request::Unlock { .. } => ("unlock", call.lock),
        _ => ("show", call.lock),
    };
    let made: Vec<_> = calls.iter().map(of).collect();
    assert!(
        made.contains(&("lock", "2.9".parse().ok())) && made.contains(&("keys", Some(token()))),
        "{made:?}"
    );
    // Renewing and releasing use no outer lock.
    assert!(made.contains(&("renew", None)) && made.contains(&("unlock", None)), "{made:?}");
    let mut broken = pool.poolctl(["lock", "web", "--", "true"]);
    let ran = Ran::new(&broken.env("POOL_LOCK_TOKEN", "x").output().unwrap());
    assert_eq!((ran.code, ran.err.contains("POOL_LOCK_TOKEN")), (2, true), "{}", ran.err);
}

fn a_lock_inside_itself_is_the_same() {
    let pool = Pool::new(|call| match call.request {
        Request::Lock(_) => {
            let (session, lease_ms) = (SessionId(12), 60_000);
            ok(Response::Locked(Locked { session, token: token(), lease_ms, is_inside: true }))
        }
        _ => refused(ErrorCode::Conflict, "no"),
    });
    // Also where it is an outer one of the lock whose token is carried.
    for carried in ["3.17", "3.18"] {
        let mut command = lock(&pool, "echo $POOL_LOCK_TOKEN; exit 5");
        let ran = Ran::new(&command.env("POOL_LOCK_TOKEN", carried).output().unwrap());
        assert_eq!((ran.code, ran.out.as_str()), (5, format!("{carried}\n").as_str()), "{}", ran.err);
    }
    assert_eq!(pool.calls().len(), 2, "neither is renewed or released");
}

fn a_session_that_is_removed_under_its_lock_is_not_lost() {
    let lease = Duration::from_secs(6);
    let (removed, rest) = (Arc::new(AtomicBool::new(false)), gives(6000));
    let (gone, told) = (removed.clone(), Arc::new(AtomicU32::new(0)));
    let counted = told.clone();
    let pool = Pool::new(move |call| match call.request {
        Request::RenewLock { .. } if gone.load(Ordering::SeqCst) => {
            counted.fetch_add(1, Ordering::SeqCst);
            refused(ErrorCode::NotFound, "no")
        }
        _ => rest(call),
    });
    let child = Started::new(lock(&pool, &format!("{WAITS}; exit 5")));
    written(&pool.dir.path().join("pid"));
    removed.store(true, Ordering::SeqCst);
    until("the keeper to be told", || told.load(Ordering::SeqCst) >= 1);
    let since = Instant::now();
    until("the end of what would be the lease", || since.elapsed() > lease);
    std::fs::write(pool.dir.path().join("go"), "").unwrap();
    let ran = child.end();
    assert_eq!((ran.code, ran.err.as_str()), (5, ""));
    assert!(!pool.dir.path().join("terminated").exists());
    assert_eq!(
        Ran::new(&lock(&pool, "exit 6").output().unwrap()).code,
        6,
        "the last sign of life says the same"
    );
}

fn who_holds_the_lock_is_told_on_a_terminal() {
    let (looks, rest) = (AtomicU32::new(0), gives(60_000));
    let pool = Pool::new(move |call| match call.request {
        Request::Show(_) => {
            let mut view = session("web");
            view.lock = Some(held());
            looks.fetch_add(1, Ordering::SeqCst);
            ok(Response::Session(Box::new(view)))
        }
        Request::Lock(_) => {
            // The answer to one of the questions may come too late to be shown.
            until("looks at who has it", || looks.load(Ordering::SeqCst) >= 3);
            rest(call)
        }
        _ => rest(call),
    });
    let Ok(output) = script(&lock(&pool, "exit 5")).stdin(Stdio::null()).output() else {
        return println!("skipped: no `script`");
    };
    let ran = Ran::new(&output);
    let told = "waiting for the lock of web, held by deploy --token=…redacted… (pid 4321) (";
    assert!(ran.out.contains(told) && ran.code == 5, "{ran:?}");
}

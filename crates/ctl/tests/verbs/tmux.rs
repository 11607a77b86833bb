//! Verbs about tmux itself: `watch`, `feed`, `adopt`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use protocol::diff::Change;
use protocol::reply::{WatchSetup, WatcherCommand};
use protocol::request::{Adopt, Observe, View};
use protocol::tmux::{TmuxSession, TmuxState};
use protocol::{Frame, OpId, Refusal, Request, Response, Seq, TmuxSessionId};
use serde_json::Value;

use crate::fake::{Answer, Pool, Ran, ok, until};
use crate::samples::session;

crate::tests! {
    watch_prints_what_the_watcher_sends, watch_shows_people_what_changes, watch_ends_when_nobody_reads,
    feed_sends_every_line_and_ends, feed_prints_what_is_asked, feed_sends_nothing_after_a_bad_line,
    feed_waits_for_answers, feed_ends_when_its_place_is_taken, feed_ends_with_its_daemon, adopt_prints_the_id,
}

fn named(name: &str) -> TmuxSession {
    TmuxSession::bare(name, 1)
}

fn observe(seq: u64, view: View) -> Observe {
    Observe { watcher: 7, seq, asked: 0, age_ms: 1, sent_at_ms: None, complete: true, view }
}

fn snapshot(name: &str) -> Observe {
    let state = TmuxState { sessions: [(TmuxSessionId(3), named(name))].into(), ..TmuxState::default() };
    observe(1, View::Snapshot { state, part: 0, more: false })
}

fn renamed(name: &str) -> Observe {
    observe(2, View::Diff(vec![Change::Session(TmuxSessionId(3), named(name))]))
}

fn observed(observes: &[Observe]) -> Vec<Frame> {
    observes.iter().map(|observe| Frame::Observed(Box::new(observe.clone()))).collect()
}

fn enough() -> Answer {
    Answer::Reply(Err(Refusal::refused("enough")))
}

/// A daemon whose connection is lost once, lags once, and is refused the third time.
fn watched() -> Pool {
    let connections = AtomicU32::new(0);
    Pool::new(move |call| {
        assert_eq!(call.request, Request::Watch);
        let lagged = Frame::Lagged { from: Seq(1), to: Seq(9) };
        match connections.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::Frames(observed(&[snapshot("a"), renamed("b"), observe(3, View::Alive)])),
            1 => Answer::Frames([observed(&[snapshot("c")]), vec![lagged]].concat()),
            _ => enough(),
        }
    })
}

fn watch_prints_what_the_watcher_sends() {
    for line in ["watch --print", "watch --json"] {
        let ran = watched().run(line);
        assert_eq!(ran.code, 5, "{}", ran.err);
        let printed: Vec<Observe> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(printed, [snapshot("a"), renamed("b"), observe(3, View::Alive), snapshot("c")]);
    }
}

fn watch_shows_people_what_changes() {
    let ran = watched().run("watch");
    let shown: Vec<&str> = ran.out.lines().map(|line| line.split_once("Z  ").unwrap().1).collect();
    assert_eq!(shown, ["server: absent", "+ $3 a", "~ $3 a → b", "~ $3 b → c"], "{}", ran.err);
}

fn watch_ends_when_nobody_reads() {
    let pool = Pool::new(|_| Answer::Silence);
    for args in [["watch", "-v"], ["watch", "--print"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut child = pool.poolctl(args).stdout(writer).spawn().unwrap();
        drop(reader);
        until("its end", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(141));
    }
}

fn feed(pool: &Pool, args: &[&str]) -> (Child, ChildStdin) {
    let mut command = pool.poolctl(["feed"]);
    let mut child = command.args(args).stdin(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

fn fed(pool: &Pool, lines: &str) -> Ran {
    let (child, mut stdin) = feed(pool, &[]);
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    Ran::new(&child.wait_with_output().unwrap())
}

fn sent(pool: &Pool) -> Vec<Observe> {
    let observed = |request| match request {
        Request::Observe(observe) => observe,
        other => panic!("{other:?}"),
    };
    pool.calls().into_iter().map(|call| observed(call.request)).collect()
}

fn feed_sends_every_line_and_ends() {
    let pool = Pool::new(|_| ok(Response::Done));
    let (first, second) = (snapshot("a"), renamed("b"));
    let lines = [&first, &second].map(|observe| serde_json::to_string(observe).unwrap()).join("\n");
    // The last line has no newline.
    let many = "\"alive\"\n".repeat(1000);
    assert_eq!(fed(&pool, &format!("{lines}\n\n{many}\"unchanged\"")).success(), "");
    let sent = sent(&pool);
    assert_eq!((&sent[0], &sent[1], sent.len()), (&first, &second, 1003));
    assert!(sent.iter().zip(1..).all(|(observe, seq)| observe.seq == seq));
    assert_eq!((sent[1002].view.clone(), sent[1002].complete), (View::Unchanged, true));
    let ids: Vec<u64> = pool.calls().iter().map(|call| call.id).collect();
    assert!(ids.is_sorted_by(|one, next| one < next));
}

fn feed_prints_what_is_asked() {
    let setup = WatchSetup {
        binary: "tmux".into(),
        socket: "s".into(),
        heartbeat_ms: 2000,
        own: true,
        means: None,
        sweep_ms: None,
        server: None,
    };
    let pool = Pool::new(move |call| match &call.request {
        Request::Observe(Observe { asked: 0, view: View::Diff(_), .. }) => ok(Response::SendSnapshot),
        Request::Observe(Observe { asked: 0, .. }) => {
            let asks = [WatcherCommand::Watch(setup.clone()), WatcherCommand::Snapshot { n: 3 }];
            Answer::Among(asks.map(Frame::Command).to_vec(), Ok(Response::Done), Vec::new())
        }
        _ => ok(Response::Done),
    });
    let (mut child, mut stdin) = feed(&pool, &[]);
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    stdin.write_all(b"{\"diff\":[]}\n").unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), r#"{"ask":"snapshot"}"#);
    stdin.write_all(b"\"unchanged\"\n").unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), r#"{"ask":{"snapshot":{"n":3}}}"#);
    stdin
        .write_all(b"{\"asked\":3,\"snapshot\":{\"server\":\"absent\",\"sessions\":{},\"panes\":{}}}\n")
        .unwrap();
    drop(stdin);
    assert!(answers.next().is_none());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(sent(&pool).last().unwrap().asked, 3);
}

fn feed_sends_nothing_after_a_bad_line() {
    let pool = Pool::new(|_| ok(Response::Done));
    let ran = fed(&pool, "\"alive\"\n\n{\"opp\":1}\n\"alive\"\n");
    assert_eq!((ran.code, ran.err.starts_with("poolctl: line 3: ")), (2, true), "{}", ran.err);
    assert!(ran.err.contains("opp"), "{}", ran.err);
    assert_eq!(sent(&pool).len(), 1);
    let ran = Ran::new(&pool.poolctl(["feed"]).stdin(std::fs::File::open("/").unwrap()).output().unwrap());
    assert_eq!((ran.code, ran.err.starts_with("poolctl: standard input: ")), (2, true), "{}", ran.err);
}

fn feed_waits_for_answers() {
    let pool = Pool::new(|_| Answer::Silence);
    let (child, mut stdin) = feed(&pool, &["--timeout", "3s"]);
    stdin.write_all("\"alive\"\n".repeat(9).as_bytes()).unwrap();
    until("four lines", || pool.calls().len() == 4);
    let ran = Ran::new(&child.wait_with_output().unwrap());
    assert_eq!((ran.code, pool.calls().len()), (6, 4), "{}", ran.err);
}

fn feed_ends_when_its_place_is_taken() {
    let pool = Pool::new(|_| Answer::Reply(Err(Refusal::conflict("pid 9 has taken over"))));
    let (child, mut stdin) = feed(&pool, &["--take-over", "--json"]);
    stdin.write_all(b"\"alive\"\n").unwrap();
    let ran = Ran::new(&child.wait_with_output().unwrap());
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((ran.code, error["error"]["message"].as_str()), (4, Some("pid 9 has taken over")));
    // The watcher may be replaced while it has nothing to send.
    let refusal = Refusal::conflict("pid 9 has taken over");
    let told = Frame::Reply { id: 0, reply: Err(refusal) };
    let pool = Pool::new(move |_| Answer::Among(Vec::new(), Ok(Response::Done), vec![told.clone()]));
    let (child, mut stdin) = feed(&pool, &[]);
    stdin.write_all(b"\"alive\"\n").unwrap();
    let ran = Ran::new(&child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (4, "poolctl: pid 9 has taken over\n"));
}

fn feed_ends_with_its_daemon() {
    let pool = Pool::new(|_| Answer::HangUp);
    let (child, mut stdin) = feed(&pool, &[]);
    stdin.write_all(b"\"alive\"\n").unwrap();
    assert_eq!(Ran::new(&child.wait_with_output().unwrap()).code, 7);
    drop(stdin);
    let pool = Pool::empty();
    assert_eq!(pool.run("feed").code, 7);
    drop(UnixListener::bind(pool.socket()).unwrap());
    assert_eq!(pool.run("feed").code, 7);
}

fn adopt_prints_the_id() {
    let pool = Pool::new(|_| ok(Response::Session(Box::new(session("web")))));
    let ran = pool.run("adopt $3 --workspace w --op-id x");
    assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("sess_1\n", "$3 is web in the pool\n", 0));
    let ran = pool.run("adopt web --op-id x");
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("sess_1\n", ""), "its own name is no news");
    let adopt = Adopt { target: "$3".into(), workspace: Some("w".into()), replace_pipe: false };
    assert_eq!(pool.calls()[0].request, Request::Adopt(adopt));
    assert_eq!(pool.calls()[0].op, Some(OpId::Named("x".into())));
    let document = pool.json("adopt mine --json");
    assert_eq!((document["id"].as_str(), &document["processes"]), (Some("sess_1"), &Value::Null));
}

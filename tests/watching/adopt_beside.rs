//! Adoption beside what its user has: other clients that adopt, further panes, a `pipe-pane`.

use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use serde_json::json;

use super::adopt::{mark, reader, theirs_in};
use super::support::NO_SWEEP;
use crate::harness::{PATIENCE, Pool, wait_until};

#[test]
fn w11_several_clients_that_adopt_one_session_get_the_same_id() {
    let pool = Pool::with(NO_SWEEP);
    let theirs = theirs_in(&pool);
    reader(&pool, &theirs, "web");
    let answers = thread::scope(|scope| {
        [(); 6].map(|()| scope.spawn(|| pool.ok(&["adopt", "web"]))).map(|client| client.join().unwrap())
    });
    let id = pool.show("web")["id"].as_str().unwrap().to_owned();
    assert!(answers.iter().all(|answer| *answer == id), "{answers:?}");
    assert_eq!(pool.lines(&["events", "--kind", "session_created"]).len(), 1);
}

#[test]
fn w20_what_is_left_of_a_session_is_its_users() {
    let pool = Pool::bare(&format!("[tmux]\nadopt = \"all\"\n{NO_SWEEP}"));
    pool.start_all();
    let theirs = theirs_in(&pool);
    let adopted = |name: &str| {
        wait_until("it is adopted", PATIENCE, || pool.ctl(&["show", name]).code == 0);
        pool.await_lifecycle(name, "live");
    };
    let foreign = |name: &str| pool.status()["foreign"].as_array().unwrap().contains(&json!(name));
    let (web, pane, _) = reader(&pool, &theirs, "web");
    adopted("web");
    let split = theirs.text(&["split-window", "-d", "-t", &pane, "-P", "-F", "#{pane_id}", "exec cat"]);
    pool.ok(&["sync"]);
    pool.ok(&["rm", "--force", "web"]);
    wait_until("the rest is foreign", PATIENCE, || foreign("web"));
    let deleted = pool.lines(&["events", "--kind", "session_deleted"]);
    assert_eq!(deleted[0]["tmux_alive"], true, "{deleted:?}");
    // A pane that came back by itself would have been marked before another, later session is.
    let (_, back, _) = reader(&pool, &theirs, "back");
    adopted("back");
    assert!(foreign("web") && mark(&theirs, &split).is_empty(), "it stays its user's");
    // Panes of a session that was given back do not become the pool's either, once the pane with the mark has closed.
    pool.ok(&["rm", "--keep-tmux", "--force", "back"]);
    theirs.text(&["split-window", "-d", "-t", &back, "exec cat"]);
    theirs.text(&["kill-pane", "-t", &back]);
    reader(&pool, &theirs, "later");
    adopted("later");
    assert!(foreign("web") && foreign("back"));
    assert_eq!(pool.ctl(&["adopt", &web]).code, 0, "by name it is");
}

#[test]
fn w20_a_pipe_of_its_user_is_replaced_only_when_asked() {
    let pool = Pool::bare(&format!("[tmux]\nadopt = \"prefix:auto-\"\n{NO_SWEEP}"));
    pool.start_all();
    let theirs = theirs_in(&pool);
    let kept = pool.path("kept");
    let (_, pane, _) = reader(&pool, &theirs, "web");
    theirs.text(&["pipe-pane", "-t", &pane, &format!("exec cat >'{}'", kept.display())]);
    let refused = pool.ctl(&["adopt", "web"]).expect(4).stderr;
    assert!(refused.contains("pipe-pane") && refused.contains("--replace-pipe"), "{refused}");
    assert_eq!((mark(&theirs, &pane).as_str(), pool.lines(&["ls", "--all"]).len()), ("", 0));
    theirs.text(&["send-keys", "-t", &pane, "mine"]);
    wait_until("it reads on", PATIENCE, || fs::read_to_string(&kept).is_ok_and(|text| text == "mine"));
    // A pane that is piped is not adopted by itself either. This one is piped in the same list of commands that creates
    // it, so it is never seen without its pipe.
    let pipe = ["pipe-pane", "-t", "=auto-piped:", "exec cat >/dev/null"];
    let new = ["new-session", "-d", "-P", "-F", "#{pane_id}", "-s", "auto-piped", "exec cat", ";"];
    let piped = theirs.text(&new.into_iter().chain(pipe).collect::<Vec<_>>());
    reader(&pool, &theirs, "auto-free");
    wait_until("the other is adopted", PATIENCE, || pool.ctl(&["show", "auto-free"]).code == 0);
    assert_eq!(mark(&theirs, &piped), "");
    let id = pool.ok(&["adopt", "web", "--replace-pipe"]);
    theirs.text(&["send-keys", "-t", &pane, "ours"]);
    wait_until("it is in the log", PATIENCE, || pool.ok(&["logs", &id]).contains("ours"));
    assert_eq!(fs::read_to_string(&kept).unwrap(), "mine");
}

#[test]
fn w10_an_adopted_program_that_was_silent_is_idle_at_once() {
    let pool = Pool::with(&format!("[pool]\nidle_quiet = \"2s\"\n{NO_SWEEP}"));
    let theirs = theirs_in(&pool);
    let (_, pane, _) = reader(&pool, &theirs, "web");
    let read =
        |format: &str| theirs.text(&["display-message", "-p", "-t", &pane, format]).parse::<u64>().unwrap();
    wait_until("it has been silent", PATIENCE, || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        now > read("#{session_activity}").max(read("#{window_activity}")) + 3
    });
    let id = pool.ok(&["adopt", "web"]);
    wait_until("it is idle", PATIENCE, || pool.show(&id)["activity"] == "idle");
    let events = pool.lines(&["events", "--session", &id]);
    assert!(!events.iter().any(|event| event["state"] == "busy"), "{events:?}");
}

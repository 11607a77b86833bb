//! Database maintenance: copies are complete, and an unreadable database is refused unchanged.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use protocol::request::Disposition;
use serde_json::Value;

use super::support::{Client, held, lasting, pool, session};
use crate::harness::{PATIENCE, Pool, Program, Talk, alive, wait_until};

/// A pool that never ran, with a copy of this database.
fn with_database(config: &str, from: &Path) -> Pool {
    let pool = Pool::bare(config);
    DirBuilder::new().mode(0o700).create(pool.state()).unwrap();
    fs::copy(from, pool.database()).unwrap();
    fs::set_permissions(pool.database(), fs::Permissions::from_mode(0o600)).unwrap();
    pool
}

/// A pool with messages in every state and every other kind of record; and the client that holds one of the
/// messages.
fn populated() -> (Pool, Client) {
    let pool = pool(
        "[pool]\nidle_quiet = '1ms'\nidle_settle = '100ms'\n[queue]\nmax_attempts = 1\nretry_backoff = '0ms'\n\
         breaker_failures = 1\nbreaker_pause = '10m'\n",
    );
    pool.script("other", "exec cat");
    pool.ok(&["label", "web", "team=a", "note=ü \"x\""]);
    let mut client = Client::new(&pool);
    let done = client
        .sent(protocol::request::Send {
            key: Some("k \u{fc} \"1\"".to_owned()),
            priority: -3,
            ttl_ms: Some(3_600_000),
            ..super::support::sending("a", b"\xff\x00 bytes")
        })
        .unwrap();
    let claimed = client.take(&["a"]).unwrap();
    let result = Some(protocol::OsBytes(b"\xfe result".to_vec()));
    let ack = protocol::request::Ack { held: held(&claimed), result };
    client.call(None, protocol::Request::Ack(ack)).unwrap();
    assert_eq!(claimed.message.id, done);
    client.send("b", b"dies, and holds its kind back");
    let claimed = client.take(&["b"]).unwrap();
    client.fail(held(&claimed), Disposition::Retry).unwrap();
    let cancelled = client.send("c", b"x");
    pool.ok(&["queue", "cancel", "web", &cancelled.to_string(), "--op-id", "cancelled"]);
    client.send("d", b"claimed");
    client.take(&["d"]).unwrap();
    client.send("b", &vec![b'w'; protocol::message::BODY_MAX]);
    pool.ok(&["send", "other", "--wait", "done", "typed"]);
    wait_until("its answer is logged", PATIENCE, || {
        pool.ok(&["logs", "other"]).matches("typed").count() == 2
    });
    // From here on nothing happens by itself.
    ["web", "other"].iter().for_each(|name| drop(pool.ok(&["wait", name, "--for", "idle"])));
    (pool, client)
}

/// An export without what every start of the daemon changes.
fn stored(pool: &Pool) -> Vec<String> {
    let text = pool.ok(&["export"]);
    let last = text.lines().last().unwrap();
    assert!(last.contains("\"end\""), "{last}");
    text.lines().map(str::to_owned).collect()
}

/// Exports to `/dev/stdout`, which is a file.
fn exported_to_its_own_output(pool: &Pool) -> String {
    let named = pool.path("named");
    let into = fs::File::create(&named).unwrap();
    let export = pool.poolctl().args(["export", "/dev/stdout"]).stdout(into).stderr(Stdio::null()).status();
    assert!(export.unwrap().success());
    fs::read_to_string(&named).unwrap()
}

#[test]
fn an_export_makes_the_same_pool_elsewhere() {
    let (pool, _holder) = populated();
    pool.end(Program::Poold, Signal::SIGTERM);
    pool.start_poold();
    let export = pool.path("export");
    pool.ok(&["export", export.to_str().unwrap()]);
    let redirected = pool.path("redirected");
    let into = fs::File::create(&redirected).unwrap();
    pool.poolctl().arg("export").stdout(into).stderr(Stdio::null()).status().unwrap();
    for file in [&export, &redirected] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let first = fs::read_to_string(&export).unwrap();
    assert_eq!(first.lines().collect::<Vec<_>>(), stored(&pool), "nothing happened meanwhile");
    assert_eq!(exported_to_its_own_output(&pool), first, "no sentence about it is written over it");
    let other = Pool::bare("");
    other.ok(&["import", export.to_str().unwrap()]);
    // Exported offline, before a daemon starts a new epoch on it.
    let again = other.path("again");
    // The limit of attempts that is shown, and the longest pause of a kind that fails, are the pool's own.
    let config = "[queue]\nmax_attempts = 1\nbreaker_pause = '10m'\n";
    let copy = with_database(config, &other.database());
    let third = Pool::bare(config);
    copy.start_poold();
    copy.ok(&["export", again.to_str().unwrap()]);
    let text = fs::read_to_string(&again).unwrap();
    third.ctl_in(&["import", "-"], text.as_bytes()).expect(0);
    third.start_poold();
    // Each import is a pool of its own: sessions that ran in the first are lost to it, and so are workers. Nothing else
    // differs.
    let journal = |pool: &Pool| pool.events();
    let (one, three) = (journal(&pool), journal(&third));
    assert_eq!(three[..one.len()], one);
    let begins = ["pool_started", "session_created", "tmux_server_changed", "message_claimed"];
    let kinds = three[one.len()..].iter().map(|event| event["kind"].as_str().unwrap());
    assert!(kinds.clone().all(|kind| begins.contains(&kind)), "{:?}", &three[one.len()..]);
    assert_eq!(kinds.filter(|kind| *kind == "pool_started").count(), 2);
    for id in messages(&pool) {
        let (there, here) = (lasting(&third, &id), lasting(&pool, &id));
        if here["state"] == "claimed" {
            assert_eq!((&there["state"], &there["attempts"]), (&here["state"], &here["attempts"]));
            assert!(there["claim"]["process"].is_null(), "{there}");
        } else {
            assert_eq!(there, here);
        }
        let body = |pool: &Pool| pool.ctl(&["queue", "show", "web", &id, "--body"]).expect(0).bytes;
        assert_eq!(body(&third), body(&pool), "{id}");
    }
    assert_eq!(third.status()["breakers"], pool.status()["breakers"]);
    let names = |pool: &Pool| -> Vec<Value> {
        pool.lines(&["ls", "--all"])
            .iter()
            .map(|s| serde_json::json!([s["id"], s["name"], s["labels"], s["total_requests"]]))
            .collect()
    };
    assert_eq!(names(&third), names(&pool));
    // Key and operation id are still remembered.
    let mut client = Client::new(&third);
    let repeat = protocol::request::Send {
        key: Some("k \u{fc} \"1\"".to_owned()),
        ..super::support::sending("a", b"\xff\x00 bytes")
    };
    assert_eq!(client.sent(repeat).unwrap().to_string(), messages(&pool)[0]);
    third.ctl(&["send", "web", "--kind", "a", "--op-id", "cancelled", "x"]).expect(4);
    // Never over an existing database, nor beside a daemon; never half of one.
    third.ctl(&["import", export.to_str().unwrap()]).expect(4);
    other.ctl(&["import", export.to_str().unwrap()]).expect(4);
    let none = Pool::bare("");
    let told = none.ctl(&["import", "."]).expect(2).stderr;
    assert!(told.contains(". is a directory") && !none.state().exists(), "{told}");
    for cut in [first.len() / 2, first.len() - first.lines().last().unwrap().len() - 1] {
        let half = Pool::bare("");
        assert_ne!(half.ctl_in(&["import", "-"], &first.as_bytes()[..cut]).code, 0);
        assert!(!half.database().exists(), "nothing is left of it");
    }
}

/// Ids of the messages of `web`, in order.
fn messages(pool: &Pool) -> Vec<String> {
    pool.lines(&["queue", "ls", "web"]).iter().map(|message| message["id"].to_string()).collect()
}

#[test]
fn a_backup_is_one_moment_with_all_that_was_acknowledged_before() {
    const CLIENTS: usize = 4;
    const BEFORE: usize = 40;
    let pool = pool("");
    let (stop, acknowledged) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let send = || {
        let mut client = Client::new(&pool);
        while !stop.load(Ordering::Relaxed) {
            let id = client.send("a", b"text").0;
            acknowledged.lock().unwrap().push(id);
        }
    };
    let backup = pool.path("backup");
    let before = thread::scope(|scope| {
        (0..CLIENTS).for_each(|_| drop(scope.spawn(send)));
        wait_until("some are sent", PATIENCE, || acknowledged.lock().unwrap().len() >= BEFORE);
        let before = acknowledged.lock().unwrap().clone();
        let copied = pool.ctl(&["--timeout", "30s", "backup", backup.to_str().unwrap()]);
        let sent = acknowledged.lock().unwrap().len();
        wait_until("it goes on", PATIENCE, || acknowledged.lock().unwrap().len() > sent + CLIENTS);
        stop.store(true, Ordering::Relaxed);
        copied.expect(0);
        before
    });
    assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    pool.ctl(&["backup", backup.to_str().unwrap()]).expect(4);
    let copy = with_database("", &backup);
    copy.ctl(&["check", "--offline"]).expect(0);
    copy.start_poold();
    let ids = |pool: &Pool| -> Vec<u64> {
        let events = pool.lines(&["events", "--kind", "message_queued"]);
        events.iter().map(|event| event["id"].as_u64().unwrap()).collect()
    };
    let (all, there) = (ids(&pool), ids(&copy));
    assert!(there.len() < all.len() && there[..] == all[..there.len()], "a prefix");
    assert!(before.iter().all(|id| there.contains(id)), "what was acknowledged before it began");
    // Each message has its row together with its event.
    assert_eq!(copy.show("web")["total_requests"], there.len() as u64);
    copy.ctl(&["queue", "show", "web", &there.last().unwrap().to_string(), "--body"]).expect(0);
}

#[test]
fn a_database_is_checked_and_compacted_with_a_daemon_and_without() {
    let (pool, _holder) = populated();
    let found = pool.json(&["check"]);
    assert!(found["records"].as_u64().unwrap() > 20, "{found}");
    assert_eq!((&found["problems"], &found["quarantined"]), (&serde_json::json!([]), &serde_json::json!([])));
    pool.ctl(&["check", "--offline"]).expect(4);
    let mut client = Client::new(&pool);
    for _ in 0..20 {
        client.send("e", &vec![b'x'; protocol::message::BODY_MAX]);
    }
    pool.ok(&["queue", "cancel", "web", "--all"]);
    pool.ok(&["queue", "purge", "web", "--state", "cancelled"]);
    let before: Vec<Value> = messages(&pool).iter().map(|id| lasting(&pool, id)).collect();
    let compacted = pool.json(&["compact"]);
    assert!(compacted["after_bytes"].as_u64() < compacted["before_bytes"].as_u64(), "{compacted}");
    let after: Vec<Value> = messages(&pool).iter().map(|id| lasting(&pool, id)).collect();
    assert_eq!(after, before);
    client.send("e", b"it goes on");
    pool.end(Program::Poold, Signal::SIGTERM);
    pool.ctl(&["check"]).expect(0);
    pool.ctl(&["check", "--offline"]).expect(0);
    pool.ctl(&["compact", "--offline"]).expect(0);
    pool.start_poold();
    assert_eq!(messages(&pool).len(), before.len() + 1);
}

/// A file of this repository.
fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Asserts that `poold` refuses this database with these words, and that nothing changes it.
#[track_caller]
fn is_refused_and_left_alone(path: &str, says: &str) {
    let file = data(path);
    let pool = with_database("", &file);
    pool.start(Program::Poold);
    assert_eq!(pool.await_end(Program::Poold), 9, "{}", pool.logs());
    assert!(pool.logs().contains(says), "{}", pool.logs());
    for verb in [&["check", "--offline"][..], &["compact", "--offline"]] {
        pool.ctl(verb).expect(9);
    }
    assert_eq!(fs::read(pool.database()).unwrap(), fs::read(&file).unwrap());
}

#[test]
fn d09_a_database_of_a_newer_version_is_refused_and_left_alone() {
    is_refused_and_left_alone("tests/data/newer.redb", "9999");
}

/// It says what to do.
#[test]
fn d09_a_database_of_a_development_build_is_refused_and_left_alone() {
    is_refused_and_left_alone("tests/data/unreleased.redb", "poolctl export");
}

#[test]
fn d8_a_damaged_record_is_told_by_status_by_check_and_in_the_log_and_the_others_are_served() {
    let pool = with_database("", &data("tests/data/damaged.redb"));
    pool.start_poold();
    for _ in 0..2 {
        let sessions = pool.lines(&["ls", "--all"]);
        assert_eq!(sessions.iter().map(|session| &session["id"]).collect::<Vec<_>>(), ["sess_2"]);
        pool.ctl(&["show", "sess_1"]).expect(3);
        let status = pool.ctl(&["--json", "status"]).expect(1).json();
        assert_eq!(status["quarantined"], 1);
        let told = status["problems"].as_array().unwrap().iter().filter_map(|problem| problem.as_str());
        assert_eq!(told.filter(|problem| problem.contains("damaged record was quarantined")).count(), 1);
        let checked = pool.ctl(&["--json", "check"]).expect(9).json();
        let quarantined = checked["quarantined"].as_array().unwrap();
        assert!(quarantined.len() == 1 && quarantined[0].to_string().contains("sessions"), "{checked}");
        assert_eq!(checked["problems"], serde_json::json!([]));
        pool.restart_poold();
    }
    assert!(pool.logs().contains("a damaged record was quarantined"), "{}", pool.logs());
    let new = session(&pool, "new");
    assert_eq!((new.as_str(), pool.lifecycle(&new).as_str()), ("sess_3", "live"), "no id is given out twice");
    assert_ne!(pool.ctl(&["check", "--discard"]).code, 0, "poold runs");
    pool.kill9(Program::Poold);
    assert_eq!(pool.ok(&["check", "--discard"]), "discarded 1 record");
    pool.start_poold();
    assert_eq!(pool.status()["quarantined"], 0);
    pool.ctl(&["check"]).expect(0);
}

/// The file is random: its sessions never ran.
#[test]
fn d09_a_database_of_the_first_version_is_opened_and_used() {
    let pool = with_database("", &data("crates/store/tests/data/v1.redb"));
    pool.start_poold();
    let text = fs::read_to_string(data("crates/store/tests/data/v1.txt")).unwrap();
    let stored = text.lines().filter_map(|line| line.split(' ').next().filter(|id| id.starts_with("sess_")));
    let sessions = pool.lines(&["ls", "--all"]);
    let found = sessions.iter().map(|session| session["id"].as_str().unwrap());
    assert_eq!(found.collect::<BTreeSet<_>>(), stored.collect::<BTreeSet<_>>());
    let epoch = pool.status()["epoch"].as_u64().unwrap();
    assert!(text.starts_with(&format!("epoch {}, ", epoch - 1)), "one more than in the file: {epoch}");
    for round in 0..2 {
        pool.ctl(&["check"]).expect(0);
        let name = format!("new{round}");
        session(&pool, &name);
        let id = pool.ok(&["send", &name, "--kind", "a", "text"]);
        assert_eq!(pool.json(&["queue", "show", &name, &id])["state"], "queued");
        pool.restart_poold();
    }
}

#[test]
fn a_pool_made_of_an_export_or_of_a_copy_touches_nothing_of_the_first() {
    let pool = Pool::new();
    let id = pool.script("v", "touch here; exec sleep 1000");
    let (init, program) = pool.pane_pids(&id);
    let message = pool.ok(&["send", "v", "--kind", "job", "x"]);
    let work = ["work", "v", "--kind", "job", "--lease", "1s", "--", "sh", "-c", "echo $$; exec sleep 1000"];
    let worker = Talk::start(pool.poolctl().args(work));
    wait_until("it works", PATIENCE, || !worker.lines().is_empty());
    let handler: u32 = worker.lines()[0].trim().parse().unwrap();
    let state = |pool: &Pool| pool.json(&["queue", "show", "v", &message])["state"].clone();
    let export = pool.path("export");
    pool.ok(&["export", export.to_str().unwrap()]);
    let imported = Pool::bare("");
    imported.ok(&["import", export.to_str().unwrap()]);
    let copied = Pool::bare("");
    fs::remove_dir_all(copied.state()).ok();
    let copy = std::process::Command::new("cp").arg("-a").args([pool.state(), copied.state()]).status();
    assert!(copy.unwrap().success());
    for other in [&imported, &copied] {
        // Copied sockets and locks are not in use here.
        other.start_all();
        let there = other.show("v");
        assert_eq!(
            (&there["lifecycle"], &there["reason"]),
            (&"lost".into(), &"database_replaced".into()),
            "{there}"
        );
        let dir = there["dir"].as_str().unwrap();
        assert!(dir.starts_with(other.state().to_str().unwrap()), "{dir}");
        wait_until("nobody holds its copy of the message", PATIENCE, || state(other) == "queued");
        drop(other.ctl(&["kill", "v"]));
        drop(other.ctl(&["down", "--stop-sessions"]));
        other.ok(&["restart", "v"]);
        assert_ne!(other.pane_pids("v"), (init, program), "it is a session of its own");
        let fresh = other.script("fresh", "exec sleep 1000");
        assert_ne!(fresh, id, "an id is given out once");
        other.ok(&["rm", "v", "--force", "--purge"]);
    }
    assert_eq!(pool.pane_pids(&id), (init, program), "the first runs on");
    assert_eq!(pool.lifecycle(&id), "live");
    assert!(alive(handler) && state(&pool) == "claimed", "its worker works on");
    assert!(
        pool.state().join("sessions").join(&id).join("work/here").exists(),
        "nothing of its files is gone"
    );
}

#[test]
fn a_restored_backup_gives_nothing_out_a_second_time() {
    let pool = Pool::new();
    pool.script("one", "exec sleep 1000");
    let backup = pool.path("backup");
    pool.ok(&["backup", backup.to_str().unwrap()]);
    let later = pool.script("two", "exec sleep 1000");
    let message = pool.ok(&["send", "one", "--kind", "job", "x"]);
    let epoch = pool.status()["epoch"].as_u64().unwrap();
    pool.end(Program::Poold, Signal::SIGTERM);
    fs::copy(&backup, pool.database()).unwrap();
    pool.start(Program::Poold);
    pool.await_complete();
    assert!(pool.status()["epoch"].as_u64().unwrap() > epoch);
    assert_eq!(pool.lifecycle("one"), "lost");
    let next = pool.script("three", "exec sleep 1000");
    assert!(next != later && next != "sess_2", "{next} after {later}");
    // What ran then runs on, and is neither touched nor doubled.
    assert_eq!(pool.show("one")["reason"], "database_replaced");
    let refused = pool.ctl(&["restore", "one"]).expect(4);
    assert!(refused.stderr.contains("the database was replaced"), "{}", refused.stderr);
    pool.tmux_text(&["kill-session", "-t", "=one"]);
    pool.ok(&["restart", "one"]);
    let again = pool.ok(&["send", "one", "--kind", "job", "y"]);
    assert!(again.parse::<u64>().unwrap() > message.parse::<u64>().unwrap(), "{again} after {message}");
}

#[test]
fn directories_of_what_runs_on_after_a_backup_was_put_back_are_left_alone() {
    let pool = Pool::new();
    let own = |name: &str| {
        let id = pool.ok(&["new", name, "--cwd", "own", "--", "sh", "-c", "touch here; exec sleep 1000"]);
        wait_until("it works", PATIENCE, || {
            pool.state().join("sessions").join(&id).join("work/here").exists()
        });
        id
    };
    let before = own("before");
    let backup = pool.path("backup");
    pool.ok(&["backup", backup.to_str().unwrap()]);
    let after = own("after");
    let (runs, _) = pool.pane_pids(&before);
    pool.end(Program::Poold, Signal::SIGTERM);
    fs::copy(&backup, pool.database()).unwrap();
    pool.start(Program::Poold);
    pool.await_complete();
    let refused = pool.ctl(&["rm", &before, "--force", "--purge"]).expect(1);
    assert!(refused.stderr.contains("run on in it"), "{}", refused.stderr);
    let pruned = pool.json(&["prune", "--older", "0s", "--purge"]);
    assert_eq!(pruned["directories"].as_array().unwrap().len(), 0, "{pruned}");
    for id in [&before, &after] {
        let dir = pool.state().join("sessions").join(id);
        assert!(dir.join("work/here").exists() && dir.join("logs/output.log").exists(), "{id}");
    }
    assert!(alive(runs));
}

//! The disk is full, fails, or returns other data than was written. Acknowledged data stays; after the first
//! failure nothing more is acknowledged.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::sys::signal::Signal;
use protocol::blocking::Connection;
use protocol::request::Send;
use protocol::{ErrorCode, Hello, OpId, Request, Response, Role};

use super::support::{has, is_root, may_trace, on_a_disk, queued};
use crate::harness::{Mount, Output, PATIENCE, Pool, Program, eventually, number, wait_until};
use crate::queue::support::sending;

/// Without a reserve a disk really fills.
const NO_RESERVE: &str = "[pool]\nmin_free_disk = '0B'\n[queue]\nmin_free_disk = '0B'\n";

/// Sends one message; returns its key and id, or the output of the failed send.
fn send(pool: &Pool, key: String, body: &[u8]) -> Result<(String, u64), Output> {
    let sent = pool.ctl_in(&["--timeout", "20s", "send", "web", "--key", &key, "-"], body);
    if sent.code == 0 { Ok((key, sent.text().parse().unwrap())) } else { Err(sent) }
}

/// Fills the disk of a directory; returns the file there that takes all of it.
fn fill(dir: &Path) -> PathBuf {
    let filler = dir.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while std::io::Write::write(&mut file, &[1; 4096]).is_ok_and(|written| written > 0) {}
    filler
}

#[track_caller]
fn are_there(pool: &Pool, acknowledged: &[(String, u64)]) {
    let there = queued(pool);
    for message in acknowledged {
        assert_eq!(there.iter().filter(|found| found.0 == message.0).collect::<Vec<_>>(), [message]);
    }
}

#[test]
fn daemons_whose_logs_cannot_be_written_work_on() {
    let pool = Pool::bare("");
    for program in Program::ALL {
        let mut daemon = pool.command("sh");
        daemon.args(["-c", "exec \"$0\" 2>/dev/full"]).arg(program.path());
        pool.start_as(program, daemon);
    }
    pool.await_complete();
    let id = pool.script("web", "exec sleep 1000");
    pool.ok(&["restart", &id]);
    pool.ok(&["kill", &id]);
    pool.ok(&["status"]);
}

#[test]
fn d10_a_full_disk_loses_nothing_that_was_acknowledged() {
    // Without a reserve, so that the disk really fills.
    let Some((mount, pool)) = on_a_disk(NO_RESERVE, "3m") else { return };
    let body = vec![b'x'; 32 * 1024];
    pool.start_poold();
    pool.script("web", "exec sleep 1000");
    let mut acknowledged = Vec::new();
    let failed = loop {
        match send(&pool, format!("k{}", acknowledged.len()), &body) {
            Ok(message) => acknowledged.push(message),
            Err(failed) => break failed,
        }
        assert!(acknowledged.len() < 1000, "the disk never fills");
    };
    assert!([5, 7, 9].contains(&failed.code), "{failed:?}");
    assert!(!acknowledged.is_empty());
    if failed.code == 5 {
        assert_eq!(pool.ended(Program::Poold), None, "a refusal is no failure");
        pool.end(Program::Poold, Signal::SIGTERM);
    } else {
        assert_eq!(pool.await_end(Program::Poold), 9, "{}", pool.logs());
    }
    mount.resize("32m");
    pool.start_poold();
    are_there(&pool, &acknowledged);
    acknowledged.push(send(&pool, "after".to_owned(), &body).unwrap());
    are_there(&pool, &acknowledged);
}

#[test]
fn d10_below_the_reserve_messages_are_refused_and_what_is_there_is_settled() {
    let Some((mount, pool)) =
        on_a_disk("[pool]\nmin_free_disk = '0B'\n[queue]\nmin_free_disk = '6MiB'\n", "12m")
    else {
        return;
    };
    pool.start_poold();
    pool.script("web", "exec sleep 1000");
    let body = vec![b'x'; 128 * 1024];
    let (mut acknowledged, send) = (Vec::new(), |key: String| {
        let args = ["send", "web", "--kind", "a", "--key", &key, "-"];
        pool.ctl_in(&args, &body)
    });
    let refused = loop {
        let key = format!("k{}", acknowledged.len());
        let sent = send(key.clone());
        if sent.code != 0 {
            break sent;
        }
        acknowledged.push((key, sent.text().parse::<u64>().unwrap()));
        assert!(acknowledged.len() < 1000, "the reserve is never reached");
    };
    let refused = refused.expect(5);
    assert!(refused.stderr.contains("min_free_disk"), "{}", refused.stderr);
    assert!(pool.status()["problems"].to_string().contains("disk"));
    // The reserve holds everything still to be stored about accepted messages.
    pool.ctl(&["--timeout", "60s", "work", "web", "--until-empty", "--", "true"]).expect(0);
    are_there(&pool, &acknowledged);
    assert_eq!(pool.lines(&["queue", "ls", "web", "--state", "done"]).len(), acknowledged.len());
    send("again".to_owned()).expect(5);
    pool.restart_poold();
    send("again".to_owned()).expect(5);
    mount.resize("64m");
    wait_until("the room is seen", PATIENCE, || send("again".to_owned()).code == 0);
    are_there(&pool, &acknowledged);
}

#[test]
fn d10_the_space_kept_for_the_database_is_kept_anew_whenever_its_file_grows() {
    let Some((_mount, pool)) = on_a_disk(NO_RESERVE, "256m") else { return };
    pool.start_poold();
    pool.script("web", "exec sleep 1000");
    let is_kept = || {
        let found = fs::metadata(pool.database()).unwrap();
        found.blocks() * 512 >= found.len() + (7 << 20)
    };
    assert!(is_kept(), "at a start");
    let length = || fs::metadata(pool.database()).unwrap().len();
    let (before, body) = (length(), vec![b'x'; 128 * 1024]);
    for n in 0..90 {
        let args = ["send", "web", "--kind", "a", "--key", &format!("k{n}"), "-"];
        pool.ctl_in(&args, &body).expect(0);
    }
    assert!(length() > before + (8 << 20), "it has used what was kept");
    wait_until("it is kept anew", PATIENCE, is_kept);
    pool.end(Program::Poold, Signal::SIGTERM);
    assert!(is_kept(), "for the next start");
}

#[test]
fn d10_on_a_full_disk_poold_starts_and_sessions_can_be_removed() {
    let Some((_mount, pool)) = on_a_disk(NO_RESERVE, "48m") else { return };
    pool.start_all();
    pool.await_complete();
    pool.script("web", "exec sleep 1000");
    fill(&pool.state());
    for end in [Signal::SIGTERM, Signal::SIGKILL] {
        pool.end(Program::Poold, end);
        // All space that it gave up is taken.
        fill(&pool.state());
        pool.start(Program::Poold);
        pool.await_complete();
    }
    assert_eq!(pool.lifecycle("web"), "live");
    pool.ok(&["kill", "web"]);
    pool.ok(&["rm", "web"]);
}

#[test]
fn on_a_full_disk_nothing_is_ended_or_taken_up_that_could_not_start() {
    let Some((_mount, pool)) = on_a_disk(NO_RESERVE, "48m") else { return };
    pool.start_all();
    pool.await_complete();
    let (id, aside) = (pool.script("web", "exec sleep 1000"), pool.script("aside", "exec sleep 1000"));
    pool.ok(&["park", "--force", &aside]);
    let filler = fill(&pool.state());
    let refused = pool.ctl(&["restart", "web"]).expect(5);
    assert!(refused.stderr.contains("make room there; nothing was ended"), "{refused:?}");
    let shown = pool.show(&id);
    assert_eq!((&shown["lifecycle"], &shown["incarnations"]), (&"live".into(), &1.into()));
    pool.ctl(&["restore", "aside"]).expect(5);
    assert_eq!(pool.lifecycle(&aside), "parked");
    let refused = pool.ctl(&["new", "late", "--", "sleep", "1000"]).expect(5);
    assert!(refused.stderr.contains("make room there"), "{refused:?}");
    pool.ctl(&["show", "late"]).expect(3);
    fs::remove_file(filler).unwrap();
    pool.ok(&["restart", "web"]);
    pool.ok(&["restore", "aside"]);
}

#[test]
fn without_inodes_nothing_is_started_and_status_says_so() {
    let config = "[pool]\nmin_free_disk = '1MiB'\n";
    let Some((mount, pool)) = on_a_disk(config, "64m,nr_inodes=5000") else { return };
    pool.start_all();
    pool.await_complete();
    let id = pool.script("web", "exec sleep 1000");
    pool.ok(&["park", "--force", &id]);
    mount.resize("64m,nr_inodes=900");
    wait_until("status says so", PATIENCE, || pool.status()["problems"].to_string().contains("inodes left"));
    let refused = pool.ctl(&["restore", &id]).expect(5);
    assert!(refused.stderr.contains("inodes left"), "{refused:?}");
    assert_eq!(pool.lifecycle(&id), "parked");
    mount.resize("64m,nr_inodes=5000");
    wait_until("it is started again", PATIENCE, || pool.ctl(&["restore", &id]).code == 0);
}

#[test]
fn d08_a_timeline_that_cannot_be_read_is_not_taken_for_that_of_another_pool() {
    let pool = Pool::new();
    pool.script("web", "exec sleep 1000");
    let timeline = pool.state().join("timeline");
    let known = fs::read(&timeline).unwrap();
    pool.end(Program::Poold, Signal::SIGTERM);
    fs::remove_file(&timeline).unwrap();
    fs::create_dir(&timeline).unwrap();
    pool.start(Program::Poold);
    assert_eq!(pool.await_end(Program::Poold), 1, "{}", pool.logs());
    fs::remove_dir(&timeline).unwrap();
    for damaged in [Vec::new(), vec![0x5a; known.len()]] {
        fs::write(&timeline, damaged).unwrap();
        pool.start(Program::Poold);
        assert_eq!(pool.await_end(Program::Poold), 1, "{}", pool.logs());
        assert!(pool.logs().contains("both copies in this file are damaged"), "{}", pool.logs());
    }
    fs::write(&timeline, known).unwrap();
    pool.start(Program::Poold);
    pool.await_complete();
    assert_eq!(pool.lifecycle("web"), "live");
}

#[test]
fn a_timeline_that_is_removed_while_poold_runs_costs_no_session() {
    let pool = Pool::new();
    pool.script("web", "exec sleep 1000");
    fs::remove_file(pool.state().join("timeline")).unwrap();
    pool.end(Program::Poold, Signal::SIGTERM);
    pool.start(Program::Poold);
    pool.await_complete();
    assert_eq!(pool.lifecycle("web"), "live");
}

#[test]
fn p04_why_poold_does_not_start_is_told_wherever_it_is_missed() {
    let pool = Pool::bare("");
    pool.ok(&["up"]);
    pool.ok(&["down"]);
    fs::write(pool.database(), vec![0x5a; 8192]).unwrap();
    pool.ctl(&["--timeout", "2s", "up"]).expect(6);
    let told = pool.ctl(&["--timeout", "2s", "status"]).stderr;
    assert!(told.contains("poold.log ends with:") && told.contains("the database is damaged"), "{told}");
    assert!(told.contains("put a backup in the place of"), "{told}");
    pool.ok(&["down"]);
}

#[test]
fn d08_a_damaged_database_is_refused_or_right() {
    let pool = Pool::bare("");
    pool.start_poold();
    pool.start(Program::Watch);
    pool.script("web", "exec cat");
    let message = send(&pool, "key".to_owned(), b"text").unwrap();
    pool.kill9(Program::Watch);
    pool.end(Program::Poold, Signal::SIGTERM);
    let good = fs::read(pool.database()).unwrap();
    // Restored too: otherwise a database from before a start would be taken for a restored backup.
    let timeline = pool.state().join("timeline");
    let known = fs::read(&timeline).unwrap();
    let sessions = |pool: &Pool| pool.lines(&["ls", "--all"])[0]["id"].clone();
    let attempt = |bytes: &[u8], what: &str| {
        fs::write(pool.database(), bytes).unwrap();
        fs::write(&timeline, &known).unwrap();
        pool.start(Program::Poold);
        let code = eventually("poold answers or ends", PATIENCE, || {
            let ended = pool.ended(Program::Poold);
            ended.or_else(|| (pool.ctl(&["--timeout", "1s", "ls"]).code == 0).then_some(0))
        });
        if code == 0 {
            assert_eq!(sessions(&pool), "sess_1", "{what}");
            are_there(&pool, std::slice::from_ref(&message));
        } else {
            assert_eq!(code, 9, "{what}: {}", pool.logs());
            pool.ctl(&["ls"]).expect(7);
            let kept = fs::read(pool.database()).unwrap();
            assert_eq!(kept.len(), bytes.len(), "{what}: it is kept as it is");
        }
        pool.kill9(Program::Poold);
        code
    };
    let half = &good[..good.len() / 2];
    for (what, bytes) in [("half", half), ("garbage", &vec![0x5a; 8192][..]), ("a few bytes", &good[..100])] {
        assert_eq!(attempt(bytes, what), 9, "{what}");
        assert_eq!(fs::read(pool.database()).unwrap(), bytes, "{what}: nothing was written over it");
    }
    let flips = number("POOL_BIT_FLIPS", 10);
    for n in 0..flips {
        let mut flipped = good.clone();
        let at = (good.len() / (flips + 1) * n + 97 * (n + 1)) % good.len();
        flipped[at] ^= 1 << (n % 8);
        attempt(&flipped, &format!("a bit at {at}"));
    }
    assert_eq!(attempt(&good, "untouched"), 0);
}

/// `poold` with one system call failing as `fault` says.
fn with_faults(pool: &Pool, fault: &str) -> Command {
    let mut command = pool.command("strace");
    let (call, how) = fault.split_once(':').unwrap();
    // With -D the tracer is no parent: the started process is `poold` itself.
    command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={call}:{how}")]).arg(Program::Poold.path());
    command
}

/// Messages sent to each failing `poold`.
const MESSAGES: usize = 40;

/// Sends one message without retrying; its key and id if it was acknowledged.
fn send_once(pool: &Pool, key: String) -> Option<(String, u64)> {
    let hello = Hello::new(Role::Client, "", "test");
    let mut connection = Connection::connect_within(&pool.socket(), &hello, Some(PATIENCE)).ok()?.0;
    connection.set_timeout(Some(PATIENCE));
    let send = Send { key: Some(key.clone()), ..sending("prompt", b"text") };
    match connection.call(Some(OpId::Named(key.replace(' ', "-"))), None, Request::Send(send)) {
        Ok(Ok(Response::Sent(sent))) => Some((key, sent.message.id.0)),
        Ok(Err(refusal)) if refusal.code != ErrorCode::Storage => panic!("{key}: {refusal:?}"),
        _ => None,
    }
}

/// Faults in a normal run; `POOL_STRACE_FAULTS` sets more.
const FAULTS: usize = 20;

/// The n-th fault: each hits a later call, up to the last one reached; the first calls are those of opening
/// the database.
fn fault(n: usize) -> String {
    let ways = [
        ["fdatasync:error=EIO", "pwrite64:error=ENOSPC", "fdatasync:error=EIO", "pwrite64:error=EIO"],
        [
            "fdatasync:signal=SIGKILL",
            "ftruncate:error=ENOSPC",
            "fdatasync:error=ENOSPC",
            "pwrite64:signal=SIGKILL",
        ],
        ["fdatasync:error=EDQUOT", "ftruncate:error=EIO", "pwrite64:error=EDQUOT", "fdatasync:error=EROFS"],
    ];
    let (round, n) = (n / FAULTS, n % FAULTS);
    // Half of them fail once, half from then on.
    format!("{}:when={}{}", ways[round % 3][n % 4], n * 3 + 1 + round / 3, ["", "+"][n / 4 % 2])
}

/// Asserts that after the first failure nothing is acknowledged and `poold` exits, and that the next `poold`
/// has everything acknowledged. True if there was a failure.
fn survives(pool: &Pool, (n, fault): (usize, &str), acknowledged: &mut Vec<(String, u64)>) -> bool {
    pool.start_as(Program::Poold, with_faults(pool, fault));
    let answers = || pool.ctl(&["--timeout", "1s", "ls"]).code == 0;
    let opened = eventually("poold answers or ends", PATIENCE, || {
        pool.ended(Program::Poold).map(|_| false).or_else(|| answers().then_some(true))
    });
    let mut failed = !opened;
    if opened {
        for m in 0..MESSAGES {
            match send_once(pool, format!("{n} {fault} {m}")) {
                Some(message) => {
                    assert!(!failed, "{fault}: message {m} was acknowledged after a failure");
                    acknowledged.push(message);
                }
                None => failed = true,
            }
        }
    }
    if failed {
        let code = if fault.contains("SIGKILL") { 137 } else { 9 };
        assert_eq!(pool.await_end(Program::Poold), code, "{fault}: {}", pool.logs());
    }
    pool.restart_poold();
    are_there(pool, acknowledged);
    pool.kill9(Program::Poold);
    failed
}

#[test]
fn d07_the_name_of_the_database_is_on_disk_before_anybody_can_connect() {
    if !may_trace() {
        return;
    }
    let pool = Pool::bare("");
    let (trace, database) = (pool.path("trace"), pool.database());
    let mut command = pool.command("strace");
    command.args([
        "-D",
        "-f",
        "-y",
        "-qq",
        "-e",
        "trace=fsync,fdatasync,rename,renameat,renameat2,link,linkat,bind",
    ]);
    command.arg("-o").arg(&trace).arg(Program::Poold.path());
    pool.start_as(Program::Poold, command);
    pool.await_poold();
    let calls = fs::read_to_string(&trace).unwrap();
    let calls: Vec<&str> = calls.lines().collect();
    let first = |what: &str, from: usize, is: &dyn Fn(&str) -> bool| {
        let at = calls[from..].iter().position(|call| is(call));
        from + at.unwrap_or_else(|| panic!("no {what} from {from} on: {calls:#?}"))
    };
    let (name, state) = (format!("\"{}\"", database.display()), format!("<{}>)", pool.state().display()));
    let named = first("name", 0, &|call| call.contains(&name) && !call.contains("bind("));
    let unnamed = format!("{}/.", pool.state().display());
    let whole = first("sync of the file", 0, &|call| call.contains("sync(") && call.contains(&unnamed));
    let synced =
        first("sync of the directory", named, &|call| call.contains("fsync(") && call.contains(&state));
    let bound = first("socket", 0, &|call| call.contains("bind(") && call.contains("poold.sock"));
    assert!(whole < named && synced < bound, "{calls:#?}");
}

#[test]
fn d05_after_the_first_failure_of_the_disk_nothing_is_acknowledged() {
    if !may_trace() {
        return;
    }
    thread::scope(|scope| {
        let faults = number("POOL_STRACE_FAULTS", FAULTS);
        for lane in 0..2 {
            scope.spawn(move || {
                let pool = Pool::bare("[queue]\nmax_messages = 1000000\n");
                pool.start_poold();
                pool.start(Program::Watch);
                pool.script("web", "exec sleep 1000");
                pool.kill9(Program::Watch);
                pool.kill9(Program::Poold);
                let mut acknowledged = Vec::new();
                let mine = (0..faults).filter(|n| n / (FAULTS / 2) % 2 == lane).map(fault);
                let (mut tried, mut met) = (0, 0);
                for (n, fault) in mine.enumerate() {
                    tried += 1;
                    met += usize::from(survives(&pool, (n, &fault), &mut acknowledged));
                }
                assert!(met >= tried / 4, "only {met} of {tried} faults were met");
            });
        }
    });
}

#[test]
fn a_job_that_cannot_be_written_whole_is_not_left() {
    if !is_root() || !has("mount") {
        return;
    }
    let mount;
    let pool = Pool::bare("[pool]\nmin_free_disk = '0B'\n");
    let run = pool.state().join("run");
    fs::DirBuilder::new().mode(0o700).create(pool.state()).unwrap();
    mount = Mount::new(run.clone(), "256k");
    if mount.is_none() {
        return;
    }
    pool.start_all();
    let variables: Vec<String> = (0..8).map(|n| format!("BIG{n}={}", "x".repeat(60_000))).collect();
    let mut new = vec!["new", "web"];
    new.extend(variables.iter().flat_map(|variable| ["--env", variable]));
    new.extend(["--", "sleep", "1000"]);
    let failed = pool.ctl(&new);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains("cannot write the job file"), "{failed:?}");
    let jobs = || {
        let names = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".job")).count()
    };
    assert_eq!(jobs(), 0, "it holds the environment");
    pool.ok(&["new", "small", "--", "sleep", "1000"]);
    // A job alone fits, and not the records of its start. `new` looks for 64 KiB before that.
    let filler = fs::File::options().write(true).open(fill(&run)).unwrap();
    filler.set_len(filler.metadata().unwrap().len() - 18 * 4096).unwrap();
    let failed = pool.ctl(&["new", "late", "--clean-env", "--env", &variables[0], "--", "sleep", "1000"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains("cannot write the job file"), "{failed:?}");
    assert_eq!(jobs(), 0);
}

#[test]
fn a_daemon_keeps_the_log_short_that_somebody_else_appends_for_it() {
    let pool = Pool::bare("");
    let log = pool.state().join("log/poold.log");
    fs::create_dir_all(log.parent().unwrap()).unwrap();
    fs::set_permissions(pool.state(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(&log, vec![b'x'; 5 << 20]).unwrap();
    // The log is the standard error of `poold`, as launchd sets it.
    let mut command = pool.command("sh");
    command.args(["-c", "exec \"$0\" 2>>\"$1\"", Program::Poold.path()]).arg(&log);
    pool.start_as(Program::Poold, command);
    pool.await_poold();
    wait_until("it is put aside", PATIENCE, || fs::metadata(&log).unwrap().len() < 1 << 20);
    assert_eq!(fs::metadata(log.with_extension("log.1")).unwrap().len() >> 20, 5);
}

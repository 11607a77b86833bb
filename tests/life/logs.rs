//! A session's log has every byte it wrote, across its runs, under a cap, whichever daemon dies.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;

use super::support::events;
use crate::faults::support::has;
use crate::harness::{Output, PATIENCE, Pool, Talk, log_writers, number, send_signal, wait_until};

/// Megabytes that one session writes; `POOL_FLOOD_MB` sets more.
const FLOOD_MB: usize = 40;
const CAP: u64 = 4 << 20;

/// Total size in bytes of a session's log files.
fn log_size(dir: &std::path::Path) -> u64 {
    files_size(&dir.join("logs"))
}

/// Total size in bytes of the files in a directory.
fn files_size(dir: &std::path::Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Median round trip of up to `many` sends; stops early once `over` is set.
#[track_caller]
fn median(pool: &Pool, many: usize, over: &AtomicBool) -> Duration {
    let one = |n: usize| {
        let began = Instant::now();
        pool.ok(&["send", "other", "--kind", "observation", &format!("message {n}")]);
        began.elapsed()
    };
    let mut times: Vec<Duration> =
        (0..many).take_while(|n| *n < 5 || !over.load(Ordering::Relaxed)).map(one).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_log_that_cannot_be_looked_at_is_a_problem_of_status() {
    let pool = Pool::new();
    let id = pool.script("web", "echo text; exec sleep 1000");
    let (logs, away) = (pool.dir(&id).join("logs"), pool.dir(&id).join("away"));
    let is_told = || pool.status()["problems"].to_string().contains("the log of web cannot be looked at");
    wait_until("its log is there", PATIENCE, || logs.join("output.log").exists());
    assert!(!is_told());
    fs::rename(&logs, &away).unwrap();
    fs::write(&logs, "a file in its place").unwrap();
    wait_until("it is told", PATIENCE, is_told);
    fs::remove_file(&logs).unwrap();
    fs::rename(&away, &logs).unwrap();
    wait_until("it is well again", PATIENCE, || !is_told());
}

#[test]
fn a_log_is_read_whole_or_not_at_all_however_few_files_may_be_open() {
    if !has("prlimit") {
        return;
    }
    let pool = Pool::with("[logs]\nmax_size = '1MiB'\n");
    let id = pool.ok(&["new", "web", "--", "seq", "1", "100000"]);
    pool.ok(&["wait", &id, "--for", "exit", "--timeout", "30s"]);
    let is_compressed = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".gz");
    let parts = || fs::read_dir(pool.dir(&id).join("logs")).unwrap().flatten().filter(is_compressed).count();
    wait_until("its parts are compressed", PATIENCE, || parts() > 1);
    let whole = pool.ok(&["logs", &id]);
    assert!(whole.starts_with("1\n2\n") && whole.ends_with("100000"));
    let poolctl = pool.poolctl().get_program().to_owned();
    let read = |files: u32| {
        let mut command = pool.command("prlimit");
        command.arg(format!("--nofile={files}:{files}")).arg(&poolctl).args(["logs", &id]);
        Output::of(&mut command, b"")
    };
    let outputs: Vec<Output> = (4..16).map(read).collect();
    assert!(
        outputs.iter().all(|output| output.code != 0 || output.text() == whole),
        "{:?}",
        outputs[1].stderr
    );
    let code = |output: &Output| output.code;
    assert!(outputs.iter().map(code).min() == Some(0) && outputs.iter().map(code).max() > Some(0));
}

#[test]
fn g03_a_standard_error_that_is_kept_apart_is_in_a_log_of_its_own() {
    let pool = Pool::with("[logs]\nmax_size = '1MiB'\n[reaper]\ngrace = '200ms'\n");
    let script = "test -t 1 && echo out; test -t 2 && echo a terminal; echo wrong >&2; \
                  while read -r n; do seq 1 \"$n\" >&2; echo \"wrote $n\"; done";
    let id = pool.ok(&["new", "web", "--cwd", "own", "--stderr", "separate", "--", "sh", "-c", script]);
    assert_eq!((&pool.show(&id)["stderr"], &pool.status()["healthy"]), (&"separate".into(), &true.into()));
    let stderr = |flags: &[&str]| pool.ok(&[&["logs", &id, "--stderr"], flags].concat());
    wait_until("it is logged", PATIENCE, || stderr(&[]) == "wrong");
    assert_eq!(pool.ok(&["logs", &id]), "out");
    let line = pool.lines(&["logs", &id, "--stderr"]).remove(0);
    assert_eq!((&line["text"], line["at"].is_string()), (&"wrong".into(), true), "{line}");
    assert_eq!(stderr(&["--since", "1h", "--raw"]), "wrong");
    pool.ok(&["send", &id, "--wait", "done", "300000"]);
    wait_until("all is written", PATIENCE, || stderr(&["-n", "1"]) == "300000");
    assert!(files_size(&pool.dir(&id).join("logs/stderr")) <= 1 << 20, "its cap is that of a log");
    assert!(!pool.ok(&["logs", &id]).contains("299999"));
    pool.ok(&["clear", &id]);
    assert_eq!(stderr(&[]), "");
    pool.ok(&["send", &id, "--wait", "done", "3"]);
    wait_until("the log goes on", PATIENCE, || stderr(&[]) == "1\n2\n3");
    pool.ok(&["kill", &id]);
    let followed = pool.ctl(&["logs", &id, "--stderr", "-f"]).expect(0);
    assert_eq!(followed.stdout, "1\n2\n3\n");
    pool.ok(&["restart", &id]);
    wait_until("of each run", PATIENCE, || stderr(&["-n", "2"]) == "3\nwrong");
    pool.ok(&["--timeout", "60s", "rm", "--force", "--archive", &id]);
    let archives: Vec<_> = fs::read_dir(pool.state().join("archive")).unwrap().flatten().collect();
    let listed = std::process::Command::new("tar").arg("-tzf").arg(archives[0].path()).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("/logs/stderr/output.log"), "{listed:?}");
    let plain = pool.script("plain", "exec sleep 1000");
    assert_eq!(pool.show(&plain)["stderr"], "terminal");
    let refused = pool.ctl(&["logs", &plain, "--stderr"]).expect(5);
    assert!(refused.stderr.contains("--stderr separate"), "{refused:?}");
}

#[test]
fn g03_run_passes_a_standard_error_that_is_kept_apart_on_to_its_own() {
    let pool = Pool::with("");
    let script = "seq 1 50000 >&2; echo out; exit 3";
    let ran = pool.ctl(&["-q", "run", "--rm", "--stderr", "separate", "--", "sh", "-c", script]).expect(3);
    assert_eq!(ran.stdout, "out\n");
    let all: String = (1..=50_000).map(|n| format!("{n}\n")).collect();
    assert!(ran.stderr == all, "{} bytes of {}", ran.stderr.len(), all.len());
}

#[test]
fn g03_wait_looks_at_a_standard_error_that_is_kept_apart() {
    let pool = Pool::with("");
    let wait = |id: &str, what: &str| pool.ctl(&["--timeout", "60s", "wait", id, "--for", what]);
    let new = |script: &str| pool.ok(&["new", "--stderr", "separate", "--", "sh", "-c", script]);
    let live = new("echo out; echo wrong >&2; exec sleep 1000");
    wait(&live, "output:^wrong$").expect(0);
    wait(&live, "output:^out$").expect(0);
    // What it wrote before its end counts, and the other log does not decide that nothing matches.
    let ended = new("echo wrong >&2; exit 3");
    let result = wait(&ended, "exit,output:^wrong$").expect(0);
    assert_eq!(result.stdout, "output:^wrong$\n");
    wait(&ended, "output:neither").expect(1);
    wait(&ended, "exit").expect(3);
    assert_eq!(pool.ok(&["logs", &ended, "--stderr"]), "wrong");
}

#[test]
fn g03_the_events_of_a_session_are_in_its_log_of_events() {
    let pool = Pool::with("");
    let id = pool.script("web", "exit 3");
    pool.script("other", "exit 0");
    pool.await_lifecycle(&id, "stopped");
    let events = pool.ctl(&["events", "--session", &id, "--json"]).expect(0).stdout;
    assert!(events.contains("session_stopped"), "{events}");
    assert_eq!(pool.ctl(&["logs", &id, "--events"]).expect(0).stdout, events);
    assert_eq!(pool.ctl(&["logs", &id, "--events", "--since", "1h"]).expect(0).stdout, events);
    assert_eq!(pool.ctl(&["logs", &id, "--events", "--since", "2100-01-01T00:00:00Z"]).expect(0).stdout, "");
}

#[test]
fn g22_g26_show_counts_error_lines_and_tells_how_long_it_ran() {
    let pool = Pool::with("[agents.command]\nerror_patterns = ['FAILED', '^error:']\n");
    let id =
        pool.script("web", "echo FAILED one; echo fine; printf '\\033[31merror: two\\033[0m\\n'; exit 4");
    pool.await_lifecycle(&id, "stopped");
    let shown = pool.json(&["show", &id]);
    assert_eq!(
        (&shown["errors"]["count"], &shown["errors"]["last"]),
        (&2.into(), &"error: two".into()),
        "{shown}"
    );
    assert!(shown["errors"]["last_at"].is_string() && shown["started_at"].is_string(), "{shown}");
    assert_eq!(shown["exit"]["code"], 4);
    let duration = shown["duration_ms"].as_u64().unwrap();
    assert!(shown["account"]["max_rss_kib"].as_u64().unwrap() > 0);
    let text = pool.ok(&["show", &id]);
    assert!(text.lines().any(|line| line.starts_with("errors ") && line.ends_with(": error: two")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("duration ")), "{text}");
    assert_eq!(pool.show(&id)["duration_ms"].as_u64().unwrap(), duration, "it has ended");
    // The errors are those of the last run only.
    pool.ok(&["restart", &id]);
    pool.await_lifecycle(&id, "stopped");
    assert_eq!(pool.json(&["show", &id])["errors"]["count"], 2);
    let shell = pool.ok(&["new", "--agent", "shell"]);
    assert!(pool.json(&["show", &shell])["errors"].is_null(), "its kind has no patterns");
    let listed = pool.lines(&["ls", "--all"]);
    assert!(listed.iter().all(|session| session["errors"].is_null()), "only by show");
}

#[test]
fn g03_a_flood_stays_under_its_cap_and_others_go_on() {
    let bytes = number("POOL_FLOOD_MB", FLOOD_MB) * 1_000_000;
    let pool = Pool::with("[logs]\nmax_size = '4MiB'\nkeep = 3\n[reaper]\ngrace = '200ms'\n");
    pool.script("other", "exec sleep 1000");
    let calm = median(&pool, 40, &AtomicBool::new(false));
    let script = format!(
        "yes 'a line that is written again and again' | head -c {bytes}; echo; echo the end; touch over; exec sleep 1000"
    );
    let id = pool.script("flood", &script);
    let dir = pool.dir(&id);
    let (over, began) = (AtomicBool::new(false), Instant::now());
    let (most, loud) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut most, began) = (0, Instant::now());
            let limit = PATIENCE + Duration::from_secs(2) * u32::try_from(bytes / 1_000_000).unwrap();
            while !dir.join("work/over").exists() && began.elapsed() < limit {
                most = most.max(log_size(&dir));
                // Exactly as many lines as were asked for, while it grows.
                let lines = pool.ctl(&["logs", &id, "-n", "1"]).expect(0).stdout.lines().count();
                assert!(lines <= 1, "{lines}");
                thread::sleep(Duration::from_millis(50));
            }
            over.store(true, Ordering::Relaxed);
            most
        });
        let loud = median(&pool, 60, &over);
        (watch.join().unwrap(), loud)
    });
    let took = began.elapsed();
    assert!(dir.join("work/over").exists(), "it wrote all of it");
    assert!(most <= CAP && most > 0, "{most} bytes of log");
    wait_until("its end is logged", PATIENCE, || pool.ok(&["logs", &id, "--lines", "3"]).contains("the end"));
    assert!(log_size(&dir) <= CAP);
    use std::io::Write;
    let speed = bytes as f64 / 1e6 / took.as_secs_f64();
    drop(writeln!(
        std::io::stderr(),
        "flood: {} MB at {speed:.0} MB/s, log at most {most} bytes; a send took {calm:?} before it and {loud:?} in it",
        bytes / 1_000_000
    ));
}

#[test]
fn logs_follow_across_runs() {
    let pool = Pool::new();
    let id =
        pool.script("web", "n=$(wc -l <runs 2>/dev/null || echo 0); echo x >>runs; echo run $n; exec cat");
    let mut follow = pool.poolctl();
    let follow_args = ["logs", "-f", &id];
    let mut follow = Talk::start(follow.args(follow_args));
    let saw = |follow: &Talk, text: &str| follow.lines().iter().any(|line| line == text);
    wait_until("the first run is followed", PATIENCE, || saw(&follow, "run 0"));
    pool.ok(&["restart", &id]);
    wait_until("the next one too", PATIENCE, || saw(&follow, "run 1"));
    pool.ok(&["send", &id, "--wait", "done", "told"]);
    wait_until("and what it says", PATIENCE, || saw(&follow, "told"));
    pool.ok(&["kill", &id]);
    assert_eq!(follow.await_end(), Some(0), "it ends with the session: {}", follow.errors());
    let text = pool.ok(&["logs", &id]);
    assert!(text.find("run 0").unwrap() < text.find("run 1").unwrap(), "{text}");
}

#[test]
fn every_byte_is_logged_from_the_first_on() {
    let pool = Pool::new();
    let ids: Vec<String> =
        (0..10).map(|n| pool.script(&format!("s{n}"), &format!("printf 'first {n}'; exit 0"))).collect();
    for (n, id) in ids.iter().enumerate() {
        pool.ctl(&["wait", id, "--for", "exit"]).expect(0);
        wait_until("it is logged", PATIENCE, || pool.ok(&["logs", id, "--raw"]) == format!("first {n}"));
    }
}

#[test]
fn a_lost_log_writer_is_replaced_and_the_gap_is_marked() {
    let pool = Pool::new();
    let id = pool.script("web", "echo before; while read -r line; do echo \"got $line\"; done");
    let dir = pool.dir(&id);
    wait_until("it is logged", PATIENCE, || pool.ok(&["logs", &id]).contains("before"));
    let all = log_writers(&dir);
    assert_eq!(all.len(), 1, "{all:?}");
    send_signal(all[0], Signal::SIGKILL);
    // The agent never waits for its log.
    pool.ok(&["send", &id, "--wait", "done", "meanwhile"]);
    wait_until("it goes on", PATIENCE, || pool.ok(&["capture", &id]).contains("got meanwhile"));
    wait_until("another one writes", PATIENCE, || !events(&pool, "log_resumed").is_empty());
    pool.ok(&["send", &id, "--wait", "done", "after"]);
    wait_until("it is logged", PATIENCE, || pool.ok(&["logs", &id]).contains("got after"));
    let text = pool.ok(&["logs", &id]);
    assert!(text.contains("before") && text.contains("the log writer was lost"), "{text}");
    assert_eq!(log_writers(&dir).len(), 1);
}

#[test]
fn output_that_a_lost_writer_did_not_write_is_told_as_missing() {
    let pool = Pool::new();
    let script = "echo before; until [ -e go ]; do sleep 0.02; done; echo after";
    let mut run = Talk::start(pool.poolctl().args(["run", "web", "--cwd", "own", "--", "sh", "-c", script]));
    wait_until("it writes", PATIENCE, || run.lines() == ["before"]);
    let dir = pool.dir("web");
    send_signal(log_writers(&dir)[0], Signal::SIGKILL);
    wait_until("it is gone", PATIENCE, || log_writers(&dir).is_empty());
    fs::write(dir.join("work/go"), "").unwrap();
    assert_eq!(run.await_end(), Some(0));
    // The loss is told in the log, if poold has started another log writer meanwhile.
    let told = format!("{}{}", run.lines().join("\n"), run.errors());
    assert!(told.contains("the log writer was lost"), "{told}");
    let logs = pool.ctl(&["logs", "web"]).expect(0);
    assert!((logs.stdout + &logs.stderr).contains("the log writer was lost"));
    pool.ok(&["restart", "web"]);
    wait_until("the next writer marks it", PATIENCE, || {
        pool.ok(&["logs", "web"]).contains("writer was lost")
    });
}

#[test]
fn logs_begin_at_a_time() {
    let pool = Pool::new();
    let id = pool.script("web", "echo early; while [ ! -e go ]; do sleep 0.05; done; echo late; exec cat");
    wait_until("it is logged", PATIENCE, || pool.ok(&["logs", &id]).contains("early"));
    // Times are kept to about a second.
    let logged = SystemTime::now();
    wait_until("time goes by", PATIENCE, || {
        logged.elapsed().is_ok_and(|since| since > Duration::from_secs(2))
    });
    let since = humantime(SystemTime::now());
    fs::write(pool.dir(&id).join("work/go"), "").unwrap();
    wait_until("it is logged", PATIENCE, || pool.ok(&["logs", &id]).contains("late"));
    let text = pool.ok(&["logs", &id, "--since", &since]);
    assert!(text.contains("late") && !text.contains("early"), "{text}");
    assert!(pool.ok(&["logs", &id, "--since", "1h"]).contains("early"));
    let documents = pool.lines(&["logs", &id, "--since", &since]);
    assert_eq!(documents[0]["text"], "late", "{documents:?}");
    assert!(documents[0]["at"].as_str().unwrap() >= since.trim_end_matches('Z'), "{documents:?} {since}");
}

/// A time in UTC, in the form that `--since` reads.
fn humantime(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let output = std::process::Command::new("date")
        .args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%SZ"])
        .output();
    String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
}

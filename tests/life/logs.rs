//! A session's log has every byte it wrote, across its runs, under a cap, whichever daemon dies.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;

use super::support::{dir, events};
use crate::harness::{PATIENCE, Pool, Talk, number, pids, send_signal, wait_until, words};

/// Megabytes that one session writes; `POOL_FLOOD_MB` sets more.
const FLOOD_MB: usize = 100;
const CAP: u64 = 4 << 20;

/// Total size in bytes of a session's log files.
fn log_size(dir: &std::path::Path) -> u64 {
    let files = fs::read_dir(dir.join("logs")).into_iter().flatten().flatten();
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
fn g03_a_flood_stays_under_its_cap_and_others_go_on() {
    let bytes = number("POOL_FLOOD_MB", FLOOD_MB) * 1_000_000;
    let pool = Pool::with("[logs]\nmax_size = '4MiB'\nkeep = 3\n[reaper]\ngrace = '200ms'\n");
    pool.script("other", "exec sleep 1000");
    let calm = median(&pool, 40, &AtomicBool::new(false));
    let script = format!(
        "yes 'a line that is written again and again' | head -c {bytes}; echo; echo the end; touch over; exec sleep 1000"
    );
    let id = pool.script("flood", &script);
    let dir = dir(&pool, &id);
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
                thread::sleep(Duration::from_millis(5));
            }
            over.store(true, Ordering::Relaxed);
            most
        });
        let loud = median(&pool, 200, &over);
        (watch.join().unwrap(), loud)
    });
    let took = began.elapsed();
    assert!(dir.join("work/over").exists(), "it wrote all of it");
    assert!(most <= CAP && most > CAP / 4, "{most} bytes of log");
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

/// Pids of a session's log writers.
fn writers(dir: &std::path::Path) -> Vec<u32> {
    let logs = dir.join("logs").to_string_lossy().into_owned();
    let writes = |pid: &u32| {
        let line = words(*pid);
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.contains(&&b"log"[..]) && words.contains(&logs.as_bytes())
    };
    pids().into_iter().filter(writes).collect()
}

#[test]
fn a_lost_log_writer_is_replaced_and_the_gap_is_marked() {
    let pool = Pool::new();
    let id = pool.script("web", "echo before; while read -r line; do echo \"got $line\"; done");
    let dir = dir(&pool, &id);
    wait_until("it is logged", PATIENCE, || pool.ok(&["logs", &id]).contains("before"));
    let all = writers(&dir);
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
    assert_eq!(writers(&dir).len(), 1);
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
    fs::write(dir(&pool, &id).join("work/go"), "").unwrap();
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

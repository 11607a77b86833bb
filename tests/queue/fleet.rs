//! Workers of the pool under random kills: each message is worked once or dead with its reason, never more
//! handlers run than allowed, and none is left.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::{MessageId, SessionRef};

use super::support::{Client, sending, session};
use crate::harness::{Pool, number, parent, pids, send_signal, wait_until, words};

/// Number of messages; `POOL_WORKER_MESSAGES` sets more.
const MESSAGES: usize = 60;
const SESSIONS: usize = 20;
/// Cap on handlers that run at once.
const PROCESSES: usize = 4;
/// Time in which all messages have come to an end, for each of them.
const EACH: Duration = Duration::from_secs(2);
/// Pause between two kills.
const PAUSE: Duration = Duration::from_millis(400);
/// Number of messages for each kill: afterwards the rest is worked undisturbed, instead of for an hour by a last
/// host that is killed each time it has begun.
const MESSAGES_PER_KILL: usize = 6;
/// Number of kills of a short run.
const KILLS_AT_LEAST: usize = 50;

/// `steady` works; `hanging` hangs at every seventh message's first attempt; `failing` always fails, and leaves
/// its messages to `rescue`; `doomed` always fails, and has no fallback. A handler is one shell; its name is its
/// argument zero.
fn config(pool: &Pool) -> String {
    let dir = pool.path("work");
    let dir = dir.display();
    // A second handler of the same message would not get the lock, which ends with its process.
    let begin =
        format!("cd {dir}; exec 9>lock-$POOL_MESSAGE_ID; flock -n 9 || echo $POOL_MESSAGE_ID >>twice");
    let worker = |name: &str, kind: &str, script: &str, more: &str| {
        format!(
            "[workers.{name}]\ncommand = [\"sh\", \"-c\", '''{begin}; {script}''', \"fleet-handler\"]\n\
             kinds = [\"{kind}\"]\nidle_end = \"1s\"\ntimeout = \"1s\"\nlease = \"2s\"\n{more}\n"
        )
    };
    let hangs = "if [ $((POOL_MESSAGE_ID % 7)) = 0 ] && [ $POOL_MESSAGE_ATTEMPT = 1 ]; then exec sleep 1000; fi; exit 0";
    format!(
        "[pool]\nmax_sessions = 32\nmax_processes = {PROCESSES}\nmin_free_disk = \"0B\"\nmin_free_memory = \"0B\"\n\
         [queue]\nretry_backoff = \"10ms\"\nbreaker_failures = 0\nmax_attempts = 8\nkeep_count = 1000000\n\
         [events]\nkeep = 100000000\n\
         [restart]\nbackoff = \"20ms\"\nbackoff_max = \"100ms\"\nwindow = \"1s\"\nmax = 100\n\
         [reaper]\ngrace = \"200ms\"\ninterval = \"200ms\"\nstale_worker = \"10s\"\n\
         max_kills_per_minute = 100000\n{}{}{}{}{}",
        worker("steady", "a", "exit 0", ""),
        worker("hanging", "b", hangs, ""),
        worker("failing", "c", "exit 3", "fallback = [\"rescue\"]\nfallback_after = 2"),
        worker("rescue", "rescue", "exit 0", ""),
        worker("doomed", "d", "exit 4", ""),
    )
}

/// The running handlers.
fn handlers(pool: &Pool) -> Vec<u32> {
    let place = pool.path("work").display().to_string();
    let is_one = |pid: &u32| {
        let words = String::from_utf8_lossy(&words(*pid)).into_owned();
        words.starts_with("sh\0") && words.contains("fleet-handler") && words.contains(&place)
    };
    let all: Vec<u32> = pids().into_iter().filter(is_one).collect();
    // A command of a handler's shell still has the shell's words until it is executed.
    let is_handler = |pid: &u32| parent(*pid).is_some_and(|parent| !all.contains(&parent));
    all.iter().copied().filter(is_handler).collect()
}

/// The hosts of workers.
fn hosts(pool: &Pool) -> Vec<u32> {
    let place = pool.path("work").display().to_string();
    let is_one = |pid: &u32| {
        let words = String::from_utf8_lossy(&words(*pid)).into_owned();
        words.contains("\0work\0--host\0") && words.contains(&place) && !words.contains("\0exec\0")
    };
    pids().into_iter().filter(is_one).collect()
}

/// Checks that each message came to one end. Returns the number of dead ones.
#[track_caller]
fn check_ends(pool: &Pool, sent: &BTreeMap<MessageId, &str>) -> usize {
    let mut ends: BTreeMap<u64, Vec<(String, String)>> = BTreeMap::new();
    for event in pool.lines(&["events", "--kind", "message_done", "--kind", "message_dead"]) {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        ends.entry(event["id"].as_u64().unwrap()).or_default().push((text("kind"), text("reason")));
    }
    let mut dead = 0;
    for (id, kind) in sent {
        let ends = ends.get(&id.0).map(Vec::as_slice).unwrap_or_default();
        assert_eq!(ends.len(), 1, "message {id} of kind {kind}: {ends:?}");
        let is_dead = ends[0].0 == "message_dead";
        dead += usize::from(is_dead);
        assert!(is_dead || *kind != "d", "message {id} cannot be done");
        assert!(!is_dead || ends[0].1.contains("8 of 8 attempts: "), "message {id}: {ends:?}");
    }
    dead
}

#[test]
fn c15_workers_under_kills_work_each_message_once_and_never_more_than_their_cap_at_a_time() {
    let messages = number("POOL_WORKER_MESSAGES", MESSAGES);
    let pool = Pool::bare("");
    pool.configure(&config(&pool));
    pool.start_all();
    let sessions: Vec<String> = (0..SESSIONS).map(|n| format!("s{n}")).collect();
    sessions.iter().for_each(|name| drop(session(&pool, name)));
    let (over, most, kills) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut sent: BTreeMap<MessageId, &str> = BTreeMap::new();
    thread::scope(|scope| {
        let (pool, over, most, kills) = (&pool, &over, &most, &kills);
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(handlers(pool).len(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
        let mut client = Client::new(pool);
        for n in 0..messages {
            let kind = ["a", "a", "b", "c", "d"][n % 5];
            let to = SessionRef(sessions[n % SESSIONS].clone());
            let send = protocol::request::Send { session: to, ..sending(kind, b"work") };
            sent.insert(client.sent(send).unwrap(), kind);
        }
        drop(client);
        let killer = scope.spawn(move || {
            for n in 0..(messages / MESSAGES_PER_KILL).max(KILLS_AT_LEAST) {
                thread::sleep(PAUSE);
                if over.load(Ordering::Relaxed) {
                    return;
                }
                match (n % 5, hosts(pool)) {
                    (4, _) => pool.restart_poold(),
                    (3, hosts) if n % 2 == 1 => {
                        hosts.first().into_iter().for_each(|host| send_signal(*host, Signal::SIGSTOP));
                    }
                    (_, hosts) if !hosts.is_empty() => send_signal(hosts[n % hosts.len()], Signal::SIGKILL),
                    _ => continue,
                }
                kills.fetch_add(1, Ordering::Relaxed);
            }
        });
        let limit = EACH * u32::try_from(messages).unwrap().max(60);
        wait_until("every message has come to an end", limit, || {
            let status = pool.ctl(&["--json", "status"]);
            status.code <= 1
                && status.json()["queue"]["queued"] == 0
                && status.json()["queue"]["claimed"] == 0
        });
        over.store(true, Ordering::Relaxed);
        killer.join().unwrap();
    });
    let dead = check_ends(&pool, &sent);
    assert!(fs::metadata(pool.path("work/twice")).is_err(), "two handlers had one message");
    let most = most.into_inner();
    // On a busy machine all handlers may begin and end between two samples, so there is no lower bound.
    assert!(most <= PROCESSES, "{most} handlers at once");
    println!("counted: {} kills, {dead} dead, {most} handlers at most", kills.into_inner());
    wait_until("silence ends every host", Duration::from_secs(60), || {
        hosts(&pool).is_empty() && handlers(&pool).is_empty()
    });
}

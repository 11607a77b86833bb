//! Everything at once: sessions come and go, messages are sent and worked, locks are held, and all processes
//! are killed at random. At the end everything is stopped and counted: nothing is left, and no message is
//! lost or worked twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::held::events;
use super::support::slots;
use crate::harness::{
    Chance, PATIENCE, Pool, Program, Talk, eventually, log_writers, number, pids, send_signal, wait_until,
    words,
};

/// Duration in seconds; `POOL_CHAOS_SECONDS` sets more.
const SECONDS: usize = 8;
const CONFIG: &str = r#"
[pool]
max_sessions = 8
cgroup = "off"
min_free_disk = "0B"
min_free_memory = "0B"
idle_quiet = "100ms"
idle_settle = "100ms"
idle_timeout = "3s"
[queue]
retry_backoff = "0ms"
breaker_failures = 0
max_attempts = 1000000
max_messages = 1000000
keep_count = 1000000
[events]
keep = 100000000
[restart]
backoff = "50ms"
max = 128
[reaper]
grace = "200ms"
interval = "200ms"
hung = "2s"
stale_worker = "3s"
max_kills_per_minute = 100000
[agents.keeper]
command = "sh"
args = ["-c", "while IFS= read -r line; do echo got $line; done"]
parkable = true
"#;
/// The session whose messages are counted; it is never removed.
const WORKED: &str = "worked";
/// Programs of sessions: one that reads, one that ends, one that ignores requests to end, one that leaves
/// children behind.
const PROGRAMS: [&str; 4] = [
    "exec cat",
    "sleep 0.7; exit 1",
    "trap '' TERM HUP INT; while :; do sleep 0.3; done",
    "(setsid sleep 1000 &); sleep 1000 & echo; wait",
];

/// Counts by name.
#[derive(Default)]
struct Tally(Mutex<BTreeMap<String, usize>>);

impl Tally {
    fn note(&self, what: &str) {
        *self.0.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    fn text(&self) -> String {
        let all = self.0.lock().unwrap();
        all.iter().map(|(what, times)| format!("{what} {times}")).collect::<Vec<_>>().join(", ")
    }
}

struct Chaos<'a> {
    pool: &'a Pool,
    stop: AtomicBool,
    done: Tally,
    killed: Tally,
    /// Acknowledged messages.
    sent: Mutex<BTreeSet<u64>>,
    next: AtomicU64,
}

/// Sets the flag on drop, also when a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Prints past the test runner's capture.
fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "chaos: {text}"));
}

impl Chaos<'_> {
    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A user's actions, one after the other. Any may be refused; none may hang or crash.
    fn user(&self, mut chance: Chance) {
        while !self.over() {
            let name = format!("s{}", chance.below(10));
            let name = if chance.below(12) == 0 { WORKED } else { &name };
            let n = self.next.fetch_add(1, Ordering::Relaxed).to_string();
            let program = chance.pick(&PROGRAMS).unwrap();
            let mut args: Vec<&str> = match chance.below(16) {
                0 | 1 => vec!["new", name, "--wait-slot", "2s", "--agent", "keeper"],
                2 | 3 => vec![
                    "new",
                    name,
                    "--wait-slot",
                    "2s",
                    "--restart",
                    "on-failure",
                    "--",
                    "sh",
                    "-c",
                    program,
                ],
                4 => vec!["new", name, "--ephemeral", "--wait-slot", "1s", "--", "sh", "-c", program],
                5 | 6 => vec!["send", name, "text", &n],
                7 => vec!["keys", name, "x", "Enter"],
                8 => vec!["park", name],
                9 => vec!["restart", name],
                10 => vec!["restore", name],
                11 => vec!["kill", name],
                12 => vec!["lock", name, "--wait", "1s", "--lease", "2s", "--", "sleep", "0.3"],
                13 => vec!["lock", name, "--force", "--lease", "1s", "--", "sleep", "0.2"],
                14 => vec!["reap"],
                _ => vec!["rm", "--force", "--purge", name],
            };
            if name == WORKED {
                // This session always stays, and takes messages.
                match args[0] {
                    "rm" | "new" => args = vec!["send", name, "text"],
                    "kill" => args = vec!["restart", name],
                    _ => {}
                }
            }
            self.done.note(args[0]);
            let mut command = self.pool.poolctl();
            command.args(["--timeout", "6s"]).args(&args);
            let mut client = Talk::start(&mut command);
            if chance.below(8) == 0 {
                thread::sleep(Duration::from_millis(chance.below(100)));
                self.killed.note("poolctl");
                drop(client.end());
                continue;
            }
            let code = client.await_end();
            // Refused, timed out, no `poold`, or the end of a command under a lock.
            let expected =
                code.is_some_and(|code| (0..=9).contains(&code) || [130, 137, 143].contains(&code));
            assert!(expected, "{args:?}: {code:?} {}", client.errors());
        }
    }

    /// Sends messages for the workers, each until it is acknowledged.
    fn sender(&self) {
        for n in 0.. {
            let (key, kind) = (format!("k{n}"), ["one", "two"][n % 2]);
            loop {
                let args = ["--timeout", "6s", "send", WORKED, "--kind", kind, "--key", &key, &key];
                let told = self.pool.ctl(&args);
                if told.code == 0 {
                    self.sent.lock().unwrap().insert(told.text().parse().unwrap());
                    break;
                }
                // The session has ended for a moment, there is no `poold`, or it is slow.
                assert!([5, 6, 7].contains(&told.code), "{told:?}");
                self.done.note(&format!("message again ({})", told.code));
                if self.over() {
                    return;
                }
            }
            // Workers are slower than senders, and the queue has to be emptied at the end.
            while !self.over() && n % 64 == 63 && open_of(self.pool, kind).is_none_or(|open| open > 400) {
                thread::sleep(Duration::from_secs(1));
            }
            if self.over() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The workers' script: it records a message that another process is working at the same time.
    fn handler(&self) -> String {
        format!(
            "at={}/$POOL_MESSAGE_ID; for pid in $(cat $at 2>/dev/null); do case $(cut -d' ' -f3 /proc/$pid/stat 2>/dev/null) in \
             ''|Z|X) ;; *) echo $POOL_MESSAGE_ID >>{};; esac; done; echo $$ >>$at; sleep 0.05",
            self.pool.path("at").display(),
            self.pool.path("twice").display()
        )
    }

    fn work(&self, kind: &str, flags: &[&str]) -> Talk {
        let mut command = self.pool.poolctl();
        command.args(["work", WORKED, "--kind", kind, "--lease", "2s"]).args(flags);
        Talk::start(command.args(["--", "sh", "-c", &self.handler()]))
    }

    /// Runs workers of one kind; each is killed, stopped or told to end at some time.
    fn workers(&self, kind: &str, mut chance: Chance) {
        while !self.over() {
            let mut worker = self.work(kind, &[]);
            let until = Instant::now() + Duration::from_millis(300 + chance.below(4000));
            while Instant::now() < until && !self.over() {
                thread::sleep(Duration::from_millis(20));
            }
            match chance.below(3) {
                0 => {
                    self.killed.note("worker stopped");
                    send_signal(worker.pid(), Signal::SIGSTOP);
                    // The stopped worker is ended for its silence, or continues later.
                    let until = Instant::now() + Duration::from_millis(chance.below(5000));
                    while Instant::now() < until && !self.over() {
                        thread::sleep(Duration::from_millis(20));
                    }
                    send_signal(worker.pid(), Signal::SIGCONT);
                    send_signal(worker.pid(), Signal::SIGTERM);
                    worker.await_end();
                }
                1 => {
                    self.killed.note("worker");
                    drop(worker.end());
                }
                _ => {
                    send_signal(worker.pid(), Signal::SIGTERM);
                    worker.await_end();
                }
            }
        }
    }

    /// Kills something, and starts its replacement unless something else does.
    fn kill_something(&self, chance: &mut Chance, daemons: bool) {
        let pool = self.pool;
        for program in Program::ALL {
            if let Some(code) = pool.ended(program) {
                panic!("{} ended by itself with {code}: {}", program.name(), pool.logs());
            }
        }
        match chance.below(if daemons { 14 } else { 9 }) {
            0..=4 => self.kill_one(
                "process of a session",
                chance,
                pool.marked().into_iter().map(|(pid, _)| pid).collect(),
            ),
            5 | 6 => {
                let panes =
                    pool.tmux_panes("#{pane_pid}").iter().filter_map(|pid| pid.parse().ok()).collect();
                self.kill_one("init", chance, panes);
            }
            7 | 8 => self.kill_one("log writer", chance, log_writers(pool.path("").as_path())),
            9 => {
                let server = pool.tmux_pid().filter(|_| chance.below(4) == 0);
                self.kill_one("tmux server", chance, server.into_iter().collect());
            }
            10 | 11 => self.kill_daemon(Program::Poold, chance),
            12 => self.kill_daemon(Program::Reaper, chance),
            _ => self.kill_daemon(Program::Watch, chance),
        }
    }

    fn kill_one(&self, what: &str, chance: &mut Chance, among: Vec<u32>) {
        if let Some(pid) = chance.pick(&among) {
            send_signal(pid, Signal::SIGKILL);
            self.killed.note(what);
        }
    }

    fn kill_daemon(&self, program: Program, chance: &mut Chance) {
        self.pool.kill9(program);
        self.killed.note(program.name());
        thread::sleep(Duration::from_millis(chance.below(400)));
        self.pool.start(program);
    }
}

/// Numbers of everything in a pool that could leak, by name.
fn count(pool: &Pool) -> BTreeMap<&'static str, usize> {
    let socket = pool.tmux_socket();
    let clients = pids().into_iter().filter(|pid| {
        let line = words(*pid);
        let mut words = line.split(|byte| *byte == 0);
        words.next().is_some_and(|word| word.ends_with(b"tmux"))
            && words.any(|word| word == socket.as_os_str().as_bytes())
    });
    let entries =
        |path: &Path| fs::read_dir(path).map(|entries| entries.flatten().count()).unwrap_or_default();
    let of = |program: Program, what: &str| {
        let pid = pool.pid(program).unwrap();
        entries(Path::new(&format!("/proc/{pid}/{what}")))
    };
    let holds = pool.lines(&["generators"]).iter().map(|view| view["holds"].as_array().unwrap().len()).sum();
    BTreeMap::from([
        ("processes", pool.marked().len()),
        ("log writers", log_writers(pool.path("").as_path()).len()),
        ("panes", pool.tmux_panes("x").len()),
        ("tmux processes", clients.count()),
        ("poold descriptors", of(Program::Poold, "fd")),
        ("watch descriptors", of(Program::Watch, "fd")),
        ("reaper descriptors", of(Program::Reaper, "fd")),
        ("poold threads", of(Program::Poold, "task")),
        ("watch threads", of(Program::Watch, "task")),
        ("reaper threads", of(Program::Reaper, "task")),
        ("slots", usize::try_from(slots(pool)).unwrap()),
        ("claims", holds),
        ("sessions", pool.lines(&["ls", "--all"]).len()),
        ("session directories", entries(&pool.state().join("sessions"))),
        ("files in run/", entries(&pool.state().join("run"))),
    ])
}

/// Removes everything, with nothing else at work any more.
#[track_caller]
fn remove_all(pool: &Pool) {
    wait_until("everything is removed", PATIENCE * 2, || {
        for session in pool.lines(&["ls", "--all"]) {
            // A session that is just ending is removed the next time.
            let _told =
                pool.ctl(&["--timeout", "20s", "rm", "--force", "--purge", session["id"].as_str().unwrap()]);
        }
        pool.lines(&["ls", "--all"]).is_empty()
    });
    // Directories of sessions during whose removal `poold` died are left to `prune`.
    say(&format!("prune: {}", pool.ok(&["--json", "prune", "--purge"])));
}

/// The counts of a pool in which nothing runs any more.
#[track_caller]
fn at_rest(pool: &Pool) -> BTreeMap<&'static str, usize> {
    pool.await_complete();
    pool.ok(&["new", "first", "--", "sleep", "1000"]);
    pool.ok(&["rm", "--force", "--purge", "first"]);
    // Threads for slow work end after ten idle seconds.
    let mut last = count(pool);
    eventually("it rests", PATIENCE * 2, || {
        thread::sleep(Duration::from_millis(500));
        let now = count(pool);
        let rests = now == last && now["processes"] + now["panes"] == 0;
        last = now;
        rests.then(|| last.clone())
    })
}

#[test]
fn whatever_is_killed_nothing_is_left_and_no_message_is_lost_or_worked_twice() {
    let seconds = number("POOL_CHAOS_SECONDS", SECONDS) as u64;
    let seed = number("POOL_CHAOS_SEED", std::process::id() as usize) as u64;
    say(&format!("{seconds} s, seed {seed} (POOL_CHAOS_SEED)"));
    let pool = Pool::with(CONFIG);
    fs::create_dir(pool.path("at")).unwrap();
    let before = at_rest(&pool);
    pool.ok(&["new", WORKED, "--restart", "always", "--agent", "keeper"]);
    let chaos = Chaos {
        pool: &pool,
        stop: AtomicBool::new(false),
        done: Tally::default(),
        killed: Tally::default(),
        sent: Mutex::default(),
        next: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        let chaos = &chaos;
        let _ends = Ends(&chaos.stop);
        for n in 0..3 {
            scope.spawn(move || {
                let _ends = Ends(&chaos.stop);
                chaos.user(Chance::new(seed + n));
            });
        }
        for (n, kind) in ["one", "two"].into_iter().enumerate() {
            scope.spawn(move || chaos.workers(kind, Chance::new(seed + 10 + n as u64)));
        }
        scope.spawn(|| chaos.sender());
        let mut chance = Chance::new(seed + 20);
        let began = Instant::now();
        // The daemons of the last quarter live to the end, so that their leaks are seen.
        while !chaos.over() && began.elapsed() < Duration::from_secs(seconds) {
            chaos.kill_something(&mut chance, began.elapsed().as_secs() * 4 < seconds * 3);
            thread::sleep(Duration::from_millis(50 + chance.below(350)));
        }
    });
    say(&format!("done: {}", chaos.done.text()));
    say(&format!("killed: {}", chaos.killed.text()));
    settle(&pool, &chaos, &before);
}

/// Number of unfinished messages of a kind; none while there is no `poold`. A listing of all kinds would end
/// at a thousand.
fn open_of(pool: &Pool, kind: &str) -> Option<usize> {
    let states = ["queued", "claimed", "revoking"].map(|state| ["--state", state]);
    let args =
        [&["--json", "queue", "ls", WORKED, "--kind", kind, "--limit", "1000000"], states.as_flattened()]
            .concat();
    let told = pool.ctl(&args);
    (told.code == 0).then(|| told.json_lines().len())
}

/// Asserts that every message is worked, everything is ended, and nothing is left.
#[track_caller]
fn settle(pool: &Pool, chaos: &Chaos<'_>, before: &BTreeMap<&'static str, usize>) {
    let connected = || {
        pool.status()["components"].as_array().unwrap().iter().filter(|one| one["connected"] == true).count()
    };
    wait_until("all daemons are there", PATIENCE, || connected() == 2);
    for kind in ["one", "two"] {
        let mut last = chaos.work(kind, &["--until-empty"]);
        // No matter how many are left, as long as they become fewer.
        let (mut least, mut since) = (usize::MAX, Instant::now());
        loop {
            let left = open_of(pool, kind).expect("poold answers");
            if left < least {
                (least, since) = (left, Instant::now());
            }
            if left == 0 {
                break;
            }
            assert!(since.elapsed() < PATIENCE * 2, "{left} of {kind} are left: {}", last.errors());
            // Claims of a dying worker returned after this worker had ended.
            if last.has_ended() {
                last = chaos.work(kind, &["--until-empty"]);
            }
            thread::sleep(Duration::from_millis(200));
        }
        last.await_end();
    }
    let done = events(pool, &["message_done"]);
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    done.iter().for_each(|event| *times.entry(event["id"].as_u64().unwrap()).or_default() += 1);
    let sent = chaos.sent.lock().unwrap();
    let lost: Vec<&u64> = sent.iter().filter(|id| !times.contains_key(id)).collect();
    let again: Vec<&u64> = sent.iter().filter(|id| times.get(id).is_some_and(|times| *times > 1)).collect();
    let twice = fs::read_to_string(pool.path("twice")).unwrap_or_default();
    say(&format!(
        "messages: {} sent, {} lost, {} done again, {} at once",
        sent.len(),
        lost.len(),
        again.len(),
        twice.lines().count()
    ));
    remove_all(pool);
    let what = |after: &BTreeMap<&'static str, usize>| {
        let pairs = after.iter().map(|(what, now)| format!("{what} {now} ({})", before[what]));
        pairs.collect::<Vec<_>>().join(", ")
    };
    let mut after = at_rest(pool);
    // Threads for slow work stay as many as were needed at once: every status check uses some.
    let slack = |what: &str| match what {
        what if what.contains("threads") => 8,
        what if what.contains("descriptors") => 3,
        _ => 0,
    };
    let too_much = |after: &BTreeMap<&'static str, usize>| {
        let found = after.iter().find(|(what, now)| **now > before[*what] + slack(what));
        found.map(|(what, _)| *what)
    };
    let limit = Instant::now() + PATIENCE;
    while too_much(&after).is_some() && Instant::now() < limit {
        thread::sleep(Duration::from_millis(500));
        after = count(pool);
    }
    say(&format!("left (before): {}", what(&after)));
    assert!(
        lost.is_empty() && again.is_empty() && twice.is_empty(),
        "lost {lost:?}, again {again:?}, at once {twice}"
    );
    assert!(!sent.is_empty(), "nothing was sent");
    assert_eq!(too_much(&after), None, "{after:#?}, before: {before:#?}");
}

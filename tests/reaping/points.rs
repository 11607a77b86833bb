//! `poold`, the reaper or the tmux server dies at each step of an end. Afterwards everything is gone, its
//! slot is free, no message is worked twice at once, no claim is left, and no bystander is touched.

use std::cell::OnceCell;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::held::lines_of;
use super::support::{Ours, Process, events, over, slots, stray};
use crate::faults::support::crashing;
use crate::harness::{PATIENCE, Pool, Program, Talk, eventually, number, send_signal, wait_until};

const CONFIG: &str = "[pool]\ncgroup = 'off'\nmin_free_disk = '0B'\nmin_free_memory = '0B'\n[queue]\nretry_backoff = '0ms'\n\
                      breaker_failures = 0\nmax_attempts = 1000\n[reaper]\ngrace = '200ms'\ninterval = '100ms'\n\
                      max_kills_per_minute = 100000\n";

/// A process that dies, and the moment.
#[derive(Debug, Clone, Copy)]
enum Death {
    /// `poold`, at a crash point.
    Poold(&'static str),
    /// The reaper, at a crash point.
    Reaper(&'static str),
    /// The reaper, as soon as it has a lease.
    ReaperAtWork,
    /// Reaper and `poold`.
    Both,
    /// The tmux server.
    Server,
}

/// Deaths of a normal run: between signals and their record, where the simulator has its own model of processes.
const FEW: [Death; 5] = [
    Death::Poold("reap-leased"),
    Death::Reaper("reap-ended"),
    Death::Reaper("reap-verdict"),
    Death::Both,
    Death::Server,
];

/// Deaths of each round that `POOL_CRASH_ROUNDS` asks for.
const DEATHS: [Death; 13] = [
    Death::Poold("reap-leased"),
    Death::Poold("commit-begin"),
    Death::Poold("commit-begin:2"),
    Death::Poold("commit-begin:3"),
    Death::Poold("commit-written"),
    Death::Poold("commit-written:2"),
    Death::Poold("commit-written:3"),
    Death::Poold("commit-written:4"),
    Death::Reaper("reap-ended"),
    Death::Reaper("reap-verdict"),
    Death::ReaperAtWork,
    Death::Both,
    Death::Server,
];

fn leases(pool: &Pool) -> usize {
    // If there is no `poold`, there is no output.
    let told = pool.ctl(&["--json", "--timeout", "2s", "events", "--kind", "reap_started"]);
    told.stdout.lines().count()
}

/// Makes the death happen during an end, and replaces the dead process. `begin` starts the end; `is_over` is
/// true once nothing is left.
#[track_caller]
fn across(pool: &Pool, death: Death, begin: impl FnOnce(), is_over: impl Fn() -> bool) {
    match death {
        Death::Poold(point) => {
            pool.kill9(Program::Poold);
            pool.start_as(Program::Poold, crashing(pool, point));
        }
        Death::Reaper(point) => {
            pool.kill9(Program::Reaper);
            let mut command: Command = pool.daemon(Program::Reaper);
            command.env("POOL_CRASH_AT", point);
            pool.start_as(Program::Reaper, command);
        }
        _ => {}
    }
    let before = leases(pool);
    begin();
    let leased = || leases(pool) > before;
    match death {
        Death::Poold(_) => {
            wait_until("poold dies", PATIENCE, || pool.ended(Program::Poold).is_some() || is_over());
            pool.kill9(Program::Poold);
            pool.start(Program::Poold);
        }
        Death::Reaper(point) => {
            let died = || pool.ended(Program::Reaper);
            assert_eq!(eventually("the reaper dies", PATIENCE, died), 134, "{point}: {}", pool.logs());
            pool.kill9(Program::Reaper);
            pool.start(Program::Reaper);
        }
        Death::ReaperAtWork => {
            wait_until("it is leased", PATIENCE, leased);
            pool.kill9(Program::Reaper);
            pool.start(Program::Reaper);
        }
        Death::Both => {
            wait_until("it is leased", PATIENCE, leased);
            pool.kill9(Program::Reaper);
            pool.restart_poold();
            pool.start(Program::Reaper);
        }
        Death::Server => {
            wait_until("it is leased", PATIENCE, leased);
            if let Some(server) = pool.tmux_pid() {
                send_signal(server, Signal::SIGKILL);
                wait_until("the server is dead", PATIENCE, || crate::harness::gone(server));
            }
        }
    }
    pool.await_poold();
    wait_until(&format!("{death:?}: nothing is left of it"), PATIENCE * 2, is_over);
}

/// A session that must not be affected; replaced by a new one where the server died.
struct Bystander<'a> {
    pool: &'a Pool,
    agent: Process,
}

impl<'a> Bystander<'a> {
    #[track_caller]
    fn new(pool: &'a Pool) -> Self {
        let id = pool.script("bystander", "exec sleep 1000");
        Self { pool, agent: Process::of(pool.pane_pids(&id).0).unwrap() }
    }

    /// Asserts that it runs as before and has the only slot, and that there are no locks or leases.
    #[track_caller]
    fn check(&mut self, death: Death) {
        if matches!(death, Death::Server) {
            wait_until("it is lost", PATIENCE, || self.pool.lifecycle("bystander") != "live");
            wait_until("nothing of it is left", PATIENCE, || slots(self.pool) == 0);
            self.pool.ok(&["rm", "--force", "--purge", "bystander"]);
            *self = Self::new(self.pool);
        }
        assert!(self.agent.runs(), "{death:?}");
        let pool = self.pool;
        wait_until(&format!("{death:?}: one slot is taken"), PATIENCE, || slots(pool) == 1);
        assert_eq!(pool.lifecycle("bystander"), "live", "{death:?}");
        for view in pool.lines(&["generators"]) {
            assert_eq!(view["holds"], Value::from(Vec::<Value>::new()), "{death:?}: {view}");
        }
        let last = events(pool, "reap_finished", None).pop().unwrap();
        assert!(last["outcome"].to_string().contains("gone"), "{death:?}: {last}");
    }
}

/// Asserts that no file of the incarnation is left in `run/`.
#[track_caller]
fn no_files(pool: &Pool, death: Death, tag: &str) {
    let left = || {
        let names = fs::read_dir(pool.state().join("run")).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().contains(tag)).collect::<Vec<_>>()
    };
    wait_until(&format!("{death:?}: {:?} are gone", left()), PATIENCE, || left().is_empty());
}

/// Tag of a session's incarnation.
#[track_caller]
fn tag(pool: &Pool, name: &str) -> String {
    let panes = pool.tmux_panes("#{@pool_id} #{session_name}");
    panes.iter().find_map(|pane| pane.strip_suffix(&format!(" {name}"))).unwrap().to_owned()
}

/// The processes whose pids a file lists.
#[track_caller]
fn noted(file: &Path, count: usize) -> Ours {
    Ours(super::support::noted(file, count))
}

fn none_runs(ours: &Ours) -> bool {
    ours.0.iter().all(|process| !process.runs())
}

/// Starts a session that ignores TERM: program, child, and a detached process.
fn stubborn(pids: &Path) -> String {
    let one = format!("trap '' TERM HUP INT; echo $$ >>{}; while :; do sleep 1; done", pids.display());
    format!("(setsid sh -c \"{0}\" &); sh -c \"{0}\" & {1}", one.replace('$', "\\$"), one)
}

/// Runs `with` for each death, in a pool of its own.
fn each(with: impl Fn(&Pool, Death, &str)) {
    let pool = Pool::with(CONFIG);
    let mut bystander = Bystander::new(&pool);
    let deaths = match number("POOL_CRASH_ROUNDS", 0) {
        0 => FEW.to_vec(),
        rounds => DEATHS.repeat(rounds),
    };
    for (n, death) in deaths.into_iter().enumerate() {
        with(&pool, death, &format!("v{n}"));
        bystander.check(death);
    }
    let kinds = events(&pool, "message_claimed", None).len();
    let ended = events(&pool, "message_failed", None).len() + events(&pool, "message_done", None).len();
    assert!(kinds <= ended, "a claim for each end");
}

#[test]
fn p05_a_death_at_any_step_of_a_kill_leaves_nothing() {
    each(|pool, death, name| {
        let pids = pool.path(name);
        let id = pool.script(name, &stubborn(&pids));
        let (ours, tag) = (noted(&pids, 3), tag(pool, name));
        // A client that finds no `poold` repeats its request.
        let args = ["--timeout", "60s", "kill", &id, "--op-id", name];
        let ask = || {
            eventually("there is a poold", PATIENCE * 2, || {
                Some(pool.ctl(&args)).filter(|told| told.code != 7)
            })
        };
        thread::scope(|scope| {
            let mut client = None;
            let begin = || client = Some(scope.spawn(ask));
            let stopped = || {
                let told = pool.ctl(&["--json", "--timeout", "2s", "show", &id]);
                none_runs(&ours) && told.code == 0 && told.json()["lifecycle"] == "stopped"
            };
            across(pool, death, begin, stopped);
            let told = client.unwrap().join().unwrap();
            assert!(told.code == 0 || told.stderr.contains("no reaper"), "{death:?}: {told:?}");
        });
        no_files(pool, death, &tag);
        pool.ok(&["rm", "--purge", &id]);
    });
}

#[test]
fn p05_a_death_at_any_step_of_the_end_of_a_zombie_pane_leaves_nothing() {
    each(|pool, death, name| {
        let (pids, go) = (pool.path(name), pool.path(format!("{name}.go")));
        let leaves = format!("(setsid sleep 1000 & echo $! >>{0}); echo $$ >>{0}", pids.display());
        let id = pool
            .script(name, &format!("{leaves}; until [ -e {} ]; do sleep 0.02; done; exit 3", go.display()));
        let (ours, tag) = (noted(&pids, 2), tag(pool, name));
        let stopped = || {
            let told = pool.ctl(&["--json", "--timeout", "2s", "show", &id]);
            none_runs(&ours)
                && told.code == 0
                && ["stopped", "lost"].iter().any(|state| told.json()["lifecycle"] == *state)
        };
        across(pool, death, || fs::write(&go, "").unwrap(), stopped);
        if !matches!(death, Death::Server) {
            assert_eq!(pool.show(&id)["exit"]["code"], 3, "{death:?}: {}", pool.show(&id));
        }
        wait_until("its pane is gone", PATIENCE, || !pool.tmux_panes("#{@pool_id}").contains(&tag));
        no_files(pool, death, &tag);
        pool.ok(&["rm", "--force", "--purge", &id]);
    });
}

#[test]
fn p05_a_death_at_any_step_of_the_end_of_a_worker_has_its_message_worked_once_at_a_time() {
    each(|pool, death, name| {
        let pids = pool.path(name);
        let id = pool.script(name, "exec sleep 1000");
        let message = pool.ok(&["send", &id, "--kind", "note", "text"]);
        // Each handler records whether another one is at work at the same time.
        let runs = pids.display();
        let script = format!(
            "for pid in $(cat {runs}); do case $(cut -d' ' -f3 /proc/$pid/stat) in ''|Z|X) ;; *) echo twice >>{runs}.twice;; esac; done; (setsid sleep 1000 & echo $! >>{runs}); \
             echo $$ >>{runs}; [ $(wc -l <{runs}) -gt 2 ] || exec sleep 1000; kill $(tail -n 2 {runs} | head -n 1)"
        );
        let worker = |lease: &str| {
            fs::OpenOptions::new().create(true).append(true).open(&pids).unwrap();
            let mut command = pool.poolctl();
            Talk::start(command.args(["work", &id, "--lease", lease, "--once", "--", "sh", "-c", &script]))
        };
        let first = worker("1s");
        let mut ours = noted(&pids, 2);
        ours.0.push(Process::of(first.pid()).unwrap());
        across(pool, death, || send_signal(first.pid(), Signal::SIGSTOP), || none_runs(&ours));
        let mut next = worker("1h");
        assert_eq!(next.await_end(), Some(0), "{death:?}: {}", next.errors());
        assert_eq!(pool.json(&["queue", "show", &id, &message])["state"], "done", "{death:?}");
        assert_eq!(lines_of(pool, name).len(), 4, "{death:?}: two runs");
        assert_eq!(lines_of(pool, &format!("{name}.twice")), Vec::<String>::new(), "{death:?}");
        let done = events(pool, "message_done", pool.show(&id)["id"].as_str());
        assert_eq!(done.len(), 1, "{death:?}: {done:#?}");
        pool.ok(&["rm", "--force", "--purge", &id]);
    });
}

#[test]
fn p05_a_death_at_any_step_of_the_end_of_an_orphan_leaves_nothing() {
    each(|pool, death, _| {
        let tag = over(pool);
        let socket = pool.socket();
        let begun = OnceCell::<Ours>::new();
        let begin =
            || {
                drop(begun.set(stray(
                    pool,
                    &[("POOL_INCARNATION", &tag), ("POOL_SOCKET", socket.to_str().unwrap())],
                )));
            };
        across(pool, death, begin, || begun.get().is_some_and(none_runs));
    });
}

//! Process trees that try to outlive their session: each is ended completely or named, and an identical tree
//! beside it is not touched.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::Signal;

use super::support::{Ours, Outside, Process, SOON, events, noted, slots, verdict, with_word};
use crate::faults::support::{has, is_root};
use crate::harness::{
    Output, PATIENCE, Pool, Program, Talk, gone, is_stopped, number, send_signal, wait_until,
};

/// Shape of a tree: its name in the script, and the number of its lasting processes.
struct Shape(&'static str, usize);

/// A pool beside a tree of the same shape, program, command line and directory in a terminal outside.
struct Grove {
    shape: Shape,
    mark: String,
    dir: PathBuf,
    bystander: Vec<Process>,
    outside: Outside,
    pool: Pool,
}

impl Grove {
    #[track_caller]
    fn new(shape: Shape) -> Self {
        let pool = Pool::with(SOON);
        let dir = pool.path("grove");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("tree.pl"), include_str!("tree.pl")).unwrap();
        let mark = format!("{}-{}", shape.0, pool.path("").file_name().unwrap().display());
        // A tree that forks for ever could not be recognised again, so the outside one does not fork.
        let outside = Outside::start(&pool, &dir, "STILL=1", &["perl", "tree.pl", shape.0, &mark]);
        let bystander = noted(&dir.join("pids"), shape.1);
        Self { shape, mark, dir, bystander, outside, pool }
    }

    /// Starts the tree in a session, and waits until it is complete.
    #[track_caller]
    fn plant(&self) -> (String, Vec<Process>) {
        fs::remove_file(self.dir.join("pids")).unwrap();
        let dir = self.dir.to_str().unwrap();
        let id =
            self.pool.ok(&["new", "tree", "--cwd", dir, "--", "perl", "tree.pl", self.shape.0, &self.mark]);
        (id, noted(&self.dir.join("pids"), self.shape.1))
    }

    /// Running processes of the session's tree.
    fn left(&self) -> Vec<Process> {
        let mut left = with_word(&self.mark);
        let server = self.outside.server();
        left.retain(|process| *process != server && !self.bystander.contains(process));
        left
    }

    #[track_caller]
    fn kill(&self, id: &str) -> Output {
        self.pool.ctl(&["--timeout", "60s", "kill", id])
    }

    /// Asserts that every process left when the kill returned was named, by it or in the verdict; returns
    /// them.
    #[track_caller]
    fn ended_or_named(&self, id: &str, killed: &Output) -> Vec<Process> {
        let left = self.left();
        let said = format!("{}{}", killed.stderr, verdict(&self.pool, id));
        for Process { pid, .. } in &left {
            assert!(
                said.contains(&format!("process {pid}@")),
                "{pid} runs on and is not named: {killed:?} {said}"
            );
        }
        assert!(killed.code == 0 || said.contains("survivors"), "{killed:?} {said}");
        left
    }

    /// Asserts that record and slot show the end, and that the bystander was not touched.
    #[track_caller]
    fn is_felled(&self, id: &str) {
        assert_eq!(self.left(), []);
        assert_eq!(self.pool.lifecycle(id), "stopped");
        assert_eq!(slots(&self.pool), 0);
        self.bystander_is_untouched();
        self.pool.ok(&["rm", id]);
    }

    #[track_caller]
    fn bystander_is_untouched(&self) {
        let hurt: Vec<_> = self.bystander.iter().filter(|process| !process.runs()).collect();
        assert!(hurt.is_empty(), "{hurt:?} of {} ended", self.bystander.len());
        assert_eq!(self.bystander.len(), self.shape.1);
        assert!(self.outside.is_untouched(&self.pool));
        CHECKS.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Grove {
    fn drop(&mut self) {
        drop(Ours(with_word(&self.mark)));
    }
}

/// Number of checks of bystanders.
static CHECKS: AtomicUsize = AtomicUsize::new(0);

/// Number of times that each tree is started and ended.
fn rounds() -> usize {
    number("POOL_TREES", 1)
}

/// Prints the number of bystanders checked so far on the real standard error.
fn tell() {
    // Failing to write harms nothing.
    drop(writeln!(std::io::stderr(), "counted: {} bystanders, none touched", CHECKS.load(Ordering::Relaxed)));
}

/// Starts the tree, kills it and checks, repeatedly.
#[track_caller]
fn fell(shape: Shape, look: impl Fn(&[Process])) {
    if !has("perl") {
        return;
    }
    let grove = Grove::new(shape);
    for _ in 0..rounds() {
        let (id, members) = grove.plant();
        look(&members);
        let killed = grove.kill(&id).expect(0);
        assert_eq!(grove.ended_or_named(&id, &killed), []);
        assert!(members.iter().all(|member| gone(member.pid)), "{members:?}");
        grove.is_felled(&id);
    }
    tell();
}

#[test]
fn p04_a_child() {
    fell(Shape("child", 2), |_| ());
}

#[test]
fn p04_an_orphan_by_double_fork() {
    fell(Shape("orphan", 2), |_| ());
}

#[test]
fn p04_a_child_in_a_session_of_its_own() {
    fell(Shape("setsid", 2), |_| ());
}

#[test]
fn p04_an_orphan_in_a_session_of_its_own() {
    fell(Shape("daemon", 2), |_| ());
}

#[test]
fn p04_an_orphan_in_a_session_of_its_own_without_an_environment() {
    fell(Shape("bare", 2), |_| ());
}

#[test]
fn p04_what_ignores_that_it_is_to_end() {
    fell(Shape("deaf", 2), |_| ());
}

#[test]
fn p04_what_is_stopped() {
    fell(Shape("stopped", 2), |members| {
        wait_until("one is stopped", PATIENCE, || members.iter().any(|member| is_stopped(member.pid)));
    });
}

#[test]
fn p04_what_leaves_its_dead_children_unburied() {
    fell(Shape("zombies", 2), |_| ());
}

#[test]
fn p04_a_chain_of_150() {
    fell(Shape("chain", 150), |_| ());
}

/// Its pane ends with the init, long before the process that ignores TERM.
#[test]
fn p03_what_kills_its_init_is_not_over_before_the_reaper_says_so() {
    fell(Shape("rebels", 2), |_| ());
}

/// Without a control group it may outrun the reaper: then it is named, and ended by a later attempt.
#[test]
fn p04_what_forks_for_ever() {
    if !has("perl") {
        return;
    }
    let grove = Grove::new(Shape("forks", 9));
    for _ in 0..rounds() {
        let (id, _) = grove.plant();
        wait_until("it forks", PATIENCE, || grove.left().len() > 20);
        let killed = grove.kill(&id);
        if killed.code != 0 {
            // The named processes have forked on by now.
            assert!(verdict(&grove.pool, &id)["survivors"]["left"][0].is_string(), "{killed:?}");
            grove.pool.await_lifecycle(&id, "stopped");
        }
        grove.is_felled(&id);
    }
    tell();
}

/// With the server dead there is no pane and no hang-up from its end: the reaper finds the rest.
#[test]
fn p04_what_ignores_the_hang_up_when_the_server_died() {
    if !has("perl") {
        return;
    }
    let grove = Grove::new(Shape("hangup", 3));
    for _ in 0..rounds() {
        let (id, members) = grove.plant();
        send_signal(grove.pool.tmux_pid().unwrap(), Signal::SIGKILL);
        wait_until("the server's end is seen", PATIENCE, || grove.pool.lifecycle(&id) != "live");
        let lost = grove.pool.await_lifecycle(&id, "lost");
        assert_eq!(lost["reason"], "server_gone", "{lost}");
        assert_eq!(grove.left(), []);
        assert!(members.iter().all(|member| gone(member.pid)), "{members:?}");
        assert!(verdict(&grove.pool, &id)["gone"].is_object());
        let begun = events(&grove.pool, "reap_started", Some(&id));
        assert!(begun.iter().all(|event| event["candidate_kind"] == "leftover"), "{begun:?}");
        assert_eq!(slots(&grove.pool), 0);
        grove.bystander_is_untouched();
        grove.pool.ok(&["rm", &id]);
    }
    tell();
}

/// A process of another user is not the pool's to end: it is ended with the rest or named.
#[test]
fn p04_what_became_another_user() {
    if !is_root() || !has("perl") {
        return;
    }
    let grove = Grove::new(Shape("other", 3));
    for _ in 0..rounds() {
        let (id, _) = grove.plant();
        let agent = Process::of(grove.pool.pane_pids(&id).0).unwrap();
        let killed = grove.kill(&id);
        let left = Ours(grove.ended_or_named(&id, &killed));
        assert!(!agent.runs() && left.0.len() <= 2, "{left:?}");
        left.end();
        grove.pool.await_lifecycle(&id, "stopped");
        grove.is_felled(&id);
    }
    tell();
}

/// Starts a session `web` whose program ignores all signals but KILL; returns its id and its program's pid.
fn deaf(pool: &Pool) -> (String, u32) {
    let deaf = "trap '' TERM HUP; : >ready; exec sleep 1000";
    let id = pool.ok(&["new", "web", "--cwd", "own", "--", "sh", "-c", deaf]);
    let (agent, _) = pool.pane_pids(&id);
    let work = pool.dir(&id).join("work");
    pool.await_file(work.join("ready"), |_| true);
    (id, agent)
}

#[test]
fn a_shorter_grace_ends_the_one_under_way() {
    let pool = Pool::bare("[reaper]\ngrace = '300ms'\ninterval = '100ms'\n");
    pool.ok(&["up"]);
    for end in [
        &["kill", "web", "--grace", "0"][..],
        &["kill", "web"],
        &["restart", "web", "--grace", "0"],
        &["rm", "web"],
        &["down", "--stop-sessions"],
    ] {
        let (id, agent) = deaf(&pool);
        let mut patient = Talk::start(pool.poolctl().args(["kill", "web", "--grace", "1h"]));
        wait_until("a reaper ends it", PATIENCE, || !events(&pool, "reap_started", Some(&id)).is_empty());
        assert!(!gone(agent));
        pool.ok(end);
        assert!(gone(agent), "{end:?}");
        patient.await_end();
        drop(pool.ctl(&["rm", "web"]));
    }
}

#[test]
fn p26_a_shorter_grace_ends_the_one_under_way_after_a_restart_of_poold_too() {
    let pool = Pool::bare("[reaper]\ngrace = '300ms'\ninterval = '100ms'\n");
    pool.start_all();
    let (id, agent) = deaf(&pool);
    let mut patient = Talk::start(pool.poolctl().args(["kill", "web", "--grace", "1h"]));
    wait_until("a reaper ends it", PATIENCE, || !events(&pool, "reap_started", Some(&id)).is_empty());
    assert!(!gone(agent));
    let leases = || events(&pool, "reap_started", Some(&id)).len();
    pool.restart_poold();
    wait_until("the reaper has its lease again", PATIENCE, || leases() == 2);
    // The configured grace does not take the place of the hour, nor does a new reaper.
    pool.kill9(Program::Reaper);
    pool.start(Program::Reaper);
    wait_until("the next reaper has it", PATIENCE, || leases() == 3);
    pool.ctl(&["--timeout", "1s", "wait", "web", "--for", "exit"]).expect(125);
    assert!(!gone(agent));
    pool.ok(&["--timeout", "30s", "kill", "web", "--grace", "0"]);
    assert!(gone(agent));
    patient.await_end();
}

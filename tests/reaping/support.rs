//! What several of these tests use: who runs, from when; a terminal outside; what was told of an end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Output, PATIENCE, Pool, alive, eventually, pids, send_signal, wait_until, words};
use nix::sys::signal::Signal;

/// What is to be ended is ended soon, and found soon.
pub(super) const SOON: &str = "[pool]\ncgroup = 'off'\nmin_free_disk = '0B'\nmin_free_memory = '0B'\n\
                               [reaper]\ngrace = '200ms'\ninterval = '100ms'\n";

/// One process, never another one with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    start: u64,
}

impl Process {
    /// That which has this number now.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let start = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        Some(Self { pid, start })
    }

    /// Whether it runs.
    pub(super) fn runs(self) -> bool {
        Self::of(self.pid) == Some(self) && alive(self.pid)
    }

    /// As others are told: what a mark of its says.
    pub(super) fn dotted(self) -> String {
        format!("{}.{}", self.pid, self.start)
    }
}

/// Processes that are ended with the test, however that ends.
#[derive(Debug, Default)]
pub(super) struct Ours(pub(super) Vec<Process>);

impl Ours {
    /// Ends them now.
    pub(super) fn end(&self) {
        for process in self.0.iter().filter(|process| process.runs()) {
            send_signal(process.pid, Signal::SIGKILL);
        }
        wait_until("they end", PATIENCE, || !self.0.iter().any(|process| process.runs()));
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        for process in self.0.iter().filter(|process| process.runs()) {
            send_signal(process.pid, Signal::SIGKILL);
        }
    }
}

/// What runs with this among the words of its command line.
pub(super) fn with_word(word: &str) -> Vec<Process> {
    let has = |pid: &u32| words(*pid).split(|byte| *byte == 0).any(|other| other == word.as_bytes());
    pids().into_iter().filter(has).filter_map(Process::of).filter(|process| process.runs()).collect()
}

/// The processes whose pids a file names, once it names so many; without those that have ended.
#[track_caller]
pub(super) fn noted(file: &Path, count: usize) -> Vec<Process> {
    let read = || fs::read_to_string(file).unwrap_or_default();
    let complete = || read().ends_with('\n') && read().lines().count() >= count;
    let patience = PATIENCE + Duration::from_millis(200) * u32::try_from(count).unwrap();
    wait_until(&format!("{} names {count} processes", file.display()), patience, complete);
    read().lines().filter_map(|pid| Process::of(pid.parse().unwrap())).collect()
}

/// A tmux server that is not the pool's, until this is dropped.
#[derive(Debug)]
pub(super) struct Outside {
    socket: PathBuf,
    server: Ours,
}

impl Outside {
    /// Runs this in a terminal of its own.
    #[track_caller]
    pub(super) fn start(pool: &Pool, dir: &Path, env: &str, program: &[&str]) -> Self {
        let socket = pool.path("outside.sock");
        let mut command = Self::tmux(pool, &socket);
        command
            .args(["-f", "/dev/null", "new-session", "-d", "-P", "-F", "#{pid}", "-e", env, "-c"])
            .arg(dir);
        let pid = Output::of(command.args(program), b"").expect(0).text().parse().unwrap();
        Self { socket, server: Ours(vec![Process::of(pid).unwrap()]) }
    }

    fn tmux(pool: &Pool, socket: &Path) -> Command {
        let mut command = pool.command("tmux");
        command.arg("-u").arg("-S").arg(socket);
        command
    }

    /// Its process.
    pub(super) fn server(&self) -> Process {
        self.server.0[0]
    }

    /// Whether it answers and has a session, of the same server as ever.
    #[track_caller]
    pub(super) fn is_untouched(&self, pool: &Pool) -> bool {
        let mut command = Self::tmux(pool, &self.socket);
        let said = Output::of(command.args(["-N", "list-sessions", "-F", "#{pid}"]), b"");
        said.text() == self.server().pid.to_string() && self.server().runs()
    }
}

/// The events of one kind about a session, or about all.
#[track_caller]
pub(super) fn events(pool: &Pool, kind: &str, session: Option<&str>) -> Vec<Value> {
    let all = pool.lines(&["events", "--kind", kind]);
    all.into_iter().filter(|event| session.is_none_or(|session| event["session"] == session)).collect()
}

/// What the reaper said first of a session.
#[track_caller]
pub(super) fn verdict(pool: &Pool, session: &str) -> Value {
    settled(pool, session)["outcome"].clone()
}

#[track_caller]
fn settled(pool: &Pool, session: &str) -> Value {
    let look = || events(pool, "reap_finished", Some(session)).into_iter().next();
    eventually("it is settled", PATIENCE, look)
}

/// How many slots are taken.
#[track_caller]
pub(super) fn slots(pool: &Pool) -> u64 {
    pool.status()["slots"]["used"].as_u64().unwrap()
}

/// A session that is over; its tag.
#[track_caller]
pub(super) fn over(pool: &Pool) -> String {
    let id = pool.script("over", "exec sleep 1000");
    pool.ok(&["kill", &id]);
    let tag = settled(pool, &id)["tag"].as_str().unwrap().to_owned();
    pool.ok(&["rm", &id]);
    tag
}

/// A process with these variables and no others, in a session of its own; it ends with the test.
#[track_caller]
pub(super) fn stray(pool: &Pool, env: &[(&str, &str)]) -> Ours {
    let mut command = Command::new("setsid");
    command.args(["sleep", "1000"]).env_clear().envs(env.iter().copied()).current_dir(pool.path("work"));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let process = Process::of(child.id()).unwrap();
    // It is waited for, so that it is gone once it has ended.
    std::thread::spawn(move || child.wait());
    Ours(vec![process])
}

/// A process with the mark of something that is over, until the pool has ended it.
#[track_caller]
pub(super) fn await_end(pool: &Pool, tag: &str) {
    let stray = stray(pool, &[("POOL_INCARNATION", tag), ("POOL_SOCKET", pool.socket().to_str().unwrap())]);
    wait_until("an orphan is ended", PATIENCE, || !stray.0[0].runs());
}

/// Waits until the pool has looked for orphans again, and has found one.
#[track_caller]
pub(super) fn await_look(pool: &Pool) {
    await_end(pool, &over(pool));
}

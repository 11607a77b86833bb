//! Shared helpers: processes identified by pid and start time, a terminal outside the pool, verdicts of the
//! reaper.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Output, PATIENCE, Pool, alive, eventually, pids, send_signal, wait_until, words};
pub(super) use crate::life::support::slots;
use nix::sys::signal::Signal;

/// Short intervals and graces: what should end is found and ended soon.
pub(super) const SOON: &str = "[pool]\ncgroup = 'off'\nmin_free_disk = '0B'\nmin_free_memory = '0B'\n\
                               [reaper]\ngrace = '200ms'\ninterval = '100ms'\n";

/// One process, never another one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    start: u64,
}

impl Process {
    /// The process that has this pid now.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let start = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        Some(Self { pid, start })
    }

    /// True if it runs.
    pub(super) fn runs(self) -> bool {
        Self::of(self.pid) == Some(self) && alive(self.pid)
    }

    /// The form used in marks: pid, dot, start time.
    pub(super) fn dotted(self) -> String {
        format!("{}.{}", self.pid, self.start)
    }
}

/// Processes killed at the end of the test, however it ends.
#[derive(Debug, Default)]
pub(super) struct Ours(pub(super) Vec<Process>);

impl Ours {
    /// Kills them now.
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

/// Running processes with `word` among the words of their command line.
pub(super) fn with_word(word: &str) -> Vec<Process> {
    let has = |pid: &u32| words(*pid).split(|byte| *byte == 0).any(|other| other == word.as_bytes());
    pids().into_iter().filter(has).filter_map(Process::of).filter(|process| process.runs()).collect()
}

/// Waits until a file lists `count` pids; returns the processes that still run.
#[track_caller]
pub(super) fn noted(file: &Path, count: usize) -> Vec<Process> {
    let read = || fs::read_to_string(file).unwrap_or_default();
    let complete = || read().ends_with('\n') && read().lines().count() >= count;
    let patience = PATIENCE + Duration::from_millis(200) * u32::try_from(count).unwrap();
    wait_until(&format!("{} names {count} processes", file.display()), patience, complete);
    read().lines().filter_map(|pid| Process::of(pid.parse().unwrap())).collect()
}

/// A tmux server that is not the pool's, killed on drop.
#[derive(Debug)]
pub(super) struct Outside {
    socket: PathBuf,
    server: Ours,
}

impl Outside {
    /// Runs a program in a terminal of that server.
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

    pub(super) fn server(&self) -> Process {
        self.server.0[0]
    }

    /// True if the same server answers and has a session.
    #[track_caller]
    pub(super) fn is_untouched(&self, pool: &Pool) -> bool {
        let mut command = Self::tmux(pool, &self.socket);
        let said = Output::of(command.args(["-N", "list-sessions", "-F", "#{pid}"]), b"");
        said.text() == self.server().pid.to_string() && self.server().runs()
    }
}

/// Events of one kind, about a session or all.
#[track_caller]
pub(super) fn events(pool: &Pool, kind: &str, session: Option<&str>) -> Vec<Value> {
    let all = pool.lines(&["events", "--kind", kind]);
    all.into_iter().filter(|event| session.is_none_or(|session| event["session"] == session)).collect()
}

/// The reaper's first verdict on a session.
#[track_caller]
pub(super) fn verdict(pool: &Pool, session: &str) -> Value {
    settled(pool, session)["outcome"].clone()
}

#[track_caller]
fn settled(pool: &Pool, session: &str) -> Value {
    let look = || events(pool, "reap_finished", Some(session)).into_iter().next();
    eventually("it is settled", PATIENCE, look)
}

/// Tag of a session that has ended.
#[track_caller]
pub(super) fn over(pool: &Pool) -> String {
    let id = pool.script("over", "exec sleep 1000");
    pool.ok(&["kill", &id]);
    let tag = settled(pool, &id)["tag"].as_str().unwrap().to_owned();
    pool.ok(&["rm", &id]);
    tag
}

/// A process with exactly these variables, in a session of its own; killed at the end of the test.
#[track_caller]
pub(super) fn stray(pool: &Pool, env: &[(&str, &str)]) -> Ours {
    let mut command = Command::new("setsid");
    command.args(["sleep", "1000"]).env_clear().envs(env.iter().copied()).current_dir(pool.path("work"));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let process = Process::of(child.id()).unwrap();
    // Waited for, so that no zombie stays.
    std::thread::spawn(move || child.wait());
    Ours(vec![process])
}

/// Waits until the pool has ended a process with the mark of something that has ended.
#[track_caller]
pub(super) fn await_end(pool: &Pool, tag: &str) {
    let stray = stray(pool, &[("POOL_INCARNATION", tag), ("POOL_SOCKET", pool.socket().to_str().unwrap())]);
    wait_until("an orphan is ended", PATIENCE, || !stray.0[0].runs());
}

/// Waits until the pool has searched for orphans again: it has ended a new one.
#[track_caller]
pub(super) fn await_look(pool: &Pool) {
    await_end(pool, &over(pool));
}

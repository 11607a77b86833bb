//! The reason why no daemon answers, as far as its disk, its locks and its log show it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use process::identity::{self, State};
use process::inspect::{machine, program};
use process::runtime::logfile;
use protocol::paths::is_same;
use protocol::{OsBytes, Paths, Refusal};

use crate::show::{escape, size, time};
use crate::{Context, supervisor_lock};

/// Free bytes on its disk below which a database cannot be written.
const FULL_DISK: u64 = 1 << 20;

/// Time after taking its lock within which a daemon has certainly started to listen: the time that the supervisor
/// allows for the first answer.
const START_LIMIT: Duration = Duration::from_secs(90);

/// Lines of poold's log that are looked at.
const LOG_LINES: usize = 20;

/// The options of `poold` for tasks of maintenance.
const TASKS: [&str; 4] = ["--check", "--compact", "--discard-quarantined", "--import"];

/// The record of poold's log that it has started.
const READY: &str = " INFO daemon::run: ready";

/// The places in which the reason for an absence is found.
#[derive(Debug)]
pub(crate) struct DaemonAbsence {
    paths: Paths,
}

impl DaemonAbsence {
    pub(crate) fn new(context: &Context) -> Self {
        Self { paths: context.paths.clone() }
    }

    /// True if a supervisor keeps the daemon of this socket running.
    pub(crate) fn is_kept(&self) -> bool {
        supervisor_lock::is_held(&self.paths.up_lock) && !self.is_elsewhere()
    }

    /// True if the socket is not that of the pool in the state directory, because `--socket` or `POOL_SOCKET` names
    /// another one. The locks and logs in the state directory then say nothing about the daemon that is asked.
    fn is_elsewhere(&self) -> bool {
        let Paths { socket, up_lock, .. } = &self.paths;
        let kept = supervisor_lock::last_terms(up_lock).socket;
        let own = kept.map_or_else(|| self.paths.own_socket(), |kept| PathBuf::from(kept.as_os_str()));
        !is_same(socket, &own)
    }

    /// Returns the error for a disk on which a daemon ends, and cannot start again: it is full, or read-only. `None` if
    /// it is neither.
    pub(crate) fn unwritable_disk(&self) -> Option<Refusal> {
        let state = &self.paths.state;
        let free = (machine::free_disk(state), machine::free_inodes(state));
        // The mount of a sandbox may be read-only, and that of poold not.
        let is_read_only = self.possible_daemon().is_none() && machine::is_read_only(state);
        unwritable(state, free, is_read_only).map(Refusal::storage)
    }

    /// Returns the error of a request that a listening daemon did not answer: within this time limit of the user's, or
    /// else within the usual time.
    pub(crate) fn of_silent_daemon(&self, limit: Option<Duration>) -> Refusal {
        let pid = self.daemon();
        let who = match pid {
            Some(pid) => format!("poold (pid {pid})"),
            None => format!("poold at {}", self.paths.socket.display()),
        };
        let stopped = self.possible_daemon().filter(|pid| is_stopped(*pid)).map(|stopped| {
            let it = if pid.is_some() { "it".to_owned() } else { named(Some(stopped)) };
            format!(": {it} is stopped; `kill -CONT {stopped}` lets it go on")
        });
        match limit {
            Some(limit) => {
                let what = format!("{who} did not answer within {}", time::exact(limit));
                Refusal::timeout(what + &stopped.unwrap_or_default())
            }
            None => {
                let next = stopped.or_else(|| pid.map(|_| self.watched())).unwrap_or_default();
                Refusal::unavailable(format!("{who} does not answer{next}"))
            }
        }
    }

    /// Returns the error if nobody listens although a daemon holds the pool's lock: it was not started by `poolctl
    /// up`, or its supervisor was killed. `None` if nobody holds the lock.
    pub(crate) fn of_unkept_daemon(&self) -> Option<Refusal> {
        if !supervisor_lock::is_held(&self.paths.lock) {
            return None;
        }
        if !self.is_elsewhere() {
            return Some(self.without_socket());
        }
        let (socket, state) = (self.paths.socket.display(), self.paths.state.display());
        let who = named(self.holder());
        Some(Refusal::unavailable(format!(
            "no poold answers at {socket}: {who}, which has {state}, may not listen there; check --socket, \
             POOL_SOCKET and POOL_STATE_DIR"
        )))
    }

    /// True if a daemon holds the pool's lock and may not listen yet, because it has just started, or recovers its
    /// database.
    pub(crate) fn is_starting(&self) -> bool {
        // A daemon that takes the lock writes its process id into the file.
        let taken = std::fs::metadata(&self.paths.lock).and_then(|lock| lock.modified()).ok();
        let is_new = taken.and_then(|at| at.elapsed().ok()).is_some_and(|time| time < START_LIMIT);
        let holder = self.holder();
        let starts = is_new || recovery(&self.paths.run).is_some();
        starts && holder.is_some_and(|pid| task(pid).is_none() && !is_stopped(pid))
    }

    /// Returns the error of a request to a daemon that holds its lock and is not reached: it has just started, is
    /// being stopped, runs for a task of maintenance only, or the file of its socket was removed.
    fn without_socket(&self) -> Refusal {
        let pid = self.holder();
        let who = named(pid);
        let socket = self.paths.socket.display();
        let why = if let Some(task) = pid.and_then(task) {
            format!(
                "{who} is at work on the database ({task}), and answers nobody meanwhile: try again once it has ended"
            )
        } else if self.is_starting() {
            format!("{who} is starting, and does not listen yet: try again")
        } else if self.paths.socket.exists() {
            let how = match pid.filter(|_| !self.is_kept()) {
                Some(pid) => format!("`kill {pid}`, and then start it again"),
                None => "`poolctl down` and `poolctl up` start it anew".to_owned(),
            };
            format!(
                "{who} runs, but does not listen at {socket}: unless it is just being stopped, {how}; sessions run on"
            )
        } else {
            let pool = &self.paths.pool;
            let unit = format!(
                "; one of a systemd socket unit does not: `systemctl --user restart tmux-pool@{pool}.socket \
                 tmux-pool@{pool}.service`, sessions run on"
            );
            let unit = if self.is_kept() { "" } else { unit.as_str() };
            format!(
                "{who} runs, but its socket {socket} is gone: unless it is just being stopped, it makes a new one \
                 within 15 s, or {} tells why not{unit}",
                self.paths.log("poold").display()
            )
        };
        Refusal::unavailable(why)
    }

    /// The process id of the daemon that is asked, if that process is stopped by a signal or a tracer.
    pub(crate) fn stopped_daemon(&self) -> Option<u32> {
        self.daemon().filter(|pid| is_stopped(*pid))
    }

    /// Says that a daemon still runs after `down`, which could not stop it: it does not answer, and was not started by
    /// `poolctl up`.
    pub(crate) fn left_running(&self) -> String {
        let pid = self.holder();
        let who = named(pid);
        match pid {
            None => format!("{who} still runs, but does not answer"),
            Some(pid) if is_stopped(pid) => {
                format!("{who} still runs, and is stopped: `kill -CONT {pid}` lets it go on")
            }
            Some(pid) => match task(pid) {
                Some(task) => format!("{who} is at work on the database ({task}): wait for its end"),
                None => format!("{who} still runs, but does not answer: `kill {pid}` ends it"),
            },
        }
    }

    /// Says what the supervisor will do with a daemon that hangs: `: its `poolctl up` (pid 5) ends and restarts it if
    /// …`.
    fn watched(&self) -> String {
        let up_lock = &self.paths.up_lock;
        if let Some(pid) = supervisor_lock::stopped_holder(up_lock) {
            return format!(
                ", and its `poolctl up` (pid {pid}), which would end it, is stopped: `kill -CONT {pid}` lets that go on"
            );
        }
        let limit = supervisor_lock::terms(up_lock).watchdog_ms.filter(|ms| *ms > 0);
        match supervisor_lock::holder(up_lock).zip(limit) {
            Some((holder, ms)) => format!(
                ": its `poolctl up` (pid {}) ends and restarts it if that lasts for {}",
                holder.pid,
                time::exact(Duration::from_millis(ms))
            ),
            None => format!(": see {}", self.paths.log("poold").display()),
        }
    }

    /// The process id of the daemon that is asked, if it holds the lock of the pool.
    fn daemon(&self) -> Option<u32> {
        self.holder().filter(|_| !self.is_elsewhere())
    }

    /// The process id of the daemon that is probably asked: the holder of the pool's lock, unless a supervisor keeps
    /// it at another socket. Without a supervisor, its socket is not known.
    fn possible_daemon(&self) -> Option<u32> {
        let is_possible = !supervisor_lock::is_held(&self.paths.up_lock) || !self.is_elsewhere();
        self.holder().filter(|_| is_possible)
    }

    /// The process id of the holder of the lock of the pool.
    fn holder(&self) -> Option<u32> {
        let pid = std::fs::read_to_string(&self.paths.lock).ok()?.trim().parse().ok();
        pid.filter(|_| supervisor_lock::is_held(&self.paths.lock))
    }

    /// Returns the error if no daemon answers although a supervisor runs, so that another `poolctl up` would start
    /// none. `None` without a supervisor.
    pub(crate) fn of_kept_daemon(&self, was_reached: bool) -> Option<Refusal> {
        let absent = (!self.paths.socket.exists() || !was_reached) && !self.is_elsewhere();
        let holder = supervisor_lock::holder(&self.paths.up_lock).filter(|_| absent)?;
        let (socket, pid) = (self.paths.socket.display(), holder.pid);
        if !self.paths.socket.exists() && supervisor_lock::is_held(&self.paths.lock) {
            return Some(self.without_socket());
        }
        if let Some(pid) = supervisor_lock::stopped_holder(&self.paths.up_lock) {
            let why = format!(
                "no poold answers at {socket}, and its supervisor (`poolctl up`, pid {pid}) is stopped, and starts \
                 none: `kill -CONT {pid}` lets it go on"
            );
            return Some(Refusal::unavailable(why));
        }
        let file = self.paths.log("poold");
        let log = file.display();
        let next = match last_error(&logfile::last_lines(&file, LOG_LINES)) {
            Some(text) => format!("{log} ends with: {}", escape::line(&text)),
            None => format!("{log} is empty: `poolctl down` and then `poolctl up` try again at once"),
        };
        let why = format!(
            "no poold answers at {socket}, although its supervisor runs (`poolctl up`, pid {pid}) and keeps trying, \
             unless somebody else had started poold: then `poolctl up` starts it; {next}"
        );
        Some(Refusal::unavailable(why))
    }
}

/// Returns why nothing can be written in this directory, with what helps: its disk has too few free bytes, or is
/// read-only.
fn unwritable(dir: &Path, free: (Option<u64>, Option<u64>), is_read_only: bool) -> Option<String> {
    let dir = dir.display();
    if is_read_only {
        return Some(format!(
            "the file system of {dir} is read-only here, and poold cannot run: mend it, or mount it to be written"
        ));
    }
    let bytes = free.0.filter(|bytes| *bytes < FULL_DISK).map(size::short);
    let free = bytes.or_else(|| free.1.filter(|inodes| *inodes == 0).map(|_| "no inodes".to_owned()))?;
    Some(format!("the disk of {dir} is full ({free} left), and poold cannot run: free some space there"))
}

/// The process id of the live daemon that recovers its database, and its progress in percent. A killed one leaves the
/// file.
pub(crate) fn recovery(run: &Path) -> Option<(u32, u8)> {
    let text = std::fs::read_to_string(run.join("recovery")).ok()?;
    let (pid, percent) = text.trim().split_once(' ')?;
    let (pid, percent) = (pid.parse().ok()?, percent.parse().ok()?);
    identity::identify(pid).ok()??;
    Some((pid, percent))
}

/// The daemon, with its process id as far as that is known.
fn named(pid: Option<u32>) -> String {
    pid.map_or_else(|| "poold".to_owned(), |pid| format!("poold (pid {pid})"))
}

/// The maintenance option with which this `poold` was started, if any. During such a task it holds the lock and does
/// not listen.
fn task(pid: u32) -> Option<&'static str> {
    let arguments = identity::identify(pid).ok()?.and_then(|id| program::argv(id).ok()?)?;
    TASKS.into_iter().find(|task| {
        let is_task = |argument: &OsBytes| {
            let rest = argument.0.strip_prefix(task.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'=')
        };
        arguments.iter().any(is_task)
    })
}

/// True if this process is stopped, by a signal or a tracer.
fn is_stopped(pid: u32) -> bool {
    identity::read(pid).is_ok_and(|found| found.is_some_and(|process| process.state == State::Stopped))
}

/// Returns the last error of a log, joined to one line. Without an error, or if poold has started since, returns the
/// last line of the log.
fn last_error(lines: &[String]) -> Option<String> {
    let last = lines.len().checked_sub(1)?;
    let error = lines.iter().rposition(|line| line.contains(" ERROR "));
    let from = error.filter(|from| !lines[*from..].iter().any(|line| line.contains(READY))).unwrap_or(last);
    let rest = lines[from + 1..].iter().take_while(|line| !begins_record(line));
    Some(lines[from..=from].iter().chain(rest).map(|line| line.trim()).collect::<Vec<_>>().join(" "))
}

/// True for the first line of a record in a log, which begins with its time: `2026-11-29T10:20:36.123456Z `.
fn begins_record(line: &str) -> bool {
    let time = line.split(' ').next().unwrap_or_default();
    humantime::parse_rfc3339(time).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Stdio;
    use std::time::SystemTime;

    use nix::fcntl::{Flock, FlockArg};
    use protocol::ErrorCode;

    use super::*;
    use crate::supervisor_lock::Terms;

    /// The absence in this empty directory.
    fn absence_in(dir: &Path) -> DaemonAbsence {
        let env = protocol::paths::Env {
            state_dir: Some(dir.as_os_str().to_owned()),
            home: Some(dir.to_owned()),
            ..Default::default()
        };
        let paths = Paths::new(&env).unwrap();
        std::fs::create_dir_all(&paths.run).unwrap();
        DaemonAbsence { paths }
    }

    /// Locks the file of the daemon, and writes this process id into it.
    fn hold(paths: &Paths, pid: u32) -> Flock<File> {
        let held = Flock::lock(File::create(&paths.lock).unwrap(), FlockArg::LockExclusive).ok().unwrap();
        std::fs::write(&paths.lock, pid.to_string()).unwrap();
        held
    }

    #[test]
    fn a_daemon_that_starts_has_not_lost_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let absence = absence_in(dir.path());
        let paths = &absence.paths;
        let me = std::process::id();
        let _up = supervisor_lock::try_acquire(&paths.up_lock, &Terms::default()).unwrap().unwrap();
        let held = hold(paths, me);
        let told = || absence.of_kept_daemon(false).unwrap().message;
        assert_eq!(told(), format!("poold (pid {me}) is starting, and does not listen yet: try again"));
        held.set_modified(SystemTime::now() - START_LIMIT).unwrap();
        let begins = format!("poold (pid {me}) runs, but its socket {} is gone: ", paths.socket.display());
        assert!(told().starts_with(&begins) && !told().contains("systemd"), "{}", told());
    }

    #[test]
    fn a_daemon_that_nobody_keeps_is_named_where_it_is_not_reached() {
        let dir = tempfile::tempdir().unwrap();
        let absence = absence_in(dir.path());
        assert!(absence.of_unkept_daemon().is_none());
        let me = std::process::id();
        let held = hold(&absence.paths, me);
        let told = |absence: &DaemonAbsence| absence.of_unkept_daemon().unwrap().message;
        assert!(absence.is_starting() && told(&absence).contains("is starting"), "{}", told(&absence));
        held.set_modified(SystemTime::now() - START_LIMIT).unwrap();
        assert!(!absence.is_starting() && told(&absence).contains("is gone: "), "{}", told(&absence));
        let unit = " restart tmux-pool@default.socket tmux-pool@default.service`";
        assert!(told(&absence).contains(unit), "{}", told(&absence));
        File::create(&absence.paths.socket).unwrap();
        let how = format!(": unless it is just being stopped, `kill {me}`, and then start it again;");
        let is_told = told(&absence).contains("does not listen at") && told(&absence).contains(&how);
        assert!(is_told, "the file is there: {}", told(&absence));
        assert!(absence.left_running().ends_with(&format!("`kill {me}` ends it")));
        let elsewhere = DaemonAbsence { paths: Paths { socket: "/nowhere".into(), ..absence.paths.clone() } };
        let who = format!("no poold answers at /nowhere: poold (pid {me}), which has ");
        assert!(told(&elsewhere).starts_with(&who), "{}", told(&elsewhere));
        let file = absence.paths.run.join("recovery");
        let recovers = |pid: u32| std::fs::write(&file, format!("{pid} 5\n")).unwrap();
        recovers(u32::MAX - 1);
        assert!(!absence.is_starting(), "that one was killed");
        recovers(me);
        assert!(absence.is_starting(), "a large database takes long");

        let script = ["-c", "read line", "poold", "--import=file"];
        let mut task = std::process::Command::new("sh").args(script).stdin(Stdio::piped()).spawn().unwrap();
        std::fs::write(&absence.paths.lock, task.id().to_string()).unwrap();
        assert!(!absence.is_starting() && told(&absence).contains("(--import)"), "{}", told(&absence));
        task.kill().unwrap();
        task.wait().unwrap();
    }

    #[test]
    fn of_a_socket_elsewhere_the_locks_of_the_directory_say_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let here = absence_in(dir.path());
        let socket = dir.path().join("other.sock");
        let other = DaemonAbsence { paths: Paths { socket: socket.clone(), ..here.paths.clone() } };
        let link = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&here.paths.run, link.path().join("run")).unwrap();
        let linked = link.path().join("run/poold.sock");
        let linked = DaemonAbsence { paths: Paths { socket: linked, ..here.paths.clone() } };
        let held = hold(&here.paths, std::process::id());
        assert!(!here.is_kept() && here.daemon().is_some() && other.daemon().is_none());
        let up = supervisor_lock::try_acquire(&here.paths.up_lock, &Terms::default()).unwrap().unwrap();
        assert!(here.is_kept() && linked.is_kept(), "the same file by another path");
        assert!(!other.is_kept() && other.of_kept_daemon(false).is_none());
        assert!(here.of_kept_daemon(false).is_some());
        drop(up);
        let terms = Terms { socket: Some(socket.as_path().into()), ..Terms::default() };
        let up = supervisor_lock::try_acquire(&here.paths.up_lock, &terms).unwrap().unwrap();
        assert!(other.is_kept() && other.daemon().is_some(), "the supervisor was started with it");
        assert!(!here.is_kept() && here.daemon().is_none());
        drop(held);
        let told = other.of_kept_daemon(false).unwrap().message;
        assert!(told.contains("other.sock") && told.contains("then `poolctl up` starts it"), "{told}");
        drop(up);
        let _held = hold(&here.paths, std::process::id());
        supervisor_lock::leave_orphaned(&here.paths.up_lock, &terms);
        assert!(other.daemon().is_some() && here.daemon().is_none(), "its supervisor was killed");
    }

    #[test]
    fn a_daemon_that_hangs_is_named_with_what_becomes_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let absence = absence_in(dir.path());
        let paths = &absence.paths;
        let told = |limit: Option<Duration>| {
            let told = absence.of_silent_daemon(limit);
            (told.code, told.message)
        };
        let socket = paths.socket.display();
        let unknown = format!("poold at {socket} does not answer");
        assert_eq!(told(None), (ErrorCode::Unavailable, unknown), "nobody holds the lock");

        let me = std::process::id();
        let _held = hold(paths, me);
        let limit = Some(Duration::from_millis(1500));
        let late = format!("poold (pid {me}) did not answer within 1s 500ms");
        assert_eq!(told(limit), (ErrorCode::Timeout, late));
        assert!(told(None).1.ends_with("poold.log"), "{:?}", told(None));
        let terms = Terms { watchdog_ms: Some(30_000), ..Terms::default() };
        let up = supervisor_lock::try_acquire(&paths.up_lock, &terms).unwrap().unwrap();
        let kept = format!(
            "poold (pid {me}) does not answer: its `poolctl up` (pid {me}) ends and restarts it if that lasts for 30s"
        );
        assert_eq!(told(None), (ErrorCode::Unavailable, kept));

        let mut child = std::process::Command::new("sh").args(["-c", "kill -STOP $$"]).spawn().unwrap();
        let pid = child.id();
        while !is_stopped(pid) {
            std::thread::yield_now();
        }
        std::fs::write(&paths.lock, pid.to_string()).unwrap();
        let stopped =
            format!("poold (pid {pid}) does not answer: it is stopped; `kill -CONT {pid}` lets it go on");
        assert_eq!(told(None), (ErrorCode::Unavailable, stopped));
        assert_eq!(absence.stopped_daemon(), Some(pid));
        let elsewhere = DaemonAbsence { paths: Paths { socket: "/nowhere".into(), ..paths.clone() } };
        assert!(!elsewhere.of_silent_daemon(None).message.contains("-CONT"), "its socket is known");
        drop(up);
        let told = elsewhere.of_silent_daemon(None).message;
        let possible = format!(
            "poold at /nowhere does not answer: poold (pid {pid}) is stopped; `kill -CONT {pid}` lets it go on"
        );
        assert_eq!(told, possible, "one with POOL_SOCKET, and no supervisor");
        let left = format!("poold (pid {pid}) still runs, and is stopped: `kill -CONT {pid}` lets it go on");
        assert_eq!(absence.left_running(), left);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_disk_that_cannot_be_written_is_named_with_what_helps() {
        let told = |free, is_read_only| unwritable(Path::new("/pool"), (free, Some(1)), is_read_only);
        assert_eq!((told(None, false), told(Some(FULL_DISK), false)), (None, None));
        let full = told(Some(4096), false).unwrap();
        assert!(full.starts_with("the disk of /pool is full (") && full.ends_with("free some space there"));
        let no_inodes = unwritable(Path::new("/pool"), (Some(FULL_DISK), Some(0)), false).unwrap();
        assert!(no_inodes.starts_with("the disk of /pool is full (no inodes left)"));
        let read_only = "the file system of /pool is read-only here, and poold cannot run: mend it, or mount it to be \
                         written";
        assert_eq!(
            (told(Some(0), true).as_deref(), told(None, true).as_deref()),
            (Some(read_only), Some(read_only))
        );
        let dir = tempfile::tempdir().unwrap();
        assert!(!machine::is_read_only(dir.path()) && !machine::is_read_only(&dir.path().join("none")));
    }

    #[test]
    fn an_error_of_several_lines_is_told_whole() {
        let told =
            |lines: &[&str]| last_error(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let log = [
            "2026-11-29T10:20:31.1Z INFO a: b",
            "2026-11-29T10:20:32.2Z ERROR poold: config.toml: TOML parse error at line 3",
            "  |",
            "3 | bad",
            "no value",
            "2026-11-29T10:20:33.3Z INFO c: d",
            "2026-11-29T10:20:34.4Z  INFO daemon::run: ready pool=default",
        ];
        let whole =
            "2026-11-29T10:20:32.2Z ERROR poold: config.toml: TOML parse error at line 3 | 3 | bad no value";
        assert_eq!(told(&log[..5]).as_deref(), Some(whole));
        assert_eq!(told(&log[..6]).as_deref(), Some(whole), "a record behind it is not of it");
        assert_eq!(told(&log).as_deref(), Some(log[6]), "it is over: poold has started since");
        assert_eq!(told(&log[..1]).as_deref(), Some(log[0]));
    }
}

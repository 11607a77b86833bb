//! What is the matter with a server that does not answer: from its process and its socket.

use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use process::identity::{self, Process, State};
use process::vitals::{Vitals, vitals};
use protocol::tmux::{Server, Silence, Trouble};
use protocol::{ProcId, ServerId, peer};
use tmux::{ServerRef, TmuxError};
use tokio::time::Instant;

/// A server that used more than this of the time between two looks, and answered nothing, spins.
const SPINNING: f64 = 0.7;
/// Two looks at the time a process used are at least so far apart: the kernel counts in 10 ms.
const APART: Duration = Duration::from_millis(250);
/// So many descriptors a server keeps free: with fewer it cannot take a connection in.
const SPARE: u64 = 2;
/// How far tmux's own start time, in whole seconds, may be from the kernel's.
const SLACK: u64 = 2;

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing yet.
    Silent,
    /// Nothing listens at the socket.
    NoServer,
    /// tmux itself cannot be run.
    NoTmux(String),
    /// Something else.
    Other(String),
}

impl From<&TmuxError> for Failure {
    fn from(error: &TmuxError) -> Self {
        match error {
            TmuxError::NoServer => Self::NoServer,
            TmuxError::TimedOut(_) => Self::Silent,
            TmuxError::Missing(_) | TmuxError::Spawn(_) => Self::NoTmux(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

/// How the server's process is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Life {
    /// None is known.
    Unknown,
    /// The system does not tell.
    Unseen,
    /// It has ended.
    Over,
    /// It lives, with these figures; and this share of a processor since the look before, if there
    /// was one.
    Alive(Vitals, Option<f64>),
}

/// Whether the socket's file can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Socket {
    There,
    Missing,
    Forbidden,
}

/// What is known about a server that does not answer.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) failure: Failure,
    pub(crate) pid: u32,
    pub(crate) life: Life,
    pub(crate) socket: Socket,
}

/// What follows of it; `None`: there is no server.
pub(crate) fn judge(evidence: &Evidence) -> Option<(Trouble, String)> {
    let Evidence { failure, pid, life, socket } = evidence;
    if let Failure::NoTmux(why) = failure {
        return Some((Trouble::NoTmux, why.clone()));
    }
    if *socket == Socket::Forbidden {
        return Some((Trouble::Forbidden, "this user may not open tmux's socket".to_owned()));
    }
    if let Life::Alive(vitals, share) = life {
        return Some(alive(*pid, vitals, *share, evidence));
    }
    match failure {
        Failure::NoServer if *life != Life::Unseen => None,
        Failure::NoServer => {
            Some((Trouble::Unknown, format!("the tmux server, pid {pid}, cannot be looked at")))
        }
        Failure::Silent => {
            Some((Trouble::Unknown, "what listens at tmux's socket does not answer".to_owned()))
        }
        Failure::NoTmux(why) | Failure::Other(why) => Some((Trouble::Unknown, why.clone())),
    }
}

fn alive(pid: u32, vitals: &Vitals, share: Option<f64>, evidence: &Evidence) -> (Trouble, String) {
    let full = |max: u64| vitals.open_files.is_some_and(|open| open.saturating_add(SPARE) >= max);
    if vitals.state == State::Stopped {
        (Trouble::Stopped, format!("the tmux server, pid {pid}, is stopped"))
    } else if evidence.socket == Socket::Missing {
        (Trouble::Unreachable, format!("the tmux server, pid {pid}, lives, and its socket's file is gone"))
    } else if let Some(max) = vitals.open_files_max.filter(|max| full(*max)) {
        (Trouble::Full, format!("the tmux server, pid {pid}, has all of its {max} file descriptors in use"))
    } else if share.is_some_and(|share| share > SPINNING) {
        (Trouble::Spinning, format!("the tmux server, pid {pid}, uses a whole processor and answers nothing"))
    } else {
        let why = match &evidence.failure {
            Failure::Silent => "does not answer",
            Failure::NoServer => "lives and does not listen at its socket",
            Failure::NoTmux(why) | Failure::Other(why) => why,
        };
        (Trouble::Unknown, format!("the tmux server, pid {pid}: {why}"))
    }
}

/// Looks at servers that do not answer, one look after the other.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// The time that a process had used, and when.
    used: Option<(ProcId, Duration, Instant)>,
    share: Option<f64>,
}

impl Looks {
    /// It answers.
    pub(crate) fn answered(&mut self) {
        *self = Self::default();
    }

    /// Looks at the server that was seen last, or at whoever listens at the socket.
    pub(crate) fn look(
        &mut self,
        failure: Failure,
        known: Option<ServerId>,
        path: &Path,
        now: Instant,
    ) -> Server {
        let socket = access_to(path);
        let held = known.map(|server| server.process).or(self.used.map(|(process, ..)| process));
        // A stopped server takes no connection in: each further one would wait there for its return.
        let stopped = held.is_some_and(is_stopped);
        let listens = match (socket, &failure) {
            (Socket::There, Failure::Silent) if !stopped => listener(path),
            _ => None,
        };
        let process = listens.or(held.filter(|_| stopped)).or(known.map(|server| server.process));
        let life = process.map_or(Life::Unknown, |id| self.life(id, now));
        let evidence = Evidence { failure, pid: process.map_or(0, |id| id.pid), life, socket };
        let Some((trouble, detail)) = judge(&evidence) else { return Server::Absent };
        let server = known.filter(|known| Some(known.process) == process && matches!(life, Life::Alive(..)));
        Server::Unknown(Silence { trouble, server, detail })
    }

    fn life(&mut self, id: ProcId, now: Instant) -> Life {
        let found = match vitals(id) {
            Ok(Some(found)) => found,
            Ok(None) => return Life::Over,
            Err(_) => return Life::Unseen,
        };
        match self.used.filter(|(process, ..)| *process == id) {
            Some((_, used, at)) if now.duration_since(at) >= APART => {
                let share =
                    found.cpu.saturating_sub(used).as_secs_f64() / now.duration_since(at).as_secs_f64();
                (self.used, self.share) = (Some((id, found.cpu, now)), Some(share));
            }
            Some(_) => {}
            None => (self.used, self.share) = (Some((id, found.cpu, now)), None),
        }
        Life::Alive(found, self.share)
    }
}

fn is_stopped(id: ProcId) -> bool {
    matches!(vitals(id), Ok(Some(Vitals { state: State::Stopped, .. })))
}

pub(crate) fn access_to(path: &Path) -> Socket {
    match access(path, AccessFlags::R_OK | AccessFlags::W_OK) {
        Ok(()) => Socket::There,
        Err(Errno::ENOENT | Errno::ENOTDIR) => Socket::Missing,
        Err(Errno::EACCES) => Socket::Forbidden,
        Err(_) => Socket::There,
    }
}

/// The tmux server that listens at the socket, as the kernel tells; it need not answer for that.
fn listener(path: &Path) -> Option<ProcId> {
    let stream = tmux::owner::look(path).ok()?;
    let process = identity::read(peer::of(&stream).ok()?.pid?).ok().flatten()?;
    (process.state != State::Zombie && process.comm.0.starts_with(b"tmux")).then_some(process.id)
}

/// The server's identity, where its process is certain: its start time is the one that tmux tells;
/// or, on a machine whose clock was set since, it is called tmux.
pub(crate) fn identify(server: ServerRef) -> Option<ServerId> {
    let process =
        identity::read(server.pid).ok().flatten().filter(|process| process.state != State::Zombie)?;
    let id = ServerId { process: process.id, started_at: server.started_at };
    is_plausible(&process, server.started_at, began(process.id)).then_some(id)
}

fn is_plausible(process: &Process, started_at: u64, began: Option<u64>) -> bool {
    began.is_none_or(|began| began.abs_diff(started_at) <= SLACK) || process.comm.0.starts_with(b"tmux")
}

/// When a process began, in seconds since the Unix epoch by the clock as it is set now.
#[cfg(target_os = "linux")]
fn began(process: ProcId) -> Option<u64> {
    use nix::time::{ClockId, clock_gettime};
    use nix::unistd::{SysconfVar, sysconf};
    let seconds = |clock| u64::try_from(clock_gettime(clock).ok()?.tv_sec()).ok();
    let ticks = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    let booted = seconds(ClockId::CLOCK_REALTIME)?.checked_sub(seconds(ClockId::CLOCK_BOOTTIME)?)?;
    booted.checked_add(process.start.checked_div(ticks)?)
}

/// When a process began, in seconds since the Unix epoch.
#[cfg(target_os = "macos")]
fn began(process: ProcId) -> Option<u64> {
    Some(process.start / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::child;

    const CALM: Vitals = Vitals {
        state: State::Running,
        cpu: Duration::ZERO,
        open_files: Some(9),
        open_files_max: Some(1024),
    };

    fn trouble(failure: Failure, life: Life, socket: Socket) -> Option<Trouble> {
        judge(&Evidence { failure, pid: 10, life, socket }).map(|(trouble, _)| trouble)
    }

    #[test]
    fn each_trouble_has_its_name() {
        use Failure::{NoServer, Silent};
        use Socket::{Forbidden, Missing, There};
        let alive = |vitals| Life::Alive(vitals, None);
        let stopped = Vitals { state: State::Stopped, ..CALM };
        let full = Vitals { open_files: Some(1022), ..CALM };
        let unlimited = Vitals { open_files_max: Some(u64::MAX), ..CALM };
        assert_eq!(trouble(Silent, alive(stopped), There), Some(Trouble::Stopped));
        assert_eq!(trouble(NoServer, alive(CALM), Missing), Some(Trouble::Unreachable));
        assert_eq!(trouble(Silent, alive(full), There), Some(Trouble::Full));
        assert_eq!(trouble(Silent, alive(unlimited), There), Some(Trouble::Unknown));
        assert_eq!(trouble(Silent, Life::Alive(CALM, Some(0.9)), There), Some(Trouble::Spinning));
        assert_eq!(trouble(Silent, Life::Alive(CALM, Some(0.5)), There), Some(Trouble::Unknown));
        assert_eq!(trouble(NoServer, Life::Unknown, Forbidden), Some(Trouble::Forbidden));
        assert_eq!(trouble(Failure::NoTmux(String::new()), Life::Over, Missing), Some(Trouble::NoTmux));
    }

    #[test]
    fn only_what_neither_listens_nor_lives_is_absent() {
        for socket in [Socket::There, Socket::Missing] {
            assert_eq!(trouble(Failure::NoServer, Life::Over, socket), None);
            assert_eq!(trouble(Failure::NoServer, Life::Unknown, socket), None);
            assert_eq!(trouble(Failure::Silent, Life::Over, socket), Some(Trouble::Unknown), "another one");
            assert_eq!(trouble(Failure::NoServer, Life::Unseen, socket), Some(Trouble::Unknown));
        }
        let alive = trouble(Failure::NoServer, Life::Alive(CALM, None), Socket::There);
        assert_eq!(alive, Some(Trouble::Unknown));
    }

    #[test]
    fn a_process_that_began_at_another_time_is_not_the_server() {
        let other = child(10, 1, 5);
        assert!(is_plausible(&other, 100, Some(102)) && is_plausible(&other, 100, Some(98)));
        assert!(!is_plausible(&other, 100, Some(103)) && !is_plausible(&other, 100, Some(97)));
        let named = Process { comm: protocol::OsBytes(b"tmux: server".to_vec()), ..other };
        assert!(is_plausible(&named, 100, Some(9000)), "the clock was set");
        let me = identity::me().unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert!(began(me).unwrap() <= now + 1 && began(me).unwrap() + 3600 > now);
    }

    #[test]
    fn who_listens_is_known_without_an_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert_eq!(access_to(&path), Socket::Missing);
        let _listening = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(access_to(&path), Socket::There);
        assert_eq!(peer::of(tmux::owner::look(&path).unwrap()).unwrap().pid, Some(std::process::id()));
        assert_eq!(listener(&path), None, "not tmux");
    }
}

//! Diagnosis of a server that does not answer, from its process and its socket.

use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use process::identity::{self, Process, State};
use process::inspect::resources::{Resources, resources};
use protocol::tmux::{NoAnswer, Server, ServerProblem};
use protocol::{ProcId, ServerId, peer};
use tmux::{ServerRef, TmuxError};
use tokio::time::Instant;

/// Processor share above which an unresponsive server counts as spinning.
const SPINNING_SHARE: f64 = 0.7;
/// Minimum time between two samples of a process's processor time: the kernel counts in units of 10 ms.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// Number of descriptors below which a server cannot accept connections.
const SPARE_DESCRIPTORS: u64 = 2;
/// Allowed difference between tmux's start time, in whole seconds, and the kernel's, in seconds.
const START_TIME_TOLERANCE: u64 = 2;

/// Failure of a call or a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No answer in time.
    Silent,
    /// Nothing listens at the socket.
    NoServer,
    /// tmux cannot be run.
    NoTmux(String),
    /// Any other failure, with its message.
    Other(String),
}

impl From<&TmuxError> for Failure {
    fn from(error: &TmuxError) -> Self {
        match error {
            TmuxError::NoServer => Self::NoServer,
            TmuxError::TimedOut(_) => Self::Silent,
            error if error.is_of_program() => Self::NoTmux(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

/// State of the server's process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ProcessStatus {
    /// No process is known.
    Unknown,
    /// The system does not give access to the process.
    Unseen,
    /// The process has ended.
    Over,
    /// The process lives, with these figures, and with its processor share since the sample before, if
    /// there was one.
    Alive(Resources, Option<f64>),
}

/// Access to the socket's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketAccess {
    There,
    Missing,
    Forbidden,
}

/// Findings about a server that does not answer.
#[derive(Debug)]
pub(crate) struct Symptoms {
    pub(crate) failure: Failure,
    pub(crate) pid: u32,
    pub(crate) status: ProcessStatus,
    socket: SocketAccess,
}

/// Derives the problem and its description; `None` if there is no server.
pub(crate) fn classify(symptoms: &Symptoms) -> Option<(ServerProblem, String)> {
    let Symptoms { failure, pid, status, socket } = symptoms;
    if let Failure::NoTmux(why) = failure {
        return Some((ServerProblem::NoTmux, why.clone()));
    }
    if *socket == SocketAccess::Forbidden {
        return Some((ServerProblem::Forbidden, "permission denied for tmux's socket".to_owned()));
    }
    if let ProcessStatus::Alive(resources, share) = status {
        return Some(classify_alive(*pid, resources, *share, symptoms));
    }
    match failure {
        Failure::NoServer if *status != ProcessStatus::Unseen => None,
        Failure::NoServer => {
            Some((ServerProblem::Unknown, format!("the tmux server, pid {pid}, cannot be inspected")))
        }
        Failure::Silent => {
            Some((ServerProblem::Unknown, "the listener at tmux's socket does not answer".to_owned()))
        }
        Failure::NoTmux(why) | Failure::Other(why) => Some((ServerProblem::Unknown, why.clone())),
    }
}

fn classify_alive(
    pid: u32,
    resources: &Resources,
    share: Option<f64>,
    symptoms: &Symptoms,
) -> (ServerProblem, String) {
    let full =
        |max: u64| resources.open_files.is_some_and(|open| open.saturating_add(SPARE_DESCRIPTORS) >= max);
    if resources.state == State::Stopped {
        (ServerProblem::Stopped, format!("the tmux server, pid {pid}, is stopped"))
    } else if symptoms.socket == SocketAccess::Missing {
        (ServerProblem::Unreachable, format!("the tmux server, pid {pid}, runs, but its socket file is gone"))
    } else if let Some(max) = resources.open_files_max.filter(|max| full(*max)) {
        (ServerProblem::Full, format!("the tmux server, pid {pid}, uses all of its {max} file descriptors"))
    } else if share.is_some_and(|share| share > SPINNING_SHARE) {
        (
            ServerProblem::Spinning,
            format!("the tmux server, pid {pid}, uses a whole processor and does not answer"),
        )
    } else if symptoms.failure == Failure::NoServer {
        // Another file has replaced its socket, or the server is just starting or ending.
        (
            ServerProblem::Unreachable,
            format!("the tmux server, pid {pid}, runs, but does not listen at its socket"),
        )
    } else {
        let why = match &symptoms.failure {
            Failure::Silent | Failure::NoServer => "does not answer",
            Failure::NoTmux(why) | Failure::Other(why) => why,
        };
        (ServerProblem::Unknown, format!("the tmux server, pid {pid}: {why}"))
    }
}

/// Diagnosis of unresponsive servers, with the samples that it needs.
#[derive(Debug, Default)]
pub(crate) struct ServerProbe {
    /// Processor time that a process had used, and the time of the sample.
    cpu_sample: Option<(ProcId, Duration, Instant)>,
    share: Option<f64>,
}

impl ServerProbe {
    /// Resets the samples, because the server answers.
    pub(crate) fn answered(&mut self) {
        *self = Self::default();
    }

    /// Diagnoses the server seen last, or the listener at the socket.
    pub(crate) fn diagnose(
        &mut self,
        failure: Failure,
        known: Option<ServerId>,
        path: &Path,
        now: Instant,
    ) -> Server {
        let socket = socket_access(path);
        let known_process =
            known.map(|server| server.process).or(self.cpu_sample.map(|(process, ..)| process));
        // A stopped server accepts no connection: each probe would stay in its backlog until it continues.
        let stopped = known_process.is_some_and(is_stopped);
        let listening = match (socket, &failure) {
            (SocketAccess::There, Failure::Silent) if !stopped => listener(path),
            _ => None,
        };
        let process = listening.or(known_process.filter(|_| stopped)).or(known.map(|server| server.process));
        let status = process.map_or(ProcessStatus::Unknown, |id| self.process_status(id, now));
        let symptoms = Symptoms { failure, pid: process.map_or(0, |id| id.pid), status, socket };
        let Some((trouble, detail)) = classify(&symptoms) else { return Server::Absent };
        let server = known
            .filter(|known| Some(known.process) == process && matches!(status, ProcessStatus::Alive(..)));
        let pid = matches!(status, ProcessStatus::Alive(..)).then(|| process.map(|id| id.pid)).flatten();
        Server::Unknown(NoAnswer { trouble, server, detail, pid })
    }

    fn process_status(&mut self, id: ProcId, now: Instant) -> ProcessStatus {
        let found = match resources(id) {
            Ok(Some(found)) => found,
            Ok(None) => return ProcessStatus::Over,
            Err(_) => return ProcessStatus::Unseen,
        };
        match self.cpu_sample.filter(|(process, ..)| *process == id) {
            Some((_, used, at)) if now.duration_since(at) >= MIN_SAMPLE_INTERVAL => {
                let share =
                    found.cpu.saturating_sub(used).as_secs_f64() / now.duration_since(at).as_secs_f64();
                (self.cpu_sample, self.share) = (Some((id, found.cpu, now)), Some(share));
            }
            Some(_) => {}
            None => (self.cpu_sample, self.share) = (Some((id, found.cpu, now)), None),
        }
        ProcessStatus::Alive(found, self.share)
    }
}

fn is_stopped(id: ProcId) -> bool {
    matches!(resources(id), Ok(Some(Resources { state: State::Stopped, .. })))
}

fn socket_access(path: &Path) -> SocketAccess {
    match access(path, AccessFlags::R_OK | AccessFlags::W_OK) {
        Ok(()) => SocketAccess::There,
        Err(Errno::ENOENT | Errno::ENOTDIR) => SocketAccess::Missing,
        Err(Errno::EACCES) => SocketAccess::Forbidden,
        Err(_) => SocketAccess::There,
    }
}

/// Returns the tmux server that listens at the socket, as the kernel reports it, without help from the server.
fn listener(path: &Path) -> Option<ProcId> {
    let stream = tmux::trust::probe(path).ok()?;
    let process = identity::read(peer::of(&stream).ok()?.pid?).ok().flatten()?;
    (process.state != State::Zombie && process.comm.0.starts_with(b"tmux")).then_some(process.id)
}

/// Identifies the server if its process is certain: the process has the start time that tmux reports; or, after the
/// clock was set, it is called tmux.
pub(crate) fn identify(server: ServerRef) -> Option<ServerId> {
    let process =
        identity::read(server.pid).ok().flatten().filter(|process| process.state != State::Zombie)?;
    let id = ServerId { process: process.id, started_at: server.started_at };
    is_plausible(&process, server.started_at, start_time(process.id)).then_some(id)
}

fn is_plausible(process: &Process, started_at: u64, start_time: Option<u64>) -> bool {
    start_time.is_none_or(|start_time| start_time.abs_diff(started_at) <= START_TIME_TOLERANCE)
        || process.comm.0.starts_with(b"tmux")
}

/// Returns a process's start time, in seconds since the Unix epoch by the clock as set now.
#[cfg(target_os = "linux")]
fn start_time(process: ProcId) -> Option<u64> {
    use nix::time::{ClockId, clock_gettime};
    use nix::unistd::{SysconfVar, sysconf};
    let seconds = |clock| u64::try_from(clock_gettime(clock).ok()?.tv_sec()).ok();
    let ticks = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    let booted = seconds(ClockId::CLOCK_REALTIME)?.checked_sub(seconds(ClockId::CLOCK_BOOTTIME)?)?;
    booted.checked_add(process.start.checked_div(ticks)?)
}

/// Returns a process's start time, in seconds since the Unix epoch.
#[cfg(target_os = "macos")]
fn start_time(process: ProcId) -> Option<u64> {
    Some(process.start / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::child;

    const CALM: Resources = Resources {
        state: State::Running,
        cpu: Duration::ZERO,
        open_files: Some(9),
        open_files_max: Some(1024),
    };

    fn trouble(failure: Failure, status: ProcessStatus, socket: SocketAccess) -> Option<ServerProblem> {
        classify(&Symptoms { failure, pid: 10, status, socket }).map(|(trouble, _)| trouble)
    }

    #[test]
    fn each_trouble_has_its_name() {
        use Failure::{NoServer, Silent};
        use SocketAccess::{Forbidden, Missing, There};
        let alive = |resources| ProcessStatus::Alive(resources, None);
        let stopped = Resources { state: State::Stopped, ..CALM };
        let full = Resources { open_files: Some(1022), ..CALM };
        let unlimited = Resources { open_files_max: Some(u64::MAX), ..CALM };
        assert_eq!(trouble(Silent, alive(stopped), There), Some(ServerProblem::Stopped));
        assert_eq!(trouble(NoServer, alive(CALM), Missing), Some(ServerProblem::Unreachable));
        assert_eq!(trouble(NoServer, alive(CALM), There), Some(ServerProblem::Unreachable));
        assert_eq!(trouble(Silent, alive(full), There), Some(ServerProblem::Full));
        assert_eq!(trouble(Silent, alive(unlimited), There), Some(ServerProblem::Unknown));
        assert_eq!(
            trouble(Silent, ProcessStatus::Alive(CALM, Some(0.9)), There),
            Some(ServerProblem::Spinning)
        );
        assert_eq!(
            trouble(Silent, ProcessStatus::Alive(CALM, Some(0.5)), There),
            Some(ServerProblem::Unknown)
        );
        assert_eq!(trouble(NoServer, ProcessStatus::Unknown, Forbidden), Some(ServerProblem::Forbidden));
        assert_eq!(
            trouble(Failure::NoTmux(String::new()), ProcessStatus::Over, Missing),
            Some(ServerProblem::NoTmux)
        );
    }

    #[test]
    fn only_what_neither_listens_nor_lives_is_absent() {
        for socket in [SocketAccess::There, SocketAccess::Missing] {
            assert_eq!(trouble(Failure::NoServer, ProcessStatus::Over, socket), None);
            assert_eq!(trouble(Failure::NoServer, ProcessStatus::Unknown, socket), None);
            assert_eq!(
                trouble(Failure::Silent, ProcessStatus::Over, socket),
                Some(ServerProblem::Unknown),
                "another one"
            );
            assert_eq!(
                trouble(Failure::NoServer, ProcessStatus::Unseen, socket),
                Some(ServerProblem::Unknown)
            );
        }
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
        assert!(start_time(me).unwrap() <= now + 1 && start_time(me).unwrap() + 3600 > now);
    }

    #[test]
    fn who_listens_is_known_without_an_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert_eq!(socket_access(&path), SocketAccess::Missing);
        let _listening = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(socket_access(&path), SocketAccess::There);
        assert_eq!(peer::of(tmux::trust::probe(&path).unwrap()).unwrap().pid, Some(std::process::id()));
        assert_eq!(listener(&path), None, "not tmux");
    }
}

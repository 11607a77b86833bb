//! Signals for interactive shells, which ignore TERM.

use std::collections::HashMap;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::ProcId;

use super::ladder::Ladder;
use super::target::is_job_control_shell;
use super::{KillRun, KillStep};
use crate::identity::State;
use crate::platform;

/// Time limit for shells to save their history and end, between HUP at the end of the grace and KILL.
const SAVE_LIMIT: Duration = Duration::from_millis(500);

impl KillRun<'_> {
    /// Sends HUP to the processes that got TERM, once only interactive shells are left: they ignore TERM, end on HUP
    /// and pass it on to their jobs. Any other program has the whole grace, also if it ignores TERM: HUP would end it
    /// in the middle of what it must not leave half done.
    pub(super) fn hang_up(&mut self, termed: &[ProcId]) {
        if termed.iter().all(|id| self.hung_up.contains(id)) || !termed.iter().all(is_shell) {
            return;
        }
        (self.before)(KillStep::Term);
        self.signal(termed, &[Signal::SIGHUP, Signal::SIGCONT]);
        self.hung_up.extend(termed);
    }

    /// Sends HUP to the shells among these processes that did not get it, because another program has ignored TERM for
    /// the whole grace, and waits for their end: KILL would take their history.
    pub(super) fn hang_up_late(&mut self, found: &[ProcId], ladder: &Ladder) {
        let is_due = |id: &ProcId| ladder.has_termed(*id) && !self.hung_up.contains(id) && is_shell(id);
        let shells: Vec<ProcId> = found.iter().copied().filter(is_due).collect();
        if shells.is_empty() {
            return;
        }
        (self.before)(KillStep::Term);
        self.signal(&shells, &[Signal::SIGHUP, Signal::SIGCONT]);
        self.wait_for_exits(&shells, SAVE_LIMIT);
        self.hung_up.extend(shells);
    }

    /// True if a process is one of these parents, or is stopped, perhaps by a reaper that has ended since.
    pub(super) fn is_waiting(&self, id: ProcId, parents: &HashMap<ProcId, ProcId>) -> bool {
        let is_stopped = self.targets.get(&id).is_some_and(|target| target.member.state == State::Stopped);
        is_stopped || parents.values().any(|parent| *parent == id)
    }

    /// Sends HUP to the shells that cannot be stopped, unless something would be lost, because HUP also ends what they
    /// run. The shell of an adopted pane cannot be stopped: tmux continues its own children when they are stopped.
    pub(super) fn hang_up_unstoppable(&mut self, shells: &[ProcId], others: &[ProcId]) {
        // Between fork and exec, a command ignores what its shell ignores.
        let saves =
            |id: &ProcId| !is_job_control_shell(*id) && platform::outlives_term_only(id.pid).unwrap_or(false);
        let unstoppable: Vec<ProcId> =
            shells.iter().copied().filter(|id| self.has_protected_parent(*id)).collect();
        if !unstoppable.is_empty() && !others.iter().any(saves) {
            self.signal(&unstoppable, &[Signal::SIGHUP, Signal::SIGCONT]);
            self.hung_up.extend(unstoppable);
        }
    }

    /// True for a child of a process that is not signalled, like the tmux server.
    fn has_protected_parent(&self, id: ProcId) -> bool {
        self.targets.get(&id).is_some_and(|target| self.options.protected.contains(&target.member.ppid))
    }
}

/// True for an interactive shell.
fn is_shell(id: &ProcId) -> bool {
    is_job_control_shell(*id) || is_shell_by_name(*id)
}

/// True for a shell of macOS, which does not tell whether it is interactive.
fn is_shell_by_name(id: ProcId) -> bool {
    cfg!(target_os = "macos") && platform::ignores(id.pid, Signal::SIGTERM).unwrap_or(false)
}

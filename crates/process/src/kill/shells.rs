//! Signals for interactive shells, which ignore TERM.

use std::collections::HashMap;

use nix::sys::signal::Signal;
use protocol::ProcId;

use super::{KillRun, KillStep};
use crate::identity::State;
use crate::platform;

impl KillRun<'_> {
    /// Sends HUP to the processes that got TERM, once only those are left that ignore TERM: interactive shells, for
    /// example, which end on HUP and pass it on to their jobs. It is not sent earlier, because a program that saves its
    /// work on TERM may have no handler for HUP.
    pub(super) fn hang_up(&mut self, termed: &[ProcId]) {
        let ignores_term = |id: &ProcId| platform::ignores(id.pid, Signal::SIGTERM).unwrap_or(false);
        if termed.iter().all(|id| self.hung_up.contains(id)) || !termed.iter().all(ignores_term) {
            return;
        }
        (self.before)(KillStep::Term);
        self.signal(termed, &[Signal::SIGHUP, Signal::SIGCONT]);
        self.hung_up.extend(termed);
    }

    /// True if a process is one of these parents, or is stopped, perhaps by a reaper that has ended since.
    pub(super) fn is_waiting(&self, id: ProcId, parents: &HashMap<ProcId, ProcId>) -> bool {
        let is_stopped = self.targets.get(&id).is_some_and(|target| target.member.state == State::Stopped);
        is_stopped || parents.values().any(|parent| *parent == id)
    }

    /// Sends HUP to the shells that cannot be stopped, unless something would be lost, because HUP also ends what they
    /// run. The shell of an adopted pane cannot be stopped: tmux continues its own children when they are stopped.
    pub(super) fn hang_up_unstoppable(&mut self, shells: &[ProcId], others: &[ProcId]) {
        let saves = |id: &ProcId| platform::saves_at_term_only(id.pid).unwrap_or(false);
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

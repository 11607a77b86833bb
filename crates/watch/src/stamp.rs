//! Identity and exit status of a pane's process. tmux tells only a pid, and pids are reused. Therefore a stamp (the
//! start time) is taken while the process is a living child of this very server. It is kept as long as the pane has
//! this pid, so that its readers can tell whether the process has ended.

use process::identity::{Process, State};
use protocol::ProcId;
use protocol::tmux::TmuxPane;

/// Returns the pane with the process, exit status and command known from `earlier`, and a new stamp if its
/// process is unknown. The first known exit status is kept.
pub(crate) fn stamp_process(
    mut pane: TmuxPane,
    earlier: Option<&TmuxPane>,
    stamp: impl Fn(u32) -> Option<ProcId>,
) -> TmuxPane {
    if let Some(earlier) = earlier.filter(|earlier| earlier.pid == pane.pid) {
        (pane.process, pane.exited) = (earlier.process, earlier.exited);
        if earlier.has_exit_status() {
            (pane.exit_status, pane.exit_signal) = (earlier.exit_status, earlier.exit_signal);
        }
        if !pane.is_over() {
            pane.current_command.clone_from(&earlier.current_command);
            pane.current_dir.clone_from(&earlier.current_dir);
        }
    }
    if pane.process.is_none() && !pane.dead && pane.pid > 0 {
        pane.process = stamp(pane.pid);
    }
    pane
}

/// Returns the id of a process if it is a living child of the server.
pub(crate) fn stamp_of_child(process: Option<Process>, server: ProcId) -> Option<ProcId> {
    let process = process.filter(|process| process.state != State::Zombie)?;
    (process.ppid == server.pid).then_some(process.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{child, pane};

    fn bare(pid: u32) -> TmuxPane {
        pane(1, pid).1
    }

    fn started(start: u64) -> impl Fn(u32) -> Option<ProcId> {
        move |pid| Some(ProcId { pid, start })
    }

    #[test]
    fn a_stamp_outlives_its_process_and_is_never_anothers() {
        let first = stamp_process(bare(42), None, started(7));
        assert_eq!(first.process, Some(ProcId { pid: 42, start: 7 }));
        let ended = stamp_process(bare(42), Some(&first), |_| None);
        let reused = stamp_process(bare(42), Some(&ended), started(9));
        assert_eq!((ended.process, reused.process), (first.process, first.process));
        let respawned = stamp_process(bare(43), Some(&reused), started(10));
        assert_eq!(respawned.process, Some(ProcId { pid: 43, start: 10 }));
    }

    #[test]
    fn a_stranger_with_the_number_is_not_stamped() {
        let server = ProcId { pid: 10, start: 5 };
        assert_eq!(stamp_of_child(Some(child(42, 10, 7)), server), Some(ProcId { pid: 42, start: 7 }));
        assert_eq!(stamp_of_child(Some(child(42, 1, 7)), server), None, "not a child of the server");
        let zombie = Process { state: State::Zombie, ..child(42, 10, 7) };
        assert_eq!((stamp_of_child(Some(zombie), server), stamp_of_child(None, server)), (None, None));
        let dead = TmuxPane { dead: true, ..bare(42) };
        assert_eq!(stamp_process(dead, None, started(7)).process, None, "the number may be another's by now");
        assert_eq!(stamp_process(bare(0), None, started(7)).process, None, "it never had one");
    }

    #[test]
    fn the_first_who_knows_how_it_ended_is_believed() {
        let exited = TmuxPane { exited: true, ..stamp_process(bare(42), None, started(7)) };
        let told = TmuxPane { dead: true, exit_status: Some(3), ..bare(42) };
        let by_tmux = stamp_process(told.clone(), Some(&exited), started(7));
        assert_eq!((by_tmux.exit_status, by_tmux.exited), (Some(3), true));
        let by_kernel = TmuxPane { exit_signal: Some(9), ..exited };
        let both = stamp_process(told, Some(&by_kernel), started(7));
        assert_eq!((both.exit_status, both.exit_signal), (None, Some(9)));
        assert_eq!(stamp_process(bare(43), Some(&both), started(8)).exit_signal, None, "another program");
    }
}

//! Process table for display: the descendants of a process. Not used for signalling.

use std::collections::{HashMap, HashSet};
use std::io;

use protocol::{OsBytes, ProcId};

use crate::bounded_reads::UNANSWERED;
use crate::info::{BasicInfo, Process};
use crate::platform;

/// Living processes at one time: all of the machine, or some processes and their descendants.
#[derive(Debug)]
pub struct Table {
    by_pid: HashMap<u32, BasicInfo>,
    children: HashMap<u32, Vec<u32>>,
}

impl Table {
    /// Reads all processes.
    ///
    /// # Errors
    /// The processes cannot be listed; a process that cannot be read is omitted.
    pub fn read() -> io::Result<Self> {
        platform::pids().map(Self::of)
    }

    /// Reads these processes and their descendants: for few sessions on a machine with many processes. If a process
    /// ends meanwhile, living ones can be missing: its siblings, with all below them.
    pub fn read_below(roots: &[ProcId]) -> io::Result<Self> {
        let roots: Vec<u32> = roots.iter().map(|root| root.pid).collect();
        platform::pids_below(&roots).map(Self::of)
    }

    fn of(pids: Vec<u32>) -> Self {
        let mut infos = Vec::with_capacity(pids.len());
        UNANSWERED.read_each(&pids, platform::basic_info, |pid, result| match result {
            Some(result) => infos.extend(result.ok().flatten()),
            None => infos.extend(platform::unanswered_info(pid).ok().flatten()),
        });
        Self::new(infos.into_iter())
    }

    fn new(infos: impl Iterator<Item = BasicInfo>) -> Self {
        let by_pid: HashMap<u32, BasicInfo> =
            infos.filter(BasicInfo::is_alive).map(|info| (info.id.pid, info)).collect();
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for info in by_pid.values() {
            // A parent that is younger than its child is another process, whose pid was reused during the reading. The
            // start time of a process that does not answer is unknown.
            let is_older = |parent: &BasicInfo| info.id.start == 0 || parent.id.start <= info.id.start;
            if by_pid.get(&info.ppid).is_some_and(is_older) {
                children.entry(info.ppid).or_default().push(info.id.pid);
            }
        }
        children.values_mut().for_each(|pids| pids.sort_unstable());
        Self { by_pid, children }
    }

    /// Returns this process and its descendants in depth-first order, siblings ordered by pid, without those
    /// that have ended since; empty if the process itself has ended.
    pub fn processes(&self, root: ProcId) -> Vec<Process> {
        self.subtree(root).into_iter().filter_map(with_user).collect()
    }

    /// Returns the background work of a program that waits for its user. For an agent, that is every process
    /// that left the agent's terminal session, because an agent runs its tools in sessions of their own and
    /// its helpers (tool and language servers) in its own session. For a shell, it is every child. Orphaned
    /// work is below the init.
    pub fn background(&self, (init, program): (ProcId, ProcId), is_shell: bool) -> Vec<Background> {
        let own_sid = self.by_pid.get(&program.pid).map(|info| info.sid);
        let is_first = |info: &&BasicInfo| {
            let parent_sid = self.by_pid.get(&info.ppid).map(|parent| parent.sid);
            let leaves_session = Some(info.sid) != own_sid && parent_sid == own_sid;
            let is_child = info.ppid == program.pid || info.ppid == init.pid;
            info.id != init && info.id != program && if is_shell { is_child } else { leaves_session }
        };
        let first = self.subtree(init).into_iter().filter(is_first);
        let work = |info: &BasicInfo| {
            let subtree = self.subtree(info.id);
            let last = subtree.last()?;
            Some(Background { first: info.id, pid: last.id.pid, command: last.comm.clone() })
        };
        first.filter_map(work).collect()
    }

    /// Like [`Table::processes`], but only the identities.
    pub(crate) fn subtree_ids(&self, root: ProcId) -> impl Iterator<Item = ProcId> {
        self.subtree(root).into_iter().map(|info| info.id)
    }

    fn subtree(&self, root: ProcId) -> Vec<&BasicInfo> {
        let mut subtree = Vec::new();
        let mut visited = HashSet::new();
        let mut todo: Vec<&BasicInfo> =
            self.by_pid.get(&root.pid).filter(|info| info.id == root).into_iter().collect();
        while let Some(info) = todo.pop() {
            // A pid that was reused during the reading can produce a cycle.
            if visited.insert(info.id.pid) {
                subtree.push(info);
                let children = self.children.get(&info.id.pid).into_iter().flatten().rev();
                todo.extend(children.filter_map(|pid| self.by_pid.get(pid)));
            }
        }
        subtree
    }
}

fn with_user(info: &BasicInfo) -> Option<Process> {
    let now = platform::read(info.id.pid).ok()??;
    (now.id == info.id).then(|| info.clone().with_user(now.uid))
}

/// Background work of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Background {
    /// Its first process.
    pub first: ProcId,
    /// Pid of its last descendant, by which it is named.
    pub pid: u32,
    /// Program name of the last descendant, as the kernel keeps it.
    pub command: OsBytes,
}

/// Returns a process and its descendants, as [`Table::processes`] of a new table.
pub fn processes(root: ProcId) -> io::Result<Vec<Process>> {
    Ok(Table::read_below(&[root])?.processes(root))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;
    use crate::identity::identify;
    use crate::info::State;
    use crate::platform::proc::Image;
    use crate::testing::{Running, wait_until};

    fn info(pid: u32, ppid: u32, start: u64) -> BasicInfo {
        let id = ProcId { pid, start };
        BasicInfo {
            id,
            ppid,
            pgid: pid,
            sid: 1,
            tpgid: None,
            state: State::Running,
            comm: "x".into(),
            image: Image::Unknown,
        }
    }

    fn subtree(table: &Table, pid: u32, start: u64) -> Vec<u32> {
        table.subtree(ProcId { pid, start }).iter().map(|info| info.id.pid).collect()
    }

    #[test]
    fn each_process_is_followed_by_its_descendants() {
        let all = [(1, 0, 0), (10, 1, 5), (13, 10, 7), (11, 10, 6), (12, 11, 6), (14, 1, 9), (5, 11, 8)];
        let table = Table::new(all.into_iter().map(|(pid, ppid, start)| info(pid, ppid, start)));
        assert_eq!(subtree(&table, 10, 5), [10, 11, 5, 12, 13]);
        assert_eq!(subtree(&table, 10, 4), [0; 0], "another start time");
        assert_eq!(subtree(&table, 99, 4), [0; 0]);
    }

    /// The init (8), a wrapper (9), the agent (10), a helper (11), a tool (12) with its children (13, and 14
    /// in a session of its own), and an orphan of an earlier tool (15).
    #[test]
    fn processes_that_leave_the_terminal_session_are_background_work() {
        let of = |pid, ppid, sid| BasicInfo { sid, ..info(pid, ppid, u64::from(pid)) };
        let all = [
            of(15, 8, 7),
            of(8, 1, 5),
            of(9, 8, 5),
            of(10, 9, 5),
            of(11, 10, 5),
            of(12, 10, 12),
            of(13, 12, 12),
            of(14, 13, 14),
        ];
        let table = Table::new(all.into_iter());
        let pids = |pid: u32, is_shell| {
            let program = ProcId { pid, start: pid.into() };
            let found = table.background((ProcId { pid: 8, start: 8 }, program), is_shell);
            found.into_iter().map(|found| found.pid).collect::<Vec<_>>()
        };
        assert_eq!(
            (pids(9, false), pids(10, false)),
            (vec![14, 15], vec![14, 15]),
            "named by the last descendant"
        );
        assert_eq!(pids(10, true), [14, 11, 14, 15], "each job of a shell, and its orphans");
    }

    #[test]
    fn a_younger_parent_is_none() {
        let table = Table::new([info(10, 1, 5), info(11, 10, 4), info(12, 10, 5)].into_iter());
        assert_eq!(subtree(&table, 10, 5), [10, 12]);
    }

    #[test]
    fn a_zombie_is_not_shown() {
        let zombie = BasicInfo { state: State::Zombie, ..info(11, 10, 6) };
        let table = Table::new([info(10, 1, 5), zombie].into_iter());
        assert_eq!((subtree(&table, 10, 5), subtree(&table, 11, 6)), (vec![10], vec![]));
    }

    #[test]
    fn the_living_below_a_shell() {
        let mut command = Command::new("sh");
        // Each process ends with its parent: its input is a pipe that this test holds open.
        command.args(["-c", "true & sh -c 'cat <&3 & echo; wait; :' 3<&0; :"]);
        let mut child = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let root = identify(child.id()).unwrap().unwrap();
        let names = || processes(root).unwrap().iter().map(|p| p.comm.to_string_lossy()).collect::<Vec<_>>();
        // A process that was just forked has its parent's name, and `true` may live for a while.
        wait_until("its children", || names() == ["sh", "sh", "cat"]);
        let found = processes(root).unwrap();
        assert_eq!((found[0].id, found[1].ppid, found[2].ppid), (root, root.pid, found[1].id.pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(processes(root).unwrap(), []);
    }

    proptest! {
        /// For any table, cycles included: the traversal ends, and yields each process at most once and after
        /// its parent.
        #[test]
        fn any_table_has_an_end(links in proptest::collection::vec((0u32..20, 0u64..3), 1..20), root in 0u32..20) {
            let all = (0u32..).zip(&links).map(|(pid, (ppid, start))| info(pid, *ppid, *start));
            let table = Table::new(all);
            let Some(start) = links.get(root as usize).map(|link| link.1) else { return Ok(()) };
            let subtree = subtree(&table, root, start);
            prop_assert_eq!(subtree[0], root);
            for (at, pid) in subtree.iter().enumerate().skip(1) {
                prop_assert!(subtree[..at].contains(&links[*pid as usize].0));
                prop_assert!(!subtree[..at].contains(pid));
            }
        }
    }
}

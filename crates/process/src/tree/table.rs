//! The process table for showing: what descends from a process. Nothing is signalled by it.

use std::collections::{HashMap, HashSet};
use std::io;

use protocol::ids::ProcId;
use protocol::text::OsBytes;

use crate::identity::{Glance, Process};
use crate::platform;

/// One look at the living processes of the whole machine, which may serve many questions.
#[derive(Debug)]
pub struct Table {
    all: HashMap<u32, Glance>,
    children: HashMap<u32, Vec<u32>>,
}

impl Table {
    /// Looks.
    ///
    /// # Errors
    /// Where the list of processes cannot be had; one that cannot be read is left out.
    pub fn look() -> io::Result<Self> {
        let glances = platform::pids()?.into_iter().filter_map(|pid| platform::glance(pid).ok().flatten());
        Ok(Self::of(glances))
    }

    fn of(glances: impl Iterator<Item = Glance>) -> Self {
        let all: HashMap<u32, Glance> =
            glances.filter(Glance::is_alive).map(|glance| (glance.id.pid, glance)).collect();
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for glance in all.values() {
            // A younger parent is none: its number was reused during the look.
            if all.get(&glance.ppid).is_some_and(|parent| parent.id.start <= glance.id.start) {
                children.entry(glance.ppid).or_default().push(glance.id.pid);
            }
        }
        children.values_mut().for_each(|pids| pids.sort_unstable());
        Self { all, children }
    }

    /// This very process and what descends from it, each followed by what descends from it, siblings
    /// by number, without those that have ended since; empty where it has ended itself.
    #[must_use]
    pub fn processes(&self, root: ProcId) -> Vec<Process> {
        self.line(root).into_iter().filter_map(with_user).collect()
    }

    /// The background work of a program that waits for its user, each named by its last descendant. Of an agent that is what left
    /// its terminal session: agents run tools in sessions of their own, and helpers (servers of tools, of languages) in theirs.
    /// Of a shell it is every child. Work whose parent has ended is below the init.
    #[must_use]
    pub fn background(&self, (init, program): (ProcId, ProcId), is_shell: bool) -> Vec<Background> {
        let own = self.all.get(&program.pid).map(|seen| seen.sid);
        let begins = |seen: &&Glance| {
            let parent = self.all.get(&seen.ppid).map(|parent| parent.sid);
            let leaves = Some(seen.sid) != own && parent == own;
            let job = seen.ppid == program.pid || seen.ppid == init.pid;
            seen.id != init && seen.id != program && if is_shell { job } else { leaves }
        };
        let begun = self.line(init).into_iter().filter(begins);
        let work = |seen: &Glance| {
            let line = self.line(seen.id);
            let last = line.last()?;
            Some(Background { first: seen.id, pid: last.id.pid, command: last.comm.clone() })
        };
        begun.filter_map(work).collect()
    }

    /// The same as [`Table::processes`], of which only the identities are wanted.
    pub(crate) fn line_of(&self, root: ProcId) -> impl Iterator<Item = ProcId> {
        self.line(root).into_iter().map(|seen| seen.id)
    }

    fn line(&self, root: ProcId) -> Vec<&Glance> {
        let mut line = Vec::new();
        let mut met = HashSet::new();
        let mut todo: Vec<&Glance> =
            self.all.get(&root.pid).filter(|seen| seen.id == root).into_iter().collect();
        while let Some(seen) = todo.pop() {
            // A number that was reused during the look can close a circle.
            if met.insert(seen.id.pid) {
                line.push(seen);
                let children = self.children.get(&seen.id.pid).into_iter().flatten().rev();
                todo.extend(children.filter_map(|pid| self.all.get(pid)));
            }
        }
        line
    }
}

fn with_user(seen: &Glance) -> Option<Process> {
    let now = platform::read(seen.id.pid).ok()??;
    (now.id == seen.id).then(|| seen.clone().with_user(now.uid))
}

/// Work that a program left running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Background {
    /// Its first process.
    pub first: ProcId,
    /// The number of its last descendant.
    pub pid: u32,
    /// That one's name, as the kernel keeps it.
    pub command: OsBytes,
}

/// The same as [`Table::processes`], from a look of its own.
///
/// # Errors
/// As [`Table::look`].
pub fn processes(root: ProcId) -> io::Result<Vec<Process>> {
    Ok(Table::look()?.processes(root))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;
    use crate::identity::{State, identify};
    use crate::proc::Image;
    use crate::testing::{Running, wait_until};

    fn glance(pid: u32, ppid: u32, start: u64) -> Glance {
        let id = ProcId { pid, start };
        Glance {
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

    fn line(table: &Table, pid: u32, start: u64) -> Vec<u32> {
        table.line(ProcId { pid, start }).iter().map(|seen| seen.id.pid).collect()
    }

    #[test]
    fn each_is_followed_by_what_descends_from_it() {
        let all = [(1, 0, 0), (10, 1, 5), (13, 10, 7), (11, 10, 6), (12, 11, 6), (14, 1, 9), (5, 11, 8)];
        let table = Table::of(all.into_iter().map(|(pid, ppid, start)| glance(pid, ppid, start)));
        assert_eq!(line(&table, 10, 5), [10, 11, 5, 12, 13]);
        assert_eq!(line(&table, 10, 4), [0; 0], "an impostor");
        assert_eq!(line(&table, 99, 4), [0; 0]);
    }

    /// The init (8), a wrapper (9), the agent (10), a helper of its (11), a tool (12) with what that runs (13, in one more session
    /// 14), and what an earlier tool left (15).
    #[test]
    fn what_leaves_its_terminal_session_is_background_work() {
        let of = |pid, ppid, sid| Glance { sid, ..glance(pid, ppid, u64::from(pid)) };
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
        let table = Table::of(all.into_iter());
        let pids = |pid: u32, is_shell| {
            let program = ProcId { pid, start: pid.into() };
            let found = table.background((ProcId { pid: 8, start: 8 }, program), is_shell);
            found.into_iter().map(|found| found.pid).collect::<Vec<_>>()
        };
        assert_eq!(
            (pids(9, false), pids(10, false)),
            (vec![14, 15], vec![14, 15]),
            "named by what runs in it"
        );
        assert_eq!(pids(10, true), [14, 11, 14, 15], "each job of a shell, and what it left");
    }

    #[test]
    fn a_younger_parent_is_none() {
        let table = Table::of([glance(10, 1, 5), glance(11, 10, 4), glance(12, 10, 5)].into_iter());
        assert_eq!(line(&table, 10, 5), [10, 12]);
    }

    #[test]
    fn a_zombie_is_not_shown() {
        let zombie = Glance { state: State::Zombie, ..glance(11, 10, 6) };
        let table = Table::of([glance(10, 1, 5), zombie].into_iter());
        assert_eq!((line(&table, 10, 5), line(&table, 11, 6)), (vec![10], vec![]));
    }

    #[test]
    fn the_living_below_a_shell() {
        let mut command = Command::new("sh");
        // Each ends when the one above it does: its input is the pipe that this one holds.
        command.args(["-c", "true & sh -c 'cat <&3 & echo; wait; :' 3<&0; :"]);
        let mut child = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let root = identify(child.id()).unwrap().unwrap();
        let names = || processes(root).unwrap().iter().map(|p| p.comm.to_string_lossy()).collect::<Vec<_>>();
        // One that has just been forked has its parent's name, and `true` may live a while.
        wait_until("its children", || names() == ["sh", "sh", "cat"]);
        let found = processes(root).unwrap();
        assert_eq!((found[0].id, found[1].ppid, found[2].ppid), (root, root.pid, found[1].id.pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(processes(root).unwrap(), []);
    }

    proptest! {
        /// Circles too: it ends, and tells of each at most once and after its parent.
        #[test]
        fn any_table_has_an_end(links in proptest::collection::vec((0u32..20, 0u64..3), 1..20), root in 0u32..20) {
            let all = (0u32..).zip(&links).map(|(pid, (ppid, start))| glance(pid, *ppid, *start));
            let table = Table::of(all);
            let Some(start) = links.get(root as usize).map(|link| link.1) else { return Ok(()) };
            let line = line(&table, root, start);
            prop_assert_eq!(line[0], root);
            for (at, pid) in line.iter().enumerate().skip(1) {
                prop_assert!(line[..at].contains(&links[*pid as usize].0));
                prop_assert!(!line[..at].contains(pid));
            }
        }
    }
}

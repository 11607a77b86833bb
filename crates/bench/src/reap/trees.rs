//! Programs to end: starting them, and finding their processes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use process::handle::Handle;
use process::identity::Process;
use process::tree::Table;
use protocol::ProcId;

/// Number of processes of a tree.
pub(super) const SIZE: usize = 10;
/// Time for a tree to start.
const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// One process.
    Alone,
    /// A shell with children, [`SIZE`] processes in all, each of which obeys TERM.
    Tree,
}

impl Program {
    /// Command line of the program.
    pub(super) fn words(self) -> Vec<String> {
        let script = || format!("{}wait", "sleep 100000 & ".repeat(SIZE - 1));
        match self {
            Self::Alone => vec!["sleep".to_owned(), "100000".to_owned()],
            Self::Tree => vec!["sh".to_owned(), "-c".to_owned(), script()],
        }
    }

    /// Returns the numbers of shells and of sleeping processes.
    fn parts(self) -> (usize, usize) {
        match self {
            Self::Alone => (0, 1),
            Self::Tree => (1, SIZE - 1),
        }
    }

    /// True if this is the whole tree. A process that was forked but has not yet called exec still has its
    /// parent's name.
    fn is_whole(self, tree: &[Process]) -> bool {
        let (shells, sleepers) = self.parts();
        let asleep = tree.iter().filter(|process| process.comm.as_os_str() == "sleep").count();
        tree.len() == shells + sleepers && asleep == sleepers
    }

    /// Waits until all processes of these programs run, and returns a handle of each.
    pub(super) fn hold(self, roots: &[ProcId]) -> Result<Vec<Handle>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let table = Table::read()?;
            let trees: Vec<_> = roots.iter().map(|root| table.processes(*root)).collect();
            if trees.iter().all(|tree| self.is_whole(tree)) {
                return trees.iter().flatten().map(|process| held(process.id)).collect();
            }
            if Instant::now() >= deadline {
                bail!("the program does not start");
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Opens a handle of a live process.
pub(super) fn held(id: ProcId) -> Result<Handle> {
    match Handle::open(id)? {
        Some(handle) => Ok(handle),
        None => bail!("process {id} has ended"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use nix::sys::signal::Signal;

    use super::*;

    #[test]
    fn all_of_a_tree_is_held() {
        for (program, size) in [(Program::Alone, 1), (Program::Tree, SIZE)] {
            let words = program.words();
            let mut child = Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null()).spawn().unwrap();
            let root = process::identity::identify(child.id()).unwrap().unwrap();
            let handles = program.hold(&[root]).unwrap();
            for handle in &handles {
                handle.signal(Signal::SIGKILL).unwrap();
            }
            child.wait().unwrap();
            assert_eq!(handles.len(), size);
        }
    }
}

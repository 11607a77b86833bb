//! The process table, terminals of processes, and the resources of the machine. Methods about many processes,
//! about resource use and about files may block for long; those about a single process read `/proc`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use process::exits::ExitWatcher;
use process::identity::Process;
pub use process::inspect::program::Foreground;
use process::inspect::resources::Resources;
use process::inspect::tty::{InputState, ReadDetector, ShellState};
use process::inspect::{machine, program, resources, tty, usage};
use process::tree::marker_scan::{MarkedProcess, MarkerScanner};
use process::tree::{Background, Table};
use process::{identity, log_writer, tree};
use protocol::{OsBytes, ProcId, Usage};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::BoxFuture;

/// The processes of a session, for measuring their resource use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionProcesses {
    /// The init of its incarnation.
    pub init: ProcId,
    /// Its program.
    pub agent: Option<ProcId>,
    /// Its control group.
    pub cgroup: Option<OsBytes>,
}

/// The processes of a machine.
pub trait Processes: Send + Sync {
    /// Returns the identity of the calling process.
    fn me(&self) -> io::Result<ProcId>;
    /// Returns the identifier of the current boot; `None` if it cannot be read.
    fn boot_id(&self) -> Option<String>;
    /// Reads the process that has this pid now, zombies included.
    fn read(&self, pid: u32) -> io::Result<Option<Process>>;
    /// Returns the living process that has this pid; `None` also if that cannot be read.
    fn identify(&self, pid: u32) -> Option<ProcId>;
    /// Returns the living processes that have these pids. Those that do not answer in time are left out.
    fn identify_each(&self, pids: &[u32]) -> BTreeMap<u32, ProcId> {
        pids.iter().filter_map(|pid| Some((*pid, self.identify(*pid)?))).collect()
    }
    /// True if the process is proved to have ended.
    fn has_exited(&self, process: ProcId) -> bool;
    /// Returns a new set of watched processes.
    fn watch_exits(&self) -> io::Result<Box<dyn Exits>>;
    /// Returns a process and its descendants; none if they cannot be read.
    fn descendants(&self, root: ProcId) -> Vec<Process>;
    /// Returns the background work of the program below its init; see [`Table::background`]. `None` if it cannot be
    /// read.
    fn background(&self, init_and_program: (ProcId, ProcId), is_shell: bool) -> Option<Vec<Background>>;
    /// Measures the resource use of each session, from one sample of the process table.
    fn usage(&self, sessions: &[SessionProcesses]) -> Vec<Option<Usage>>;
    /// Returns the program in the foreground of the process's terminal.
    fn foreground(&self, pid: u32) -> Option<Foreground>;
    /// Returns the arguments of a process; `None` if it has ended or they cannot be read.
    fn argv(&self, process: ProcId) -> Option<Vec<OsBytes>>;
    /// Returns the environment that a process was started with; none if it has ended or hides it.
    fn environment(&self, _process: ProcId) -> Vec<(OsBytes, OsBytes)> {
        Vec::new()
    }
    /// Returns the working directory of a process; `None` if it has ended or it cannot be read.
    fn current_dir(&self, pid: u32) -> Option<OsBytes>;
    /// Returns the bytes typed into the process's terminal that it has not read; `None` if unknown.
    fn unread_input(&self, process: ProcId) -> Option<u32>;
    /// Returns the state of a shell in its terminal; `None` if unknown.
    fn shell_state(&self, shell: ProcId) -> Option<ShellState>;
    /// Begins to detect reads of the process's terminal; `None` if that is impossible.
    fn arm_read_detector(&self, process: ProcId) -> Option<ReadDetector>;
    /// Returns the state of what was typed since the detector was armed; `None` if it cannot be read.
    fn input_state(&self, process: ProcId, detector: ReadDetector, ends_line: bool) -> Option<InputState>;
    /// Returns the resources of a process; `None` if it has ended or they cannot be read.
    fn resources(&self, process: ProcId) -> Option<Resources>;
    /// Returns the available memory of the machine in bytes.
    fn available_memory(&self) -> Option<u64>;
    /// Returns the memory of the machine in bytes.
    fn total_memory(&self) -> Option<u64>;
    /// Returns the share of the last 10 s in which some program waited for memory, in hundredths of a percent.
    fn memory_pressure(&self) -> Option<u32>;
    /// Returns the bytes in use on the path's file system, and those that could be used in all.
    fn disk_use(&self, path: &Path) -> Option<(u64, u64)>;
    /// Returns the free space of the path's file system in bytes.
    fn free_disk(&self, path: &Path) -> Option<u64>;
    /// Returns the free inodes of the path's file system; `None` if it counts none.
    fn free_inodes(&self, _path: &Path) -> Option<u64> {
        None
    }
    /// Returns the pseudo-terminals in use, and their maximum.
    fn terminals(&self) -> Option<(u64, u64)>;
    /// Returns the processes that carry a marker of a pool.
    fn marked(&self, scanner: &mut MarkerScanner) -> io::Result<Vec<MarkedProcess>>;
    /// True if a log writer works in this directory.
    fn has_log_writer(&self, dir: &Path) -> bool;
    /// Returns the path of a socket outside of `private` at which the process listens.
    fn listening_path(&self, process: ProcId, private: &Path) -> Option<String>;
}

/// Processes that are watched for their exits.
pub trait Exits: Send {
    /// Watches a process; false if it has ended already.
    fn watch(&mut self, process: ProcId) -> io::Result<bool>;
    /// Waits for exits. Cancellation loses none.
    ///
    /// # Errors
    /// The system does not report exits any more.
    fn next(&mut self) -> BoxFuture<'_, io::Result<Vec<ProcId>>>;
}

/// The processes of the operating system.
#[derive(Debug)]
pub struct SystemProcesses;

impl Processes for SystemProcesses {
    fn me(&self) -> io::Result<ProcId> {
        identity::me()
    }

    fn boot_id(&self) -> Option<String> {
        identity::boot_id().ok()
    }

    fn read(&self, pid: u32) -> io::Result<Option<Process>> {
        identity::read(pid)
    }

    fn identify(&self, pid: u32) -> Option<ProcId> {
        identity::identify(pid).ok().flatten()
    }

    fn identify_each(&self, pids: &[u32]) -> BTreeMap<u32, ProcId> {
        let found = identity::read_each(pids).into_iter();
        found.filter_map(|(pid, process)| Some((pid, process.living()?))).collect()
    }

    fn has_exited(&self, process: ProcId) -> bool {
        identity::exited(process).unwrap_or(false)
    }

    #[expect(
        deprecated,
        reason = "its successor is unsafe; `ExitWatcher` keeps its descriptor as long as it lives"
    )]
    fn watch_exits(&self) -> io::Result<Box<dyn Exits>> {
        let exits = AsyncFd::with_interest(ExitWatcher::new()?, Interest::READABLE)?;
        Ok(Box::new(SystemExits(exits)))
    }

    fn descendants(&self, root: ProcId) -> Vec<Process> {
        tree::processes(root).unwrap_or_default()
    }

    fn background(&self, init_and_program: (ProcId, ProcId), is_shell: bool) -> Option<Vec<Background>> {
        Table::read().map(|table| table.background(init_and_program, is_shell)).ok()
    }

    fn usage(&self, sessions: &[SessionProcesses]) -> Vec<Option<Usage>> {
        let table = match sessions {
            [one] => Table::read_below(&[one.init].into_iter().chain(one.agent).collect::<Vec<_>>()),
            _ => Table::read(),
        };
        let of = |session: &SessionProcesses| {
            let cgroup = session.cgroup.as_ref().map(OsBytes::as_path);
            usage::usage(table.as_ref().ok()?, session.init, session.agent, cgroup)
        };
        sessions.iter().map(of).collect()
    }

    fn foreground(&self, pid: u32) -> Option<Foreground> {
        program::foreground(pid).ok().flatten()
    }

    fn environment(&self, process: ProcId) -> Vec<(OsBytes, OsBytes)> {
        program::environment(process).ok().flatten().unwrap_or_default()
    }

    fn argv(&self, process: ProcId) -> Option<Vec<OsBytes>> {
        program::argv(process).ok().flatten()
    }

    fn current_dir(&self, pid: u32) -> Option<OsBytes> {
        program::current_dir(pid).ok().flatten()
    }

    fn unread_input(&self, process: ProcId) -> Option<u32> {
        tty::unread_input(process).ok().flatten()
    }

    fn shell_state(&self, shell: ProcId) -> Option<ShellState> {
        tty::shell_state(shell).ok().flatten()
    }

    fn arm_read_detector(&self, process: ProcId) -> Option<ReadDetector> {
        tty::arm_read_detector(process).ok().flatten()
    }

    fn input_state(&self, process: ProcId, detector: ReadDetector, ends_line: bool) -> Option<InputState> {
        tty::input_state(process, detector, ends_line).ok()
    }

    fn resources(&self, process: ProcId) -> Option<Resources> {
        resources::resources(process).ok().flatten()
    }

    fn available_memory(&self) -> Option<u64> {
        machine::available_memory()
    }

    fn total_memory(&self) -> Option<u64> {
        machine::total_memory()
    }

    fn memory_pressure(&self) -> Option<u32> {
        machine::memory_pressure()
    }

    fn disk_use(&self, path: &Path) -> Option<(u64, u64)> {
        machine::disk_use(path)
    }

    fn free_disk(&self, path: &Path) -> Option<u64> {
        machine::free_disk(path)
    }

    fn free_inodes(&self, path: &Path) -> Option<u64> {
        machine::free_inodes(path)
    }

    fn terminals(&self) -> Option<(u64, u64)> {
        machine::terminals()
    }

    fn marked(&self, scanner: &mut MarkerScanner) -> io::Result<Vec<MarkedProcess>> {
        scanner.scan()
    }

    fn has_log_writer(&self, dir: &Path) -> bool {
        log_writer::has_writer(dir)
    }

    fn listening_path(&self, process: ProcId, private: &Path) -> Option<String> {
        tree::listeners::listening_path(process, Some(private))
    }
}

struct SystemExits(AsyncFd<ExitWatcher>);

impl Exits for SystemExits {
    fn watch(&mut self, process: ProcId) -> io::Result<bool> {
        self.0.get_mut().watch(process)
    }

    fn next(&mut self) -> BoxFuture<'_, io::Result<Vec<ProcId>>> {
        Box::pin(async move {
            loop {
                let mut ready = self.0.readable_mut().await?;
                let ended = ready.get_inner_mut().take().unwrap_or_default();
                if !ended.is_empty() {
                    return Ok(ended.into_iter().map(|(process, _)| process).collect());
                }
                ready.clear_ready();
            }
        })
    }
}

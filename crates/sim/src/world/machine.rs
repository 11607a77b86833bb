//! The processes of the machine: each with its parent, its incarnation and its habits.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use process::identity::Process;
use process::inspect::program::Foreground;
use process::inspect::resources::Resources;
use process::inspect::tty::{InputState, ReadDetector, ShellState};
use process::tree::Background;
use process::tree::marker_scan::{MarkedProcess, Marker, MarkerScanner};
use protocol::{OsBytes, ProcId, Tag, Usage};
use tokio::sync::Notify;
use tokio::time::Instant;
use world::BoxFuture;
use world::processes::{Exits, Processes, SessionProcesses};

/// The pids that are given out before they come again.
const PID_FIRST: u32 = 1000;
const PID_MAX: u32 = 1400;

/// Free bytes of a disk that is called full, and otherwise.
const FREE_WHEN_FULL: u64 = 8 << 20;
const FREE: u64 = 8 << 30;

/// A living process.
#[derive(Debug, Clone)]
pub(crate) struct Proc {
    pub(crate) id: ProcId,
    /// The incarnation that it belongs to.
    pub(crate) tag: Option<Tag>,
    pub(crate) kind: Kind,
    /// True if TERM and HUP do not end it.
    pub(crate) is_stubborn: bool,
    /// True while it is in uninterruptible sleep: KILL ends it afterwards.
    is_uninterruptible: bool,
    /// True once it was killed.
    is_killed: bool,
}

impl Proc {
    fn new(id: ProcId, tag: Option<Tag>, kind: Kind, is_stubborn: bool) -> Self {
        Self { id, tag, kind, is_stubborn, is_uninterruptible: false, is_killed: false }
    }
}

/// The kind of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Daemon,
    TmuxServer,
    Init,
    Agent,
    /// A client that has a process.
    Client,
    /// The host of a worker of the pool.
    Host,
    Worker,
    /// A process that a worker or a host has started for a message.
    Handler,
    /// A person's own program.
    Foreign,
}

/// The machine; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Machine(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// Signalled at each exit and signal.
    changed: Notify,
    /// Since when the disk is full.
    full_since: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Table {
    living: BTreeMap<u32, Proc>,
    next: u32,
    starts: u64,
    boot: u64,
    /// Processes that were asked to end, in order.
    hung_up: Vec<ProcId>,
}

impl Machine {
    pub(crate) fn start(&self, kind: Kind, tag: Option<Tag>, is_stubborn: bool) -> ProcId {
        let mut table = self.table();
        loop {
            let pid = PID_FIRST + table.next % (PID_MAX - PID_FIRST);
            table.next += 1;
            if table.living.contains_key(&pid) {
                continue;
            }
            table.starts += 1;
            let id = ProcId { pid, start: table.starts * 100 };
            table.living.insert(pid, Proc::new(id, tag, kind, is_stubborn));
            return id;
        }
    }

    /// Returns the living agents.
    pub(crate) fn agents(&self) -> Vec<Proc> {
        self.living().into_iter().filter(|found| found.kind == Kind::Agent).collect()
    }

    /// Starts a process with a pid of its own.
    pub(crate) fn start_as(&self, pid: u32, kind: Kind) -> ProcId {
        let mut table = self.table();
        table.starts += 1;
        let id = ProcId { pid, start: table.starts * 100 };
        table.living.insert(pid, Proc::new(id, None, kind, false));
        id
    }

    /// Ends a process, if it lives.
    pub(crate) fn end(&self, process: ProcId) {
        let mut table = self.table();
        if table.living.get(&process.pid).is_some_and(|found| found.id == process) {
            table.living.remove(&process.pid);
        }
        drop(table);
        self.0.changed.notify_waiters();
    }

    /// Sends KILL to a process, if it lives.
    pub(crate) fn kill(&self, process: ProcId) {
        self.change(process, |found| found.is_killed = true);
        self.end_if_killed(process);
    }

    /// Puts a process into uninterruptible sleep.
    pub(crate) fn block(&self, process: ProcId) {
        self.change(process, |found| found.is_uninterruptible = true);
    }

    /// Ends the uninterruptible sleep of a process, and the process itself if it was killed meanwhile.
    pub(crate) fn release(&self, process: ProcId) {
        self.change(process, |found| found.is_uninterruptible = false);
        self.end_if_killed(process);
    }

    /// Ends a process that was killed and is not in uninterruptible sleep.
    fn end_if_killed(&self, process: ProcId) {
        if self.change(process, |found| found.is_killed && !found.is_uninterruptible) == Some(true) {
            self.end(process);
        }
    }

    /// Changes a process. `None` if it has ended.
    fn change<T>(&self, process: ProcId, change: impl FnOnce(&mut Proc) -> T) -> Option<T> {
        let mut table = self.table();
        table.living.get_mut(&process.pid).filter(|found| found.id == process).map(change)
    }

    /// Asks a process to end, as HUP and TERM do.
    pub(crate) fn hang_up(&self, process: ProcId) {
        let mut table = self.table();
        if table.living.get(&process.pid).is_some_and(|found| found.id == process && !found.is_stubborn) {
            table.hung_up.push(process);
        }
        drop(table);
        self.0.changed.notify_waiters();
    }

    /// True if the process was asked to end.
    pub(crate) fn is_hung_up(&self, process: ProcId) -> bool {
        self.table().hung_up.contains(&process)
    }

    /// Notes the tag under which the pool has adopted a person's program.
    pub(crate) fn adopted(&self, process: ProcId, tag: Tag) {
        self.change(process, |found| found.tag = Some(tag));
    }

    pub(crate) fn lives(&self, process: ProcId) -> bool {
        self.table().living.get(&process.pid).is_some_and(|found| found.id == process)
    }

    /// Returns the living process with this pid.
    pub(crate) fn identify(&self, pid: u32) -> Option<ProcId> {
        self.table().living.get(&pid).map(|found| found.id)
    }

    pub(crate) fn living(&self) -> Vec<Proc> {
        self.table().living.values().cloned().collect()
    }

    /// Waits for the next exit or signal.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Fills the disk, or makes room.
    pub(crate) fn set_full(&self, is_full: bool) {
        *self.0.full_since.lock().unwrap_or_else(PoisonError::into_inner) = is_full.then(Instant::now);
    }

    /// Returns since when the disk is full.
    pub(crate) fn full_since(&self) -> Option<Instant> {
        *self.0.full_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the boot.
    pub(crate) fn boot(&self) -> u64 {
        self.table().boot
    }

    pub(crate) fn boot_id(&self) -> String {
        format!("boot-{}", self.boot())
    }

    /// Ends every process, as a reboot does.
    pub(crate) fn reboot(&self) {
        let mut table = self.table();
        table.living.clear();
        table.hung_up.clear();
        (table.boot, table.next) = (table.boot + 1, 0);
        drop(table);
        self.0.changed.notify_waiters();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The machine as one daemon sees it.
pub(crate) struct View {
    pub(crate) machine: Machine,
    pub(crate) me: ProcId,
    /// The socket of the pool, which is in the environment of its programs.
    pub(crate) socket: OsBytes,
}

impl Processes for View {
    fn me(&self) -> io::Result<ProcId> {
        Ok(self.me)
    }

    fn boot_id(&self) -> Option<String> {
        Some(self.machine.boot_id())
    }

    fn read(&self, _: u32) -> io::Result<Option<Process>> {
        Ok(None)
    }

    fn identify(&self, pid: u32) -> Option<ProcId> {
        self.machine.identify(pid)
    }

    fn has_exited(&self, process: ProcId) -> bool {
        !self.machine.lives(process)
    }

    fn watch_exits(&self) -> io::Result<Box<dyn Exits>> {
        Ok(Box::new(Watch { machine: self.machine.clone(), watched: Vec::new() }))
    }

    fn descendants(&self, _: ProcId) -> Vec<Process> {
        Vec::new()
    }

    fn background(&self, _: (ProcId, ProcId), _: bool) -> Option<Vec<Background>> {
        Some(Vec::new())
    }

    fn usage(&self, sessions: &[SessionProcesses]) -> Vec<Option<Usage>> {
        sessions.iter().map(|_| None).collect()
    }

    fn foreground(&self, _: u32) -> Option<Foreground> {
        None
    }

    fn argv(&self, process: ProcId) -> Option<Vec<OsBytes>> {
        self.machine.lives(process).then(|| vec![OsBytes::from("program")])
    }

    fn current_dir(&self, _: u32) -> Option<OsBytes> {
        Some(OsBytes::from("/"))
    }

    fn unread_input(&self, _: ProcId) -> Option<u32> {
        None
    }

    fn shell_state(&self, _: ProcId) -> Option<ShellState> {
        None
    }

    fn arm_read_detector(&self, _: ProcId) -> Option<ReadDetector> {
        None
    }

    fn input_state(&self, _: ProcId, _: ReadDetector, _: bool) -> Option<InputState> {
        None
    }

    fn resources(&self, _: ProcId) -> Option<Resources> {
        None
    }

    fn available_memory(&self) -> Option<u64> {
        None
    }

    fn total_memory(&self) -> Option<u64> {
        None
    }

    fn memory_pressure(&self) -> Option<u32> {
        None
    }

    fn disk_use(&self, _: &Path) -> Option<(u64, u64)> {
        None
    }

    fn free_disk(&self, _: &Path) -> Option<u64> {
        Some(if self.machine.full_since().is_some() { FREE_WHEN_FULL } else { FREE })
    }

    fn terminals(&self) -> Option<(u64, u64)> {
        None
    }

    fn marked(&self, _: &mut MarkerScanner) -> io::Result<Vec<MarkedProcess>> {
        let marked = |found: Proc| {
            Some(MarkedProcess {
                process: found.id,
                marker: Marker::Incarnation(found.tag?),
                socket: Some(self.socket.clone()),
                command: OsBytes::from("program"),
            })
        };
        // Adopted programs have no marker in their environment.
        let own = self.machine.living().into_iter().filter(|found| found.kind != Kind::Foreign);
        Ok(own.filter_map(marked).collect())
    }

    fn has_log_writer(&self, _: &Path) -> bool {
        true
    }

    fn listening_path(&self, _: ProcId, _: &Path) -> Option<String> {
        None
    }
}

/// Processes whose exits a daemon watches.
struct Watch {
    machine: Machine,
    watched: Vec<ProcId>,
}

impl Exits for Watch {
    fn watch(&mut self, process: ProcId) -> io::Result<bool> {
        let lives = self.machine.lives(process);
        if lives && !self.watched.contains(&process) {
            self.watched.push(process);
        }
        Ok(lives)
    }

    fn next(&mut self) -> BoxFuture<'_, io::Result<Vec<ProcId>>> {
        Box::pin(async move {
            loop {
                let machine = self.machine.clone();
                let changed = machine.0.changed.notified();
                let (living, ended) = self.watched.iter().partition(|process| self.machine.lives(**process));
                self.watched = living;
                if !Vec::is_empty(&ended) {
                    return Ok(ended);
                }
                changed.await;
            }
        })
    }
}

//! The part of the control group hierarchy in which the pool creates its own groups: `server/` for the tmux
//! server, `sessions/TAG` for each incarnation. No group with children has processes of its own; the kernel's
//! controllers require that.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use protocol::{Limits, Tag};

use super::find;
use super::group::{is_gone, is_populated, members, present, remove, write};

const SERVER: &str = "server";
const SESSIONS: &str = "sessions";
/// Controllers that enforce memory, tasks and CPU share of [`Limits`].
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// Maximum number of passes over the processes of a group, to move those that were started in between.
const MAX_MOVE_PASSES: u32 = 100;
/// Period of the CPU bandwidth limit, in microseconds (the kernel's default).
const CPU_PERIOD_US: u32 = 100_000;

/// A group below which the pool creates its own groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subtree {
    path: PathBuf,
}

/// The control group of one incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Directory of the group.
    pub path: PathBuf,
    /// Limits among memory, tasks and CPU share that are not enforced, each a sentence with the reason.
    pub unenforced: Vec<String>,
}

impl Subtree {
    /// Opens the delegated group in which the tmux server was started, also after the server was moved into
    /// its `server/`.
    ///
    /// # Errors
    /// The reason why it cannot be used, as a sentence.
    pub fn of_server(pid: u32) -> Result<Self, String> {
        supported()?;
        let group =
            find::group_of(pid).map_err(|error| format!("the tmux server's control group: {error}"))?;
        let directory = find::directory(&group)
            .map_err(|_| "no hierarchy of control groups of version 2 is mounted".to_owned())?;
        // Groups further up are managed by others, such as the user's service manager.
        let above = directory.file_name().filter(|name| *name == SERVER).and_then(|_| directory.parent());
        let delegated =
            [Some(directory.as_path()), above].into_iter().flatten().find(|d| find::is_delegated(d));
        let path = delegated.ok_or("the tmux server is in no delegated control group")?;
        Self { path: path.to_owned() }.if_usable()
    }

    /// Opens a configured group, and creates it if it is missing.
    ///
    /// # Errors
    /// The reason why it cannot be used, as a sentence.
    pub fn at(path: &Path) -> Result<Self, String> {
        supported()?;
        create(path)?;
        Self { path: path.to_owned() }.if_usable()
    }

    /// Opens any directory, without checks.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn unchecked(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    fn if_usable(self) -> Result<Self, String> {
        let shown = self.path.display();
        // The root group has no such file. It must not be used: system processes would be moved.
        if !self.path.join("cgroup.events").exists() {
            return Err(format!("{shown} is not a control group of version 2 below the root group"));
        }
        let files = ["", "cgroup.procs", "cgroup.subtree_control"].map(|file| self.path.join(file));
        match files.iter().try_for_each(|file| access(file, AccessFlags::W_OK)) {
            Ok(()) => Ok(self),
            Err(error) => Err(format!("cannot manage the control group {shown}: {}", error.desc())),
        }
    }

    /// The directory of the group.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of an incarnation's group, whether or not it exists.
    pub fn group(&self, tag: Tag) -> PathBuf {
        self.path.join(SESSIONS).join(tag.to_string())
    }

    /// Creates `server/` and `sessions/`, moves the processes of the group itself into `server/`, and enables
    /// the controllers. Returns those available below `sessions/`: a subset of `memory`, `pids`, `cpu`.
    /// Idempotent.
    ///
    /// # Errors
    /// The group that could not be created or the move that failed, as a sentence.
    pub fn prepare(&self) -> Result<Vec<String>, String> {
        let [server, sessions] = [SERVER, SESSIONS].map(|name| self.path.join(name));
        create(&server)?;
        create(&sessions)?;
        self.move_processes(&server)?;
        for group in [&self.path, &sessions] {
            for controller in listed(group, "cgroup.controllers") {
                // A controller that cannot be enabled is missing in the result.
                drop(write(group, "cgroup.subtree_control", &format!("+{controller}")));
            }
        }
        Ok(listed(&sessions, "cgroup.subtree_control"))
    }

    fn move_processes(&self, server: &Path) -> Result<(), String> {
        for _ in 0..MAX_MOVE_PASSES {
            let pids = members(&self.path).map_err(cannot("look into", &self.path))?;
            if pids.is_empty() {
                return Ok(());
            }
            for pid in pids {
                match write(server, "cgroup.procs", &pid.to_string()) {
                    Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => {}
                    moved => moved.map_err(cannot("move a process into", server))?,
                }
            }
        }
        Err(format!("processes are started in {} faster than they are moved", self.path.display()))
    }

    /// Creates the group of an incarnation, with the limits that it can enforce.
    ///
    /// # Errors
    /// The reason why it cannot be created, as a sentence.
    pub fn create(&self, tag: Tag, limits: &Limits) -> Result<Group, String> {
        let path = self.group(tag);
        create(&path)?;
        let unenforced = apply_limits(&path, limits);
        Ok(Group { path, unenforced })
    }

    /// The incarnations that have a group.
    pub fn tags(&self) -> Vec<Tag> {
        let entries = fs::read_dir(self.path.join(SESSIONS)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Removes the group of an incarnation if it is empty.
    pub fn remove_if_empty(&self, tag: Tag) {
        let path = self.group(tag);
        if is_populated(&path).is_ok_and(|populated| !populated) {
            // Fails if a process has moved in meanwhile; the group then stays.
            drop(remove(&path));
        }
    }
}

fn supported() -> Result<(), String> {
    if cfg!(target_os = "linux") { Ok(()) } else { Err("this system has no control groups".to_owned()) }
}

fn create(path: &Path) -> Result<(), String> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map_err(cannot("create", path)),
    }
}

fn cannot<E: Display>(what: &str, path: &Path) -> impl FnOnce(E) -> String {
    move |error| format!("cannot {what} the control group {}: {error}", path.display())
}

/// Returns the [`CONTROLLERS`] that a file of a group lists.
fn listed(group: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(group.join(file)).unwrap_or_default();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    CONTROLLERS.iter().filter(|name| words.contains(name)).map(|name| (*name).to_owned()).collect()
}

/// Sets each limit; returns those that could not be set, as sentences.
fn apply_limits(group: &Path, limits: &Limits) -> Vec<String> {
    let mut unenforced = Vec::new();
    let mut set = |limit: Limits, file: &str, value: Option<String>| {
        let Some(value) = value else { return };
        if let Err(error) = write(group, file, &value) {
            let why = if is_gone(&error) {
                "this control group has no such controller".into()
            } else {
                error.to_string()
            };
            unenforced.push(format!("{limit}: {why}"));
        }
    };
    set(
        Limits { memory: limits.memory, ..Limits::default() },
        "memory.max",
        limits.memory.map(|n| n.to_string()),
    );
    set(Limits { tasks: limits.tasks, ..Limits::default() }, "pids.max", limits.tasks.map(|n| n.to_string()));
    let share = limits
        .cpu
        .map(|percent| format!("{} {CPU_PERIOD_US}", u64::from(percent) * u64::from(CPU_PERIOD_US / 100)));
    set(Limits { cpu: limits.cpu, ..Limits::default() }, "cpu.max", share);
    if limits.memory.is_some() {
        // Neither file exists on every system. Without swap, swapped-out memory cannot evade the limit;
        // without group OOM kills, the program survives a child that used too much.
        for file in ["memory.swap.max", "memory.oom.group"] {
            drop(present(write(group, file, "0")));
        }
    }
    unenforced
}

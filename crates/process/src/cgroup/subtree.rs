//! The part of the control groups in which the pool may make its own: the tmux server in `server/`,
//! each incarnation in `sessions/TAG`. No group that has others below it keeps processes of its own,
//! for only then does the kernel bound those below.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use protocol::ids::Tag;
use protocol::life::Limits;

use super::{find, gone, is_populated, members, present, remove, write};

const SERVER: &str = "server";
const SESSIONS: &str = "sessions";
/// Those that bound what [`Limits`] has.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// How often what was started meanwhile is moved too.
const MOST_ROUNDS: u32 = 100;
/// The time over which a share of a processor is measured (the kernel's own default), in microseconds.
const PERIOD: u32 = 100_000;

/// A group below which the pool makes its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subtree {
    path: PathBuf,
}

/// The group of one incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Where it is.
    pub path: PathBuf,
    /// Which of memory, tasks and CPU share it does not hold, and why, each a sentence.
    pub unenforced: Vec<String>,
}

impl Subtree {
    /// The group that the tmux server was started in, where that was given to it to divide; also after the
    /// server was moved into `server/` in it.
    ///
    /// # Errors
    /// Why it cannot be used, as a sentence.
    pub fn of_server(pid: u32) -> Result<Self, String> {
        supported()?;
        let group =
            find::group_of(pid).map_err(|error| format!("the tmux server's control group: {error}"))?;
        let directory = find::directory(&group)
            .map_err(|_| "the control groups of version 2 are not mounted here".to_owned())?;
        // Further up is what others divide: a user's manager, say.
        let above = directory.file_name().filter(|name| *name == SERVER).and_then(|_| directory.parent());
        let delegated =
            [Some(directory.as_path()), above].into_iter().flatten().find(|d| find::is_delegated(d));
        let path = delegated.ok_or("the tmux server is in no delegated control group")?;
        Self { path: path.to_owned() }.if_usable()
    }

    /// The group of the user's choice; it is made where it is missing.
    ///
    /// # Errors
    /// Why it cannot be used, as a sentence.
    pub fn at(path: &Path) -> Result<Self, String> {
        supported()?;
        make(path)?;
        Self { path: path.to_owned() }.if_usable()
    }

    /// Whatever is there.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn below(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    fn if_usable(self) -> Result<Self, String> {
        let shown = self.path.display();
        // The root of all has no events; what the system runs must not be moved.
        if !self.path.join("cgroup.events").exists() {
            return Err(format!("{shown} is no control group of version 2 below their root"));
        }
        let files = ["", "cgroup.procs", "cgroup.subtree_control"].map(|file| self.path.join(file));
        match files.iter().try_for_each(|file| access(file, AccessFlags::W_OK)) {
            Ok(()) => Ok(self),
            Err(error) => Err(format!("the control group {shown} is not ours to divide: {}", error.desc())),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the group of an incarnation is, if it has one.
    #[must_use]
    pub fn group(&self, tag: Tag) -> PathBuf {
        self.path.join(SESSIONS).join(tag.to_string())
    }

    /// Makes room for sessions: moves what runs in the group itself into `server/`. Returns what can be
    /// bounded below `sessions/`, perhaps nothing: some of `memory`, `pids`, `cpu`. Safe to repeat.
    ///
    /// # Errors
    /// What could not be made or moved, as a sentence.
    pub fn prepare(&self) -> Result<Vec<String>, String> {
        let [server, sessions] = [SERVER, SESSIONS].map(|name| self.path.join(name));
        make(&server)?;
        make(&sessions)?;
        self.empty_into(&server)?;
        for group in [&self.path, &sessions] {
            for controller in listed(group, "cgroup.controllers") {
                // What is not to be had is missing in the answer.
                drop(write(group, "cgroup.subtree_control", &format!("+{controller}")));
            }
        }
        Ok(listed(&sessions, "cgroup.subtree_control"))
    }

    fn empty_into(&self, server: &Path) -> Result<(), String> {
        for _ in 0..MOST_ROUNDS {
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

    /// Makes the group of an incarnation, with those limits that it can hold.
    ///
    /// # Errors
    /// Why there is none, as a sentence.
    pub fn create(&self, tag: Tag, limits: &Limits) -> Result<Group, String> {
        let path = self.group(tag);
        make(&path)?;
        let unenforced = bound(&path, limits);
        Ok(Group { path, unenforced })
    }

    /// Removes the groups of incarnations that nobody keeps, where nothing runs in them.
    pub fn sweep(&self, keep: &dyn Fn(Tag) -> bool) {
        for entry in fs::read_dir(self.path.join(SESSIONS)).into_iter().flatten().flatten() {
            let tag = entry.file_name().to_str().and_then(|name| name.parse::<Tag>().ok());
            let path = entry.path();
            if tag.is_some_and(|tag| !keep(tag)) && is_populated(&path).is_ok_and(|populated| !populated) {
                // One that something moved into meanwhile stays.
                drop(remove(&path));
            }
        }
    }
}

fn supported() -> Result<(), String> {
    if cfg!(target_os = "linux") { Ok(()) } else { Err("this system has no control groups".to_owned()) }
}

fn make(path: &Path) -> Result<(), String> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(cannot("make", path)),
    }
}

fn cannot<E: Display>(what: &str, path: &Path) -> impl FnOnce(E) -> String {
    move |error| format!("cannot {what} the control group {}: {error}", path.display())
}

/// Those of our controllers that a file of a group names.
fn listed(group: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(group.join(file)).unwrap_or_default();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    CONTROLLERS.iter().filter(|name| words.contains(name)).map(|name| (*name).to_owned()).collect()
}

/// Sets each limit; what could not be set, as sentences.
fn bound(group: &Path, limits: &Limits) -> Vec<String> {
    let mut unenforced = Vec::new();
    let mut set = |limit: Limits, file: &str, value: Option<String>| {
        let Some(value) = value else { return };
        if let Err(error) = write(group, file, &value) {
            let why = if gone(&error) {
                "the control groups have no such bound here".into()
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
    let share =
        limits.cpu.map(|percent| format!("{} {PERIOD}", u64::from(percent) * u64::from(PERIOD / 100)));
    set(Limits { cpu: limits.cpu, ..Limits::default() }, "cpu.max", share);
    if limits.memory.is_some() {
        // Neither exists everywhere. What is swapped out would not count; and the program may outlive a child
        // that took too much.
        for file in ["memory.swap.max", "memory.oom.group"] {
            drop(present(write(group, file, "0")));
        }
    }
    unenforced
}

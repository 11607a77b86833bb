//! Identification of processes. A pid alone is ambiguous because it is reused; pid and start time together
//! identify one process for reading. Signalling needs a [`crate::handle::Handle`].

use std::collections::BTreeMap;
use std::io;

use protocol::ProcId;

use crate::bounded_reads::UNANSWERED;
use crate::info::BasicInfo;
use crate::platform;

pub use crate::info::{Process, State};

/// Reads the process that has this pid now, zombies included; `None` if there is none.
pub fn read(pid: u32) -> io::Result<Option<Process>> {
    platform::read(pid)
}

/// As [`read`], of several processes: those that do not answer in time are left out, and delay the others once.
pub fn read_each(pids: &[u32]) -> BTreeMap<u32, Process> {
    let mut found = BTreeMap::new();
    UNANSWERED.read_each(pids, read, |pid, process| {
        found.extend(process.and_then(Result::ok).flatten().map(|process| (pid, process)));
    });
    found
}

/// True if the system answers within the usual time limit when asked about this pid, even if there is no such process.
pub fn answers(pid: u32) -> bool {
    let mut answers = false;
    UNANSWERED.read_each(&[pid], read, |_, process| answers = process.is_some());
    answers
}

/// Returns the identity of the living process that has this pid; `None` if there is none, or only a zombie.
pub fn identify(pid: u32) -> io::Result<Option<ProcId>> {
    Ok(platform::basic_info(pid)?.filter(BasicInfo::is_alive).map(|process| process.id))
}

/// Returns the identity of the calling process.
///
/// # Errors
/// As [`read`]: only if `/proc` is not mounted.
pub fn me() -> io::Result<ProcId> {
    identify(std::process::id())?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the run state of this process; [`State::Gone`] if its pid belongs to another one now.
pub fn state(id: ProcId) -> io::Result<State> {
    state_as_read(id, platform::basic_info(id.pid))
}

fn state_as_read(id: ProcId, read: io::Result<Option<BasicInfo>>) -> io::Result<State> {
    match read {
        // A process that does not answer is blocked in the kernel.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(State::Running),
        read => {
            let found = read?.filter(|process| process.id == id);
            Ok(found.map_or(State::Gone, |process| process.state))
        }
    }
}

/// True if this process has ended; a zombie has.
pub fn exited(id: ProcId) -> io::Result<bool> {
    Ok(matches!(state(id)?, State::Gone | State::Zombie))
}

/// True if `path` is an executable that has replaced the one of this process: it was started from this path, or its own
/// file was removed. False if that is unknown, as on macOS, and for another program that is still there.
pub fn is_outdated(id: ProcId, path: &std::path::Path) -> bool {
    platform::is_outdated(id.pid, path).unwrap_or(false) && !exited(id).unwrap_or(true)
}

/// True if the calling process ignores this signal, as under `nohup`.
pub fn caller_ignores(signal: nix::sys::signal::Signal) -> bool {
    platform::ignores(std::process::id(), signal).unwrap_or(false)
}

/// Returns an identifier of the current boot; a [`ProcId`] is unique only within one boot.
pub fn boot_id() -> io::Result<String> {
    platform::boot_id()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn i_am_running_and_someone_else_is_not_me() {
        let me = me().unwrap();
        assert_eq!(me.pid, std::process::id());
        assert_eq!(state(me).unwrap(), State::Running);
        let impostor = ProcId { start: me.start + 1, ..me };
        assert_eq!(state(impostor).unwrap(), State::Gone);
        assert!(exited(impostor).unwrap());
    }

    #[test]
    fn a_process_that_does_not_answer_is_not_gone_and_one_that_cannot_be_read_is_unknown() {
        let id = me().unwrap();
        let read = |kind: io::ErrorKind| state_as_read(id, Err(kind.into())).map_err(|error| error.kind());
        assert_eq!(read(io::ErrorKind::TimedOut), Ok(State::Running));
        assert_eq!(read(io::ErrorKind::PermissionDenied), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(state_as_read(id, Ok(None)).unwrap(), State::Gone);
    }

    #[test]
    fn a_zombie_has_exited_and_is_then_gone() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let id = identify(child.id()).unwrap().unwrap();
        drop(child.stdin.take());
        while state(id).unwrap() != State::Zombie {
            std::thread::yield_now();
        }
        assert!(exited(id).unwrap());
        assert_eq!(identify(id.pid).unwrap(), None);
        child.wait().unwrap();
        assert_eq!(state(id).unwrap(), State::Gone);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_executable_that_is_moved_relinked_or_removed_is_replaced_by_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two, link] = ["1", "2", "link"].map(|name| dir.path().join(name));
        // By a process of its own: a file that this one has open for writing cannot be executed.
        let install = |at: &std::path::Path| {
            std::fs::create_dir_all(at).unwrap();
            assert!(Command::new("cp").arg("/bin/sleep").arg(at).status().unwrap().success());
        };
        for at in [&one, &two] {
            install(at);
        }
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let start = |path: &std::path::Path| {
            let child = Command::new(path.join("sleep"))
                .arg("1000")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // Its arguments cannot be read in the first moment after its exec.
            let has_arguments =
                || platform::argv(child.id()).is_ok_and(|read| read.is_some_and(|read| !read.is_empty()));
            let begun = std::time::Instant::now();
            while !has_arguments() {
                assert!(begun.elapsed() < std::time::Duration::from_secs(30));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            (identify(child.id()).unwrap().unwrap(), child)
        };
        let mut started = [start(&one), start(&link)];
        let is_outdated = |n: usize, at: &std::path::Path| is_outdated(started[n].0, &at.join("sleep"));
        let all = [0, 1].map(|n| [&one, &two].map(|at| is_outdated(n, at)));
        assert_eq!(all, [[false; 2]; 2], "another one beside it replaces nothing");
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&two, &link).unwrap();
        assert!(!is_outdated(0, &two) && is_outdated(1, &two), "its link leads there now");
        std::fs::rename(one.join("sleep"), one.join("old")).unwrap();
        assert!(!is_outdated(0, &one), "nothing is there");
        install(&one);
        assert!(is_outdated(0, &one) && !is_outdated(0, &two), "it was moved");
        std::fs::remove_file(one.join("old")).unwrap();
        assert!(is_outdated(0, &two), "it is gone");
        started.iter_mut().for_each(|(_, child)| child.kill().and_then(|()| child.wait().map(drop)).unwrap());
    }

    #[test]
    fn a_boot_has_one_name() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert!(boot_id().unwrap().len() >= 32);
    }
}

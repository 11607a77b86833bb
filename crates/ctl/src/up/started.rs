//! The record of the daemons that supervisors of this pool have started, in the file `up.daemons`. A killed
//! supervisor leaves its daemons running; the next supervisor and `down` find them here.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use process::handle::Handle;
use process::identity::{self, boot_id};
use protocol::{Paths, ProcId};
use serde::{Deserialize, Serialize};

use crate::{Error, atomic_file, supervisor_lock};

/// A line of the file, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Started {
    name: String,
    process: ProcId,
    /// The boot id: a process id is valid within its boot only.
    boot: String,
    /// The device and inode of the pool's directory: in a copy of it, this file names the daemons of another pool.
    #[serde(default)]
    dir: Option<(u64, u64)>,
}

fn path(paths: &Paths) -> PathBuf {
    paths.run.join("up.daemons")
}

/// Adds a started daemon.
pub(crate) fn add(paths: &Paths, name: &str, process: ProcId) -> io::Result<()> {
    let mut started = read(paths)?;
    // A daemon that cannot be examined stays on record.
    started.retain(|one| !matches!(Handle::open(one.process), Ok(None)));
    started.push(Started { name: name.to_owned(), process, boot: boot_id()?, dir: dir_id(paths) });
    write(paths, started)
}

fn line(started: &Started) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(started)?;
    line.push(b'\n');
    Ok(line)
}

/// Fails if the record cannot be read: without it, second daemons would be started beside the running ones.
pub(crate) fn check(paths: &Paths) -> Result<(), Error> {
    recorded(paths).map(drop)
}

fn recorded(paths: &Paths) -> Result<Vec<Started>, Error> {
    read(paths).map_err(|error| {
        let file = path(paths);
        let how = "make the file readable, or end the daemons and remove the file";
        Error::failed(format!(
            "cannot know which daemons of this pool run: {}: {error}; {how}",
            file.display()
        ))
    })
}

/// Opens a handle for each daemon that is alive, so that a process that reuses its id is not mistaken for it.
pub(crate) fn alive(paths: &Paths) -> Result<Vec<(String, Handle)>, Error> {
    let failed = |error: process::Error| Error::failed(format!("cannot examine a daemon: {error}"));
    let mut alive: Vec<(String, Handle)> = Vec::new();
    for started in recorded(paths)? {
        let known = alive.iter().any(|(_, handle)| handle.id() == started.process);
        if let Some(handle) = Handle::open(started.process).map_err(failed)?.filter(|_| !known) {
            alive.push((started.name, handle));
        }
    }
    Ok(alive)
}

/// True if this process is a child of the live supervisor, which has started it then, even if it could not be put on
/// record.
pub(crate) fn is_child_of_supervisor(paths: &Paths, pid: u32) -> bool {
    let supervisor = supervisor_lock::holder(&paths.up_lock).map(|holder| holder.pid);
    let process = identity::read(pid).ok().flatten();
    process.is_some_and(|process| Some(process.ppid) == supervisor)
}

/// Replaces the content of the file by the daemons that are alive.
pub(crate) fn rewrite(paths: &Paths, alive: &[(String, Handle)]) -> io::Result<()> {
    let (boot, dir) = (boot_id()?, dir_id(paths));
    write(
        paths,
        alive.iter().map(|(name, handle)| Started {
            name: name.clone(),
            process: handle.id(),
            boot: boot.clone(),
            dir,
        }),
    )
}

fn write(paths: &Paths, started: impl IntoIterator<Item = Started>) -> io::Result<()> {
    let lines = started.into_iter().map(|one| line(&one)).collect::<io::Result<Vec<_>>>()?;
    let mut text = lines.concat();
    if text.is_empty() {
        // An empty file has no block to be overwritten on a full disk. A blank line names no daemon.
        text.push(b'\n');
    }
    match atomic_file::replace(&path(paths), 0o600, &text) {
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            overwrite(&path(paths), &text)
        }
        replaced => replaced,
    }
}

/// Writes the file in place, so that its blocks are used again: a full disk has no room for a second file. A reader in
/// between finds old lines behind the new ones, or a damaged one, and skips that.
fn overwrite(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.write_all(text)?;
    file.set_len(text.len() as u64)
}

fn read(paths: &Paths) -> io::Result<Vec<Started>> {
    let text = match fs::read(path(paths)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let (boot, dir) = (boot_id()?, dir_id(paths));
    let is_ours = |one: &Started| one.boot == boot && (one.dir.is_none() || one.dir == dir);
    // Unreadable lines are skipped: a power cut, which no daemon outlives, damages a line, or a write on a full disk.
    let started =
        text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Started>(line).ok());
    Ok(started.filter(is_ours).collect())
}

fn dir_id(paths: &Paths) -> Option<(u64, u64)> {
    fs::metadata(&paths.run).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The paths of an empty pool in this directory.
    pub(crate) fn pool_in(dir: &Path) -> Paths {
        let env = protocol::paths::Env {
            state_dir: Some(dir.as_os_str().to_owned()),
            home: Some(dir.to_owned()),
            ..Default::default()
        };
        let paths = Paths::new(&env).unwrap();
        fs::create_dir_all(&paths.run).unwrap();
        paths
    }

    #[test]
    fn a_daemon_is_known_while_it_lives_and_in_its_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let paths = pool_in(dir.path());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let id = process::identity::identify(child.id()).unwrap().unwrap();
        let impostor = ProcId { start: id.start + 1, ..id };
        add(&paths, "poold", impostor).unwrap();
        add(&paths, "reaper", id).unwrap();
        add(&paths, "reaper", id).unwrap();
        let other = Started {
            name: "reaper".to_owned(),
            process: id,
            boot: "another".to_owned(),
            dir: dir_id(&paths),
        };
        let named = || alive(&paths).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(named(), ["reaper"]);
        rewrite(&paths, &alive(&paths).unwrap()).unwrap();
        assert_eq!(read(&paths).unwrap().len(), 1);
        let copy = tempfile::tempdir().unwrap();
        let copied = Paths { run: copy.path().to_owned(), ..paths.clone() };
        fs::copy(path(&paths), path(&copied)).unwrap();
        assert!(alive(&copied).unwrap().is_empty(), "they are of the pool that was copied");
        fs::write(path(&paths), line(&other).unwrap()).unwrap();
        assert!(named().is_empty(), "a process id of another boot is another process");
        let mine = Started { boot: boot_id().unwrap(), ..other };
        let damaged = [b"\xff\0\n".to_vec(), line(&mine).unwrap()].concat();
        fs::write(path(&paths), damaged).unwrap();
        assert_eq!(named(), ["reaper"], "the other lines count");
        fs::remove_file(path(&paths)).unwrap();
        assert!(named().is_empty() && check(&paths).is_ok());
        // Not even root reads it.
        fs::create_dir(path(&paths)).unwrap();
        let told = alive(&paths).map(drop).unwrap_err().to_string();
        assert!(told.contains("cannot know which daemons of this pool run"), "{told}");
        assert!(check(&paths).is_err() && add(&paths, "reaper", id).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_child_of_the_supervisor_is_its_own_without_a_record() {
        let dir = tempfile::tempdir().unwrap();
        let paths = pool_in(dir.path());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!is_child_of_supervisor(&paths, child.id()), "there is no supervisor");
        let terms = supervisor_lock::Terms::default();
        let _up = supervisor_lock::try_acquire(&paths.up_lock, &terms).unwrap().unwrap();
        assert!(is_child_of_supervisor(&paths, child.id()));
        assert!(!is_child_of_supervisor(&paths, std::process::id()), "somebody else has started this one");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_record_keeps_a_block_that_is_overwritten_on_a_full_disk() {
        let dir = tempfile::tempdir().unwrap();
        let paths = pool_in(dir.path());
        assert!(overwrite(&path(&paths), b"text").is_err(), "no file has a block");
        rewrite(&paths, &[]).unwrap();
        assert!(fs::metadata(path(&paths)).unwrap().len() > 0 && read(&paths).unwrap().is_empty());
        for text in ["one line\n", "a longer line\n", "short\n"] {
            overwrite(&path(&paths), text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(path(&paths)).unwrap(), text);
        }
    }
}

//! The daemons that supervisors of this pool have started, in a file: one that was killed leaves them running, and the
//! next one, or `down`, knows which they are.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use process::handle::Handle;
use process::identity::boot_id;
use protocol::ProcId;
use protocol::socket::Paths;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Started {
    name: String,
    process: ProcId,
    /// A process number means something in its own boot only.
    boot: String,
}

fn path(paths: &Paths) -> PathBuf {
    paths.run.join("up.daemons")
}

/// Records a started daemon.
///
/// # Errors
/// It cannot be written down.
pub(crate) fn note(paths: &Paths, name: &str, process: ProcId) -> io::Result<()> {
    let started = Started { name: name.to_owned(), process, boot: boot_id()? };
    let mut file = fs::File::options().append(true).create(true).mode(0o600).open(path(paths))?;
    file.write_all(&line(&started)?)
}

fn line(started: &Started) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(started)?;
    line.push(b'\n');
    Ok(line)
}

/// Opens a handle for each daemon that is alive, so that no other process can take its place.
///
/// # Errors
/// One cannot be looked at.
pub(crate) fn alive(paths: &Paths) -> Result<Vec<(String, Handle)>, Error> {
    let failed = |error: process::Error| Error::failed(format!("cannot look at a daemon: {error}"));
    let mut alive: Vec<(String, Handle)> = Vec::new();
    for started in read(&path(paths)) {
        let known = alive.iter().any(|(_, handle)| handle.id() == started.process);
        if let Some(handle) = Handle::open(started.process).map_err(failed)?.filter(|_| !known) {
            alive.push((started.name, handle));
        }
    }
    Ok(alive)
}

/// Replaces the file by the daemons that are alive.
///
/// # Errors
/// It cannot be written down.
pub(crate) fn tidy(paths: &Paths, alive: &[(String, Handle)]) -> io::Result<()> {
    let boot = boot_id()?;
    let mut text = Vec::new();
    for (name, handle) in alive {
        text.extend(line(&Started { name: name.clone(), process: handle.id(), boot: boot.clone() })?);
    }
    let fresh = path(paths).with_extension("new");
    fs::write(&fresh, text)?;
    fs::rename(fresh, path(paths))
}

fn read(path: &Path) -> Vec<Started> {
    let boot = boot_id().unwrap_or_default();
    let text = fs::read_to_string(path).unwrap_or_default();
    let started = text.lines().filter_map(|line| serde_json::from_str::<Started>(line).ok());
    started.filter(|started| started.boot == boot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_started_is_known_while_it_lives_and_in_its_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let env = protocol::socket::Env {
            state_dir: Some(dir.path().as_os_str().to_owned()),
            home: Some(dir.path().to_owned()),
            ..Default::default()
        };
        let paths = Paths::new(&env).unwrap();
        fs::create_dir_all(&paths.run).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let id = process::identity::identify(child.id()).unwrap().unwrap();
        let impostor = ProcId { start: id.start + 1, ..id };
        note(&paths, "poold", impostor).unwrap();
        note(&paths, "reaper", id).unwrap();
        note(&paths, "reaper", id).unwrap();
        let other = Started { name: "reaper".to_owned(), process: id, boot: "another".to_owned() };
        let named = || alive(&paths).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(named(), ["reaper"]);
        tidy(&paths, &alive(&paths).unwrap()).unwrap();
        assert_eq!(read(&path(&paths)).len(), 1);
        fs::write(path(&paths), line(&other).unwrap()).unwrap();
        assert!(named().is_empty(), "a number of another boot is another process");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

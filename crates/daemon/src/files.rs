//! The files that the daemon and the inits exchange, and each session's directory.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use protocol::job::{ExitRecord, Job, Started};
use protocol::life::Account;
use protocol::{Exit, ProcId, SessionId, Tag};

/// Who has an incarnation's job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Nobody: it will never run.
    Never,
    /// An init claimed it: it runs or ran.
    Claimed,
}

fn path(run: &Path, tag: Tag, what: &str) -> PathBuf {
    run.join(format!("{tag}.{what}"))
}

/// Writes a job. It need not outlive a crash of the machine, which its init would not either: one that is
/// missing was never run.
pub(crate) fn write_job(run: &Path, job: &Job) -> io::Result<PathBuf> {
    let path = path(run, job.tag, "job");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(&serde_json::to_vec(job)?)?;
    Ok(path)
}

/// Writes a small file of an incarnation's, whole or not at all, for its user's eyes only.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("part");
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    drop(fs::remove_file(&unfinished));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(bytes)?;
    fs::rename(unfinished, path)
}

/// Takes a job away from whoever might still start it.
pub(crate) fn fence(run: &Path, tag: Tag) -> io::Result<Fence> {
    match fs::remove_file(path(run, tag, "job")) {
        Ok(()) => Ok(Fence::Never),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let traces = ["taken", "started", "exit"].iter().any(|what| path(run, tag, what).exists());
            Ok(if traces { Fence::Claimed } else { Fence::Never })
        }
        Err(error) => Err(error),
    }
}

/// The init that claimed an incarnation's job.
pub(crate) fn claimed_by(run: &Path, tag: Tag) -> Option<ProcId> {
    let text = fs::read(path(run, tag, "taken")).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The tags of which there are files.
pub(crate) fn tags(run: &Path) -> BTreeSet<Tag> {
    let names = fs::read_dir(run).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.split_once('.')?.0.parse().ok()).collect()
}

/// How long a file system may take before it counts as dead.
const FILE_LIMIT: Duration = Duration::from_secs(10);

/// Does this on a thread for slow work. `None` where the file system does not answer.
pub(crate) async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::time::timeout(FILE_LIMIT, tokio::task::spawn_blocking(work)).await.ok()?.ok()
}

/// Opens what others wrote, to be read: a regular file and nothing else, so that nobody waits for the other end of a pipe.
pub(crate) fn open_regular(path: &Path, flags: OFlag) -> io::Result<(File, Metadata)> {
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    if found.is_file() { Ok((file, found)) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// That the program of this incarnation runs or ran.
pub(crate) fn read_started(run: &Path, tag: Tag) -> Option<Started> {
    read(run, tag, "started")
}

/// How the program of this incarnation ended, and why it could not be executed, if it was that.
pub(crate) fn read_exit(run: &Path, tag: Tag) -> Option<(Exit, Option<String>)> {
    let record: ExitRecord = read(run, tag, "exit")?;
    let exit = Exit { code: record.code, signal: record.signal, at: record.at };
    Some((exit, record.exec_error))
}

/// What the program of this incarnation used in all.
pub(crate) fn read_account(run: &Path, tag: Tag) -> Option<Account> {
    let ExitRecord { user_us, system_us, max_rss_kib, oom_kills, .. } = read(run, tag, "exit")?;
    Some(Account { user_us, system_us, max_rss_kib, oom_kills })
}

fn read<T: serde::de::DeserializeOwned>(run: &Path, tag: Tag, what: &str) -> Option<T> {
    let path = path(run, tag, what);
    let text = fs::read(&path).ok()?;
    serde_json::from_slice(&text)
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "unreadable; left as it is"))
        .ok()
}

/// Removes what an ended incarnation left, once its end is on disk.
pub(crate) fn forget(run: &Path, tag: Tag) {
    for what in ["job", "taken", "started", "exit", "exit.tmp"] {
        // Most of them are not there.
        drop(fs::remove_file(path(run, tag, what)));
    }
}

/// Makes a session's directory and what is in it, each 0700.
pub(crate) fn make_session_dir(dir: &Path) -> io::Result<()> {
    for dir in [dir, &dir.join("work"), &dir.join("logs"), &dir.join("tmp")] {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    Ok(())
}

/// Where a session's last screen is kept.
pub(crate) fn screen(sessions: &Path, id: SessionId) -> PathBuf {
    sessions.join(id.to_string()).join("screen")
}

/// Writes a file whole or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(tag: Tag) -> Job {
        Job {
            version: 1,
            session: SessionId(1),
            tag,
            argv: vec!["true".into()],
            cwd: "/".into(),
            env: vec![],
            see_tmux: false,
            socket: "/s".into(),
            grace_ms: 1,
            umask: 0o022,
            limits: Default::default(),
            cgroup: None,
            leftovers: Default::default(),
            private: None,
        }
    }

    #[test]
    fn whoever_moves_the_job_first_wins() {
        let dir = tempfile::tempdir().unwrap();
        let tag = Tag([7; 16]);
        assert_eq!(fence(dir.path(), tag).unwrap(), Fence::Never, "it was never written");
        let path = write_job(dir.path(), &job(tag)).unwrap();
        fs::rename(&path, path.with_extension("taken")).unwrap();
        assert_eq!(fence(dir.path(), tag).unwrap(), Fence::Claimed);
        forget(dir.path(), tag);
        write_job(dir.path(), &job(tag)).unwrap();
        assert_eq!(fence(dir.path(), tag).unwrap(), Fence::Never);
    }
}

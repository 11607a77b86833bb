//! The files that the daemon and the inits exchange, and each session's directory.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use protocol::job::{ExitRecord, Job, Started};
use protocol::usage::Account;
use protocol::{Exit, ProcId, Tag};

/// Who has an incarnation's job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Nobody: it will never run.
    Never,
    /// An init claimed it: it runs or ran.
    Claimed,
}

/// The longest record of an incarnation, in bytes: with the error of a program that could not be executed, and what
/// could not be enforced.
const RECORD_MAX: u64 = 64 * 1024;

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

/// Writes a small file whole or not at all, for its user's eyes only. Its directory is made where it is missing. What
/// somebody else put in the way of it is removed, never opened.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("part");
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
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
    let text = read_small(&path(run, tag, "taken"), RECORD_MAX).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The tags of which there are files.
pub(crate) fn tags(run: &Path) -> BTreeSet<Tag> {
    let names = fs::read_dir(run).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.split_once('.')?.0.parse().ok()).collect()
}

/// Opens what others wrote, to be read.
pub(crate) fn open_regular(path: &Path, flags: OFlag) -> io::Result<(File, Metadata)> {
    process::runtime::untrusted_file::open_regular(OpenOptions::new().read(true), flags, path)
}

/// Reads a file that a program in a session could have replaced: this user's own regular file, itself and no link to
/// one, of at most so many bytes.
pub(crate) fn read_small(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let (file, found) = open_regular(path, OFlag::O_NOFOLLOW)?;
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
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
    let text = read_small(&path, RECORD_MAX)
        .inspect_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "not read");
            }
        })
        .ok()?;
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

/// The name of a session's last screen, in what is kept of it ([`protocol::paths::Paths::meta_of`]).
pub(crate) const SCREEN: &str = "screen";
/// The longest screen that is shown, in bytes: the largest terminal, each cell with its colours.
pub(crate) const SCREEN_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn job(tag: Tag) -> Job {
        Job {
            version: 1,
            session: protocol::SessionId(1),
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
    fn what_others_put_in_the_place_of_a_file_is_neither_waited_for_nor_followed_nor_read_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, odd) = (dir.path().join("plain"), dir.path().join("odd"));
        fs::write(&plain, "12345").unwrap();
        assert_eq!(read_small(&plain, 5).unwrap(), b"12345");
        assert_eq!(read_small(&plain, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        nix::unistd::mkfifo(&odd, nix::sys::stat::Mode::S_IRWXU).unwrap();
        read_small(&odd, 5).unwrap_err();
        for target in [plain.as_path(), Path::new("/dev/zero")] {
            fs::remove_file(&odd).unwrap();
            std::os::unix::fs::symlink(target, &odd).unwrap();
            read_small(&odd, 5).unwrap_err();
        }
        // Nor is it written through.
        let part = plain.with_extension("part");
        std::os::unix::fs::symlink("odd", &part).unwrap();
        replace(&plain, b"new").unwrap();
        assert_eq!(fs::read(&plain).unwrap(), b"new");
        assert!(fs::symlink_metadata(&plain).unwrap().is_file());
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

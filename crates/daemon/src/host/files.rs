//! Files of incarnations, which the daemon and the inits exchange in the run directory; each session's
//! directory; and the functions that read and write small files safely.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::OFlag;
use pool::clock::STEP;
use protocol::job::{ExitRecord, Job, RUN_FILES, Started};
use protocol::usage::Account;
use protocol::{Exit, ProcId, Tag, Timestamp};
use world::clock::timestamp;

/// The state of an incarnation's job after it was withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// No init has claimed the job: it has not run, and can never run.
    Never,
    /// An init claimed it: it runs or ran.
    Claimed,
}

/// Maximum size in bytes of a record of an incarnation, with the error of a program that could not be
/// executed and the limits that could not be enforced.
const RECORD_MAX: u64 = 64 * 1024;

fn path(run: &Path, tag: Tag, what: &str) -> PathBuf {
    run.join(format!("{tag}.{what}"))
}

/// Writes a job file, unsynced: a missing job was never run, and a crash of the machine would end its init
/// too.
pub(crate) fn write_job(run: &Path, job: &Job) -> io::Result<PathBuf> {
    let path = path(run, job.tag, "job");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(&serde_json::to_vec(job)?)?;
    Ok(path)
}

/// Returns the time of the last write to a session's output: to its log, or to that of its standard error where
/// that is kept apart. `None` if there is no log.
pub(crate) fn last_written(log: &Path, now: Timestamp) -> Option<Timestamp> {
    written(log, &fs::metadata(log).ok()?, now)
}

/// As [`last_written`], of a log with this metadata.
pub(crate) fn written(log: &Path, meta: &Metadata, now: Timestamp) -> Option<Timestamp> {
    let other = fs::metadata(stderr_log(log)).and_then(|found| found.modified()).ok();
    let written = meta.modified().ok()?;
    // A time far ahead of `now` is from before the clock was set back.
    let soon = now.after(STEP);
    other.into_iter().chain([written]).map(timestamp).max_by_key(|at| (*at < soon, *at))
}

/// True if a session's program has written anything, also to a standard error that is kept apart.
pub(crate) fn has_output(log: &Path) -> bool {
    [log, &stderr_log(log)].into_iter().any(|path| fs::metadata(path).is_ok_and(|found| found.len() > 0))
}

/// The log of a standard error that is kept apart.
fn stderr_log(log: &Path) -> PathBuf {
    log.with_file_name(protocol::logs::STDERR).join(protocol::logs::CURRENT)
}

/// Reads a piece of a file that another program writes; less at its end.
pub(crate) fn read_range(path: &Path, from: u64, max: u64) -> io::Result<Vec<u8>> {
    let (mut file, _) = open_regular(path, OFlag::empty())?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Number of atomic writes of this process.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Names of temporary files beside one file: what a crash leaves is bounded.
const PARTS: u64 = 100;

/// Writes a small file atomically, with mode 0600, and creates its directory if missing. The temporary file
/// is created exclusively, so a link that a program put in its place is removed, never followed.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_then_rename(path, bytes, |_| Ok(()))
}

/// As [`write_atomic`], and no crash of the machine leaves the file cut off. The name itself is not synced.
pub(crate) fn write_atomic_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_then_rename(path, bytes, File::sync_all)
}

fn write_then_rename(
    path: &Path,
    bytes: &[u8],
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    // A write that goes on after its time limit must not share a temporary file with the next one.
    let part = path.with_extension(format!("part{}", WRITES.fetch_add(1, Ordering::Relaxed) % PARTS));
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    drop(fs::remove_file(&part));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    let written = file.write_all(bytes).and_then(|()| sync(&file)).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        drop(fs::remove_file(part));
    }
    written
}

/// Fails if a file of this size cannot be written in a directory, and leaves none there. The free space that a file
/// system tells counts neither quotas nor inodes.
pub(crate) fn try_space(dir: &Path, bytes: usize) -> io::Result<()> {
    let part = dir.join(format!("space.part{}", WRITES.fetch_add(1, Ordering::Relaxed) % PARTS));
    drop(fs::remove_file(&part));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    // Unnamed before it is written: a crash leaves nothing of it.
    fs::remove_file(part)?;
    file.write_all(&vec![0_u8; bytes])
}

/// Withdraws a job, so that no init can start it any more.
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

/// Returns the init that claimed an incarnation's job.
pub(crate) fn claimed_by(run: &Path, tag: Tag) -> Option<ProcId> {
    let text = read_bounded(&path(run, tag, "taken"), RECORD_MAX).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Returns the tags that have files in the run directory.
pub(crate) fn run_file_tags(run: &Path) -> BTreeSet<Tag> {
    let names = fs::read_dir(run).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.split_once('.')?.0.parse().ok()).collect()
}

/// Opens a file that another program may have replaced, for reading.
pub(crate) fn open_regular(path: &Path, flags: OFlag) -> io::Result<(File, Metadata)> {
    process::runtime::untrusted_file::open_regular(OpenOptions::new().read(true), flags, path)
}

/// Reads a file that a program in a session may have replaced: only a regular file of this user, not through
/// a link, of at most `max` bytes.
pub(crate) fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let (file, found) = open_regular(path, OFlag::O_NOFOLLOW)?;
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Reads the record that the program of this incarnation was started.
pub(crate) fn read_started(run: &Path, tag: Tag) -> Option<Started> {
    read(run, tag, "started")
}

/// True if there is a record that the program of this incarnation was started, or if it is unknown whether there is.
pub(crate) fn may_have_started(run: &Path, tag: Tag) -> bool {
    path(run, tag, "started").try_exists().unwrap_or(true)
}

/// Reads the exit of this incarnation's program, and the error if it could not be executed.
pub(crate) fn read_exit(run: &Path, tag: Tag) -> Option<(Exit, Option<String>)> {
    let record: ExitRecord = read(run, tag, "exit")?;
    let exit = Exit { code: record.code, signal: record.signal, at: record.at };
    Some((exit, record.exec_error))
}

/// Reads the total resource use of this incarnation's program.
pub(crate) fn read_account(run: &Path, tag: Tag) -> Option<Account> {
    let ExitRecord { user_us, system_us, max_rss_kib, oom_kills, .. } = read(run, tag, "exit")?;
    Some(Account { user_us, system_us, max_rss_kib, oom_kills })
}

fn read<T: serde::de::DeserializeOwned>(run: &Path, tag: Tag, what: &str) -> Option<T> {
    let path = path(run, tag, what);
    let text = read_bounded(&path, RECORD_MAX)
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

/// Removes the files of an ended incarnation, once its end is committed.
pub(crate) fn remove_run_files(run: &Path, tag: Tag) {
    for what in RUN_FILES {
        // Most of them do not exist.
        drop(fs::remove_file(path(run, tag, what)));
    }
}

/// Creates a session's directory and its subdirectories, each with mode 0700. Fails if the directory or that of the log
/// is a link. One in place of `work` or `tmp` concerns the session's programs alone: the pool creates nothing there.
pub(crate) fn make_session_dir(dir: &Path) -> io::Result<()> {
    check_session_dir(dir)?;
    for dir in session_dirs(dir) {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    Ok(())
}

/// Fails if [`make_session_dir`] would, because of a link or something else in place of a directory. Creates nothing.
pub(crate) fn check_session_dir(dir: &Path) -> io::Result<()> {
    process::log_writer::refuse_links(&dir.join("logs"))?;
    match session_dirs(dir).iter().find(|dir| fs::symlink_metadata(dir).is_ok() && !dir.is_dir()) {
        None => Ok(()),
        Some(other) => Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("{} is not a directory: put the directory back in its place", other.display()),
        )),
    }
}

/// A session's directory and its subdirectories.
fn session_dirs(dir: &Path) -> [PathBuf; 4] {
    [dir.to_owned(), dir.join("logs"), dir.join("work"), dir.join("tmp")]
}

/// Name of the file with a session's last screen, below [`protocol::paths::Paths::meta_of`].
pub(crate) const SCREEN: &str = "screen";

/// Maximum size of a last screen in bytes: the largest terminal, each cell with its colours.
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
            stderr: None,
        }
    }

    #[test]
    fn the_last_write_of_two_logs_is_not_one_from_before_the_clock_was_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join(protocol::logs::CURRENT);
        fs::create_dir(dir.path().join(protocol::logs::STDERR)).unwrap();
        let minute = |n: u64| std::time::UNIX_EPOCH + std::time::Duration::from_secs(60 * n);
        for (path, at) in [(&log, minute(20)), (&stderr_log(&log), minute(59))] {
            File::create(path).unwrap().set_modified(at).unwrap();
        }
        let last = |now| last_written(&log, timestamp(now));
        assert_eq!(last(minute(60)), Some(timestamp(minute(59))));
        assert_eq!(last(minute(21)), Some(timestamp(minute(20))));
        let just_before = minute(59) - std::time::Duration::from_millis(2);
        assert_eq!(last(just_before), Some(timestamp(minute(59))), "written since `now` was read");
    }

    #[test]
    fn no_file_of_an_ended_incarnation_is_left_however_far_its_writer_came() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        let tag = Tag([7; 16]);
        for what in ["job", "taken", "started", "started.tmp", "exit", "exit.tmp"] {
            fs::write(path(run, tag, what), "").unwrap();
        }
        assert_eq!(run_file_tags(run), BTreeSet::from([tag]));
        remove_run_files(run, tag);
        assert_eq!(run_file_tags(run), BTreeSet::new());
    }

    #[test]
    fn a_replaced_file_is_neither_waited_for_nor_followed_nor_read_without_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, odd) = (dir.path().join("plain"), dir.path().join("odd"));
        fs::write(&plain, "12345").unwrap();
        assert_eq!(read_bounded(&plain, 5).unwrap(), b"12345");
        assert_eq!(read_bounded(&plain, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        nix::unistd::mkfifo(&odd, nix::sys::stat::Mode::S_IRWXU).unwrap();
        read_bounded(&odd, 5).unwrap_err();
        for target in [plain.as_path(), Path::new("/dev/zero")] {
            fs::remove_file(&odd).unwrap();
            std::os::unix::fs::symlink(target, &odd).unwrap();
            read_bounded(&odd, 5).unwrap_err();
        }
        // A link is not written through either.
        for n in 0..100 {
            std::os::unix::fs::symlink("odd", plain.with_extension(format!("part{n}"))).unwrap();
        }
        write_atomic(&plain, b"new").unwrap();
        assert_eq!(fs::read(&plain).unwrap(), b"new");
        assert!(fs::symlink_metadata(&plain).unwrap().is_file());
    }

    #[test]
    fn space_is_tried_without_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        try_space(dir.path(), 100_000).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        try_space(&dir.path().join("missing"), 1).unwrap_err();
    }

    #[test]
    fn nothing_is_made_in_the_directory_of_another_session() {
        let sessions = tempfile::tempdir().unwrap();
        let [own, other] = ["sess_1", "sess_2"].map(|id| sessions.path().join(id));
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &own).unwrap();
        let refused = make_session_dir(&own).unwrap_err().to_string();
        assert!(refused.contains("sess_1 is a link"), "{refused}");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        fs::remove_file(&own).unwrap();
        make_session_dir(&own).unwrap();
        make_session_dir(&own).unwrap();
        fs::remove_dir(own.join("logs")).unwrap();
        std::os::unix::fs::symlink(&other, own.join("logs")).unwrap();
        make_session_dir(&own).unwrap_err();
    }

    #[test]
    fn what_is_in_place_of_a_sessions_directories_is_seen_before_a_start() {
        let sessions = tempfile::tempdir().unwrap();
        let own = sessions.path().join("sess_1");
        check_session_dir(&own).unwrap();
        assert!(!own.exists(), "nothing is made");
        make_session_dir(&own).unwrap();
        check_session_dir(&own).unwrap();
        for part in ["logs", "work", "tmp"] {
            let part = own.join(part);
            fs::remove_dir(&part).unwrap();
            check_session_dir(&own).unwrap();
            fs::write(&part, "").unwrap();
            let refused = check_session_dir(&own).unwrap_err().to_string();
            assert!(refused.contains("is not a directory"), "{refused}");
            fs::remove_file(&part).unwrap();
            std::os::unix::fs::symlink("missing", &part).unwrap();
            check_session_dir(&own).unwrap_err();
            fs::remove_file(&part).unwrap();
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
        remove_run_files(dir.path(), tag);
        write_job(dir.path(), &job(tag)).unwrap();
        assert_eq!(fence(dir.path(), tag).unwrap(), Fence::Never);
    }
}

//! The files by which `poold` and an init communicate; [`protocol::job`] defines their content.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::OFlag;
use protocol::Timestamp;
use protocol::job::{ExitRecord, JOB_VERSION, Job, Started};
use serde::Serialize;

use super::spawn::Spawned;
use crate::identity;

/// Space reserved for the exit record, in bytes; more than any record without a long error message.
const RESERVED: usize = 1024;

/// The files of one job; they differ in their extension.
pub(super) struct JobFiles {
    job: PathBuf,
}

impl JobFiles {
    pub(super) fn new(job: &Path) -> Self {
        Self { job: job.to_owned() }
    }

    /// Claims the job by renaming it, so that only one init can run it.
    pub(super) fn claim(&self) -> io::Result<()> {
        fs::rename(&self.job, self.taken())
    }

    /// Reads the claimed job, and overwrites it with the identity of this init: the claim remains, the
    /// program's secrets do not.
    pub(super) fn read(&self) -> io::Result<Job> {
        let text = fs::read(self.taken())?;
        let me = identity::me().and_then(|me| Ok(serde_json::to_vec(&me)?)).unwrap_or_default();
        // On a full disk the file is left empty, which is a valid claim; the secrets are gone in any case.
        drop(fs::write(self.taken(), me));
        Ok(serde_json::from_slice(&text)?)
    }

    fn taken(&self) -> PathBuf {
        self.job.with_extension("taken")
    }

    /// Writes the start record. It is not synced, and a failure is ignored: if `poold` did not learn of the start in
    /// another way, the end of the init then counts as that of the program.
    pub(super) fn write_started(&self, spawned: &Spawned) {
        let agent = spawned.agent.as_raw().unsigned_abs();
        let identities = identity::me().ok().zip(identity::read(agent).ok().flatten());
        let Some((init, agent)) = identities else { return };
        let unenforced = spawned.unenforced.clone();
        let started = Started { version: JOB_VERSION, init, agent: agent.id, at: now(), unenforced };
        drop(self.write("started", &started, |_| Ok(())));
    }

    /// Reserves disk space for the exit record, which is later written in place, so that it can be recorded
    /// even if the program fills the disk. Not synced: the write allocates the space, and waiting for a slow
    /// disk would delay the start of the program or the handling of signals.
    pub(super) fn reserve_exit(&self) -> io::Result<()> {
        // Blanks, because any that remain after the record are valid JSON whitespace.
        self.temporary("exit")?.write_all(&[b' '; RESERVED])
    }

    /// Writes the exit record. It is synced to disk on return, so it survives a crash of the machine.
    pub(super) fn write_exit(&self, record: &ExitRecord) -> io::Result<()> {
        self.write_exit_with(record, File::sync_all)
    }

    /// Calls `sync` with the file before it gets its name, and with the directory afterwards.
    fn write_exit_with(&self, record: &ExitRecord, sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
        self.write("exit", record, &sync)?;
        sync(&File::open(self.job.parent().unwrap_or(Path::new(".")))?)
    }

    /// Writes a record atomically.
    fn write(
        &self,
        extension: &str,
        record: &impl Serialize,
        sync: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let written = self.temporary(extension).and_then(|mut file| {
            file.write_all(&serde_json::to_vec(record)?)?;
            sync(&file)?;
            fs::rename(self.temporary_path(extension), self.job.with_extension(extension))
        });
        if written.is_err() {
            drop(fs::remove_file(self.temporary_path(extension)));
        }
        written
    }

    /// Opens the temporary file, without truncating a reserved one.
    fn temporary(&self, extension: &str) -> io::Result<File> {
        let path = self.temporary_path(extension);
        // If another program has replaced the file, a FIFO does not block and a symbolic link is not
        // followed.
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(path)
    }

    fn temporary_path(&self, extension: &str) -> PathBuf {
        self.job.with_extension(format!("{extension}.tmp"))
    }
}

pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::default().after(since)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn record() -> ExitRecord {
        ExitRecord {
            version: JOB_VERSION,
            code: Some(3),
            signal: None,
            exec_error: None,
            at: Timestamp::default(),
            user_us: 0,
            system_us: 0,
            max_rss_kib: 0,
            oom_kills: None,
        }
    }

    #[test]
    fn an_exit_record_is_synced_before_it_gets_its_name_and_its_directory_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let (files, named) = (JobFiles::new(&dir.path().join("1.job")), dir.path().join("1.exit"));
        let synced = RefCell::new(Vec::new());
        let sync = |file: &File| {
            synced.borrow_mut().push((file.metadata()?.is_dir(), named.exists()));
            Ok(())
        };
        files.write_exit_with(&record(), sync).unwrap();
        assert_eq!(*synced.borrow(), [(false, false), (true, true)]);
    }

    /// In place of the file there is a FIFO, which cannot be synced.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_exit_record_that_is_not_synced_is_not_written() {
        use nix::{errno::Errno, sys::stat::Mode, unistd::mkfifo};
        let dir = tempfile::tempdir().unwrap();
        let files = JobFiles::new(&dir.path().join("1.job"));
        let fifo = files.temporary_path("exit");
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let mut options = OpenOptions::new();
        let _reader = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&fifo).unwrap();
        let error = files.write_exit(&record()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EINVAL as i32));
        assert!(!dir.path().join("1.exit").exists());
    }
}

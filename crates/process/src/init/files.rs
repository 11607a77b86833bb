//! The files between an init and `poold`; [`protocol::job`] says what each means.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::OFlag;
use protocol::job::{ExitRecord, JOB_VERSION, Job, Started};
use protocol::time::Timestamp;
use serde::Serialize;

use super::spawn::Spawned;
use crate::identity;

/// Longer than any record but one with a long error.
const RESERVED: usize = 1024;

pub(super) struct Files {
    job: PathBuf,
}

impl Files {
    pub(super) fn new(job: &Path) -> Self {
        Self { job: job.to_owned() }
    }

    /// Takes the job away, so that it is run once whoever else tries.
    pub(super) fn claim(&self) -> io::Result<()> {
        fs::rename(&self.job, self.taken())
    }

    /// The claimed job. Who claimed it takes its place in the file: the claim stays, the program's
    /// secrets go.
    pub(super) fn read(&self) -> io::Result<Job> {
        let text = fs::read(self.taken())?;
        let me = identity::me().and_then(|me| Ok(serde_json::to_vec(&me)?)).unwrap_or_default();
        // On a full disk it is empty, which is a claim too; what it held is gone either way.
        drop(fs::write(self.taken(), me));
        Ok(serde_json::from_slice(&text)?)
    }

    fn taken(&self) -> PathBuf {
        self.job.with_extension("taken")
    }

    /// A hint only, so not synced, and a failure is no reason to stop.
    pub(super) fn write_started(&self, spawned: &Spawned) {
        let agent = spawned.agent.as_raw().unsigned_abs();
        let identities = identity::me().ok().zip(identity::read(agent).ok().flatten());
        let Some((init, agent)) = identities else { return };
        let unenforced = spawned.unenforced.clone();
        let started = Started { version: JOB_VERSION, init, agent: agent.id, at: now(), unenforced };
        drop(self.write("started", &started, |_| Ok(())));
    }

    /// Takes room on the disk for the record of the end, which is then written in its place: a disk that
    /// the program fills has it still. Not synced: the room is taken by the writing, and to wait for a slow
    /// disk would keep the program from its start or the init from its signals.
    pub(super) fn reserve_exit(&self) -> io::Result<()> {
        // Blanks, for what is left of them behind the record means nothing there.
        self.temporary("exit")?.write_all(&[b' '; RESERVED])
    }

    /// On disk when it returns: the record outlives a crash of the machine.
    pub(super) fn write_exit(&self, record: &ExitRecord) -> io::Result<()> {
        self.write("exit", record, File::sync_all)?;
        File::open(self.job.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Whole or not at all.
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

    /// As it is, where it was made before.
    fn temporary(&self, extension: &str) -> io::Result<File> {
        let path = self.temporary_path(extension);
        // What another program put in its place is neither waited for nor followed.
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

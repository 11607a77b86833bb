//! What writes a pane's output down: the command of its `pipe-pane`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use protocol::ids::Tag;
use protocol::logs;

use crate::command::{script, shell_for_format};
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::{Answer, Guarded, Needs, PaneRef};

/// Where a pane's output goes, and how much of it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// The directory, absolute.
    pub dir: PathBuf,
    /// What all of its files may have together, in bytes.
    pub max_size: u64,
    /// Earlier parts that are kept beside the one that is written to.
    pub keep: u32,
    /// Whether earlier parts are compressed.
    pub compress: bool,
}

impl LogOptions {
    /// A log in this directory, kept as it is where nothing is said.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), max_size: logs::MAX_SIZE, keep: logs::KEEP, compress: true }
    }
}

impl Device {
    /// Gives a pane another log writer, which marks the place: the one that it had was lost. A writer
    /// that is still there gets the end of its input first.
    ///
    /// # Errors
    /// As any call. Safe to repeat, save for a further mark.
    pub async fn reopen_log(
        &self,
        pane: PaneRef,
        log: &LogOptions,
        init: &Path,
    ) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        let mut command = command(init, log, pane.tag);
        command.push(" --resumed");
        let words =
            ["pipe-pane".as_ref(), "-O".as_ref(), "-t".as_ref(), target.as_ref(), command.as_os_str()];
        let effect = script([&words[..]]);
        let guarded = Guarded { pane, needs: Needs::Alive, commands: &[] };
        guarded.run_script(self, &effect).await.map(|(answer, _)| answer)
    }
}

/// What `pipe-pane` is to run: the log writer, and numbers and flags for it.
pub(crate) fn command(init: &Path, log: &LogOptions, tag: Tag) -> OsString {
    let mut command = OsString::from("exec ");
    command.push(shell_for_format(&[init.as_os_str(), "log".as_ref(), log.dir.as_os_str()]));
    command.push(format!(" --tag {tag} --max-size {} --keep {}", log.max_size, log.keep));
    if log.compress {
        command.push(" --compress");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_and_flags_follow_the_directory() {
        let log = LogOptions { max_size: 1024, keep: 3, ..LogOptions::new("/l") };
        let line = command("/i".as_ref(), &log, Tag([0xab; 16]));
        let tag = "ab".repeat(16);
        let expected = format!("exec '/i' 'log' '/l' --tag {tag} --max-size 1024 --keep 3 --compress");
        assert_eq!(line, OsString::from(expected));
    }
}

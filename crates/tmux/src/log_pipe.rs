//! Log of a pane's output: the command of its `pipe-pane`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use protocol::{Tag, logs};

use crate::command::{script, shell_for_format};
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::{Answer, Guarded, PaneRef, Precondition};

/// Destination and retention of a pane's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// Absolute path of the log's directory.
    pub dir: PathBuf,
    /// Maximum size of all files of the log together, in bytes.
    pub max_size: u64,
    /// Number of earlier parts kept beside the current one.
    pub keep: u32,
    /// True if earlier parts are compressed.
    pub compress: bool,
}

impl LogOptions {
    /// Returns the default options for a log in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), max_size: logs::MAX_SIZE, keep: logs::KEEP, compress: true }
    }
}

impl Device {
    /// Starts a new log writer for a pane whose writer was lost; it records the gap. A writer that still
    /// runs gets the end of its input first.
    ///
    /// # Errors
    /// As any call. Safe to repeat, except that each repeat records another gap.
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
        let guarded = Guarded { pane, precondition: Precondition::Alive, commands: &[] };
        guarded.run_script(self, &effect).await.map(|(answer, _)| answer)
    }
}

/// Builds the command for `pipe-pane`: the log writer with its numbers and flags.
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

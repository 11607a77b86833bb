//! Determines by its output whether a program has enabled bracketed pastes: tmux reports it only from 3.7 on.

use std::io;
use std::path::Path;

use agents::terminal_marks::{Mark, Scanner};
use protocol::{SessionId, Tag};

use crate::engine::Daemon;
use crate::host::blocking_pool::Purpose;

/// Maximum bytes of an incarnation's output that are read: an agent enables them before it draws anything.
const READ_MAX: u64 = 4 << 20;

/// True if the program of this incarnation has enabled bracketed pastes; `None` if its output does not tell.
pub(crate) async fn is_enabled(daemon: &Daemon, session: SessionId, tag: Tag) -> Option<bool> {
    let logs = daemon.paths.logs_of(session);
    daemon.blocking.with_timeout(Purpose::Logs, move || read(&logs, tag).ok()).await.flatten()?
}

/// Returns the last setting in the output of this incarnation; disabled until it is set. `None` if the log
/// lacks the beginning of the output, or it is too long.
fn read(logs: &Path, tag: Tag) -> io::Result<Option<bool>> {
    let Some(begin) = logs::recorded_start_offset(logs, tag)? else { return Ok(None) };
    let mut output = logs::Reader::new(logs, begin);
    let (mut scanner, mut asked, mut block) = (Scanner::new(), false, vec![0; 64 << 10]);
    loop {
        let count = output.read(&mut block)?;
        // Also at the end of a log that was cleared.
        if output.take_missed() > 0 || output.offset().saturating_sub(begin) > READ_MAX {
            return Ok(asked.then_some(true));
        }
        if count == 0 {
            return Ok(Some(asked));
        }
        for mark in scanner.feed(&block[..count]) {
            if let Mark::BracketedPaste(on) = mark {
                asked = on;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use protocol::logs::{CURRENT, TIMES};

    use super::*;

    #[test]
    fn w24_a_cleared_log_does_not_tell() {
        let (dir, tag) = (tempfile::tempdir().unwrap(), Tag([7; 16]));
        fs::write(dir.path().join(TIMES), format!("5 0 {tag}\n")).unwrap();
        for (output, enabled) in [("", false), ("\x1b[?2004h", true), ("\x1b[?2004h\x1b[?2004l", false)] {
            fs::write(dir.path().join(CURRENT), output).unwrap();
            assert_eq!(read(dir.path(), tag).unwrap(), Some(enabled), "{output:?}");
        }
        fs::write(dir.path().join(CURRENT), "\x1b[?2004h").unwrap();
        process::log_writer::clear(dir.path()).unwrap();
        assert_eq!(read(dir.path(), tag).unwrap(), None);
    }
}

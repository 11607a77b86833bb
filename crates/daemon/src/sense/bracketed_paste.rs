//! Whether a program has asked its terminal for bracketed pastes, by what it wrote: tmux tells it from 3.7 on only.

use std::io;
use std::path::Path;

use agents::terminal_marks::{Mark, Scanner};
use protocol::{SessionId, Tag};

use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;

/// The most that is read of an incarnation's output: an agent asks before it draws anything.
const READ_MAX: u64 = 4 << 20;

/// Whether the program of this incarnation asks for them now; none where its output does not tell.
pub(crate) async fn asked_for(daemon: &Daemon, session: SessionId, tag: Tag) -> Option<bool> {
    let logs = daemon.log_options(session).dir;
    blocking::limited(Purpose::Logs, move || read(&logs, tag).ok()).await.flatten()?
}

/// What the output of this incarnation said last of pastes: that it wants them not, until it says so. None where it is not
/// there from its beginning on, or is longer than what is read.
fn read(logs: &Path, tag: Tag) -> io::Result<Option<bool>> {
    let Some(begin) = logs::recorded_start_offset(logs, tag)? else { return Ok(None) };
    let mut output = logs::Reader::new(logs, begin);
    let (mut scanner, mut asked, mut block) = (Scanner::new(), false, vec![0; 64 << 10]);
    loop {
        let count = output.read(&mut block)?;
        if count == 0 {
            return Ok(Some(asked));
        }
        if output.take_missed() > 0 || output.offset() - begin > READ_MAX {
            return Ok(asked.then_some(true));
        }
        for mark in scanner.feed(&block[..count]) {
            if let Mark::BracketedPaste(on) = mark {
                asked = on;
            }
        }
    }
}

//! The full description of one session, which `show SESSION` and `status SESSION` print.

use protocol::Session;

use crate::calls;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::session_log;
use crate::show::emulator::Emulator;
use crate::show::json::SessionJson;
use crate::show::{out, session, time};
use crate::tail::{Sink, Tail};

/// Characters of the end of the output that are shown.
const REPLAY: usize = 500;
/// Bytes of the end of the log that are read for them: most may be control sequences.
const REPLAY_BYTES: u64 = 64 * 1024;

/// Prints everything about a session.
pub(crate) fn session(context: &Context, session: &str) -> Result<(), Error> {
    let session = context.session(session)?;
    let mut client = context.client();
    let view = calls::session(&mut client, session)?;
    // The output is left out if it cannot be read: the session may have been removed meanwhile.
    let replay = replay(&mut client, &view.session).ok();
    let now = time::now();
    if context.style.json {
        out::json(&SessionJson::new(&view, now).in_full(&view, replay))
    } else {
        out::text(&session::session(&view, replay.as_deref(), context.style, now))
    }
}

/// The end of the session's output, without control sequences.
fn replay(client: &mut Client, session: &Session) -> Result<String, Error> {
    let mut tail = Tail::new(&session_log::files(client, &session.id.into())?);
    // Read up to the present end only: a program may write faster than this reads.
    let end = tail.end()?;
    tail.skip_to_bytes_before(end, REPLAY_BYTES)?;
    let emulated = session_log::emulator(session_log::terminal_size(client, session));
    let mut screen = Replay { emulated, text: Vec::new() };
    tail.copy_until(&mut screen, end)?;
    screen.end()?;
    Ok(last_characters(&String::from_utf8_lossy(&screen.text), REPLAY))
}

fn last_characters(text: &str, most: usize) -> String {
    let start = text.char_indices().rev().take(most).last().map_or(0, |(at, _)| at);
    text[start..].to_owned()
}

/// Collects the output as an emulated terminal shows it.
struct Replay {
    emulated: Emulator,
    text: Vec<u8>,
}

impl Sink for Replay {
    fn write(&mut self, _offset: u64, piece: &[u8]) -> Result<(), Error> {
        self.text.extend(self.emulated.write(piece));
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        self.text.extend(self.emulated.end());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_counted_in_characters() {
        let text = format!("{}é{}", "a".repeat(300), "日".repeat(499));
        assert_eq!(last_characters(&text, 500), format!("é{}", "日".repeat(499)));
        assert_eq!((last_characters("ab", 500), last_characters("", 500)), ("ab".to_owned(), String::new()));
    }
}

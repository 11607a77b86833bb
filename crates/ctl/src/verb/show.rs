//! `show`: everything about one session.

use protocol::{Request, Session};

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::emulate::Emulated;
use crate::show::json::SessionJson;
use crate::show::{human, out, time};
use crate::tail::{Sink, Tail};
use crate::verb::{expect_session, logs};

/// How many characters of the end of its output are shown.
const REPLAY: usize = 500;
/// How many bytes of the end of its log are read for them: most may be control sequences.
const REPLAY_BYTES: u64 = 64 * 1024;

/// Show everything about a session
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which session
    pub session: String,
}

/// Prints it.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let session = context.session(&args.session)?;
    let mut client = context.client();
    let view = expect_session(client.ask(Request::Show(session))?)?;
    // It is shown without its output where that cannot be read: it may be removed meanwhile.
    let replay = replay(&mut client, &view.session).ok();
    let now = time::now();
    if context.style.json {
        out::json(&SessionJson::new(&view, now).in_full(&view, replay))?;
    } else {
        out::text(&human::session(&view, replay.as_deref(), context.style, now))?;
    }
    Ok(exit::OK)
}

/// The end of what it wrote, without what would command a terminal.
fn replay(client: &mut Client, session: &Session) -> Result<String, Error> {
    let mut tail = Tail::new(&logs::files(client, &session.id.into())?);
    // A program may write faster than this reads.
    let end = tail.end()?;
    tail.skip_to_bytes_before(end, REPLAY_BYTES)?;
    let mut kept = Kept { emulated: logs::emulated(logs::size(client, session)), text: Vec::new() };
    tail.copy_until(&mut kept, end)?;
    kept.end()?;
    Ok(last_characters(&String::from_utf8_lossy(&kept.text), REPLAY))
}

fn last_characters(text: &str, most: usize) -> String {
    let start = text.char_indices().rev().take(most).last().map_or(0, |(at, _)| at);
    text[start..].to_owned()
}

/// Keeps what is written to it, as a person saw it.
struct Kept {
    emulated: Emulated,
    text: Vec<u8>,
}

impl Sink for Kept {
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

//! `send`: a durable message to the session's generator.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use protocol::message::{BODY_MAX, PROMPT};
use protocol::request::{Send, Until, Wait};
use protocol::{Message, MessageState, OsBytes, Request, SessionRef};

use crate::cli::Repeat;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::{MessageJson, word};
use crate::show::{out, time};
use crate::verb::expect_message;

/// Time between two looks at a message that is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Send a durable message; prints its id once it is on disk
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// To which session
    pub session: String,
    /// The text, or - for standard input
    #[arg(conflicts_with = "file")]
    pub text: Vec<OsString>,
    /// Take the text from a file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Idempotency key: a second message with it is the first one again
    #[arg(long)]
    pub key: Option<String>,
    /// Return when it is this far
    #[arg(long, value_enum, default_value = "queued", value_name = "STATE")]
    pub wait: Stage,
    /// Give it up if it still waits after this long
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub ttl: Option<Duration>,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// How far a message is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// It is on disk.
    Queued,
    /// The agent has it.
    Accepted,
    /// The agent's turn is over.
    Done,
}

/// Sends it, prints its id, and waits as asked.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let session = context.session(&args.session)?;
    let body = body(&args)?;
    let mut send = checked(prompt(session.clone(), body, args.key))?;
    send.ttl_ms = args.ttl.map(time::millis);
    let message = expect_message(context.client().change(&args.repeat, Request::Send(send))?)?;
    if !context.style.json {
        out::line(&message.id.to_string())?;
    }
    let message = wait(context, &session, message, args.wait)?;
    if context.style.json {
        out::json(&MessageJson::new(&message))?;
    }
    fate(&message)
}

/// A message for the agent in the pane, with Enter after it.
pub(crate) fn prompt(session: SessionRef, body: OsBytes, key: Option<String>) -> Send {
    Send { session, body, kind: PROMPT.into(), key, origin: "cli".into(), ttl_ms: None, enter: true }
}

/// The same message, unless it is too long to be sent.
pub(crate) fn checked(send: Send) -> Result<Send, Error> {
    if send.body.0.len() > BODY_MAX {
        return Err(Error::usage(format!(
            "a message has at most {BODY_MAX} bytes: put long text into a file and send its path"
        )));
    }
    Ok(send)
}

/// Code and sentence for a message that is waited for no longer.
pub(crate) fn fate(message: &Message) -> Result<u8, Error> {
    let why = message.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    match message.state {
        MessageState::Dead | MessageState::Cancelled | MessageState::Expired => {
            Err(Error::failed(format!("message {} is {}{why}", message.id, word(&message.state))))
        }
        _ => Ok(exit::OK),
    }
}

fn wait(context: &Context, session: &SessionRef, message: Message, stage: Stage) -> Result<Message, Error> {
    let _progress = context.progress(&format!("message {}", message.id));
    let mut client = context.patient_client();
    match stage {
        Stage::Queued => Ok(message),
        Stage::Accepted => accepted(context, &mut client, message),
        Stage::Done => {
            let timeout_ms = context.waiting_limit().map(time::millis);
            let until = Until::Message(message.id);
            let wait = Wait { session: session.clone(), until, timeout_ms };
            expect_message(client.ask(Request::Wait(wait))?)
        }
    }
}

fn accepted(context: &Context, client: &mut Client, mut message: Message) -> Result<Message, Error> {
    let began = std::time::Instant::now();
    while message.state != MessageState::Accepted && !message.state.is_final() {
        if context.waiting_limit().is_some_and(|limit| began.elapsed() >= limit) {
            return Err(Error::timeout(format!("message {} is still {}", message.id, word(&message.state))));
        }
        std::thread::sleep(LOOK_AGAIN);
        message = expect_message(client.ask(Request::ShowMessage(message.id))?)?;
    }
    Ok(message)
}

fn body(args: &Args) -> Result<OsBytes, Error> {
    if let Some(file) = &args.file {
        return read(File::open(file).map_err(|error| unreadable(file, &error))?, file);
    }
    match args.text.as_slice() {
        [text] if text == "-" => read(io::stdin(), Path::new("standard input")),
        [] if !io::stdin().is_terminal() => read(io::stdin(), Path::new("standard input")),
        [] => Err(Error::usage("nothing to send: give a text, - for standard input, or --file")),
        words => Ok(OsBytes(words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&b' '))),
    }
}

/// The text of a file or pipe. Its last newline ends it and is no part of it, as in `$(…)`.
fn read(from: impl Read, name: &Path) -> Result<OsBytes, Error> {
    let mut bytes = Vec::new();
    // Two more than is allowed tell the longest text and its newline from one too long.
    let most = u64::try_from(BODY_MAX).unwrap_or(u64::MAX).saturating_add(2);
    from.take(most).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    if bytes.ends_with(b"\n") {
        bytes.pop();
    }
    Ok(OsBytes(bytes))
}

fn unreadable(name: &Path, error: &io::Error) -> Error {
    Error::usage(format!("{}: {error}", name.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    #[test]
    fn the_last_newline_is_not_sent() {
        let text = |bytes: &[u8]| read(bytes, Path::new("x")).unwrap().0;
        assert_eq!(text(b"a\nb\n"), b"a\nb");
        assert_eq!(text(b"a\n\n"), b"a\n");
        assert_eq!(text(b""), b"");
    }

    #[test]
    fn a_text_too_long_is_refused_before_it_is_sent() {
        let send = |length: usize| {
            let body = read(io::repeat(b'x').take(length as u64), Path::new("x")).unwrap();
            checked(prompt(SessionRef("web".into()), body, None))
        };
        assert!(send(BODY_MAX).is_ok());
        assert!(send(BODY_MAX + 1).is_err() && send(10 * BODY_MAX).is_err());
    }

    #[test]
    fn a_message_that_was_not_worked_is_a_failure() {
        let mut message = message(3);
        assert_eq!(fate(&message).unwrap(), 0);
        message.state = MessageState::Dead;
        message.reason = Some("agent_ended".into());
        assert_eq!(fate(&message).unwrap_err().to_string(), "message 3 is dead: agent_ended");
    }
}

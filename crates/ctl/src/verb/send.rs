//! `send`: a durable message to the session's generator.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use protocol::message::{BODY_MAX, Breaker, PROMPT};
use protocol::request::{Send, Until, Wait};
use protocol::{Message, MessageId, MessageState, OsBytes, Request, Response, SessionRef};
use serde_json::{Value, json};

use crate::cli::{Repeat, kind};
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::{self, MessageJson, word};
use crate::show::{escape, out, queue, time};
use crate::verb::expect_message;

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
    /// Its kind: prompt goes to the agent in the pane, any other name waits for a worker that asks for it
    #[arg(long, default_value = PROMPT, value_parser = kind)]
    pub kind: String,
    /// From -100 to 100: higher is worked first among those of its kind
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-100..=100))]
    pub priority: i8,
    /// Return when it is this far
    #[arg(long, value_enum, default_value = "queued", value_name = "STATE")]
    pub wait: Stage,
    /// Give it up if it still waits after this long
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub ttl: Option<Duration>,
    /// Start the session where it is over
    #[arg(long)]
    pub wake: bool,
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
    let send = Send {
        session: session.clone(),
        body: fitting(body(&args)?)?,
        kind: args.kind,
        key: args.key,
        origin: context.origin(),
        ttl_ms: args.ttl.map(time::millis),
        enter: true,
        priority: args.priority,
        cause: cause()?,
        wake: args.wake,
    };
    let sent = match context.client().change(&args.repeat, Request::Send(send))? {
        Response::Sent(sent) => *sent,
        other => return Err(Error::unexpected(&other)),
    };
    if !context.style.json {
        out::line(&sent.message.id.to_string())?;
    }
    if let Some(breaker) = &sent.held_back {
        tell_held_back(context, &sent.message.kind, breaker);
    }
    let message = wait(context, &session, sent.message, args.wait)?;
    if context.style.json {
        out::json(&document(&message, sent.held_back.as_ref())?)?;
    }
    if args.wait != Stage::Queued && message.status.state == MessageState::InDoubt {
        let hint = format!("see `poolctl queue resolve {session} {} --as …`", message.id);
        return Err(Error::failed(format!("{}; {hint}", ended(&message))));
    }
    fate(&message)
}

/// The message that is being worked here: its worker says so in the environment.
fn cause() -> Result<Option<MessageId>, Error> {
    let id = std::env::var("POOL_MESSAGE_ID").ok().filter(|id| !id.is_empty());
    let id = id.map(|id| id.parse()).transpose();
    id.map_err(|error| Error::usage(format!("POOL_MESSAGE_ID: {error}")))
}

/// The same text, unless it is too long to be sent.
pub(crate) fn fitting(body: OsBytes) -> Result<OsBytes, Error> {
    if body.0.len() > BODY_MAX {
        return Err(Error::usage(format!(
            "a message has at most {BODY_MAX} bytes: put long text into a file and send its path"
        )));
    }
    Ok(body)
}

fn tell_held_back(context: &Context, kind: &str, breaker: &Breaker) {
    if !context.style.json && !context.style.quiet {
        let why = queue::breaker(kind, breaker, time::now());
        out::note(&format!("poolctl: held back: {}", escape::line(&why)));
    }
}

/// The message, and whether its kind is held back.
fn document(message: &Message, held_back: Option<&Breaker>) -> Result<Value, Error> {
    let document = serde_json::to_value(MessageJson::new(message));
    let mut document = document.map_err(|error| Error::Output(error.into()))?;
    document["held_back"] = json!(held_back.map(json::breaker));
    Ok(document)
}

/// Code and sentence for a message that is waited for no longer.
pub(crate) fn fate(message: &Message) -> Result<u8, Error> {
    match message.status.state {
        MessageState::Dead | MessageState::Cancelled | MessageState::Expired => {
            Err(Error::failed(ended(message)))
        }
        _ => Ok(exit::OK),
    }
}

fn ended(message: &Message) -> String {
    let status = &message.status;
    let why = status.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let state = word(&status.state).replace('_', " ");
    format!("message {} is {state}{why}", message.id)
}

fn wait(context: &Context, session: &SessionRef, message: Message, stage: Stage) -> Result<Message, Error> {
    let until = match stage {
        Stage::Queued => return Ok(message),
        Stage::Accepted => Until::Accepted(message.id),
        Stage::Done => Until::Message(message.id),
    };
    let _progress = context.progress(&format!("message {}", message.id));
    let timeout_ms = context.waiting_limit().map(time::millis);
    let wait = Wait { session: session.clone(), until, timeout_ms };
    expect_message(context.patient_client().ask(Request::Wait(wait))?)
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
        let text =
            |length: usize| fitting(read(io::repeat(b'x').take(length as u64), Path::new("x")).unwrap());
        assert!(text(BODY_MAX).is_ok());
        assert!(text(BODY_MAX + 1).is_err() && text(10 * BODY_MAX).is_err());
    }

    #[test]
    fn a_message_that_was_not_worked_is_a_failure() {
        let mut message = message(3);
        assert_eq!(fate(&message).unwrap(), 0);
        message.status.state = MessageState::Dead;
        message.status.reason = Some("agent_ended".into());
        assert_eq!(fate(&message).unwrap_err().to_string(), "message 3 is dead: agent_ended");
    }
}

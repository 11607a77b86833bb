//! `send`: a durable message to the session's generator.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use protocol::message::{BODY_MAX, Breaker, PROMPT};
use protocol::request::{Send, Until, Wait};
use protocol::{Message, MessageId, MessageState, OsBytes, Request, Response, SessionRef};
use serde_json::{Value, json};

use crate::cli::{Repeat, kind};
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::{self, MessageJson, word};
use crate::show::{escape, out, queue, time};
use crate::verb::{expect_message, ready};

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
    /// As typed: what its agent would take for a command (/, !) or complete (@) is not defused
    #[arg(long)]
    pub raw: bool,
    /// Return when it is this far [default: queued, and with --wake once the session's agent has begun]
    #[arg(long, value_enum, value_name = "STATE")]
    pub wait: Option<Stage>,
    /// Wait until it is done, and print what came of it, its agent's last words, instead of its id
    #[arg(long)]
    pub result: bool,
    /// Give it up if it still waits after this long
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub ttl: Option<Duration>,
    /// Start the session where it is over, and return once its agent has begun; 1 where it does not: the message waits all the same
    #[arg(long)]
    pub wake: bool,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// How long a look at how far it is may take.
const LOOK: Duration = Duration::from_secs(1);

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
        raw: args.raw,
        priority: args.priority,
        cause: cause()?,
        wake: args.wake,
    };
    let sent = match context.client().change(&args.repeat, Request::Send(send))? {
        Response::Sent(sent) => *sent,
        other => return Err(Error::unexpected(&other)),
    };
    if !context.style.json && !args.result {
        out::line(&sent.message.id.to_string())?;
    }
    if let Some(breaker) = &sent.held_back {
        tell_held_back(context, &sent.message.kind, breaker);
    }
    let asked = if args.result { Some(Stage::Done) } else { args.wait };
    let stage = asked.unwrap_or(Stage::Queued);
    // Its id is told whatever becomes of the session.
    let begun =
        if args.wake && args.wait != Some(Stage::Queued) { ready::woken(context, &session) } else { Ok(()) };
    let message = wait(context, &session, sent.message, stage)?;
    if context.style.json {
        out::json(&document(&message, sent.held_back.as_ref())?)?;
    }
    begun?;
    let code = come_to(&session, &message, stage)?;
    if args.result && !context.style.json {
        print_result(context, &message)?;
    }
    Ok(code)
}

/// What it came to where it was waited for this long.
fn come_to(session: &SessionRef, message: &Message, stage: Stage) -> Result<u8, Error> {
    if stage != Stage::Queued && message.status.state == MessageState::InDoubt {
        let id = message.id;
        let hint = format!(
            "look with `poolctl attach {session}`, then end it with `poolctl queue resolve {session} {id} --as …`"
        );
        return Err(Error::failed(format!("{}; {hint}", ended(message))));
    }
    fate(message)
}

/// Its agent's last words, ended by a newline.
fn print_result(context: &Context, message: &Message) -> Result<(), Error> {
    let Some(result) = &message.status.result else { return Ok(()) };
    if context.style.terminal {
        return out::line(escape::lines(&result.to_string_lossy()).trim_end_matches('\n'));
    }
    let mut bytes = result.0.clone();
    if !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    out::bytes(&bytes)
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

/// The message once it is so far, or will not be; in doubt it waits for somebody to look.
fn wait(context: &Context, session: &SessionRef, message: Message, stage: Stage) -> Result<Message, Error> {
    if stage == Stage::Queued {
        return Ok(message);
    }
    let deadline = context.waiting_limit().map(|limit| Instant::now() + limit);
    let _progress = context.progress_of(progress(context.client(), session.clone(), message.id));
    let mut client = context.patient_client();
    let mut until = |until| {
        let left = deadline.map(|at| time::millis(at.saturating_duration_since(Instant::now())));
        let wait = Wait { session: session.clone(), until: vec![until], timeout_ms: left };
        expect_message(client.ask(Request::Wait(wait))?)
    };
    let accepted = until(Until::Accepted(message.id))?;
    let status = accepted.status.state;
    if stage == Stage::Accepted || status.is_final() || status == MessageState::InDoubt {
        return Ok(accepted);
    }
    until(Until::Message(message.id))
}

/// How far a message is and why it is not further, told anew each time.
fn progress(
    mut client: Client,
    session: SessionRef,
    id: MessageId,
) -> impl FnMut() -> String + std::marker::Send {
    move || {
        let mut look = |request| client.ask_once(request, LOOK);
        let Ok(Response::Message(message)) = look(Request::ShowMessage(id)) else {
            return format!("message {id}");
        };
        let waits = match message.status.state {
            MessageState::Queued if message.kind == PROMPT => match look(Request::Show(session.clone())) {
                Ok(Response::Session(view)) => view.waits,
                _ => None,
            },
            _ => None,
        };
        standing(&message, waits)
    }
}

/// `message 7 (typed: not confirmed yet)`
fn standing(message: &Message, waits: Option<String>) -> String {
    let why = waits.or_else(|| message.status.reason.clone()).map(|why| format!(": {why}"));
    format!("message {} ({}{})", message.id, word(&message.status.state), why.unwrap_or_default())
}

fn body(args: &Args) -> Result<OsBytes, Error> {
    if let Some(file) = &args.file {
        return read(File::open(file).map_err(|error| unreadable(file, &error))?, file);
    }
    match args.text.as_slice() {
        [text] if text == "-" => read(io::stdin(), Path::new("standard input")),
        [] if !io::stdin().is_terminal() => read(io::stdin(), Path::new("standard input")),
        [] => Err(Error::usage("nothing to send: give a text, - for standard input, or --file")),
        words => Ok(joined(words)),
    }
}

/// Words of a command line as one text.
pub(crate) fn joined(words: &[OsString]) -> OsBytes {
    OsBytes(words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&b' '))
}

/// The text of a file or pipe. Its last newline ends it and is no part of it, as in `$(…)`.
pub(crate) fn read(from: impl Read, name: &Path) -> Result<OsBytes, Error> {
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
    fn where_a_message_stands_is_told_with_its_why() {
        let mut message = message(7);
        assert_eq!(standing(&message, None), "message 7 (queued)");
        assert_eq!(standing(&message, Some("in copy mode".into())), "message 7 (queued: in copy mode)");
        message.status.state = MessageState::Typed;
        message.status.reason = Some("not confirmed".into());
        assert_eq!(standing(&message, None), "message 7 (typed: not confirmed)");
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

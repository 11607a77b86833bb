//! `send`: a durable message for a session's agent or worker.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use protocol::request::Send;
use protocol::{
    Breaker, InDoubt, Message, MessageId, MessageState, OsBytes, PROMPT, Refusal, Request, Response,
    SessionRef,
};
use serde_json::{Value, json};

use crate::args::kind;
use crate::calls::expected;
use crate::message_wait::MessageWait;
use crate::show::json::{Json, MessageJson, json_name};
use crate::show::{escape, out, queue, time};
use crate::{Client, Context, Error, Repeat, body, exit, outcome, ready};

/// Send a durable message; prints its id once it is on disk
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
    /// The text, or - for standard input
    #[arg(conflicts_with = "file")]
    text: Vec<OsString>,
    /// Read the text from a file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Idempotency key: a second message with the same key is the first one again
    #[arg(long)]
    key: Option<String>,
    /// Its kind: prompt goes to the agent in the pane, any other waits for a worker that claims it
    #[arg(long, default_value = PROMPT, value_parser = kind)]
    kind: String,
    /// From -100 to 100: within its kind, higher ones go first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-100..=100))]
    priority: i8,
    /// As typed: a leading / or !, or an @ that the agent would complete, is not defused
    #[arg(long)]
    raw: bool,
    /// Return once it is in this state [default: queued, and with --wake once the session's agent is ready]
    #[arg(long, value_enum, value_name = "STATE")]
    wait: Option<Stage>,
    /// Wait until it is done, and print its result, the agent's last words, instead of its id
    #[arg(long)]
    result: bool,
    /// Drop it if it still waits after this long
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    ttl: Option<Duration>,
    /// Start the session if it has ended, and return once its agent is ready; exit 1 if the start fails: the
    /// message stays queued
    #[arg(long)]
    wake: bool,
    /// Treatment of the prompt if it is unknown whether it arrived: hold it for a person, give it up, or type
    /// it again, so that it may arrive twice [default: the configuration's]
    #[arg(long, value_enum, value_name = "WHAT")]
    in_doubt: Option<Doubt>,
    #[command(flatten)]
    repeat: Repeat,
}

/// The treatment of a prompt in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Doubt {
    /// It waits for a person.
    Hold,
    /// It is given up, and those behind it go on.
    Dead,
    /// It is typed again, and may arrive twice.
    Retry,
}

impl From<Doubt> for InDoubt {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::Hold => Self::Hold,
            Doubt::Dead => Self::Dead,
            Doubt::Retry => Self::Retry,
        }
    }
}

/// Time limit for a question about the message's progress.
const PROGRESS_LIMIT: Duration = Duration::from_secs(1);

/// The state of a message that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// It is on disk.
    Queued,
    /// The agent has it.
    Accepted,
    /// The agent's turn has ended.
    Done,
}

/// Sends it, prints its id, and waits if asked to.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    if args.result && args.wait.is_some_and(|stage| stage != Stage::Done) {
        return Err(Error::usage("--result waits until the prompt is done: leave out --wait"));
    }
    let session = context.session(&args.session)?;
    let send = Send {
        session: session.clone(),
        body: body::checked(text(&args)?)?,
        kind: args.kind,
        key: args.key,
        origin: context.origin(),
        ttl_ms: args.ttl.map(time::millis),
        enter: true,
        raw: args.raw,
        priority: args.priority,
        cause: cause(context)?,
        wake: args.wake,
        in_doubt: args.in_doubt.map(InDoubt::from),
    };
    let sent = *expected!(context.client().change(&args.repeat, Request::Send(send))?, Sent)?;
    if !context.style.json && !args.result {
        out::line(&sent.message.id.to_string()).map_err(|error| naming(sent.message.id, error))?;
    }
    if let Some(breaker) = &sent.held_back {
        note_breaker(context, &sent.message.kind, breaker);
    }
    let asked = if args.result { Some(Stage::Done) } else { args.wait };
    let stage = asked.unwrap_or(Stage::Queued);
    // An error of the start is kept until the id of the message is printed.
    let wait = MessageWait::new(context, &sent.message);
    let ready = if args.wake && asked != Some(Stage::Queued) {
        ready::woken(context, &sent.message, &session)
    } else {
        Ok(())
    };
    let id = sent.message.id;
    let print = |message: &Message| match context.style.json {
        true => out::json(&document(message, sent.held_back.as_ref())).map_err(|error| naming(id, error)),
        false => Ok(()),
    };
    if let Err(error) = ready {
        return print(&sent.message).and(Err(naming(id, error)));
    }
    let queued = sent.message.clone();
    let message = match wait_for(context, sent.message, (wait, stage)) {
        Ok(message) => message,
        // The id is printed even after an error: without it, the user would send the message once more.
        Err(error) => return print(&queued).and(Err(naming(id, error))),
    };
    print(&message)?;
    let code = match asked {
        Some(stage) => exit_code(&session, &message, stage)?,
        None => {
            note_end(context, &message);
            exit::OK
        }
    };
    if args.result && !context.style.json {
        print_result(context, &message)?;
    }
    Ok(code)
}

/// Notes what became of a message that was sent before under the same key or id, and was not worked. This is no
/// failure of `send`: the message is on disk, and a repetition gets the same answer.
fn note_end(context: &Context, message: &Message) {
    if outcome::of_message(message).is_err() && !context.style.json && !context.style.quiet {
        let what = escape::line(&outcome::describe(message));
        out::note(&format!("poolctl: it was sent before: {what}"));
    }
}

/// The exit code after a wait for this stage.
fn exit_code(session: &SessionRef, message: &Message, stage: Stage) -> Result<u8, Error> {
    if stage == Stage::Queued || !outcome::is_left(message) {
        return outcome::of_message(message);
    }
    Err(outcome::in_doubt(session, message))
}

/// Prints the agent's last words, and a newline at the end.
fn print_result(context: &Context, message: &Message) -> Result<(), Error> {
    let Some(result) = &message.status.result else {
        if !context.style.quiet {
            out::note(&format!("poolctl: message {} has no result: nothing reports it", message.id));
        }
        return Ok(());
    };
    if context.style.terminal {
        return out::line(escape::lines(&result.to_string_lossy()).trim_end_matches('\n'));
    }
    let mut bytes = result.0.clone();
    if !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    out::bytes(&bytes)
}

/// The message whose handler runs this command: a worker names it in the handler's environment.
fn cause(context: &Context) -> Result<Option<MessageId>, Error> {
    let id = context.message().map(str::parse).transpose();
    id.map_err(|error| Error::usage(format!("POOL_MESSAGE_ID: {error}")))
}

fn note_breaker(context: &Context, kind: &str, breaker: &Breaker) {
    if !context.style.json && !context.style.quiet {
        let why = queue::breaker(kind, breaker, time::now());
        out::note(&format!("poolctl: held back: {}", escape::line(&why)));
    }
}

/// The message as JSON, with the breaker that holds its kind back.
fn document(message: &Message, held_back: Option<&Breaker>) -> Value {
    let mut document = json!(MessageJson::new(message));
    document["held_back"] = json!(held_back.map(Json));
    document
}

/// The error of a wait for a message, whose id may not have been printed.
fn naming(id: MessageId, error: Error) -> Error {
    match error {
        Error::Refused(refusal) => {
            let message = format!("message {id} is sent: {}", refusal.message);
            Refusal { message, ..refusal }.into()
        }
        error @ Error::Output(_) => error.unless_written(&format!("message {id} is sent")),
    }
}

/// Waits until the message has reached the stage, or cannot reach it.
fn wait_for(
    context: &Context,
    message: Message,
    (mut wait, stage): (MessageWait, Stage),
) -> Result<Message, Error> {
    let _progress = (stage != Stage::Queued)
        .then(|| context.progress_of(progress(context.client(), message.session.into(), message.id)));
    match stage {
        Stage::Queued => Ok(message),
        Stage::Accepted => wait.accepted(),
        Stage::Done => wait.done(),
    }
}

/// Returns a function that asks for the state of the message, and for the reason if it waits.
fn progress(
    mut client: Client,
    session: SessionRef,
    id: MessageId,
) -> impl FnMut() -> String + std::marker::Send {
    move || {
        let mut ask = |request| client.ask_once(request, PROGRESS_LIMIT);
        let Ok(Response::Message(message)) = ask(Request::ShowMessage(id)) else {
            return format!("message {id}");
        };
        let waits = match message.status.state {
            MessageState::Queued if message.kind == PROMPT => match ask(Request::Show(session.clone())) {
                Ok(Response::Session(view)) => view.waits,
                _ => None,
            },
            _ => None,
        };
        state_and_reason(&message, waits)
    }
}

/// `message 7 (typed: not confirmed yet)`
fn state_and_reason(message: &Message, waits: Option<String>) -> String {
    let why =
        waits.or_else(|| Some(message.status.reason.as_ref()?.to_string())).map(|why| format!(": {why}"));
    format!("message {} ({}{})", message.id, json_name(&message.status.state), why.unwrap_or_default())
}

fn text(args: &Args) -> Result<OsBytes, Error> {
    if let Some(file) = &args.file {
        return body::read(File::open(file).map_err(|error| body::unreadable(file, &error))?, file);
    }
    match args.text.as_slice() {
        [text] if text == "-" => body::read_stdin(),
        [] if !io::stdin().is_terminal() => body::read_stdin(),
        [] => Err(Error::usage("nothing to send: give a text, - for standard input, or --file")),
        words => Ok(body::joined(words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    #[test]
    fn the_progress_of_a_message_names_its_reason() {
        let mut message = message(7);
        assert_eq!(state_and_reason(&message, None), "message 7 (queued)");
        assert_eq!(
            state_and_reason(&message, Some("in copy mode".into())),
            "message 7 (queued: in copy mode)"
        );
        message.status.state = MessageState::Typed;
        message.status.reason = Some("not confirmed".into());
        assert_eq!(state_and_reason(&message, None), "message 7 (typed: not confirmed)");
    }
}

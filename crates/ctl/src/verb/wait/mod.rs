//! `wait`: blocks until a session meets a condition.
//!
//! Each session is waited for in a thread. It asks `poold` ([`Kind::Daemon`]) and searches the output
//! ([`Kind::Output`]) in further threads, and the first answer decides.

mod condition;
mod output;
mod result;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use protocol::request::{Until, Wait};
use protocol::{ErrorCode, Request, Response, SessionRef, Timestamp};

use crate::client::ANSWER_MARGIN;
use crate::missing_component::MissingComponentNote;
use crate::show::time;
use crate::timeout::CAUSE_LIMIT;
use crate::{Context, Error, exit, threads};
use condition::{Condition, Conditions, Kind, patterns, untils};
use output::{OutputMatch, OutputWatch, Stream};
use result::WaitResult;

/// The conditions that are waited for if none is given.
const DEFAULT: &str = "idle,attention,error";

/// Block until a session meets a condition; looks first, then listens
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The session; of several, all of them, or the first whose exit code is not 0
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
    /// The condition; of several, or of a list with commas, the first that holds [default:
    /// idle,attention,error: its work is done, or a person is needed]
    #[arg(long = "for", value_name = "WHAT", value_parser = Conditions::parse)]
    #[arg(default_value = DEFAULT, hide_default_value = true)]
    wanted: Vec<Conditions>,
    /// For output: search only what was written since about then (10m ago, or a time), not the screen
    #[arg(long, value_name = "TIME", value_parser = time::parse_time)]
    since: Option<Timestamp>,
    /// The first of several conditions, which is the default
    #[arg(long)]
    any: bool,
}

const AFTER: &str = "WHAT is one of\n\
    \x20 idle, busy,        the agent's activity\n\
    \x20 attention, error\n\
    \x20 started            it runs\n\
    \x20 ready              it runs, and its agent is ready\n\
    \x20 exit               its program has ended, and all of its output is in the log,\n\
    \x20                    or in both logs (`new --stderr separate`)\n\
    \x20 queue-empty        no message is queued or in flight\n\
    \x20 message:ID         this message is final\n\
    \x20 output:REGEX       a match on its screen, in the last 64 KiB that this run\n\
    \x20                    wrote, or in what it writes from now on, its separate\n\
    \x20                    standard error included; the rest of the\n\
    \x20                    argument is the expression, commas included\n\
    If several were given, the one that holds is printed.\n\n\
    Exit codes: 0 it holds; 10 attention and 11 error, if they were one of several;\n\
    1 it cannot hold any more, the message was not worked, or a person has to settle it\n\
    first (it is in doubt, or nothing confirms it); 6 timeout; for exit the session's own,\n\
    and 125 instead of poolctl's.";

impl Args {
    /// True if the exit code is that of the session's program.
    pub(crate) fn is_for_exit(&self) -> bool {
        let mut conditions = self.wanted.iter().flat_map(|conditions| &conditions.0);
        conditions.any(|condition| matches!(condition.kind, Kind::Daemon(Until::Exit)))
    }
}

/// Waits, and prints the condition that holds.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let sessions =
        args.sessions.iter().map(|session| context.session(session)).collect::<Result<Vec<_>, _>>()?;
    let conditions: Vec<Condition> = args.wanted.into_iter().flat_map(|list| list.0).collect();
    let words = conditions.iter().map(|condition| condition.word.as_str()).collect::<Vec<_>>().join(", ");
    let mut progress = Some(context.progress(&format!("{}: {words}", args.sessions.join(", "))));
    if args.since.is_some() && patterns(&conditions).is_empty() {
        return Err(Error::usage(
            "--since limits the output that is searched: give it with --for output:REGEX",
        ));
    }
    let timed_out = |error: Error| match error.code() {
        // The sentence is the same whether poold or this command notices the end of the time first.
        ErrorCode::Timeout => {
            Error::timeout(format!("timed out waiting for {words}{}", why_unanswered(context)))
        }
        _ => error,
    };
    let count = sessions.len();
    let several = count > 1;
    let (sender, results) = mpsc::channel();
    for session in sessions {
        let (context, conditions, sender, since) =
            (context.clone(), conditions.clone(), sender.clone(), args.since);
        // These threads are not joined: the result of one session may end the command.
        let wait = move || {
            let result = first(&context, (&session, since), &conditions);
            drop(sender.send((session, result)));
        };
        threads::require(wait)?;
    }
    drop(sender);
    for _ in 0..count {
        let (session, result) = results.recv().map_err(|_| no_thread())?;
        // The line of progress is removed first: it would stand between the printed lines.
        progress.take();
        let (id, result) = result.map_err(timed_out)?;
        let shown = if several { Some(&session) } else { None };
        let code = result::print(context, (shown, id), &conditions, result)?;
        if code != exit::OK {
            return Ok(code);
        }
    }
    Ok(exit::OK)
}

/// Says why `poold` does not answer, as the end of a sentence; empty if it answers.
fn why_unanswered(context: &Context) -> String {
    match context.client().ask_once(Request::Ping, CAUSE_LIMIT) {
        Err(error) if error.code() == ErrorCode::Unavailable => format!(": {error}"),
        _ => String::new(),
    }
}

/// An answer of one of the threads.
enum Answer {
    /// From `poold`.
    Daemon(Result<Response, Error>),
    /// From the search of the output; `None` if the session has ended without a match.
    Output(Result<Option<OutputMatch>, Error>),
}

/// Waits for the first condition that a session meets. Returns the session by its id, if its output was searched: it
/// may have been renamed since.
fn first(
    context: &Context,
    (session, since): (&SessionRef, Option<Timestamp>),
    conditions: &[Condition],
) -> Result<(SessionRef, WaitResult), Error> {
    let (sender, answers) = mpsc::channel();
    let patterns = patterns(conditions);
    let (session, streams) =
        if patterns.is_empty() { (session.clone(), Vec::new()) } else { Stream::of(context, session) };
    let session = &session;
    let watch = |stream| {
        let sender = sender.clone();
        // The receiver is gone once another answer has decided.
        let tell = move |found| drop(sender.send(Answer::Output(found)));
        output::watch(context, (session, since), (patterns.clone(), stream), tell)
    };
    let watches: Vec<OutputWatch> = streams.into_iter().map(watch).collect::<Result<_, _>>()?;
    let asked = ask(context, session, conditions, sender)?;
    let threads = watches.len() + usize::from(asked);
    let result = decide(&answers, threads, &watches, context.left())?;
    Ok((session.clone(), result))
}

/// Asks `poold` for the conditions that it knows about. Returns false if there are none.
fn ask(
    context: &Context,
    session: &SessionRef,
    conditions: &[Condition],
    sender: Sender<Answer>,
) -> Result<bool, Error> {
    let until = untils(conditions);
    if until.is_empty() {
        return Ok(false);
    }
    // Looking at the session before may have taken time.
    let timeout_ms = context.left().map(time::millis);
    let wait = Wait { session: session.clone(), until, timeout_ms };
    let note =
        wait.until.contains(&Until::Exit).then(|| MissingComponentNote::watch(context, session.clone()));
    let mut client = context.unlimited_client();
    let ask = move || {
        let _note = note;
        drop(sender.send(Answer::Daemon(client.ask(Request::Wait(wait)))));
    };
    threads::require(ask).map(|_| true)
}

/// Decides by the first answer of these threads. A thread whose conditions cannot hold any more leaves the decision to
/// the others. The end of a program counts only after the output that it wrote before has been searched.
fn decide(
    answers: &Receiver<Answer>,
    threads: usize,
    watches: &[OutputWatch],
    limit: Option<Duration>,
) -> Result<WaitResult, Error> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let (mut ended, mut never) = (None, None);
    for left in (0..threads).rev() {
        match next(answers, deadline)? {
            Answer::Output(Ok(Some(found))) => return Ok(WaitResult::Output(found)),
            Answer::Output(Ok(None)) => {
                never = Some(Error::failed("the session has ended, and its output does not match"));
            }
            Answer::Daemon(Ok(Response::Session(view)))
                if left > 0 && !view.session.lifecycle.holds_slot() =>
            {
                let last = view.session.tag();
                watches.iter().for_each(|watch| watch.finish(last));
                ended = Some(view);
            }
            Answer::Daemon(Ok(response)) => return WaitResult::from_response(response),
            // The session has ended without meeting a condition.
            Answer::Daemon(Err(error)) if error.code() == ErrorCode::Failed => never = Some(error),
            Answer::Daemon(Err(error)) | Answer::Output(Err(error)) => return Err(error),
        }
    }
    match (ended, never) {
        (Some(view), _) => Ok(WaitResult::Session(view)),
        (None, never) => Err(never.unwrap_or_else(|| Error::failed("nothing to wait for"))),
    }
}

fn next(answers: &Receiver<Answer>, deadline: Option<Instant>) -> Result<Answer, Error> {
    let next = match deadline {
        Some(at) => answers.recv_timeout(at.saturating_duration_since(Instant::now()) + ANSWER_MARGIN),
        None => answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
    };
    next.map_err(|error| match error {
        RecvTimeoutError::Timeout => Error::timeout("timed out"),
        RecvTimeoutError::Disconnected => no_thread(),
    })
}

fn no_thread() -> Error {
    Error::failed("the waiting thread ended")
}

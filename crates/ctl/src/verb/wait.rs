//! `wait`: block until something is so.

mod came;
mod output;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use protocol::request::{Until, Wait};
use protocol::{ActivityState, ErrorCode, MessageId, Request, Response, SessionRef, Timestamp};

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::time;

pub(crate) use came::code_of;
use came::{Came, show};
use output::{Found, Pattern, Watched};

/// Block until something is so; looks first, then listens
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// For which session; for several, all of them, or the first that has another code than 0
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// For what; several, or a list with commas, are the first of them that is so [default: idle,attention,error: what was
    /// sent is worked, or somebody is needed]
    #[arg(long = "for", value_name = "WHAT", value_parser = list)]
    pub wanted: Vec<List>,
    /// For output: what was written since then counts (10m ago, or a time), to about a second, and no screen
    #[arg(long, value_name = "TIME", value_parser = time::moment)]
    pub since: Option<Timestamp>,
    /// Any of several, which is what they mean without it as well
    #[arg(long)]
    pub any: bool,
}

const AFTER: &str = "WHAT is one of\n\
    \x20 idle, busy,        its agent does this\n\
    \x20 attention, error\n\
    \x20 started            it runs\n\
    \x20 ready              it runs, and its agent has begun\n\
    \x20 exit               its program ended, and all it wrote is in the log\n\
    \x20 queue-empty        nothing waits or is in flight in its queue\n\
    \x20 message:ID         this message is over\n\
    \x20 output:REGEX       its screen, the last 64 KiB that this run wrote, or\n\
    \x20                    what it writes from now on matches; the rest of the\n\
    \x20                    argument is the expression, commas included\n\
    Where several were asked for, the one that came is printed.\n\n\
    Exit codes: 0 it came; 10 attention and 11 error, where they were one of several;\n\
    1 it cannot come any more, or the message was not worked; 6 timeout; for exit the\n\
    session's own, and 125 instead of poolctl's.";

/// What is waited for where nothing is said.
const SETTLED: &str = "idle,attention,error";

/// What one `--for` says.
#[derive(Debug, Clone)]
pub(crate) struct List(Vec<Wanted>);

/// Something to wait for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// As the user wrote it.
    word: String,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    /// `poold` knows when.
    Told(Until),
    /// Seen in what it writes.
    Written(Pattern),
}

impl Args {
    /// Whether the exit code is the session's.
    pub(crate) fn is_for_exit(&self) -> bool {
        let mut wanted = self.wanted.iter().flat_map(|list| &list.0);
        wanted.any(|wanted| matches!(wanted.what, What::Told(Until::Exit)))
    }
}

/// A list with commas. What follows `output:` is an expression, which may have some of its own.
fn list(text: &str) -> Result<List, String> {
    let mut wanted = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest {
        let (word, more) = match text.split_once(',') {
            Some((word, more)) if !text.starts_with("output:") => (word, Some(more)),
            _ => (text, None),
        };
        wanted.push(Wanted { word: word.to_owned(), what: what(word)? });
        rest = more;
    }
    Ok(List(wanted))
}

fn what(word: &str) -> Result<What, String> {
    if let Some(expression) = word.strip_prefix("output:") {
        return Pattern::new(expression).map(What::Written);
    }
    if let Some(id) = word.strip_prefix("message:") {
        let id = id.parse::<MessageId>().map_err(|error| error.to_string())?;
        return Ok(What::Told(Until::Message(id)));
    }
    Ok(What::Told(match word {
        "idle" => Until::Activity(ActivityState::Idle),
        "busy" => Until::Activity(ActivityState::Busy),
        "attention" => Until::Activity(ActivityState::Attention),
        "error" => Until::Activity(ActivityState::Error),
        "started" => Until::Started,
        "ready" => Until::Ready,
        "exit" => Until::Exit,
        "queue-empty" => Until::QueueEmpty,
        _ => {
            return Err(
                "one of idle, busy, attention, error, started, ready, exit, queue-empty, message:ID, \
                        output:REGEX"
                    .into(),
            );
        }
    }))
}

/// Waits, and says what came.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let sessions =
        args.sessions.iter().map(|session| context.session(session)).collect::<Result<Vec<_>, _>>()?;
    let mut wanted: Vec<Wanted> = args.wanted.into_iter().flat_map(|list| list.0).collect();
    if wanted.is_empty() {
        wanted = list(SETTLED).map_err(Error::usage)?.0;
    }
    let words = wanted.iter().map(|wanted| wanted.word.as_str()).collect::<Vec<_>>().join(", ");
    let mut progress = Some(context.progress(&format!("{}: {words}", args.sessions.join(", "))));
    if args.since.is_some() && patterns(&wanted).is_empty() {
        return Err(Error::usage("--since says from when on output counts: it goes with --for output:REGEX"));
    }
    let late = |error: Error| match error.code() {
        // Whoever noticed it first: poold, or this command.
        ErrorCode::Timeout => Error::timeout(format!("{words} did not come in time")),
        _ => error,
    };
    let count = sessions.len();
    let several = count > 1;
    let (sender, came) = mpsc::channel();
    for session in sessions {
        let (context, wanted, sender, since) = (context.clone(), wanted.clone(), sender.clone(), args.since);
        // Not waited for: what has come of one may end the command.
        let wait = move || {
            let came = first(&context, (&session, since), &wanted);
            drop(sender.send((session, came)));
        };
        thread::Builder::new().spawn(wait).map_err(|error| Error::failed(format!("cannot wait: {error}")))?;
    }
    drop(sender);
    for _ in 0..count {
        let (session, came) = came.recv().map_err(|_| Error::failed("nobody waits any more"))?;
        // It would stand between the lines that are printed.
        progress.take();
        let code = show(context, (&session, several), &wanted, came.map_err(late)?)?;
        if code != exit::OK {
            return Ok(code);
        }
    }
    Ok(exit::OK)
}

/// What was heard of one way to learn it.
enum Heard {
    /// `poold` answered.
    Told(Result<Response, Error>),
    /// The output has it, or never will: the session is over.
    Wrote(Result<Option<Found>, Error>),
}

/// Waits for the first of these.
fn first(
    context: &Context,
    (session, since): (&SessionRef, Option<Timestamp>),
    wanted: &[Wanted],
) -> Result<Came, Error> {
    let (sender, heard) = mpsc::channel();
    let watched = output::watch(context, (session, since), patterns(wanted), {
        let sender = sender.clone();
        // Whoever waited may be gone.
        move |found| drop(sender.send(Heard::Wrote(found)))
    });
    let asked = ask(context, session, wanted, sender);
    let ways = usize::from(watched.is_some()) + usize::from(asked);
    decide(&heard, ways, watched.as_ref(), context.waiting_limit())
}

/// Asks `poold` for what it knows; whether there is anything of the kind. One that cannot come any more is refused, so
/// what can come at the end of a session is asked for first.
fn ask(context: &Context, session: &SessionRef, wanted: &[Wanted], sender: Sender<Heard>) -> bool {
    let told = wanted.iter().filter_map(|wanted| match &wanted.what {
        What::Told(until) => Some(until.clone()),
        What::Written(_) => None,
    });
    let mut until: Vec<Until> = told.collect();
    until.sort_by_key(|until| matches!(until, Until::Activity(_)));
    if until.is_empty() {
        return false;
    }
    let timeout_ms = context.waiting_limit().map(time::millis);
    let wait = Wait { session: session.clone(), until, timeout_ms };
    let mut client = context.patient_client();
    thread::spawn(move || drop(sender.send(Heard::Told(client.ask(Request::Wait(wait))))));
    true
}

fn patterns(wanted: &[Wanted]) -> Vec<(usize, Pattern)> {
    let pattern = |(at, wanted): (usize, &Wanted)| match &wanted.what {
        What::Written(pattern) => Some((at, pattern.clone())),
        What::Told(_) => None,
    };
    wanted.iter().enumerate().filter_map(pattern).collect()
}

/// What came first, of so many ways to learn it. That one cannot come any more leaves the other, and what a program
/// wrote before it ended came before its end.
fn decide(
    heard: &Receiver<Heard>,
    ways: usize,
    watched: Option<&Watched>,
    limit: Option<Duration>,
) -> Result<Came, Error> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let (mut ended, mut never) = (None, None);
    for left in (0..ways).rev() {
        match next(heard, deadline)? {
            Heard::Wrote(Ok(Some(found))) => return Ok(Came::Written(found)),
            Heard::Wrote(Ok(None)) => {
                never = Some(Error::failed("it is over, and wrote nothing that matches"));
            }
            Heard::Told(Ok(Response::Session(view))) if left > 0 && !view.session.lifecycle.holds_slot() => {
                watched
                    .inspect(|watched| watched.is_over(view.session.incarnation.as_ref().map(|run| run.tag)));
                ended = Some(view);
            }
            Heard::Told(Ok(response)) => return Came::told(response),
            // It is over, and does nothing more of what was asked for.
            Heard::Told(Err(error)) if error.code() == ErrorCode::Failed => never = Some(error),
            Heard::Told(Err(error)) | Heard::Wrote(Err(error)) => return Err(error),
        }
    }
    match (ended, never) {
        (Some(view), _) => Ok(Came::Session(view)),
        (None, never) => Err(never.unwrap_or_else(|| Error::failed("nothing to wait for"))),
    }
}

fn next(heard: &Receiver<Heard>, deadline: Option<Instant>) -> Result<Heard, Error> {
    let next = match deadline {
        // A moment more than `poold` has, whose answer says more.
        Some(at) => heard.recv_timeout(at.saturating_duration_since(Instant::now()) + MOMENT),
        None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
    };
    next.map_err(|error| match error {
        RecvTimeoutError::Timeout => Error::timeout("it did not come"),
        RecvTimeoutError::Disconnected => Error::failed("nobody waits for it any more"),
    })
}

const MOMENT: Duration = Duration::from_millis(100);

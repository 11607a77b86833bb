//! The verbs, one a file: its arguments, its request, what it shows.

pub(crate) mod adopt;
pub(crate) mod approve;
pub(crate) mod attach;
pub(crate) mod backup;
pub(crate) mod become_program;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod clear;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod down;
pub(crate) mod drain;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod feed;
pub(crate) mod generators;
pub(crate) mod hook;
pub(crate) mod import;
pub(crate) mod inbox;
pub(crate) mod keys;
pub(crate) mod kill;
pub(crate) mod label;
pub(crate) mod lock;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod new;
pub(crate) mod park;
pub(crate) mod pin;
pub(crate) mod prune;
pub(crate) mod queue;
mod ready;
pub(crate) mod reap;
pub(crate) mod rename;
pub(crate) mod restart;
pub(crate) mod restore;
pub(crate) mod rm;
pub(crate) mod rpc;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod show;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod sync;
pub(crate) mod thought;
pub(crate) mod up;
pub(crate) mod update;
pub(crate) mod wait;
pub(crate) mod watch;
pub(crate) mod work;

use protocol::reply::SessionView;
use protocol::{Message, Response};

use crate::cli::{Command, Repeat};
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::SessionJson;
use crate::show::{out, time};

/// Carries out a verb; the code to exit with.
///
/// # Errors
/// What it was refused for, or how it failed.
pub(crate) fn run(context: &Context, command: Command) -> Result<u8, Error> {
    match command {
        Command::Up(args) => up::run(context, &args),
        Command::Down(args) => down::run(context, &args),
        Command::Status(args) => status::run(context, &args),
        Command::Inbox(args) => inbox::run(context, &args),
        Command::Sync(args) => sync::run(context, &args),
        Command::New(args) => new::run(context, args),
        Command::Ls(args) => ls::run(context, args),
        Command::Show(args) => show::run(context, &args),
        Command::Attach(args) => attach::run(context, &args),
        Command::Approve(args) => approve::run(context, args),
        Command::Send(args) => send::run(context, args),
        Command::Keys(args) => keys::run(context, args),
        Command::Capture(args) => capture::run(context, &args),
        Command::Logs(args) => logs::run(context, &args),
        Command::Wait(args) => wait::run(context, args),
        Command::Run(args) => run::run(context, args),
        Command::Kill(args) => kill::run(context, &args),
        Command::Rm(args) => rm::run(context, &args),
        Command::Rename(args) => rename::run(context, args),
        Command::Label(args) => label::run(context, args),
        Command::Thought(command) => thought::run(context, command),
        Command::Update(args) => update::run(context, args),
        Command::Restart(args) => restart::run(context, &args),
        Command::Park(args) => park::run(context, &args),
        Command::Restore(args) => restore::run(context, &args),
        Command::Drain(args) => drain::run(context, &args),
        Command::Pin(args) => pin::run(context, &args, true),
        Command::Unpin(args) => pin::run(context, &args.same, false),
        Command::Clear(args) => clear::run(context, &args),
        Command::Prune(args) => prune::run(context, &args),
        Command::Stats(args) => stats::run(context, &args),
        Command::Queue(command) => queue::run(context, command),
        Command::Work(args) => work::run(context, args),
        Command::Generators(args) => generators::run(context, &args),
        Command::Adopt(args) => adopt::run(context, args),
        Command::Events(args) => events::run(context, &args),
        Command::Hook(command) => hook::run(context, &command),
        Command::Watch(args) => watch::run(context, &args),
        Command::Feed(args) => feed::run(context, &args),
        Command::Lock(args) => lock::run(context, &args),
        Command::Reap(args) => reap::run(context, &args),
        Command::Rpc(args) => rpc::run(context, &args),
        Command::Export(args) => export::run(context, &args),
        Command::Import(args) => import::run(context, &args),
        Command::Backup(args) => backup::run(context, &args),
        Command::Check(args) => check::run(context, &args),
        Command::Compact(args) => compact::run(context, &args),
        Command::Config(command) => config::run(context, &command),
        Command::Completions(args) => completions::run(&args),
        Command::Become(args) => become_program::run(context, &args),
    }
}

/// Whether a command ends with the session's own exit code.
#[must_use]
pub(crate) fn passes_exit_code_on(command: &Command) -> bool {
    match command {
        Command::Run(_) => true,
        Command::Wait(args) => args.is_for_exit(),
        _ => false,
    }
}

fn expect_session(response: Response) -> Result<SessionView, Error> {
    match response {
        Response::Session(view) => Ok(*view),
        other => Err(Error::unexpected(&other)),
    }
}

fn expect_message(response: Response) -> Result<Message, Error> {
    match response {
        Response::Message(message) => Ok(*message),
        other => Err(Error::unexpected(&other)),
    }
}

fn expect_done(response: &Response) -> Result<(), Error> {
    match response {
        Response::Done => Ok(()),
        other => Err(Error::unexpected(other)),
    }
}

fn expect_text(response: Response) -> Result<String, Error> {
    match response {
        Response::Text(text) => Ok(text),
        other => Err(Error::unexpected(&other)),
    }
}

/// Prints a session as JSON, or this line for people.
fn print_session(context: &Context, view: &SessionView, line: &str) -> Result<(), Error> {
    if context.style.json { out::json(&SessionJson::new(view, time::now())) } else { context.say(line) }
}

/// An operation id names one operation, so it cannot be given to several.
fn only_one(repeat: &Repeat, operations: usize) -> Result<(), Error> {
    if repeat.op_id.is_some() && operations != 1 {
        return Err(Error::usage("--op-id names one operation: it cannot be given to several"));
    }
    Ok(())
}

/// Requests under way at the same time.
const AT_ONCE: usize = 16;

/// Asks for all, several at a time, and tells what came of them in their order. Goes on after a failure; the first
/// failure is the command's.
fn for_all<T: Sync, R: Send>(
    context: &Context,
    items: &[T],
    ask: impl Fn(&T) -> Result<R, Error> + Sync,
    mut tell: impl FnMut(R) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut answers = Vec::with_capacity(items.len());
    for part in items.chunks(AT_ONCE) {
        let ask = &ask;
        std::thread::scope(|scope| {
            let asked: Vec<_> = part.iter().map(|item| scope.spawn(move || ask(item))).collect();
            for one in asked {
                answers.push(one.join().unwrap_or_else(|_| Err(Error::failed("a thread of it ended"))));
            }
        });
    }
    let mut answers = answers.into_iter();
    for_each(context, items, |_| answers.next().map_or(Ok(()), |answer| answer.and_then(&mut tell)))
}

/// Does `each` for all, going on after a failure; the first failure is the command's.
fn for_each<T>(
    context: &Context,
    items: &[T],
    mut each: impl FnMut(&T) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut first = Ok(());
    for item in items {
        match each(item) {
            Err(Error::Output(error)) => return Err(Error::Output(error)),
            Err(error) if first.is_ok() => first = Err(error),
            Err(error) => exit::report(&error, context.style.json, exit::code(&error, false)),
            Ok(()) => {}
        }
    }
    first
}

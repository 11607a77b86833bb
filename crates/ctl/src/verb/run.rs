//! `run`: create a session, stream its output, end with its exit code.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::SFlag;
use protocol::reply::SessionView;
use protocol::request::{Keys, Kill, Remove, Until, Wait};
use protocol::session::Exit;
use protocol::{ErrorCode, Lifecycle, Reason, Refusal, Request, SessionId, SessionRef};

use crate::cli::Repeat;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::SessionJson;
use crate::show::{human, out, time};
use crate::tail::{Cleaned, Tail};
use crate::verb::{expect_done, expect_session, logs, new, wait};

/// Create a session, stream its output and end with its exit code; it has a terminal of its own, and no standard input
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(mut_arg("command", |arg| arg.required_unless_present("agent")), after_help = new::environment_help())]
pub(crate) struct Args {
    #[command(flatten)]
    pub new: new::Args,
    /// Remove the session afterwards
    #[arg(long, conflicts_with = "restart")]
    pub rm: bool,
    /// Show no output, only wait
    #[arg(long)]
    pub no_stream: bool,
}

/// What ends the streaming.
enum Over {
    Ended(Box<SessionView>),
    Interrupted,
}

/// Runs it. The first Ctrl-C goes to the session; TERM and HUP end it, as they would end the command in its place. The
/// second of these ends this command alone.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let Args { new: mut args, rm, no_stream } = args;
    // Removed here, once all that it wrote is shown; by poold, should this command end before.
    let rm = args.life.ephemeral || rm;
    args.life.ephemeral = rm;
    // Held back before the first thread is made, so that each inherits it and one alone receives it.
    let signals = hold_back()?;
    let mut client = context.patient_client();
    let id: SessionRef = match new::create(context, &mut client, args) {
        Ok(view) => view.session.id.into(),
        Err(error) => return not_started(context, &mut client, error, rm),
    };
    context.remark(&format!("{id} runs"));
    if !context.style.quiet && stdin_has_data() {
        out::note(&format!("poolctl: standard input is not passed on; type to it with `poolctl keys {id}`"));
    }
    let (over, ending) = when_over(context, &id, signals, rm);
    let shown = if no_stream || context.style.json { None } else { Some(logs::files(&mut client, &id)?) };
    let over = match shown {
        Some(files) => match stream(context, &mut Tail::new(&files), &over) {
            // Its terminal went, and the session is being ended for that: this is not over before.
            Err(Error::Output(_)) if ending.load(Ordering::Relaxed) => {
                over.recv().unwrap_or(Ok(Over::Interrupted))?
            }
            other => other?,
        },
        None => over.recv().unwrap_or_else(|_| Err(Error::failed("nobody waits for the end any more")))?,
    };
    match over {
        Over::Interrupted => {
            out::note(&format!("poolctl: {id} runs on: see `poolctl attach {id}`, `poolctl kill {id}`"));
            Ok(exit::INTERRUPTED)
        }
        Over::Ended(view) => end(context, &mut client, &view, rm),
    }
}

/// Finds data on a standard input that is a pipe or a file: whoever put it there expects that it is read.
fn stdin_has_data() -> bool {
    let stdin = std::io::stdin();
    let Ok(found) = nix::sys::stat::fstat(&stdin) else { return false };
    let kind = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT;
    let mut waiting = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match kind {
        SFlag::S_IFREG => found.st_size > 0,
        SFlag::S_IFIFO => {
            poll(&mut waiting, PollTimeout::ZERO).is_ok()
                && waiting[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLIN))
        }
        _ => false,
    }
}

/// The code of a program that could not be executed: 126, or 127 where there is none. The record that was made
/// is removed as if it had run.
fn not_started(context: &Context, client: &mut Client, error: Error, rm: bool) -> Result<u8, Error> {
    let Some(view) = failed_record(client, &error) else { return Err(error) };
    let session = &view.session;
    let code = session.exit.filter(|_| session.reason == Some(Reason::ExecFailed)).map(Exit::shell_code);
    // That it can be started again or removed is not so where it is removed.
    let error = if rm { Error::failed(human::why_over(&view)) } else { error };
    exit::report(&error, context.style.json, code.unwrap_or(exit::OWN_FAILURE));
    if rm {
        remove(context, client, session.id);
    }
    Ok(code.unwrap_or(exit::OWN_FAILURE))
}

/// The record of the session whose start this says to have failed: its id is the first word.
fn failed_record(client: &mut Client, error: &Error) -> Option<SessionView> {
    let told = error.to_string();
    let id: SessionId = told.split(' ').next().filter(|_| error.code() == ErrorCode::Failed)?.parse().ok()?;
    let view = client.ask(Request::Show(id.into())).and_then(expect_session).ok()?;
    (view.session.lifecycle == Lifecycle::Failed).then_some(view)
}

fn stream(context: &Context, tail: &mut Tail, over: &Receiver<Result<Over, Error>>) -> Result<Over, Error> {
    let mut sink = Cleaned::new(context.style.terminal);
    let over = tail.follow(&mut sink, over)?;
    if let Over::Ended(view) = &over {
        tail.finish(&mut sink, view.session.incarnation.as_ref().map(|run| run.tag))?;
    }
    Ok(over)
}

fn end(context: &Context, client: &mut Client, view: &SessionView, rm: bool) -> Result<u8, Error> {
    if context.style.json {
        out::json(&SessionJson::new(view, time::now()))?;
    }
    let code = wait::code_of(view);
    if rm {
        remove(context, client, view.session.id);
    }
    code
}

fn remove(context: &Context, client: &mut Client, id: SessionId) {
    let remove = Remove { session: id.into(), keep_tmux: false, force: true, purge: false, archive: false };
    let removed = client.change(&Repeat::default(), Request::Remove(remove));
    if let Err(error) = removed.and_then(|response| expect_done(&response))
        && error.code() != ErrorCode::NotFound
    {
        report(context.style.json, &format!("{id} is not removed"), &error);
    }
}

/// Says what failed beside the program, which the exit code is not about.
fn report(json: bool, what: &str, error: &Error) {
    let error = Refusal::new(error.code(), format!("{what}: {error}")).into();
    exit::report(&error, json, exit::OWN_FAILURE);
}

/// The signals that are for the session. HUP is left alone where it is ignored, as under `nohup`.
fn hold_back() -> Result<SigSet, Error> {
    let failed = |error: nix::Error| Error::failed(format!("cannot hold back signals: {error}"));
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    if !process::identity::i_ignore(Signal::SIGHUP) {
        signals.add(Signal::SIGHUP);
    }
    signals.thread_block().map_err(failed)?;
    Ok(signals)
}

/// Says when the program is over, or that the user wants to go; and whether the session is being ended for a signal.
fn when_over(
    context: &Context,
    session: &SessionRef,
    signals: SigSet,
    rm: bool,
) -> (Receiver<Result<Over, Error>>, Arc<AtomicBool>) {
    let (sender, over) = mpsc::channel();
    // Its limit is the daemon's to tell: a client of its own that gave up first would know less.
    let ended = (sender.clone(), Client::new(context, None), session.clone());
    let limit = context.waiting_limit();
    thread::spawn(move || {
        let (sender, mut client, session) = ended;
        let wait =
            Wait { session: session.clone(), until: vec![Until::Exit], timeout_ms: limit.map(time::millis) };
        let view = client.ask(Request::Wait(wait)).and_then(expect_session);
        let view = view.map_err(|error| match (error.code(), limit) {
            (ErrorCode::Timeout, Some(limit)) => {
                let later = if rm { "; it is removed once it is over" } else { "" };
                Error::timeout(format!("{session} has not ended within {limit:?} and runs on{later}"))
            }
            _ => error,
        });
        // Whoever waited may be gone.
        drop(sender.send(view.map(|view| Over::Ended(Box::new(view)))));
    });
    let ending = Arc::new(AtomicBool::new(false));
    let pass_on = (context.client(), session.clone(), context.style.json, Arc::clone(&ending));
    thread::spawn(move || signalled(signals, pass_on, &sender));
    (over, ending)
}

fn signalled(
    signals: SigSet,
    (mut client, session, json, ending): (Client, SessionRef, bool, Arc<AtomicBool>),
    over: &Sender<Result<Over, Error>>,
) {
    let Ok(first) = signals.wait() else { return };
    ending.store(first != Signal::SIGINT, Ordering::Relaxed);
    let second = over.clone();
    thread::spawn(move || {
        if signals.wait().is_ok() {
            drop(second.send(Ok(Over::Interrupted)));
        }
    });
    let (request, failed) = match first {
        Signal::SIGINT => {
            (Request::Keys(Keys { session, keys: vec!["C-c".into()] }), "Ctrl-C did not reach the session")
        }
        _ => (Request::Kill(Kill { session, grace_ms: None }), "the session was not ended"),
    };
    if let Err(error) = client.change(&Repeat::default(), request) {
        report(json, failed, &error);
    }
}

//! `run`: creates a session, streams its output, and ends with its exit code.

mod output;

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use process::runtime::own_end::end_by;
use protocol::request::{Keys, Kill, Pin, Remove};
use protocol::{
    ErrorCode, Exit, Lifecycle, OpId, Reason, Refusal, Request, Session, SessionId, SessionRef, SessionView,
};

use crate::client::operation;
use crate::create::{CreateArgs, create_as, environment_help};
use crate::missing_component::MissingComponentNote;
use crate::poll::stdin_has_data;
use crate::show::json::SessionJson;
use crate::show::{out, session, time};
use crate::signals::SAME_SIGNAL;
use crate::verb::run::output::{End, Ends, Output};
use crate::{Client, Context, Error, Repeat, calls, exit, expect_session, outcome, signals, threads};

/// Create a session, stream its output and end with its exit code; it has a terminal of its own, and no
/// standard input
#[derive(Debug, clap::Args)]
#[command(mut_arg("command", |arg| arg.required_unless_present("agent")), after_help = environment_help())]
pub(crate) struct Args {
    #[command(flatten)]
    create: CreateArgs,
    /// Remove the session afterwards, unless its output could not be shown
    #[arg(long, conflicts_with = "restart")]
    rm: bool,
    /// Print no output, only wait
    #[arg(long)]
    no_stream: bool,
}

/// Time between two attempts to withdraw the request for a session.
const WITHDRAW_PAUSE: Duration = Duration::from_millis(500);
/// Time after which a signal ends this command although poold does not tell whether the session runs.
const WITHDRAW_LIMIT: Duration = Duration::from_secs(10);
/// Time for poold's answer whether the session goes on.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// Runs it. The first Ctrl-C or Ctrl-\ goes to the session, and TERM and HUP end the session. A second signal ends only
/// this command.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let Args { create: mut args, rm, no_stream } = args;
    // The session is ephemeral: this command removes it once all output is printed, or poold does if this command ends
    // first.
    let rm = args.lifecycle.ephemeral || rm;
    args.lifecycle.ephemeral = rm;
    let (op, reuses) = (operation(&args.repeat)?, args.reuse);
    let (known, created) = mpsc::channel();
    let interrupted = Arc::new(OnceLock::new());
    let creation =
        Creation { op: op.clone(), client: context.client(), created, interrupted: Arc::clone(&interrupted) };
    let signals = block_signals()?;
    threads::require(move || creation.pass_signals(signals))?;
    let mut client = context.unlimited_client();
    let (id, separate, started_at) = match create_as(context, &mut client, op, args) {
        Ok(view) => {
            let Session { id, spec, incarnation, .. } = view.session;
            let started_at = incarnation.filter(|_| reuses).map(|run| run.started_at);
            (SessionRef::from(id), spec.separate_stderr, started_at)
        }
        Err(error) => return not_started(context, &mut client, (error, interrupted.get()), rm),
    };
    context.remark(&format!("{id} runs"));
    if stdin_has_data() {
        context.tell(&format!("poolctl: standard input is not passed on; type with `poolctl keys {id}`"));
    }
    let (ends, ending) = watch_end(context, &id, &known, rm);
    let _note = MissingComponentNote::watch(context, id.clone());
    let streams = !no_stream && !context.style.json;
    let since = (separate, started_at);
    let mut output = streams.then(|| Output::new(context, &mut client, &id, since));
    let followed = match &mut output {
        Some(output) => output.follow(&ends),
        None => Ok(output::wait(&ends)),
    };
    let end = match followed {
        // Printing failed while the session is being ended, as after the loss of the terminal: waits until it has
        // ended.
        Err(_) if ending.load(Ordering::Relaxed) => {
            output = None;
            output::wait(&ends)
        }
        Err(error) => {
            note_goes_on(context, &id, &ending);
            keep_unshown(context, &mut client, (&id, rm), Err(&error));
            return Err(error);
        }
        Ok(end) => end,
    };
    match end {
        End::Unknown(error) if error.code() == ErrorCode::NotFound => Err(error),
        End::Unknown(error) => {
            let text = format!("{error}; {}", goes_on(context, &id, &ending));
            Err(Refusal::new(error.code(), text).into())
        }
        End::Interrupted => {
            note_goes_on(context, &id, &ending);
            Ok(interrupted.get().map_or(exit::INTERRUPTED, |signal| exit::of_signal(*signal)))
        }
        End::Exited(view) => {
            let shown = output.as_mut().map_or(Ok(true), |output| output.finish(&view, &ends));
            keep_unshown(context, &mut client, (&id, rm), shown.as_ref().copied());
            let is_shown = shown?;
            if !ending.load(Ordering::Relaxed) {
                outcome::say_why(context, &view);
                if !(rm && view.session.policy.ephemeral) {
                    outcome::say_restart(context, &view);
                }
            }
            finish(context, &mut client, &view, rm && is_shown)
        }
    }
}

/// Pins an ephemeral session whose output was not shown in full, so that poold does not remove it either. Whoever
/// closed standard output wants no more of it.
fn keep_unshown(
    context: &Context,
    client: &mut Client,
    (id, rm): (&SessionRef, bool),
    shown: Result<bool, &Error>,
) {
    let is_unwanted = matches!(shown, Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe);
    if !rm || is_unwanted || matches!(shown, Ok(true)) {
        return;
    }
    let mut keep = || {
        let is_ephemeral = calls::session(client, id.clone())?.session.policy.ephemeral;
        if is_ephemeral {
            let pin = Request::Pin(Pin { session: id.clone(), pinned: true });
            expect_session(client.change(&Repeat::default(), pin)?)?;
        }
        Ok::<_, Error>(is_ephemeral)
    };
    match keep() {
        Ok(true) => out::note(&format!(
            "poolctl: {id} is kept, and pinned, as its output was not shown: `poolctl logs {id}`, then `poolctl rm {id}`"
        )),
        Ok(false) => {}
        Err(error) => report(context.style.json, &format!("{id} may be removed with its output"), &error),
    }
}

/// Says whether a session goes on whose end this command does not wait for any more, as far as poold tells.
fn goes_on(context: &Context, id: &SessionRef, ending: &AtomicBool) -> String {
    let is_ending = ending.load(Ordering::Relaxed);
    let mut client = Client::new(context, Some(LOOK_LIMIT));
    match calls::session(&mut client, id.clone()) {
        Ok(view) if !view.session.lifecycle.holds_slot() => session::why_ended(&view),
        Ok(view) if is_ending || view.session.lifecycle == Lifecycle::Draining => {
            format!("{id} is being ended: see `poolctl show {id}`")
        }
        Ok(_) => format!("{id} still runs: see `poolctl attach {id}`, `poolctl kill {id}`"),
        Err(error) if error.code() == ErrorCode::NotFound => format!("{id} is removed"),
        Err(_) => format!("{id} may still run: see `poolctl show {id}`"),
    }
}

fn note_goes_on(context: &Context, id: &SessionRef, ending: &AtomicBool) {
    out::note(&format!("poolctl: {}", goes_on(context, id, ending)));
}

/// The exit code for a program that could not be executed: 126, or 127 if it does not exist. The record that
/// was created is removed as after a run.
fn not_started(
    context: &Context,
    client: &mut Client,
    (error, interrupted): (Error, Option<&Signal>),
    rm: bool,
) -> Result<u8, Error> {
    let Some(view) = failed_record(client, &error) else {
        interrupted.into_iter().for_each(|signal| end_interrupted(*signal));
        return Err(error);
    };
    let session = &view.session;
    let code = session.exit.filter(|_| session.reason == Some(Reason::ExecFailed)).map(Exit::shell_code);
    // Hints on how to restart or remove the session are left out if it is removed.
    let goes = rm && session.policy.ephemeral;
    let error = if goes { Error::failed(session::why_ended(&view)) } else { error };
    exit::report(&error, context.style.json, code.unwrap_or(exit::OWN_FAILURE));
    if rm {
        remove(context, client, session);
    }
    Ok(code.unwrap_or(exit::OWN_FAILURE))
}

/// Returns the record of the session whose failed start the error reports. The error then begins with the session's
/// id, whatever the cause. Other errors may begin with the id of a session that existed before.
fn failed_record(client: &mut Client, error: &Error) -> Option<SessionView> {
    let text = error.to_string();
    let has_record = text.contains(" failed to start: ");
    let id: SessionId = text.split(' ').next().filter(|_| has_record)?.parse().ok()?;
    let view = calls::session(client, id.into()).ok()?;
    (view.session.lifecycle == Lifecycle::Failed).then_some(view)
}

fn finish(context: &Context, client: &mut Client, view: &SessionView, rm: bool) -> Result<u8, Error> {
    if context.style.json {
        out::json(&SessionJson::new(view, time::now()))?;
    }
    let code = outcome::of_session(view);
    if rm {
        remove(context, client, &view.session);
    }
    code
}

/// Removes an ephemeral session that has ended. A session with messages for workers is left to poold, which waits an
/// hour for the workers. A session that is not ephemeral existed before, and stays.
fn remove(context: &Context, client: &mut Client, session: &Session) {
    let Session { id, name, .. } = session;
    if !session.policy.ephemeral {
        return context.remark(&format!("poolctl: {name} was there already, and stays"));
    }
    let (session, force) = ((*id).into(), false);
    let remove = Remove { session, keep_tmux: false, force, purge: false, archive: false, only_ended: false };
    let removed = client.change(&Repeat::default(), Request::Remove(remove));
    match removed.and_then(|response| calls::expect_removed(&response)) {
        Err(error) if error.code() == ErrorCode::Conflict => {
            let how = format!("`poolctl rm --force {name}` removes");
            let why = error.to_string().replace("--force removes", &how);
            context.tell(&format!("poolctl: {name} stays for now: {why}"));
        }
        Err(error) if error.code() != ErrorCode::NotFound => {
            report(context.style.json, &format!("{id} could not be removed"), &error);
        }
        _ => {}
    }
}

/// Reports a failure beside the program's, which does not change the exit code.
fn report(json: bool, what: &str, error: &Error) {
    let error = Refusal::new(error.code(), format!("{what}: {error}")).into();
    exit::report(&error, json, exit::OWN_FAILURE);
}

/// Blocks the signals that are for the session. HUP is left alone if it is ignored, as under `nohup`.
fn block_signals() -> Result<SigSet, Error> {
    let hup = Some(Signal::SIGHUP).filter(|hup| !process::identity::caller_ignores(*hup));
    signals::block([Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM].into_iter().chain(hup))
}

/// A session that is created, as the thread that receives signals needs it.
struct Creation {
    /// The operation of the request.
    op: OpId,
    client: Client,
    /// Receives the session once it runs; disconnected if it does not.
    created: Receiver<SignalTarget>,
    /// The first signal.
    interrupted: Arc<OnceLock<Signal>>,
}

/// The session to which signals are passed on, once it runs.
struct SignalTarget {
    session: SessionRef,
    client: Client,
    json: bool,
    /// Set once a signal ends the session.
    ending: Arc<AtomicBool>,
    ends: Sender<Result<End, Error>>,
}

/// Reports from other threads the end of the session's program, or the user's second signal. The flag is set
/// once a signal ends the session.
fn watch_end(
    context: &Context,
    session: &SessionRef,
    known: &Sender<SignalTarget>,
    rm: bool,
) -> (Ends, Arc<AtomicBool>) {
    let (sender, ends) = mpsc::channel();
    output::report_exit(context, session, &sender, rm);
    let ending = Arc::new(AtomicBool::new(false));
    let target = SignalTarget {
        session: session.clone(),
        client: context.client(),
        json: context.style.json,
        ending: Arc::clone(&ending),
        ends: sender,
    };
    // The thread that receives signals may have ended.
    drop(known.send(target));
    (ends, ending)
}

impl Creation {
    /// Passes the first signal on to the session. A request that waits for a slot is withdrawn instead, and the main
    /// thread ends this command.
    fn pass_signals(mut self, signals: SigSet) {
        let Ok(first) = signals.wait() else { return };
        // The only signal.
        self.interrupted.set(first).ok();
        let began = Instant::now();
        let target = loop {
            // The request may not have reached poold yet, so its withdrawal is repeated.
            drop(self.client.ask_once(Request::Withdraw(self.op.clone()), WITHDRAW_PAUSE));
            match self.created.recv_timeout(WITHDRAW_PAUSE) {
                Ok(target) => break target,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) if began.elapsed() < WITHDRAW_LIMIT => {}
                Err(RecvTimeoutError::Timeout) => return end_interrupted(first),
            }
        };
        target.pass_signals(first, signals);
    }
}

impl SignalTarget {
    /// Passes the first signal on, while the request reaches the daemon. The second one ends only this command.
    fn pass_signals(self, first: Signal, signals: SigSet) {
        let Self { session, mut client, json, ending, ends } = self;
        let key = key_of(first);
        ending.store(key.is_none(), Ordering::Relaxed);
        let (second, began) = (ends, Instant::now());
        let is_passed = Arc::new(AtomicBool::new(false));
        let passed = Arc::clone(&is_passed);
        let waiting = threads::start(move || {
            while signals.wait().is_ok() {
                if passed.load(Ordering::Relaxed) || began.elapsed() >= SAME_SIGNAL {
                    drop(second.send(Ok(End::Interrupted)));
                    return;
                }
            }
        });
        if waiting.is_err() {
            // Nobody waits for it: the second signal ends this command at once.
            signals.thread_unblock().ok();
        }
        let (request, failed) = match key {
            Some(key) => {
                let failed = format!("the key {key} did not reach the session");
                (Request::Keys(Keys { session, keys: vec![key.into()] }), failed)
            }
            None => {
                // Its grace may be longer than the usual limit of an answer.
                client.set_limit(None);
                (Request::Kill(Kill { session, grace_ms: None }), "the session was not ended".to_owned())
            }
        };
        let answer = client.change(&Repeat::default(), request);
        if answer.as_ref().is_err_and(is_refusal) {
            // The session goes on, for example because it is locked.
            ending.store(false, Ordering::Relaxed);
        }
        is_passed.store(true, Ordering::Relaxed);
        if let Err(error) = answer {
            report(json, &failed, &error);
        }
    }
}

/// True if poold has declined the request. After any other error the request may still be carried out.
fn is_refusal(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::Conflict | ErrorCode::Refused | ErrorCode::NotFound)
}

/// The key for which a terminal sends this signal, as the session's own terminal knows it.
fn key_of(signal: Signal) -> Option<&'static str> {
    match signal {
        Signal::SIGINT => Some("C-c"),
        Signal::SIGQUIT => Some("C-\\"),
        _ => None,
    }
}

/// Ends this command as the signal would by itself.
fn end_interrupted(signal: Signal) {
    out::note("poolctl: interrupted before the session ran");
    end_by(signal);
}

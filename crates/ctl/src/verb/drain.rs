//! `drain`: sessions take no more messages, finish those that are queued, then stop; at the deadline,
//! if there is one, they are ended.

use std::time::Duration;

use protocol::request::{Drain, Until, Wait};
use protocol::{Lifecycle, Reason, Request, SessionView};

use crate::calls::{self};
use crate::missing_component::MissingComponentNote;
use crate::show::{session, time};
use crate::targets::{Scope, Target, Targets, first_error, for_all, print_state};
use crate::{Client, Context, Error, Repeat, expect_session};

/// Let sessions finish their queues, take no more messages, then stop
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Return once they have stopped
    #[arg(long)]
    wait: bool,
    /// End what still runs after this time; messages that are left stay queued
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    deadline: Option<Duration>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Drains all of them, then waits for each if asked to.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let targets = args.targets.find(context, &args.repeat, (Scope::Running, "to drain"))?;
    if args.wait
        && let Some(own) = targets.iter().find(|target| is_own(context, target))
    {
        let why =
            "this command runs in it, so waiting for the end of its drain would never end: leave out --wait";
        return Err(Error::usage(format!("{}: {why}", own.name)));
    }
    let deadline_ms = args.deadline.map(time::millis);
    let ask = |target: &Target| {
        // The request itself waits while a session is ending, so the note is started before it.
        let _note = args.wait.then(|| MissingComponentNote::watch(context, target.session.clone()));
        let drain = Request::Drain(Drain { session: target.session.clone(), deadline_ms });
        let mut client = if args.wait { context.unlimited_client() } else { context.client() };
        expect_session(client.change(&args.repeat, drain)?)
    };
    let mut draining = Vec::new();
    let drained = for_all(context, (&targets, "to drain"), ask, |target, view| {
        if args.wait && !view.session.lifecycle.is_over() {
            draining.push(Target { session: view.session.id.into(), ..target.clone() });
            return Ok(());
        }
        if args.wait {
            check_messages(&view)?;
        }
        print_state(context, &view)
    });
    if !args.wait {
        return drained;
    }
    let ended = match &draining[..] {
        [] => Ok(()),
        [one] => {
            let _progress = context.progress_of(progress(context.client(), one.clone()));
            wait_for_all(&context.without_progress(), &draining)
        }
        _ => wait_for_all(context, &draining),
    };
    first_error(context, drained, ended)
}

/// True for the session that this command runs in. A name is looked up: the command knows that session by its id.
fn is_own(context: &Context, target: &Target) -> bool {
    let is_named = || {
        let found = calls::session(&mut context.client(), target.session.clone());
        found.is_ok_and(|view| context.is_current(&view.session.id.into()))
    };
    context.is_current(&target.session) || context.session("-").is_ok() && is_named()
}

fn wait_for_all(context: &Context, draining: &[Target]) -> Result<(), Error> {
    for_all(
        context,
        (draining, "to finish their queues and to be at rest"),
        |target| wait(context, target),
        |_, view| tell(context, &view),
    )
}

/// Returns a function that says what a drain waits for at the time.
fn progress(mut client: Client, target: Target) -> impl FnMut() -> String {
    move || match calls::session(&mut client, target.session.clone()) {
        Ok(view) => format!("the end: {}", session::why_ended(&view)),
        Err(_) => format!("{} to finish its queue and to be at rest", target.name),
    }
}

fn wait(context: &Context, target: &Target) -> Result<SessionView, Error> {
    let _note = MissingComponentNote::watch(context, target.session.clone());
    let timeout_ms = context.waiting_limit().map(time::millis);
    let wait = Wait { session: target.session.clone(), until: vec![Until::Exit], timeout_ms };
    expect_session(context.unlimited_client().ask(Request::Wait(wait))?)
}

/// Prints how a session ended that was draining.
fn tell(context: &Context, view: &SessionView) -> Result<(), Error> {
    check_messages(view)?;
    let is_at_rest =
        matches!(view.session.reason, Some(Reason::Drained | Reason::Exited | Reason::Ephemeral));
    if view.session.lifecycle == Lifecycle::Lost || !is_at_rest {
        let why = session::why_ended(view);
        return Err(Error::failed(format!("{why}; it ended before it was at rest: its work may be cut off")));
    }
    print_state(context, view)
}

fn check_messages(view: &SessionView) -> Result<(), Error> {
    let left = view.queue.queued + view.queue.claimed + view.queue.in_doubt;
    if left > 0 {
        let name = &view.session.name;
        let why = session::why_ended(view);
        let (begun, those) = match left - view.queue.queued {
            0 => (String::new(), "them"),
            begun => (format!(" ({begun} had begun)"), "those that wait"),
        };
        return Err(Error::failed(format!(
            "{why}; messages not worked: {left}{begun}. `poolctl restart {name}` continues with {those}, \
             `poolctl queue ls {name}` tells what became of each"
        )));
    }
    Ok(())
}

//! `reset`: a fresh context, with an empty log and history: in a new process, or by the agent's own command.

use std::time::Duration;

use protocol::request::{ClearContext, Restart};
use protocol::{Request, SessionRef, SessionView};

use crate::calls::{self, expected};
use crate::message_wait::MessageWait;
use crate::ready::{self, Blocking};
use crate::show::time;
use crate::targets::{Scope, Target, Targets, for_all, print_state};
use crate::{Context, Error, Repeat, expect_done, expect_session, outcome};

/// Begin a fresh conversation, and empty log and history; what is queued stays
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// In the running process: type the agent's own command for it, once the agent is idle, like a prompt
    #[arg(long, conflicts_with_all = ["grace", "wait_slot", "no_block"])]
    soft: bool,
    /// Time between TERM and KILL [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    grace: Option<Duration>,
    /// Time to wait for a slot; 0: not at all [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    wait_slot: Option<Duration>,
    #[command(flatten)]
    blocking: Blocking,
    #[command(flatten)]
    repeat: Repeat,
}

/// Resets them at the same time.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let targets = args.targets.find(context, &args.repeat, (Scope::Running, "to reset"))?;
    let quiet = context.without_progress();
    let ask = |target: &Target| {
        let session = target.session.clone();
        if args.soft { soft(&quiet, &args, session) } else { hard(&quiet, &args, session) }
    };
    for_all(context, (&targets, "to begin anew"), ask, |_, view| print_state(context, &view))
}

/// Ends the process, if one runs, and starts another.
fn hard(context: &Context, args: &Args, session: SessionRef) -> Result<SessionView, Error> {
    let restart = Restart {
        session,
        grace_ms: args.grace.map(time::millis),
        fresh: true,
        clear: true,
        wait_slot_ms: args.wait_slot.map(time::millis),
    };
    let mut client = context.client_for_slot(args.wait_slot, args.grace);
    let view = expect_session(client.change(&args.repeat, Request::Restart(restart))?)?;
    ready::wait(context, args.blocking, view, None)
}

/// Has the agent's own command typed, waits until the agent has carried it out, and clears what was printed.
fn soft(context: &Context, args: &Args, session: SessionRef) -> Result<SessionView, Error> {
    let request = ClearContext { session: session.clone(), origin: context.origin() };
    let sent = *expected!(context.client().change(&args.repeat, Request::ClearContext(request))?, Sent)?;
    let message = MessageWait::new(context, &sent.message).done()?;
    if outcome::is_left(&message) {
        return Err(outcome::in_doubt(&session, &message));
    }
    outcome::of_message(&message)?;
    let (mut client, session) = (context.client(), SessionRef::from(message.session));
    // Clearing again does no harm, so that this part needs no id of the user's.
    expect_done(&client.change(&Repeat::default(), Request::Clear(session.clone()))?)?;
    calls::session(&mut client, session)
}

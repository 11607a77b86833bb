//! `restore`: starts sessions that were parked, lost or stopped.

use std::time::Duration;

use protocol::reply::SessionView;
use protocol::request::{Restore, Until, Wait};
use protocol::{ErrorCode, Lifecycle, Request};

use crate::args::Repeat;
use crate::calls::{expect_session, expected};
use crate::client::{Client, RetryLimit};
use crate::context::Context;
use crate::error::Error;
use crate::ready::{self, Blocking};
use crate::show::{session, time};
use crate::targets::{Scope, Selection, Target, Targets, for_all, print_session};

/// Start sessions that were parked, lost or stopped, with everything they have
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Time to wait for a slot; 0: not at all [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    wait_slot: Option<Duration>,
    #[command(flatten)]
    blocking: Blocking,
    #[command(flatten)]
    repeat: Repeat,
}

/// Returns once they run.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let Selection { all, labels, agent } = &args.targets.selection;
    if *all && labels.is_empty() && agent.is_none() {
        return restore_all(context, &args);
    }
    let targets = args.targets.find(context, &args.repeat, (Scope::Lost, "to restore"))?;
    let quiet = context.without_progress();
    let ask = |target: &Target| {
        let wait_slot_ms = args.wait_slot.map(time::millis);
        let restore = Restore { session: Some(target.session.clone()), wait_slot_ms };
        let mut client = context.client_for_slot(args.wait_slot, Duration::ZERO);
        let view = expect_session(client.change(&args.repeat, Request::Restore(restore))?)?;
        ready::wait(&quiet, args.blocking, view, None)
    };
    for_all(context, (&targets, "to run"), ask, |_, view| {
        print_session(context, &view, &session::state_line(&view))
    })
}

/// Restores all lost sessions, which the daemon starts one after the other.
fn restore_all(context: &Context, args: &Args) -> Result<(), Error> {
    let mut client = context.unlimited_client();
    let limit = RetryLimit::new(context.waiting_limit());
    let restore = Restore { session: None, wait_slot_ms: args.wait_slot.map(time::millis) };
    let scheduled = expected!(client.change(&args.repeat, Request::Restore(restore))?, Sessions)?;
    if scheduled.is_empty() {
        context.say("no session was lost")?;
    }
    let mut failed = Vec::new();
    for (number, view) in (1..).zip(&scheduled) {
        let name = &view.session.name;
        let progress = context.progress(&format!("{name} to run ({number} of {})", scheduled.len()));
        let started = started(&mut client, view, limit.left());
        drop(progress);
        match started.and_then(|view| ready::wait(context, args.blocking, view, limit.left())) {
            Ok(view) => print_session(context, &view, &session::state_line(&view))?,
            // The time limit is that of all sessions together.
            Err(error) if error.code() == ErrorCode::Timeout => return Err(error),
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        some => Err(Error::failed(format!(
            "{} of {} sessions do not run:\n{}",
            some.len(),
            scheduled.len(),
            some.join("\n")
        ))),
    }
}

/// Waits until the session was started, and returns it unless that failed.
fn started(client: &mut Client, view: &SessionView, left: Option<Duration>) -> Result<SessionView, Error> {
    let session = view.session.id.into();
    let wait = Wait { session, until: vec![Until::Started], timeout_ms: left.map(time::millis) };
    let view = expect_session(client.ask(Request::Wait(wait))?)?;
    match view.session.lifecycle {
        Lifecycle::Lost | Lifecycle::Failed => Err(Error::failed(session::why_ended(&view))),
        _ => Ok(view),
    }
}

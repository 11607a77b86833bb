//! `restore`: starts sessions that were parked, lost or stopped.

use std::time::{Duration, Instant};

use protocol::request::{Restore, Until, Wait};
use protocol::{ErrorCode, Lifecycle, Request, SessionRef, SessionView};

use crate::calls::{self, expected};
use crate::client::RetryLimit;
use crate::ready::{self, Blocking};
use crate::show::{session, time};
use crate::targets::{Scope, Selection, Target, Targets, for_all, print_state};
use crate::{Client, Context, Error, Repeat, expect_session};

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
        let mut client = context.client_for_slot(args.wait_slot, Some(Duration::ZERO));
        let view = expect_session(client.change(&args.repeat, Request::Restore(restore))?)?;
        ready::wait(&quiet, args.blocking, view, None)
    };
    for_all(context, (&targets, "to run"), ask, |_, view| print_state(context, &view))
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
    let (mut failed, mut waiting) = (Vec::new(), Vec::new());
    let patience = args.wait_slot.map_or(NO_START_LIMIT, |wait| wait.max(LOOK_INTERVAL));
    let mut last_start = Instant::now();
    for (number, view) in (1..).zip(&scheduled) {
        let name = &view.session.name;
        let progress = context.progress(&format!("{name} to run ({number} of {})", scheduled.len()));
        let started = started(&mut client, view, (&limit, last_start + patience));
        drop(progress);
        let ready = match started {
            Ok(None) => {
                waiting.push(name.as_str());
                continue;
            }
            Ok(Some(view)) => ready::wait(context, args.blocking, view, limit.left()),
            Err(error) => Err(error),
        };
        last_start = Instant::now();
        match ready {
            Ok(view) => print_state(context, &view)?,
            // The time limit is that of all sessions together.
            Err(error) if error.code() == ErrorCode::Timeout => return Err(error),
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    let count = scheduled.len();
    let waits = format!(
        "{} of {count} sessions wait for a slot, and start once they get one, unless you end them: {}",
        waiting.len(),
        waiting.join(", ")
    );
    match (failed.as_slice(), waiting.as_slice()) {
        ([], []) => Ok(()),
        ([], _) => Err(Error::refused(waits)),
        (some, _) => {
            let waits = if waiting.is_empty() { String::new() } else { format!("\n{waits}") };
            let (failures, which) = (some.len(), some.join("\n"));
            Err(Error::failed(format!("{failures} of {count} sessions do not run:\n{which}{waits}")))
        }
    }
}

/// Time without any start after which this command stops waiting for sessions that wait for slots.
const NO_START_LIMIT: Duration = Duration::from_secs(10);
/// Interval between looks whether a session waits for a slot.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until the session was started, and returns it unless that failed. `None` if it still waits for a slot when the
/// time is over.
fn started(
    client: &mut Client,
    view: &SessionView,
    (limit, until): (&RetryLimit, Instant),
) -> Result<Option<SessionView>, Error> {
    let id = SessionRef::from(view.session.id);
    loop {
        let left = limit.left();
        let step = LOOK_INTERVAL.min(left.unwrap_or(LOOK_INTERVAL));
        let wait =
            Wait { session: id.clone(), until: vec![Until::Started], timeout_ms: Some(time::millis(step)) };
        match client.ask(Request::Wait(wait)).and_then(expect_session) {
            Ok(view) if matches!(view.session.lifecycle, Lifecycle::Lost | Lifecycle::Failed) => {
                return Err(Error::failed(session::why_ended(&view)));
            }
            Ok(view) => return Ok(Some(view)),
            Err(error) if error.code() != ErrorCode::Timeout || left.is_some_and(|left| left <= step) => {
                return Err(error);
            }
            Err(_) => {}
        }
        let shown = calls::session(client, id.clone())?;
        // Its start has failed, and may be tried again for a prompt that waits.
        if shown.session.lifecycle == Lifecycle::Failed {
            return Err(Error::failed(session::why_ended(&shown)));
        }
        if Instant::now() >= until && shown.slot_wait.is_some() {
            return Ok(None);
        }
    }
}

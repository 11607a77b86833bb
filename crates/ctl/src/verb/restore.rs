//! `restore`: start what was parked, lost or stopped.

use std::time::Duration;

use protocol::reply::SessionView;
use protocol::request::{Restore, Until, Wait};
use protocol::{ErrorCode, Lifecycle, Request, Response};

use crate::cli::Repeat;
use crate::client::{Client, Patience};
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{human, time};
use crate::verb::ready::{self, Block};
use crate::verb::{expect_session, for_each, only_one, print_session};

/// Start sessions that were parked, lost or stopped, with all that is theirs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which sessions
    #[arg(required_unless_present = "all", value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// All that were lost, one after the other
    #[arg(long, conflicts_with = "sessions")]
    pub all: bool,
    /// How long to wait for a slot; 0: not at all [default: the configuration's]
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub wait_slot: Option<Duration>,
    #[command(flatten)]
    pub block: Block,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Returns when they run.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    if args.all {
        return all(context, args);
    }
    only_one(&args.repeat, args.sessions.len())?;
    let mut client = context.client_for_slot(args.wait_slot, Duration::ZERO);
    for_each(context, &args.sessions, |session| one(context, &mut client, args, session))?;
    Ok(exit::OK)
}

fn one(context: &Context, client: &mut Client, args: &Args, session: &str) -> Result<(), Error> {
    let session = context.session(session)?;
    let progress = context.progress(&format!("{session} to run"));
    let restore = Restore { session: Some(session), wait_slot_ms: args.wait_slot.map(time::millis) };
    let view = expect_session(client.change(&args.repeat, Request::Restore(restore))?)?;
    drop(progress);
    let view = ready::wait(context, args.block, view, None)?;
    print_session(context, &view, &human::state_line(&view))
}

fn all(context: &Context, args: &Args) -> Result<u8, Error> {
    let mut client = context.patient_client();
    let patience = Patience::new(context.waiting_limit());
    let restore = Restore { session: None, wait_slot_ms: args.wait_slot.map(time::millis) };
    let scheduled = match client.change(&args.repeat, Request::Restore(restore))? {
        Response::Sessions(views) => views,
        other => return Err(Error::unexpected(&other)),
    };
    if scheduled.is_empty() {
        context.say("nothing was lost")?;
    }
    let mut failed = Vec::new();
    for (number, view) in (1..).zip(&scheduled) {
        let name = &view.session.name;
        let progress = context.progress(&format!("{name} to run ({number} of {})", scheduled.len()));
        let started = started(&mut client, view, patience.left());
        drop(progress);
        match started.and_then(|view| ready::wait(context, args.block, view, patience.left())) {
            Ok(view) => print_session(context, &view, &human::state_line(&view))?,
            // What comes after it is waited for no longer either.
            Err(error) if error.code() == ErrorCode::Timeout => return Err(error),
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    match failed.as_slice() {
        [] => Ok(exit::OK),
        some => Err(Error::failed(format!(
            "{} of {} do not run:\n{}",
            some.len(),
            scheduled.len(),
            some.join("\n")
        ))),
    }
}

/// The session once it was started, however it went on.
fn started(client: &mut Client, view: &SessionView, left: Option<Duration>) -> Result<SessionView, Error> {
    let session = view.session.id.into();
    let wait = Wait { session, until: vec![Until::Started], timeout_ms: left.map(time::millis) };
    let view = expect_session(client.ask(Request::Wait(wait))?)?;
    match view.session.lifecycle {
        Lifecycle::Lost | Lifecycle::Failed => Err(Error::failed(human::why_over(&view))),
        _ => Ok(view),
    }
}

//! `drain`: sessions take no more messages, finish what is queued, then stop.

use protocol::request::{Until, Wait};
use protocol::{Request, SessionRef};

use crate::cli::Repeat;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{human, time};
use crate::verb::{expect_session, for_each, only_one, print_session};

/// Let sessions finish what is queued, take no more messages, then stop
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which sessions
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Return when they are stopped
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Begins with all of them, then waits for each where that is asked for.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    only_one(&args.repeat, args.sessions.len())?;
    let mut client = if args.wait { context.patient_client() } else { context.client() };
    let mut begun: Vec<SessionRef> = Vec::new();
    let drained = for_each(context, &args.sessions, |session| {
        let drain = Request::Drain(context.session(session)?);
        let view = expect_session(client.change(&args.repeat, drain)?)?;
        begun.push(view.session.id.into());
        if args.wait { Ok(()) } else { print_session(context, &view, &human::state_line(&view)) }
    });
    let waited = if args.wait {
        for_each(context, &begun, |session| wait(context, &mut client, session))
    } else {
        Ok(())
    };
    drained.and(waited)?;
    Ok(exit::OK)
}

fn wait(context: &Context, client: &mut Client, session: &SessionRef) -> Result<(), Error> {
    let progress = context.progress(&format!("{session} to finish what is queued and to be idle"));
    let timeout_ms = context.waiting_limit().map(time::millis);
    let wait = Wait { session: session.clone(), until: vec![Until::Exit], timeout_ms };
    let view = expect_session(client.ask(Request::Wait(wait))?)?;
    drop(progress);
    let left = view.queue.queued + view.queue.claimed + view.queue.in_doubt;
    if left > 0 {
        let name = &view.session.name;
        let why = human::why_over(&view);
        return Err(Error::failed(format!(
            "{why}; messages that were not worked: {left}. `poolctl restart {name}` goes on with them, `poolctl queue \
             ls {name}` lists them"
        )));
    }
    print_session(context, &view, &human::state_line(&view))
}

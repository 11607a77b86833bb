//! `drain`: sessions take no more messages, finish those that are queued, then stop.

use protocol::request::{Until, Wait};
use protocol::{Request, SessionRef};

use crate::args::Repeat;
use crate::calls::expect_session;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::show::{session, time};
use crate::targets::{for_each, only_one, print_session};

/// Let sessions finish their queues, take no more messages, then stop
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sessions
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
    /// Return once they have stopped
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Drains all of them, then waits for each if asked to.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    only_one(&args.repeat, args.sessions.len())?;
    let mut client = if args.wait { context.unlimited_client() } else { context.client() };
    let mut draining: Vec<SessionRef> = Vec::new();
    let drained = for_each(context, &args.sessions, |session| {
        let drain = Request::Drain(context.session(session)?);
        let view = expect_session(client.change(&args.repeat, drain)?)?;
        draining.push(view.session.id.into());
        if args.wait { Ok(()) } else { print_session(context, &view, &session::state_line(&view)) }
    });
    let waited = if args.wait {
        for_each(context, &draining, |session| wait(context, &mut client, session))
    } else {
        Ok(())
    };
    drained.and(waited)
}

fn wait(context: &Context, client: &mut Client, session: &SessionRef) -> Result<(), Error> {
    let progress = context.progress(&format!("{session} to finish its queue and to be idle"));
    let timeout_ms = context.waiting_limit().map(time::millis);
    let wait = Wait { session: session.clone(), until: vec![Until::Exit], timeout_ms };
    let view = expect_session(client.ask(Request::Wait(wait))?)?;
    drop(progress);
    let left = view.queue.queued + view.queue.claimed + view.queue.in_doubt;
    if left > 0 {
        let name = &view.session.name;
        let why = session::why_ended(&view);
        return Err(Error::failed(format!(
            "{why}; messages not worked: {left}. `poolctl restart {name}` continues with them, `poolctl \
             queue ls {name}` lists them"
        )));
    }
    print_session(context, &view, &session::state_line(&view))
}

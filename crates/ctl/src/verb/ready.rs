//! The wait of `new`, `restart`, `restore` and `send --wake` until the agent in a running process has begun.

use std::time::Duration;

use protocol::reply::SessionView;
use protocol::request::{Until, Wait};
use protocol::{ErrorCode, Lifecycle, Request, SessionRef};

use crate::context::Context;
use crate::error::Error;
use crate::show::{human, out, time};
use crate::verb::expect_session;

/// How long an agent may take to begin: many that start at once take some seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Whether to wait.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Block {
    /// Return once its process runs, and do not wait until its agent has begun
    #[arg(long)]
    pub no_block: bool,
}

/// The session once its agent has begun: its start hook was heard, or its screen shows where it takes prompts, or what it
/// asks. One whose agent takes longer is told to the user, and is as it was. `left`: time left to a verb that starts several.
pub(crate) fn wait(
    context: &Context,
    block: Block,
    view: SessionView,
    left: Option<Duration>,
) -> Result<SessionView, Error> {
    let tells = view.confirm == "hook" && view.session.lifecycle == Lifecycle::Live;
    if block.no_block || !tells {
        return Ok(view);
    }
    let name = view.session.name.clone();
    let limit = limit(context, left);
    match begun(context, view.session.id.into(), limit)? {
        Some(view) => Ok(view),
        None => {
            let look = format!("look at it with `poolctl attach {name}`");
            out::note(&format!(
                "poolctl: {name} runs, and its agent has not begun within {} s: {look}",
                limit.as_secs()
            ));
            Ok(view)
        }
    }
}

/// Waits until the agent of a session that a message woke has begun, as long as [`wait`] does.
pub(crate) fn woken(context: &Context, session: &SessionRef) -> Result<(), Error> {
    let limit = limit(context, None);
    if begun(context, session.clone(), limit)?.is_none() {
        let look = format!("`poolctl show {session}` tells why");
        out::note(&format!(
            "poolctl: the message waits; {session} has not begun within {} s: {look}",
            limit.as_secs()
        ));
    }
    Ok(())
}

/// The time to wait: no longer than the verb may take, nor than it has left.
fn limit(context: &Context, left: Option<Duration>) -> Duration {
    [context.limit(), left].into_iter().flatten().fold(LIMIT, Duration::min)
}

/// The session once its agent has begun; none where that takes longer.
fn begun(context: &Context, session: SessionRef, limit: Duration) -> Result<Option<SessionView>, Error> {
    let _progress = context.progress(&format!("the agent of {session} to begin"));
    let wait = Wait { session, until: vec![Until::Ready], timeout_ms: Some(time::millis(limit)) };
    match context.client_within(limit).ask(Request::Wait(wait)).and_then(expect_session) {
        Ok(ready) if ready.session.lifecycle == Lifecycle::Live => Ok(Some(ready)),
        // A program that is no agent may well have done what it was started for.
        Ok(over) if over.confirm != "hook" => Ok(Some(over)),
        Ok(over) => {
            let (why, name) = (human::why_over(&over), &over.session.name);
            Err(Error::failed(format!("{why}: `poolctl logs {name}` shows what its agent wrote")))
        }
        Err(error) if error.code() == ErrorCode::Timeout => Ok(None),
        Err(error) => Err(error),
    }
}

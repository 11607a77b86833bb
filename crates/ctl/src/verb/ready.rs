//! The wait of `new`, `restart` and `restore` until the agent in a running process has begun.

use std::time::Duration;

use protocol::reply::SessionView;
use protocol::request::{Until, Wait};
use protocol::{ErrorCode, Lifecycle, Request};

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
/// asks. One whose agent takes longer is told to the user, and is as it was.
pub(crate) fn wait(context: &Context, block: Block, view: SessionView) -> Result<SessionView, Error> {
    let tells = view.confirm == "hook" && view.session.lifecycle == Lifecycle::Live;
    if block.no_block || !tells {
        return Ok(view);
    }
    let name = view.session.name.clone();
    let _progress = context.progress(&format!("the agent of {name} to begin"));
    let limit = context.limit().map_or(LIMIT, |limit| limit.min(LIMIT));
    let wait = Wait {
        session: view.session.id.into(),
        until: vec![Until::Ready],
        timeout_ms: Some(time::millis(limit)),
    };
    match context.client_within(limit).ask(Request::Wait(wait)).and_then(expect_session) {
        Ok(ready) if ready.session.lifecycle == Lifecycle::Live => Ok(ready),
        Ok(over) => {
            let why = human::why_over(&over);
            Err(Error::failed(format!("{why}: `poolctl logs {name}` shows what its agent wrote")))
        }
        Err(error) if error.code() == ErrorCode::Timeout => {
            let seconds = limit.as_secs();
            let look = format!("look at it with `poolctl attach {name}`");
            out::note(&format!(
                "poolctl: {name} runs, and its agent has not begun within {seconds} s: {look}"
            ));
            Ok(view)
        }
        Err(error) => Err(error),
    }
}

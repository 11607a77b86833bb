//! The wait of `new`, `restart`, `restore` and `send --wake` until the agent in a running process is ready.

use std::time::Duration;

use protocol::request::{Until, Wait};
use protocol::{ErrorCode, Lifecycle, Message, MessageState, Request, SessionRef, SessionView};

use crate::show::{out, session, time};
use crate::{Context, Error, calls, expect_message, expect_session, outcome};

/// Time limit for an agent to become ready: many that start at once take some seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Time limit for asking for the state of a message.
const NOTE_LIMIT: Duration = Duration::from_secs(1);

/// The flag of verbs that start an agent.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Blocking {
    /// Return once the process runs, without waiting until its agent is ready
    #[arg(long)]
    pub no_block: bool,
}

/// Waits until a session's agent is ready: its start hook was received, or its screen shows a composer or a question.
/// If the agent takes longer, the user gets a note, and the session is returned as it was. `left` is the remaining time
/// of a verb that starts several sessions.
///
/// # Errors
/// The session ended meanwhile, or `poold` refused.
pub(crate) fn wait(
    context: &Context,
    blocking: Blocking,
    view: SessionView,
    left: Option<Duration>,
) -> Result<SessionView, Error> {
    // The agent may have ended since `view` was taken. The wait reports that at once.
    let session = &view.session;
    let is_removed = session.policy.ephemeral && !session.lifecycle.holds_slot();
    let reports = view.confirm == "hook" && session.lifecycle != Lifecycle::Parked && !is_removed;
    if blocking.no_block || !reports {
        return Ok(view);
    }
    let limit = limit(context, left);
    if let Some(ready) = until_ready(context, view.session.id.into(), limit)? {
        return Ok(ready);
    }
    if !context.style.json {
        let (name, limit) = (&view.session.name, limit.as_secs());
        out::note(&format!(
            "poolctl: {name} runs, but its agent was not ready within {limit} s: see `poolctl attach {name}`"
        ));
    }
    Ok(view)
}

/// Waits until the agent of the session that a message woke is ready, for as long as [`wait`] does. `name` is the name
/// by which the user asked for the session.
pub(crate) fn woken(context: &Context, message: &Message, name: &SessionRef) -> Result<(), Error> {
    let limit = limit(context, None);
    let session = SessionRef::from(message.session);
    let shown = calls::session(&mut context.client_within(Some(limit)), session.clone())?;
    if shown.session.lifecycle == Lifecycle::Failed && shown.session.changed_at >= message.created_at {
        return Err(failed_start(&shown));
    }
    if until_ready(context, session, limit)?.is_none() && !context.style.json {
        note_unready(context, (message, name), limit);
    }
    Ok(())
}

/// Notes the state of a message whose session was not ready in time. Does nothing if the agent has accepted or done
/// it.
fn note_unready(context: &Context, (message, name): (&Message, &SessionRef), limit: Duration) {
    let shown =
        context.client().ask_once(Request::ShowMessage(message.id), NOTE_LIMIT).and_then(expect_message);
    let message = shown.as_ref().unwrap_or(message);
    if matches!(message.status.state, MessageState::Accepted | MessageState::Done) {
        return;
    }
    out::note(&format!(
        "poolctl: {}, and {name} was not ready within {} s: see `poolctl show {name}`",
        outcome::describe(message),
        limit.as_secs()
    ));
}

/// The error of a start that has failed.
fn failed_start(view: &SessionView) -> Error {
    let (why, name) = (session::why_ended(view), &view.session.name);
    Error::failed(format!("{why}: once that is mended, `poolctl restart {name}`"))
}

/// Returns the time to wait: no more than the user allows, and than the verb has left.
fn limit(context: &Context, left: Option<Duration>) -> Duration {
    [context.waiting_limit(), left].into_iter().flatten().fold(LIMIT, Duration::min)
}

/// The session once its agent is ready; `None` if that takes longer.
fn until_ready(
    context: &Context,
    session: SessionRef,
    limit: Duration,
) -> Result<Option<SessionView>, Error> {
    let _progress = context.progress(&format!("the agent of {session} to be ready"));
    let wait = Wait { session, until: vec![Until::Ready], timeout_ms: Some(time::millis(limit)) };
    match context.client_within(Some(limit)).ask(Request::Wait(wait)).and_then(expect_session) {
        // A draining session is ready, too: it works on what is queued.
        Ok(ready) if matches!(ready.session.lifecycle, Lifecycle::Live | Lifecycle::Draining) => {
            Ok(Some(ready))
        }
        Ok(failed) if failed.session.lifecycle == Lifecycle::Failed => Err(failed_start(&failed)),
        // A program that is no agent may have finished its work.
        Ok(over) if over.confirm != "hook" => Ok(Some(over)),
        Ok(over) => {
            let (why, name) = (session::why_ended(&over), &over.session.name);
            Err(Error::failed(format!("{why}: `poolctl logs {name}` shows what its agent wrote")))
        }
        Err(error) if error.code() == ErrorCode::Timeout => Ok(None),
        Err(error) => Err(error),
    }
}

//! The cause for which a request was not answered in time. Once the time is up, `poold` is asked for it, and may not
//! answer.

use std::time::Duration;

use protocol::reply::Status;
use protocol::request::New;
use protocol::{ErrorCode, Lifecycle, Refusal, Request, Response, SessionRef, SessionView, TransportError};

use crate::Error;
use crate::show::session;

/// Time for each question about the cause.
pub(crate) const CAUSE_LIMIT: Duration = Duration::from_millis(500);

/// States of the tmux server in which it does not react.
const SILENT: [&str; 5] = ["stopped", "spinning", "unreachable", "full", "forbidden"];

/// The refusal of a wait that `poold` itself ended, without a cause.
const BARE: &str = "the wait timed out";

/// Adds the cause to the error of a request that was not answered in time. `ask` puts a question to `poold`, within
/// [`CAUSE_LIMIT`].
pub(crate) fn with_cause(
    ask: impl FnMut(Request) -> Option<Response>,
    request: &Request,
    error: Error,
) -> Error {
    let told = match &error {
        Error::Refused(refusal) if refusal.code == ErrorCode::Timeout => refusal.message.clone(),
        _ => return error,
    };
    let is_unanswered = told == TransportError::Timeout.refusal_of(request.is_read()).message;
    let Some(cause) = cause(ask, request, is_unanswered || told == BARE) else { return error };
    let cause = match (is_unanswered, request.is_read()) {
        (true, false) => format!("the time is up: {cause}; what was asked may still be done"),
        (true, true) => format!("the time is up: {cause}"),
        (false, _) => format!("{told}: {cause}"),
    };
    Refusal::timeout(cause).into()
}

/// Returns the cause of a wait, if there is one: the state of tmux or, unless the error says more already, that of the
/// session.
fn cause(
    mut ask: impl FnMut(Request) -> Option<Response>,
    request: &Request,
    is_bare: bool,
) -> Option<String> {
    let session = session_of(request)?;
    let Some(Response::Status(status)) = ask(Request::Status) else { return None };
    silent_tmux(&status).or_else(|| match is_bare.then(|| ask(Request::Show(session)))?? {
        Response::Session(view) => passing_state(&view),
        _ => None,
    })
}

fn silent_tmux(status: &Status) -> Option<String> {
    let detail = || status.tmux.detail.clone().unwrap_or_else(|| format!("tmux is {}", status.tmux.state));
    SILENT.contains(&status.tmux.state.as_str()).then(detail)
}

/// Returns the state of a session for which a request may be waiting: it starts, ends, failed to start, waits for a
/// slot, or is locked.
fn passing_state(view: &SessionView) -> Option<String> {
    let name = &view.session.name;
    let locked = view.lock.as_ref().map(|lock| format!("{name} is locked: {}", lock.purpose));
    match view.session.lifecycle {
        Lifecycle::Starting | Lifecycle::Draining | Lifecycle::Failed => Some(session::why_ended(view)),
        _ => {
            view.slot_wait.map(|position| format!("{name} waits for a slot, position {position}")).or(locked)
        }
    }
}

/// The session that a request is about, if it may wait for one.
fn session_of(request: &Request) -> Option<SessionRef> {
    use Request::{
        Attach, Capture, Clear, ClearContext, Drain, Input, Keys, Kill, Lock, New as Create, Park, Remove,
        Rename, Resize, Restart, Restore, Terminal, Wait,
    };
    Some(match request {
        Create(new) => existing(new)?,
        Attach(asked) => asked.session.clone(),
        Capture(asked) => asked.session.clone(),
        Clear(session) | Terminal(session) => session.clone(),
        ClearContext(asked) => asked.session.clone(),
        Drain(asked) => asked.session.clone(),
        Input(asked) => asked.session.clone(),
        Keys(asked) => asked.session.clone(),
        Kill(asked) => asked.session.clone(),
        Lock(asked) => asked.session.clone(),
        Park(asked) => asked.session.clone(),
        Remove(asked) => asked.session.clone(),
        Rename(asked) => asked.session.clone(),
        Resize(asked) => asked.session.clone(),
        Restart(asked) => asked.session.clone(),
        Restore(asked) => asked.session.clone()?,
        Wait(asked) => asked.session.clone(),
        _ => return None,
    })
}

/// The session that `new --reuse` returns.
fn existing(new: &New) -> Option<SessionRef> {
    new.workspace.clone().or_else(|| new.name.clone()).map(SessionRef)
}

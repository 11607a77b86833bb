//! The full description of one session, which `show SESSION` and `status SESSION` print.

use protocol::reply::{LogFiles, REPLAY_CHARS};
use protocol::{Session, SessionView};

use crate::error_lines::{self, ErrorLines};
use crate::show::json::SessionJson;
use crate::show::{out, session, time};
use crate::{Client, Context, Error, calls, session_log};

/// Prints everything about a session.
pub(crate) fn session(context: &Context, session: &str) -> Result<(), Error> {
    let session = context.session(session)?;
    let mut client = context.client();
    let view = calls::session(&mut client, session)?;
    // The output is left out if it cannot be read: the session may have been removed meanwhile.
    let replay = replay(&mut client, &view.session).ok();
    let errors = errors(&mut client, &view);
    let now = time::now();
    if context.style.json {
        out::json(&SessionJson::new(&view, now).in_full(&view, (errors.as_ref(), replay)))
    } else {
        out::text(&session::session(&view, (errors.as_ref(), replay.as_deref()), context.style, now))
    }
}

/// Returns the error lines of the last run; none if its kind of agent has no patterns, or the output cannot be read.
fn errors(client: &mut Client, view: &SessionView) -> Option<ErrorLines> {
    let session = &view.session;
    let run = session.incarnation.as_ref().filter(|_| !view.error_patterns.is_empty())?;
    let files = session_log::files(client, &session.id.into()).ok()?;
    let stderr = session.spec.separate_stderr.then(|| session_log::stderr_of(&files));
    let logs: Vec<LogFiles> = [files].into_iter().chain(stderr).collect();
    error_lines::find(&logs, run.tag, &view.error_patterns).ok()
}

/// The end of the session's output, without control sequences.
fn replay(client: &mut Client, session: &Session) -> Result<String, Error> {
    let dir = session_log::files(client, &session.id.into())?.dir;
    let size = session.spec.size;
    logs::replay(dir.as_path(), (size.rows, size.cols), REPLAY_CHARS)
        .map_err(|error| Error::failed(format!("cannot read the log: {error}")))
}

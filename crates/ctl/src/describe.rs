//! The full description of one session, which `show SESSION` and `status SESSION` print.

use protocol::reply::{LogFiles, REPLAY_CHARS};
use protocol::{ErrorCode, Session, SessionView};

use crate::error_lines::{self, ErrorLines};
use crate::show::json::SessionJson;
use crate::show::{escape, out, session, time};
use crate::{Client, Context, Error, calls, session_log};

/// Prints everything about a session.
pub(crate) fn session(context: &Context, session: &str) -> Result<(), Error> {
    let session = context.session(session)?;
    let mut client = context.client();
    let view = calls::session(&mut client, session)?;
    let replay = replay(&mut client, &view.session);
    let errors = errors(&mut client, &view);
    let unread = unread(&replay, &errors);
    let (replay, errors, now) = (replay.ok(), errors.ok().flatten(), time::now());
    if context.style.json {
        unread.into_iter().for_each(|why| context.tell(&format!("poolctl: {}: {why}", view.session.name)));
        out::json(&SessionJson::new(&view, now).in_full(&view, (errors.as_ref(), replay)))
    } else {
        let text = session::session(&view, (errors.as_ref(), replay.as_deref()), context.style, now);
        out::text(&unread.into_iter().fold(text, |text, why| format!("{text}{why}\n")))
    }
}

/// Says why the output, or the number of its error lines, is left out. A session that was removed meanwhile has none.
fn unread(replay: &Result<String, Error>, errors: &Result<Option<ErrorLines>, Error>) -> Option<String> {
    let replay = replay.as_ref().err().map(|why| ("output cannot be read", why));
    let errors = errors.as_ref().err().map(|why| ("errors cannot be counted", why));
    let (what, why) = replay.or(errors).filter(|(_, why)| why.code() != ErrorCode::NotFound)?;
    Some(format!("{what}: {}", escape::line(&why.to_string())))
}

/// Returns the error lines of the last run; none if its kind of agent has no patterns.
fn errors(client: &mut Client, view: &SessionView) -> Result<Option<ErrorLines>, Error> {
    let session = &view.session;
    let run = session.incarnation.as_ref().filter(|_| !view.error_patterns.is_empty());
    let Some(run) = run else { return Ok(None) };
    let files = session_log::files(client, &session.id.into())?;
    let stderr = session.spec.separate_stderr.then(|| session_log::stderr_of(&files));
    let logs: Vec<LogFiles> = [files].into_iter().chain(stderr).collect();
    error_lines::find(&logs, run.tag, &view.error_patterns).map(Some)
}

/// The end of the session's output, without control sequences.
fn replay(client: &mut Client, session: &Session) -> Result<String, Error> {
    let dir = session_log::files(client, &session.id.into())?.dir;
    let size = session.spec.size;
    logs::replay(dir.as_path(), (size.rows, size.cols), REPLAY_CHARS)
        .map_err(|error| Error::failed(error.to_string()))
}

//! A session's output log as seen by the verbs: its files, the terminal that it was written for, and the end
//! of the session.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use protocol::reply::LogFiles;
use protocol::{ErrorCode, Lifecycle, Reason, Request, Session, SessionRef, Size, Tag};

use crate::calls::{self, expected};
use crate::tail::{Sink, Tail};
use crate::{Client, Context, Error, threads};
use logs::emulator::Emulator;

/// Interval at which a followed session is checked for its end.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Asks for the files of a session's log.
pub(crate) fn files(client: &mut Client, session: &SessionRef) -> Result<LogFiles, Error> {
    expected!(client.ask(Request::Logs(session.clone()))?, Logs)
}

/// The files of the log of its program's standard error, within those of its log.
pub(crate) fn stderr_of(log: &LogFiles) -> LogFiles {
    LogFiles { dir: log.dir.as_path().join(protocol::logs::STDERR).into() }
}

/// An emulated terminal of this size.
pub(crate) fn emulator(size: Size) -> Emulator {
    Emulator::new(size.rows, size.cols)
}

/// Copies the log into `sink` until the session has ended and its last incarnation has written everything.
pub(crate) fn follow_to_end(
    context: &Context,
    session: SessionRef,
    tail: &mut Tail,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    let (sender, end) = mpsc::channel();
    // A failure to send is ignored: the receiver is gone once the following is over.
    if let Some(limit) = context.left() {
        let sender = sender.clone();
        threads::require(move || {
            thread::sleep(limit);
            drop(sender.send(Err(Error::timeout("timed out"))));
        })?;
    }
    notify_end(context.unlimited_client(), session, move |last| drop(sender.send(last)))?;
    let incarnation = tail.follow(sink, &end)?;
    tail.finish(sink, incarnation, &end).map(drop)
}

/// Calls `notify` from another thread once the session is removed, or once it has ended and will not be woken or
/// started again. Passes the tag of its last incarnation.
pub(crate) fn notify_end(
    mut client: Client,
    session: SessionRef,
    notify: impl FnOnce(Result<Option<Tag>, Error>) + Send + 'static,
) -> Result<(), Error> {
    let wait = move || {
        let last = loop {
            match calls::session(&mut client, session.clone()) {
                Ok(view) if may_write_more(&view.session) => {}
                Ok(view) => break Ok(view.session.incarnation.map(|run| run.tag)),
                Err(error) if error.code() == ErrorCode::NotFound => break Ok(None),
                Err(error) => break Err(error),
            }
            thread::sleep(POLL_INTERVAL);
        };
        notify(last);
    };
    threads::require(wait).map(drop)
}

fn may_write_more(session: &Session) -> bool {
    let lifecycle = session.lifecycle;
    let will_start = lifecycle == Lifecycle::Parked || session.budget.due_at.is_some();
    let restarting = lifecycle == Lifecycle::Stopped && session.reason == Some(Reason::Restarted);
    lifecycle.holds_slot() || will_start || restarting
}

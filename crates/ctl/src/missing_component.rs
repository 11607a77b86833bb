//! A note for a user who waits for the end of a session while a component is missing: tmux-watch, which notices the
//! end, or the reaper, which proves it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use protocol::reply::Status;
use protocol::{ActivityState, Lifecycle, Reason, SessionRef, SessionView, Timestamp};

use crate::show::{out, time};
use crate::{Client, Context, calls, threads};

/// Interval between looks at the pool, and the time before the first.
const INTERVAL: Duration = Duration::from_secs(5);

/// Time for which a component has to be missing before it counts: it may be about to reconnect.
const RECONNECTS_WITHIN: Duration = Duration::from_secs(5);

/// True once the note of this command was given.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Looks after the components until it is dropped.
#[derive(Debug)]
pub(crate) struct MissingComponentNote {
    _stop: Option<Sender<()>>,
}

impl MissingComponentNote {
    /// Notes once, on standard error, which component is missing for the end of a session to be noticed and proved.
    /// Does nothing with `--json` or `--quiet`.
    pub(crate) fn watch(context: &Context, session: SessionRef) -> Self {
        if context.style.json || context.style.quiet {
            return Self { _stop: None };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let mut client = context.client();
        let look = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout)
                && !TOLD.load(Ordering::Relaxed)
            {
                let note = look(&mut client, &session).filter(|_| !TOLD.swap(true, Ordering::Relaxed));
                note.into_iter().for_each(|note| out::note(&format!("poolctl: {note}")));
            }
        };
        // If no thread can be started, there is no note, and the wait goes on.
        drop(threads::start(look));
        Self { _stop: Some(stop) }
    }
}

fn look(client: &mut Client, session: &SessionRef) -> Option<String> {
    let status = calls::status(client).ok()?;
    if status.components.iter().all(|component| component.connected) {
        return None;
    }
    missing(&status, &calls::session(client, session.clone()).ok()?, time::now())
}

/// Returns what is missing, if the end of a session depends on it.
fn missing(status: &Status, view: &SessionView, now: Timestamp) -> Option<String> {
    let is_missing = |name| {
        let component = status.components.iter().find(|component| component.name == name);
        component.is_some_and(|one| !one.connected && now.since(one.since) >= RECONNECTS_WITHIN)
    };
    let session = &view.session;
    let is_adopted = session.incarnation.as_ref().is_some_and(protocol::Incarnation::is_adopted);
    let name = &session.name;
    if is_missing("reaper") && is_ending(view) {
        return Some(format!(
            "{name} is to be ended, but no reaper is connected, which does it and proves it; `poolctl up` starts it"
        ));
    }
    (is_missing("tmux-watch") && is_adopted).then(|| {
        format!("tmux-watch is not connected, so the end of {name} is not noticed; `poolctl up` starts it")
    })
}

/// True if the session is waiting for the reaper: its program has ended, its end was asked for, or its drain is at
/// rest.
fn is_ending(view: &SessionView) -> bool {
    let (session, queue) = (&view.session, &view.queue);
    let at_rest = queue.queued + queue.claimed == 0 && view.activity.state == ActivityState::Idle;
    session.lifecycle == Lifecycle::Draining
        && (session.exit.is_some() || session.reason != Some(Reason::Drained) || at_rest)
}

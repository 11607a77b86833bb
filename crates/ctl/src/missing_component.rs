//! A note for whoever waits for the end of a session while a component that has to notice or to prove it is missing.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use protocol::{Lifecycle, SessionRef};

use crate::calls;
use crate::show::out;
use crate::{Client, Context, threads};

/// Interval between looks at the pool, and the time before the first.
const INTERVAL: Duration = Duration::from_secs(5);

/// Looks after the components until it is dropped.
#[derive(Debug)]
pub(crate) struct MissingComponentNote {
    _stop: Option<Sender<()>>,
}

impl MissingComponentNote {
    /// Says once, on standard error, that the end of a session is not noticed or not proved without a component. Does nothing
    /// with `--json` or `--quiet`.
    pub(crate) fn watch(context: &Context, session: SessionRef) -> Self {
        if context.style.json || context.style.quiet {
            return Self { _stop: None };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let mut client = context.client();
        let look = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if let Some(note) = missing(&mut client, &session) {
                    return out::note(&format!("poolctl: {note}"));
                }
            }
        };
        // Without the thread there is no note, and the wait goes on.
        drop(threads::start(look));
        Self { _stop: Some(stop) }
    }
}

/// Returns what is missing, if the session's end depends on it.
fn missing(client: &mut Client, session: &SessionRef) -> Option<String> {
    let status = calls::status(client).ok()?;
    let lacks = |name| status.components.iter().any(|one| one.name == name && !one.connected);
    if lacks("tmux-watch") {
        let why =
            "tmux-watch is not connected, so nobody notices that a session ends; `poolctl up` starts it";
        return Some(why.to_owned());
    }
    if !lacks("reaper") {
        return None;
    }
    let view = calls::session(client, session.clone()).ok()?;
    let is_ending = view.session.lifecycle == Lifecycle::Draining && view.session.exit.is_some();
    is_ending.then(|| {
        let name = &view.session.name;
        format!("{name} has ended, but no reaper is connected to prove it; `poolctl up` starts it")
    })
}

//! The end of the daemon: the signals that ask for it, and stopping in order.

use std::sync::Arc;
use std::time::Duration;

use tmux::TmuxError;
use tokio::time::{Instant, timeout, timeout_at};
use world::signals::{Signal, Signals};

use crate::engine::{Daemon, EngineEnd, Turn};
use crate::host::blocking_pool::Purpose;
use crate::host::shutdown_progress::Step;
use crate::host::timeline;
use crate::verb::config;

/// Time for the shutdown as a whole. A service manager must wait for longer than that.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Part of [`STOP_LIMIT`] for finishing the texts that are being typed.
const TYPING_LIMIT: Duration = Duration::from_secs(5);

/// Part of [`STOP_LIMIT`] for ending an empty tmux server.
const SERVER_LIMIT: Duration = Duration::from_secs(2);

/// Part of [`STOP_LIMIT`] for each of two files: the socket, and the mark of an orderly end.
const FILE_LIMIT: Duration = Duration::from_secs(1);

/// Waits for a signal to end. `SIGHUP` reads the configuration again.
pub(super) async fn wait_for_signal(daemon: &Arc<Daemon>, signals: &mut dyn Signals) {
    while signals.next().await == Signal::Reload {
        match config::reload(daemon) {
            Ok(answer) => tracing::info!(?answer, "the configuration was read again"),
            Err(refusal) => tracing::error!(%refusal, "the configuration was not read again"),
        }
    }
}

/// Returns the end of a shutdown that begins now.
pub(super) fn deadline() -> Instant {
    Instant::now() + STOP_LIMIT
}

/// Runs `work` on a file for at most [`FILE_LIMIT`]: its file system may not answer.
pub(super) async fn within_file_limit(daemon: &Daemon, work: impl FnOnce() + Send + 'static) {
    let done = timeout(FILE_LIMIT, daemon.blocking.without_timeout(Purpose::Stop, work)).await;
    if !matches!(done, Ok(Ok(()))) {
        tracing::warn!("stopped although the file system of the state does not answer");
    }
}

/// Stops the daemon: typing in progress is finished, then the engine works off its queue and closes the store. Clients
/// that wait for an answer lose their connections, and ask the next daemon.
pub(super) async fn stop(daemon: &Arc<Daemon>, engine_end: EngineEnd, deadline: Instant) {
    daemon.engine.post(|turn| turn.volatile.stop());
    let typed = |turn: &mut Turn<'_>| (!turn.volatile.prompts.is_pasting()).then_some(());
    // The limit is set here: a wait with a limit of its own asks the engine once more, which may hang in a sync.
    if !matches!(timeout(TYPING_LIMIT, daemon.engine.wait_for(None, typed)).await, Ok(Ok(()))) {
        tracing::warn!("stopped while a message was being typed, or the database did not answer");
    }
    if timeout(SERVER_LIMIT, end_empty_server(daemon)).await.is_err() {
        tracing::warn!("stopped before it was known whether the tmux server is empty and ended");
    }
    // Requests that arrive from now on are left to the next daemon.
    daemon.shutdown.begin(Step::Engine);
    daemon.engine.post(|turn| turn.stop_engine());
    if let Ok(Ok(Some(given_out))) = timeout_at(deadline - FILE_LIMIT, engine_end).await {
        let (paths, started) = (daemon.paths.clone(), daemon.timeline.clone());
        within_file_limit(daemon, move || timeline::mark_ended(&paths.state, &started, given_out)).await;
    }
    daemon.shutdown.begin(Step::Connections);
}

/// Ends a tmux server without sessions. The next session starts another one.
async fn end_empty_server(daemon: &Arc<Daemon>) {
    let has_none =
        |turn: &mut Turn<'_>| !turn.pool().sessions().any(|session| session.lifecycle.holds_slot());
    if !daemon.device.start_server || !matches!(daemon.engine.turn(has_none).await, Ok(true)) {
        return;
    }
    if let Err(error) = daemon.tmux.end_if_empty().await
        && !matches!(error, TmuxError::NoServer)
    {
        tracing::warn!(%error, "the empty tmux server was not ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o02_the_parts_of_a_stop_fit_into_the_ten_seconds_that_are_promised() {
        assert_eq!(STOP_LIMIT, Duration::from_secs(10));
        assert!(TYPING_LIMIT + SERVER_LIMIT + 2 * FILE_LIMIT < STOP_LIMIT);
    }
}

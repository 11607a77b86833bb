//! The end of the daemon: the signals that ask for it, and stopping in order.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::Seq;
use tmux::TmuxError;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use crate::engine::Turn;
use crate::engine::daemon::Daemon;
use crate::host::error::DaemonError;
use crate::host::timeline;
use crate::verb::config;

/// Time for each step of the shutdown.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Waits for a signal to end. `SIGHUP` reads the configuration again.
pub(super) async fn wait_for_signal(daemon: &Arc<Daemon>) -> Result<(), DaemonError> {
    let signals = |e: io::Error| DaemonError::Other(format!("cannot listen for signals: {e}"));
    let mut term = signal(SignalKind::terminate()).map_err(signals)?;
    let mut int = signal(SignalKind::interrupt()).map_err(signals)?;
    let mut hup = signal(SignalKind::hangup()).map_err(signals)?;
    loop {
        tokio::select! {
            _ = term.recv() => return Ok(()),
            _ = int.recv() => return Ok(()),
            _ = hup.recv() => match config::reload(daemon) {
                Ok(answer) => tracing::info!(?answer, "the configuration was read again"),
                Err(refusal) => tracing::error!(%refusal, "the configuration was not read again"),
            },
        }
    }
}

/// Stops the daemon: typing in progress is finished, then the engine finishes its queue and closes the store.
pub(super) async fn stop(daemon: &Arc<Daemon>, thread: JoinHandle<Option<Seq>>) {
    daemon.engine.post(|turn| turn.volatile.stop());
    let typed = |turn: &mut Turn<'_>| (!turn.volatile.prompts.is_pasting()).then_some(());
    if daemon.engine.wait_for(Some(STOP_LIMIT), typed).await.is_err() {
        tracing::warn!("stopped while a message was being typed");
    }
    end_empty_server(daemon).await;
    daemon.engine.post(|turn| turn.stop_engine());
    let deadline = Instant::now() + STOP_LIMIT;
    while !thread.is_finished() && Instant::now() < deadline {
        sleep(Duration::from_millis(5)).await;
    }
    if thread.is_finished()
        && let Ok(Some(last)) = thread.join()
    {
        timeline::mark_ended(&daemon.paths, last.0);
    }
}

/// Ends a tmux server without sessions. The next session starts another one.
async fn end_empty_server(daemon: &Arc<Daemon>) {
    let has_none =
        |turn: &mut Turn<'_>| !turn.pool().sessions().any(|session| session.lifecycle.holds_slot());
    let has_none = timeout(STOP_LIMIT, daemon.engine.turn(has_none)).await;
    if !daemon.device.start_server || !matches!(has_none, Ok(Ok(true))) {
        return;
    }
    if let Err(error) = daemon.device.end_if_empty().await
        && !matches!(error, TmuxError::NoServer)
    {
        tracing::warn!(%error, "the empty tmux server was not ended");
    }
}

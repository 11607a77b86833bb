//! Runtime of the two asynchronous daemons: one thread, ended by TERM or INT.

use std::pin::Pin;

use tokio::signal::unix::{SignalKind, signal};

/// Runs `run` with a future that completes at TERM or INT.
pub(crate) fn until_signal<T>(
    run: impl AsyncFnOnce(Pin<Box<dyn Future<Output = ()>>>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = world::tasks::runtime()?;
    let result = runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stopped = async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
        };
        run(Box::pin(stopped)).await
    });
    // Does not wait for blocking tasks, which may wait for a process to exit.
    runtime.shutdown_background();
    result
}

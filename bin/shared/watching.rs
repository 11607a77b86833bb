//! What the two asynchronous daemons share: one thread, ended by TERM or INT.

use std::pin::Pin;

use tokio::signal::unix::{SignalKind, signal};

/// Runs this with a future that ends when a signal asks for the end.
pub(crate) fn until_signal<T>(
    run: impl AsyncFnOnce(Pin<Box<dyn Future<Output = ()>>>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let told = async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
        };
        run(Box::pin(told)).await
    });
    // What still waits for a process to end is not waited for.
    runtime.shutdown_background();
    result
}

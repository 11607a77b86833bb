//! Interrupted, a benchmark still ends what it started.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::signal::unix::{SignalKind, signal};

/// How late an interruption is noticed while nothing is done.
const TICK: Duration = Duration::from_millis(200);

static TOLD: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT and SIGTERM only make [`check`] fail.
///
/// # Errors
/// The system refuses.
pub(crate) fn listen() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut int, mut term) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = int.recv() => {}
                _ = term.recv() => {}
            }
        });
        TOLD.store(true, Ordering::Relaxed);
    });
    Ok(())
}

/// Fails once the program was told to end.
///
/// # Errors
/// It was.
pub(crate) fn check() -> Result<()> {
    ensure!(!TOLD.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

/// Waits for so long.
///
/// # Errors
/// The program was told to end meanwhile.
pub(crate) fn sleep(time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    loop {
        check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(TICK));
    }
}

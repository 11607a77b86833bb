//! Interrupts: an interrupted benchmark still ends what it started.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::signal::unix::{SignalKind, signal};

/// Maximum delay until an interrupt is noticed while idle.
const TICK: Duration = Duration::from_millis(200);

static TOLD: AtomicBool = AtomicBool::new(false);

/// Makes SIGINT and SIGTERM only fail the next [`check`].
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

/// Fails once the program was interrupted.
pub(crate) fn check() -> Result<()> {
    ensure!(!TOLD.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

/// Sleeps for this time.
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

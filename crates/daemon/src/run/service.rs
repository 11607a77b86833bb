//! Notifications of a service manager: ready, alive, stopping. Without one they do nothing.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{sleep, timeout};

use crate::engine::daemon::Daemon;

/// Time that each notification adds for the next step of a recovery, in microseconds.
const EXTENSION_US: u32 = 60_000_000;

/// Time between two checks that the recovery progresses.
const RECOVERY_PAUSE: Duration = Duration::from_secs(20);

/// Notifies that the recovery is over and the socket answers.
pub(super) fn ready() {
    notify(NotifyState::Ready);
}

/// Notifies that the start takes longer, as the database is being checked or repaired.
pub(super) fn recovering(percent: f64) {
    notify(NotifyState::ExtendTimeoutUsec(EXTENSION_US));
    notify(NotifyState::Status(&format!("recovering the database: {percent} %")));
}

/// Notifies that the daemon stops.
pub(super) fn stopping() {
    notify(NotifyState::Stopping);
}

/// Feeds the watchdog as long as the engine answers a turn, never by a bare timer; during long work of the
/// engine, as long as that may take.
pub(super) async fn watchdog(daemon: Arc<Daemon>) {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let pause = period / 3;
    loop {
        match timeout(pause, daemon.engine.turn(|_| ())).await {
            Ok(Ok(())) => {
                notify(NotifyState::Watchdog);
                sleep(pause).await;
            }
            Ok(Err(_)) => return,
            Err(_) if daemon.engine.is_in_long_work() => notify(NotifyState::Watchdog),
            Err(_) => {}
        }
    }
}

/// Asks for more time, until it is dropped, as long as this process uses the processor or the disk. While the
/// database is opened, the process does nothing else, and the database reports its progress rarely.
pub(super) struct OpeningWatchdog {
    done: Option<mpsc::Sender<()>>,
}

impl OpeningWatchdog {
    pub(super) fn new() -> Self {
        let (done, ended) = mpsc::channel::<()>();
        let watch = move || {
            let mut before = resources_used();
            while ended.recv_timeout(RECOVERY_PAUSE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let now = resources_used();
                if now != before {
                    notify(NotifyState::ExtendTimeoutUsec(EXTENSION_US));
                }
                before = now;
            }
        };
        // Without the thread, the start has its usual time.
        let started = thread::Builder::new().name("opening".to_owned()).spawn(watch);
        Self { done: started.is_ok().then_some(done) }
    }
}

impl Drop for OpeningWatchdog {
    fn drop(&mut self) {
        self.done = None;
    }
}

/// Returns what this process has used so far: processor time in units of 10 ms, more than the checks
/// themselves take, page faults, and blocks read and written.
fn resources_used() -> Option<(i64, i64, i64, i64)> {
    use nix::sys::time::TimeValLike;
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).ok()?;
    let processor = usage.user_time().num_milliseconds() + usage.system_time().num_milliseconds();
    Some((processor / 10, usage.major_page_faults(), usage.block_reads(), usage.block_writes()))
}

fn notify(state: NotifyState) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager was not notified");
    }
}

//! What a service manager is told: ready, alive, stopping. Nothing where there is none.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{sleep, timeout};

use crate::engine::context::Daemon;

/// How long the next step of a recovery may take, in microseconds.
const EXTENSION_US: u32 = 60_000_000;

/// Recovery is over and the socket answers.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// The database is being checked or repaired: the start takes longer than usual.
pub(crate) fn recovering(percent: f64) {
    tell(NotifyState::ExtendTimeoutUsec(EXTENSION_US));
    tell(NotifyState::Status(&format!("recovering the database: {percent} %")));
}

/// On the way out.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Feeds the watchdog for as long as the engine answers: through the real path, never by a bare timer. While it is known
/// to be at something long, within the time that it may take.
pub(crate) async fn watchdog(daemon: Arc<Daemon>) {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let pause = period / 3;
    loop {
        match timeout(pause, daemon.engine.turn(|_| ())).await {
            Ok(Ok(())) => {
                tell(NotifyState::Watchdog);
                sleep(pause).await;
            }
            Ok(Err(_)) => return,
            Err(_) if daemon.engine.is_at_long_work() => tell(NotifyState::Watchdog),
            Err(_) => {}
        }
    }
}

/// Between two looks whether the recovery goes on.
const RECOVERY_LOOK: Duration = Duration::from_secs(20);

/// Until it is dropped, asks for more time as long as this process works: with the processor or the disk. Before the
/// runtime there is, nothing else is done but opening the database, which itself tells its progress rarely.
pub(crate) struct Opening {
    over: Option<mpsc::Sender<()>>,
}

impl Opening {
    pub(crate) fn new() -> Self {
        let (over, ended) = mpsc::channel::<()>();
        let look = move || {
            let mut before = used();
            while ended.recv_timeout(RECOVERY_LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                let now = used();
                if now != before {
                    tell(NotifyState::ExtendTimeoutUsec(EXTENSION_US));
                }
                before = now;
            }
        };
        // Without it a start has as long as it has.
        let started = std::thread::Builder::new().name("opening".to_owned()).spawn(look);
        Self { over: started.is_ok().then_some(over) }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.over = None;
    }
}

/// What this process has used so far of the processor and of disks.
fn used() -> Option<(i64, i64, i64, i64)> {
    use nix::sys::time::TimeValLike;
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).ok()?;
    let processor = usage.user_time().num_milliseconds() + usage.system_time().num_milliseconds();
    // The looks themselves take less than this.
    Some((processor / 10, usage.major_page_faults(), usage.block_reads(), usage.block_writes()))
}

fn tell(state: NotifyState) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

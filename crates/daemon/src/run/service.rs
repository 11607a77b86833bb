//! Notifications of a service manager: ready, alive, stopping. Without one they do nothing.

use std::ffi::OsStr;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use protocol::Refusal;
use sd_notify::NotifyState;
use tokio::time::{sleep, timeout};

use crate::engine::Daemon;

/// Time that each notification adds for the next step of a recovery, in microseconds.
const EXTENSION_US: u32 = 60_000_000;

/// Time between two checks that the recovery progresses.
const RECOVERY_PAUSE: Duration = Duration::from_secs(20);

/// Notifies that the recovery is over and the socket answers. A service manager that reads nothing blocks a thread of
/// its own: unlike all others, this notification is never dropped.
pub(super) fn ready() {
    let has_manager = std::env::var_os("NOTIFY_SOCKET").is_some();
    let wait = || note(sd_notify::notify(&[NotifyState::Ready]));
    if has_manager && thread::Builder::new().name("ready".to_owned()).spawn(wait).is_err() {
        notify(NotifyState::Ready);
    }
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

/// Feeds the watchdog of the service manager, if there is one.
pub(super) async fn watchdog(daemon: Arc<Daemon>) {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let engine = &daemon.engine;
    feed_watchdog(period, (|| engine.turn(|_| ()), || engine.is_in_long_work()), || {
        notify(NotifyState::Watchdog);
    })
    .await;
}

/// Feeds a watchdog with this period as long as the engine answers, never by a bare timer; during long work of
/// the engine, as long as that may take. Ends with the engine.
async fn feed_watchdog<A: Future<Output = Result<(), Refusal>>>(
    period: Duration,
    (ask, is_in_long_work): (impl Fn() -> A, impl Fn() -> bool),
    feed: impl Fn(),
) {
    let pause = pause(period);
    loop {
        match timeout(pause, ask()).await {
            Ok(Ok(())) => {
                feed();
                sleep(pause).await;
            }
            Ok(Err(_)) => return,
            Err(_) if is_in_long_work() => feed(),
            Err(_) => {}
        }
    }
}

/// Time between two feeds of a watchdog, and time that the engine has to answer: together less than the period.
fn pause(period: Duration) -> Duration {
    period / 3
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
        // If the thread cannot be started, the service manager waits for its usual time.
        let started = thread::Builder::new().name("opening".to_owned()).spawn(watch);
        Self { done: started.is_ok().then_some(done) }
    }
}

impl Drop for OpeningWatchdog {
    fn drop(&mut self) {
        self.done = None;
    }
}

/// Returns the resources that this process has used so far: processor time (in units of 10 ms, so that the cost of this
/// check itself does not count), page faults, and blocks read and written.
fn resources_used() -> Option<(i64, i64, i64, i64)> {
    use nix::sys::time::TimeValLike;
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).ok()?;
    let processor = usage.user_time().num_milliseconds() + usage.system_time().num_milliseconds();
    Some((processor / 10, usage.major_page_faults(), usage.block_reads(), usage.block_writes()))
}

/// Notifies, unless the service manager has not read earlier notifications: it must not block this process.
fn notify(state: NotifyState) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        note(send(&socket, &state));
    }
}

/// Sends a notification.
///
/// # Errors
/// `WouldBlock` where too many were not read yet, and others.
fn send(socket: &OsStr, state: &NotifyState) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to(format!("{state}\n").as_bytes(), socket).map(drop)
}

fn note(sent: io::Result<()>) {
    if let Err(error) = sent {
        tracing::debug!(%error, "the service manager was not notified");
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use super::*;

    /// Returns the number of feeds, up to three, while the engine answers or hangs.
    async fn feeds(answers: bool, in_long_work: bool) -> u32 {
        let (fed, period) = (Cell::new(0), Duration::from_millis(3));
        let ask = || async move { if answers { Ok(()) } else { pending().await } };
        let three = || fed.set(fed.get() + 1);
        let until_three = async {
            while fed.get() < 3 {
                sleep(period).await;
            }
        };
        // The engine that hangs is not fed however long that takes.
        let limit = if answers || in_long_work { Duration::from_secs(30) } else { period * 20 };
        tokio::select! {
            () = feed_watchdog(period, (ask, || in_long_work), three) => unreachable!("the engine runs"),
            _ = timeout(limit, until_three) => fed.get().min(3),
        }
    }

    #[tokio::test]
    async fn o03_the_watchdog_is_fed_while_the_engine_answers_or_works_long_and_else_not_at_all() {
        assert_eq!(
            (feeds(true, false).await, feeds(false, true).await, feeds(false, false).await),
            (3, 3, 0)
        );
        assert!(pause(Duration::from_secs(30)) * 2 < Duration::from_secs(30), "an answer may take as long");
    }

    #[test]
    fn a_service_manager_that_reads_nothing_blocks_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let _manager = UnixDatagram::bind(&path).unwrap();
        let mut sent = (0..1_000_000).map(|_| send(path.as_os_str(), &NotifyState::Watchdog));
        assert!(sent.any(|sent| sent.is_err()), "what does not fit is dropped");
    }

    #[tokio::test]
    async fn o03_feeding_ends_with_the_engine() {
        let ended = || async { Err(Refusal::unavailable("the engine has ended")) };
        feed_watchdog(Duration::from_secs(3), (ended, || true), || panic!("it was fed")).await;
    }
}

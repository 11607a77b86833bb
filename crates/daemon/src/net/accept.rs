//! Accepting connections, with limits on their number.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use protocol::connect::HELLO_TIMEOUT;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout};
use world::transport::Listener;

use crate::engine::Daemon;
use crate::host::shutdown_progress::Step;
use crate::net::{handshake, role};

/// Maximum number of connections: enough for a thousand sessions with a hook each. Fewer where the system
/// allows few open files, some of which the database and tmux need.
const CONNECTIONS_MAX: usize = 4096;

/// Maximum number of connections without a hello yet, including those that are turned away.
const PENDING_MAX: usize = 64;

/// Time that a peer has for its hello before it may be evicted for another one.
const PENDING_MIN: Duration = Duration::from_millis(500);

/// Longest time until a hello that has come is noticed.
const PENDING_CHECK: Duration = Duration::from_millis(5);

/// Pause after the system refused a connection: it lacks descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Peers whose hello is pending, oldest first. A sender that is dropped evicts its peer.
type Pending = VecDeque<(Instant, oneshot::Sender<()>)>;

/// Accepts connections until the daemon ends, which closes them: what a client waits for is not answered, so that it
/// asks the next daemon. With too many hellos pending, the oldest peer is evicted, so that silent peers never keep
/// others waiting.
pub(crate) async fn accept(daemon: Arc<Daemon>, mut listener: Box<dyn Listener>) {
    let (connections_max, pending_max) = limits();
    let places = Arc::new(Semaphore::new(connections_max));
    let mut pending = Pending::new();
    for id in 1.. {
        let incoming = tokio::select! {
            biased;
            () = daemon.shutdown.reach(Step::Engine) => return,
            incoming = listener.accept(&*daemon.world.processes) => incoming,
        };
        let incoming = match incoming {
            Ok(Some(incoming)) => incoming,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        evict_pending(&mut pending, pending_max).await;
        let (peer, evicted) = oneshot::channel();
        pending.push_back((Instant::now(), peer));
        let (daemon, world) = (Arc::clone(&daemon), daemon.world.clone());
        let place = Arc::clone(&places).try_acquire_owned().ok();
        world.spawn("connection", async move {
            let served = async {
                let handshake = handshake::shake_hands(&daemon, id, incoming, place.is_some());
                let connection = tokio::select! {
                    biased;
                    done = timeout(HELLO_TIMEOUT, handshake) => done.ok().flatten(),
                    _ = evicted => None,
                };
                if let Some(connection) = connection {
                    role::serve(&daemon, connection).await;
                }
            };
            tokio::select! {
                biased;
                () = daemon.shutdown.reach(Step::Connections) => {}
                () = served => {}
            }
        });
    }
}

/// Waits until fewer than `max` hellos are pending. Evicts the oldest peer once it has had its minimum time.
async fn evict_pending(pending: &mut Pending, max: usize) {
    while let Some(left) = time_to_eviction(pending, max, Instant::now()) {
        if left.is_zero() {
            pending.pop_front();
        } else {
            sleep(left.min(PENDING_CHECK)).await;
        }
    }
}

/// Time until the oldest peer may be evicted; `None` while fewer than `max` hellos are pending.
fn time_to_eviction(pending: &mut Pending, max: usize, now: Instant) -> Option<Duration> {
    pending.retain(|(_, peer)| !peer.is_closed());
    let oldest = pending.front().filter(|_| pending.len() >= max.max(1));
    oldest.map(|(since, _)| PENDING_MIN.saturating_sub(now.saturating_duration_since(*since)))
}

/// Returns the maximum number of connections, and of pending hellos beside them.
fn limits() -> (usize, usize) {
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    let files = limit.map_or(usize::MAX, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX));
    (CONNECTIONS_MAX.min(files / 8 * 3), PENDING_MAX.min(files / 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that each 64 silent peers may keep another client waiting.
    const PROMISED: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn s04_the_oldest_silent_peer_is_evicted_after_half_a_second_and_not_before() {
        assert_eq!(PENDING_MAX, 64, "the number that is promised");
        let connected = Instant::now();
        let (senders, mut peers): (Vec<_>, Vec<_>) = (0..PENDING_MAX).map(|_| oneshot::channel()).unzip();
        let mut pending: Pending = senders.into_iter().map(|sender| (connected, sender)).collect();
        let moment = Duration::from_millis(1);
        let mut left = |max, after| time_to_eviction(&mut pending, max, connected + after);
        assert_eq!(left(PENDING_MAX + 1, PROMISED), None, "there is room for another one");
        assert_eq!(left(PENDING_MAX, Duration::ZERO), Some(PROMISED));
        assert_eq!(left(PENDING_MAX, PROMISED - moment), Some(moment));
        assert_eq!(left(PENDING_MAX, PROMISED * 3), Some(Duration::ZERO));
        evict_pending(&mut pending, PENDING_MAX).await;
        assert!(connected.elapsed() >= PROMISED, "it had its time");
        assert!(peers[0].try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
        assert_eq!(pending.len(), PENDING_MAX - 1, "the others keep theirs");
        // A peer whose hello has come makes room at once.
        pending.push_back((Instant::now(), oneshot::channel().0));
        peers.remove(1);
        assert_eq!(time_to_eviction(&mut pending, PENDING_MAX, connected), None);
    }
}

//! The hosts of the pool's workers: their records follow the configuration, and they are launched when
//! [`pool::worker::demand`] decides so, in the turn that queues a message for them.

use std::sync::Arc;
use std::time::Duration;

use pool::worker::{configure, demand};
use protocol::{ErrorCode, Session, Timestamp};

use crate::engine::{Daemon, LoadedConfig, Turn, WaitsFor};
use crate::host::random::identity;
use crate::verb::start;

/// The work of one round: the hosts to launch, and the time of the next start after a failure, with the time until
/// then.
struct Round {
    starts: Vec<Session>,
    next: Option<(Timestamp, Duration)>,
}

/// Runs until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut next: Option<(Timestamp, Duration)> = None;
    loop {
        let (context, known) = (Arc::clone(&daemon), next.map(|(at, _)| at));
        let mut configured = None;
        let plan = move |turn: &mut Turn<'_>| plan_round(turn, &context, &mut configured, known);
        let limit = next.map(|(_, pause)| pause);
        match daemon.engine.wait_with(WaitsFor::Everything, limit, plan).await {
            Ok(round) => {
                next = round.next;
                for host in round.starts {
                    daemon.world.spawn("worker", launch(Arc::clone(&daemon), host));
                }
            }
            Err(refusal) if refusal.code == ErrorCode::Timeout => next = None,
            Err(_) => return,
        }
    }
}

/// Updates the records of workers after a change of the configuration, and decides which hosts to launch. Returns
/// nothing if there is nothing to launch and the next start is still the one that is `known`.
fn plan_round(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    configured: &mut Option<Arc<LoadedConfig>>,
    known: Option<Timestamp>,
) -> Option<Round> {
    let loaded = daemon.loaded();
    let is_known = configured.as_ref().is_some_and(|before| Arc::ptr_eq(before, &loaded));
    if !is_known || configure::lacks_record(turn.pool(), &loaded.settings) {
        let poolctl = daemon.poolctl();
        let events = configure::configure(turn.pool(), &loaded.settings, &poolctl, turn.now());
        turn.emit_all(events);
        *configured = Some(Arc::clone(&loaded));
    }
    let identities = &mut || identity(&*daemon.world.random).ok();
    let demand = demand::decide(turn, &loaded.settings, identities);
    if demand.starts.is_empty() && demand.next_due == known {
        return None;
    }
    let next = demand.next_due.map(|at| (at, at.since(turn.now()).max(Duration::from_millis(1))));
    Some(Round { starts: demand.starts, next })
}

async fn launch(daemon: Arc<Daemon>, before: Session) {
    let id = before.id;
    if let Err(refusal) = start::launch_next(&daemon, before, |_| ()).await {
        tracing::warn!(session = %id, %refusal, "the host of a worker was not started");
    }
}

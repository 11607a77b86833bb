//! The scheduler of slots: [`pool::slots::tick`] decides after every turn, and its actions are performed
//! here.

use std::sync::Arc;
use std::time::Duration;

use pool::slots::{self, Action, Tick, TickInputs};
use protocol::{Reason, SessionId};
use tokio::time::sleep;

use crate::effect::park;
use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::host::random::identity;
use crate::sense::{conversation, machine_capacity, quiet};
use crate::verb::{removal, start};

/// Time after which the removal of a session is decided anew that was held by a reader of its log.
const HELD_PAUSE: Duration = Duration::from_secs(1);

/// Schedules until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.mark_seen();
        let Some(pause) = tick(&daemon).await else { return };
        tokio::select! {
            biased;
            () = turns.changed() => {}
            () = sleep(pause) => {}
        }
    }
}

/// Decides, a second time with fresh samples if the decision needs them. Returns the time until the next
/// tick; none once the engine has stopped.
async fn tick(daemon: &Arc<Daemon>) -> Option<Duration> {
    let first = decide(daemon, false).await?;
    if !first.wants_sample {
        return Some(first.pause);
    }
    // The machine is sampled last, because its sample becomes too old first.
    quiet::refresh(daemon).await.ok()?;
    machine_capacity::refresh(daemon).await.ok()?;
    Some(decide(daemon, true).await?.pause)
}

/// Decides in a turn, and starts the actions. If `sampled`, the samples were taken just now and count even if that took
/// long: otherwise nothing would start on a slow machine.
async fn decide(daemon: &Arc<Daemon>, sampled: bool) -> Option<Tick> {
    let context = Arc::clone(daemon);
    let decide = move |turn: &mut Turn<'_>| {
        let loaded = context.loaded();
        let own = &loaded.daemon;
        let inputs = TickInputs {
            settings: &loaded.settings,
            keep_stopped: own.keep_stopped,
            restore_spacing: own.restore_on_start.then_some(own.restore_spacing),
            capacity: (sampled || machine_capacity::is_fresh(&context))
                .then(|| machine_capacity::startable(turn, &context)),
            sampled,
            identities: &mut || identity(&*context.world.random).ok(),
        };
        slots::tick(turn, inputs)
    };
    let mut tick = daemon.engine.turn(decide).await.ok()?;
    for action in std::mem::take(&mut tick.actions) {
        daemon.world.spawn("scheduled action", perform(Arc::clone(daemon), action));
    }
    Some(tick)
}

async fn perform(daemon: Arc<Daemon>, action: Action) {
    match action {
        Action::Start(before) => {
            let id = before.id;
            if let Err(refusal) = start::launch_next(&daemon, *before, |_| ()).await {
                tracing::warn!(session = %id, %refusal, "not started");
            }
        }
        Action::Park(session, tag) => drop(park::end_unattended(&daemon, session, tag).await),
        Action::CheckConversation(session, tag) => conversation::check(&daemon, session, tag).await,
        Action::Remove(session, reason) => remove(&daemon, session, reason).await,
    }
}

/// Removes a session whose retention is over. While a `run` prints its output, that is decided anew after a pause.
async fn remove(daemon: &Arc<Daemon>, session: SessionId, reason: Reason) {
    let dir = daemon.paths.logs_of(session);
    let is_held = move || logs::is_held(&dir);
    if daemon.blocking.with_timeout(Purpose::Logs, is_held).await == Some(true) {
        daemon.engine.post(move |turn| turn.volatile.scheduler.hold_removal(session));
        sleep(HELD_PAUSE).await;
    } else {
        removal::remove_expired(daemon, session, reason).await;
    }
    daemon.engine.post(move |turn| turn.volatile.scheduler.end_removal(session));
}

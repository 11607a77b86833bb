//! Slots: what follows for them after every turn is decided by [`pool::scheduler::tick`], and carried out here.

use std::sync::Arc;
use std::time::Duration;

use pool::scheduler;
use pool::scheduler::{Action, Inputs, Tick};
use tokio::time::sleep;

use crate::effect::park;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::identity::identity;
use crate::sense::{capacity, conversation, quiet};
use crate::verb::{remove, start};

/// Schedules until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.borrow_and_update();
        let Some(pause) = tick(&daemon).await else { return };
        tokio::select! {
            biased;
            changed = turns.changed() => if changed.is_err() { return },
            () = sleep(pause) => {}
        }
    }
}

/// Decides, with fresh samples where the decision wants them. Returns the time until the next tick; none once the engine has
/// stopped.
async fn tick(daemon: &Arc<Daemon>) -> Option<Duration> {
    let first = decide(daemon).await?;
    if !first.wants_sample {
        return Some(first.pause);
    }
    capacity::refresh(daemon).await.ok()?;
    quiet::refresh(daemon).await.ok()?;
    Some(decide(daemon).await?.pause)
}

async fn decide(daemon: &Arc<Daemon>) -> Option<Tick> {
    let context = Arc::clone(daemon);
    let decide = move |turn: &mut Turn<'_>| {
        let loaded = context.loaded();
        let life = &loaded.life;
        let inputs = Inputs {
            settings: &loaded.settings,
            keep_stopped: life.keep_stopped,
            restore_spacing: life.restore_on_start.then_some(life.spacing),
            has_capacity: capacity::is_fresh(&context).then(|| capacity::check(turn, &context).is_ok()),
            identities: &mut || identity().ok(),
        };
        scheduler::tick(turn, inputs)
    };
    let mut tick = daemon.engine.turn(decide).await.ok()?;
    for action in std::mem::take(&mut tick.actions) {
        tokio::spawn(carry_out(Arc::clone(daemon), action));
    }
    Some(tick)
}

async fn carry_out(daemon: Arc<Daemon>, action: Action) {
    match action {
        Action::Start(before) => {
            let id = before.id;
            if let Err(refusal) = start::bring_up(&daemon, *before, |_| ()).await {
                tracing::warn!(session = %id, %refusal, "not started");
            }
        }
        Action::Park(session, tag) => drop(park::end_unattended(&daemon, session, tag).await),
        Action::JudgeConversation(session, tag) => conversation::judge(&daemon, session, tag).await,
        Action::Remove(session, reason) => remove::remove_outdated(&daemon, session, reason).await,
    }
}

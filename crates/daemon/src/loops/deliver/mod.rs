//! Delivery of prompts. Level-triggered: after every turn that changed anything, and at intervals, each
//! session with a waiting prompt gets a task.
//!
//! ```text
//! queued ──► the gate of the record ([`record_gate`]), then the pane is observed ([`attempt`])
//!   │            typing is on disk, with a fencing token, before the first byte is pasted
//!   ▼
//! typing ──► text pasted, pause, Enter ([`enter`]) ──► typed ──► confirmed ([`confirm`])
//!   │
//!   └──────► interrupted ([`recover`]): the pane tells whether the text arrived
//! ```
//!
//! A text that may have arrived is typed again only where a user asked for that (`--in-doubt retry`, `queue resolve
//! --as retry`). Enter is pressed again only while the text is seen in the composer.

mod attempt;
mod confirm;
mod enter;
mod prompt;
mod record_gate;
mod recover;

use std::sync::Arc;
use std::time::Duration;

use pool::prompt::Blocked;
use pool::{QueueRules, queue};
use protocol::{Event, Refusal, SessionId};
use tokio::time::sleep;

use crate::engine::{Daemon, Turn};
use crate::loops::deliver::attempt::Attempt;
use crate::sense::hook_spool;

/// Pause after an attempt that typed nothing. Doubles up to [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE: Duration = Duration::from_millis(60);

/// Maximum pause between attempts: a user may read in copy mode for hours.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(8);

/// Maximum pause between attempts while the agent may still be starting.
const START_PAUSE_MAX: Duration = Duration::from_millis(200);

/// Time between two rounds without a change, for waits that only the clock ends.
const IDLE_PAUSE: Duration = Duration::from_secs(5);

/// Delivers until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.mark_seen();
        let context = Arc::clone(&daemon);
        let claimed = daemon.engine.turn(move |turn| claim_sessions(turn, &context)).await;
        let Ok((ready, ended)) = claimed else { return };
        if !ended.is_empty() && !fail_abandoned(&daemon, &ended).await {
            return;
        }
        for session in ready {
            let (daemon, world) = (Arc::clone(&daemon), daemon.world.clone());
            world.spawn("delivery", async move {
                if let Err(refusal) = deliver_all(&daemon, session).await {
                    tracing::warn!(%session, %refusal, "delivery stopped");
                }
                daemon.engine.post(move |turn| {
                    turn.volatile.prompts.end_delivery(session);
                    turn.wake();
                });
            });
        }
        tokio::select! {
            biased;
            () = turns.changed() => {}
            () = sleep(IDLE_PAUSE) => {}
        }
    }
}

/// Claims the sessions with a prompt to type, or with one to follow up, that no other task delivers to. Also
/// returns the sessions that ended with a prompt.
fn claim_sessions(turn: &mut Turn<'_>, daemon: &Daemon) -> (Vec<SessionId>, Vec<SessionId>) {
    if turn.volatile.is_stopping() {
        return (Vec::new(), Vec::new());
    }
    let settings = &daemon.loaded().settings;
    let mut ended = pool::prompt::abandoned(turn.pool(), turn.now());
    let stranded = pool::prompt::end_stranded(turn.pool(), settings, turn.now());
    turn.emit_all(stranded);
    ended.extend(doubt_cut_off(turn, &settings.queue).iter().filter_map(Event::session));
    let why = |id| turn.message(id).ok().flatten().and_then(|(message, _)| message.status.reason);
    let settled = queue::settle_doubts(turn.pool(), &settings.queue, why, turn.now());
    turn.emit_all(settled);
    // Ordered by id, as `retain_blocked` requires.
    let waiting: Vec<SessionId> = queue::deliverable(turn.pool(), turn.now()).collect();
    turn.volatile.prompts.retain_blocked(&waiting);
    let mut ready: Vec<SessionId> =
        waiting.into_iter().filter(|session| record_gate::is_open(turn, settings, *session)).collect();
    ready.extend(confirm::unfinished(turn, settings));
    (ready.into_iter().filter(|session| turn.volatile.prompts.begin_delivery(*session)).collect(), ended)
}

/// Puts the prompts in doubt that were being typed when their sessions ended.
fn doubt_cut_off(turn: &Turn<'_>, rules: &QueueRules) -> Vec<Event> {
    let prompts = &turn.volatile.prompts;
    queue::doubt_cut_off(turn.pool(), rules, |session| prompts.is_delivering(session), turn.now())
}

/// Reads the spooled hook reports of agents that ended, which may tell what became of their prompts, and then
/// fails them. Returns false once the engine has stopped.
async fn fail_abandoned(daemon: &Arc<Daemon>, ended: &[SessionId]) -> bool {
    if !hook_spool::read_of(daemon, ended).await {
        return false;
    }
    let sessions = ended.to_vec();
    let loaded = daemon.loaded();
    let fail = move |turn: &mut Turn<'_>| {
        let cut_off = doubt_cut_off(turn, &loaded.settings.queue);
        turn.emit_all(cut_off);
        let events = pool::prompt::fail_abandoned(turn.pool(), &sessions, turn.now());
        turn.emit_all(events);
    };
    daemon.engine.turn(fail).await.is_ok()
}

/// Follows up the typed prompt of a session, then delivers the waiting ones, one after the other.
async fn deliver_all(daemon: &Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    confirm::follow_up(daemon, session).await?;
    let mut pause = RETRY_PAUSE;
    loop {
        match attempt::deliver_one(daemon, session).await? {
            Attempt::NothingToType => return Ok(()),
            Attempt::Typed => pause = RETRY_PAUSE,
            Attempt::NotTyped => pause = wait_to_retry(daemon, session, pause).await?,
        }
    }
}

/// Waits before the next attempt: for the pause, or until another incarnation runs. Returns the next pause.
async fn wait_to_retry(
    daemon: &Arc<Daemon>,
    session: SessionId,
    pause: Duration,
) -> Result<Duration, Refusal> {
    let loaded = daemon.loaded();
    let read = move |turn: &mut Turn<'_>| {
        let is_overdue =
            |record| pool::prompt::is_ready_overdue(turn.pool(), &loaded.settings, record, turn.now());
        let tag = record_gate::running_tag(turn, session);
        let is_overdue = turn.pool().session(session).is_none_or(is_overdue);
        let ends_in = turn.volatile.prompts.blocked().get(&session).and_then(Blocked::ends_in);
        (tag, is_overdue, ends_in)
    };
    let (tag, is_overdue, ends_in) = daemon.engine.turn(read).await?;
    let longest = if is_overdue { RETRY_PAUSE_MAX } else { START_PAUSE_MAX };
    let longest = ends_in.map_or(longest, |left| left.max(RETRY_PAUSE).min(longest));
    let another = move |turn: &mut Turn<'_>| (record_gate::running_tag(turn, session) != tag).then_some(());
    let changed = daemon.engine.wait_on(session, Some(pause.min(longest)), another).await.is_ok();
    Ok(if changed { RETRY_PAUSE } else { (pause * 2).min(longest) })
}

#[cfg(test)]
mod tests {
    use protocol::hook::{Hook, HookEvent, SPOOL_DIR, SPOOL_VERSION, SpooledHook};
    use protocol::{MessageState, Reason};

    use super::*;
    use crate::run::tests::{TestDaemon, TestProcesses};

    #[tokio::test(start_paused = true)]
    async fn a_prompt_that_its_agent_reported_done_before_it_ended_has_not_failed() {
        for is_reported in [false, true] {
            let test = TestDaemon::start(TestProcesses::default());
            let running = test.run("a").await;
            let (session, tag) = (running.id, running.run.tag);
            let (id, _) = test.begin_typing(session, "a question").await;
            test.advance((session, id), MessageState::Accepted).await;
            let end = Event::SessionStopped { session, reason: Reason::Exited, exit: None };
            let at = test
                .turn(move |turn| {
                    turn.emit(end);
                    turn.now()
                })
                .await;
            if is_reported {
                let hook = Hook {
                    session,
                    tag,
                    id: 1,
                    at,
                    awake: None,
                    agent: "claude".to_owned(),
                    conversation: None,
                    transcript: None,
                    signal: HookEvent::TurnOver { turn: None, said: None },
                };
                let spool = test.daemon.paths.session(session).join(SPOOL_DIR);
                std::fs::create_dir_all(&spool).unwrap();
                let json = serde_json::to_vec(&SpooledHook { version: SPOOL_VERSION, hook }).unwrap();
                std::fs::write(spool.join("1.json"), json).unwrap();
            }
            assert!(fail_abandoned(&test.daemon, &[session]).await);
            let (message, _) = test.turn(move |turn| turn.message(id)).await.unwrap().unwrap();
            let expected = if is_reported { MessageState::Done } else { MessageState::Dead };
            assert_eq!(message.status.state, expected);
        }
    }
}

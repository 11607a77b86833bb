//! Types waiting prompts into their panes: level-triggered, after every turn that changed anything, and now and then.
//! `typing` is on disk before the first byte goes, under a token: after a crash the pane tells whether it was typed. What
//! becomes of it then is for [`typed`].

pub(crate) mod claim;
pub(crate) mod typed;

use std::sync::Arc;
use std::time::Duration;

use agents::Confirm;
use pool::{Agent, delivery, heard, queue};
use protocol::{Event, Incarnation, Message, MessageState, Refusal, Session, SessionId, Token};
use tmux::{Answer, PaneRef};
use tokio::time::sleep;

use crate::decide::lock;
use crate::decide::prompt::text_of;
use crate::effect::dialog;
use crate::engine::Turn;
use crate::engine::context::{Daemon, pane_of};
use crate::loops::deliver::claim::Claim;
use crate::sense::glance::glanced;
use crate::sense::hook_spool;

/// Pause before the next try, where nothing was typed.
const RETRY_PAUSE: Duration = Duration::from_millis(60);

/// It doubles up to this: somebody may read in copy mode for hours.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(8);

/// The longest pause while an agent may still be starting.
const START_PAUSE_MAX: Duration = Duration::from_millis(200);

/// How long an agent may take to draw what was pressed.
const DRAWN: Duration = Duration::from_millis(300);

/// Why nothing is typed into a pane that has the receipt of a token which this pool has not given yet.
const LATER_POOL: &str =
    "its terminal knows prompts that this pool does not: its data is an older copy; restart the session";

/// Time between two looks where nothing happens: what the clock alone ends.
const SLOWLY: Duration = Duration::from_secs(5);

/// Delivers for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.borrow_and_update();
        let context = Arc::clone(&daemon);
        let claimed = daemon.engine.turn(move |turn| claim_sessions(turn, &context)).await;
        let Ok((ready, ended)) = claimed else { return };
        if !ended.is_empty() && !settle_ended(&daemon, &ended).await {
            return;
        }
        for session in ready {
            let daemon = Arc::clone(&daemon);
            tokio::spawn(async move {
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
            changed = turns.changed() => if changed.is_err() { return },
            () = sleep(SLOWLY) => {}
        }
    }
}

/// Sessions with something to type, or with something typed that nothing confirmed, that nobody is at yet.
/// And sessions that ended with a prompt.
fn claim_sessions(turn: &mut Turn<'_>, daemon: &Daemon) -> (Vec<SessionId>, Vec<SessionId>) {
    if turn.volatile.is_stopping() {
        return (Vec::new(), Vec::new());
    }
    let settings = &daemon.loaded().settings;
    let mut ended = heard::ended_with_prompts(turn.pool(), turn.now());
    let stranded = heard::stranded(turn.pool(), settings, turn.now());
    turn.emit_all(stranded);
    let prompts = &turn.volatile.prompts;
    let cut_off = queue::cut_off(turn.pool(), |session| prompts.is_delivering(session), turn.now());
    // What their hooks left may say what became of it.
    ended.extend(cut_off.iter().filter_map(Event::session));
    turn.emit_all(cut_off);
    let waiting: Vec<SessionId> = queue::deliverable(turn.pool(), turn.now()).collect();
    // In the order of their ids, as the pool has them.
    turn.volatile.prompts.retain_blocked(&waiting);
    let mut ready: Vec<SessionId> =
        waiting.into_iter().filter(|session| is_free(turn, settings, *session)).collect();
    ready.extend(typed::left(turn, settings));
    (ready.into_iter().filter(|session| turn.volatile.prompts.begin_delivery(*session)).collect(), ended)
}

/// What the hooks of agents that ended left is read, and then nothing more comes of their prompts. Whether the daemon
/// goes on.
async fn settle_ended(daemon: &Arc<Daemon>, ended: &[SessionId]) -> bool {
    if !hook_spool::read_of(daemon, ended).await {
        return false;
    }
    let sessions = ended.to_vec();
    let settle = move |turn: &mut Turn<'_>| {
        let events = heard::agent_ended(turn.pool(), &sessions, turn.now());
        turn.emit_all(events);
    };
    daemon.engine.turn(settle).await.is_ok()
}

/// Whether something may be typed into it now, as far as the record tells. Why not is remembered.
fn is_free(turn: &mut Turn<'_>, settings: &pool::Settings, session: SessionId) -> bool {
    let held = if lock::holds_back(turn, session) {
        Err("somebody holds its lock".to_owned())
    } else if running(turn, session).is_some_and(|tag| turn.volatile.prompts.has_newer_receipt(tag)) {
        Err(LATER_POOL.to_owned())
    } else if gives_way(turn, session) {
        Err("it gives way to others that wait for a slot".to_owned())
    } else {
        let record = turn.pool().session(session);
        record.map_or(Ok(()), |record| delivery::gate(turn.pool(), settings, record, turn.now()))
    };
    match held {
        Ok(()) => true,
        Err(why) => {
            turn.volatile.prompts.block(session, why);
            false
        }
    }
}

/// It has had its turn, others wait for a slot, and it can be woken again: it gives way between two messages.
fn gives_way(turn: &Turn<'_>, session: SessionId) -> bool {
    turn.volatile.scheduler.gives_way(session)
}

/// What came of one try.
enum Tried {
    /// There is nothing to be typed now.
    Nothing,
    /// It was not typed: it is to be tried again.
    NotYet,
    /// It was typed.
    Typed,
}

async fn deliver_all(daemon: &Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    typed::look_after(daemon, session).await?;
    let mut pause = RETRY_PAUSE;
    loop {
        match deliver_one(daemon, session).await? {
            Tried::Nothing => return Ok(()),
            Tried::Typed => pause = RETRY_PAUSE,
            Tried::NotYet => {
                // What kept it from one incarnation says nothing of the next.
                let loaded = daemon.loaded();
                let seen = move |turn: &mut Turn<'_>| {
                    let record = turn.pool().session(session);
                    let late = |record| delivery::is_late(turn.pool(), &loaded.settings, record, turn.now());
                    (running(turn, session), record.is_none_or(late))
                };
                let (tag, late) = daemon.engine.turn(seen).await?;
                let most = if late { RETRY_PAUSE_MAX } else { START_PAUSE_MAX };
                let another = move |turn: &mut Turn<'_>| (running(turn, session) != tag).then_some(());
                let changed = daemon.engine.wait_on(session, Some(pause.min(most)), another).await.is_ok();
                pause = if changed { RETRY_PAUSE } else { (pause * 2).min(most) };
            }
        }
    }
}

/// The incarnation that takes prompts.
fn running(turn: &Turn<'_>, session: SessionId) -> Option<protocol::Tag> {
    let session = turn.pool().session(session).filter(|session| session.takes_prompts())?;
    session.incarnation.as_ref().map(|run| run.tag)
}

/// Types one message.
async fn deliver_one(daemon: &Arc<Daemon>, session: SessionId) -> Result<Tried, Refusal> {
    let grant = daemon.engine.lock_inside(session, "deliver").await?;
    let token = grant.token();
    let context = Arc::clone(daemon);
    let first = move |turn: &mut Turn<'_>| is_next(turn, &context, session);
    let Some((record, run, pane)) = daemon.engine.turn(first).await? else { return Ok(Tried::Nothing) };
    let agent = daemon.loaded().settings.agent_of(&record).clone();
    if agent.shows_composer() {
        settle_keys(daemon, session).await?;
    }
    let looked = glanced(daemon, &agent, &run, pane).await;
    if let Ok(glance) = &looked {
        dialog::in_the_way(daemon, (session, pane), &agent, glance).await;
    }
    if let Err(why) = looked.and_then(|glance| delivery::look(&daemon.loaded().settings, &agent, &glance)) {
        daemon.engine.post(move |turn| turn.volatile.prompts.block(session, why));
        return Ok(Tried::NotYet);
    }
    let context = Arc::clone(daemon);
    let claim = move |turn: &mut Turn<'_>| claim(turn, &context, session, (token, agent));
    let Some(claim) = daemon.engine.turn(claim).await? else { return Ok(Tried::Nothing) };
    crate::crash::point("deliver-typing");
    let not_typed = match daemon.tmux.paste(claim.pane, token, &claim.body).await {
        Ok(Answer::Done) => {
            typed::entered(daemon, claim, grant).await?;
            return Ok(Tried::Typed);
        }
        Err(error) if error.in_doubt() => {
            tracing::warn!(%session, %error, "whether it was typed is asked of the pane");
            drop(grant);
            typed::unclear(daemon, session).await?;
            return Ok(Tried::Typed);
        }
        Ok(Answer::Already) => {
            let tag = claim.pane.tag;
            daemon.engine.post(move |turn| turn.volatile.prompts.note_newer_receipt(tag));
            LATER_POOL.to_owned()
        }
        Ok(answer) => format!("not typed: {answer:?}"),
        Err(error) => format!("not typed: {error}"),
    };
    typed::failed(daemon, &claim, MessageState::Queued, not_typed).await?;
    Ok(Tried::NotYet)
}

/// What was pressed a moment ago is to be seen on the screen before that is looked at.
async fn settle_keys(daemon: &Daemon, session: SessionId) -> Result<(), Refusal> {
    let age = move |turn: &mut Turn<'_>| {
        let now = turn.mono();
        turn.volatile.prompts.take_keys_age(session, now)
    };
    let age = daemon.engine.turn(age).await?;
    sleep(age.map_or(Duration::ZERO, |age| DRAWN.saturating_sub(age))).await;
    Ok(())
}

/// The session with the pane that its next prompt goes to, if one may be typed.
fn is_next(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    session: SessionId,
) -> Option<(Session, Incarnation, PaneRef)> {
    queue::next(turn.pool(), session, turn.now())?;
    if turn.volatile.is_stopping() || !is_free(turn, &daemon.loaded().settings, session) {
        return None;
    }
    let record = turn.pool().session(session)?.clone();
    let run = record.incarnation.clone()?;
    let pane = pane_of(&run)?;
    Some((record, run, pane))
}

fn claim(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    session: SessionId,
    (token, agent): (Token, Agent),
) -> Option<Claim> {
    if turn.volatile.is_stopping() || !is_free(turn, &daemon.loaded().settings, session) {
        return None;
    }
    let now = turn.now();
    let expired = queue::expired(turn.pool(), now);
    turn.emit_all(expired);
    let id = queue::next(turn.pool(), session, now)?.id;
    let pane = pane_of(turn.pool().session(session)?.incarnation.as_ref()?)?;
    let found = turn.message(id);
    let open = turn.pool().open_message(session, id)?;
    match found {
        Ok(Some((message, body))) => {
            let message = Message { enter: message.enter || message.suspended_at().is_some(), ..message };
            let body = text_of(turn, &agent, &message, body);
            let event = queue::typing(&open, token, now);
            turn.emit(event);
            let told = agent.is_told_its_conversation() || agent.confirm != Confirm::Hook;
            let spoken = turn.pool().session(session).filter(|_| told).and_then(pool::admit::spoken_to);
            turn.emit_all(spoken);
            turn.volatile.prompts.begin_paste(session);
            Some(Claim { token, message, body, pane, agent })
        }
        missing => {
            tracing::error!(id = id.0, ?missing, "a message is not readable");
            let event = queue::moved(&open, MessageState::Dead, Some("its record is not readable"), now);
            turn.emit(event);
            turn.wake();
            None
        }
    }
}

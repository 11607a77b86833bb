//! What follows for slots after every turn: who is started, who is put aside, who is removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use protocol::session::Reason;
use protocol::{Lifecycle, Session, SessionId, Tag};
use tokio::time::sleep;

use super::{By, Waiting, aside, begin, leaving, lost, runs, with_facts};
use crate::context::Daemon;
use crate::engine::Turn;
use crate::{locking, park, room, verb};

/// Sessions that are started, or put aside, at a time.
const AT_ONCE: usize = 4;
/// Time between two looks while something depends on the passing of time.
const SOON: Duration = Duration::from_secs(1);
/// And otherwise.
const LATER: Duration = Duration::from_secs(60);

/// What is left to do outside of the turn.
pub(super) enum Work {
    /// Bring a session up whose next incarnation was decided.
    Start(Box<Session>),
    /// End an incarnation that is put aside.
    Park(SessionId, Tag),
    /// Find out whether the conversation of a session that ended is lost.
    Judge(SessionId, Tag),
    /// Remove a session.
    Remove(SessionId, Reason),
}

/// Looks after slots for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.borrow_and_update();
        let context = Arc::clone(&daemon);
        let Ok((work, pause)) = daemon.engine.turn(move |turn| tend(turn, &context)).await else { return };
        for work in work {
            tokio::spawn(carry_out(Arc::clone(&daemon), work));
        }
        tokio::select! {
            changed = turns.changed() => if changed.is_err() { return },
            () = sleep(pause) => {}
        }
    }
}

async fn carry_out(daemon: Arc<Daemon>, work: Work) {
    match work {
        Work::Start(before) => {
            let id = before.id;
            if let Err(refusal) = verb::bring_up(&daemon, *before, |_| ()).await {
                tracing::warn!(session = %id, %refusal, "not started");
            }
        }
        Work::Park(session, tag) => drop(park::end_unattended(&daemon, session, tag).await),
        Work::Judge(session, tag) => lost::judge(&daemon, session, tag).await,
        Work::Remove(session, reason) => verb::remove_outdated(&daemon, session, reason).await,
    }
}

/// Decides all that is to be decided, and when to look again at the latest.
fn tend(turn: &mut Turn<'_>, daemon: &Arc<Daemon>) -> (Vec<Work>, Duration) {
    if turn.rest.view.ending {
        return (Vec::new(), LATER);
    }
    let (loaded, now) = (daemon.loaded(), turn.now());
    let settings = &loaded.settings;
    // What is lost is known once somebody has looked.
    let mut work = Vec::new();
    if !turn.rest.view.first && !std::mem::replace(&mut turn.rest.view.restored, true) {
        let life = &loaded.life;
        let lost = life.restore_on_start.then(|| pool::admit::restore_all(turn.pool(), life.spacing, now));
        turn.emit_all(lost.into_iter().flatten());
        work.extend(half_parked(turn).map(|(session, tag)| Work::Park(session, tag)));
    }
    let (undecided, broken) = lost::undecided(turn, settings);
    work.extend(broken.into_iter().map(|(session, tag)| Work::Judge(session, tag)));
    let mut decided = pool::budget::decide(turn.pool(), settings, now);
    decided.retain(|event| event.session().is_none_or(|session| !undecided.contains(&session)));
    turn.emit_all(decided);
    let mut wanting = pool::slots::wanting(turn.pool(), now);
    wanting.retain(|session| !locking::holds_back(turn, *session));
    turn.rest.line.sessions(&wanting);
    let attached = turn.pool().sessions().filter(|s| s.attached_clients > 0);
    let touched: Vec<Tag> = attached.filter_map(|s| s.incarnation.as_ref()).map(|run| run.tag).collect();
    turn.rest.view.touched.extend(touched);
    let mut kept = std::mem::take(&mut turn.rest.view.slots.kept);
    kept.retain(|id, (tag, ..)| runs(turn, *id, *tag));
    turn.rest.view.slots.kept = kept;
    turn.rest.view.yields = pool::slots::have_had_their_turn(turn.pool(), settings, now).collect();
    work.extend(start(turn, daemon, settings));
    work.extend(make_room(turn, daemon, settings));
    work.extend(idle(turn, daemon, settings));
    note_drained(turn, daemon, settings);
    work.extend(outdated(turn, daemon));
    (work, pause(turn, settings))
}

/// What an earlier daemon was putting aside: nobody may be attached now, either.
fn half_parked(turn: &Turn<'_>) -> impl Iterator<Item = (SessionId, Tag)> + use<> {
    let guarded = &turn.rest.view.guarded;
    let parks = turn.pool().sessions().filter(|s| s.reason.is_some_and(|why| why.parks()));
    let tagged = parks.filter_map(|s| Some((s.id, s.incarnation.as_ref()?.tag)));
    tagged.filter(|(_, tag)| guarded.contains(tag)).collect::<Vec<_>>().into_iter()
}

/// Starts the sessions whose turn it is, as far as there are slots and the machine has room.
fn start(turn: &mut Turn<'_>, daemon: &Daemon, settings: &pool::Settings) -> Vec<Work> {
    let mut work = Vec::new();
    loop {
        let starting = turn.pool().sessions().filter(|s| s.lifecycle == Lifecycle::Starting).count();
        let free = pool::slots::free(turn.pool(), settings);
        let next = turn.rest.line.first_session(free).filter(|_| starting < AT_ONCE);
        let Some(session) = next.and_then(|id| turn.pool().session(id).cloned()) else { return work };
        if let Err(refusal) = room::check(turn, daemon) {
            tracing::debug!(session = %session.id, %refusal, "not started yet");
            return work;
        }
        turn.rest.line.leave(Waiting::Session(session.id));
        // What somebody is about to start is not started twice.
        if turn.rest.view.starting.contains(&session.id) {
            continue;
        }
        match begin(turn, daemon, &session, By::Itself) {
            Ok(()) => work.push(Work::Start(Box::new(session))),
            Err(refusal) => {
                tracing::warn!(session = %session.id, %refusal, "not started");
                return work;
            }
        }
    }
}

/// Puts aside what is idle, where others wait.
fn make_room(turn: &mut Turn<'_>, daemon: &Daemon, settings: &pool::Settings) -> Vec<Work> {
    let free = pool::slots::free(turn.pool(), settings) + leaving(turn);
    let needed = turn.rest.line.len().saturating_sub(free).min(AT_ONCE);
    let mut work = Vec::new();
    for _ in 0..needed {
        let victim =
            with_facts(turn, daemon, |turn, facts| pool::slots::victim(turn.pool(), settings, facts));
        let Some(session) = victim.and_then(|id| turn.pool().session(id).cloned()) else { return work };
        tracing::info!(session = %session.id, "parked to make room");
        work.extend(aside(turn, &session, Reason::Evicted).map(|(id, tag)| Work::Park(id, tag)));
    }
    work
}

/// Puts aside what has been idle for longer than it may.
fn idle(turn: &mut Turn<'_>, daemon: &Daemon, settings: &pool::Settings) -> Vec<Work> {
    if !any_idle_timeout(turn, settings) {
        return Vec::new();
    }
    let found: Vec<SessionId> = with_facts(turn, daemon, |turn, facts| {
        pool::slots::idle_for_too_long(turn.pool(), settings, facts).take(AT_ONCE).collect()
    });
    let sessions: Vec<Session> = found.iter().filter_map(|id| turn.pool().session(*id).cloned()).collect();
    let aside = sessions.iter().filter_map(|session| aside(turn, session, Reason::Idle));
    aside.map(|(id, tag)| Work::Park(id, tag)).collect()
}

fn any_idle_timeout(turn: &Turn<'_>, settings: &pool::Settings) -> bool {
    let mut live = turn.pool().sessions().filter(|s| s.lifecycle == Lifecycle::Live);
    live.any(|s| pool::slots::idle_timeout(settings, s).is_some())
}

/// What drains, has nothing left to work, and is still, is over.
fn note_drained(turn: &mut Turn<'_>, daemon: &Daemon, settings: &pool::Settings) {
    let ids: Vec<SessionId> =
        turn.pool().sessions().filter(|s| pool::admit::is_drained(turn.pool(), s)).map(|s| s.id).collect();
    let drained: BTreeSet<SessionId> = if ids.is_empty() {
        BTreeSet::new()
    } else {
        with_facts(turn, daemon, |turn, facts| {
            let still = |id: &SessionId| {
                turn.pool()
                    .session(*id)
                    .is_some_and(|s| pool::slots::at_rest_since(turn.pool(), settings, s, facts).is_ok())
            };
            ids.into_iter().filter(still).collect()
        })
    };
    if turn.rest.view.drained != drained {
        turn.rest.view.drained = drained;
        turn.stir();
    }
}

/// Removes what was kept for as long as it was to be.
fn outdated(turn: &mut Turn<'_>, daemon: &Daemon) -> Vec<Work> {
    let keep = daemon.loaded().life.keep_stopped;
    let found: Vec<(SessionId, Reason)> = pool::admit::outdated(turn.pool(), keep, turn.now())
        .map(|(s, why)| (s.id, why))
        .take(AT_ONCE)
        .collect();
    let removing = &mut turn.rest.view.removing;
    let new = found.into_iter().filter(|(id, _)| removing.insert(*id));
    new.map(|(id, why)| Work::Remove(id, why)).collect()
}

/// How long nothing changes by the passing of time alone.
fn pause(turn: &Turn<'_>, settings: &pool::Settings) -> Duration {
    let timed = |s: &Session| {
        let over = !s.lifecycle.holds_slot();
        let draining = s.lifecycle == Lifecycle::Draining && s.reason == Some(Reason::Drained);
        draining || (over && (s.policy.ephemeral || s.policy.ttl_ms.is_some_and(|ms| ms != u64::MAX)))
    };
    let soon =
        turn.rest.line.len() > 0 || any_idle_timeout(turn, settings) || turn.pool().sessions().any(timed);
    let start = pool::slots::next_start(turn.pool(), turn.now());
    let start = start.map_or(LATER, |at| at.since(turn.now()).max(Duration::from_millis(1)));
    start.min(if soon { SOON } else { LATER })
}

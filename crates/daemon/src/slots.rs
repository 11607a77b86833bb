//! Slots: who waits for one, who gets it, and who gives it up. The line is first come, first served, for
//! requests and for sessions that have something to do; what it decides is decided again after every
//! turn, from the record, so that a crash loses nothing but the order of those who wait.

mod line;
pub(crate) mod lost;
mod tend;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pool::admit;
use pool::slots::Facts;
use protocol::{ErrorCode, Event, Lifecycle, Refusal, Session, SessionId, Tag, Timestamp};

pub(crate) use line::{Line, Waiting};
pub(crate) use tend::run;

use crate::context::Daemon;
use crate::engine::Turn;
use crate::handle::in_doubt;
use crate::launch;
use crate::op::Op;

/// How long an eviction may take, where a request waits for nothing else: the end of a program, and its proof.
const EVICTION_LIMIT: Duration = Duration::from_secs(30);
/// What does not end within that time is not counted on.
const LEAVING_LIMIT: Duration = Duration::from_secs(10);
/// How old what is known of the logs may be, in milliseconds.
const QUIET_AGE_MS: u64 = 200;

/// What is remembered of sessions from look to look.
#[derive(Default)]
pub(crate) struct Memory {
    /// Those that were not parked because something would have been lost: the incarnation, when that was seen, and for how
    /// long it is left alone at least.
    kept: BTreeMap<SessionId, (Tag, Timestamp, Duration)>,
    /// Incarnations that ended instead of taking up their conversation, and whether that was looked into.
    resumes: BTreeMap<Tag, bool>,
}

impl Memory {
    /// Something would have been lost by parking it now. It is left alone for longer each time.
    pub(crate) fn keep(&mut self, session: SessionId, tag: Tag, now: Timestamp) {
        let before = self.kept.get(&session).filter(|(kept, ..)| *kept == tag);
        let pause = before.map_or(KEPT_LIMIT, |(.., pause)| (*pause * 2).min(KEPT_LIMIT_MAX));
        self.kept.insert(session, (tag, now, pause));
    }
}

/// What came of a decision that needs a slot.
pub(crate) enum Decided<R> {
    /// It is decided: the slot is taken, or none was needed.
    Done(R),
    /// There is none.
    Full,
}

/// Decides in the first turn in which there is a slot for it; told how many wait before it. Waits where
/// that was asked for, or where a slot is about to come free, as long as somebody waits for the operation.
///
/// # Errors
/// What `decide` says, and refused where there is no slot.
pub(crate) async fn with_slot<R: Send + 'static>(
    daemon: &Arc<Daemon>,
    op: Option<&Op>,
    wait_ms: Option<u64>,
    mut decide: impl FnMut(&mut Turn<'_>, usize) -> Result<Decided<R>, Refusal> + Send + 'static,
) -> Result<R, Refusal> {
    let wait = wait_ms.map_or(daemon.loaded().life.wait_slot, Duration::from_millis);
    let me = Waiting::Client(daemon.engine.ticket());
    let _place = Place { daemon: Arc::clone(daemon), me };
    let (context, op, patient) = (Arc::clone(daemon), op.cloned(), !wait.is_zero());
    let look = move |turn: &mut Turn<'_>| {
        let left = op.as_ref().is_some_and(|op| !op.is_awaited(turn));
        if left {
            turn.rest.line.leave(me);
            return Some(Err(in_doubt()));
        }
        let ahead = turn.rest.line.ahead(me);
        let decided = match decide(turn, ahead) {
            Ok(Decided::Done(result)) => Ok(result),
            Ok(Decided::Full) if patient || may_come_free(turn, &context, ahead) => {
                if turn.rest.line.join(me) {
                    turn.stir();
                }
                return None;
            }
            Ok(Decided::Full) => Err(admit::full(turn.pool(), &context.settings())),
            Err(refusal) => Err(refusal),
        };
        turn.rest.line.leave(me);
        Some(decided)
    };
    let limit = if patient { wait } else { EVICTION_LIMIT };
    match daemon.engine.wait_for(Some(limit), look).await {
        Ok(decided) => decided,
        Err(refusal) if refusal.code == ErrorCode::Timeout => {
            let why = format!("no slot came free within {}", humantime::format_duration(limit));
            Err(Refusal::new(ErrorCode::Refused, format!("the pool is full: {why}")))
        }
        Err(refusal) => Err(refusal),
    }
}

/// A place in the line, given up when dropped.
struct Place {
    daemon: Arc<Daemon>,
    me: Waiting,
}

impl Drop for Place {
    fn drop(&mut self) {
        let me = self.me;
        self.daemon.engine.post(move |turn| {
            if turn.rest.line.leave(me) {
                turn.stir();
            }
        });
    }
}

/// Whether a slot is about to come free for whom so many wait before: something ends, or can be parked.
fn may_come_free(turn: &mut Turn<'_>, daemon: &Daemon, ahead: usize) -> bool {
    if leaving(turn) > ahead {
        return true;
    }
    let settings = daemon.settings();
    with_facts(turn, daemon, |turn, facts| pool::slots::victim(turn.pool(), &settings, facts).is_some())
}

/// How many sessions are about to give their slots up.
fn leaving(turn: &Turn<'_>) -> usize {
    let parks = |s: &&Session| s.is_being_parked() && turn.age(s.changed_at) < LEAVING_LIMIT;
    turn.pool().sessions().filter(parks).count()
}

/// What is known of the programs of running sessions, with the newest word of their logs.
pub(crate) fn with_facts<R>(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    with: impl FnOnce(&Turn<'_>, &Facts<'_>) -> R,
) -> R {
    let now = turn.now();
    let known = std::mem::take(&mut turn.rest.view.quiet);
    let fresh = known.0.is_some_and(|at| now.since(at) < Duration::from_millis(QUIET_AGE_MS) && at <= now);
    let quiet = if fresh { known } else { (Some(now), quiet_since(turn, daemon)) };
    let view = &turn.rest.view;
    let mut busy: BTreeSet<SessionId> = view.typing.iter().chain(&view.starting).copied().collect();
    busy.extend(shared(turn));
    busy.extend(view.slots.kept.keys().filter(|id| is_kept(turn, &quiet.1, **id)));
    let view = &turn.rest.view;
    let result = with(
        turn,
        &Facts { now, quiet_since: &quiet.1, worked: &view.worked, touched: &view.touched, busy: &busy },
    );
    turn.rest.view.quiet = quiet;
    result
}

/// How long a session that was not parked is left alone at least; it doubles.
const KEPT_LIMIT: Duration = Duration::from_secs(10);
const KEPT_LIMIT_MAX: Duration = Duration::from_secs(10 * 60);

/// True for a session that was not parked because something would have been lost, as long as its screen is as it
/// was then or its pause is not over.
fn is_kept(turn: &Turn<'_>, quiet_since: &BTreeMap<SessionId, Timestamp>, id: SessionId) -> bool {
    let Some((_, at, pause)) = turn.rest.view.slots.kept.get(&id).filter(|(tag, ..)| runs(turn, id, *tag))
    else {
        return false;
    };
    let is_unchanged = |since: &Timestamp| turn.pool().is_earlier(turn.now(), *since, *at);
    quiet_since.get(&id).is_some_and(is_unchanged) || turn.age(*at) < *pause
}

/// Compares a tag with that of the session's present incarnation.
fn runs(turn: &Turn<'_>, id: SessionId, tag: Tag) -> bool {
    let run = turn.pool().session(id).and_then(|session| session.incarnation.as_ref());
    run.is_some_and(|run| run.tag == tag)
}

/// Sessions whose tmux sessions show panes that are not the pool's: somebody works there.
fn shared(turn: &Turn<'_>) -> Vec<SessionId> {
    let state = &turn.rest.view.state;
    let mut panes: BTreeMap<protocol::TmuxSessionId, usize> = BTreeMap::new();
    state.panes.values().for_each(|pane| *panes.entry(pane.session).or_default() += 1);
    let tmux = |s: &Session| s.incarnation.as_ref().filter(|_| s.lifecycle.holds_slot())?.session;
    let shared = |s: &&Session| tmux(s).is_some_and(|id| panes.get(&id).is_some_and(|count| *count > 1));
    turn.pool().sessions().filter(shared).map(|s| s.id).collect()
}

/// Since when each running program has written nothing: its log tells when it was last written to.
fn quiet_since(turn: &Turn<'_>, daemon: &Daemon) -> BTreeMap<SessionId, Timestamp> {
    let running =
        turn.pool().sessions().filter(|s| matches!(s.lifecycle, Lifecycle::Live | Lifecycle::Draining));
    let written = |session: &Session| {
        let started = session.incarnation.as_ref()?.started_at;
        let log = daemon.paths.session(session.id).join("logs").join(protocol::logs::CURRENT);
        // Where there is no log nothing is known.
        let modified = std::fs::metadata(log).and_then(|found| found.modified()).ok()?;
        let times = [crate::clock::timestamp(modified), started];
        Some((session.id, turn.pool().latest(turn.now(), times)))
    };
    running.filter_map(written).collect()
}

/// Who wants a session to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Nobody: its policy, or a message that waits.
    Itself,
    /// Somebody; whether with a new conversation.
    Name {
        /// Whether the last conversation is left.
        fresh: bool,
    },
}

/// The intent to start a session once more. Its slot is taken from here on.
///
/// # Errors
/// Failed, without random numbers.
pub(crate) fn begin(turn: &mut Turn<'_>, daemon: &Daemon, session: &Session, by: By) -> Result<(), Refusal> {
    let failed = |e: std::io::Error| Refusal::new(ErrorCode::Failed, format!("no random numbers: {e}"));
    let budget = match by {
        By::Itself => Some(pool::budget::spent(turn.pool(), &daemon.settings(), session, turn.now())),
        By::Name { .. } => pool::budget::renewed(session),
    };
    launch::renew(turn, session.id, by == By::Name { fresh: true }).map_err(failed)?;
    turn.emit_all(budget);
    turn.rest.view.starting.insert(session.id);
    Ok(())
}

/// A session is put aside for this reason: first it is seen, within tmux, that nobody is attached.
pub(crate) fn aside(
    turn: &mut Turn<'_>,
    session: &Session,
    reason: protocol::session::Reason,
) -> Option<(SessionId, Tag)> {
    let tag = session.incarnation.as_ref()?.tag;
    if is_kept(turn, &turn.rest.view.quiet.1, session.id) {
        return None;
    }
    let event: Event = admit::put_aside(session, reason);
    turn.emit(event);
    turn.rest.view.guarded.insert(tag);
    turn.rest.view.verdicts.remove(&tag);
    Some((session.id, tag))
}

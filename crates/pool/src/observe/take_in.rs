//! From an observation to facts: the state is updated, the processes and exit reports of suspects are sampled by the
//! shell, and then everything that follows is decided at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::tmux::Server;
use protocol::usage::Account;
use protocol::{Event, Exit, Lifecycle, OsBytes, ProcId, Session, SessionId, Tag, Timestamp};

use super::state::{Sight, Update};
use crate::pool::Pool;
use crate::reconcile::{self, Evidence};
use crate::volatile::Volatile;

/// Time for which an observation may be on its way unnoticed, on a busy machine.
pub const IN_TRANSIT: Duration = Duration::from_millis(250);
/// The signal of a closed terminal.
const SIGHUP: i32 = 1;

/// The processes and incarnations that an observation does not simply confirm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suspects {
    /// Processes that may have ended.
    pub processes: BTreeSet<ProcId>,
    /// Incarnations whose inits may have reported an exit, each with the process of its program.
    pub runs: Vec<(Tag, Option<ProcId>)>,
}

impl Suspects {
    /// True if the observation confirms everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.runs.is_empty()
    }
}

/// A sample of the suspects.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Processes that are proved to have ended.
    pub exited: BTreeSet<ProcId>,
    /// Exits as inits reported them, of programs that do not run any more.
    pub exits: BTreeMap<Tag, Exit>,
    /// Resource use of whole runs, as inits reported it.
    pub accounts: BTreeMap<Tag, Account>,
}

/// The outcome of an observation.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What follows.
    pub events: Vec<Event>,
    /// Incarnations that are over: their files can go.
    pub over: Vec<Tag>,
    /// True if something is missing and it is not proved yet what became of it: another look has to follow soon.
    pub is_missing: bool,
    /// True if those who wait should look again, although no event says so.
    pub stirs: bool,
}

/// Takes the contents of an observation over that began at `began`.
pub fn observe(
    pool: &Pool,
    volatile: &mut Volatile,
    (sight, complete): (Sight, bool),
    began: Timestamp,
) -> Update {
    volatile.observed.update(pool, sight, complete, began)
}

/// What has to be sampled before [`take_in`].
#[must_use]
pub fn suspects(pool: &Pool, volatile: &Volatile, update: &Update) -> Suspects {
    let state = volatile.observed.state();
    let mut suspects = Suspects::default();
    for run in reconcile::suspects(pool, state, update.only.as_ref()) {
        let processes = [run.init, run.agent, run.server.map(|server| server.process)];
        suspects.processes.extend(processes.into_iter().flatten());
        suspects.runs.push((run.tag, run.agent));
    }
    let server = pool.server().filter(|server| state.server != Server::Up(*server));
    suspects.processes.extend(server.map(|server| server.process));
    suspects
}

/// Decides what follows from the present state of tmux and the findings about its suspects.
#[must_use]
pub fn take_in(
    pool: &Pool,
    volatile: &mut Volatile,
    update: &Update,
    findings: &Findings,
    now: Timestamp,
) -> Outcome {
    volatile.reaping.note_exited(findings.exited.iter().copied());
    let evidence = Evidence {
        state: volatile.observed.state(),
        now,
        began: update.began,
        exited: &findings.exited,
        exits: &findings.exits,
        first: volatile.observed.is_first(),
        only: update.only.as_ref(),
    };
    let mut events = reconcile::reconcile(pool, &evidence);
    events.extend(findings.accounts.iter().filter_map(|(tag, account)| accounted(pool, *tag, *account)));
    events.retain(|event| holds(pool, volatile, event, update.began));
    let is_missing = events.iter().any(|event| missing(event).is_some());
    events.retain(|event| missing(event).is_none_or(|id| !is_younger(pool, id, update.began)));
    let over = events.iter().filter_map(|event| over(pool, event)).collect();
    let drains = pool.sessions().any(|session| session.lifecycle == Lifecycle::Draining);
    events.extend(volatile.observed.taken_in(pool, update, now));
    // What drains becomes a candidate by the passing of time too, of which no event tells.
    Outcome { events, over, is_missing, stirs: update.differs || drains }
}

/// The resource use of a present incarnation, where it is news.
#[must_use]
pub fn accounted(pool: &Pool, tag: Tag, account: Account) -> Option<Event> {
    let session = pool.tagged(tag).filter(|s| s.incarnation.as_ref().is_some_and(|run| run.tag == tag))?;
    (session.account != Some(account)).then_some(Event::SessionAccounted { session: session.id, account })
}

/// True if what an observation says of a session holds, though others act on that session meanwhile.
fn holds(pool: &Pool, volatile: &Volatile, event: &Event, began: Timestamp) -> bool {
    match event {
        Event::SessionRenamed { session, .. } => may_be_renamed(volatile, *session, began),
        Event::SessionStopped { session, exit, .. } if may_be_older(pool, *session, *exit, began) => false,
        Event::SessionStopped { session, .. }
        | Event::SessionParked { session, .. }
        | Event::SessionLost { session, .. }
            if is_at_the_reaper(pool, volatile, *session) =>
        {
            false
        }
        event => !event.session().is_some_and(|id| is_being_started(pool, volatile, id)),
    }
}

/// The session that was not seen where it has to be.
fn missing(event: &Event) -> Option<SessionId> {
    match event {
        Event::SessionDraining { session, missing_since: Some(_), .. } => Some(*session),
        _ => None,
    }
}

/// The incarnation that an event ends.
fn over(pool: &Pool, event: &Event) -> Option<Tag> {
    match event {
        Event::SessionStopped { session, .. } => Some(pool.session(*session)?.incarnation.as_ref()?.tag),
        _ => None,
    }
}

/// True if the look may be of before the session ran. A program that ended by itself just now has left its pane, which is
/// still to be seen.
fn may_be_older(pool: &Pool, id: SessionId, exit: Option<Exit>, began: Timestamp) -> bool {
    let by_itself = exit.is_some_and(|exit| exit.signal != Some(SIGHUP));
    let lost = |session: &Session| session.reason.is_some_and(reconcile::is_loss);
    by_itself && !pool.session(id).is_some_and(lost) && is_younger(pool, id, began)
}

/// True if the session changed after the look began, or so shortly before that the look may not show it.
fn is_younger(pool: &Pool, id: SessionId, began: Timestamp) -> bool {
    pool.session(id).is_some_and(|session| pool.age(began, session.changed_at) < IN_TRANSIT)
}

/// True if the reaper says when the session is over: it is at it, or named what is left and is going to try again.
fn is_at_the_reaper(pool: &Pool, volatile: &Volatile, id: SessionId) -> bool {
    let Some(session) = pool.session(id) else { return false };
    let Some(tag) = session.incarnation.as_ref().map(|run| run.tag) else { return false };
    let reaping = &volatile.reaping;
    // What tmux took away is named as long as its init lives, and no longer.
    let is_named = reaping.has_reaper() && !session.reason.is_some_and(reconcile::is_loss);
    reaping.is_leased(tag) || (reaping.has_survivors(tag) && is_named)
}

/// False while the pool itself renames a session, and for what was seen before it had.
fn may_be_renamed(volatile: &Volatile, id: SessionId, began: Timestamp) -> bool {
    volatile.locks.holder(id).is_none_or(|held| held.open && held.inner.is_none())
        && volatile.observed.renamed_at(id).is_none_or(|at| began > at)
}

/// True if an operation is starting the session, and will say what came of it.
fn is_being_started(pool: &Pool, volatile: &Volatile, id: SessionId) -> bool {
    let starting = pool.session(id).is_some_and(|s| s.lifecycle == Lifecycle::Starting);
    starting && volatile.scheduler.is_starting(id)
}

/// The correction of a session's record, where another program is in front of its terminal now: under load the watcher
/// looks only every half minute.
#[must_use]
pub fn in_front(
    pool: &Pool,
    (session, tag): (SessionId, Tag),
    command: &OsBytes,
    now: Timestamp,
) -> Option<Event> {
    let record = pool.session(session)?;
    let run = record.incarnation.as_ref().filter(|run| run.tag == tag)?;
    (record.current_command.as_ref() != Some(command)).then(|| Event::SessionObserved {
        session,
        at: now,
        dead: run.dead,
        attached: record.attached_clients,
        current_command: Some(command.clone()),
    })
}

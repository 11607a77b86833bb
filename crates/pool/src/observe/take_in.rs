//! From a report of the watcher to events: the observed state is updated, the suspects' processes and exit
//! reports are sampled outside the core, and then all events are decided at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::job::Started;
use protocol::tmux::Server;
use protocol::usage::Account;
use protocol::{Event, Exit, Incarnation, Lifecycle, OsBytes, ProcId, Session, SessionId, Tag, Timestamp};

use crate::clock::Moment;
use crate::observe::reconcile;
use crate::observe::reconcile::Observation;
use crate::observe::state::Update;
use crate::pool::Pool;
use crate::session::lifecycle::is_loss;
use crate::volatile::Volatile;

/// Time for which a report may be delayed unnoticed, on a busy machine.
pub const REPORT_DELAY_MAX: Duration = Duration::from_millis(250);

/// The processes and incarnations that an observation does not simply confirm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suspects {
    /// Processes that may have ended.
    pub processes: BTreeSet<ProcId>,
    /// Incarnations whose inits may have reported something.
    pub runs: Vec<SuspectRun>,
}

/// An incarnation whose init may have reported something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuspectRun {
    pub tag: Tag,
    /// Its init, if that is on record.
    pub init: Option<ProcId>,
    /// The process of its program, if that is on record.
    pub agent: Option<ProcId>,
}

impl Suspects {
    /// True if the observation confirms everything.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.runs.is_empty()
    }
}

/// A sample of the suspects.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Processes that are proved to have ended.
    pub exited: BTreeSet<ProcId>,
    /// Exits reported by inits, of programs that no longer run.
    pub exits: BTreeMap<Tag, Exit>,
    /// Resource use of whole runs, reported by inits.
    pub accounts: BTreeMap<Tag, Account>,
    /// Reports of programs whose processes are not on record: their launches were left in doubt.
    pub started: BTreeMap<Tag, Started>,
}

/// The outcome of an observation.
#[derive(Debug, Default)]
pub struct ObserveOutcome {
    /// The events that follow.
    pub events: Vec<Event>,
    /// Incarnations that are over: their files can be removed.
    pub over: Vec<Tag>,
    /// True if an incarnation is missing and its end is not proved yet, or its program was only just recorded:
    /// another observation has to follow soon.
    pub is_missing: bool,
    /// True if waiters have to look again although no event tells them.
    pub wakes_waiters: bool,
}

/// The suspects to sample before [`take_in`].
pub fn suspects(pool: &Pool, volatile: &Volatile, update: &Update) -> Suspects {
    let state = volatile.observed.state();
    let mut suspects = Suspects::default();
    for run in reconcile::unconfirmed_runs(pool, state, update.only.as_ref()) {
        let processes = [run.init, run.agent, run.server.map(|server| server.process)];
        suspects.processes.extend(processes.into_iter().flatten());
        suspects.runs.push(SuspectRun { tag: run.tag, init: run.init, agent: run.agent });
    }
    let server = pool.server().filter(|server| state.server != Server::Up(*server));
    suspects.processes.extend(server.map(|server| server.process));
    suspects
}

/// Decides on the events that follow from the observed state and the sample of its suspects.
#[must_use]
pub fn take_in(
    pool: &Pool,
    volatile: &mut Volatile,
    update: &Update,
    findings: &Findings,
    now: Timestamp,
) -> ObserveOutcome {
    volatile.reaping.note_exited(findings.exited.iter().copied());
    let times = (update.began.moment, now);
    let evidence = Observation {
        state: volatile.observed.state(),
        now,
        began: update.began.moment,
        exited: &findings.exited,
        exits: &findings.exits,
        first: volatile.observed.is_first(),
        drained: volatile.scheduler.drained(),
        only: update.only.as_ref(),
    };
    let started = started_programs(pool, findings);
    let mut events = reconcile::reconcile(pool, &evidence);
    // The ends of these programs are decided later, once the programs are on record and were sampled.
    let is_new = |event: &Event| started.iter().any(|new| new.session() == event.session());
    events.retain(|event| !is_new(event));
    events.extend(started);
    events
        .extend(findings.accounts.iter().filter_map(|(tag, account)| account_reported(pool, *tag, *account)));
    events.retain(|event| holds(pool, volatile, event, times));
    let asks_for_more =
        |event: &Event| newly_missing(event).is_some() || matches!(event, Event::SessionPlaced { .. });
    let is_missing = events.iter().any(asks_for_more);
    events.retain(|event| newly_missing(event).is_none_or(|id| !is_younger(pool, id, times)));
    events
        .iter()
        .filter_map(|event| left_unattended(pool, event))
        .for_each(|id| volatile.observed.note_unattended(id));
    let over = events.iter().filter_map(|event| ended_run(pool, event)).collect();
    let drains = pool.sessions().any(|session| session.lifecycle == Lifecycle::Draining);
    events.extend(volatile.observed.taken_in(pool, update, now));
    // A draining session may also become a candidate by the passing of time, which no event tells.
    ObserveOutcome { events, over, is_missing, wakes_waiters: update.differs || drains }
}

/// The events of programs whose processes were not on record.
#[must_use]
pub fn started_programs(pool: &Pool, findings: &Findings) -> Vec<Event> {
    let event = |(tag, started): (&Tag, &Started)| {
        let session = pool.tagged(*tag)?;
        let run = session.incarnation.as_ref().filter(|run| run.tag == *tag && run.agent.is_none())?;
        let incarnation = with_processes(run.clone(), started.clone());
        Some(Event::SessionPlaced { session: session.id, incarnation })
    };
    findings.started.iter().filter_map(event).collect()
}

/// Returns the incarnation with what its init reported of the program's start.
pub fn with_processes(run: Incarnation, started: Started) -> Incarnation {
    let unenforced = run.unenforced.iter().cloned().chain(started.unenforced).collect();
    Incarnation { init: Some(started.init), agent: Some(started.agent), unenforced, ..run }
}

/// The event of an incarnation's resource use, if it is news.
#[must_use]
pub fn account_reported(pool: &Pool, tag: Tag, account: Account) -> Option<Event> {
    let session = pool.tagged(tag).filter(|s| s.is_run(tag))?;
    (session.account != Some(account)).then_some(Event::SessionAccounted(session.id, account))
}

/// True if an event still holds, although other operations act on its session.
fn holds(pool: &Pool, volatile: &Volatile, event: &Event, times: (Moment, Timestamp)) -> bool {
    match event {
        Event::SessionRenamed { session, .. } => may_be_renamed(volatile, *session, times.0),
        Event::SessionStopped { session, exit, .. } if may_be_older(pool, *session, *exit, times) => false,
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

/// The session that an event declares missing.
fn newly_missing(event: &Event) -> Option<SessionId> {
    match event {
        Event::SessionDraining { session, missing_since: Some(_), .. } => Some(*session),
        _ => None,
    }
}

/// The session that the last client has left, if the event says so.
fn left_unattended(pool: &Pool, event: &Event) -> Option<SessionId> {
    match event {
        Event::SessionObserved { session, attached: 0, .. } => {
            pool.session(*session).filter(|record| record.attached_clients > 0).map(|record| record.id)
        }
        _ => None,
    }
}

/// The incarnation that an event ends.
fn ended_run(pool: &Pool, event: &Event) -> Option<Tag> {
    match event {
        Event::SessionStopped { session, .. } => Some(pool.session(*session)?.incarnation.as_ref()?.tag),
        _ => None,
    }
}

/// True if the observation may date from before the session ran, and so lack its pane. The pane of a program that
/// ended by itself still exists, and would have been seen.
fn may_be_older(pool: &Pool, id: SessionId, exit: Option<Exit>, times: (Moment, Timestamp)) -> bool {
    let by_itself = exit.is_some_and(|exit| !exit.is_hangup());
    let lost = |session: &Session| session.reason.is_some_and(is_loss);
    by_itself && !pool.session(id).is_some_and(lost) && is_younger(pool, id, times)
}

/// True if the session changed after the observation began, or so shortly before it that the change may not
/// show.
fn is_younger(pool: &Pool, id: SessionId, (began, now): (Moment, Timestamp)) -> bool {
    let changed_at = pool.session(id).map(|session| pool.moment(now, session.changed_at));
    changed_at.is_some_and(|at| at.until(began) < REPORT_DELAY_MAX)
}

/// True if the reaper decides on the session's end: it holds a lease, or named survivors and is going to try
/// again.
fn is_at_the_reaper(pool: &Pool, volatile: &Volatile, id: SessionId) -> bool {
    let Some(session) = pool.session(id) else { return false };
    let Some(tag) = session.tag() else { return false };
    let reaping = &volatile.reaping;
    // A session that tmux lost is a candidate only while its init lives.
    let is_named = reaping.has_reaper() && !session.reason.is_some_and(is_loss);
    reaping.is_leased(tag) || (reaping.has_survivors(tag) && is_named)
}

/// True if a name that tmux shows may be taken over: no operation of the pool is at work on the session, and the pool
/// has not renamed it since the observation began.
fn may_be_renamed(volatile: &Volatile, id: SessionId, began: Moment) -> bool {
    volatile.locks.holder(id).is_none_or(|held| held.is_user_lock && held.inside.is_none())
        && volatile.observed.renamed_at(id).is_none_or(|at| at < began)
}

/// True if an operation is starting the session, and will tell the outcome.
fn is_being_started(pool: &Pool, volatile: &Volatile, id: SessionId) -> bool {
    let starting = pool.session(id).is_some_and(|s| s.lifecycle == Lifecycle::Starting);
    starting && volatile.scheduler.is_starting(id)
}

/// Corrects the recorded foreground program by a fresh sample: under load the watcher looks only every half
/// minute.
#[must_use]
pub fn correct_foreground(
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

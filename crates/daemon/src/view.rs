//! What the daemon knows and need not remember: tmux as last seen, who is connected, verdicts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use pool::foreign::{self, Foreign};
use pool::reconcile::{self, Touched};
use protocol::diff::Change;
use protocol::reap::Outcome;
use protocol::tmux::{Means, Server, TmuxState};
use protocol::{Event, Exit, OsBytes, PaneId, ProcId, SessionId, Tag, Timestamp};

use crate::context::Daemon;
use crate::engine::Turn;
use crate::{endings, files, slots, stale};

/// What the daemon knows and need not remember.
pub(crate) struct View {
    /// tmux as last seen.
    pub(crate) state: TmuxState,
    /// When a complete listing was last taken.
    pub(crate) seen_at: Option<Timestamp>,
    /// When the last complete listing of a server that answered began.
    pub(crate) listed_from: Option<Timestamp>,
    /// When anybody last looked, whatever came of it.
    pub(crate) looked_at: Option<Timestamp>,
    /// Whether the watcher must send a snapshot, because the state is not what it sent.
    pub(crate) resync: bool,
    /// How the watcher notices changes.
    pub(crate) means: Option<Means>,
    /// tmux sessions that are not the pool's, once they were seen.
    pub(crate) foreign: Option<Foreign>,
    /// Panes that somebody adopts right now, or could not adopt a moment ago.
    pub(crate) adopting: BTreeSet<PaneId>,
    /// When the pool itself last renamed a session.
    pub(crate) renamed_at: HashMap<SessionId, Timestamp>,
    /// Whether no complete observation was taken in since the start.
    pub(crate) first: bool,
    /// The watcher that is connected.
    pub(crate) watcher: Option<Peer>,
    /// Since when there is, or is no, watcher.
    pub(crate) watcher_since: Timestamp,
    /// Reapers that are connected, by connection.
    pub(crate) reapers: BTreeMap<u64, Peer>,
    /// Since when there is, or is no, reaper.
    pub(crate) reaper_since: Timestamp,
    /// Snapshots that were asked of the watcher, and answered.
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// The newest verdict on each incarnation that is being ended.
    pub(crate) verdicts: HashMap<Tag, Outcome>,
    /// Grace that a user asked for, by incarnation.
    pub(crate) graces: HashMap<Tag, u64>,
    /// Candidates that a reaper has leased, each with its connection.
    pub(crate) leased: BTreeMap<Tag, u64>,
    /// Sessions that somebody types into right now.
    pub(crate) typing: BTreeSet<SessionId>,
    /// Sessions in whose terminals a prompt is being put right now: between the record of that and of what came of it.
    pub(crate) pasting: BTreeSet<SessionId>,
    /// Sessions that somebody starts right now.
    pub(crate) starting: BTreeSet<SessionId>,
    /// Whether the daemon is ending: nothing new is typed.
    pub(crate) ending: bool,
    /// Since when programs have written nothing, and when that was looked at.
    pub(crate) quiet: (Option<Timestamp>, BTreeMap<SessionId, Timestamp>),
    /// When incarnations were last given a message.
    pub(crate) worked: BTreeMap<Tag, Timestamp>,
    /// Incarnations that somebody spoke to by hand.
    pub(crate) touched: BTreeSet<Tag>,
    /// Sessions that have had their turn, where others wait.
    pub(crate) yields: BTreeSet<SessionId>,
    /// Incarnations that are put aside, as long as it is not seen that nobody is attached.
    pub(crate) guarded: BTreeSet<Tag>,
    /// What the slots remember.
    pub(crate) slots: slots::Memory,
    /// Sessions that have worked off what they had, and are still.
    pub(crate) drained: BTreeSet<SessionId>,
    /// Whether what was lost when the daemon started has been seen to, where that is to be done.
    pub(crate) restored: bool,
    /// Sessions that are removed by themselves right now.
    pub(crate) removing: BTreeSet<SessionId>,
}

/// A connected component.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) connection: u64,
    pub(crate) build: String,
    pub(crate) pid: Option<u32>,
}

impl View {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            state: TmuxState { server: Server::unknown("not looked at yet"), ..TmuxState::default() },
            seen_at: None,
            listed_from: None,
            looked_at: None,
            resync: false,
            means: None,
            foreign: None,
            adopting: BTreeSet::new(),
            renamed_at: HashMap::new(),
            first: true,
            watcher: None,
            watcher_since: now,
            reapers: BTreeMap::new(),
            reaper_since: now,
            asked: 0,
            answered: 0,
            verdicts: HashMap::new(),
            graces: HashMap::new(),
            leased: BTreeMap::new(),
            typing: BTreeSet::new(),
            pasting: BTreeSet::new(),
            starting: BTreeSet::new(),
            ending: false,
            quiet: (None, BTreeMap::new()),
            worked: BTreeMap::new(),
            touched: BTreeSet::new(),
            yields: BTreeSet::new(),
            guarded: BTreeSet::new(),
            slots: slots::Memory::default(),
            drained: BTreeSet::new(),
            restored: false,
            removing: BTreeSet::new(),
        }
    }
}

/// Processes of these incarnations that are proved to have ended.
pub(crate) fn exited<'a>(runs: impl Iterator<Item = ProcId> + 'a) -> BTreeSet<ProcId> {
    // A process that cannot be looked at is not proved to have ended.
    runs.filter(|id| process::identity::exited(*id).unwrap_or(false)).collect()
}

/// An observation, as it comes to the engine.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) look: Look,
    /// Whether the whole server was looked at.
    pub(crate) complete: bool,
    /// How long ago the look began.
    pub(crate) age: Duration,
}

/// What was seen.
#[derive(Debug, Clone)]
pub(crate) enum Look {
    Whole(TmuxState),
    Changes(Vec<Change>),
    Same,
    Alive,
}

impl Seen {
    /// The daemon's own look, or a watcher's snapshot.
    pub(crate) fn whole(state: TmuxState, age: Duration) -> Self {
        Self { look: Look::Whole(state), complete: true, age }
    }
}

/// Takes an observation in. Answers whether another look has to follow soon: something is missing, and what became of it
/// is not proved yet.
pub(crate) fn observe(turn: &mut Turn<'_>, run: &Path, seen: Seen) -> bool {
    turn.show(&seen);
    let mut state = std::mem::take(&mut turn.rest.view.state);
    let complete = seen.complete && !matches!(seen.look, Look::Alive);
    let only = match &seen.look {
        _ if complete => None,
        Look::Changes(changes) => reconcile::touched(turn.pool(), &state, changes),
        // Of nothing that a listing does not prove anything follows.
        Look::Alive | Look::Same | Look::Whole(_) => Some(Touched::default()),
    };
    let differs = take(&mut state, seen.look);
    let mut events = facts(turn, run, (&state, only.as_ref()), seen.age);
    let began = began(turn, seen.age);
    let missing = events.iter().any(|event| went_missing(event).is_some());
    events.retain(|event| went_missing(event).is_none_or(|id| !is_younger(turn, id, began)));
    let over = over(turn, &events);
    turn.emit_all(events);
    over.into_iter().for_each(|tag| files::forget(run, tag));
    if differs || complete || turn.rest.view.foreign.is_none() {
        note_foreign(turn, &state);
    }
    let now = turn.now();
    let view = &mut turn.rest.view;
    if complete && !matches!(state.server, Server::Unknown(_)) {
        view.first = false;
        view.seen_at = Some(now);
        view.listed_from = Some(began);
    }
    view.looked_at = Some(now);
    view.state = state;
    // What drains becomes a candidate by the passing of time too, of which no event tells.
    let drains = turn.pool().sessions().any(|s| s.lifecycle == protocol::Lifecycle::Draining);
    if differs || drains {
        turn.stir();
    }
    missing
}

/// The session that was not seen where it has to be.
fn went_missing(event: &Event) -> Option<SessionId> {
    match event {
        Event::SessionDraining { session, missing_since: Some(_), .. } => Some(*session),
        _ => None,
    }
}

/// The incarnations that are over by these.
fn over(turn: &Turn<'_>, events: &[Event]) -> Vec<Tag> {
    let stopped = |event: &Event| match event {
        Event::SessionStopped { session, .. } => {
            Some(turn.pool().session(*session)?.incarnation.as_ref()?.tag)
        }
        _ => None,
    };
    events.iter().filter_map(stopped).collect()
}

/// Whether it makes a difference.
fn take(state: &mut TmuxState, look: Look) -> bool {
    match look {
        Look::Whole(whole) => {
            let differs = *state != whole;
            *state = whole;
            differs
        }
        Look::Changes(changes) => {
            let differs = !changes.is_empty();
            changes.into_iter().for_each(|change| state.apply(change));
            differs
        }
        Look::Same | Look::Alive => false,
    }
}

/// What follows from an observation, with what its processes and their inits say.
fn facts(
    turn: &Turn<'_>,
    run: &Path,
    (state, only): (&TmuxState, Option<&Touched>),
    age: Duration,
) -> Vec<Event> {
    let pool = turn.pool();
    let (ids, tags): (Vec<_>, Vec<_>) = reconcile::suspects(pool, state, only)
        .map(|i| ([i.init, i.agent, i.server.map(|s| s.process)], endings::has_ended(i).then_some(i.tag)))
        .unzip();
    let processes = ids.into_iter().flatten().flatten();
    let server = pool.server().filter(|server| state.server != Server::Up(*server));
    let exited = exited(processes.chain(server.map(|s| s.process)));
    let exits: BTreeMap<Tag, Exit> =
        tags.into_iter().flatten().filter_map(|tag| Some((tag, files::read_exit(run, tag)?.0))).collect();
    let began = began(turn, age);
    let first = turn.rest.view.first;
    let seen =
        reconcile::Evidence { state, now: turn.now(), began, exited: &exited, exits: &exits, first, only };
    let mut events = reconcile::reconcile(pool, &seen);
    events.extend(exits.keys().filter_map(|tag| endings::account(pool, run, *tag)));
    events.retain(|event| match event {
        Event::SessionRenamed { session, .. } => may_be_renamed(turn, *session, began),
        Event::SessionStopped { session, exit, .. } if may_be_older(turn, *session, *exit, began) => false,
        Event::SessionStopped { session, .. }
        | Event::SessionParked { session, .. }
        | Event::SessionLost { session, .. }
            if is_at_the_reaper(turn, *session) =>
        {
            false
        }
        event => !event.session().is_some_and(|id| is_being_started(turn, id)),
    });
    events
}

/// How long an observation may be on its way, unnoticed, on a busy machine.
pub(crate) const ON_THE_WAY: Duration = Duration::from_millis(250);
/// The signal of a closed terminal.
const HANG_UP: i32 = 1;

/// Whether the look may be of before the session ran. A program that ended by itself just now has left its pane,
/// which is still to be seen.
fn may_be_older(turn: &Turn<'_>, id: SessionId, exit: Option<Exit>, began: Timestamp) -> bool {
    let by_itself = exit.is_some_and(|exit| exit.signal != Some(HANG_UP));
    let lost = |s: &protocol::Session| s.reason.is_some_and(reconcile::is_loss);
    by_itself && !turn.pool().session(id).is_some_and(lost) && is_younger(turn, id, began)
}

/// Whether the session changed after the look began, or so shortly before that it may have.
fn is_younger(turn: &Turn<'_>, id: SessionId, began: Timestamp) -> bool {
    turn.pool().session(id).is_some_and(|session| turn.pool().age(began, session.changed_at) < ON_THE_WAY)
}

/// The correction of a session's record, where another program is in front of its terminal now: under load the watcher
/// looks only every half minute.
pub(crate) fn in_front(
    turn: &Turn<'_>,
    (session, tag): (SessionId, Tag),
    command: &OsBytes,
) -> Option<Event> {
    let record = turn.pool().session(session)?;
    let run = record.incarnation.as_ref().filter(|run| run.tag == tag)?;
    (record.current_command.as_ref() != Some(command)).then(|| Event::SessionObserved {
        session,
        at: turn.now(),
        dead: run.dead,
        attached: record.attached_clients,
        current_command: Some(command.clone()),
    })
}

/// Whether the reaper says when it is over: it is at it, or named what is left of it and is going to try again.
fn is_at_the_reaper(turn: &Turn<'_>, id: SessionId) -> bool {
    let Some(session) = turn.pool().session(id) else { return false };
    let Some(tag) = session.incarnation.as_ref().map(|run| run.tag) else { return false };
    let view = &turn.rest.view;
    // What tmux took away is named as long as its init lives, and no longer.
    let named = !view.reapers.is_empty() && !session.reason.is_some_and(reconcile::is_loss);
    let left = matches!(view.verdicts.get(&tag), Some(Outcome::Survivors { .. }));
    view.leased.contains_key(&tag) || (left && named)
}

/// When a look of this age began.
fn began(turn: &Turn<'_>, age: Duration) -> Timestamp {
    Timestamp(turn.now().0.saturating_sub(protocol::time::millis(age)))
}

/// Not while the pool itself renames it, nor by what was seen before it had.
fn may_be_renamed(turn: &Turn<'_>, id: SessionId, began: Timestamp) -> bool {
    let renamed_at = turn.rest.view.renamed_at.get(&id);
    turn.rest.locks.holder(id).is_none_or(|held| held.open && held.inner.is_none())
        && renamed_at.is_none_or(|at| began > *at)
}

/// Reports tmux sessions that are not the pool's. What there was at the start is no news.
fn note_foreign(turn: &mut Turn<'_>, state: &TmuxState) {
    if matches!(state.server, Server::Unknown(_)) {
        return;
    }
    let now = foreign::foreign(turn.pool(), state);
    match turn.rest.view.foreign.replace(now.clone()) {
        Some(before) if before != now => turn.emit_all(foreign::changes(&before, &now)),
        _ => {}
    }
}

/// Whether somebody starts it right now, and will say what came of it.
fn is_being_started(turn: &Turn<'_>, id: SessionId) -> bool {
    let starting = turn.pool().session(id).is_some_and(|s| s.lifecycle == protocol::Lifecycle::Starting);
    starting && turn.rest.view.starting.contains(&id)
}

/// Everything that should be dead now and that nobody is at; not what has to wait because too much was ended lately.
pub(crate) fn candidates(turn: &Turn<'_>, daemon: &Daemon) -> Vec<protocol::reap::Candidate> {
    let settings = daemon.settings();
    let mut found = named(turn, daemon);
    found.retain(|c| pool::stale::is_to_end(turn.pool(), &settings, c));
    found.retain(|c| !stale::is_held_back(turn, &settings, c));
    found
}

/// The same with what is only to be reported, and with what has to wait.
pub(crate) fn named(turn: &Turn<'_>, daemon: &Daemon) -> Vec<protocol::reap::Candidate> {
    let mut found =
        with_stale_facts(turn, daemon, |facts| pool::stale::named(turn.pool(), &daemon.settings(), facts));
    let view = &turn.rest.view;
    found.retain(|c| !view.leased.contains_key(&c.tag) && !view.guarded.contains(&c.tag));
    for candidate in &mut found {
        let by_rule = candidate.rule.and_then(|_| turn.rest.stale.evidence.get(&candidate.tag));
        if let Some(evidence) = by_rule {
            candidate.evidence.clone_from(evidence);
        }
        if let Some(grace) = view.graces.get(&candidate.tag) {
            candidate.grace_ms = *grace;
        }
    }
    found
}

/// Does this with what is known of what is over.
pub(crate) fn with_stale_facts<R>(
    turn: &Turn<'_>,
    daemon: &Daemon,
    with: impl FnOnce(&pool::stale::Facts<'_>) -> R,
) -> R {
    let ending = turn.pool().sessions().filter(|s| s.lifecycle == protocol::Lifecycle::Draining);
    let inits: Vec<ProcId> = ending.filter_map(|s| s.incarnation.as_ref()?.init).collect();
    let view = &turn.rest.view;
    with(&pool::stale::Facts {
        state: &view.state,
        exited: &exited(inits.into_iter()),
        now: turn.now(),
        listed_from: view.listed_from,
        grace_ms: daemon.settings().grace_ms,
        drained: &view.drained,
        strays: &turn.rest.stale.strays,
    })
}

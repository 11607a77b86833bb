//! What the daemon knows and need not remember: tmux as last seen, who is connected, verdicts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use protocol::reap::Outcome;
use protocol::tmux::{Server, TmuxState};
use protocol::{Exit, ProcId, SessionId, Tag, Timestamp};

use crate::context::Daemon;
use crate::engine::Turn;
use crate::files;

/// What the daemon knows and need not remember.
pub(crate) struct View {
    /// tmux as last seen.
    pub(crate) state: TmuxState,
    /// When a complete listing was last taken.
    pub(crate) seen_at: Option<Timestamp>,
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
    /// Sessions that somebody starts right now.
    pub(crate) starting: BTreeSet<SessionId>,
    /// Whether the daemon is ending: nothing new is typed.
    pub(crate) ending: bool,
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
            state: TmuxState {
                server: Server::Unknown("not looked at yet".to_owned()),
                ..TmuxState::default()
            },
            seen_at: None,
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
            starting: BTreeSet::new(),
            ending: false,
        }
    }
}

/// Processes of these incarnations that are proved to have ended.
pub(crate) fn exited<'a>(runs: impl Iterator<Item = ProcId> + 'a) -> BTreeSet<ProcId> {
    // A process that cannot be looked at is not proved to have ended.
    runs.filter(|id| process::identity::exited(*id).unwrap_or(false)).collect()
}

/// Takes an observation in that began this long ago. Answers which sessions it changed.
pub(crate) fn observe(turn: &mut Turn<'_>, run: &Path, state: TmuxState, age: Duration) -> Vec<SessionId> {
    let complete = !matches!(state.server, Server::Unknown(_));
    let (ids, tags): (Vec<_>, Vec<_>) = pool::reconcile::suspects(turn.pool(), &state)
        .map(|i| ([i.init, i.agent, i.server.map(|s| s.process)], i.tag))
        .unzip();
    let processes = ids.into_iter().flatten().flatten().chain(turn.pool().server().map(|s| s.process));
    let exited = exited(processes);
    let exits: BTreeMap<Tag, Exit> =
        tags.into_iter().filter_map(|tag| Some((tag, files::read_exit(run, tag)?.0))).collect();
    let seen = pool::reconcile::Evidence {
        state: &state,
        now: turn.now(),
        began: Timestamp(turn.now().0.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))),
        exited: &exited,
        exits: &exits,
        first: turn.rest.view.first,
    };
    let mut events = pool::reconcile::reconcile(turn.pool(), &seen);
    events.retain(|event| !event.session().is_some_and(|id| is_being_started(turn, id)));
    let mut changed: Vec<SessionId> = events.iter().filter_map(protocol::Event::session).collect();
    changed.dedup();
    turn.emit_all(events);
    let view = &mut turn.rest.view;
    if complete {
        view.first = false;
        view.seen_at = Some(seen.now);
    }
    let differs = view.state != state;
    view.state = state;
    // What drains becomes a candidate by the passing of time too, of which no event tells.
    let drains = turn.pool().sessions().any(|s| s.lifecycle == protocol::Lifecycle::Draining);
    if differs || drains {
        turn.stir();
    }
    changed
}

/// Whether somebody starts it right now, and will say what came of it.
fn is_being_started(turn: &Turn<'_>, id: SessionId) -> bool {
    let starting = turn.pool().session(id).is_some_and(|s| s.lifecycle == protocol::Lifecycle::Starting);
    starting && turn.rest.view.starting.contains(&id)
}

/// Everything that should be dead now and that nobody is at.
pub(crate) fn candidates(turn: &Turn<'_>, daemon: &Daemon) -> Vec<protocol::reap::Candidate> {
    let ending = turn.pool().sessions().filter(|s| s.lifecycle == protocol::Lifecycle::Draining);
    let inits: Vec<ProcId> = ending.filter_map(|s| s.incarnation.as_ref()?.init).collect();
    let view = &turn.rest.view;
    let facts = pool::stale::Facts {
        state: &view.state,
        exited: &exited(inits.into_iter()),
        now: turn.now(),
        grace_ms: daemon.settings().grace_ms,
    };
    let mut found = pool::stale::candidates(turn.pool(), &facts);
    found.retain(|c| !view.leased.contains_key(&c.tag));
    for candidate in &mut found {
        if let Some(grace) = view.graces.get(&candidate.tag) {
            candidate.grace_ms = *grace;
        }
    }
    found
}

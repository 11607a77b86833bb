//! From an observation of tmux to facts. Unknown never removes anything; gone is only what is
//! proved gone: the server is dead, or a complete listing lacks the pane and its process ended, or
//! two complete listings at least [`ABSENCE_PROOF`] apart lack it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::diff::Change;
use protocol::session::Reason;
use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{
    Event, Exit, Incarnation, Lifecycle, Name, PaneId, ProcId, ServerId, Session, SessionId, Tag, Timestamp,
    TmuxSessionId,
};

use crate::pool::{Pool, ended};

/// How far apart two listings must be that together prove an absence.
pub const ABSENCE_PROOF: Duration = Duration::from_secs(1);
/// The signal of a closed terminal, of the same number everywhere.
const SIGHUP: i32 = 1;
/// The one that nothing can withstand, likewise.
const SIGKILL: i32 = 9;

/// An observation and what else was learnt with it.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// tmux as seen.
    pub state: &'a TmuxState,
    /// When it was over.
    pub now: Timestamp,
    /// When it began: what came after that may be missing in it.
    pub began: Timestamp,
    /// Processes of the records that are proved to have ended.
    pub exited: &'a BTreeSet<ProcId>,
    /// How programs ended, as far as their inits wrote it.
    pub exits: &'a BTreeMap<Tag, Exit>,
    /// Whether it is the first complete observation since the daemon started.
    pub first: bool,
    /// What was looked at, where that is not the whole server: nothing follows for anything else.
    pub only: Option<&'a Touched>,
}

/// What a diff is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touched {
    /// Sessions of the pool.
    pub sessions: BTreeSet<SessionId>,
    /// tmux sessions that were read.
    pub tmux: BTreeSet<TmuxSessionId>,
}

/// What these changes of `before` are about; `None` where it is everything.
#[must_use]
pub fn touched(pool: &Pool, before: &TmuxState, changes: &[Change]) -> Option<Touched> {
    let mut touched = Touched::default();
    let mut tags: BTreeSet<Tag> = BTreeSet::new();
    for change in changes {
        match change {
            Change::Server(_) => return None,
            Change::Session(id, _) | Change::SessionGone(id) => {
                touched.tmux.insert(*id);
            }
            Change::Pane(id, pane) => {
                tags.extend(pane.tag.into_iter().chain(before.panes.get(id).and_then(|pane| pane.tag)));
            }
            Change::PaneGone(id) => tags.extend(before.panes.get(id).and_then(|pane| pane.tag)),
        }
    }
    if !touched.tmux.is_empty() {
        let shown = before.panes.values().filter(|pane| touched.tmux.contains(&pane.session));
        tags.extend(shown.filter_map(|pane| pane.tag));
    }
    touched.sessions = tags.into_iter().filter_map(|tag| Some(pool.tagged(tag)?.id)).collect();
    Some(touched)
}

/// The incarnations that an observation does not simply confirm: the shell looks whether their
/// processes live and whether their programs' ends were recorded.
pub fn suspects<'a>(
    pool: &'a Pool,
    state: &'a TmuxState,
    only: Option<&'a Touched>,
) -> impl Iterator<Item = &'a Incarnation> {
    let confirmed = |run: &Incarnation| pane_of(state, run).is_some_and(|(_, pane)| !pane.is_over());
    running(pool, only)
        .filter(move |(s, run)| s.lifecycle != Lifecycle::Live || !confirmed(run))
        .map(|(_, run)| run)
}

/// The sessions that hold a slot, as far as they were looked at.
fn running<'a>(
    pool: &'a Pool,
    only: Option<&'a Touched>,
) -> impl Iterator<Item = (&'a Session, &'a Incarnation)> {
    let all = only.is_none().then(|| pool.sessions()).into_iter().flatten();
    let some = only.into_iter().flat_map(|only| &only.sessions).filter_map(|id| pool.session(*id));
    all.chain(some).filter(|s| s.lifecycle.holds_slot()).filter_map(|s| Some((s, s.incarnation.as_ref()?)))
}

/// The pane with the incarnation's tag: usually where it was seen before.
fn pane_of<'a>(state: &'a TmuxState, run: &Incarnation) -> Option<(PaneId, &'a TmuxPane)> {
    let is_its = |pane: &TmuxPane| pane.tag == Some(run.tag);
    let known = run.pane.and_then(|id| Some((id, state.panes.get(&id)?))).filter(|(_, pane)| is_its(pane));
    known.or_else(|| state.panes.iter().find(|(_, pane)| is_its(pane)).map(|(id, pane)| (*id, pane)))
}

/// What follows from an observation.
#[must_use]
pub fn reconcile(pool: &Pool, seen: &Evidence<'_>) -> Vec<Event> {
    let server = match &seen.state.server {
        Server::Unknown(_) => return Vec::new(),
        Server::Absent => None,
        Server::Up(server) => Some(*server),
    };
    let mut events = server_events(pool, seen, server);
    let mut given: BTreeSet<TmuxSessionId> = BTreeSet::new();
    for (session, incarnation) in running(pool, seen.only) {
        let case = Case { pool, session, incarnation, seen };
        match (server, pane_of(seen.state, incarnation)) {
            (Some(server), Some((id, pane))) => {
                events.extend(case.present(server, id, pane));
                // The name of a tmux session that shows several of ours is that of the first.
                if given.insert(pane.session) {
                    events.extend(case.renamed(pool, pane));
                }
            }
            (Some(server), None) => events.extend(case.absent(server)),
            (None, _) => events.extend(case.server_silent()),
        }
    }
    events
}

fn server_events(pool: &Pool, seen: &Evidence<'_>, server: Option<ServerId>) -> Vec<Event> {
    let dead = pool.server().is_some_and(|s| seen.exited.contains(&s.process));
    let changed = pool.server() != server && (server.is_some() || dead);
    if changed { vec![Event::TmuxServerChanged { server }] } else { Vec::new() }
}

/// Whether a session that ends for this reason was lost, rather than ended.
#[must_use]
pub fn is_loss(reason: Reason) -> bool {
    matches!(reason, Reason::ServerGone | Reason::TmuxGone | Reason::StartupMissingTmux)
}

/// Whether a program that was seen to end was ended by tmux, as is known once its pane is gone: the pane
/// of one that ends by itself remains. An adopted one's may not; but tmux ends programs by hanging up.
#[must_use]
pub fn ended_by_tmux(session: &Session) -> bool {
    let Some(run) = &session.incarnation else { return false };
    let hung_up = session.exit.and_then(|exit| exit.signal) == Some(SIGHUP);
    session.reason == Some(Reason::Exited) && !run.dead && (!run.is_adopted() || hung_up)
}

struct Case<'a> {
    pool: &'a Pool,
    session: &'a Session,
    incarnation: &'a Incarnation,
    seen: &'a Evidence<'a>,
}

impl Case<'_> {
    fn has_exited(&self, process: Option<ProcId>) -> bool {
        process.is_some_and(|p| self.seen.exited.contains(&p))
    }

    fn exit(&self) -> Option<Exit> {
        self.seen.exits.get(&self.incarnation.tag).copied().or(self.session.exit)
    }

    /// The pane is there.
    fn present(&self, server: ServerId, id: PaneId, pane: &TmuxPane) -> Vec<Event> {
        let mut events = Vec::new();
        let found = self.found(server, id, pane);
        let was_missing = self.incarnation.missing_since.is_some();
        let came_back = was_missing && self.session.reason == Some(Reason::TmuxGone);
        let starting = self.session.lifecycle == Lifecycle::Starting;
        let live = self.session.lifecycle == Lifecycle::Live;
        if starting
            || came_back
            || (live && (found != *self.incarnation || (self.seen.first && !self.session.recovered)))
        {
            let recovered = self.session.recovered || (self.seen.first && !starting);
            events.push(Event::SessionLive { session: self.session.id, incarnation: found, recovered });
        }
        events.extend(self.observed(pane));
        if (live || starting || came_back)
            && pane.is_over()
            && (self.exit().is_some() || self.has_exited(self.incarnation.init))
        {
            events.push(self.draining(Reason::Exited, self.exit().or_else(|| self.shown_exit(pane)), None));
        }
        events
    }

    /// How its pane says that it ended. An init ends as its program did, if nobody ends the init itself, which
    /// only KILL can.
    fn shown_exit(&self, pane: &TmuxPane) -> Option<Exit> {
        let told = self.incarnation.is_adopted() || pane.exit_signal != Some(SIGKILL);
        if told { tmux_exit(pane, self.seen.now) } else { None }
    }

    /// tmux shows it under another name, which it can have: somebody renamed it there. What obeys no
    /// rule for names, or is taken, stays tmux's own.
    fn renamed(&self, pool: &Pool, pane: &TmuxPane) -> Option<Event> {
        let was_read = self.seen.only.is_none_or(|only| only.tmux.contains(&pane.session));
        let shown = &self.seen.state.sessions.get(&pane.session)?.name;
        if !was_read || shown == self.session.name.as_str() || self.session.lifecycle == Lifecycle::Starting {
            return None;
        }
        let name: Name = shown.parse().ok()?;
        let free = pool.named(shown).is_none_or(|other| other.id == self.session.id);
        free.then_some(Event::SessionRenamed { session: self.session.id, name })
    }

    /// The incarnation with what the listing adds to it.
    fn found(&self, server: ServerId, id: PaneId, pane: &TmuxPane) -> Incarnation {
        Incarnation {
            server: Some(server),
            session: Some(pane.session),
            pane: Some(id),
            init: self.incarnation.init.or(pane.process),
            missing_since: None,
            dead: pane.dead,
            ..self.incarnation.clone()
        }
    }

    /// What changes often, only where it changed.
    fn observed(&self, pane: &TmuxPane) -> Option<Event> {
        let attached = self.seen.state.sessions.get(&pane.session).map_or(0, |s| s.attached);
        let same = self.incarnation.dead == pane.dead
            && self.session.attached_clients == attached
            && self.session.current_command == pane.current_command
            && self.session.verified_at.is_some();
        (!same).then(|| Event::SessionObserved {
            session: self.session.id,
            at: self.seen.now,
            dead: pane.dead,
            attached,
            current_command: pane.current_command.clone(),
        })
    }

    /// A complete listing of a living server lacks it.
    fn absent(&self, server: ServerId) -> Option<Event> {
        match self.incarnation.server {
            // Its creation, or adoption, is not over; whoever is at it finds out.
            None => None,
            Some(known) if known == server && self.session.lifecycle == Lifecycle::Starting => None,
            Some(known) if known != server && !self.has_exited(Some(known.process)) => None,
            Some(known) if known != server => self.lost(),
            // It may have been made while the listing was taken.
            Some(_) if !self.pool.is_earlier(self.seen.now, self.session.changed_at, self.seen.began) => None,
            Some(_) => self.vanished(),
        }
    }

    fn vanished(&self) -> Option<Event> {
        let reason = self.absence_reason();
        let ended = self.has_exited(self.incarnation.init);
        match self.incarnation.missing_since {
            _ if ended => Some(self.stopped(reason)),
            None => Some(self.draining(reason, self.exit(), Some(self.seen.now))),
            // What is known to live keeps the slot: the reaper ends it.
            Some(_) if self.incarnation.init.is_some() => None,
            Some(since) if self.proves_absence(since) => Some(self.stopped(reason)),
            Some(_) => None,
        }
    }

    /// The whole server was looked at, long enough after it was first missed.
    fn proves_absence(&self, since: Timestamp) -> bool {
        self.seen.only.is_none() && self.pool.age(self.seen.began, since) >= ABSENCE_PROOF
    }

    /// Why it is absent: what was under way, else that tmux lost it.
    fn absence_reason(&self) -> Reason {
        match (self.session.lifecycle, self.session.reason) {
            (Lifecycle::Draining, Some(reason)) if !ended_by_tmux(self.session) => reason,
            _ if self.seen.first => Reason::StartupMissingTmux,
            _ => Reason::TmuxGone,
        }
    }

    /// Nothing listens at the socket: proof only where the server's process ended.
    fn server_silent(&self) -> Option<Event> {
        let server = self.incarnation.server?;
        if self.has_exited(Some(server.process)) { self.lost() } else { None }
    }

    /// Its server is dead. What is known to live keeps the slot: the reaper ends it first.
    fn lost(&self) -> Option<Event> {
        let (session, exit) = (self.session.id, self.exit());
        let alive = self.incarnation.init.is_some() && !self.has_exited(self.incarnation.init);
        match (self.session.lifecycle, self.session.reason) {
            (Lifecycle::Draining, _) if alive => None,
            (Lifecycle::Draining, Some(reason)) if !is_loss(reason) && !ended_by_tmux(self.session) => {
                Some(ended(session, reason, exit))
            }
            _ if alive => Some(self.draining(Reason::ServerGone, exit, Some(self.seen.now))),
            _ => Some(Event::SessionLost { session, reason: Reason::ServerGone, exit }),
        }
    }

    fn draining(&self, reason: Reason, exit: Option<Exit>, missing_since: Option<Timestamp>) -> Event {
        Event::SessionDraining { session: self.session.id, reason, exit, missing_since }
    }

    fn stopped(&self, reason: Reason) -> Event {
        ended(self.session.id, reason, self.exit())
    }
}

/// How tmux says that it ended, where no init wrote it.
fn tmux_exit(pane: &TmuxPane, at: Timestamp) -> Option<Exit> {
    let code = pane.exit_status.filter(|_| pane.exit_signal.is_none());
    pane.has_exit_status().then_some(Exit { code, signal: pane.exit_signal, at })
}

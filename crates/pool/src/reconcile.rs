//! From an observation of tmux to facts. Unknown never removes anything; gone is only what is
//! proved gone: the server is dead, or a complete listing lacks the pane and its process ended, or
//! two complete listings at least [`ABSENCE_PROOF`] apart lack it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::session::Reason;
use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{Event, Exit, Incarnation, Lifecycle, PaneId, ProcId, ServerId, Session, Tag, Timestamp};

use crate::pool::Pool;

/// How far apart two listings must be that together prove an absence.
pub const ABSENCE_PROOF: Duration = Duration::from_secs(1);

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
}

/// The incarnations that an observation does not simply confirm: the shell looks whether their
/// processes live and whether their programs' ends were recorded.
pub fn suspects<'a>(pool: &'a Pool, state: &'a TmuxState) -> impl Iterator<Item = &'a Incarnation> {
    let tags: BTreeSet<Tag> =
        state.panes.values().filter(|pane| !pane.dead).filter_map(|pane| pane.tag).collect();
    let running = pool.sessions().filter(|s| s.lifecycle.holds_slot());
    running
        .filter_map(|s| Some((s, s.incarnation.as_ref()?)))
        .filter(move |(s, run)| s.lifecycle != Lifecycle::Live || !tags.contains(&run.tag))
        .map(|(_, run)| run)
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
    let by_tag: BTreeMap<Tag, (PaneId, &TmuxPane)> =
        seen.state.panes.iter().filter_map(|(id, pane)| Some((pane.tag?, (*id, pane)))).collect();
    for session in pool.sessions().filter(|s| s.lifecycle.holds_slot()) {
        let Some(incarnation) = &session.incarnation else { continue };
        let case = Case { session, incarnation, seen };
        match (server, by_tag.get(&incarnation.tag)) {
            (Some(server), Some((id, pane))) => events.extend(case.present(server, *id, pane)),
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

struct Case<'a> {
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
            && pane.dead
            && (self.exit().is_some() || self.has_exited(self.incarnation.init))
        {
            events.push(self.draining(
                Reason::Exited,
                self.exit().or_else(|| tmux_exit(pane, self.seen.now)),
                None,
            ));
        }
        events
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
            // Its creation is not over; whoever creates it finds out.
            None => None,
            Some(known) if known != server && !self.has_exited(Some(known.process)) => None,
            Some(known) if known != server => self.lost(),
            // It may have been made while the listing was taken.
            Some(_) if self.seen.began <= self.session.changed_at => None,
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
            Some(since) if self.seen.now.since(since) >= ABSENCE_PROOF => Some(self.stopped(reason)),
            Some(_) => None,
        }
    }

    /// Why it is absent: what was under way, else that tmux lost it.
    fn absence_reason(&self) -> Reason {
        match (self.session.lifecycle, self.session.reason) {
            (Lifecycle::Draining, Some(reason)) => reason,
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
            (Lifecycle::Draining, Some(reason)) if !is_loss(reason) => {
                Some(Event::SessionStopped { session, reason, exit })
            }
            _ if alive => Some(self.draining(Reason::ServerGone, exit, Some(self.seen.now))),
            _ => Some(Event::SessionLost { session, reason: Reason::ServerGone, exit }),
        }
    }

    fn draining(&self, reason: Reason, exit: Option<Exit>, missing_since: Option<Timestamp>) -> Event {
        Event::SessionDraining { session: self.session.id, reason, exit, missing_since }
    }

    fn stopped(&self, reason: Reason) -> Event {
        Event::SessionStopped { session: self.session.id, reason, exit: self.exit() }
    }
}

/// How tmux says that it ended, where no init wrote it.
fn tmux_exit(pane: &TmuxPane, at: Timestamp) -> Option<Exit> {
    let known = pane.exit_status.is_some() || pane.exit_signal.is_some();
    let code = pane.exit_status.filter(|_| pane.exit_signal.is_none());
    known.then_some(Exit { code, signal: pane.exit_signal, at })
}

//! From an observation of tmux to events. Unknown removes nothing. A session is gone only by proof: its
//! server is dead, or a complete listing lacks its pane and its init and program ended, or two complete
//! listings at least [`ABSENCE_PROOF`] apart lack it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::diff::Change;
use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{
    Event, Exit, Incarnation, Lifecycle, Name, PaneId, ProcId, Reason, ServerId, Session, SessionId, Tag,
    Timestamp, TmuxSessionId,
};

use crate::clock::Moment;
use crate::pool::Pool;
use crate::session::drain_progress::{is_cut_off, is_drain_unfinished};
use crate::session::lifecycle::{is_loss, run_ended};

/// Minimum time between two listings that together prove an absence.
pub const ABSENCE_PROOF: Duration = Duration::from_secs(1);

/// The signal that no process can catch; its number is the same on all systems.
const SIGKILL: i32 = 9;

/// An observation of tmux, with samples of processes.
#[derive(Debug)]
pub struct Observation<'a> {
    /// The observed state of tmux.
    pub state: &'a TmuxState,
    /// Time of its end.
    pub now: Timestamp,
    /// Its beginning: later changes may be missing in it.
    pub began: Moment,
    /// Processes of records that are proved to have ended.
    pub exited: &'a BTreeSet<ProcId>,
    /// Exits of programs, as their inits reported them.
    pub exits: &'a BTreeMap<Tag, Exit>,
    /// True for the first complete observation since the start of `poold`.
    pub first: bool,
    /// Draining sessions that were seen at rest, and are being ended.
    pub drained: &'a BTreeSet<SessionId>,
    /// The part of the server that was observed, and to which all conclusions are limited; none for the whole server.
    pub only: Option<&'a DiffScope>,
}

/// The part of a server that a diff is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiffScope {
    /// Sessions of the pool.
    pub sessions: BTreeSet<SessionId>,
    /// tmux sessions.
    pub tmux: BTreeSet<TmuxSessionId>,
}

/// The scope of these changes of `before`; none if they concern the whole server.
pub fn diff_scope(pool: &Pool, before: &TmuxState, changes: &[Change]) -> Option<DiffScope> {
    let mut touched = DiffScope::default();
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

/// The incarnations whose processes and reports have to be sampled: those that the observation does not show alive,
/// and those whose launch was left in doubt, so that the program's process is not on record.
pub fn unconfirmed_runs<'a>(
    pool: &'a Pool,
    state: &'a TmuxState,
    only: Option<&'a DiffScope>,
) -> impl Iterator<Item = &'a Incarnation> {
    let confirmed = |run: &Incarnation| pane_of(state, run).is_some_and(|(_, pane)| !pane.is_over());
    running(pool, only)
        .filter(move |(s, run)| s.lifecycle != Lifecycle::Live || !confirmed(run) || run.agent.is_none())
        .map(|(_, run)| run)
}

/// The sessions that hold a slot, within the scope.
fn running<'a>(
    pool: &'a Pool,
    only: Option<&'a DiffScope>,
) -> impl Iterator<Item = (&'a Session, &'a Incarnation)> {
    let all = only.is_none().then(|| pool.sessions()).into_iter().flatten();
    let some = only.into_iter().flat_map(|only| &only.sessions).filter_map(|id| pool.session(*id));
    all.chain(some).filter(|s| s.lifecycle.holds_slot()).filter_map(|s| Some((s, s.incarnation.as_ref()?)))
}

/// The pane with the incarnation's tag; first looked for where it was seen before.
fn pane_of<'a>(state: &'a TmuxState, run: &Incarnation) -> Option<(PaneId, &'a TmuxPane)> {
    let is_its = |pane: &TmuxPane| pane.tag == Some(run.tag);
    let known = run.pane.and_then(|id| Some((id, state.panes.get(&id)?))).filter(|(_, pane)| is_its(pane));
    known.or_else(|| state.panes.iter().find(|(_, pane)| is_its(pane)).map(|(id, pane)| (*id, pane)))
}

/// Decides on the events that follow from an observation.
#[must_use]
pub fn reconcile(pool: &Pool, observation: &Observation<'_>) -> Vec<Event> {
    let server = match &observation.state.server {
        Server::Unknown(_) => return Vec::new(),
        Server::Absent => None,
        Server::Up(server) => Some(*server),
    };
    let mut events = server_events(pool, observation, server);
    for (session, incarnation) in running(pool, observation.only) {
        let case = Case { pool, session, incarnation, observation };
        match (server, pane_of(observation.state, incarnation)) {
            (Some(server), Some((id, pane))) => {
                events.extend(case.present(server, id, pane));
                events.extend(case.renamed(pool, pane));
            }
            (Some(server), None) => events.extend(case.absent(server)),
            (None, _) => events.extend(case.server_silent()),
        }
    }
    events
}

fn server_events(pool: &Pool, observation: &Observation<'_>, server: Option<ServerId>) -> Vec<Event> {
    let dead = pool.server().is_some_and(|s| observation.exited.contains(&s.process));
    let changed = pool.server() != server && (server.is_some() || dead);
    if changed { vec![Event::TmuxServerChanged { server }] } else { Vec::new() }
}

/// True if tmux ended a program whose end was observed. The missing pane shows it: the pane of a program that ends by
/// itself remains. The pane of an adopted program may always close, so there only a hang-up counts, by which tmux ends
/// programs.
pub fn ended_by_tmux(session: &Session) -> bool {
    let Some(run) = &session.incarnation else { return false };
    let hung_up = session.exit.is_some_and(|exit| exit.is_hangup());
    session.reason == Some(Reason::Exited) && !run.dead && (!run.is_adopted() || hung_up)
}

/// True if the init or the program of an incarnation is not proved to have ended.
pub(crate) fn runs_on(run: &Incarnation, exited: &BTreeSet<ProcId>) -> bool {
    run.init.into_iter().chain(run.agent).any(|process| !exited.contains(&process))
}

/// True if the end of the init and of the program of an incarnation is proved.
pub(crate) fn has_ended(run: &Incarnation, exited: &BTreeSet<ProcId>) -> bool {
    run.init.is_some() && !runs_on(run, exited)
}

struct Case<'a> {
    pool: &'a Pool,
    session: &'a Session,
    incarnation: &'a Incarnation,
    observation: &'a Observation<'a>,
}

impl Case<'_> {
    /// True if a known process of the incarnation is not proved to have ended. A program that ignores signals may
    /// outlive its init, if another program killed the init.
    fn runs_on(&self) -> bool {
        runs_on(self.incarnation, self.observation.exited)
    }

    fn has_ended(&self) -> bool {
        has_ended(self.incarnation, self.observation.exited)
    }

    fn has_exited(&self, process: Option<ProcId>) -> bool {
        process.is_some_and(|p| self.observation.exited.contains(&p))
    }

    fn exit(&self) -> Option<Exit> {
        self.observation.exits.get(&self.incarnation.tag).copied().or(self.session.exit)
    }

    /// The pane was observed.
    fn present(&self, server: ServerId, id: PaneId, pane: &TmuxPane) -> Vec<Event> {
        let mut events = Vec::new();
        let found = self.found(server, id, pane);
        let was_missing = self.incarnation.missing_since.is_some();
        let came_back = was_missing && self.session.reason == Some(Reason::TmuxGone);
        let starting = self.session.lifecycle == Lifecycle::Starting;
        let live = self.session.lifecycle == Lifecycle::Live;
        let works_off = is_drain_unfinished(self.pool, self.session);
        if starting
            || came_back
            || (live && (found != *self.incarnation || (self.observation.first && !self.session.recovered)))
        {
            let recovered = self.session.recovered || (self.observation.first && !starting);
            events.push(Event::SessionLive { session: self.session.id, incarnation: found, recovered });
        }
        events.extend(self.observed(pane));
        if (live || starting || came_back || works_off)
            && pane.is_over()
            && (self.exit().is_some() || self.has_exited(self.incarnation.init))
        {
            events.push(self.draining(Reason::Exited, self.exit().or_else(|| self.shown_exit(pane)), None));
        }
        events
    }

    /// The exit that the pane shows. An init exits as its program did, unless the init itself is ended, which
    /// only KILL can do.
    fn shown_exit(&self, pane: &TmuxPane) -> Option<Exit> {
        let told = self.incarnation.is_adopted() || pane.exit_signal != Some(SIGKILL);
        if told { tmux_exit(pane, self.observation.now) } else { None }
    }

    /// Takes over the name of the tmux session that was made for this incarnation, if the name is valid and free: a
    /// person renamed it, or a renaming by the pool was interrupted. Two names are not taken over: that of another
    /// tmux session into which the pane was moved, and that of an adopted session which got another name in the pool.
    fn renamed(&self, pool: &Pool, pane: &TmuxPane) -> Option<Event> {
        let was_read = self.observation.only.is_none_or(|only| only.tmux.contains(&pane.session));
        let tmux = self.observation.state.sessions.get(&pane.session)?;
        let shown = &tmux.name;
        if !was_read
            || tmux.made_for != Some(self.incarnation.tag)
            || (self.incarnation.is_adopted() && !tmux.renamed && self.session.name == self.session.workspace)
            || shown == self.session.name.as_str()
            || self.session.lifecycle == Lifecycle::Starting
        {
            return None;
        }
        let name: Name = shown.parse().ok()?;
        let free = pool.named(shown).is_none_or(|other| other.id == self.session.id);
        free.then_some(Event::SessionRenamed { session: self.session.id, name })
    }

    /// The incarnation, completed by the listing.
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

    /// Frequently changing properties, if they changed.
    fn observed(&self, pane: &TmuxPane) -> Option<Event> {
        let attached = self.observation.state.sessions.get(&pane.session).map_or(0, |s| s.attached);
        let same = self.incarnation.dead == pane.dead
            && self.session.attached_clients == attached
            && self.session.current_command == pane.current_command
            && self.session.verified_at.is_some();
        (!same).then(|| Event::SessionObserved {
            session: self.session.id,
            at: self.observation.now,
            dead: pane.dead,
            attached,
            current_command: pane.current_command.clone(),
        })
    }

    /// A complete listing of a living server lacks the pane.
    fn absent(&self, server: ServerId) -> Option<Event> {
        match self.incarnation.server {
            None => self.unplaced(self.absence_reason()),
            Some(known) if known == server && self.session.lifecycle == Lifecycle::Starting => None,
            Some(known) if known != server && !self.has_exited(Some(known.process)) => None,
            Some(known) if known != server => self.lost(),
            // The pane may have been created while the listing was taken.
            Some(_) if self.moment(self.session.changed_at) >= self.observation.began => None,
            Some(_) => self.vanished(),
        }
    }

    fn vanished(&self) -> Option<Event> {
        let reason = self.absence_reason();
        match self.incarnation.missing_since {
            _ if self.has_ended() => Some(self.stopped(reason)),
            // Until its end is proved the session only drains: it continues if it is seen again.
            None if self.is_cut_off() => {
                Some(self.draining(Reason::Drained, self.exit(), Some(self.observation.now)))
            }
            None => Some(self.draining(reason, self.exit(), Some(self.observation.now))),
            // An incarnation that is known to live keeps its slot until the reaper has ended it.
            Some(_) if self.runs_on() => None,
            Some(since) if self.proves_absence(since) => Some(self.stopped(reason)),
            Some(_) => None,
        }
    }

    /// True if the whole server was observed, long enough after the pane was first missed.
    fn proves_absence(&self, since: Timestamp) -> bool {
        self.observation.only.is_none() && self.moment(since).until(self.observation.began) >= ABSENCE_PROOF
    }

    fn moment(&self, at: Timestamp) -> Moment {
        self.pool.moment(self.observation.now, at)
    }

    /// True if the end in progress differs from the one on record: tmux ended the session, or it ended before it was
    /// drained.
    fn is_unasked_end(&self) -> bool {
        ended_by_tmux(self.session) || self.is_cut_off()
    }

    /// True if the end in progress cuts off a drain. Only the exit on record counts: a newly seen one may be an effect
    /// of tmux's hang-up, at which many programs end with a code.
    fn is_cut_off(&self) -> bool {
        let is_drained = self.observation.drained.contains(&self.session.id);
        is_cut_off(self.pool, self.session, self.session.exit, is_drained)
    }

    /// The reason for the absence: the end that was under way, else that tmux lost it.
    fn absence_reason(&self) -> Reason {
        match (self.session.lifecycle, self.session.reason) {
            (Lifecycle::Draining, Some(reason)) if !self.is_unasked_end() => reason,
            _ if self.observation.first => Reason::StartupMissingTmux,
            _ => Reason::TmuxGone,
        }
    }

    /// Decides on a session whose server is not known. While its creation or adoption is in progress, nothing follows.
    /// After one that was left in doubt, the end of all its processes proves that the incarnation is over, and the end
    /// of its init that its pane is closed.
    fn unplaced(&self, reason: Reason) -> Option<Event> {
        match self.session.lifecycle {
            Lifecycle::Starting => None,
            _ if self.has_ended() => Some(self.stopped(reason)),
            _ if self.has_exited(self.incarnation.init) && self.incarnation.missing_since.is_none() => {
                Some(self.draining(reason, self.exit(), Some(self.observation.now)))
            }
            _ => None,
        }
    }

    /// Decides on a session whose server's socket does not answer. That proves a loss only if the server's process has
    /// ended.
    fn server_silent(&self) -> Option<Event> {
        let Some(server) = self.incarnation.server else {
            return self.unplaced(self.unseen_reason());
        };
        if self.has_exited(Some(server.process)) { self.lost() } else { None }
    }

    /// Returns the reason for an end if it was not observed whether the pane is gone. An end in progress keeps its
    /// reason. If the init has ended without a hang-up, the program counts as ended by itself; everything else is a
    /// loss.
    fn unseen_reason(&self) -> Reason {
        let has_exited = self.has_exited(self.incarnation.init);
        let is_hung_up = self.exit().is_some_and(|exit| exit.is_hangup());
        match (self.session.lifecycle, self.session.reason) {
            (Lifecycle::Draining, Some(reason)) if !self.is_cut_off() => reason,
            _ if has_exited && !is_hung_up => Reason::Exited,
            _ => self.absence_reason(),
        }
    }

    /// Decides on a session whose server is dead. An incarnation that is known to live keeps its slot until the reaper
    /// has ended it.
    fn lost(&self) -> Option<Event> {
        let (session, exit) = (self.session.id, self.exit());
        let alive = self.runs_on();
        match (self.session.lifecycle, self.session.reason) {
            (Lifecycle::Draining, _) if alive => None,
            (Lifecycle::Draining, Some(reason)) if !is_loss(reason) && !self.is_unasked_end() => {
                Some(run_ended(session, reason, exit))
            }
            _ if alive => Some(self.draining(Reason::ServerGone, exit, Some(self.observation.now))),
            _ => Some(Event::SessionLost { session, reason: Reason::ServerGone, exit }),
        }
    }

    fn draining(&self, reason: Reason, exit: Option<Exit>, missing_since: Option<Timestamp>) -> Event {
        Event::SessionDraining { session: self.session.id, reason, exit, missing_since }
    }

    fn stopped(&self, reason: Reason) -> Event {
        run_ended(self.session.id, reason, self.exit())
    }
}

/// The exit as tmux reports it, for a program whose init reported none.
fn tmux_exit(pane: &TmuxPane, at: Timestamp) -> Option<Exit> {
    let code = pane.exit_status.filter(|_| pane.exit_signal.is_none());
    pane.has_exit_status().then_some(Exit { code, signal: pane.exit_signal, at })
}

//! The model against a simulated server: after any actions, and any timing of answers, it ends with the
//! state of a whole listing, and never reports a live pane or session as gone.

use std::collections::VecDeque;

use std::collections::BTreeSet;

use proptest::prelude::*;
use protocol::diff::Change;
use protocol::tmux::ServerProblem;

use super::*;
use crate::testing::{self, session};

const SERVER: ServerId = ServerId { process: ProcId { pid: 10, start: 5 }, started_at: 99 };

/// Simulated server: sessions show windows, windows have panes.
#[derive(Debug, Default, Clone)]
struct World {
    sessions: BTreeMap<TmuxSessionId, (String, BTreeSet<WindowId>)>,
    windows: BTreeMap<WindowId, BTreeSet<PaneId>>,
    dead: BTreeSet<PaneId>,
    /// True if a pane that joins another window is notified only by the window that closes.
    quiet: bool,
    next: u32,
    notices: Vec<Notice>,
}

/// Actions on the server; the numbers select among the existing objects.
#[derive(Debug, Clone)]
enum Action {
    New,
    Rename(u32),
    Kill(u32),
    NewWindow(u32),
    KillWindow(u32),
    Split(u32),
    MoveWindow(u32, u32),
    Link(u32, u32),
    BreakPane(u32),
    JoinPane(u32, u32),
    SwapPane(u32, u32),
    /// The program of a pane ends, and the pane stays.
    Die(u32),
    /// Number of the watcher's reads that are answered.
    Answer(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let n = || 0..8u32;
    prop_oneof![
        3 => Just(Action::New),
        1 => n().prop_map(Action::Rename),
        2 => n().prop_map(Action::Kill),
        2 => n().prop_map(Action::NewWindow),
        2 => n().prop_map(Action::KillWindow),
        2 => n().prop_map(Action::Split),
        1 => (n(), n()).prop_map(|(a, b)| Action::MoveWindow(a, b)),
        1 => (n(), n()).prop_map(|(a, b)| Action::Link(a, b)),
        1 => n().prop_map(Action::BreakPane),
        2 => (n(), n()).prop_map(|(a, b)| Action::JoinPane(a, b)),
        1 => (n(), n()).prop_map(|(a, b)| Action::SwapPane(a, b)),
        1 => n().prop_map(Action::Die),
        6 => (1..5usize).prop_map(Action::Answer),
    ]
}

impl World {
    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn window(&self, n: u32) -> Option<WindowId> {
        self.windows.keys().copied().nth(n as usize % self.windows.len().max(1))
    }

    fn session(&self, n: u32) -> Option<TmuxSessionId> {
        self.sessions.keys().copied().nth(n as usize % self.sessions.len().max(1))
    }

    fn pane(&self, n: u32) -> Option<(WindowId, PaneId)> {
        let mut all =
            self.windows.iter().flat_map(|(window, panes)| panes.iter().map(|pane| (*window, *pane)));
        let count = self.windows.values().map(BTreeSet::len).sum::<usize>();
        all.nth(n as usize % count.max(1))
    }

    fn make_window(&mut self) -> WindowId {
        let (window, pane) = (WindowId(self.id()), PaneId(self.id()));
        self.windows.insert(window, [pane].into());
        window
    }

    fn apply(&mut self, action: &Action) -> Option<()> {
        match *action {
            Action::New => {
                let (id, window) = (TmuxSessionId(self.id()), self.make_window());
                self.sessions.insert(id, (format!("s{}", id.0), [window].into()));
                self.notices.extend([Notice::Window(window), Notice::Sessions]);
            }
            Action::Rename(n) => {
                let (id, name) = (self.session(n)?, format!("n{}", self.id()));
                self.sessions.get_mut(&id)?.0 = name;
                self.notices.push(Notice::Session(id));
            }
            Action::Kill(n) => {
                let id = self.session(n)?;
                let windows = self.sessions.remove(&id)?.1;
                self.notices.extend(windows.into_iter().map(Notice::Closed));
                self.notices.push(Notice::Sessions);
            }
            Action::NewWindow(n) => {
                let (id, window) = (self.session(n)?, self.make_window());
                self.sessions.get_mut(&id)?.1.insert(window);
                self.notices.push(Notice::Window(window));
            }
            Action::KillWindow(n) => self.windows.get_mut(&self.window(n)?)?.clear(),
            Action::Split(n) => {
                let (window, pane) = (self.window(n)?, PaneId(self.id()));
                self.windows.get_mut(&window)?.insert(pane);
                self.notices.push(Notice::Window(window));
            }
            Action::MoveWindow(n, to) => {
                let (window, to) = (self.window(n)?, self.session(to)?);
                self.sessions.values_mut().for_each(|(_, windows)| windows.retain(|id| *id != window));
                self.sessions.get_mut(&to)?.1.insert(window);
                self.notices.extend([Notice::Closed(window), Notice::Window(window)]);
            }
            Action::Link(n, to) => {
                let (window, to) = (self.window(n)?, self.session(to)?);
                self.sessions.get_mut(&to)?.1.insert(window);
                self.notices.push(Notice::Window(window));
            }
            Action::BreakPane(n) => {
                let (from, pane) = self.pane(n)?;
                let (id, window) = (self.session(n)?, WindowId(self.id()));
                self.windows.get_mut(&from)?.remove(&pane);
                self.windows.insert(window, [pane].into());
                self.sessions.get_mut(&id)?.1.insert(window);
                self.notices.extend([Notice::Window(window), Notice::Window(from)]);
            }
            Action::JoinPane(n, to) => {
                let ((from, pane), to) = (self.pane(n)?, self.window(to)?);
                self.windows.get_mut(&from)?.remove(&pane);
                self.windows.get_mut(&to)?.insert(pane);
                if !self.quiet {
                    self.notices.extend([Notice::Window(from), Notice::Window(to)]);
                }
            }
            Action::SwapPane(n, with) => self.swap(self.pane(n)?, self.pane(with)?)?,
            Action::Die(n) => {
                let (window, pane) = self.pane(n)?;
                self.dead.insert(pane);
                self.notices.push(Notice::Window(window));
            }
            Action::Answer(_) => {}
        }
        self.tidy();
        Some(())
    }

    fn swap(&mut self, (a, one): (WindowId, PaneId), (b, other): (WindowId, PaneId)) -> Option<()> {
        self.windows.get_mut(&a)?.remove(&one);
        self.windows.get_mut(&b)?.remove(&other);
        self.windows.get_mut(&a)?.insert(other);
        self.windows.get_mut(&b)?.insert(one);
        self.notices.extend([Notice::Window(a), Notice::Window(b)]);
        Some(())
    }

    /// Removes windows without panes or sessions, and sessions without windows.
    fn tidy(&mut self) {
        let shown: BTreeSet<WindowId> =
            self.sessions.values().flat_map(|(_, windows)| windows.iter().copied()).collect();
        let closes = |id: &WindowId, panes: &BTreeSet<_>| panes.is_empty() || !shown.contains(id);
        self.notices.extend(
            self.windows.extract_if(.., |id, panes| closes(id, panes)).map(|(id, _)| Notice::Closed(id)),
        );
        let windows: BTreeSet<WindowId> = self.windows.keys().copied().collect();
        for (_, shows) in self.sessions.values_mut() {
            shows.retain(|window| windows.contains(window));
        }
        let before = self.sessions.len();
        self.sessions.retain(|_, (_, shows)| !shows.is_empty());
        self.notices.extend((self.sessions.len()..before).map(|_| Notice::Sessions));
    }

    fn panes(&self, session: TmuxSessionId, windows: &BTreeSet<WindowId>) -> BTreeMap<PaneId, TmuxPane> {
        let all =
            windows.iter().flat_map(|window| self.windows[window].iter().map(move |pane| (*window, *pane)));
        all.map(|(window, id)| {
            (
                id,
                TmuxPane {
                    session,
                    window,
                    dead: self.dead.contains(&id),
                    ..testing::pane(id.0, id.0 + 100).1
                },
            )
        })
        .collect()
    }

    fn facts(&self, id: TmuxSessionId) -> TmuxSession {
        session(id.0, &self.sessions[&id].0).1
    }

    fn listing(&self) -> Listing {
        let mut panes = BTreeMap::new();
        for (id, (_, windows)) in &self.sessions {
            for (pane, seen) in self.panes(*id, windows) {
                panes.entry(pane).or_insert(seen);
            }
        }
        let sessions = self.sessions.keys().map(|id| (*id, self.facts(*id))).collect();
        Listing { server: SERVER.into(), sessions, panes }
    }

    fn answer(&self, scope: Scope) -> Reading {
        let part = |id: TmuxSessionId, windows: &BTreeSet<WindowId>| SessionPart {
            id,
            session: self.facts(id),
            panes: self.panes(id, windows),
        };
        match scope {
            Scope::Alive => Reading::Alive,
            Scope::All => Reading::All(self.listing()),
            Scope::Sessions => Reading::Sessions(self.listing().sessions),
            Scope::Session(id) => match self.sessions.get(&id) {
                Some((_, windows)) if windows.iter().any(|id| self.show(*id).len() > 1) => Reading::Shared,
                shown => Reading::Part(shown.map(|(_, windows)| part(id, windows))),
            },
            Scope::Window(window) => match self.show(window)[..] {
                [] => Reading::Part(None),
                [id] => Reading::Part(Some(part(id, &[window].into()))),
                _ => Reading::Shared,
            },
            Scope::Pane(pane) => match self.windows.iter().find(|(_, panes)| panes.contains(&pane)) {
                None => Reading::Part(None),
                Some((window, _)) => match self.answer(Scope::Window(*window)) {
                    Reading::Part(Some(mut part)) => {
                        part.panes.retain(|id, _| *id == pane);
                        Reading::Part(Some(part))
                    }
                    other => other,
                },
            },
        }
    }

    /// Returns the sessions that show this window.
    fn show(&self, window: WindowId) -> Vec<TmuxSessionId> {
        let show = self.sessions.iter().filter(|(_, (_, windows))| windows.contains(&window));
        show.map(|(id, _)| *id).collect()
    }
}

/// Watcher of a simulated server.
struct Watcher {
    model: Model,
    pending: VecDeque<Scope>,
    reported: TmuxState,
    /// Number of reads of the whole server.
    wholes: usize,
}

fn stamp(pid: u32) -> Option<ProcId> {
    Some(ProcId { pid, start: 1 })
}

impl Watcher {
    fn of(world: &World) -> Self {
        let mut model = Model::default();
        model.put_listing(world.listing(), SERVER, stamp);
        let mut watcher = Self { model, pending: VecDeque::new(), reported: TmuxState::default(), wholes: 0 };
        watcher.report();
        watcher
    }

    /// Answers the oldest read, if there is one, and checks the marked changes against a whole comparison.
    fn answer(&mut self, world: &World) -> Vec<Change> {
        if self.pending.is_empty() {
            self.pending.extend(self.model.next_batch(true));
        }
        let Some(scope) = self.pending.pop_front() else { return Vec::new() };
        self.wholes += usize::from(scope == Scope::All);
        self.model.put_reading(scope, world.answer(scope), SERVER, stamp);
        self.report()
    }

    fn report(&mut self) -> Vec<Change> {
        let changes = self.model.take_changes().changes(&self.reported, self.model.state());
        changes.iter().cloned().for_each(|change| self.reported.apply(change));
        assert_eq!(&self.reported, self.model.state(), "nothing is changed without being marked as changed");
        changes
    }

    fn take_notices(&mut self, world: &mut World) {
        std::mem::take(&mut world.notices).into_iter().for_each(|notice| self.model.notice(notice));
    }

    fn read_all(&mut self, world: &World) {
        for _ in 0..200 {
            if self.pending.is_empty() && !self.model.has_reads(true) {
                return;
            }
            for change in self.answer(world) {
                let Change::PaneGone(id) = change else { continue };
                assert!(!world.windows.values().any(|panes| panes.contains(&id)), "{id} is there");
            }
        }
        panic!("the reads never come to an end");
    }

    fn matches(&self, world: &World) -> bool {
        let listing = world.listing();
        let bare = self
            .model
            .state()
            .panes
            .iter()
            .map(|(id, pane)| (*id, TmuxPane { process: None, ..pane.clone() }));
        self.model.state().sessions == listing.sessions && bare.collect::<BTreeMap<_, _>>() == listing.panes
    }
}

proptest! {
    #[test]
    fn targeted_readings_lead_to_the_whole_listing(actions in proptest::collection::vec(action(), 0..60)) {
        let mut world = World::default();
        let mut watcher = Watcher::of(&world);
        for action in &actions {
            world.apply(action);
            watcher.take_notices(&mut world);
            if let Action::Answer(count) = action {
                for _ in 0..*count {
                    for change in watcher.answer(&world) {
                        if let Change::SessionGone(id) = change {
                            prop_assert!(!world.sessions.contains_key(&id), "{id} is there");
                        }
                        if let Change::PaneGone(id) = change {
                            let there = world.windows.values().any(|panes| panes.contains(&id));
                            prop_assert!(!there, "{id} is there");
                        }
                    }
                }
            }
        }
        watcher.read_all(&world);
        // Only a whole listing tells that what several sessions show belongs to the one with the lowest id.
        watcher.model.queue_whole();
        let before = watcher.model.state().clone();
        watcher.read_all(&world);
        prop_assert!(watcher.matches(&world));
        let after = watcher.model.state();
        prop_assert_eq!(before.sessions.keys().collect::<Vec<_>>(), after.sessions.keys().collect::<Vec<_>>());
        prop_assert_eq!(before.panes.keys().collect::<Vec<_>>(), after.panes.keys().collect::<Vec<_>>());
        prop_assert_eq!(before.sessions, after.sessions.clone());
    }
}

/// Returns a server with this many sessions, and its watcher.
fn with_sessions(count: usize) -> (World, Watcher) {
    let mut world = World::default();
    (0..count).for_each(|_| world.apply(&Action::New).unwrap());
    world.notices.clear();
    let watcher = Watcher::of(&world);
    (world, watcher)
}

#[test]
fn an_absence_is_known_after_one_targeted_answer() {
    let (mut world, mut watcher) = with_sessions(3);
    world.apply(&Action::Kill(1));
    watcher.take_notices(&mut world);
    let first = watcher.answer(&world);
    assert!(matches!(first[..], [Change::PaneGone(_)]), "{first:?}");
    assert_eq!(watcher.answer(&world), [], "its window is known to be gone with it");
    assert!(matches!(watcher.answer(&world)[..], [Change::SessionGone(_)]));
    watcher.read_all(&world);
    assert_eq!(watcher.wholes, 0);
    assert!(watcher.matches(&world));
}

#[test]
fn a_new_session_comes_with_one_answer() {
    let (mut world, mut watcher) = with_sessions(3);
    world.apply(&Action::New);
    watcher.take_notices(&mut world);
    let first = watcher.answer(&world);
    assert!(matches!(first[..], [Change::Session(..), Change::Pane(..)]), "{first:?}");
    assert_eq!(watcher.answer(&world), [], "the list of sessions");
    assert!(watcher.pending.is_empty() && !watcher.model.has_reads(true) && watcher.matches(&world));
}

#[test]
fn a_pane_that_moved_is_never_said_to_be_gone() {
    let moves = [
        Action::MoveWindow(0, 1),
        Action::BreakPane(0),
        Action::JoinPane(0, 1),
        Action::JoinPane(1, 0),
        Action::SwapPane(0, 1),
    ];
    for (action, dies) in moves.iter().flat_map(|action| [(action, false), (action, true)]) {
        let (mut world, mut watcher) = with_sessions(2);
        world.quiet = true;
        if dies {
            world.apply(&Action::Die(0)).unwrap();
            watcher.take_notices(&mut world);
            watcher.read_all(&world);
        }
        world.apply(action).unwrap();
        watcher.take_notices(&mut world);
        watcher.read_all(&world);
        assert!(watcher.matches(&world) && watcher.wholes == 0, "{action:?}");
    }
}

#[test]
fn panes_that_moved_are_found_though_not_all_is_asked_for_at_once() {
    let (mut world, mut watcher) = with_sessions(100);
    world.quiet = true;
    (0..99).for_each(|_| world.apply(&Action::JoinPane(0, 99)).unwrap_or_default());
    watcher.take_notices(&mut world);
    watcher.read_all(&world);
    assert!(watcher.matches(&world) && watcher.wholes == 0);
}

#[test]
fn each_notice_of_sessions_has_them_listed() {
    let (mut world, mut watcher) = with_sessions(2);
    world.apply(&Action::Rename(0)).unwrap();
    world.apply(&Action::New).unwrap();
    watcher.take_notices(&mut world);
    watcher.answer(&world);
    world.apply(&Action::Kill(1)).unwrap();
    // Some servers send no notifications about windows.
    world.notices.retain(|notice| *notice == Notice::Sessions);
    watcher.take_notices(&mut world);
    watcher.read_all(&world);
    assert!(watcher.matches(&world) && watcher.wholes == 0);
}

#[test]
fn what_two_sessions_show_outlives_one_of_them() {
    let (mut world, mut watcher) = with_sessions(2);
    world.apply(&Action::Link(0, 1));
    watcher.take_notices(&mut world);
    watcher.read_all(&world);
    assert_eq!(watcher.wholes, 1, "the lowest session shows it: only everything tells");
    assert!(watcher.matches(&world));
    world.apply(&Action::Rename(1));
    watcher.take_notices(&mut world);
    watcher.read_all(&world);
    assert_eq!(watcher.wholes, 2, "each time");
    world.apply(&Action::Kill(0));
    watcher.take_notices(&mut world);
    while !watcher.pending.is_empty() || watcher.model.has_reads(true) {
        assert!(!watcher.answer(&world).iter().any(|c| matches!(c, Change::PaneGone(_))));
    }
    assert!(watcher.matches(&world));
}

#[test]
fn a_missing_pane_is_asked_for() {
    let (mut world, mut watcher) = with_sessions(1);
    world.apply(&Action::Split(0));
    watcher.take_notices(&mut world);
    watcher.read_all(&world);
    let (window, pane) = world.pane(1).unwrap();
    world.windows.get_mut(&window).unwrap().remove(&pane);
    watcher.model.notice(Notice::Window(window));
    assert_eq!(watcher.answer(&world), [], "it may be elsewhere");
    watcher.read_all(&world);
    assert!(watcher.matches(&world) && watcher.wholes == 0);
}

#[test]
fn a_pane_whose_program_ended_is_known_to_be_gone_with_one_answer() {
    let (mut world, mut watcher) = with_sessions(1);
    world.apply(&Action::Split(0));
    watcher.take_notices(&mut world);
    watcher.read_all(&world);
    let (window, pane) = world.pane(1).unwrap();
    let process = watcher.model.state().panes[&pane].process.unwrap();
    watcher.model.process_ended(pane, process, Some(ExitStatus { code: None, signal: Some(9) }));
    watcher.report();
    assert_eq!(watcher.model.state().panes[&pane].exit_signal, Some(9));
    world.windows.get_mut(&window).unwrap().remove(&pane);
    watcher.model.notice(Notice::Window(window));
    assert_eq!(watcher.answer(&world), [Change::PaneGone(pane)]);
    watcher.read_all(&world);
    assert!(watcher.matches(&world));
}

#[test]
fn silence_removes_nothing_and_another_server_everything() {
    let (world, mut watcher) = with_sessions(2);
    let before = watcher.model.state().clone();
    let silence =
        NoAnswer { trouble: ServerProblem::Stopped, server: Some(SERVER), detail: String::new(), pid: None };
    watcher.model.set_unknown(silence);
    assert!(matches!(watcher.report()[..], [Change::Server(Server::Unknown(_))]));
    assert_eq!(watcher.model.server(), Some(SERVER));
    watcher.read_all(&world);
    assert_eq!(*watcher.model.state(), before);
    let other = ServerId { started_at: 100, ..SERVER };
    watcher.model.put_listing(world.listing(), other, |_| None);
    assert!(watcher.model.state().panes.values().all(|pane| pane.process.is_none()), "new stamps");
    watcher.model.set_absent();
    watcher.report();
    assert_eq!((watcher.model.state(), watcher.model.server()), (&TmuxState::default(), None));
}

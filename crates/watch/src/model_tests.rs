//! The model against a made-up server: whatever happens there, and whenever the questions are answered,
//! in the end it knows what a whole listing says; and nothing that lives was ever said to be gone.

use std::collections::VecDeque;

use std::collections::BTreeSet;

use proptest::prelude::*;
use protocol::diff::Change;
use protocol::tmux::Trouble;

use super::*;
use crate::testing::{self, session};

const SERVER: ServerId = ServerId { process: ProcId { pid: 10, start: 5 }, started_at: 99 };

/// A tmux server: sessions show windows, windows have panes.
#[derive(Debug, Default, Clone)]
struct World {
    sessions: BTreeMap<TmuxSessionId, (String, BTreeSet<WindowId>)>,
    windows: BTreeMap<WindowId, BTreeSet<PaneId>>,
    dead: BTreeSet<PaneId>,
    /// Whether only a window that closes is told of where a pane joins another.
    quiet: bool,
    next: u32,
    heard: Vec<Notice>,
}

/// What happens there; the numbers choose among what there is.
#[derive(Debug, Clone)]
enum Deed {
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
    /// Its program ends, and it stays.
    Die(u32),
    /// The watcher's questions are answered, so many of them.
    Answer(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    let n = || 0..8u32;
    prop_oneof![
        3 => Just(Deed::New),
        1 => n().prop_map(Deed::Rename),
        2 => n().prop_map(Deed::Kill),
        2 => n().prop_map(Deed::NewWindow),
        2 => n().prop_map(Deed::KillWindow),
        2 => n().prop_map(Deed::Split),
        1 => (n(), n()).prop_map(|(a, b)| Deed::MoveWindow(a, b)),
        1 => (n(), n()).prop_map(|(a, b)| Deed::Link(a, b)),
        1 => n().prop_map(Deed::BreakPane),
        2 => (n(), n()).prop_map(|(a, b)| Deed::JoinPane(a, b)),
        1 => (n(), n()).prop_map(|(a, b)| Deed::SwapPane(a, b)),
        1 => n().prop_map(Deed::Die),
        6 => (1..5usize).prop_map(Deed::Answer),
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

    fn does(&mut self, deed: &Deed) -> Option<()> {
        match *deed {
            Deed::New => {
                let (id, window) = (TmuxSessionId(self.id()), self.make_window());
                self.sessions.insert(id, (format!("s{}", id.0), [window].into()));
                self.heard.extend([Notice::Window(window), Notice::Sessions]);
            }
            Deed::Rename(n) => {
                let (id, name) = (self.session(n)?, format!("n{}", self.id()));
                self.sessions.get_mut(&id)?.0 = name;
                self.heard.push(Notice::Session(id));
            }
            Deed::Kill(n) => {
                let id = self.session(n)?;
                let windows = self.sessions.remove(&id)?.1;
                self.heard.extend(windows.into_iter().map(Notice::Closed));
                self.heard.push(Notice::Sessions);
            }
            Deed::NewWindow(n) => {
                let (id, window) = (self.session(n)?, self.make_window());
                self.sessions.get_mut(&id)?.1.insert(window);
                self.heard.push(Notice::Window(window));
            }
            Deed::KillWindow(n) => self.windows.get_mut(&self.window(n)?)?.clear(),
            Deed::Split(n) => {
                let (window, pane) = (self.window(n)?, PaneId(self.id()));
                self.windows.get_mut(&window)?.insert(pane);
                self.heard.push(Notice::Window(window));
            }
            Deed::MoveWindow(n, to) => {
                let (window, to) = (self.window(n)?, self.session(to)?);
                self.sessions.values_mut().for_each(|(_, windows)| windows.retain(|id| *id != window));
                self.sessions.get_mut(&to)?.1.insert(window);
                self.heard.extend([Notice::Closed(window), Notice::Window(window)]);
            }
            Deed::Link(n, to) => {
                let (window, to) = (self.window(n)?, self.session(to)?);
                self.sessions.get_mut(&to)?.1.insert(window);
                self.heard.push(Notice::Window(window));
            }
            Deed::BreakPane(n) => {
                let (from, pane) = self.pane(n)?;
                let (id, window) = (self.session(n)?, WindowId(self.id()));
                self.windows.get_mut(&from)?.remove(&pane);
                self.windows.insert(window, [pane].into());
                self.sessions.get_mut(&id)?.1.insert(window);
                self.heard.extend([Notice::Window(window), Notice::Window(from)]);
            }
            Deed::JoinPane(n, to) => {
                let ((from, pane), to) = (self.pane(n)?, self.window(to)?);
                self.windows.get_mut(&from)?.remove(&pane);
                self.windows.get_mut(&to)?.insert(pane);
                if !self.quiet {
                    self.heard.extend([Notice::Window(from), Notice::Window(to)]);
                }
            }
            Deed::SwapPane(n, with) => self.swap(self.pane(n)?, self.pane(with)?)?,
            Deed::Die(n) => {
                let (window, pane) = self.pane(n)?;
                self.dead.insert(pane);
                self.heard.push(Notice::Window(window));
            }
            Deed::Answer(_) => {}
        }
        self.tidy();
        Some(())
    }

    fn swap(&mut self, (a, one): (WindowId, PaneId), (b, other): (WindowId, PaneId)) -> Option<()> {
        self.windows.get_mut(&a)?.remove(&one);
        self.windows.get_mut(&b)?.remove(&other);
        self.windows.get_mut(&a)?.insert(other);
        self.windows.get_mut(&b)?.insert(one);
        self.heard.extend([Notice::Window(a), Notice::Window(b)]);
        Some(())
    }

    /// What is empty goes: windows without panes or sessions, sessions without windows.
    fn tidy(&mut self) {
        let shown: BTreeSet<WindowId> =
            self.sessions.values().flat_map(|(_, windows)| windows.iter().copied()).collect();
        let closes = |id: &WindowId, panes: &BTreeSet<_>| panes.is_empty() || !shown.contains(id);
        self.heard.extend(
            self.windows.extract_if(.., |id, panes| closes(id, panes)).map(|(id, _)| Notice::Closed(id)),
        );
        let windows: BTreeSet<WindowId> = self.windows.keys().copied().collect();
        for (_, shows) in self.sessions.values_mut() {
            shows.retain(|window| windows.contains(window));
        }
        let before = self.sessions.len();
        self.sessions.retain(|_, (_, shows)| !shows.is_empty());
        self.heard.extend((self.sessions.len()..before).map(|_| Notice::Sessions));
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

    fn answer(&self, ask: Ask) -> Read {
        let part = |id: TmuxSessionId, windows: &BTreeSet<WindowId>| Part {
            id,
            session: self.facts(id),
            panes: self.panes(id, windows),
        };
        match ask {
            Ask::Alive => Read::Alive,
            Ask::All => Read::All(self.listing()),
            Ask::Sessions => Read::Sessions(self.listing().sessions),
            Ask::Session(id) => match self.sessions.get(&id) {
                Some((_, windows)) if windows.iter().any(|id| self.show(*id).len() > 1) => Read::Shared,
                shown => Read::Part(shown.map(|(_, windows)| part(id, windows))),
            },
            Ask::Window(window) => match self.show(window)[..] {
                [] => Read::Part(None),
                [id] => Read::Part(Some(part(id, &[window].into()))),
                _ => Read::Shared,
            },
            Ask::Pane(pane) => match self.windows.iter().find(|(_, panes)| panes.contains(&pane)) {
                None => Read::Part(None),
                Some((window, _)) => match self.answer(Ask::Window(*window)) {
                    Read::Part(Some(mut part)) => {
                        part.panes.retain(|id, _| *id == pane);
                        Read::Part(Some(part))
                    }
                    other => other,
                },
            },
        }
    }

    /// Who shows this window.
    fn show(&self, window: WindowId) -> Vec<TmuxSessionId> {
        let show = self.sessions.iter().filter(|(_, (_, windows))| windows.contains(&window));
        show.map(|(id, _)| *id).collect()
    }
}

/// A watcher of such a server.
struct Watcher {
    model: Model,
    asked: VecDeque<Ask>,
    told: TmuxState,
    /// How often everything was asked for.
    wholes: usize,
}

fn stamp(pid: u32) -> Option<ProcId> {
    Some(ProcId { pid, start: 1 })
}

impl Watcher {
    fn of(world: &World) -> Self {
        let mut model = Model::default();
        model.all(world.listing(), SERVER, stamp);
        let mut watcher = Self { model, asked: VecDeque::new(), told: TmuxState::default(), wholes: 0 };
        watcher.tell();
        watcher
    }

    /// Answers the next question, if there is one; what is then known must be as if all was compared.
    fn answer(&mut self, world: &World) -> Vec<Change> {
        if self.asked.is_empty() {
            self.asked.extend(self.model.batch(true));
        }
        let Some(ask) = self.asked.pop_front() else { return Vec::new() };
        self.wholes += usize::from(ask == Ask::All);
        self.model.read(ask, world.answer(ask), SERVER, stamp);
        self.tell()
    }

    fn tell(&mut self) -> Vec<Change> {
        let changes = self.model.take_touched().changes(&self.told, self.model.state());
        changes.iter().cloned().for_each(|change| self.told.apply(change));
        assert_eq!(&self.told, self.model.state(), "nothing is changed without being touched");
        changes
    }

    fn hear(&mut self, world: &mut World) {
        std::mem::take(&mut world.heard).into_iter().for_each(|notice| self.model.notice(notice));
    }

    fn settle(&mut self, world: &World) {
        for _ in 0..200 {
            if self.asked.is_empty() && !self.model.asks(true) {
                return;
            }
            for change in self.answer(world) {
                let Change::PaneGone(id) = change else { continue };
                assert!(!world.windows.values().any(|panes| panes.contains(&id)), "{id} is there");
            }
        }
        panic!("it never knows enough");
    }

    fn knows(&self, world: &World) -> bool {
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
    fn targeted_readings_lead_to_the_whole_listing(deeds in proptest::collection::vec(deed(), 0..60)) {
        let mut world = World::default();
        let mut watcher = Watcher::of(&world);
        for deed in &deeds {
            world.does(deed);
            watcher.hear(&mut world);
            if let Deed::Answer(count) = deed {
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
        watcher.settle(&world);
        // What several sessions show is known as the lowest one's only by a whole listing, if at all.
        watcher.model.doubt_all();
        let before = watcher.model.state().clone();
        watcher.settle(&world);
        prop_assert!(watcher.knows(&world));
        let after = watcher.model.state();
        prop_assert_eq!(before.sessions.keys().collect::<Vec<_>>(), after.sessions.keys().collect::<Vec<_>>());
        prop_assert_eq!(before.panes.keys().collect::<Vec<_>>(), after.panes.keys().collect::<Vec<_>>());
        prop_assert_eq!(before.sessions, after.sessions.clone());
    }
}

/// A server with this many sessions, and its watcher.
fn with_sessions(count: usize) -> (World, Watcher) {
    let mut world = World::default();
    (0..count).for_each(|_| world.does(&Deed::New).unwrap());
    world.heard.clear();
    let watcher = Watcher::of(&world);
    (world, watcher)
}

#[test]
fn an_absence_is_known_after_one_targeted_answer() {
    let (mut world, mut watcher) = with_sessions(3);
    world.does(&Deed::Kill(1));
    watcher.hear(&mut world);
    let first = watcher.answer(&world);
    assert!(matches!(first[..], [Change::PaneGone(_)]), "{first:?}");
    assert_eq!(watcher.answer(&world), [], "its window is known to be gone with it");
    assert!(matches!(watcher.answer(&world)[..], [Change::SessionGone(_)]));
    watcher.settle(&world);
    assert_eq!(watcher.wholes, 0);
    assert!(watcher.knows(&world));
}

#[test]
fn a_new_session_comes_with_one_answer() {
    let (mut world, mut watcher) = with_sessions(3);
    world.does(&Deed::New);
    watcher.hear(&mut world);
    let first = watcher.answer(&world);
    assert!(matches!(first[..], [Change::Session(..), Change::Pane(..)]), "{first:?}");
    assert_eq!(watcher.answer(&world), [], "the list of sessions");
    assert!(watcher.asked.is_empty() && !watcher.model.asks(true) && watcher.knows(&world));
}

#[test]
fn a_pane_that_moved_is_never_said_to_be_gone() {
    let moves = [
        Deed::MoveWindow(0, 1),
        Deed::BreakPane(0),
        Deed::JoinPane(0, 1),
        Deed::JoinPane(1, 0),
        Deed::SwapPane(0, 1),
    ];
    for (deed, dies) in moves.iter().flat_map(|deed| [(deed, false), (deed, true)]) {
        let (mut world, mut watcher) = with_sessions(2);
        world.quiet = true;
        if dies {
            world.does(&Deed::Die(0)).unwrap();
            watcher.hear(&mut world);
            watcher.settle(&world);
        }
        world.does(deed).unwrap();
        watcher.hear(&mut world);
        watcher.settle(&world);
        assert!(watcher.knows(&world) && watcher.wholes == 0, "{deed:?}");
    }
}

#[test]
fn panes_that_moved_are_found_though_not_all_is_asked_for_at_once() {
    let (mut world, mut watcher) = with_sessions(100);
    world.quiet = true;
    (0..99).for_each(|_| world.does(&Deed::JoinPane(0, 99)).unwrap_or_default());
    watcher.hear(&mut world);
    watcher.settle(&world);
    assert!(watcher.knows(&world) && watcher.wholes == 0);
}

#[test]
fn each_notice_of_sessions_has_them_listed() {
    let (mut world, mut watcher) = with_sessions(2);
    world.does(&Deed::Rename(0)).unwrap();
    world.does(&Deed::New).unwrap();
    watcher.hear(&mut world);
    watcher.answer(&world);
    world.does(&Deed::Kill(1)).unwrap();
    // Some servers say nothing of windows.
    world.heard.retain(|notice| *notice == Notice::Sessions);
    watcher.hear(&mut world);
    watcher.settle(&world);
    assert!(watcher.knows(&world) && watcher.wholes == 0);
}

#[test]
fn what_two_sessions_show_outlives_one_of_them() {
    let (mut world, mut watcher) = with_sessions(2);
    world.does(&Deed::Link(0, 1));
    watcher.hear(&mut world);
    watcher.settle(&world);
    assert_eq!(watcher.wholes, 1, "the lowest session shows it: only everything tells");
    assert!(watcher.knows(&world));
    world.does(&Deed::Rename(1));
    watcher.hear(&mut world);
    watcher.settle(&world);
    assert_eq!(watcher.wholes, 2, "each time");
    world.does(&Deed::Kill(0));
    watcher.hear(&mut world);
    while !watcher.asked.is_empty() || watcher.model.asks(true) {
        assert!(!watcher.answer(&world).iter().any(|c| matches!(c, Change::PaneGone(_))));
    }
    assert!(watcher.knows(&world));
}

#[test]
fn a_missing_pane_is_asked_for() {
    let (mut world, mut watcher) = with_sessions(1);
    world.does(&Deed::Split(0));
    watcher.hear(&mut world);
    watcher.settle(&world);
    let (window, pane) = world.pane(1).unwrap();
    world.windows.get_mut(&window).unwrap().remove(&pane);
    watcher.model.notice(Notice::Window(window));
    assert_eq!(watcher.answer(&world), [], "it may be elsewhere");
    watcher.settle(&world);
    assert!(watcher.knows(&world) && watcher.wholes == 0);
}

#[test]
fn a_pane_whose_program_ended_is_known_to_be_gone_with_one_answer() {
    let (mut world, mut watcher) = with_sessions(1);
    world.does(&Deed::Split(0));
    watcher.hear(&mut world);
    watcher.settle(&world);
    let (window, pane) = world.pane(1).unwrap();
    let process = watcher.model.state().panes[&pane].process.unwrap();
    watcher.model.ended(pane, process, Some(Ended { code: None, signal: Some(9) }));
    watcher.tell();
    assert_eq!(watcher.model.state().panes[&pane].exit_signal, Some(9));
    world.windows.get_mut(&window).unwrap().remove(&pane);
    watcher.model.notice(Notice::Window(window));
    assert_eq!(watcher.answer(&world), [Change::PaneGone(pane)]);
    watcher.settle(&world);
    assert!(watcher.knows(&world));
}

#[test]
fn silence_removes_nothing_and_another_server_everything() {
    let (world, mut watcher) = with_sessions(2);
    let before = watcher.model.state().clone();
    let silence = Silence { trouble: Trouble::Stopped, server: Some(SERVER), detail: String::new() };
    watcher.model.silent(silence);
    assert!(matches!(watcher.tell()[..], [Change::Server(Server::Unknown(_))]));
    assert_eq!(watcher.model.server(), Some(SERVER));
    watcher.settle(&world);
    assert_eq!(*watcher.model.state(), before);
    let other = ServerId { started_at: 100, ..SERVER };
    watcher.model.all(world.listing(), other, |_| None);
    assert!(watcher.model.state().panes.values().all(|pane| pane.process.is_none()), "new stamps");
    watcher.model.absent();
    watcher.tell();
    assert_eq!((watcher.model.state(), watcher.model.server()), (&TmuxState::default(), None));
}

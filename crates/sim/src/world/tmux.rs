//! The tmux server: the in-memory tmux of the tests, with delays and faults that the seed decides, and with a
//! program in each pane.

mod driver;
mod person;
mod screen;
mod troubles;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::{PaneId, ProcId, Tag, TmuxSessionId};
use tmux::fake::Fake;
use tmux::{Call, Create, DEADLINE, PaneRef, ServerRef, TmuxError};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;
use world::clock::Clock;
use world::tasks::Tasks;

use crate::climate::Climate;
use crate::judge::Judge;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::world::clock::SimClock;
use crate::world::life::Life;
use crate::world::machine::Machine;

use screen::Screens;
pub(crate) use screen::Shows;
use troubles::Troubles;

/// Calls that are rare, each with the factor by which it fails more often.
const RARE: [(&str, u64); 4] = [("adopt", 15), ("clear_history", 6), ("end_if_empty", 6), ("input", 3)];

/// The tag of a pane that is not the pool's.
const FOREIGN: Tag = Tag([0; 16]);

/// The server, and the programs in its panes. Clones share it.
#[derive(Clone)]
pub(crate) struct SimTmux(Arc<Shared>);

struct Shared {
    fake: Fake,
    machine: Machine,
    clock: Arc<SimClock>,
    /// The world, which outlives every daemon.
    life: Life,
    trace: Trace,
    judge: Judge,
    state: Mutex<State>,
    /// Signalled when something is typed.
    typed: Notify,
}

struct State {
    rng: Rng,
    climate: Climate,
    server: Option<(ServerRef, ProcId)>,
    /// The programs of the panes.
    inits: BTreeMap<PaneId, (Tag, ProcId)>,
    /// The tmux sessions of the panes.
    sessions: BTreeMap<PaneId, TmuxSessionId>,
    /// When somebody last attached to each, or it was created, in seconds since the Unix epoch.
    active_at: BTreeMap<TmuxSessionId, u64>,
    /// Sessions that somebody has ever attached to.
    visited: BTreeSet<TmuxSessionId>,
    screens: Screens,
    /// Inits whose panes are to begin their work.
    begun: Vec<(Create, PaneRef, ProcId)>,
    /// True while the server is stopped: it takes nothing and answers nothing.
    is_stopped: bool,
    /// True while the socket cannot be reached, and the server lives on.
    is_unreachable: bool,
    troubles: Troubles,
    /// The incarnations whose panes were to be closed for lack of use, where nobody knows whether they were.
    unsettled: BTreeSet<Tag>,
}

/// The fate of a call.
enum Fate {
    Answered,
    /// The effect happens, and no answer comes.
    AnswerLost,
    /// Nothing happens, and no answer comes.
    Lost,
    /// No answer comes, and the effect happens after this time.
    Late(Duration),
}

impl SimTmux {
    /// Returns a machine's tmux without a server.
    pub(crate) fn new(
        (machine, life, clock): (Machine, Life, Arc<SimClock>),
        (trace, judge): (Trace, Judge),
        (rng, climate): (Rng, Climate),
    ) -> Self {
        let fake = Fake::default();
        fake.kill_server();
        let state = State {
            rng,
            climate,
            server: None,
            inits: BTreeMap::new(),
            sessions: BTreeMap::new(),
            active_at: BTreeMap::new(),
            visited: BTreeSet::new(),
            screens: Screens::default(),
            begun: Vec::new(),
            is_stopped: false,
            is_unreachable: false,
            troubles: Troubles::default(),
            unsettled: BTreeSet::new(),
        };
        Self(Arc::new(Shared {
            fake,
            machine,
            clock,
            life,
            trace,
            judge,
            state: Mutex::new(state),
            typed: Notify::new(),
        }))
    }

    /// Ends the server, as a crash does: every program gets a hang-up.
    pub(crate) fn kill_server(&self) {
        self.0.fake.kill_server();
        let mut state = self.state();
        (state.is_stopped, state.is_unreachable) = (false, false);
        let server = state.server.take();
        let inits = std::mem::take(&mut state.inits);
        state.sessions.clear();
        state.active_at.clear();
        state.visited.clear();
        state.screens = Screens::default();
        drop(state);
        if let Some((server, process)) = server {
            self.0.judge.server_ended(server);
            self.0.machine.end(process);
        }
        inits.into_values().for_each(|(_, init)| self.0.machine.hang_up(init));
    }

    /// Sets whether faults happen.
    pub(crate) fn calm(&self) {
        let mut state = self.state();
        state.climate = state.climate.calm();
        (state.is_stopped, state.is_unreachable) = (false, false);
    }

    /// Notes that somebody attached to a session, or created it.
    fn note_active(&self, session: TmuxSessionId) {
        let now = self.0.clock.now().0 / 1000;
        self.state().active_at.insert(session, now);
    }

    /// Returns when somebody last attached to the session of a pane, or it was created.
    fn active_at(&self, pane: PaneId) -> Option<u64> {
        let state = self.state();
        state.active_at.get(state.sessions.get(&pane)?).copied()
    }

    /// True if nobody has ever attached to the session of a pane.
    fn never_attached(&self, pane: PaneId) -> bool {
        let state = self.state();
        state.sessions.get(&pane).is_some_and(|session| !state.visited.contains(session))
    }

    /// Returns everything typed into a pane.
    pub(crate) fn typed(&self, pane: PaneId) -> Vec<u8> {
        self.0.fake.typed(pane)
    }

    /// Notes what the screen of an agent shows from now on. Does nothing if its server is gone and another server's
    /// pane has the same id.
    pub(crate) fn show(&self, pane: PaneRef, shows: Shows) {
        let mut state = self.state();
        if state.inits.get(&pane.pane).is_some_and(|(tag, _)| *tag == pane.tag) {
            state.screens.show(pane.pane, shows);
        }
    }

    /// Returns the screen of a pane: for an agent with an adapter as that agent draws it, otherwise the typed text.
    fn screen(&self, pane: PaneId, typed: Vec<u8>) -> Vec<u8> {
        let state = self.state();
        if state.climate.has_adapter { state.screens.draw(pane, typed) } else { typed }
    }

    /// Empties the composer of an incarnation, as a person does who finds text of somebody else in it.
    pub(crate) fn empty_composer(&self, tag: Tag) {
        let mut state = self.state();
        let found = state.inits.iter().find(|(_, (found, _))| *found == tag).map(|(pane, _)| *pane);
        if let Some(pane) = found {
            state.screens.empty(pane, self.0.fake.typed(pane).len());
        }
    }

    /// Returns the length of what was typed into a pane until its composer was emptied.
    pub(crate) fn emptied(&self, pane: PaneId) -> usize {
        self.state().screens.emptied(pane)
    }

    /// Waits until something is typed anywhere.
    pub(crate) async fn input(&self) {
        self.0.typed.notified().await;
    }

    /// Marks a pane dead whose program has ended. It is left, as the pool's panes are.
    pub(crate) fn program_ended(&self, pane: PaneRef) {
        if self.has_pane(pane.tag) {
            self.0.fake.change(pane.pane, |found| found.dead = true);
        }
    }

    /// True if the server has the pane of this incarnation.
    pub(crate) fn has_pane(&self, tag: Tag) -> bool {
        self.state().inits.values().any(|(found, _)| *found == tag)
    }

    /// Adds a session of a person, with this process in its pane. `None` if that is not possible.
    pub(crate) fn add_foreign(&self, name: &str, process: ProcId) -> Option<PaneId> {
        let (session, pane) = self.0.fake.add_program(name, process.pid)?;
        let mut state = self.state();
        state.inits.insert(pane, (FOREIGN, process));
        state.sessions.insert(pane, session);
        drop(state);
        self.note_active(session);
        Some(pane)
    }

    /// Closes the pane of a person's program, which has ended.
    pub(crate) fn close_foreign(&self, pane: PaneId, process: ProcId) {
        let mut state = self.state();
        if state.inits.get(&pane).is_some_and(|(_, found)| *found == process) {
            state.inits.remove(&pane);
            state.sessions.remove(&pane);
            self.0.fake.close(pane);
        }
    }

    /// Gives a person's program the tag under which the pool has adopted its pane.
    fn adopted(&self, pane: PaneId, tag: Tag) {
        let mut state = self.state();
        if let Some((known, process)) = state.inits.get_mut(&pane) {
            *known = tag;
            self.0.machine.adopted(*process, tag);
        }
    }

    /// Returns the panes in which an init is to begin.
    pub(crate) fn take_begun(&self) -> Vec<(Create, PaneRef, ProcId)> {
        std::mem::take(&mut self.state().begun)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self, name: &str) -> (Duration, Fate) {
        let State { rng, climate, .. } = &mut *self.state();
        let delay = Duration::from_micros(rng.between(100, climate.tmux_delay_us));
        let weight = RARE.iter().find(|(rare, _)| *rare == name).map_or(1, |(_, weight)| *weight);
        let fate = if !rng.per_mille((climate.tmux_faults * weight).min(500)) {
            Fate::Answered
        } else {
            match rng.below(4) {
                0 => Fate::Lost,
                1 => Fate::Late(Duration::from_millis(rng.between(1, 30_000))),
                _ => Fate::AnswerLost,
            }
        };
        (delay, fate)
    }

    /// Waits while the server is stopped.
    async fn while_stopped(&self) {
        while self.state().is_stopped {
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Performs a call that has an effect, all of it in `effect`.
    fn call<'a, T: Send + 'static, F: Future<Output = Result<T, TmuxError>> + Send + 'static>(
        &'a self,
        name: &'static str,
        effect: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Call<'a, T> {
        // The tmux client is a process of its own, which goes on when its daemon dies.
        let (server, (sender, answer)) = (self.clone(), oneshot::channel());
        let call = async move {
            let (delay, fate) = server.fate(name);
            // A call has no effect if its server has died since, or the machine was rebooted.
            let sent_to = server.receiver();
            sleep(delay).await;
            if server.receiver() != sent_to {
                return Err(TmuxError::ServerExited);
            }
            if server.state().is_unreachable {
                server.note_trouble();
                return Err(TmuxError::NoServer);
            }
            if server.state().is_stopped {
                server.note_trouble();
                // A stopped server reads the call once it continues.
                let late = server.clone();
                server.0.life.spawn(
                    "late tmux call",
                    Box::pin(async move {
                        late.while_stopped().await;
                        late.note_trouble();
                        if late.receiver() == sent_to {
                            drop(effect(late.clone()).await);
                        }
                    }),
                );
                sleep(DEADLINE).await;
                return Err(TmuxError::TimedOut(DEADLINE));
            }
            if !matches!(fate, Fate::Answered) {
                server.0.judge.count(format!("fault:tmux-{name}"));
                server.note_trouble();
            }
            match fate {
                Fate::Answered => return effect(server.clone()).await,
                Fate::Lost => {}
                Fate::AnswerLost => drop(effect(server.clone()).await),
                Fate::Late(by) => {
                    let late = server.clone();
                    server.0.life.spawn(
                        "late tmux call",
                        Box::pin(async move {
                            sleep(by).await;
                            late.note_trouble();
                            if late.receiver() == sent_to {
                                drop(effect(late.clone()).await);
                            }
                        }),
                    );
                }
            }
            server.0.trace.tell(|| format!("tmux: no answer to {name}"));
            sleep(DEADLINE).await;
            Err(TmuxError::TimedOut(DEADLINE))
        };
        self.0.life.spawn("tmux call", Box::pin(async move { drop(sender.send(call.await)) }));
        Box::pin(async move { answer.await.unwrap_or(Err(TmuxError::Incomplete)) })
    }

    /// Returns who receives what is sent now: the server, and the boot of the machine.
    fn receiver(&self) -> (Option<ServerRef>, u64) {
        (self.state().server.map(|(server, _)| server), self.0.machine.boot())
    }

    fn note_typed(&self, pane: PaneRef, text: &[u8], is_paste: bool) {
        if (is_paste || text == b"\r")
            && let Some(obstacle) = self.obstacle(pane.pane, is_paste)
        {
            let text = String::from_utf8_lossy(text);
            self.0.judge.violated(format!("{text:?} was typed into {obstacle} of {}", pane.tag));
        }
        if is_paste && self.state().screens.is_begun(pane.pane) {
            self.0.judge.mixed(&String::from_utf8_lossy(text));
        }
        if text.contains(&b'\r') {
            self.state().screens.end_line(pane.pane);
        }
        self.0.judge.typed(pane.tag, text, is_paste);
        if text == b"\r" && self.is_troubled() {
            self.0.judge.entered_in_trouble(pane.tag);
        }
        self.0.typed.notify_waiters();
    }

    /// Hangs up the program of a pane that was closed.
    fn hang_up(&self, pane: PaneRef) {
        let mut state = self.state();
        let init = state.inits.remove(&pane.pane);
        state.sessions.remove(&pane.pane);
        if !state.is_troubled() {
            state.screens.close(pane);
        }
        drop(state);
        init.into_iter().for_each(|(_, init)| self.0.machine.hang_up(init));
    }
}

//! The daemon's part around the core: waiters for slots, and starts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use pool::session::{CreateInputs, CreateOutcome, NextRun};
use pool::{Agent, RestartRules, Settings, session, slots};
use protocol::request::New;
use protocol::{Event, Lifecycle, Session, SessionId, Tag, Timestamp};

use super::machine::Machine;
use super::reference::Life;
use crate::world;

/// A waiter for a slot.
#[derive(Debug, Clone)]
pub(crate) enum Waiter {
    New(Box<New>),
    /// A user wants it to run.
    Start(SessionId),
    /// An automatic start.
    Wake(SessionId),
}

/// Settings so tight that every limit is met.
pub(crate) fn tight() -> Settings {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let claude = Agent {
        command: words(&["claude"]),
        start_args: words(&["--session-id", "{conversation}"]),
        resume_args: words(&["--resume", "{conversation}"]),
        ..Agent::default()
    };
    let batch = Agent { command: words(&["batch"]), parkable: true, ..Agent::default() };
    let agents = [("claude", claude), ("batch", batch), ("shell", Agent::default())];
    Settings {
        max_sessions: 3,
        sessions_dir: PathBuf::from("/s"),
        agents: agents.map(|(name, agent)| (name.to_owned(), agent)).into(),
        restart: RestartRules { max: 3, backoff_max: Duration::from_secs(8), ..RestartRules::default() },
        idle_timeout: Some(Duration::from_secs(1800)),
        ..world::settings()
    }
}

impl Machine {
    /// Updates the sessions that wait for an automatic start.
    pub(crate) fn update_waiters(&mut self) {
        let wanting = slots::wanting_start(&self.world.pool, self.now());
        let set: BTreeSet<SessionId> = wanting.iter().copied().collect();
        assert_eq!(set.len(), wanting.len(), "nobody stands in waiters twice");
        let pool = &self.world.pool;
        let over = |id: SessionId| pool.session(id).is_none_or(|s| s.lifecycle.holds_slot());
        self.waiters.retain(|waiter| match waiter {
            Waiter::New(_) => true,
            Waiter::Start(id) => !over(*id),
            Waiter::Wake(id) => set.contains(id),
        });
        let there =
            |waiters: &[Waiter], id| waiters.iter().any(|w| matches!(w, Waiter::Wake(of) if *of == id));
        for id in wanting {
            if !there(&self.waiters, id) {
                self.waiters.push(Waiter::Wake(id));
            }
        }
    }

    /// The waiter at this position tries to get a slot: it does exactly if those before it leave one.
    pub(crate) fn serve(&mut self, place: usize) -> bool {
        self.update_waiters();
        let free = slots::free(&self.world.pool, &self.settings);
        let served = match self.waiters.get(place).cloned() {
            None => return false,
            Some(Waiter::New(asked)) => self.create(&asked, place),
            Some(Waiter::Start(id) | Waiter::Wake(id)) if free <= place => {
                assert!(!self.session(id).lifecycle.holds_slot());
                false
            }
            Some(Waiter::Start(id)) => {
                let renewed = session::reset_budget(self.session(id));
                self.world.emit_all(renewed.into_iter().collect());
                self.life(id).renew();
                self.next(id);
                true
            }
            Some(Waiter::Wake(id)) => {
                let now = self.now();
                let session = self.session(id);
                let wakes = session.lifecycle == Lifecycle::Parked;
                assert!(
                    wakes || session::check_restarts(&self.world.pool, &self.settings, session, now).is_ok()
                );
                let spent = session::spend_restart(&self.world.pool, &self.settings, session, now);
                self.world.emit(spent);
                let (settings, mono) = (self.settings.clone(), self.mono);
                let life = self.life(id);
                life.start(&settings, (!wakes).then_some(mono));
                life.ended = None;
                self.next(id);
                true
            }
        };
        assert_eq!(served, free > place, "who is first gets a slot that is free");
        if served {
            self.waiters.remove(place);
        }
        served
    }

    fn create(&mut self, asked: &New, ahead: usize) -> bool {
        let tag = self.tag();
        let name = format!("s{}", self.tags);
        let now = self.now();
        let launch = CreateInputs { tag, now, stamp: "", conversation: &name, ahead, tmux_names: &[] };
        let asked = New { name: Some(name.clone()), ..asked.clone() };
        match session::create(&self.world.pool, &self.settings, &asked, &launch).unwrap() {
            CreateOutcome::Full => false,
            CreateOutcome::Create(made) => {
                self.world.emit_all(made.events);
                self.host.jobs.insert(tag);
                let pinned = asked.pinned;
                self.lives.insert(made.session, Life { asked, pinned, ..Life::default() });
                true
            }
            other => panic!("{other:?}"),
        }
    }

    /// Starts the next incarnation, which resumes the last conversation if it has a prompt.
    pub(crate) fn next(&mut self, id: SessionId) {
        let (tag, now) = (self.tag(), self.now());
        let events = session::next_incarnation(
            self.session(id),
            NextRun { tag, now, conversation: "talk", fresh: false },
        );
        self.world.emit_all(events);
        self.host.jobs.insert(tag);
        let (resumes, run) = {
            let life = &self.lives[&id];
            (life.spoken && life.can_resume(), self.session(id).incarnation.as_ref().unwrap())
        };
        assert_eq!((run.resumed, run.tag), (resumes, tag));
    }

    pub(crate) fn tag(&mut self) -> Tag {
        self.tags += 1;
        Tag(u128::from(self.tags).to_be_bytes())
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.world.now)
    }

    pub(crate) fn session(&self, id: SessionId) -> &Session {
        self.world.pool.session(id).unwrap()
    }

    pub(crate) fn life(&mut self, id: SessionId) -> &mut Life {
        self.lives.get_mut(&id).unwrap()
    }

    /// The session with this number among those that satisfy `is`.
    pub(crate) fn nth(&self, n: usize, is: impl Fn(&Session) -> bool) -> Option<SessionId> {
        let all: Vec<SessionId> = self.world.pool.sessions().filter(|s| is(s)).map(|s| s.id).collect();
        (!all.is_empty()).then(|| all[n % all.len()])
    }

    pub(crate) fn is(&self, id: SessionId, lifecycle: Lifecycle) -> bool {
        self.session(id).lifecycle == lifecycle
    }

    pub(crate) fn emit(&mut self, events: Vec<Event>) -> bool {
        !self.world.emit_all(events).is_empty()
    }
}

pub(crate) type Lives = BTreeMap<SessionId, Life>;

//! What a daemon does around the core: those who wait for a slot, and starts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use pool::admit::{self, Admitted, Launch, Next};
use pool::{Agent, RestartRules, Settings, budget, slots};
use protocol::request::New;
use protocol::{Event, Lifecycle, Session, SessionId, Tag, Timestamp};

use super::machine::Machine;
use super::reference::Life;
use crate::world;

/// Somebody who waits for a slot.
#[derive(Debug, Clone)]
pub(crate) enum Waiter {
    New(Box<New>),
    /// Somebody wants it to run.
    Start(SessionId),
    /// It is to be started by itself.
    Wake(SessionId),
}

/// Small enough that every limit is met.
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
    /// Those that are to be started by themselves get in line, and those that are not any more leave it.
    pub(crate) fn line_up(&mut self) {
        let wanting = slots::wanting(&self.world.pool, self.now());
        let set: BTreeSet<SessionId> = wanting.iter().copied().collect();
        assert_eq!(set.len(), wanting.len(), "nobody stands in line twice");
        let pool = &self.world.pool;
        let over = |id: SessionId| pool.session(id).is_none_or(|s| s.lifecycle.holds_slot());
        self.line.retain(|waiter| match waiter {
            Waiter::New(_) => true,
            Waiter::Start(id) => !over(*id),
            Waiter::Wake(id) => set.contains(id),
        });
        let there = |line: &[Waiter], id| line.iter().any(|w| matches!(w, Waiter::Wake(of) if *of == id));
        for id in wanting {
            if !there(&self.line, id) {
                self.line.push(Waiter::Wake(id));
            }
        }
    }

    /// The one at this place tries to get a slot: it does exactly if there is one left by those before it.
    pub(crate) fn serve(&mut self, place: usize) -> bool {
        self.line_up();
        let free = slots::free(&self.world.pool, &self.settings);
        let served = match self.line.get(place).cloned() {
            None => return false,
            Some(Waiter::New(asked)) => self.create(&asked, place),
            Some(Waiter::Start(id) | Waiter::Wake(id)) if free <= place => {
                assert!(!self.session(id).lifecycle.holds_slot());
                false
            }
            Some(Waiter::Start(id)) => {
                let renewed = budget::renewed(self.session(id));
                self.world.emit_all(renewed.into_iter().collect());
                self.life(id).renew();
                self.next(id);
                true
            }
            Some(Waiter::Wake(id)) => {
                let now = self.now();
                let session = self.session(id);
                let wakes = session.lifecycle == Lifecycle::Parked;
                assert!(wakes || budget::allows(&self.world.pool, &self.settings, session, now).is_ok());
                let spent = budget::spent(&self.world.pool, &self.settings, session, now);
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
            self.line.remove(place);
        }
        served
    }

    fn create(&mut self, asked: &New, ahead: usize) -> bool {
        let tag = self.tag();
        let name = format!("s{}", self.tags);
        let now = self.now();
        let launch = Launch { tag, now, stamp: "", conversation: &name, ahead };
        let asked = New { name: Some(name.clone()), ..asked.clone() };
        match admit::new(&self.world.pool, &self.settings, &asked, &launch).unwrap() {
            Admitted::Full => false,
            Admitted::Create(made) => {
                self.world.emit_all(made.events);
                self.host.jobs.insert(tag);
                let pinned = asked.pinned;
                self.lives.insert(made.session, Life { asked, pinned, ..Life::default() });
                true
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next incarnation takes up the conversation of the last where something was said in it.
    pub(crate) fn next(&mut self, id: SessionId) {
        let (tag, now) = (self.tag(), self.now());
        let events =
            admit::next_incarnation(self.session(id), Next { tag, now, conversation: "talk", fresh: false });
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

    /// The session with this number of those that are so.
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

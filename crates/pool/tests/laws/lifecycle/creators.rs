//! Many clients create sessions at once while slots are few. Whatever dies between an intent and its outcome,
//! and however often it is repeated, the slots are never exceeded and none is lost.

use std::collections::BTreeMap;

use pool::session::{CreateOutcome, NextRun};
use pool::{OperationState, Settings, session};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::request::New;
use protocol::{Event, Lifecycle, OpId, Reason, Session, SessionId, Tag, Timestamp};

use super::host::Host;
use crate::world::{World, launch, settings};

const CREATORS: usize = 9;
const SLOTS: usize = 2;
const SCHEDULES: u32 = 500;

#[derive(Debug, Clone)]
enum Step {
    /// A creator sends a request: its last operation again, if it has one, unless it begins another.
    Ask(usize, bool),
    /// A decided session is created, or fails.
    Make(usize),
    Fail(usize),
    /// A program ends, and its remains are removed.
    Exit(usize),
    Remove(usize),
    /// The daemon dies. The next one continues the decided sessions under their tags, or under new ones.
    Crash(bool),
    TmuxDies,
}

fn step() -> impl Strategy<Value = Step> {
    let nth = any::<u8>().prop_map(usize::from);
    (0_u8..20, nth, any::<bool>()).prop_map(|(which, n, yes)| match which {
        0..=6 => Step::Ask(n % CREATORS, yes),
        7..=10 => Step::Make(n),
        11 => Step::Fail(n),
        12..=13 => Step::Exit(n),
        14..=15 => Step::Remove(n),
        16..=18 => Step::Crash(yes),
        _ => Step::TmuxDies,
    })
}

#[derive(Debug, Default)]
struct Race {
    world: World,
    host: Host,
    made: u64,
    /// The operation of each creator.
    ops: [Option<OpId>; CREATORS],
    /// The session of each operation.
    came_to: BTreeMap<OpId, SessionId>,
}

impl Race {
    fn settings() -> Settings {
        Settings { max_sessions: SLOTS, ..settings() }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Ask(creator, anew) => self.ask(*creator, *anew),
            Step::Make(nth) => {
                if let Some((_, tag)) = self.nth(*nth, |host, _, tag| host.jobs.contains(&tag)) {
                    self.host.make(tag);
                }
            }
            Step::Fail(nth) => {
                if let Some((session, tag)) = self.nth(*nth, |host, _, tag| host.jobs.contains(&tag)) {
                    self.host.jobs.remove(&tag);
                    let (reason, detail) = (Reason::TmuxFailed, String::new());
                    self.world.emit(Event::SessionFailed { session, reason, detail, exit: None });
                }
            }
            Step::Exit(nth) => {
                if let Some((_, tag)) = self.nth(*nth, |host, _, tag| host.is_alive(tag)) {
                    self.host.exit(tag, 1);
                }
            }
            Step::Remove(nth) => {
                if let Some((_, tag)) = self.nth(*nth, |_, s, _| s.lifecycle == Lifecycle::Draining) {
                    self.host.remove(tag);
                }
            }
            Step::Crash(same_tag) => self.crash(*same_tag),
            Step::TmuxDies => self.host.server_dies(false),
        }
        let (state, dead) = (self.host.state(), self.host.dead());
        while !self.world.see(&state, &dead).is_empty() {}
    }

    fn nth(&self, n: usize, is: impl Fn(&Host, &Session, Tag) -> bool) -> Option<(SessionId, Tag)> {
        let tagged = |s: &Session| Some((s.id, s.incarnation.as_ref()?.tag));
        let holding = self.world.pool.sessions().filter(|s| s.lifecycle.holds_slot());
        let all: Vec<_> =
            holding.filter_map(|s| tagged(s).filter(|(_, tag)| is(&self.host, s, *tag))).collect();
        all.get(n % all.len().max(1)).copied()
    }

    fn tag(&mut self) -> Tag {
        self.made += 1;
        Tag(u128::from(self.made).to_be_bytes())
    }

    /// A repeated operation begins nothing again.
    fn ask(&mut self, creator: usize, anew: bool) {
        let made = self.made;
        let fresh = || OpId::Named(format!("op{creator}-{made}"));
        let op = self.ops[creator].take().filter(|_| !anew).unwrap_or_else(fresh);
        self.ops[creator] = Some(op.clone());
        let known = self.world.pool.operation(&op).map(|operation| operation.state.clone());
        if let Some(OperationState::Begun(session)) = known {
            return assert_eq!(self.came_to.get(&op), Some(&session));
        }
        assert!(!self.came_to.contains_key(&op), "a repeat is no second session");
        let tag = self.tag();
        let asked =
            New { name: Some(format!("s{}", self.made)), command: vec!["job".into()], ..New::default() };
        let free = self.world.pool.slots_used() < SLOTS;
        match session::create(&self.world.pool, &Self::settings(), &asked, &launch(tag, self.world.now))
            .unwrap()
        {
            CreateOutcome::Create(made) if free => {
                let (session, at) = (made.session, Timestamp(self.world.now));
                self.world.emit_all(made.events);
                self.world.emit(Event::OperationBegun { op: op.clone(), digest: 1, session, at });
                self.host.jobs.insert(tag);
                self.came_to.insert(op, session);
            }
            other => assert!(!free && other == CreateOutcome::Full, "{other:?}"),
        }
    }

    fn crash(&mut self, same_tag: bool) {
        let rebuilt = self.world.rebuilt();
        assert_eq!(rebuilt, self.world.pool);
        self.world.pool = rebuilt;
        let waits = |s: &Session| s.incarnation.as_ref().is_some_and(|run| self.host.jobs.contains(&run.tag));
        let cut_off: Vec<SessionId> = self.world.pool.sessions().filter(|s| waits(s)).map(|s| s.id).collect();
        for id in cut_off.into_iter().filter(|_| !same_tag) {
            // Without its job file the incarnation can never run under the old tag.
            let (tag, now) = (self.tag(), Timestamp(self.world.now));
            let session = self.world.pool.session(id).unwrap();
            self.host.jobs.remove(&session.incarnation.as_ref().unwrap().tag);
            let events =
                session::next_incarnation(session, NextRun { tag, now, conversation: "talk", fresh: false });
            self.world.emit_all(events);
            self.host.jobs.insert(tag);
        }
    }

    fn compare(&self) {
        let used = self.world.pool.slots_used();
        assert!(used <= SLOTS && self.host.running() <= used, "{used} slots, {:?}", self.host);
        let holding = self.world.pool.sessions().filter(|s| s.lifecycle.holds_slot());
        let there = |s: &Session| s.incarnation.as_ref().is_some_and(|run| self.host.has(run.tag));
        assert_eq!(holding.filter(|s| there(s)).count(), used, "a slot leaks");
    }

    /// Everything ends, and each creator gets its session in the end.
    fn wind_up(&mut self) {
        for creator in 0..CREATORS {
            while self.world.pool.slots_used() > 0 {
                for step in [Step::Make(0), Step::Exit(0), Step::Remove(0)] {
                    self.step(&step);
                    self.compare();
                }
            }
            self.step(&Step::Ask(creator, true));
            assert_eq!(self.world.pool.slots_used(), 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: SCHEDULES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn g08_p22_nine_creators_never_exceed_a_cap_of_two_and_no_slot_leaks(steps in vec(step(), 0..100)) {
        let mut race = Race::default();
        for step in steps {
            race.world.now += 1;
            race.step(&step);
            race.compare();
        }
        race.wind_up();
    }
}

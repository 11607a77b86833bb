//! The rules about running sessions, one by one: at the threshold, just before, far beyond, and never.

mod decided;
mod explained;
mod thresholds;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pool::reap::{Machine, ResourceUse, RuleInputs, RuleVerdict};
use pool::{Agent, Settings, reap, slots};
use protocol::reap::{Action, Rule};
use protocol::session::SessionLock;
use protocol::{
    Epoch, Holder, Incarnation, MessageId, MessageState, OpId, PROMPT, Session, SessionId, Tag, Timestamp,
    Token,
};

use crate::queue::{asked, send, send_prompt};
use crate::world::{World, process, server, session_lock, settings};

pub(crate) const MINUTE: u64 = 60_000;
/// Time at which every session starts; nothing moves in it from here on.
pub(crate) const START: u64 = 1000 * MINUTE;
pub(crate) const ONE: SessionId = SessionId(1);

/// A live session that can resume, with the volatile facts about it.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) settings: Settings,
    pub(crate) quiet: BTreeMap<SessionId, Timestamp>,
    pub(crate) calm: BTreeMap<SessionId, Timestamp>,
    pub(crate) worked: BTreeMap<Tag, Timestamp>,
    pub(crate) busy: BTreeSet<SessionId>,
    pub(crate) used: BTreeMap<SessionId, ResourceUse>,
    pub(crate) ask: BTreeSet<SessionId>,
    pub(crate) machine: Machine,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let agents = [("command".to_owned(), Agent::default())].into();
        let start = Timestamp(START);
        let mut scene = Self {
            world: World { now: START, ..World::default() },
            settings: Settings { agents, ..settings() },
            quiet: [(ONE, start)].into(),
            calm: [(ONE, start)].into(),
            worked: BTreeMap::new(),
            busy: BTreeSet::new(),
            used: [(ONE, ResourceUse { memory: Some(1000), disk: Some(1000), unread: false })].into(),
            ask: BTreeSet::new(),
            machine: Machine::default(),
        };
        assert_eq!(scene.world.live("s", server(1), 1), ONE);
        scene.change(|s| s.spec.resume_args = vec!["--resume".into()]);
        scene
    }

    /// A scene that violates this rule from the returned time on.
    pub(crate) fn of(rule: Rule) -> (Self, Timestamp) {
        let mut scene = Self::new();
        let minutes = match rule {
            Rule::StaleAgent => {
                scene.type_prompt();
                30
            }
            Rule::Hung => {
                scene.prompt();
                10
            }
            Rule::IdleSession => 15,
            Rule::RunTime => {
                scene.change(|s| s.policy.max_runtime_ms = Some(20 * MINUTE));
                20
            }
            Rule::Memory | Rule::Disk => {
                scene.change(|s| (s.spec.limits.memory, s.spec.limits.disk) = (Some(999), Some(999)));
                0
            }
            rule => panic!("{rule:?} is not about a running session"),
        };
        (scene, Timestamp(START + minutes * MINUTE))
    }

    pub(crate) fn session(&self) -> &Session {
        self.world.pool.session(ONE).unwrap()
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Session)) {
        let mut record = self.session().clone();
        change(&mut record);
        self.world.emit(protocol::Event::SessionCreated(Box::new(record)));
    }

    pub(crate) fn tag(&self) -> Tag {
        self.session().incarnation.as_ref().unwrap().tag
    }

    pub(crate) fn prompt(&mut self) -> MessageId {
        send_prompt(&mut self.world, ONE).unwrap()
    }

    /// Gives the agent a prompt.
    pub(crate) fn type_prompt(&mut self) -> MessageId {
        let id = self.prompt();
        let now = Timestamp(self.world.now);
        let open = pool::queue::next_prompt(&self.world.pool, ONE, now).unwrap();
        let typing = pool::queue::begin_typing(&open, Token { epoch: Epoch(1), n: 1 }, now);
        self.world.emit(typing);
        let typed = pool::queue::transition(
            &self.world.pool.find_pending(id).unwrap(),
            MessageState::Typed,
            None,
            now,
        );
        self.world.emit(typed);
        id
    }

    /// Gives a message of another kind to a worker.
    pub(crate) fn claim_other(&mut self) {
        let rules = self.settings.queue.clone();
        let id =
            send(&mut self.world, &rules, &asked(ONE, "observation"), &OpId::Named("other".into())).unwrap();
        assert_ne!(asked(ONE, "observation").kind, PROMPT);
        let open = self.world.pool.find_pending(id).unwrap();
        let holder =
            Holder { generator: None, process: Some(process(900)), lease_ms: 60_000, op: None, host: None };
        let token = Token { epoch: Epoch(1), n: 2 };
        let given = pool::queue::claimed(&open, token, holder, Timestamp(self.world.now));
        self.world.emit(given);
    }

    pub(crate) fn adopt(&mut self) {
        self.change(|s| {
            let run = s.incarnation.take();
            s.incarnation = run.map(|run| Incarnation { agent: run.init, ..run });
        });
        assert!(self.session().incarnation.as_ref().unwrap().is_adopted());
    }

    pub(crate) fn lock(&mut self) {
        let lock = SessionLock { lease_ms: 1, ..session_lock(3, Timestamp(self.world.now)) };
        self.change(|s| s.lock = Some(lock));
    }

    pub(crate) fn with_signs<R>(&self, now: Timestamp, with: impl FnOnce(&RuleInputs<'_>) -> R) -> R {
        let slots = slots::EvictionInputs {
            now,
            quiet_since: &self.quiet,
            delivered_at: &self.worked,
            attended: &BTreeSet::new(),
            busy: &self.busy,
        };
        with(&RuleInputs {
            eviction: &slots,
            low_cpu_since: &self.calm,
            used: &self.used,
            asking: &self.ask,
            machine: &self.machine,
        })
    }

    pub(crate) fn verdict(&self, rule: Rule, now: Timestamp) -> RuleVerdict {
        let (pool, session) = (&self.world.pool, self.session());
        self.with_signs(now, |signs| reap::rule_verdict(pool, &self.settings, session, rule, signs))
    }

    pub(crate) fn applies(&self, rule: Rule, now: Timestamp) -> bool {
        let verdict = self.verdict(rule, now);
        assert!(!verdict.why.is_empty() && (!verdict.applies || verdict.at.is_none()), "{verdict:?}");
        verdict.applies
    }

    /// True if the rule is not violated, not even after a year without a change.
    pub(crate) fn never(&self, rule: Rule) -> bool {
        let year = Timestamp(START).after(Duration::from_secs(365 * 86400));
        !self.applies(rule, year) && self.verdict(rule, Timestamp(START)).at.is_none()
    }

    pub(crate) fn action(&self, rule: Rule) -> (Action, &'static str) {
        reap::rule_action(&self.settings, Some(self.session()), rule)
    }
}

pub(crate) fn before(at: Timestamp) -> Timestamp {
    Timestamp(at.0 - 1)
}

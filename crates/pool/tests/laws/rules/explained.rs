//! The explained verdicts of the rules agree with their findings.

use std::collections::{BTreeMap, BTreeSet};

use pool::reap;
use pool::reap::{OrphanProcess, Orphans, ReapInputs, ResourceUse, SESSION_RULES, SilentWorker, explain};
use proptest::prelude::*;
use protocol::reap::Rule;
use protocol::reply::Explained;
use protocol::tmux::TmuxState;
use protocol::{GeneratorId, Lifecycle, MessageState, ProcId, Reason, Timestamp};

use super::{MINUTE, ONE, START, Scene};
use crate::world::{pane, process, server, up};

/// Times of past events since the start, in half minutes.
fn when() -> impl Strategy<Value = u64> {
    (0_u64..80).prop_map(|n| START + n * MINUTE / 2)
}

/// A session in an arbitrary situation.
#[derive(Debug, Clone)]
struct Situation {
    lifecycle: Lifecycle,
    reason: Reason,
    message: Option<MessageState>,
    waits: bool,
    marks: [bool; 6],
    quiet: Option<u64>,
    calm: Option<u64>,
    worked: Option<u64>,
    changed: u64,
    heard: Option<u64>,
    limits: (Option<u64>, Option<u64>),
    runtime: Option<u64>,
    resumes: bool,
    /// The pane exists; it is dead; the init has ended; a process carries the marker; it serves others.
    around: [bool; 5],
    missing: Option<u64>,
    now: u64,
}

fn situation() -> impl Strategy<Value = Situation> {
    use Lifecycle::{Draining, Failed, Live, Lost, Parked, Starting, Stopped};
    use MessageState::{Accepted, InDoubt, Typed, Typing};
    let lifecycles =
        vec![Live, Live, Live, Live, Draining, Draining, Starting, Stopped, Parked, Lost, Failed];
    let reasons = vec![
        Reason::Exited,
        Reason::Killed,
        Reason::ServerGone,
        Reason::TmuxGone,
        Reason::Drained,
        Reason::Restarted,
    ];
    let state = (
        prop::sample::select(lifecycles),
        prop::sample::select(reasons),
        prop::option::of(prop::sample::select(vec![Typed, Typed, Typing, Accepted, InDoubt])),
        any::<bool>(),
        prop::array::uniform6(prop::bool::weighted(0.1)),
        any::<bool>(),
    );
    let signs = (
        prop::option::weighted(0.8, when()),
        prop::option::weighted(0.8, when()),
        prop::option::weighted(0.3, when()),
        prop_oneof![4 => Just(START), 1 => when()],
        prop::option::of(when()),
    );
    let rest = (
        (prop::option::of(0_u64..2000), prop::option::of(0_u64..2000)),
        prop::option::of(0..40 * MINUTE),
        prop::array::uniform5(any::<bool>()),
        prop::option::of(when()),
        when(),
    );
    (state, signs, rest).prop_map(|(state, signs, rest)| {
        let (lifecycle, reason, message, waits, marks, resumes) = state;
        let (quiet, calm, worked, changed, heard) = signs;
        let (limits, runtime, around, missing, now) = rest;
        Situation {
            lifecycle,
            reason,
            message,
            waits,
            marks,
            quiet,
            calm,
            worked,
            changed,
            heard,
            limits,
            runtime,
            resumes,
            around,
            missing,
            now,
        }
    })
}

struct Stage {
    scene: Scene,
    state: TmuxState,
    exited: BTreeSet<ProcId>,
    orphans: Orphans,
}

impl Situation {
    fn stage(&self) -> Stage {
        let mut scene = Scene::new();
        if let Some(state) = self.message {
            let id = scene.type_prompt();
            let open = scene.world.pool.find_pending(id).unwrap();
            let moved = pool::queue::transition(&open, state, None, Timestamp(START));
            scene.world.emit(moved);
        }
        if self.waits {
            scene.prompt();
        }
        let [there, dead, ended, marked, serves] = self.around;
        let (number, mut shown) = pane(&scene.world, ONE, 1);
        shown.dead = dead;
        let state = up(1, if there { vec![(number, shown)] } else { vec![] });
        let [pinned, attached, locked, asks, busy, old] = self.marks;
        if locked {
            scene.lock();
        }
        let tag = scene.tag();
        scene.change(|s| {
            (s.lifecycle, s.reason, s.changed_at) =
                (self.lifecycle, Some(self.reason), Timestamp(self.changed));
            (s.policy.pinned, s.attached_clients) = (pinned, u32::from(attached));
            (s.spec.limits.memory, s.spec.limits.disk) = self.limits;
            s.policy.max_runtime_ms = self.runtime;
            if !self.resumes {
                s.spec.resume_args.clear();
            }
            s.incarnation.as_mut().unwrap().missing_since = self.missing.map(Timestamp);
        });
        let known =
            |at: Option<u64>| at.map(|at| (ONE, Timestamp(at))).into_iter().collect::<BTreeMap<_, _>>();
        (scene.quiet, scene.calm) = (known(self.quiet), known(self.calm));
        scene.worked = self.worked.map(|at| (tag, Timestamp(at))).into_iter().collect();
        scene.busy = busy.then_some(ONE).into_iter().collect();
        scene.ask = asks.then_some(ONE).into_iter().collect();
        if old {
            scene.used = [(ONE, ResourceUse::default())].into();
        }
        let mut orphans = Orphans::default();
        if marked {
            let serves = serves.then(|| "serves a socket".to_owned());
            orphans
                .marked
                .insert(tag, vec![OrphanProcess { process: process(700), command: "sleep".into(), serves }]);
        }
        let worker = |at| SilentWorker {
            id: Some(GeneratorId(1)),
            session: ONE,
            process: process(500),
            last_seen_at: Timestamp(at),
        };
        orphans.workers = self.heard.map(worker).into_iter().collect();
        let exited = [ended.then(|| process(101)), (!there && dead).then(|| server(1).process)];
        Stage { scene, state, exited: exited.into_iter().flatten().collect(), orphans }
    }
}

impl Stage {
    fn explained(&self, now: Timestamp) -> Vec<Explained> {
        let (pool, settings, session) = (&self.scene.world.pool, &self.scene.settings, self.scene.session());
        self.with(now, |inputs| {
            self.scene.with_signs(now, |signs| explain(pool, settings, session, inputs, signs))
        })
    }

    fn with<R>(&self, now: Timestamp, with: impl FnOnce(&ReapInputs<'_>) -> R) -> R {
        with(&ReapInputs {
            state: &self.state,
            exited: &self.exited,
            now,
            listed_from: Some(self.scene.world.pool.moment(now, now)),
            grace_ms: 1,
            drained: &BTreeSet::new(),
            orphans: &self.orphans,
        })
    }

    /// The violated rules, found in both ways.
    fn found(&self, now: Timestamp) -> BTreeSet<Rule> {
        let (pool, settings) = (&self.scene.world.pool, &self.scene.settings);
        let running = self.scene.with_signs(now, |signs| reap::violations(pool, settings, signs));
        assert!(running.iter().all(|(id, rule, _)| *id == ONE && SESSION_RULES.contains(rule)));
        let over = self.with(now, |inputs| reap::find_candidates(pool, settings, inputs));
        let over = over.into_iter().filter(|candidate| candidate.session == ONE).filter_map(|c| c.rule);
        running.into_iter().map(|(_, rule, _)| rule).chain(over).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_explained_is_what_is_found_and_when_it_would_be(situation in situation()) {
        let (stage, now) = (situation.stage(), Timestamp(situation.now));
        let explained = stage.explained(now);
        let rules: Vec<Rule> = explained.iter().map(|of| of.rule).collect();
        let all: Vec<Rule> = Rule::ALL.into_iter().filter(|rule| *rule != Rule::StaleClient).collect();
        prop_assert_eq!(rules, all, "each rule once, but for the one that is about no session");
        let applies: BTreeSet<Rule> = explained.iter().filter(|of| of.applies).map(|of| of.rule).collect();
        prop_assert_eq!(&applies, &stage.found(now));
        for of in explained {
            let policy = reap::rule_action(&stage.scene.settings, Some(stage.scene.session()), of.rule);
            prop_assert_eq!((of.action, of.by.as_str()), policy);
            prop_assert!(!of.why.is_empty());
            let Some(at) = of.at else { continue };
            prop_assert!(at > now && !of.applies, "{:?}", of);
            let at_time = |at: Timestamp| stage.explained(at).into_iter().find(|then| then.rule == of.rule).unwrap();
            prop_assert!(!at_time(Timestamp(at.0 - 1)).applies, "not a moment before: {:?}", of);
            prop_assert!(at_time(at).applies && stage.found(at).contains(&of.rule), "then: {:?}", of);
        }
    }

    #[test]
    fn p06_what_is_to_be_left_alone_is_found_by_no_rule_of_silence(situation in situation()) {
        let stage = situation.stage();
        let [pinned, attached, locked, asks, ..] = situation.marks;
        let left_alone = pinned || attached || locked || asks || situation.lifecycle != Lifecycle::Live;
        let found = stage.found(Timestamp(situation.now));
        let silent = [Rule::StaleAgent, Rule::Hung, Rule::IdleSession].into_iter().any(|rule| found.contains(&rule));
        prop_assert!(!(left_alone && silent), "{:?}", found);
    }
}

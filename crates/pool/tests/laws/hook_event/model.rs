//! Prompts of one session against a plain reference, over everything that may happen to its agent and its
//! daemon.

use std::collections::{BTreeMap, BTreeSet};

use agents::prompt::TextMatch;
use pool::queue;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::hook::{Hook, HookEvent, Start};
use protocol::policy::OnInterrupted;
use protocol::request::{Resolution, ResolveMessage};
use protocol::{Lifecycle, MessageId, MessageState, Tag, Timestamp};

use crate::stage::{START, Stage, signal};
use MessageState::{Accepted, Dead, Done, InDoubt, Queued, Typed, Typing};

#[derive(Debug, Clone)]
enum Step {
    Send,
    /// The next prompt goes into the pane: it is typed; none of it arrived; all of it did; nobody knows.
    Type,
    NotTyped,
    Enter,
    Lose,
    /// A report of the agent, of an earlier incarnation, or of an agent inside it; with its age.
    Says(HookEvent, TextMatch, u64),
    SaysOld(HookEvent),
    SaysForeign(HookEvent),
    /// The daemon dies, and another one starts.
    Crash,
    /// The program ends; it runs again.
    End,
    Again,
    Resolve(Resolution),
    Pass(u64),
}

/// The prompt that the agent has or is to have, according to the reports.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    id: MessageId,
    state: MessageState,
    since: u64,
    accepted: u32,
}

#[derive(Debug, Default)]
struct Reference {
    waiting: BTreeSet<MessageId>,
    held: Option<Held>,
    over: BTreeMap<MessageId, MessageState>,
    lives: bool,
    retries: bool,
    /// The time of the newest report of this incarnation, and its activity: at rest, after a failure or not;
    /// or at work.
    heard_at: Option<u64>,
    rests: Option<bool>,
    /// Prompts of which at least a byte may have arrived, and that nobody has asked to send again since.
    typed: BTreeSet<MessageId>,
}

impl Reference {
    fn ends(&mut self, state: MessageState) {
        let held = self.held.take().unwrap();
        self.over.insert(held.id, state);
    }

    fn waits_again(&mut self) {
        let held = self.held.take().unwrap();
        self.typed.remove(&held.id);
        self.waiting.insert(held.id);
    }

    fn is(&mut self, states: &[MessageState]) -> Option<&mut Held> {
        self.held.as_mut().filter(|held| states.contains(&held.state))
    }

    fn says(&mut self, signal: &HookEvent, same: TextMatch, at: u64) {
        if !self.lives {
            // The prompt was accepted, and no further report about it comes.
            let taken = matches!(signal, HookEvent::Prompt { .. }) && same == TextMatch::Exact;
            if taken && self.is(&[InDoubt]).is_some() {
                self.ends(Dead);
            }
            return;
        }
        let late = self.heard_at.is_some_and(|newest| at < newest);
        let rests = if late { self.rests } else { None };
        match signal {
            HookEvent::Prompt { .. } if same != TextMatch::Different => {
                // A prompt in doubt is only confirmed by exactly its own text.
                let states: &[_] =
                    if same == TextMatch::Exact { &[Typing, Typed, InDoubt] } else { &[Typing, Typed] };
                if let Some(held) = self.is(states) {
                    (held.state, held.since, held.accepted) = (Accepted, at, held.accepted + 1);
                    assert_eq!(held.accepted, 1, "accepted twice");
                    match rests {
                        Some(false) => self.ends(Done),
                        Some(true) => self.ends(Dead),
                        None => {}
                    }
                }
            }
            HookEvent::TurnOver { .. } | HookEvent::TurnFailed { .. } | HookEvent::Interrupted
                if self.is(&[Accepted]).is_some_and(|held| at >= held.since) =>
            {
                match signal {
                    HookEvent::TurnOver { .. } => self.ends(Done),
                    HookEvent::Interrupted if self.retries => self.waits_again(),
                    _ => self.ends(Dead),
                }
            }
            _ => {}
        }
        if !late {
            self.heard_at = Some(at);
            self.rests = match signal {
                HookEvent::Started { .. } | HookEvent::TurnOver { .. } | HookEvent::Interrupted => {
                    Some(false)
                }
                HookEvent::TurnFailed { .. } => Some(true),
                _ => None,
            };
        }
    }
}

struct Machine {
    stage: Stage,
    reference: Reference,
    old: Tag,
}

impl Machine {
    fn new(retries: bool) -> Self {
        let then = if retries { OnInterrupted::Retry } else { OnInterrupted::Dead };
        let mut stage = Stage::new("claude").on_interrupted(then);
        // The breaker is the subject of another law.
        stage.rules.breaker_failures = 0;
        (stage.rules.retry_backoff, stage.rules.max_attempts) = (std::time::Duration::ZERO, u32::MAX);
        Self {
            stage,
            reference: Reference { lives: true, retries, ..Reference::default() },
            old: Tag([77; 16]),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Send if self.reference.lives => {
                let id = self.stage.send();
                self.reference.waiting.insert(id);
            }
            Step::Type => self.begin(),
            Step::NotTyped | Step::Enter | Step::Lose => self.typed(step),
            Step::Says(signal, same, age) => {
                let hook = self.stage.hook(signal.clone());
                let started = self.stage.session().incarnation.as_ref().unwrap().started_at;
                let hook = Hook { at: Timestamp(hook.at.0 - age).max(started), ..hook };
                self.stage.handle_hook(&hook, *same);
                self.reference.says(signal, *same, hook.at.0);
            }
            Step::SaysOld(signal) => {
                let hook = Hook { tag: self.old, ..self.stage.hook(signal.clone()) };
                let is_last = self.old == self.stage.tag();
                let events = self.stage.handle_hook(&hook, TextMatch::Exact);
                if is_last {
                    self.reference.says(signal, TextMatch::Exact, hook.at.0);
                } else {
                    assert_eq!(events, vec![]);
                }
            }
            Step::SaysForeign(signal) => {
                let hook = Hook { conversation: Some("x".to_owned()), ..self.stage.hook(signal.clone()) };
                assert_eq!(self.stage.handle_hook(&hook, TextMatch::Exact), vec![]);
            }
            Step::Crash => {
                self.stage.crash();
                let now = self.stage.now().0;
                if let Some(held) = self.reference.is(&[Typing]) {
                    (held.state, held.since) = (InDoubt, now);
                }
            }
            Step::End if self.reference.lives => {
                // A prompt that is being typed finds no pane, or it is unknown whether it did.
                self.typed(&Step::Lose);
                self.old = self.stage.tag();
                self.stage.end();
                (self.reference.lives, self.reference.heard_at, self.reference.rests) = (false, None, None);
                if self.reference.is(&[Typed, Accepted]).is_some() {
                    self.reference.ends(Dead);
                }
            }
            Step::Again if !self.reference.lives => {
                self.stage.again();
                self.reference.lives = true;
            }
            Step::Resolve(resolution) => self.resolve(*resolution),
            Step::Pass(ms) => self.stage.pass(*ms),
            Step::Send | Step::End | Step::Again => {}
        }
        self.stage.settle_ended();
    }

    fn begin(&mut self) {
        let first = self.reference.waiting.first().copied();
        let expected = first.filter(|_| self.reference.lives && self.reference.held.is_none());
        assert_eq!(self.stage.begin(), expected, "one at a time, in order");
        if let Some(id) = expected {
            self.reference.waiting.remove(&id);
            assert!(self.reference.typed.insert(id), "typed twice");
            let since = self.stage.now().0;
            self.reference.held = Some(Held { id, state: Typing, since, accepted: 0 });
        }
    }

    /// Applies an outcome of typing.
    fn typed(&mut self, step: &Step) {
        let now = self.stage.now();
        let Some(held) = self.reference.is(&[Typing]) else { return };
        held.since = now.0;
        let id = held.id;
        let open = self.stage.pool().find_pending(id).unwrap();
        let event = match step {
            Step::NotTyped => queue::give_back(&open, "not typed".into(), now),
            Step::Enter => queue::transition(&open, Typed, None, now),
            _ => queue::transition(&open, InDoubt, Some("nobody knows".into()), now),
        };
        self.stage.world.emit(event);
        match step {
            Step::NotTyped => self.reference.waits_again(),
            Step::Enter => held_mut(&mut self.reference).state = Typed,
            _ => held_mut(&mut self.reference).state = InDoubt,
        }
    }

    fn resolve(&mut self, resolution: Resolution) {
        let Some(Held { id, state, since, .. }) = self.reference.held.clone() else { return };
        let asked = ResolveMessage { id, resolution };
        let decided = queue::resolve(self.stage.pool(), &asked, self.stage.now());
        let just_typed = state == Typed && (since..since + 12_000).contains(&self.stage.now().0);
        let doubtful = matches!(state, Typed | Accepted | InDoubt)
            && !(just_typed && matches!(resolution, Resolution::Retry));
        assert_eq!(decided.is_ok(), doubtful, "{state:?}");
        if let Ok(events) = decided {
            self.stage.world.emit_all(events);
            match resolution {
                Resolution::Done => self.reference.ends(Done),
                Resolution::Dead => self.reference.ends(Dead),
                Resolution::Retry => self.reference.waits_again(),
            }
        }
    }

    fn compare(&self) {
        let Self { stage, reference, .. } = self;
        for id in &reference.waiting {
            assert_eq!(stage.message(*id), Queued);
        }
        for (id, state) in &reference.over {
            assert_eq!(stage.message(*id), *state);
        }
        let held = queue::held_prompt(stage.pool(), stage.id).map(|open| (open.id, open.state, open.since.0));
        let expected = reference.held.as_ref().map(|held| (held.id, held.state, held.since));
        assert_eq!(held, expected);
        assert_eq!(stage.pool().prompts(stage.id).held, held.is_some(), "prompts are held by what is there");
        assert_eq!(stage.session().lifecycle == Lifecycle::Live, reference.lives);
        // A prompt that an agent has needs an agent: nothing waits for one that ended.
        let with_agent = matches!(held, Some((_, Typed | Accepted, _)));
        assert!(!with_agent || reference.lives);
    }
}

fn held_mut(reference: &mut Reference) -> &mut Held {
    reference.held.as_mut().unwrap()
}

fn step() -> impl Strategy<Value = Step> {
    let signals = || {
        prop::sample::select(vec![
            signal::started(Start::New),
            signal::prompt(),
            signal::prompt(),
            signal::works("Bash"),
            signal::over(),
            signal::over(),
            signal::failed(None),
            HookEvent::Interrupted,
        ])
    };
    let same = prop::sample::select(vec![
        TextMatch::Exact,
        TextMatch::Exact,
        TextMatch::Exact,
        TextMatch::Surrounded,
        TextMatch::Different,
    ]);
    let age = prop::sample::select(vec![0_u64, 0, 0, 0, 40, 400, 4000]);
    let resolution = prop::sample::select(vec![Resolution::Done, Resolution::Retry, Resolution::Dead]);
    prop_oneof![
        4 => Just(Step::Send),
        8 => Just(Step::Type),
        1 => Just(Step::NotTyped),
        6 => Just(Step::Enter),
        1 => Just(Step::Lose),
        14 => (signals(), same, age).prop_map(|(signal, same, age)| Step::Says(signal, same, age)),
        1 => signals().prop_map(Step::SaysOld),
        1 => signals().prop_filter("a start of its own", |signal| !matches!(signal, HookEvent::Started { .. }))
            .prop_map(Step::SaysForeign),
        2 => Just(Step::Crash),
        1 => Just(Step::End),
        2 => Just(Step::Again),
        2 => resolution.prop_map(Step::Resolve),
        5 => (1_u64..500).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn q06_prompts_are_typed_once_accepted_once_and_come_to_one_end(
        retries in any::<bool>(), steps in vec(step(), 1..60),
    ) {
        let mut machine = Machine::new(retries);
        assert_eq!(machine.stage.now().0, START);
        for step in &steps {
            machine.step(step);
            machine.compare();
        }
        assert_eq!(machine.stage.world.rebuilt(), machine.stage.world.pool);
    }
}

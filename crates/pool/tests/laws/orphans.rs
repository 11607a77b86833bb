//! Orphans, clients of dead daemons, silent workers.

use std::collections::BTreeSet;
use std::time::Duration;

use pool::deadlines::Mono;
use pool::reap;
use pool::reap::{OrphanClient, OrphanProcess, Orphans, ReapInputs, Reaping, SilentWorker, explain};
use protocol::reap::{Action, Candidate, CandidateKind, Rule};
use protocol::reply::Explained;
use protocol::tmux::TmuxState;
use protocol::{Epoch, Event, GeneratorId, Lifecycle, Reason, SessionId, Tag, Timestamp, Token};

use crate::rules::{MINUTE, ONE, START, Scene};
use crate::world::process;

#[test]
fn orphans_that_are_to_be_left_are_left_after_the_removal_of_their_session() {
    for action in [Action::Report, Action::Kill] {
        let mut scene = Scene::new();
        let (mut session, earlier) = (scene.session().clone(), Tag([9; 16]));
        session.policy.reap = [(Rule::Orphans, action)].into();
        let last = session.tag().unwrap();
        scene.world.emit(Event::TagRetired { tag: earlier, session: session.id });
        let retired = vec![Event::TagRetired { tag: last, session: session.id }];
        let events = reap::leave_orphans(&scene.world.pool, &scene.settings, &session, retired.clone());
        let left = vec![Event::TagForgotten(earlier)];
        assert_eq!(events, if action == Action::Report { left } else { retired });
    }
}

/// The surroundings of a session.
struct Yard {
    scene: Scene,
    orphans: Orphans,
    state: TmuxState,
    exited: BTreeSet<protocol::ProcId>,
    now: Timestamp,
}

impl Yard {
    fn new() -> Self {
        let (scene, now) = (Scene::new(), Timestamp(START));
        Self { scene, orphans: Orphans::default(), state: TmuxState::default(), exited: BTreeSet::new(), now }
    }

    fn with<R>(&self, with: impl FnOnce(&ReapInputs<'_>) -> R) -> R {
        with(&ReapInputs {
            state: &self.state,
            exited: &self.exited,
            now: self.now,
            listed_from: Some(self.scene.world.pool.moment(self.now, self.now)),
            grace_ms: 7,
            drained: &BTreeSet::new(),
            orphans: &self.orphans,
        })
    }

    fn named(&self) -> Vec<Candidate> {
        self.with(|inputs| reap::find_candidates(&self.scene.world.pool, &self.scene.settings, inputs))
    }

    fn candidates(&self) -> Vec<Candidate> {
        self.with(|inputs| crate::world::candidates(&self.scene.world.pool, &self.scene.settings, inputs))
    }

    fn explained(&self, rule: Rule) -> Explained {
        let (pool, settings) = (&self.scene.world.pool, &self.scene.settings);
        let all = self.with(|inputs| {
            self.scene
                .with_signs(self.now, |signs| explain(pool, settings, self.scene.session(), inputs, signs))
        });
        all.into_iter().find(|of| of.rule == rule).unwrap()
    }

    /// Adds a process with this tag.
    fn mark(&mut self, tag: Tag, pid: u32, serves: Option<&str>) {
        let orphan = OrphanProcess {
            process: process(pid),
            command: "sleep".into(),
            serves: serves.map(str::to_owned),
        };
        self.orphans.marked.entry(tag).or_default().push(orphan);
    }

    fn is(&mut self, lifecycle: Lifecycle, reason: Reason) {
        self.scene.change(|s| (s.lifecycle, s.reason) = (lifecycle, Some(reason)));
    }

    fn silent_since(&mut self, last_seen_at: u64) {
        let last_seen_at = Timestamp(last_seen_at);
        self.orphans.workers = vec![SilentWorker {
            id: Some(GeneratorId(5)),
            session: ONE,
            process: process(500),
            last_seen_at,
        }];
    }
}

#[test]
fn p06_only_the_mark_of_what_is_over_makes_an_orphan() {
    use Lifecycle::{Draining, Failed, Live, Lost, Parked, Starting, Stopped};
    for (lifecycle, reason, orphans) in [
        (Starting, Reason::Restarted, 0),
        (Live, Reason::Exited, 0),
        (Draining, Reason::Killed, 0),
        (Stopped, Reason::Restarted, 0),
        (Stopped, Reason::Exited, 1),
        (Stopped, Reason::Killed, 1),
        (Parked, Reason::Idle, 1),
        (Lost, Reason::ServerGone, 1),
        (Failed, Reason::TmuxFailed, 1),
    ] {
        let mut yard = Yard::new();
        yard.mark(yard.scene.tag(), 700, None);
        yard.is(lifecycle, reason);
        let found: Vec<_> =
            yard.candidates().into_iter().filter(|c| c.kind == CandidateKind::Orphan).collect();
        assert_eq!(found.len(), orphans, "{lifecycle:?} {reason:?}");
        assert_eq!(yard.explained(Rule::Orphans).applies, orphans > 0, "{lifecycle:?} {reason:?}");
        for orphan in found {
            assert_eq!(
                (orphan.session, orphan.tag, orphan.rule),
                (ONE, yard.scene.tag(), Some(Rule::Orphans))
            );
            assert!(
                orphan.init.is_none() && orphan.pane.is_none() && !orphan.remove_pane && orphan.grace_ms == 7
            );
            assert!(orphan.evidence.contains("700"), "{}", orphan.evidence);
        }
    }
}

#[test]
fn p04_what_drains_when_its_server_dies_is_ended_if_its_init_is_known_to_live() {
    let kinds = |yard: &Yard| yard.named().into_iter().map(|c| (c.session, c.kind)).collect::<Vec<_>>();
    let mut yard = Yard::new();
    yard.is(Lifecycle::Draining, Reason::Drained);
    assert_eq!(kinds(&yard), [], "it works off its queue");
    let run = yard.scene.session().incarnation.clone().unwrap();
    yard.exited = [run.server.unwrap().process].into();
    assert_eq!(kinds(&yard), [(ONE, CandidateKind::Leftover)]);
    assert_eq!(yard.named()[0].rule, Some(Rule::Leftovers));
    // The death of the server replaces any reason of an end, except for that of a session that drains.
    yard.is(Lifecycle::Draining, Reason::Exited);
    assert_eq!(kinds(&yard), []);
    yard.is(Lifecycle::Draining, Reason::Drained);
    yard.exited.insert(run.init.unwrap());
    assert_eq!(kinds(&yard), [(ONE, CandidateKind::Requested)], "its program has ended, too");
    yard.exited.clear();
    yard.scene.change(|s| s.incarnation.as_mut().unwrap().server = None);
    assert_eq!(kinds(&yard), [], "it is not known which server it was");
}

#[test]
fn p04_what_survives_being_parked_is_ended_whatever_it_was_parked_for() {
    use Reason::{Evicted, HostDisk, HostMemory, Idle, Limited, Parked};
    for reason in [Evicted, Idle, Parked, Limited, HostMemory, HostDisk] {
        let mut yard = Yard::new();
        yard.is(Lifecycle::Draining, reason);
        let named: Vec<_> = yard.named().into_iter().map(|c| (c.session, c.kind)).collect();
        assert_eq!(named, [(ONE, CandidateKind::Requested)], "{reason:?}");
    }
}

#[test]
fn p06_the_mark_of_an_earlier_incarnation_is_over_and_an_unknown_one_is_nobodys() {
    let mut yard = Yard::new();
    yard.mark(Tag([0xaa; 16]), 700, None);
    assert_eq!(yard.named(), vec![], "another pool's, or of a record that is gone");
    yard.scene.world.emit(Event::TagRetired { tag: Tag([0xaa; 16]), session: ONE });
    let found: Vec<_> = yard.candidates().into_iter().map(|c| (c.kind, c.session)).collect();
    assert_eq!(found, [(CandidateKind::Orphan, ONE)], "while its session runs on");
    assert!(yard.explained(Rule::Orphans).applies);
}

#[test]
fn p06_what_carries_the_mark_of_an_ended_incarnation_only_since_later_was_not_left_by_it() {
    let (mut yard, tag) = (Yard::new(), Tag([9; 16]));
    yard.scene.world.emit(Event::TagRetired { tag, session: ONE });
    let (pool, mut reaping) = (&yard.scene.world.pool, Reaping::new(yard.now));
    assert!(!reaping.is_left_over(pool, yard.scene.tag()), "its incarnation runs");
    assert!(!reaping.is_left_over(pool, Tag([8; 16])), "another pool's");
    // A scan misses a process that calls exec just then; two in a row miss none.
    for scans in [[true, true, true], [true, false, true], [false, false, true]] {
        for is_carried in scans {
            let carried = is_carried.then_some(tag).into_iter().collect();
            assert_eq!(reaping.note_carried_tags(pool, &carried, Mono(0)), []);
        }
        assert_eq!(reaping.is_left_over(pool, tag), scans != [false, false, true], "{scans:?}");
    }
}

#[test]
fn p06_the_mark_of_a_claim_that_is_over_belongs_to_no_session() {
    let mut yard = Yard::new();
    let tag = Tag::for_claim(Token { epoch: Epoch(3), n: 9 });
    yard.mark(tag, 700, None);
    let found: Vec<_> = yard.candidates().into_iter().map(|c| (c.kind, c.session, c.tag)).collect();
    assert_eq!(found, [(CandidateKind::Orphan, SessionId(0), tag)]);
    assert!(!yard.explained(Rule::Orphans).applies);
}

#[test]
fn g16_what_serves_others_is_left_and_the_rest_beside_it_is_not() {
    let mut yard = Yard::new();
    let tag = yard.scene.tag();
    yard.is(Lifecycle::Stopped, Reason::Exited);
    yard.mark(tag, 700, Some("serves a socket"));
    assert_eq!(yard.named(), vec![]);
    let told = yard.explained(Rule::Orphans);
    assert!(!told.applies && told.why.contains("700") && told.why.contains("serves a socket"), "{told:?}");
    yard.mark(tag, 701, None);
    let found = yard.candidates();
    assert!(found.len() == 1 && found[0].evidence.contains("701"), "{found:?}");
    assert!(!found[0].evidence.contains("700"), "{found:?}");
}

#[test]
fn a_client_of_a_dead_daemon_is_a_candidate_and_belongs_to_no_session() {
    let mut yard = Yard::new();
    let clients =
        [process(700), process(701)].map(|client| OrphanClient { process: client, owner: process(600) });
    yard.orphans.clients = clients.to_vec();
    let found = yard.candidates();
    let tags: BTreeSet<Tag> = found.iter().map(|c| c.tag).collect();
    assert_eq!((found.len(), tags.len()), (2, 2), "each has a name of its own");
    for (candidate, client) in found.iter().zip(clients) {
        assert_eq!((candidate.kind, candidate.rule), (CandidateKind::StaleClient, Some(Rule::StaleClient)));
        assert_eq!((candidate.init, candidate.session), (Some(client.process), SessionId(0)));
        assert!(candidate.evidence.contains("600") && yard.scene.world.pool.tagged(candidate.tag).is_none());
    }
}

#[test]
fn c02_a_generator_is_stale_only_beyond_its_threshold() {
    let mut yard = Yard::new();
    yard.silent_since(START);
    let limit = 5 * MINUTE;
    for (silent, expected) in
        [(0, 0), (limit - 1, 0), (limit, 0), (limit + 1, 1), (1000 * limit, 1), (u64::MAX - START, 1)]
    {
        yard.now = Timestamp(START + silent);
        let found: Vec<_> = yard.candidates().into_iter().map(|c| (c.kind, c.init, c.tag)).collect();
        let stale = (CandidateKind::StaleWorker, Some(process(500)), yard.orphans.workers[0].tag());
        assert_eq!(found, vec![stale; expected], "{silent}");
        let told = yard.explained(Rule::StaleWorker);
        assert_eq!((told.applies, told.at.is_some()), (expected > 0, expected == 0), "{told:?}");
        assert!(told.at.is_none_or(|at| at == Timestamp(START + limit + 1)), "{told:?}");
    }
    yard.scene.settings.reap.stale_worker = Duration::from_secs(1);
    yard.silent_since(START);
    for (silent, expected) in [(999, 0), (1000, 0), (1001, 1)] {
        yard.now = Timestamp(START + silent);
        assert_eq!(yard.candidates().len(), expected);
    }
    // Last seen at a time in the future, because the clock was set back.
    yard.now = Timestamp(0);
    assert_eq!(yard.candidates(), vec![]);
}

#[test]
fn p06_of_two_workers_the_one_that_speaks_is_left() {
    let mut yard = Yard::new();
    yard.silent_since(START);
    let fresh = SilentWorker {
        id: Some(GeneratorId(6)),
        last_seen_at: Timestamp(START + 10 * MINUTE),
        ..yard.orphans.workers[0]
    };
    yard.orphans.workers.push(fresh);
    yard.now = Timestamp(START + 10 * MINUTE);
    let found: Vec<Tag> = yard.candidates().into_iter().map(|c| c.tag).collect();
    assert_eq!(found, [yard.orphans.workers[0].tag()]);
    yard.now = Timestamp(START + 4 * MINUTE);
    assert_eq!(
        yard.explained(Rule::StaleWorker).at,
        Some(Timestamp(START + 5 * MINUTE + 1)),
        "the first of them"
    );
    let other = SessionId(2);
    yard.orphans.workers.iter_mut().for_each(|worker| worker.session = other);
    assert_eq!(yard.explained(Rule::StaleWorker).at, None, "they are another session's");
}

#[test]
fn what_is_only_to_be_reported_is_named_and_is_no_candidate() {
    let mut yard = Yard::new();
    yard.silent_since(0);
    yard.mark(yard.scene.tag(), 700, None);
    yard.orphans.clients = vec![OrphanClient { process: process(701), owner: process(600) }];
    yard.is(Lifecycle::Stopped, Reason::Exited);
    let rules = |found: Vec<Candidate>| found.into_iter().filter_map(|c| c.rule).collect::<BTreeSet<Rule>>();
    let all: BTreeSet<Rule> = [Rule::Orphans, Rule::StaleClient, Rule::StaleWorker].into();
    assert_eq!((rules(yard.named()), rules(yard.candidates())), (all.clone(), all.clone()));
    for rule in all.clone() {
        let before = yard.scene.settings.clone();
        yard.scene.settings.reap.actions = [(rule, Action::Report)].into();
        let left: BTreeSet<Rule> = all.iter().copied().filter(|other| *other != rule).collect();
        assert_eq!((rules(yard.named()), rules(yard.candidates())), (all.clone(), left));
        yard.scene.settings = before;
    }
}

/// A user's request is carried out, whatever the rules say.
#[test]
fn what_was_asked_for_is_no_matter_of_rules() {
    let mut yard = Yard::new();
    yard.is(Lifecycle::Draining, Reason::Killed);
    yard.scene.settings.reap.actions = Rule::ALL.map(|rule| (rule, Action::Report)).into();
    let found: Vec<_> = yard.candidates().into_iter().map(|c| (c.kind, c.rule)).collect();
    assert_eq!(found, [(CandidateKind::Requested, None)]);
}

#[test]
fn what_a_rule_decided_to_end_is_ended_whatever_becomes_of_the_rule() {
    for reason in [
        Reason::Hung,
        Reason::StaleAgent,
        Reason::TooIdle,
        Reason::MemoryLimit,
        Reason::DiskLimit,
        Reason::RunTime,
        Reason::Idle,
    ] {
        let mut yard = Yard::new();
        yard.is(Lifecycle::Draining, reason);
        yard.scene.settings.reap.actions = Rule::ALL.map(|rule| (rule, Action::Report)).into();
        let found: Vec<_> = yard.candidates().into_iter().map(|c| (c.kind, c.tag)).collect();
        assert_eq!(found, [(CandidateKind::Requested, yard.scene.tag())], "{reason:?}");
    }
}

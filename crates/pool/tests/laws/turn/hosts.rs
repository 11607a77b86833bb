//! The pool's own workers: turns of sessions, caps, fallbacks, and when their hosts are started.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pool::deadlines::Mono;
use pool::queue::LeaseEnd;
use pool::slots::RunIdentity;
use pool::worker::{Asked, Registration, configure, demand, next_messages};
use pool::{QueueRules, WorkerSettings, queue, reap, session, worker};
use protocol::message::BODY_MAX;
use protocol::policy::Budget;
use protocol::reap::CandidateKind;
use protocol::request::{Claim, ClaimRef, Disposition, Remove, Send};
use protocol::session::DeleteMode;
use protocol::tmux::TmuxState;
use protocol::worker::{ClaimScope, Selection, WorkerQueue, WorkerSpec};
use protocol::{
    ErrorCode, Event, Exit, GeneratorId, Holder, Lifecycle, MessageId, MessageState, OpId, OsBytes, Reason,
    Refusal, SessionId, Tag, Token,
};

use super::{Engine, ONE, THREE, TWO};
use crate::queue::{asked, send};
use crate::world::process;

pub(crate) fn spec(name: &str) -> WorkerSpec {
    WorkerSpec {
        name: name.to_owned(),
        command: vec!["true".into()],
        kinds: Vec::new(),
        sessions: WorkerQueue::Sessions(Selection::all()),
        session_concurrency: 9,
        concurrency: 9,
        idle_end_ms: 1000,
        lease_ms: None,
        timeout_ms: None,
        result: false,
        fallback: Vec::new(),
        fallback_after: 2,
        configured: true,
        removed: false,
    }
}

/// A claim of a host.
struct Claimed {
    id: MessageId,
    session: SessionId,
    token: Token,
}

impl Engine {
    /// Sessions that run, and these workers in the configuration.
    fn with_workers(sessions: u32, specs: &[WorkerSpec]) -> Self {
        let mut engine = Self::with_live(sessions);
        engine.configured(specs);
        engine
    }

    fn configured(&mut self, specs: &[WorkerSpec]) {
        let worker = |spec: &WorkerSpec| {
            let wanted = WorkerSettings {
                spec: spec.clone(),
                cwd: None,
                env: Vec::new(),
                limits: Default::default(),
                max_restarts: None,
            };
            (spec.name.clone(), wanted)
        };
        self.settings.workers = specs.iter().map(worker).collect::<BTreeMap<_, _>>();
        let now = self.now();
        let events = configure::configure(&self.world.pool, &self.settings, Path::new("/poolctl"), now);
        self.world.emit_all(events);
    }

    fn host(&self, name: &str) -> SessionId {
        self.world.pool.worker(name).unwrap().id
    }

    fn post(&mut self, session: SessionId, kind: &str, priority: i8) -> MessageId {
        let op = OpId::Named(format!("post{}", self.world.pool.seq()));
        let asked = protocol::request::Send { priority, ..asked(session, kind) };
        send(&mut self.world, &QueueRules::default(), &asked, &op).unwrap()
    }

    /// The names of the workers whose hosts are started now, which run from then on.
    fn starts(&mut self) -> Vec<String> {
        let mut tags = self.world.tags;
        let mut identities = || {
            tags += 1;
            Some(RunIdentity { tag: Tag([tags; 16]), conversation: String::new() })
        };
        let (demand, _) = self.turn(|turn, settings| demand::decide(turn, settings, &mut identities));
        self.world.tags = tags;
        for host in &demand.starts {
            let run = self.session(host.id).incarnation.clone().unwrap();
            self.volatile.scheduler.end_start(host.id);
            self.world.emit(Event::SessionLive { session: host.id, incarnation: run, recovered: false });
        }
        let name = |session: &protocol::Session| session.worker.as_ref().unwrap().name.clone();
        demand.starts.iter().map(name).collect()
    }

    /// Ends the host of a worker, with this exit code, proved gone.
    fn ends(&mut self, name: &str, code: i32) {
        let session = self.host(name);
        let exit = Some(Exit { code: Some(code), signal: None, at: self.now() });
        self.world.emit(Event::SessionStopped { session, reason: Reason::Exited, exit });
    }

    /// A user stops a worker; its host is proved gone.
    fn stops(&mut self, name: &str) {
        let session = self.host(name);
        self.world.emit(Event::SessionStopped { session, reason: Reason::Killed, exit: None });
    }

    /// Lets the host of a worker claim up to `max` messages.
    fn claims(&mut self, name: &str, max: usize, after: SessionId) -> Vec<Claimed> {
        self.claims_beside(name, &[], max, after)
    }

    /// As [`Self::claims`], while the hosts of these workers ask, too.
    fn claims_beside(&mut self, name: &str, others: &[&str], max: usize, after: SessionId) -> Vec<Claimed> {
        let host = self.tag(self.host(name));
        let asking: Vec<Tag> = others.iter().map(|other| self.tag(self.host(other))).collect();
        let now = self.now();
        let asked = Asked { scope: &ClaimScope::Host(host), kinds: &[], max, after, asking: &asking };
        let open = next_messages(&self.world.pool, &self.settings, &asked, now);
        let given: Vec<(Claimed, Event)> = open
            .iter()
            .map(|message| {
                let token = self.volatile.locks.issue_token();
                let holder =
                    Holder { generator: None, process: None, lease_ms: 1000, op: None, host: Some(host) };
                let claimed = Claimed { id: message.id, session: message.session, token };
                (claimed, queue::claimed(message, token, holder, now))
            })
            .collect();
        let (claimed, events): (Vec<Claimed>, Vec<Event>) = given.into_iter().unzip();
        self.world.emit_all(events);
        claimed
    }

    /// Fails a claim and lets the pause before the next attempt pass.
    fn fails(&mut self, claimed: &Claimed) {
        let held = ClaimRef { id: claimed.id, token: claimed.token };
        let why = ("no", Disposition::Retry);
        let failed = queue::fail(&self.world.pool, &QueueRules::default(), held, why, self.now()).unwrap();
        self.world.emit_all(failed);
        self.pass(70_000);
    }

    fn acks(&mut self, claimed: &Claimed) {
        let held = ClaimRef { id: claimed.id, token: claimed.token };
        let done = queue::ack(&self.world.pool, held, None, self.now()).unwrap();
        self.world.emit_all(done);
    }
}

#[test]
fn sessions_take_turns_and_within_one_the_priority_decides() {
    let mut engine = Engine::with_live(3);
    for session in [ONE, TWO, THREE] {
        engine.post(session, "a", 0);
        engine.post(session, "b", 5);
    }
    let scope = ClaimScope::Sessions(Selection::all());
    let next = |engine: &Engine, max, after| -> Vec<(u64, String)> {
        let asked = Asked { scope: &scope, kinds: &[], max, after, asking: &[] };
        let open = next_messages(&engine.world.pool, &engine.settings, &asked, engine.now());
        open.iter().map(|message| (message.session.0, message.kind.to_owned())).collect()
    };
    let of = |list: &[(u64, &str)]| -> Vec<(u64, String)> {
        list.iter().map(|(session, kind)| (*session, (*kind).to_owned())).collect()
    };
    assert_eq!(next(&engine, 1, SessionId(0)), of(&[(1, "b")]));
    assert_eq!(next(&engine, 1, ONE), of(&[(2, "b")]));
    assert_eq!(next(&engine, 1, THREE), of(&[(1, "b")]), "after the last one the first one");
    let all = of(&[(2, "b"), (3, "b"), (1, "b"), (2, "a"), (3, "a"), (1, "a")]);
    assert_eq!(next(&engine, 9, ONE), all, "one message of each in a round");
    engine.change(TWO, |session| session.labels = [("team".to_owned(), "x".to_owned())].into());
    let labels = [("team".to_owned(), "x".to_owned())].into();
    let labelled = ClaimScope::Sessions(Selection::Matching { agent: None, labels });
    let kinds = ["a".to_owned()];
    let asked = Asked { scope: &labelled, kinds: &kinds, max: 9, after: SessionId(0), asking: &[] };
    let open = next_messages(&engine.world.pool, &engine.settings, &asked, engine.now());
    assert_eq!(open.iter().map(|message| message.session).collect::<Vec<_>>(), [TWO]);
    engine.change(THREE, |session| session.spec.agent = "claude".to_owned());
    let agent = Some("claude".to_owned());
    let of_agent = ClaimScope::Sessions(Selection::Matching { agent, labels: BTreeMap::new() });
    let asked = Asked { scope: &of_agent, ..asked };
    let open = next_messages(&engine.world.pool, &engine.settings, &asked, engine.now());
    assert_eq!(open.iter().map(|message| message.session).collect::<Vec<_>>(), [THREE]);
}

#[test]
fn a_worker_serves_each_session_in_its_turn_and_gets_no_more_than_fits_an_answer() {
    let mut engine = Engine::with_live(3);
    for session in [ONE, TWO, THREE] {
        let op = OpId::Named(format!("op{session}"));
        let large = Send { body: OsBytes(vec![b'x'; BODY_MAX]), ..asked(session, "a") };
        send(&mut engine.world, &QueueRules::default(), &large, &op).unwrap();
    }
    let serves = |engine: &mut Engine, connection, max| {
        let scope = ClaimScope::Sessions(Selection::all());
        let claim = Claim { scope, kinds: Vec::new(), max, lease_ms: None, wait_ms: 0 };
        let (ids, _) = engine.turn(|turn, settings| worker::serve(turn, settings, connection, &claim));
        ids.into_iter().map(|(session, _)| session.0).collect::<Vec<_>>()
    };
    assert_eq!(serves(&mut engine, 7, 9), [1, 2], "half a megabyte");
    let now = engine.now();
    for connection in [1, 2] {
        engine.volatile.workers.connected(connection, None, now);
    }
    let turns = [1, 1, 2, 1, 1, 2].map(|connection| serves(&mut engine, connection, 1));
    assert_eq!(turns, [[1], [2], [1], [3], [1], [2]], "each worker has an order of its own");
}

#[test]
fn a_worker_of_some_sessions_leaves_the_messages_of_all_others_alone() {
    for (sessions, own) in [("s1", ONE), ("agent:claude", TWO), ("label:team=x", THREE)] {
        let mut engine =
            Engine::with_workers(3, &[WorkerSpec { sessions: sessions.parse().unwrap(), ..spec("w") }]);
        engine.change(TWO, |session| session.spec.agent = "claude".to_owned());
        engine.change(THREE, |session| session.labels = [("team".to_owned(), "x".to_owned())].into());
        let all = [ONE, TWO, THREE];
        for other in all.into_iter().filter(|other| *other != own) {
            engine.post(other, "a", 9);
        }
        assert!(engine.starts().is_empty(), "{sessions}: no message is for it");
        let id = engine.post(own, "a", 0);
        let (pool, workers) = (&engine.world.pool, &engine.volatile.workers);
        let worked = all.map(|session| pool::worker::is_worked(pool, workers, session, "a"));
        assert_eq!(worked, all.map(|session| session == own), "{sessions}");
        assert_eq!(pool::worker::waiting(pool, engine.session(engine.host("w"))), 1, "{sessions}");
        assert_eq!(engine.starts(), ["w"]);
        let claimed = engine.claims("w", 9, SessionId(0));
        assert_eq!(claimed.iter().map(|claimed| claimed.id).collect::<Vec<_>>(), [id], "{sessions}");
        engine.acks(&claimed[0]);
        engine.ends("w", 0);
        assert!(engine.starts().is_empty(), "{sessions}: those of others still wait");
    }
}

#[test]
fn a_host_that_had_nothing_to_do_has_not_failed_and_its_earlier_failures_are_forgotten() {
    for reason in [Reason::Exited, Reason::TmuxGone, Reason::StartupMissingTmux] {
        let mut engine = Engine::with_workers(1, &[spec("w")]);
        engine.post(ONE, "a", 0);
        assert_eq!(engine.starts(), ["w"]);
        engine.ends("w", 1);
        assert!(engine.starts().is_empty(), "it waits after its failure");
        engine.pass(70_000);
        assert_eq!(engine.starts(), ["w"]);
        let host = engine.host("w");
        assert_eq!(engine.session(host).budget.failures, 1);
        let claimed = engine.claims("w", 1, SessionId(0));
        engine.acks(&claimed[0]);
        let exit = Some(Exit { code: Some(0), signal: None, at: engine.now() });
        engine.world.emit(Event::SessionStopped { session: host, reason, exit });
        assert!(engine.starts().is_empty(), "nothing waits");
        let budget = engine.session(host).budget.clone();
        assert_eq!((budget.failures, budget.due_at), (0, None), "{reason:?}");
        engine.post(ONE, "a", 0);
        assert_eq!(engine.starts(), ["w"], "at once");
    }
}

#[test]
fn a_silent_host_is_ended_once_and_frees_its_message_when_it_is_proved_gone() {
    let mut engine = Engine::with_workers(1, &[spec("w")]);
    let id = engine.post(ONE, "a", 0);
    assert_eq!(engine.starts(), ["w"]);
    let (host, silent) = (engine.host("w"), process(77));
    let (tag, now) = (engine.tag(host), engine.now());
    let holder = Holder { generator: None, process: Some(silent), lease_ms: 1000, op: None, host: Some(tag) };
    let token = engine.volatile.locks.issue_token();
    let claim = queue::claimed(&engine.world.pool.find_pending(id).unwrap(), token, holder, now);
    engine.world.emit(claim);
    let end = (LeaseEnd::Revoke(token), "silent");
    let open = engine.world.pool.find_pending(id).unwrap();
    let revoked = queue::lease_ended(&engine.world.pool, &QueueRules::default(), &open, end, now);
    engine.world.emit_all(revoked);
    let candidates = |engine: &Engine| {
        let (pool, volatile) = (&engine.world.pool, &engine.volatile);
        let found = reap::all_candidates(pool, volatile, &engine.settings, engine.now());
        found.into_iter().filter(|found| found.kind == CandidateKind::StaleWorker).count()
    };
    assert_eq!(candidates(&engine), 1);
    engine.volatile.reaping.note_exited([silent]);
    assert_eq!(candidates(&engine), 0, "what is left of its session is still to be proved gone");
    engine.ends("w", 143);
    engine.starts();
    assert_eq!(engine.world.pool.find_pending(id).unwrap().state, MessageState::Queued);
}

#[test]
fn q01_c15_what_a_dead_host_held_waits_for_the_proof_of_its_session_also_when_its_lease_is_over() {
    let mut engine = Engine::with_workers(1, &[spec("w")]);
    let id = engine.post(ONE, "a", 0);
    assert_eq!(engine.starts(), ["w"]);
    let (tag, host, now) = (engine.tag(engine.host("w")), process(77), engine.now());
    let (generator, token) = (Some(GeneratorId(5)), engine.volatile.locks.issue_token());
    let holder = Holder { generator, process: Some(host), lease_ms: 1000, op: None, host: Some(tag) };
    let claim = queue::claimed(&engine.world.pool.find_pending(id).unwrap(), token, holder, now);
    engine.world.emit(claim);
    // The consequence of the end of its lease, and whether the message waits if its process is dead.
    let end = |engine: &Engine| {
        let (pool, reaping) = (&engine.world.pool, &engine.volatile.reaping);
        let open = pool.find_held(id).unwrap();
        let waits = pool::worker::awaits_proof((pool, &engine.settings), &open, None);
        (pool::worker::lease_end(pool, reaping, &open), waits)
    };
    assert_eq!(end(&engine), (Some(LeaseEnd::Revoke(token)), true), "it is to be ended");
    engine.volatile.reaping.note_exited([host]);
    assert_eq!(end(&engine), (None, true), "its handlers may still run");
    engine.ends("w", 143);
    assert_eq!(end(&engine), (Some(LeaseEnd::Release), false), "its session is proved gone");
}

#[test]
fn a_host_that_hangs_before_it_registers_is_ended_after_the_time_of_a_silent_worker() {
    let mut engine = Engine::with_workers(1, &[spec("w")]);
    engine.post(ONE, "a", 0);
    assert_eq!(engine.starts(), ["w"]);
    let (host, hangs) = (engine.host("w"), process(77));
    engine.change(host, |s| s.incarnation.as_mut().unwrap().agent = Some(hangs));
    let stale = |engine: &mut Engine, ms: u64| {
        engine.pass(ms);
        engine.turn(|turn, _| reap::note_silent_workers(turn));
        let (pool, volatile) = (&engine.world.pool, &engine.volatile);
        let found = reap::all_candidates(pool, volatile, &engine.settings, engine.now());
        found.into_iter().filter(|found| found.kind == CandidateKind::StaleWorker).collect::<Vec<_>>()
    };
    let limit = u64::try_from(engine.settings.reap.stale_worker.as_millis()).unwrap();
    assert_eq!(stale(&mut engine, limit + 1), [], "nobody looked before");
    // The host registers, and then its connection is lost.
    let registration = Registration {
        id: GeneratorId(5),
        session: Some(host),
        scope: ClaimScope::Host(engine.tag(host)),
        kinds: Vec::new(),
    };
    let now = engine.now();
    engine.volatile.workers.connected(1, Some(hangs), now);
    engine.volatile.workers.register(1, registration);
    assert_eq!(stale(&mut engine, limit), []);
    engine.volatile.workers.connection_ended(1, Mono(engine.world.now));
    assert_eq!(stale(&mut engine, 1), []);
    assert_eq!(stale(&mut engine, limit), []);
    let found = stale(&mut engine, 1);
    assert_eq!((found.len(), found[0].session, found[0].agent), (1, host, Some(hangs)));
    assert!(found[0].evidence.contains("process 77, the host of a worker"), "{}", found[0].evidence);
    let now = Mono(engine.world.now);
    engine.volatile.workers.restart_leases(&engine.world.pool, now);
    assert_eq!(stale(&mut engine, limit), [], "poold was suspended");
    assert_eq!(stale(&mut engine, limit + 1).len(), 1);
    engine.volatile.reaping.note_exited([hangs]);
    assert_eq!(stale(&mut engine, 1), [], "it ended");
}

#[test]
fn a_worker_runs_no_more_handlers_for_one_session_than_it_may() {
    let kinds = vec!["a".into(), "b".into(), "c".into()];
    let mut engine =
        Engine::with_workers(2, &[WorkerSpec { session_concurrency: 2, kinds: kinds.clone(), ..spec("w") }]);
    for kind in &kinds {
        engine.post(ONE, kind, 0);
    }
    assert_eq!(engine.starts(), ["w"]);
    let held = engine.claims("w", 9, SessionId(0));
    assert_eq!(held.len(), 2);
    engine.post(TWO, "a", 0);
    let other = engine.claims("w", 9, SessionId(0));
    assert_eq!(other.iter().map(|claimed| claimed.session).collect::<Vec<_>>(), [TWO]);
    engine.acks(&held[0]);
    assert_eq!(engine.claims("w", 9, SessionId(0)).len(), 1, "one has ended");
}

#[test]
fn a_claim_with_a_short_lease_outlasts_the_return_of_its_worker() {
    let mut engine = Engine::with_workers(1, &[WorkerSpec { kinds: vec!["a".into()], ..spec("w") }]);
    engine.post(ONE, "a", 0);
    engine.starts();
    let held = engine.claims("w", 1, SessionId(0));
    let now = Mono(engine.world.now);
    engine.volatile.workers.restart_leases(&engine.world.pool, now);
    assert_eq!(engine.volatile.workers.deadline(held[0].id), Some(now.after(Duration::from_secs(10))));
}

#[test]
fn the_command_of_a_host_has_the_limits_of_its_worker() {
    let limits = WorkerSpec { lease_ms: Some(5000), timeout_ms: Some(7000), result: true, ..spec("w") };
    let engine = Engine::with_workers(1, &[limits, spec("plain")]);
    let command = |name: &str| {
        let words = engine.session(engine.host(name)).spec.command.clone();
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    for flag in ["--idle-end 1000ms", "--lease 5000ms", "--handler-timeout 7000ms", "--result"] {
        assert!(command("w").contains(flag), "{flag}: {}", command("w"));
    }
    for flag in ["--lease", "--handler-timeout", "--result"] {
        assert!(!command("plain").contains(flag), "{flag}: {}", command("plain"));
    }
}

#[test]
fn the_caps_of_a_session_a_worker_and_the_pool_hold_until_a_host_is_proved_gone() {
    let small = WorkerSpec { session_concurrency: 1, concurrency: 2, kinds: vec!["a".into()], ..spec("w") };
    let other = WorkerSpec { kinds: vec!["b".into(), "c".into()], ..spec("x") };
    let mut engine = Engine::with_workers(3, &[small, other]);
    engine.settings.max_processes = 3;
    for session in [ONE, TWO, THREE] {
        for kind in ["a", "b", "c"] {
            engine.post(session, kind, 0);
        }
    }
    assert_eq!(engine.starts(), ["w", "x"]);
    assert_eq!(engine.claims("w", 9, SessionId(0)).len(), 2, "its own cap");
    let held = engine.claims("x", 9, SessionId(0));
    assert_eq!(held.len(), 1, "the pool's cap");
    assert!(engine.claims("x", 9, SessionId(0)).is_empty());
    engine.acks(&held[0]);
    assert_eq!(engine.claims("x", 9, held[0].session).len(), 1);
    // The host of the worker is being ended: its handlers may still run.
    let (session, reason) = (engine.host("w"), Reason::Exited);
    engine.world.emit(Event::SessionDraining { session, reason, exit: None, missing_since: None });
    assert!(engine.starts().is_empty() && engine.claims("x", 9, ONE).is_empty());
    engine.ends("w", 1);
    assert!(engine.starts().is_empty(), "it failed, and pauses");
    assert_eq!(engine.claims("x", 9, ONE).len(), 2, "what it held is free, and does not count");
}

#[test]
fn a_free_handler_goes_to_the_host_whose_message_waits_longest() {
    let of = |name: &str, kind: &str| WorkerSpec { kinds: vec![kind.to_owned()], ..spec(name) };
    let mut engine = Engine::with_workers(3, &[of("w", "a"), of("x", "b")]);
    engine.settings.max_processes = 2;
    let host = |engine: &Engine, name: &str| ClaimScope::Host(engine.tag(engine.host(name)));
    let waits = |engine: &Engine, name: &str| {
        pool::worker::waits_for_host(&engine.world.pool, &host(engine, name), engine.now())
    };
    engine.post(ONE, "a", 0);
    engine.post(TWO, "a", 0);
    engine.post(ONE, "b", 0);
    engine.pass(1000);
    engine.post(THREE, "a", 9);
    assert_eq!(engine.starts(), ["w", "x"]);
    let held = engine.claims_beside("w", &["x"], 9, SessionId(0));
    assert_eq!(held.len(), 2, "its messages are older");
    assert!(engine.claims_beside("x", &["w"], 9, SessionId(0)).is_empty());
    assert!(waits(&engine, "x") && waits(&engine, "w"), "they stay for what waits");
    engine.acks(&held[0]);
    assert!(engine.claims_beside("w", &["w", "x"], 9, ONE).is_empty(), "the other's turn");
    assert_eq!(engine.claims_beside("x", &["w"], 9, SessionId(0)).len(), 1);
    assert!(!waits(&engine, "x"));
    engine.acks(&held[1]);
    assert_eq!(engine.claims_beside("w", &["x"], 9, ONE).len(), 1, "nothing of the other waits");
    assert!(!waits(&engine, "w"));
}

#[test]
fn a_free_handler_is_kept_for_no_host_that_does_not_ask() {
    let of = |name: &str, kind: &str| WorkerSpec { kinds: vec![kind.to_owned()], ..spec(name) };
    let mut engine = Engine::with_workers(1, &[of("w", "a"), of("x", "b")]);
    engine.settings.max_processes = 1;
    engine.post(ONE, "b", 0);
    engine.pass(1000);
    engine.post(ONE, "a", 0);
    engine.starts();
    assert!(engine.claims_beside("w", &["x"], 9, SessionId(0)).is_empty());
    assert_eq!(engine.claims("w", 9, SessionId(0)).len(), 1);
}

#[test]
fn a_message_goes_to_a_fallback_after_so_many_attempts_and_no_longer_to_the_first() {
    let first = WorkerSpec { fallback: vec!["second".into()], kinds: vec!["a".into()], ..spec("first") };
    let second = WorkerSpec { sessions: WorkerQueue::Own, ..spec("second") };
    let mut engine = Engine::with_workers(1, &[first, second]);
    let id = engine.post(ONE, "a", 0);
    assert_eq!(engine.starts(), ["first"]);
    for _ in 0..2 {
        let claimed = engine.claims("first", 9, ONE);
        engine.fails(&claimed[0]);
    }
    assert!(engine.claims("first", 9, ONE).is_empty());
    assert_eq!(engine.starts(), ["second"], "the host of the fallback is started for it");
    let claimed = engine.claims("second", 9, ONE);
    assert_eq!(claimed[0].id, id);
    engine.acks(&claimed[0]);
    // Once the first is given up, its messages go to the second at once.
    engine.ends("first", 1);
    let exhausted = Budget { exhausted: true, ..Budget::default() };
    engine.world.emit(Event::BudgetChanged { session: engine.host("first"), budget: exhausted });
    let id = engine.post(ONE, "a", 0);
    assert_eq!(engine.claims("second", 9, ONE)[0].id, id);
}

#[test]
fn a_fallback_that_a_user_stopped_is_left_out() {
    let fallback = vec!["second".to_owned(), "third".to_owned()];
    let first = WorkerSpec { fallback, fallback_after: 1, ..spec("first") };
    let others = ["second", "third"].map(|name| WorkerSpec { sessions: WorkerQueue::Own, ..spec(name) });
    let mut engine = Engine::with_workers(1, &[&[first][..], &others].concat());
    engine.stops("second");
    let id = engine.post(ONE, "a", 0);
    assert_eq!(engine.starts(), ["first"]);
    let claimed = engine.claims("first", 9, ONE);
    engine.fails(&claimed[0]);
    assert_eq!(engine.starts(), ["third"], "the next that can work it");
    engine.stops("third");
    assert!(engine.starts().is_empty());
    let claimed = engine.claims("first", 9, ONE);
    assert_eq!(claimed[0].id, id, "the one before, where none is after");
    engine.fails(&claimed[0]);
    engine.stops("first");
    assert!(engine.starts().is_empty(), "all are stopped");
}

#[test]
fn a_message_waits_for_its_first_worker_that_a_user_stopped() {
    let first = WorkerSpec { fallback: vec!["second".into()], ..spec("first") };
    let second = WorkerSpec { sessions: WorkerQueue::Own, ..spec("second") };
    let mut engine = Engine::with_workers(1, &[first, second]);
    engine.stops("first");
    engine.post(ONE, "a", 0);
    assert!(engine.starts().is_empty());
}

#[test]
fn the_first_attempt_of_a_fallback_passes_the_breaker_that_others_opened() {
    let first = WorkerSpec { fallback: vec!["second".into()], fallback_after: 3, ..spec("first") };
    let second = WorkerSpec { sessions: WorkerQueue::Own, ..spec("second") };
    let mut engine = Engine::with_workers(1, &[first, second]);
    engine.post(ONE, "a", 0);
    engine.starts();
    for _ in 0..3 {
        let claimed = engine.claims("first", 9, ONE);
        let held = ClaimRef { id: claimed[0].id, token: claimed[0].token };
        let why = ("no", Disposition::Retry);
        let failed =
            queue::fail(&engine.world.pool, &QueueRules::default(), held, why, engine.now()).unwrap();
        engine.world.emit_all(failed);
        engine.pass(5000);
    }
    assert!(engine.world.pool.breaker(ONE, "a").unwrap().is_open());
    assert_eq!(engine.starts(), ["second"]);
    let claimed = engine.claims("second", 9, ONE);
    engine.fails(&claimed[0]);
    engine.world.now -= 65_000;
    assert!(engine.claims("second", 9, ONE).is_empty(), "its own failure is held back");
}

#[test]
fn a_host_is_started_for_a_message_ends_for_free_and_pauses_after_a_failure() {
    let mut engine = Engine::with_workers(1, &[spec("w")]);
    assert!(engine.starts().is_empty(), "nothing to work");
    engine.post(ONE, "a", 0);
    assert_eq!(engine.starts(), ["w"]);
    assert!(engine.starts().is_empty(), "it runs");
    for _ in 0..50 {
        engine.ends("w", 0);
        assert_eq!(engine.starts(), ["w"], "ending for want of messages costs no budget");
    }
    engine.settings.restart.max = 4;
    let mut failures = 0;
    while !engine.session(engine.host("w")).budget.exhausted {
        engine.ends("w", 1);
        assert!(engine.starts().is_empty());
        let Some(due) = engine.session(engine.host("w")).budget.due_at else { break };
        engine.world.now = due.0;
        assert_eq!(engine.starts(), ["w"]);
        failures += 1;
    }
    assert_eq!(failures, engine.settings.restart.max);
    engine.pass(10_000_000);
    assert!(engine.starts().is_empty(), "a user has to start it");
    assert!(!pool::worker::is_worked(&engine.world.pool, &engine.volatile.workers, ONE, "a"));
}

#[test]
fn the_death_of_its_tmux_server_is_no_failure_of_a_host() {
    let mut engine = Engine::with_workers(1, &[spec("w")]);
    engine.settings.restart.max = 2;
    engine.post(ONE, "a", 0);
    let host = engine.host("w");
    for _ in 0..5 {
        assert_eq!(engine.starts(), ["w"], "at once, and again and again");
        assert_eq!(engine.session(host).budget, Budget::default());
        let (session, reason) = (host, Reason::ServerGone);
        engine.world.emit(Event::SessionLost { session, reason, exit: None });
    }
}

#[test]
fn no_host_is_started_while_the_daemon_ends() {
    let mut engine = Engine::with_workers(1, &[spec("w")]);
    engine.post(ONE, "a", 0);
    engine.volatile.stop();
    assert!(engine.starts().is_empty());
}

#[test]
fn a_stopped_worker_stays_stopped_and_what_its_host_held_is_freed() {
    let mut engine = Engine::with_workers(1, &[spec("w")]);
    let id = engine.post(ONE, "a", 0);
    engine.starts();
    engine.claims("w", 1, ONE);
    let host = engine.host("w");
    let events = pool::session::kill(engine.session(host));
    engine.world.emit_all(events);
    engine.starts();
    assert_eq!(engine.world.pool.message_state(ONE, id), Some(MessageState::Claimed), "not proved gone");
    let (session, reason, exit) = (host, Reason::Killed, None);
    engine.world.emit(Event::SessionStopped { session, reason, exit });
    engine.pass(10_000);
    assert!(engine.starts().is_empty());
    let message = engine.world.pool.find_pending(id).unwrap();
    assert_eq!((message.state, message.attempts, message.not_before), (MessageState::Queued, 0, None));
    assert_eq!(engine.world.pool.breaker(ONE, "a"), None, "a stop by its user is no failure");
    assert_eq!((engine.world.pool.slots_used(), engine.session(host).lifecycle), (1, Lifecycle::Stopped));
}

#[test]
fn what_a_handler_says_while_its_host_is_ended_by_order_is_no_failure() {
    for (reason, failures) in [(Reason::Killed, 0), (Reason::Parked, 0), (Reason::MemoryLimit, 1)] {
        let mut engine = Engine::with_workers(1, &[spec("w")]);
        let id = engine.post(ONE, "a", 0);
        engine.starts();
        let claimed = engine.claims("w", 1, ONE);
        let session = engine.host("w");
        engine.world.emit(Event::SessionDraining { session, reason, exit: None, missing_since: None });
        engine.fails(&claimed[0]);
        assert_eq!(engine.world.pool.find_pending(id).unwrap().attempts, failures, "{reason:?}");
        let counted = engine.world.pool.breaker(ONE, "a").map_or(0, |breaker| breaker.failures);
        assert_eq!(counted, failures, "{reason:?}");
    }
}

#[test]
fn a_worker_in_a_session_that_a_user_kills_has_not_failed() {
    for (reason, attempts) in [(Reason::Killed, 0), (Reason::Exited, 1)] {
        let mut engine = Engine::with_live(2);
        let (id, worker) = (engine.post(ONE, "a", 0), process(77));
        engine.change(TWO, |session| session.incarnation.as_mut().unwrap().agent = Some(worker));
        let (now, token) = (engine.now(), engine.volatile.locks.issue_token());
        let holder = Holder { generator: None, process: Some(worker), lease_ms: 1000, op: None, host: None };
        let message = engine.world.pool.find_pending(id).unwrap();
        let claim = queue::claimed(&message, token, holder, now);
        engine.world.emit(claim);
        engine.is(TWO, Lifecycle::Stopped, reason);
        let rules = QueueRules::default();
        let freed = queue::release_dead_worker(&engine.world.pool, &rules, worker, |_| false, now);
        engine.world.emit_all(freed);
        let freed = engine.world.pool.find_pending(id).unwrap();
        let waits = freed.not_before.is_some_and(|at| at > now);
        assert_eq!((freed.attempts, waits), (attempts, true), "{reason:?}");
    }
}

#[test]
fn a_paused_host_starts_for_no_message_until_poold_or_its_user_starts_it() {
    let mut engine = Engine::with_workers(1, &[spec("w")]);
    engine.post(ONE, "a", 0);
    engine.starts();
    let host = engine.host("w");
    let park = |engine: &Engine, force| session::park(&engine.world.pool, engine.session(host), force);
    assert_eq!(park(&engine, false).unwrap_err().code, ErrorCode::Refused);
    let paused = park(&engine, true).unwrap();
    engine.world.emit_all(paused);
    let now = engine.now();
    engine.volatile.scheduler.pause(host, now);
    engine.world.emit(Event::SessionParked { session: host, reason: Reason::Parked, exit: None });
    assert!(engine.starts().is_empty(), "the message waits");
    let after = |seconds| now.after(std::time::Duration::from_secs(seconds));
    assert!(engine.volatile.scheduler.is_paused(host, after(299)));
    assert!(!engine.volatile.scheduler.is_paused(host, after(300)), "the pool was not stopped after all");
    engine.volatile.scheduler = Default::default();
    assert_eq!(engine.starts(), ["w"], "after a start of poold it goes on");
    let killed = session::kill(engine.session(host));
    engine.world.emit_all(killed);
    assert_eq!(park(&engine, true), Ok(vec![]), "what its user stopped stays so");
}

#[test]
fn only_its_own_commands_change_the_host_of_a_worker() {
    let added = WorkerSpec { configured: false, ..spec("added") };
    let mut engine = Engine::with_workers(1, &[spec("w"), added.clone()]);
    let host = engine.host("added");
    engine.change(host, |session| session.worker = Some(Box::new(added)));
    let (pool, now) = (&engine.world.pool, engine.now());
    let remove = |name: &str, purge| {
        let host = pool.worker(name).unwrap();
        let asked = Remove { session: host.id.into(), force: true, purge, ..Remove::default() };
        session::remove(pool, host, (&asked, Reason::ApiDelete), (&TmuxState::default(), now))
    };
    let refused = |why: Refusal| {
        assert_eq!(why.code, ErrorCode::Refused);
        assert!(why.message.contains("`poolctl worker stop "), "{}", why.message);
    };
    for (name, purge) in [("w", false), ("w", true), ("added", false)] {
        refused(remove(name, purge).unwrap_err());
    }
    assert!(remove("added", true).is_ok(), "as `worker rm` does");
    let host = pool.worker("w").unwrap();
    refused(session::rename(pool, host, "x").unwrap_err());
    refused(session::drain(pool, host, None).unwrap_err());
    refused(session::park(pool, host, false).unwrap_err());
    refused(pool::worker::check_no_host(host).unwrap_err());
    // If the record of a host vanishes nevertheless, it is created again.
    let (session, reason) = (host.id, Reason::ApiDelete);
    engine.world.emit(Event::SessionDeleted {
        session,
        reason,
        mode: DeleteMode::KillTmux,
        tmux_alive: false,
    });
    assert!(configure::lacks_record(&engine.world.pool, &engine.settings));
    engine.configured(&[spec("w"), spec("added")]);
    assert!(!configure::lacks_record(&engine.world.pool, &engine.settings));
    engine.post(ONE, "a", 0);
    assert_eq!(engine.starts().len(), 2);
}

#[test]
fn what_waits_for_a_worker_that_is_off_is_counted_and_names_it() {
    let mut engine = Engine::with_workers(2, &[WorkerSpec { kinds: vec!["a".into()], ..spec("w") }]);
    for (session, kind) in [(ONE, "a"), (ONE, "a"), (TWO, "a"), (TWO, "other")] {
        engine.post(session, kind, 0);
    }
    let host = engine.host("w");
    assert_eq!(pool::worker::waiting(&engine.world.pool, engine.session(host)), 3);
    let killed = session::kill(engine.session(host));
    engine.world.emit_all(killed);
    engine.pass(11 * 60_000);
    let stuck = queue::stuck(&engine.world.pool, &engine.volatile, &QueueRules::default(), engine.now());
    let why: Vec<String> = stuck
        .iter()
        .map(|lane| lane.standstill.reason.next_command(lane.name.as_str(), &lane.kind))
        .collect();
    let expected = ["poolctl worker start w", "poolctl worker start w", "poolctl work s2 --kind other -- …"];
    assert_eq!(why, expected);
}

#[test]
fn records_follow_the_configuration_and_only_own_queues_take_messages() {
    let own = WorkerSpec { sessions: WorkerQueue::Own, kinds: vec!["a".into()], ..spec("own") };
    let mut engine = Engine::with_workers(1, &[own.clone(), spec("w")]);
    let post = |engine: &mut Engine, to: SessionId, kind: &str| {
        let op = OpId::Named(format!("op{}", engine.world.pool.seq()));
        send(&mut engine.world, &QueueRules::default(), &asked(to, kind), &op)
    };
    let (own_host, host) = (engine.host("own"), engine.host("w"));
    assert!(post(&mut engine, own_host, "a").is_ok());
    for (to, kind) in [(own_host, "b"), (own_host, "prompt"), (host, "a")] {
        assert_eq!(post(&mut engine, to, kind), Err(ErrorCode::Usage));
    }
    assert_eq!(engine.starts(), ["own"]);
    let before = engine.world.pool.clone();
    engine.configured(&[own.clone(), spec("w")]);
    assert_eq!(engine.world.pool, before, "the same configuration changes nothing");
    engine.configured(&[WorkerSpec { concurrency: 1, ..own }]);
    assert_eq!(engine.world.pool.worker("own").unwrap().worker.as_ref().unwrap().concurrency, 1);
    assert!(engine.world.pool.worker("w").unwrap().worker.as_ref().unwrap().removed);
    engine.post(ONE, "a", 0);
    assert!(engine.starts().is_empty(), "a removed one works nothing");
}

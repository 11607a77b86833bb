//! Workers: silence, and the ends of their connections.

use std::time::Duration;

use pool::deadlines::Mono;
use pool::queue::{LeaseEnd, PendingMessage};
use pool::worker::Registration;
use pool::{QueueRules, queue, reap, worker};
use protocol::clock::{Clock, ClockStep};
use protocol::reap::{Action, CandidateKind, Rule};
use protocol::request::ClaimRef;
use protocol::{Event, GeneratorId, Holder, MessageId, OpId, SessionRef, Tag, Timestamp};

use super::{Engine, ONE, token};
use crate::queue::{asked, send};
use crate::world::process;

impl Engine {
    /// A worker at this connection, with this process and registration.
    fn worker(&mut self, connection: u64, pid: u32, id: Option<u64>) {
        let now = self.now();
        self.volatile.workers.connected(connection, Some(process(pid)), now);
        if let Some(id) = id {
            let registration = Registration {
                id: GeneratorId(id),
                session: Some(ONE),
                scope: SessionRef::from(ONE).into(),
                kinds: Vec::new(),
            };
            self.volatile.workers.register(connection, registration);
        }
    }

    /// The registered workers that are silent, with the time of their silence in seconds.
    fn silent(&mut self) -> Vec<(u64, u64)> {
        let now = self.now();
        let silent = self.volatile.workers.silent(&self.world.pool, now);
        let age = |at| self.world.pool.age(now, at).as_secs();
        silent.iter().map(|worker| (worker.id.unwrap().0, age(worker.last_seen_at))).collect()
    }

    /// Sets the clock back by this many milliseconds.
    fn sets_back(&mut self, ms: u64) {
        let step = ClockStep::new(self.now(), Timestamp(self.world.now - ms));
        self.world.now = step.after.0;
        let clock = Clock { read_at: step.after, steps: vec![step], ..Clock::default() };
        self.world.emit(Event::ClockRead(clock));
    }

    /// A message that a worker claims over this connection for a minute.
    fn claim(&mut self, connection: u64, pid: u32, id: Option<u64>) -> MessageId {
        let (op, asked) = (OpId::Random([7; 16]), asked(ONE, "observation"));
        let message = send(&mut self.world, &QueueRules::default(), &asked, &op).unwrap();
        let generator = id.map(GeneratorId);
        let holder =
            Holder { generator, process: Some(process(pid)), lease_ms: 60_000, op: None, host: None };
        let pending = self.world.pool.find_pending(message).unwrap();
        let event = queue::claimed(&pending, token(1), holder.clone(), self.now());
        self.turn(|turn, _| turn.emit(event));
        let now = Mono(self.world.now);
        self.volatile.workers.renew(message, &holder, connection, now);
        message
    }
}

#[test]
fn a_worker_is_silent_that_neither_speaks_nor_waits_nor_works() {
    let mut engine = Engine::with_live(1);
    engine.worker(1, 500, Some(5));
    engine.worker(2, 600, None);
    engine.pass(10_000);
    assert_eq!(engine.silent(), [(5, 10)], "only registered ones");
    let waits = engine.volatile.workers.begin_request(1).unwrap();
    assert_eq!(engine.silent(), []);
    drop(waits);
    engine.pass(3000);
    assert_eq!(engine.silent(), [(5, 3)], "its request ended then");
    engine.claim(1, 500, Some(5));
    assert_eq!(engine.silent(), [], "it works");
}

#[test]
fn a_process_counts_by_its_newest_message_over_any_connection() {
    let mut engine = Engine::with_live(1);
    engine.worker(1, 500, Some(5));
    engine.pass(10_000);
    engine.worker(2, 500, None);
    engine.pass(1000);
    assert_eq!(engine.silent(), [(5, 1)]);
    let now = engine.now();
    assert!(engine.volatile.workers.seen(2, now) && !engine.volatile.workers.seen(3, now));
    assert_eq!(engine.silent(), []);
}

#[test]
fn p06_a_worker_is_silent_for_as_long_as_it_has_not_spoken_whatever_the_clock_says() {
    let mut engine = Engine::with_live(1);
    engine.pass(1_000_000);
    engine.worker(1, 500, Some(5));
    engine.pass(60_000);
    engine.sets_back(300_000);
    engine.pass(20_000);
    assert_eq!(engine.silent(), [(5, 80)], "its last message is ahead of the clock");
    engine.worker(2, 500, None);
    engine.pass(10_000);
    assert_eq!(engine.silent(), [(5, 10)], "it has spoken over another connection since");
}

#[test]
fn the_claims_of_an_ended_connection_last_a_grace_unless_its_worker_is_registered() {
    for (id, expected) in [(None, 5), (Some(5), 60)] {
        let mut engine = Engine::with_live(1);
        engine.worker(1, 500, id);
        let message = engine.claim(1, 500, id);
        let now = Mono(engine.world.now);
        engine.volatile.workers.connection_ended(1, now);
        let workers = &mut engine.volatile.workers;
        let ends = now.after(Duration::from_secs(expected));
        assert_eq!((workers.deadline(message), workers.first_deadline()), (Some(ends), Some(ends)));
        assert!(!workers.is_holder_connected(message));
        assert_eq!(workers.take_lapsed(Mono(ends.0 - 1)), []);
        assert_eq!(workers.take_lapsed(ends), [message]);
        assert_eq!(workers.take_lapsed(ends), [], "taken out once");
    }
}

#[test]
fn a_claim_over_another_connection_outlives_the_first() {
    let mut engine = Engine::with_live(1);
    engine.worker(1, 500, None);
    let message = engine.claim(1, 500, None);
    let holder = engine.world.pool.find_held(message).unwrap().holder.unwrap().clone();
    let now = Mono(engine.world.now);
    engine.volatile.workers.renew(message, &holder, 2, now);
    engine.volatile.workers.connection_ended(1, now);
    assert_eq!(engine.volatile.workers.deadline(message), Some(now.after(Duration::from_secs(60))));
    assert_eq!(engine.volatile.workers.connection_of(message), Some(2));
}

#[test]
fn a_cancelled_message_is_not_tried_again_while_its_worker_hangs() {
    let mut engine = Engine::with_live(1);
    engine.worker(1, 500, Some(5));
    let id = engine.claim(1, 500, Some(5));
    let open = engine.world.pool.find_held(id).unwrap();
    let (holder, token) = (open.holder.unwrap().clone(), open.token);
    let later = Timestamp(engine.world.now + 1);
    let workers = &mut engine.volatile.workers;
    workers.note_cancelled(id, (&holder, token), (later, Mono(0)));
    let left = |workers: &pool::worker::Workers, at| {
        workers.cancelled_handler(id, Mono(at)).map(|(_, left)| left.as_secs())
    };
    assert_eq!(
        [0, 69_000, 70_000, 900_000].map(|at| left(workers, at)),
        [Some(70), Some(1), Some(0), Some(0)]
    );
    workers.cancel_heard(id, token.unwrap(), Mono(80_000));
    assert_eq!(left(workers, 80_000), None, "it heard of that after its lease");
    workers.note_cancelled(id, (&holder, token), (later, Mono(0)));
    workers.seen(1, Timestamp(later.0 + 1));
    assert_eq!(left(workers, 80_000), None, "it spoke of something else since");
    workers.note_cancelled(id, (&holder, token), (later, Mono(80_000)));
    workers.connection_ended(1, Mono(81_000)).unwrap();
    assert_eq!([150_000_u64, 149_000].map(|at| left(workers, at)), [None, Some(1)]);
}

#[test]
fn q02_a_heartbeat_renews_the_claims_that_are_held_under_its_tokens_and_names_the_others() {
    let mut engine = Engine::with_live(1);
    engine.worker(1, 500, None);
    let id = engine.claim(1, 500, None);
    engine.worker(2, 500, None);
    let (held, foreign) = (ClaimRef { id, token: token(1) }, ClaimRef { id, token: token(2) });
    let unknown = ClaimRef { id: MessageId(id.0 + 1), token: token(1) };
    // The messages that are lost, and the time that is left of the lease in seconds.
    let beat = |engine: &mut Engine, claims: &[ClaimRef]| {
        engine.pass(20_000);
        let lost = engine.turn(|turn, _| worker::heartbeat(turn, 2, claims)).0;
        let (workers, now) = (&engine.volatile.workers, Mono(engine.world.now));
        assert_eq!(workers.get(2).unwrap().last_seen_at(), engine.now(), "it is not silent");
        (lost, workers.deadline(id).map(|at| now.until(at).as_secs()))
    };
    assert_eq!(beat(&mut engine, &[held]), (vec![], Some(60)));
    assert_eq!(engine.volatile.workers.connection_of(id), Some(2));
    assert_eq!(beat(&mut engine, &[foreign]), (vec![id], Some(40)));
    assert_eq!(beat(&mut engine, &[unknown, held]), (vec![unknown.id], Some(60)), "each for itself");
    let done = queue::ack(&engine.world.pool, held, None, engine.now()).unwrap();
    engine.turn(|turn, _| turn.emit_all(done));
    assert_eq!(beat(&mut engine, &[held]), (vec![id], None), "it is over");
}

#[test]
fn l03_a_daemon_that_stood_still_takes_no_lease_away() {
    for (late_ms, stood_still) in [(0, false), (999, false), (1000, true), (600_000, true)] {
        let mut engine = Engine::with_live(1);
        let noted = |engine: &mut Engine| {
            let asked_at = Mono(engine.world.now);
            engine.turn(|turn, _| worker::note_suspension(turn, asked_at)).0
        };
        assert_eq!(noted(&mut engine), None, "nothing was due");
        engine.worker(1, 500, None);
        let id = engine.claim(1, 500, None);
        engine.lock(ONE, &[]);
        let (minute, begun) = (Duration::from_secs(60), Mono(engine.world.now));
        engine.volatile.workers.arm(begun.after(Duration::from_secs(1)));
        engine.pass(1000 + late_ms);
        assert_eq!(noted(&mut engine), stood_still.then(|| Duration::from_millis(late_ms)));
        let ends = if stood_still { Mono(engine.world.now).after(minute) } else { begun.after(minute) };
        let (workers, locks) = (&engine.volatile.workers, &engine.volatile.user_locks);
        let deadlines = (workers.deadline(id), locks.get(ONE).map(|lock| lock.deadline));
        assert_eq!(deadlines, (Some(ends), Some(ends)), "{late_ms} ms late");
    }
}

#[test]
fn l04_a_registered_worker_that_lives_past_its_lease_is_ended_and_any_other_is_fenced() {
    for (id, has_exited, expected) in [
        (None, false, LeaseEnd::Release),
        (None, true, LeaseEnd::Release),
        (Some(5), false, LeaseEnd::Revoke(token(1))),
        (Some(5), true, LeaseEnd::Release),
    ] {
        let mut engine = Engine::with_live(1);
        engine.worker(1, 500, id);
        let message = engine.claim(1, 500, id);
        engine.volatile.reaping.note_exited(has_exited.then(|| process(500)));
        let open = engine.world.pool.find_held(message).unwrap();
        let end = worker::lease_end(&engine.world.pool, &engine.volatile.reaping, &open);
        assert_eq!(end, Some(expected), "{id:?} {has_exited}");
    }
}

#[test]
fn l04_the_message_of_a_dead_worker_waits_while_its_process_tree_is_being_ended() {
    let mut engine = Engine::with_live(1);
    engine.worker(1, 500, Some(5));
    let (id, rules) = (engine.claim(1, 500, Some(5)), QueueRules::default());
    let open = engine.world.pool.find_held(id).unwrap();
    let end = (LeaseEnd::Revoke(token(1)), "silent");
    let revoked = queue::lease_ended(&engine.world.pool, &rules, &open, end, engine.now());
    engine.turn(|turn, _| turn.emit_all(revoked));
    let (pool, volatile) = (&engine.world.pool, &engine.volatile);
    let named = reap::all_candidates(pool, volatile, &engine.settings, engine.now());
    let stale = named.into_iter().find(|found| found.kind == CandidateKind::StaleWorker).unwrap();
    assert_eq!(stale.tag, Tag::for_claim(token(1)));
    engine.volatile.reaping.note_exited([process(500)]);
    let goes_on = |engine: &Engine, proved: Option<Tag>| {
        let context = (&engine.world.pool, &engine.settings);
        let waits = |message: &PendingMessage<'_>| worker::awaits_proof(context, message, proved);
        !queue::release_dead_worker(context.0, &rules, process(500), waits, engine.now()).is_empty()
    };
    assert!(!goes_on(&engine, None), "its handler may still run, also after a restart of the daemon");
    assert!(!goes_on(&engine, Some(Tag::for_claim(token(2)))), "another claim is proved gone");
    assert!(goes_on(&engine, Some(stale.tag)));
    engine.settings.reap.actions.insert(Rule::StaleWorker, Action::Report);
    assert!(goes_on(&engine, None), "nobody proves it");
}

//! Lanes that stand still: since when, why, told once, and excused.

use pool::lock::LockTable;
use pool::prompt::Blocked;
use pool::queue::{self, ClaimQuery};
use pool::worker::Registration;
use pool::{QueueRules, Volatile};
use protocol::event::LaneEvent;
use protocol::request::{ClaimRef, Disposition, Send};
use protocol::{
    Epoch, Event, GeneratorId, Holder, Lifecycle, MessageId, MessageState, OpId, PROMPT, Reason, StuckReason,
    Token, UnstuckReason,
};

use crate::queue::{asked, send};
use crate::stage::Stage;
use crate::world::{process, session_lock};

const LIMIT: u64 = 600_000;
const WORKED: &str = "summarize";

/// A session whose lanes are looked at.
struct Lanes {
    stage: Stage,
    volatile: Volatile,
    rules: QueueRules,
    sent: u64,
}

/// The outcome of a look: the kind of each lane, and why it is stuck or is so no longer.
type Told = Vec<(String, Result<StuckReason, UnstuckReason>)>;

impl Lanes {
    fn new() -> Self {
        let stage = Stage::new("claude");
        let volatile = Volatile::new(LockTable::new(Epoch(1)), stage.now());
        let rules = QueueRules { breaker_failures: 2, max_attempts: 50, ..QueueRules::default() };
        Self { stage, volatile, rules, sent: 0 }
    }

    fn send(&mut self, kind: &str) -> MessageId {
        self.sent += 1;
        let op = OpId::Named(format!("send-{}", self.sent));
        send(&mut self.stage.world, &self.rules, &asked(self.stage.id, kind), &op).unwrap()
    }

    /// Looks as the daemon does, twice: the second look tells nothing.
    fn look(&mut self) -> Told {
        let look = |lanes: &Self| {
            queue::changes(lanes.stage.pool(), &lanes.volatile, &lanes.rules, lanes.stage.now())
        };
        let changes = look(self);
        self.stage.world.emit_all(changes.clone());
        assert_eq!(look(self), [], "each change is told once");
        let told = changes.into_iter().map(|event| match event {
            Event::Lane(LaneEvent::Stuck { kind, standstill, .. }) => (kind, Ok(standstill.reason)),
            Event::Lane(LaneEvent::Unstuck { kind, reason, .. }) => (kind, Err(reason)),
            other => panic!("{other:?}"),
        });
        told.collect()
    }

    /// The only lane that is stuck: since when, how many wait, why.
    fn stuck(&self) -> Option<(u64, u64, StuckReason)> {
        let found = queue::stuck(self.stage.pool(), &self.volatile, &self.rules, self.stage.now());
        assert!(found.len() < 2, "{found:?}");
        found
            .into_iter()
            .next()
            .map(|lane| (lane.standstill.since.0, lane.standstill.waiting, lane.standstill.reason))
    }

    fn claim(&mut self) -> MessageId {
        let kinds = [WORKED.to_owned()];
        let query = ClaimQuery { session: self.stage.id, kinds: &kinds, max: 1 };
        let found = queue::claimable(self.stage.pool(), query, self.stage.now()).remove(0);
        let (id, token) = (found.id, Token { epoch: Epoch(1), n: self.stage.now().0 });
        let holder =
            Holder { generator: None, process: Some(process(9)), lease_ms: 60_000, op: None, host: None };
        let event = queue::claimed(&found, token, holder, self.stage.now());
        self.stage.world.emit(event);
        id
    }

    fn held(&self, id: MessageId) -> ClaimRef {
        ClaimRef { id, token: self.stage.pool().find_pending(id).unwrap().token.unwrap() }
    }

    fn fail(&mut self, id: MessageId, then: Disposition) {
        let held = self.held(id);
        let events = queue::fail(self.stage.pool(), &self.rules, held, ("no", then), self.stage.now());
        self.stage.world.emit_all(events.unwrap());
    }

    fn register(&mut self, kinds: &[&str]) {
        self.volatile.workers.connected(1, Some(process(9)), self.stage.now());
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let registration = Registration {
            id: GeneratorId(1),
            session: Some(self.stage.id),
            scope: protocol::SessionRef::from(self.stage.id).into(),
            kinds,
        };
        self.volatile.workers.register(1, registration);
    }

    fn block(&mut self, why: &str) {
        self.volatile.prompts.block(self.stage.id, Blocked::for_now(why));
    }
}

fn stuck(kind: &str, reason: StuckReason) -> Told {
    vec![(kind.to_owned(), Ok(reason))]
}

fn unstuck(kind: &str, reason: UnstuckReason) -> Told {
    vec![(kind.to_owned(), Err(reason))]
}

#[test]
fn messages_without_a_worker_are_told_once_after_the_time_and_again_when_they_move() {
    let mut lanes = Lanes::new();
    let begun = lanes.stage.now().0;
    lanes.send(WORKED);
    lanes.stage.pass(LIMIT - 1);
    lanes.send(WORKED);
    assert_eq!(lanes.look(), []);
    lanes.stage.pass(1);
    assert_eq!(lanes.look(), stuck(WORKED, StuckReason::NoWorker));
    assert_eq!(lanes.stuck(), Some((begun, 2, StuckReason::NoWorker)));
    lanes.register(&[]);
    assert_eq!(lanes.stuck(), Some((begun, 2, StuckReason::NoClaim)), "it may work all kinds");
    lanes.stage.pass(LIMIT);
    assert_eq!(lanes.look(), [], "it is known");
    lanes.claim();
    assert_eq!(lanes.look(), unstuck(WORKED, UnstuckReason::Moved));
    assert_eq!(lanes.stuck(), None);
}

#[test]
fn a_worker_that_is_registered_for_another_kind_hides_nothing() {
    let mut lanes = Lanes::new();
    lanes.register(&["build"]);
    lanes.send(WORKED);
    lanes.stage.pass(LIMIT);
    assert_eq!(lanes.look(), stuck(WORKED, StuckReason::NoWorker));
    lanes.register(&[WORKED]);
    lanes.stage.pass(1);
    assert_eq!(lanes.look(), [], "another reason is no other standstill");
}

#[test]
fn a_restart_of_the_daemon_tells_nothing_again_and_invents_nothing() {
    let mut lanes = Lanes::new();
    lanes.send(WORKED);
    lanes.send(PROMPT);
    lanes.stage.pass(LIMIT);
    assert_eq!(lanes.look().len(), 2);
    // A lane of old messages, of which one has just ended.
    for _ in 0..3 {
        lanes.send("build");
    }
    lanes.stage.pass(LIMIT - 1);
    let first =
        lanes.stage.pool().pending_messages_of(lanes.stage.id).find(|m| m.kind == "build").unwrap().id;
    lanes.stage.moves(first, MessageState::Done);
    lanes.stage.pass(2);
    for _ in 0..3 {
        lanes.stage.crash();
        lanes.volatile = Volatile::new(LockTable::new(Epoch(2)), lanes.stage.now());
        assert_eq!(lanes.look(), []);
    }
    lanes.stage.pass(LIMIT);
    assert_eq!(lanes.look(), stuck("build", StuckReason::NoWorker));
}

#[test]
fn a_lane_that_moved_after_the_clock_was_set_back_does_not_stand_still() {
    let mut lanes = Lanes::new();
    lanes.stage.pass(100 * LIMIT);
    let (old, new) = (lanes.send(WORKED), lanes.send(WORKED));
    lanes.stage.moves(old, MessageState::Done);
    lanes.stage.sets_clock(lanes.stage.now().0 - 20 * LIMIT);
    lanes.stage.pass(LIMIT);
    lanes.stage.moves(new, MessageState::Done);
    for _ in 0..2 {
        let waits = lanes.send(WORKED);
        assert_eq!(lanes.look(), [], "it has just moved");
        lanes.stage.moves(waits, MessageState::Cancelled);
        lanes.stage.crash();
    }
}

#[test]
fn a_prompt_that_waits_is_told_with_the_reason_of_its_gate() {
    let mut lanes = Lanes::new();
    lanes.send(PROMPT);
    lanes.block("its agent is busy (hook)");
    lanes.stage.pass(LIMIT);
    let why = StuckReason::PromptWaits("its agent is busy (hook)".to_owned());
    assert_eq!(lanes.look(), stuck(PROMPT, why));
    let id = lanes.stage.begin().unwrap();
    assert_eq!(lanes.look(), [], "it may be called off");
    lanes.stage.pass(1);
    lanes.stage.moves(id, MessageState::Accepted);
    assert_eq!(lanes.look(), unstuck(PROMPT, UnstuckReason::Moved));
    lanes.stage.pass(50 * LIMIT);
    assert_eq!(lanes.look(), [], "its agent works on it");
}

#[test]
fn typing_that_is_called_off_again_and_again_is_no_progress() {
    let mut lanes = Lanes::new();
    let begun = lanes.stage.now().0;
    lanes.send(PROMPT);
    lanes.block("not typed: Already");
    for _ in 0..60 {
        lanes.stage.pass(LIMIT / 60);
        let id = lanes.stage.begin().unwrap();
        let open = lanes.stage.pool().find_pending(id).unwrap();
        let event = queue::give_back(&open, "not typed".into(), lanes.stage.now());
        lanes.stage.world.emit(event);
    }
    let (since, waiting, reason) = lanes.stuck().unwrap();
    assert_eq!((since, waiting, reason.code()), (begun, 1, "prompt_waits"));
    assert_eq!(lanes.look().len(), 1);
    for _ in 0..3 {
        let id = lanes.stage.begin().unwrap();
        assert_eq!(lanes.look(), []);
        let open = lanes.stage.pool().find_pending(id).unwrap();
        let event = queue::give_back(&open, "not typed".into(), lanes.stage.now());
        lanes.stage.world.emit(event);
        assert_eq!(lanes.look(), []);
        lanes.stage.pass(8_000);
    }
}

#[test]
fn a_message_that_holds_its_lane_up_is_the_reason() {
    use MessageState::{Accepted, Claimed, InDoubt, Revoking, Typed, Typing};
    let cases = [
        (Typing, Some(StuckReason::Typing)),
        (Typed, Some(StuckReason::Unconfirmed)),
        (InDoubt, Some(StuckReason::InDoubt)),
        (Revoking, Some(StuckReason::Revoking)),
        (Accepted, None),
        (Claimed, None),
    ];
    for (state, reason) in cases {
        let mut lanes = Lanes::new();
        let id = lanes.send(PROMPT);
        lanes.send(PROMPT);
        lanes.stage.begin();
        lanes.stage.pass(7);
        lanes.stage.moves(id, state);
        let held_at = lanes.stage.now().0;
        lanes.stage.pass(LIMIT);
        assert_eq!(lanes.stuck(), reason.map(|reason| (held_at, 2, reason)), "{state:?}");
    }
}

#[test]
fn a_breaker_that_stays_open_is_told_and_its_probes_are_no_progress() {
    let mut lanes = Lanes::new();
    lanes.send(WORKED);
    let mut opened_at = 0;
    for _ in 0..2 {
        lanes.stage.pass(61_000);
        let id = lanes.claim();
        opened_at = lanes.stage.now().0;
        lanes.fail(id, Disposition::Retry);
    }
    lanes.stage.pass(LIMIT);
    assert_eq!(lanes.stuck(), Some((opened_at, 1, StuckReason::BreakerOpen)));
    assert_eq!(lanes.look(), stuck(WORKED, StuckReason::BreakerOpen));
    for _ in 0..3 {
        let probe = lanes.claim();
        assert_eq!(lanes.look(), []);
        lanes.fail(probe, Disposition::Retry);
        assert_eq!(lanes.look(), []);
        lanes.stage.pass(31 * 60_000);
    }
    lanes.send(WORKED);
    let id = lanes.claim();
    let held = lanes.held(id);
    let done = queue::ack(lanes.stage.pool(), held, None, lanes.stage.now()).unwrap();
    lanes.stage.world.emit_all(done);
    assert_eq!(lanes.look(), unstuck(WORKED, UnstuckReason::Moved));
}

#[test]
fn a_probe_that_does_not_fail_lets_no_other_message_through_unless_it_closes_the_breaker() {
    let breaker =
        |lanes: &Lanes| lanes.stage.pool().breaker(lanes.stage.id, WORKED).cloned().unwrap_or_default();
    let mut lanes = Lanes::new();
    for _ in 0..3 {
        lanes.send(WORKED);
    }
    for _ in 0..2 {
        lanes.stage.pass(61_000);
        let id = lanes.claim();
        lanes.fail(id, Disposition::Retry);
    }
    lanes.stage.pass(31 * 60_000);
    let probe = lanes.claim();
    lanes.fail(probe, Disposition::Later(Some(1)));
    let put_off = breaker(&lanes);
    assert!(put_off.is_open() && put_off.probe_at > Some(lanes.stage.now()), "{put_off:?}");
    assert_eq!(put_off.failures, 2, "that is no failure");
    lanes.stage.pass(31 * 60_000);
    let probe = lanes.claim();
    lanes.fail(probe, Disposition::Dead);
    assert!(!breaker(&lanes).is_open(), "its worker works");
}

#[test]
fn a_message_whose_next_attempt_has_a_time_is_excused_until_then() {
    let mut lanes = Lanes::new();
    lanes.send(WORKED);
    let id = lanes.claim();
    lanes.fail(id, Disposition::Later(Some(5 * LIMIT)));
    lanes.stage.pass(5 * LIMIT - 1);
    assert_eq!(lanes.stuck(), None);
    lanes.stage.pass(LIMIT);
    assert_eq!(lanes.stuck(), None, "its time came a moment ago");
    lanes.stage.pass(1);
    assert!(lanes.stuck().is_some());
}

#[test]
fn prompts_of_a_session_that_was_put_aside_wait_on_purpose() {
    use Lifecycle::{Draining, Failed, Live, Lost, Parked, Starting, Stopped};
    let cases = [
        (Live, None, true),
        (Draining, Some(Reason::Drained), true),
        (Draining, Some(Reason::Killed), false),
        (Parked, Some(Reason::Parked), false),
        (Stopped, Some(Reason::Killed), false),
        (Lost, Some(Reason::ServerGone), false),
        (Failed, Some(Reason::ExecFailed), false),
        (Starting, None, false),
    ];
    for (lifecycle, reason, told) in cases {
        let mut lanes = Lanes::new();
        lanes.send(WORKED);
        lanes.send(PROMPT);
        lanes.stage.is(lifecycle, reason);
        lanes.stage.pass(LIMIT);
        assert_eq!(lanes.look().len(), if told { 2 } else { 1 }, "{lifecycle:?} {reason:?}");
    }
    // A known standstill is taken back when the session ends, and begins anew once the session runs again.
    let mut lanes = Lanes::new();
    lanes.send(PROMPT);
    lanes.stage.pass(LIMIT);
    lanes.look();
    lanes.stage.end();
    assert_eq!(lanes.look(), unstuck(PROMPT, UnstuckReason::Excused));
    lanes.stage.pass(9 * LIMIT);
    lanes.stage.again();
    assert_eq!(lanes.look(), []);
    lanes.stage.pass(LIMIT);
    assert_eq!(
        lanes.look(),
        stuck(PROMPT, StuckReason::PromptWaits("its session is not ready for it".to_owned()))
    );
}

#[test]
fn prompts_under_a_persons_lock_wait_on_purpose_and_other_messages_do_not() {
    let mut lanes = Lanes::new();
    lanes.send(PROMPT);
    let (session, token) = (lanes.stage.id, Token { epoch: Epoch(1), n: 5 });
    let lock = session_lock(token.n, lanes.stage.now());
    lanes.stage.world.emit(Event::LockGranted { session, lock });
    lanes.stage.pass(LIMIT);
    assert_eq!(lanes.look(), []);
    lanes.stage.world.emit(Event::LockReleased { session, token, reason: "given back".to_owned() });
    assert_eq!(lanes.look(), [], "it could not be typed before");
    lanes.stage.pass(LIMIT);
    assert_eq!(lanes.look().len(), 1);
    let lock = lanes.stage.session().lock.clone();
    assert_eq!(lock, None);
}

#[test]
fn under_a_lock_the_prompts_of_its_holder_and_older_ones_are_typed_whatever_the_priority() {
    let mut lanes = Lanes::new();
    let session = lanes.stage.id;
    let mut sent = 0;
    let mut send_as = |lanes: &mut Lanes, priority: i8| {
        sent += 1;
        let asked = Send { priority, ..asked(session, PROMPT) };
        let op = OpId::Named(format!("prompt-{sent}"));
        send(&mut lanes.stage.world, &lanes.rules, &asked, &op).unwrap()
    };
    let older = send_as(&mut lanes, -5);
    let token = Token { epoch: Epoch(1), n: 5 };
    let lock = session_lock(token.n, lanes.stage.now());
    lanes.stage.world.emit(Event::LockGranted { session, lock });
    let own = [0, 10].map(|priority| {
        let message = send_as(&mut lanes, priority);
        lanes.stage.world.emit(Event::LockUsedForSend { session, token, message });
        message
    });
    let later = send_as(&mut lanes, 100);
    let mut typed = Vec::new();
    for _ in 0..3 {
        let id = lanes.stage.begin().unwrap();
        typed.push(id);
        lanes.stage.moves(id, MessageState::Typed);
        lanes.stage.moves(id, MessageState::Done);
    }
    assert_eq!(
        typed,
        [own[1], own[0], later],
        "without a prompt of its holder the gate holds back what is next"
    );
    let state = |id: MessageId| lanes.stage.message(id);
    assert_eq!((state(older), state(later)), (MessageState::Queued, MessageState::Done));
}

#[test]
fn a_lane_that_is_empty_or_gone_is_stuck_no_longer() {
    let mut lanes = Lanes::new();
    let id = lanes.send(WORKED);
    lanes.stage.pass(LIMIT);
    lanes.look();
    lanes.stage.moves(id, MessageState::Cancelled);
    assert_eq!(lanes.look(), unstuck(WORKED, UnstuckReason::Empty));
    // A new message of an old lane is not as old as the lane.
    lanes.stage.pass(LIMIT);
    lanes.send(WORKED);
    lanes.stage.pass(LIMIT - 1);
    assert_eq!(lanes.look(), []);
    lanes.stage.pass(1);
    assert_eq!(lanes.look(), stuck(WORKED, StuckReason::NoWorker));
    lanes.rules.stuck_after = None;
    assert_eq!(lanes.look(), unstuck(WORKED, UnstuckReason::Excused), "nobody asks for it any more");
}

#[test]
fn a_message_that_a_person_starts_anew_is_not_as_old_as_it_is() {
    let mut lanes = Lanes::new();
    let id = lanes.send(WORKED);
    lanes.stage.moves(id, MessageState::Dead);
    lanes.stage.pass(9 * LIMIT);
    let events = queue::retry(lanes.stage.pool(), &lanes.rules, id, lanes.stage.now()).unwrap();
    lanes.stage.world.emit_all(events);
    assert_eq!(lanes.stuck(), None);
    lanes.stage.pass(LIMIT);
    assert!(lanes.stuck().is_some());
}

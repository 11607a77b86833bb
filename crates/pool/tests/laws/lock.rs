//! Session locks against a plain reference: a list of waiters.

use std::collections::BTreeMap;

use pool::lock::{Grant, LockRequest, LockTable, NotHeld, OuterLock, Ticket, WaiterOutcome, locked_by};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::session::SessionLock;
use protocol::{Epoch, Event, SessionId, Timestamp, Token};

use crate::world::{World, process, server, session_lock};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A user's lock.
    Lock,
    /// An operation inside no lock, or inside one of another session.
    Operation,
    /// An operation inside the lock of this session.
    Nested,
    /// An operation that carries out a decision already made.
    Decided,
}

type Waiter = (Ticket, What);

/// A session's lock in the plainest form.
#[derive(Debug, Default)]
struct Reference {
    holder: Option<(Token, Waiter)>,
    /// True if the holder released it while an operation is inside.
    over: bool,
    waiting: Vec<Waiter>,
    inner: Option<Waiter>,
    inside: Vec<Waiter>,
}

impl Reference {
    fn open(&self) -> Option<Token> {
        let (token, (_, what)) = self.holder?;
        (what == What::Lock && !self.over).then_some(token)
    }

    /// Removes a waiter or holder. Returns the waiters that are too late; grants follow from
    /// [`Reference::serve`].
    fn leave(&mut self, ticket: Ticket) -> Vec<Ticket> {
        let is = |place: &Waiter| place.0 == ticket;
        if self.holder.is_some_and(|(_, place)| is(&place)) {
            let (decided, late): (Vec<Waiter>, Vec<Waiter>) =
                self.inside.drain(..).partition(|place| place.1 == What::Decided);
            self.waiting.splice(..0, decided);
            self.over = true;
            return late.into_iter().map(|place| place.0).collect();
        }
        self.inner = self.inner.filter(|place| !is(place));
        self.waiting.retain(|place| !is(place));
        self.inside.retain(|place| !is(place));
        Vec::new()
    }

    /// Grants what is free: the lock, or the place inside a user's lock.
    fn serve(&mut self, mut issue: impl FnMut() -> Token) -> Vec<Grant> {
        let mut grants = Vec::new();
        if self.over && self.inner.is_none() {
            (self.holder, self.over) = (None, false);
        }
        if self.holder.is_none() && !self.waiting.is_empty() {
            let place = self.waiting.remove(0);
            let token = issue();
            self.holder = Some((token, place));
            grants.push(Grant { ticket: place.0, token });
            if place.1 == What::Lock {
                let decided = self.waiting.extract_if(.., |place| place.1 == What::Decided);
                self.inside.extend(decided);
            }
        }
        if self.inner.is_none() && !self.inside.is_empty() {
            let place = self.inside.remove(0);
            self.inner = Some(place);
            grants.push(Grant { ticket: place.0, token: issue() });
        }
        grants
    }
}

/// The outcome for a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waits,
    Has(Token),
    TooLate,
    Left,
}

#[derive(Debug, Clone)]
enum Step {
    Operation(u64),
    Decided(u64),
    /// A request inside the lock with this number among all tokens ever issued.
    Under(u64, usize),
    /// A user's lock, by force or not.
    Lock(u64, bool),
    /// Releases the waiter or holder with this number; or the same for another session.
    Release(usize),
    Elsewhere(usize),
    Restart,
    Issue,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = || 1_u64..4;
    let step = prop_oneof![
        3 => session().prop_map(Step::Operation),
        3 => session().prop_map(Step::Decided),
        5 => (session(), any::<usize>()).prop_map(|(session, n)| Step::Under(session, n)),
        5 => (session(), 0..4).prop_map(|(session, n)| Step::Lock(session, n == 0)),
        9 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Elsewhere),
        1 => (0..3).prop_map(|n| if n == 0 { Step::Restart } else { Step::Issue }),
    ];
    vec(step, 0..120)
}

#[derive(Debug)]
struct Bench {
    table: LockTable,
    epoch: u64,
    tickets: u64,
    sessions: BTreeMap<SessionId, Reference>,
    fates: BTreeMap<Ticket, (SessionId, What, Fate)>,
    /// All issued tokens, the newest last.
    tokens: Vec<Token>,
}

impl Bench {
    fn new() -> Self {
        Self {
            table: LockTable::new(Epoch(1)),
            epoch: 1,
            tickets: 0,
            sessions: BTreeMap::new(),
            fates: BTreeMap::new(),
            tokens: Vec::new(),
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn play(&mut self, step: &Step) {
        match step {
            Step::Operation(session) => self.ask(SessionId(*session), OuterLock::None),
            Step::Decided(session) => self.ask(SessionId(*session), OuterLock::Current),
            Step::Under(session, n) => {
                let known = self.tokens.get(n % self.tokens.len().max(1)).copied();
                // Most requests are inside the lock that is held.
                let open = self.sessions.get(&SessionId(*session)).and_then(Reference::open);
                let token = open.filter(|_| n % 4 > 0).or(known).unwrap_or_default();
                self.ask(SessionId(*session), OuterLock::Token(token));
            }
            Step::Lock(session, force) => self.lock(SessionId(*session), *force),
            Step::Release(n) => {
                let there = self.there();
                if let Some((ticket, session)) = there.get(n % there.len().max(1)) {
                    self.release(*session, *ticket);
                }
            }
            Step::Elsewhere(n) => {
                let there = self.there();
                if let Some((ticket, session)) = there.get(n % there.len().max(1)) {
                    assert_eq!(self.table.release(SessionId(session.0 % 3 + 1), *ticket), vec![]);
                }
            }
            Step::Restart => self.restart(),
            Step::Issue => {
                let token = self.table.issue_token();
                self.issued(token);
            }
        }
    }

    /// All waiters and holders.
    fn there(&self) -> Vec<(Ticket, SessionId)> {
        let there = |fate: Fate| matches!(fate, Fate::Waits | Fate::Has(_));
        self.fates
            .iter()
            .filter(|(_, found)| there(found.2))
            .map(|(ticket, found)| (*ticket, found.0))
            .collect()
    }

    fn issued(&mut self, token: Token) {
        assert!(
            self.tokens.last().is_none_or(|last| token > *last),
            "{token} after {:?}",
            self.tokens.last()
        );
        self.tokens.push(token);
    }

    fn stand(&mut self, session: SessionId, place: Waiter, first: bool) {
        self.fates.insert(place.0, (session, place.1, Fate::Waits));
        let reference = self.sessions.entry(session).or_default();
        let inside = place.1 == What::Nested || (place.1 == What::Decided && reference.open().is_some());
        let waiting = if inside { &mut reference.inside } else { &mut reference.waiting };
        waiting.insert(if first { 0 } else { waiting.len() }, place);
    }

    fn ask(&mut self, session: SessionId, outer: OuterLock) {
        let ticket = self.ticket();
        let open = self.sessions.get(&session).and_then(Reference::open);
        let held = |token| self.sessions.values().any(|reference| reference.open() == Some(token));
        let what = match outer {
            OuterLock::None => Ok(What::Operation),
            OuterLock::Current => Ok(What::Decided),
            OuterLock::Token(token) if open == Some(token) => Ok(What::Nested),
            OuterLock::Token(token) if held(token) => Ok(What::Operation),
            OuterLock::Token(_) => Err(NotHeld),
        };
        let given =
            self.table.request(session, LockRequest { ticket, purpose: &ticket.0.to_string(), outer });
        assert_eq!(given.is_err(), what.is_err(), "{outer:?}");
        let (Ok(given), Ok(what)) = (given, what) else { return };
        self.stand(session, (ticket, what), false);
        self.settle(session, given.map(WaiterOutcome::Granted).into_iter().collect(), &[]);
    }

    fn lock(&mut self, session: SessionId, force: bool) {
        let holder = self.sessions.get(&session).and_then(|of| of.holder.filter(|_| of.open().is_some()));
        if let Some((_, (ticket, _))) = holder.filter(|_| force) {
            self.release(session, ticket);
        }
        let ticket = self.ticket();
        let given = self.table.request_user_lock(session, ticket, &ticket.0.to_string(), force);
        self.stand(session, (ticket, What::Lock), force);
        self.settle(session, given.map(WaiterOutcome::Granted).into_iter().collect(), &[]);
    }

    fn release(&mut self, session: SessionId, ticket: Ticket) {
        let given = self.table.release(session, ticket);
        let late = self.sessions.get_mut(&session).unwrap().leave(ticket);
        self.fates.get_mut(&ticket).unwrap().2 = Fate::Left;
        self.settle(session, given, &late);
        assert_eq!(self.table.release(session, ticket), vec![], "twice is once");
    }

    /// Compares the table's outcomes with those of the reference, and records them.
    fn settle(&mut self, session: SessionId, given: Vec<WaiterOutcome>, late: &[Ticket]) {
        let mut tokens: Vec<Token> = given
            .iter()
            .filter_map(|given| match given {
                WaiterOutcome::Granted(grant) => Some(grant.token),
                WaiterOutcome::OuterReleased(_) => None,
            })
            .collect();
        tokens.reverse();
        let reference = self.sessions.get_mut(&session).unwrap();
        // Tokens are compared by their size alone.
        let grants = reference.serve(|| tokens.pop().expect("nobody was given what is free"));
        let late_given = late.iter().map(|ticket| WaiterOutcome::OuterReleased(*ticket));
        let expected: Vec<WaiterOutcome> =
            late_given.chain(grants.into_iter().map(WaiterOutcome::Granted)).collect();
        assert_eq!(given, expected);
        for given in given {
            match given {
                WaiterOutcome::Granted(Grant { ticket, token }) => {
                    self.issued(token);
                    let fate = &mut self.fates.get_mut(&ticket).unwrap().2;
                    assert_eq!(*fate, Fate::Waits, "only who waits is given something, and that once");
                    *fate = Fate::Has(token);
                }
                WaiterOutcome::OuterReleased(ticket) => {
                    let (_, what, fate) = self.fates.get_mut(&ticket).unwrap();
                    assert_eq!(
                        (*what, *fate),
                        (What::Nested, Fate::Waits),
                        "who needs no lock is never late"
                    );
                    *fate = Fate::TooLate;
                }
            }
        }
    }

    /// Only users' locks are on disk.
    fn restart(&mut self) {
        self.epoch += 1;
        self.table = LockTable::new(Epoch(self.epoch));
        self.fates.clear();
        for (session, before) in std::mem::take(&mut self.sessions) {
            let Some(token) = before.open() else { continue };
            let ticket = self.ticket();
            self.table.restore(session, ticket, token, &ticket.0.to_string());
            let place = (ticket, What::Lock);
            self.sessions.insert(session, Reference { holder: Some((token, place)), ..Reference::default() });
            self.fates.insert(ticket, (session, What::Lock, Fate::Has(token)));
        }
    }

    fn compare(&self) {
        for (session, reference) in &self.sessions {
            let having = |what: &dyn Fn(What) -> bool| {
                let mine = self.fates.values().filter(|(of, ..)| of == session);
                mine.filter(|(_, kind, fate)| matches!(fate, Fate::Has(_)) && what(*kind)).count()
            };
            assert!(having(&|what| what == What::Lock) <= 1, "one user's lock at most");
            assert!(having(&|what| what != What::Lock) <= 1, "one operation at most");
            let held = self.table.holder(*session);
            let shown =
                held.map(|held| (held.token, held.purpose.to_owned(), held.is_user_lock, held.waiting));
            let expected = reference.holder.map(|(token, (ticket, _))| {
                (token, ticket.0.to_string(), reference.open().is_some(), reference.waiting.len())
            });
            assert_eq!(shown, expected);
            let inner = held.and_then(|held| held.inside).map(str::to_owned);
            assert_eq!(inner, reference.inner.map(|(ticket, _)| ticket.0.to_string()));
        }
        for token in &self.tokens {
            let open = |reference: &Reference| reference.open() == Some(*token);
            assert_eq!(self.table.is_held(*token), self.sessions.values().any(open));
            for (session, reference) in &self.sessions {
                let ticket = reference.holder.filter(|_| open(reference)).map(|(_, place)| place.0);
                assert_eq!(self.table.user_lock_ticket(*session, *token), ticket);
            }
        }
    }

    /// Releases everything in any order: no waiter is forgotten.
    fn wind_up(&mut self, order: usize) {
        loop {
            let has = |found: &(SessionId, What, Fate)| matches!(found.2, Fate::Has(_));
            let all: Vec<(Ticket, SessionId)> = self
                .fates
                .iter()
                .filter(|(_, found)| has(found))
                .map(|(ticket, found)| (*ticket, found.0))
                .collect();
            let Some((ticket, session)) = all.get(order % all.len().max(1)) else { break };
            self.release(*session, *ticket);
            self.compare();
        }
        assert_eq!(self.there(), [], "somebody waits for ever");
        assert!(self.sessions.keys().all(|session| self.table.holder(*session).is_none()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn law_4_one_holder_in_order_with_growing_tokens(steps in steps(), order in any::<usize>()) {
        let mut bench = Bench::new();
        for step in steps {
            bench.play(&step);
            bench.compare();
        }
        bench.wind_up(order);
    }
}

const ONE: SessionId = SessionId(1);

fn ask(table: &mut LockTable, ticket: u64, outer: OuterLock) -> Result<Option<Grant>, NotHeld> {
    table.request(ONE, LockRequest { ticket: Ticket(ticket), purpose: "test", outer })
}

/// The tickets that were granted, and those that were too late.
fn told(given: &[WaiterOutcome]) -> (Vec<u64>, Vec<u64>) {
    let mut told = (Vec::new(), Vec::new());
    for given in given {
        match given {
            WaiterOutcome::Granted(grant) => told.0.push(grant.ticket.0),
            WaiterOutcome::OuterReleased(ticket) => told.1.push(ticket.0),
        }
    }
    told
}

#[test]
fn law_4_what_waits_inside_of_a_lock_that_ended_has_come_too_late() {
    let mut table = LockTable::new(Epoch(1));
    let lock = table.request_user_lock(ONE, Ticket(1), "mine", false).unwrap().token;
    assert!(
        ask(&mut table, 2, OuterLock::Token(lock)).unwrap().is_some(),
        "it does not wait for its own lock"
    );
    assert_eq!(ask(&mut table, 3, OuterLock::Token(lock)), Ok(None), "one at a time inside, too");
    assert_eq!(ask(&mut table, 4, OuterLock::None), Ok(None));
    assert_eq!(told(&table.release(ONE, Ticket(1))), (vec![], vec![3]), "the one inside is not over");
    assert_eq!(ask(&mut table, 5, OuterLock::Token(lock)), Err(NotHeld));
    assert_eq!(told(&table.release(ONE, Ticket(2))), (vec![4], vec![]));
    assert_eq!(ask(&mut table, 6, OuterLock::Token(lock)), Err(NotHeld));
    assert_eq!(ask(&mut table, 6, OuterLock::Token(Token::default())), Err(NotHeld));
}

#[test]
fn law_4_what_is_decided_waits_for_no_users_lock_and_outlives_each() {
    let mut table = LockTable::new(Epoch(1));
    ask(&mut table, 1, OuterLock::None).unwrap().unwrap();
    assert_eq!(table.request_user_lock(ONE, Ticket(2), "mine", false), None);
    assert_eq!(ask(&mut table, 3, OuterLock::None), Ok(None));
    assert_eq!([4, 5].map(|ticket| ask(&mut table, ticket, OuterLock::Current)), [Ok(None), Ok(None)]);
    assert_eq!(told(&table.release(ONE, Ticket(1))), (vec![2, 4], vec![]), "it asked behind the user");
    assert_eq!(told(&table.release(ONE, Ticket(2))), (vec![], vec![]), "it is not its lock that ended");
    assert_eq!(told(&table.release(ONE, Ticket(4))), (vec![5], vec![]));
    assert_eq!(told(&table.release(ONE, Ticket(5))), (vec![3], vec![]));
}

#[test]
fn law_4_by_force_it_goes_before_all_who_wait_and_never_beside_what_is_done() {
    let mut table = LockTable::new(Epoch(1));
    let lock = table.request_user_lock(ONE, Ticket(1), "mine", false).unwrap().token;
    ask(&mut table, 2, OuterLock::Token(lock)).unwrap().unwrap();
    assert_eq!(ask(&mut table, 3, OuterLock::None), Ok(None));
    assert_eq!(told(&table.release(ONE, Ticket(1))), (vec![], vec![]));
    assert_eq!(table.request_user_lock(ONE, Ticket(4), "by force", true), None, "what is done goes on");
    assert!(
        !table.is_held(lock) && table.user_lock_ticket(ONE, lock).is_none(),
        "fenced from the first moment on"
    );
    assert_eq!(told(&table.release(ONE, Ticket(2))), (vec![4], vec![]));
    assert_eq!(told(&table.release(ONE, Ticket(4))), (vec![3], vec![]));
}

#[test]
fn operations_that_wait_behind_a_users_lock_are_withdrawn_once_it_is_granted() {
    let (mut table, session) = (LockTable::new(Epoch(1)), SessionId(1));
    ask(&mut table, 1, OuterLock::None).unwrap();
    table.request_user_lock(session, Ticket(2), "deploy", false);
    ask(&mut table, 3, OuterLock::None).unwrap();
    ask(&mut table, 4, OuterLock::Current).unwrap();
    assert_eq!(table.withdraw_operations(session), [], "the lock may never be granted");
    assert_eq!(told(&table.release(session, Ticket(1))), (vec![2, 4], vec![]));
    assert_eq!(table.withdraw_operations(session), [Ticket(3)]);
    assert_eq!(table.holder(session).unwrap().waiting, 0);
}

#[test]
fn l02_a_lock_keeps_its_token_over_a_restart_and_every_later_one_is_larger() {
    let mut before = LockTable::new(Epoch(4));
    let last = (0..1000).map(|_| before.issue_token()).last().unwrap();
    let lock = before.request_user_lock(ONE, Ticket(1), "mine", false).unwrap().token;
    assert!(lock > last);
    let mut after = LockTable::new(Epoch(5));
    after.restore(ONE, Ticket(7), lock, "mine");
    assert!(after.is_held(lock) && after.user_lock_ticket(ONE, lock) == Some(Ticket(7)));
    let inner = ask(&mut after, 8, OuterLock::Token(lock)).unwrap().unwrap();
    assert!(inner.token > lock, "what is done under it is newer than it");
    assert_eq!(ask(&mut after, 9, OuterLock::None), Ok(None), "it is held");
    assert_eq!(told(&after.release(ONE, Ticket(7))), (vec![], vec![]));
    let given = after.release(ONE, Ticket(8));
    let Some(WaiterOutcome::Granted(next)) = given.first() else { panic!("{given:?}") };
    assert!(next.ticket == Ticket(9) && next.token > inner.token);
}

#[test]
fn law_3_a_lock_in_the_record_ends_by_its_own_token_alone_and_once() {
    let mut world = World::default();
    let session = world.live("s", server(1), 1);
    let lock = |n: u64| SessionLock { holder: Some(process(7)), ..session_lock(n, Timestamp(3)) };
    let held = |world: &World| world.pool.session(session).unwrap().lock.clone();
    let twice = |world: &mut World, event: Event| {
        let stamped = world.emit(event);
        let once = world.pool.clone();
        world.pool.apply(&stamped);
        assert_eq!(world.pool, once);
        assert_eq!(world.rebuilt(), once, "it is in what a new daemon reads");
        assert!(stamped.event.is_journaled());
    };
    let reason = || "why".to_owned();
    for ends in [false, true] {
        twice(&mut world, Event::LockGranted { session, lock: lock(2) });
        assert_eq!(held(&world), Some(lock(2)));
        let before = world.pool.session(session).unwrap().clone();
        let other = lock(1).token;
        twice(&mut world, Event::LockReleased { session, token: other, reason: reason() });
        twice(&mut world, Event::LockRevoked { session, token: other, reason: reason() });
        assert_eq!(*world.pool.session(session).unwrap(), before, "an older one's end is not its own");
        let token = lock(2).token;
        twice(
            &mut world,
            match ends {
                false => Event::LockReleased { session, token, reason: reason() },
                true => Event::LockRevoked { session, token, reason: reason() },
            },
        );
        assert_eq!(held(&world), None);
    }
    twice(&mut world, Event::LockGranted { session, lock: lock(3) });
    twice(&mut world, Event::LockGranted { session, lock: lock(4) });
    assert_eq!(held(&world), Some(lock(4)));
}

#[test]
fn l06_a_process_holds_all_its_locks_whatever_they_were_requested_inside() {
    let mut world = World::default();
    let inside = Some(session_lock(1, Timestamp(0)).token);
    let locks = [(1, Some(7), None), (2, Some(7), inside), (3, Some(8), None), (4, None, None)];
    for (n, holder, outer) in locks {
        let session = world.live(&format!("s{n}"), server(1), n);
        let holder = holder.map(process);
        let lock = SessionLock { holder, outer, ..session_lock(n.into(), Timestamp(3)) };
        world.emit(Event::LockGranted { session, lock });
    }
    let held = |pid| locked_by(&world.pool, process(pid)).map(|session| session.0).collect::<Vec<_>>();
    assert_eq!([7, 8, 9].map(held), [vec![1, 2], vec![3], vec![]]);
}

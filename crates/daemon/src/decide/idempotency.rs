//! Idempotent operations: a mutating request with an id made by the client. The same id and content get the
//! same answer, whether the first request is done, in progress, or was interrupted by a crash.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use pool::OperationState;
use pool::queue;
use protocol::{
    ErrorCode, Event, MessageId, OpId, Refusal, Reply, Request, Session, SessionId, SessionRef, Timestamp,
    Token, digest,
};
use tokio::sync::oneshot;

use crate::decide::lock;
use crate::engine::{RunningOperation, Turn};

/// Maximum number of remembered answers, and of their bytes; beyond them the oldest are forgotten. Answers to ids that
/// users chose, which are kept for a day, and answers to random ids have limits of their own, so that many of the
/// latter do not push out the former.
const ANSWERS_MAX: usize = 50_000;
const ANSWERS_BYTES_MAX: usize = 32 << 20;

/// Maximum number of operations forgotten in one turn.
pub(crate) const FORGET_BATCH: usize = 500;

/// An operation that a client requests.
#[derive(Debug, Clone)]
pub(crate) struct ClientOperation {
    id: OpId,
    digest: u64,
    /// The first requester, while it waits.
    asker: Weak<()>,
    /// The user's lock under which it is executed.
    pub(crate) under: Option<Token>,
    /// The session on which an earlier daemon began it.
    pub(crate) interrupted_on: Option<SessionId>,
}

/// The state of an operation when it is requested.
pub(crate) enum OperationStatus {
    /// Unknown: the caller executes it.
    Fresh,
    /// Answered before.
    Answered(Reply),
    /// In progress: receives the answer.
    Running(oneshot::Receiver<Reply>),
    /// Begun, usually by an earlier daemon, and now resumed. What becomes of this session is the outcome.
    Interrupted(SessionId),
}

impl ClientOperation {
    /// # Errors
    /// Usage: there is no valid id.
    pub(crate) fn new(id: Option<OpId>, request: &Request) -> Result<Self, Refusal> {
        let id = check_id(id)?;
        let content = match request {
            // The caller's directory and environment are no part of the request.
            Request::New(new) => {
                let (caller_env, caller_cwd) = (Vec::new(), None);
                Request::New(Box::new(protocol::request::New { caller_env, caller_cwd, ..(**new).clone() }))
            }
            Request::AddWorker(add) => {
                let add = protocol::request::AddWorker { caller_env: Vec::new(), ..(**add).clone() };
                Request::AddWorker(Box::new(add))
            }
            other => other.clone(),
        };
        let bytes = protocol::frame::encode_record(&content).map_err(|e| Refusal::usage(e.to_string()))?;
        Ok(Self { id, digest: digest(&bytes), asker: Weak::new(), under: None, interrupted_on: None })
    }

    /// Returns the operation with a requester, which waits as long as `asker` exists.
    pub(crate) fn awaited_by(self, asker: Weak<()>) -> Self {
        Self { asker, ..self }
    }

    /// Returns the operation under a user's lock.
    pub(crate) fn with_user_lock(self, lock: Option<Token>) -> Self {
        Self { under: lock, ..self }
    }

    /// Returns the operation as one that an earlier daemon began on this session.
    pub(crate) fn begun_for(self, session: SessionId) -> Self {
        Self { interrupted_on: Some(session), ..self }
    }

    /// Returns the session on which an earlier daemon began the operation, or else the one that the request names. By
    /// the time of a repeat, another session may have that name.
    pub(crate) fn session(&self, asked: &SessionRef) -> SessionRef {
        self.interrupted_on.map_or_else(|| asked.clone(), Into::into)
    }

    /// True if an earlier daemon began the operation before the session's current incarnation started, so that it was
    /// meant for an earlier incarnation. If the clock was set back in between, true is returned in doubt: the operation
    /// is skipped rather than carried out on the wrong incarnation.
    pub(crate) fn is_older_than_run(&self, turn: &Turn<'_>, session: &Session) -> bool {
        let begun = turn.pool().operation(&self.id).filter(|_| self.interrupted_on.is_some());
        let run = session.incarnation.as_ref();
        begun
            .zip(run)
            .is_some_and(|(begun, run)| turn.pool().is_earlier(turn.now(), begun.at, run.started_at))
    }

    /// True if a requester still waits for its answer.
    pub(crate) fn is_awaited(&self, turn: &Turn<'_>) -> bool {
        let running = turn.waiting.operations.get(&self.id);
        !turn.waiting.withdrawn.contains(&self.id) && running.is_some_and(|running| running.requesters() > 0)
    }

    /// Returns the state of the operation. If it is new, or was begun by an earlier daemon, it is in progress from now
    /// on. A new one is refused if the user's lock that it was requested under has ended.
    pub(crate) fn begin(&self, turn: &mut Turn<'_>) -> OperationStatus {
        if let Some(RunningOperation { digest, waiters, .. }) = turn.waiting.operations.get_mut(&self.id) {
            if *digest != self.digest {
                return OperationStatus::Answered(Err(id_reused()));
            }
            let (waiter, answer) = oneshot::channel();
            waiters.push(waiter);
            return OperationStatus::Running(answer);
        }
        let known = turn.pool().operation(&self.id).map(|known| (known.digest, known.state.clone()));
        match known {
            Some((digest, _)) if digest != self.digest => OperationStatus::Answered(Err(id_reused())),
            Some((_, OperationState::Done(reply))) => OperationStatus::Answered(decode(&reply)),
            Some((_, OperationState::Begun(session))) => {
                self.set_running(turn);
                OperationStatus::Interrupted(session)
            }
            None if turn.pool().message_by_operation(&self.id).is_some() => {
                OperationStatus::Answered(Err(id_reused()))
            }
            // Only a new operation needs the lock: a repeated one gets its answer even after the lock has ended.
            None if self.under.is_some_and(|token| !turn.volatile.locks.is_held(token)) => {
                OperationStatus::Answered(Err(lock::not_held()))
            }
            None => {
                self.set_running(turn);
                OperationStatus::Fresh
            }
        }
    }

    fn set_running(&self, turn: &mut Turn<'_>) {
        let (digest, asker) = (self.digest, self.asker.clone());
        let running = RunningOperation { digest, asker, waiters: Vec::new() };
        turn.waiting.operations.insert(self.id.clone(), running);
    }

    /// Records, in the turn of the intent, that its outcome depends on this session.
    pub(crate) fn record_begun(&self, turn: &mut Turn<'_>, session: SessionId) {
        let (op, digest, at) = (self.id.clone(), self.digest, turn.now());
        turn.emit(Event::OperationBegun { op, digest, session, at });
    }

    /// Records its answer, in the turn of the outcome.
    pub(crate) fn record_answer(&self, turn: &mut Turn<'_>, reply: &Reply) {
        // A reply that does not fit a frame could not be sent either.
        if let Ok(reply) = protocol::frame::encode_payload(reply) {
            let (op, digest, at) = (self.id.clone(), self.digest, turn.now());
            turn.emit(Event::OperationDone { op, digest, reply, at });
        }
    }

    /// Ends the operation, and answers the requests that repeat it. The reply is recorded for later repeats if
    /// `is_final`, or if it is a definite refusal; otherwise the session's state will answer them.
    pub(crate) fn finish(&self, turn: &mut Turn<'_>, reply: &Reply, is_final: bool) {
        let begun = match turn.pool().operation(&self.id).map(|known| &known.state) {
            Some(OperationState::Begun(session)) => Some(*session),
            _ => None,
        };
        // The pool continues a restart whatever its requester was told, so the session's state is the answer.
        let is_continued =
            begun.and_then(|id| turn.pool().session(id)).is_some_and(pool::session::is_restarting);
        let is_answer = is_final || reply.as_ref().is_err_and(is_definite);
        if begun.is_some() && is_answer && !is_continued {
            self.record_answer(turn, reply);
        }
        turn.waiting.withdrawn.remove(&self.id);
        let running = turn.waiting.operations.remove(&self.id);
        for waiter in running.into_iter().flat_map(|running| running.waiters) {
            // The requester may be gone.
            drop(waiter.send(reply.clone()));
        }
    }
}

/// Withdraws an operation in progress: it gives up its place in the line for a slot, unless another requester waits for
/// it.
pub(crate) fn withdraw(turn: &mut Turn<'_>, op: OpId) {
    if turn.waiting.operations.get(&op).is_some_and(|running| running.requesters() < 2) {
        turn.waiting.withdrawn.insert(op);
        turn.wake();
    }
}

/// True if a repeat would be refused again.
pub(crate) fn is_definite(refusal: &Refusal) -> bool {
    matches!(refusal.code, ErrorCode::Usage | ErrorCode::NotFound | ErrorCode::Conflict | ErrorCode::Refused)
}

/// Forgets messages. It records first that their operations were carried out: a client that got no answer may repeat
/// its request when another session already has the removed one's name.
pub(crate) fn forget_messages(turn: &mut Turn<'_>, events: Vec<Event>) {
    let kept: Vec<Event> = events.iter().filter_map(|event| kept_operation(turn, event)).collect();
    turn.emit_all(kept);
    turn.emit_all(events);
}

fn kept_operation(turn: &Turn<'_>, forgotten: &Event) -> Option<Event> {
    let Event::MessageForgotten { id, session } = forgotten else { return None };
    let (at, is_named) = turn.pool().message_origin(*session, *id)?;
    let age = turn.age(at);
    // Beyond this age the operation id is not remembered either, so the message need not be read.
    if age > queue::keep_time(is_named) {
        return None;
    }
    let (message, _) = turn.message(*id).ok()??;
    // `is_named` is also true for a message with only a key, whose random operation id is remembered for a shorter
    // time.
    let op = message.op.filter(|op| age <= keep_time(op))?;
    let reply = protocol::frame::encode_payload(&Reply::Err(message_removed(*id))).ok()?;
    Some(Event::OperationDone { op, digest: message.digest, reply, at })
}

fn message_removed(id: MessageId) -> Refusal {
    Refusal::not_found(format!(
        "this was queued as message {id}, which has been removed since, with its session, by `queue purge`, or because \
         its session has more than `keep_count` finished ones; send it with a new operation id to queue it again"
    ))
}

/// Returns the time for which an operation is remembered.
fn keep_time(op: &OpId) -> Duration {
    queue::keep_time(is_named(op))
}

/// True if a user chose the id.
fn is_named(op: &OpId) -> bool {
    matches!(op, OpId::Named(_))
}

/// Returns the answer to a `send` whose operation id was used before, although no message has it now. `digest` is that
/// of its text.
pub(crate) fn used_for_sending(turn: &Turn<'_>, op: &OpId, digest: u64) -> Option<Reply> {
    match turn.pool().operation(op).map(|known| (known.digest, &known.state)) {
        Some((known, OperationState::Done(reply))) if known == digest => Some(decode(reply)),
        Some(_) => Some(Err(id_reused())),
        None if turn.waiting.operations.contains_key(op) => Some(Err(id_reused())),
        // Its message was removed; the pool remembers the hash of the operation id for some minutes.
        None if !is_named(op) => turn
            .pool()
            .message_by_operation(op)
            .filter(|id| is_gone(turn, *id))
            .map(|id| Err(message_removed(id))),
        None => None,
    }
}

fn is_gone(turn: &Turn<'_>, id: MessageId) -> bool {
    turn.message(id).is_ok_and(|found| found.is_none())
}

/// Returns the refusal of an id that was used with other content.
pub(crate) fn id_reused() -> Refusal {
    Refusal::conflict("this operation id was used for something else")
}

/// Checks an operation id.
///
/// # Errors
/// Usage: it is missing or invalid.
pub(crate) fn check_id(id: Option<OpId>) -> Result<OpId, Refusal> {
    let usage = |message: &str| Err(Refusal::usage(message));
    let Some(id) = id else { return usage("a request that changes something needs an operation id") };
    if let OpId::Named(name) = &id {
        let printable = name.bytes().all(|b| b.is_ascii_graphic());
        if name.is_empty() || name.len() > protocol::ids::OP_ID_MAX || !printable {
            return usage("an operation id is 1 to 64 printable characters without blanks");
        }
    }
    Ok(id)
}

fn decode(reply: &[u8]) -> Reply {
    protocol::frame::decode_record::<Reply>(reply)
        .unwrap_or_else(|e| Err(Refusal::storage(format!("the stored answer is unreadable: {e}"))))
}

/// Forgets operations that are too old, or beyond the limits: some at a time, oldest first. Those that are in progress
/// stay.
pub(crate) fn expired(pool: &pool::Pool, now: Timestamp, in_progress: impl Fn(&OpId) -> bool) -> Vec<Event> {
    let old = |op: &OpId, at: Timestamp| pool.age(now, at) > keep_time(op) && !in_progress(op);
    let over = pool.operations().filter(|(op, known)| old(op, known.at));
    let mut over: BTreeSet<&OpId> = over.map(|(op, _)| op).take(FORGET_BATCH).collect();
    for of_named in [true, false] {
        if over.len() < FORGET_BATCH {
            let is_left = |op: &OpId| is_named(op) == of_named && !over.contains(op);
            let surplus = surplus(pool, now, (ANSWERS_MAX, ANSWERS_BYTES_MAX), is_left);
            over.extend(surplus);
        }
    }
    over.into_iter().map(|op| Event::OperationForgotten { op: op.clone() }).collect()
}

/// Returns the oldest of the selected answers beyond the limits.
fn surplus(
    pool: &pool::Pool,
    now: Timestamp,
    (most, most_bytes): (usize, usize),
    selects: impl Fn(&OpId) -> bool,
) -> Vec<&OpId> {
    let size = |state: &OperationState| match state {
        OperationState::Done(reply) => Some(reply.len()),
        OperationState::Begun(_) => None,
    };
    let selected = || pool.operations().filter(|(op, _)| selects(op));
    let answers = || selected().filter_map(|(op, known)| Some((known.at, op, size(&known.state)?)));
    let (mut count, mut bytes) =
        answers().fold((0, 0), |(count, bytes), (_, _, size)| (count + 1, bytes + size));
    if count <= most && bytes <= most_bytes {
        return Vec::new();
    }
    let mut oldest: Vec<_> = answers().collect();
    oldest.sort_by_cached_key(|(at, op, _)| (Reverse(pool.age(now, *at)), *op));
    let is_over = |(_, _, size): &(Timestamp, &OpId, usize)| {
        let over = count > most || bytes > most_bytes;
        (count, bytes) = (count - 1, bytes - size);
        over
    };
    oldest.into_iter().take(FORGET_BATCH).take_while(is_over).map(|(_, op, _)| op).collect()
}

#[cfg(test)]
mod tests {
    use protocol::{Seq, Stamped};

    use super::*;

    fn with(answers: u64, bytes: usize) -> pool::Pool {
        let mut pool = pool::Pool::default();
        let done = |n: u64| Event::OperationDone {
            op: OpId::Named(format!("op{n}")),
            digest: n,
            reply: vec![0; bytes],
            at: Timestamp(1000 - n),
        };
        let op = OpId::Named("begun".to_owned());
        let begun = Event::OperationBegun { op, digest: 1, session: SessionId(1), at: Timestamp(1) };
        for (event, seq) in (0..answers).map(done).chain([begun]).zip(1..) {
            pool.apply(&Stamped { seq: Seq(seq), at: Timestamp(1000), event });
        }
        pool
    }

    fn names(ops: Vec<&OpId>) -> Vec<String> {
        let name = |op: &OpId| format!("{op:?}");
        ops.into_iter().map(name).collect()
    }

    #[test]
    fn too_many_answers_or_bytes_go_oldest_first_and_none_that_is_under_way() {
        let pool = with(10, 100);
        assert!(surplus(&pool, Timestamp(2000), (10, 1000), is_named).is_empty());
        assert_eq!(
            names(surplus(&pool, Timestamp(2000), (8, 1000), is_named)),
            [r#"Named("op9")"#, r#"Named("op8")"#]
        );
        assert_eq!(surplus(&pool, Timestamp(2000), (10, 799), is_named).len(), 3);
    }

    #[test]
    fn answers_to_random_ids_push_out_none_to_a_chosen_one() {
        let mut pool = with(2, 100);
        for n in 0..ANSWERS_MAX + 10 {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&n.to_le_bytes());
            let (op, seq) = (OpId::Random(bytes), Seq(100 + n as u64));
            let event = Event::OperationDone { op, digest: 1, reply: vec![0; 10], at: Timestamp(1100) };
            pool.apply(&Stamped { seq, at: Timestamp(1100), event });
        }
        let forgotten = expired(&pool, Timestamp(1200), |_| false);
        let is_random = |event: &Event| matches!(event, Event::OperationForgotten { op } if !is_named(op));
        assert_eq!((forgotten.len(), forgotten.iter().all(is_random)), (10, true));
    }

    #[test]
    fn what_is_old_keeps_nothing_from_being_too_much() {
        let mut pool = pool::Pool::default();
        let old = OpId::Random([7; 16]);
        let named = (0..ANSWERS_MAX + 5).map(|n| OpId::Named(format!("op{n}")));
        for (op, seq) in [old.clone()].into_iter().chain(named).zip(1..) {
            let at = Timestamp(if op == old { 1 } else { 1000 });
            let event = Event::OperationDone { op, digest: 1, reply: vec![0], at };
            pool.apply(&Stamped { seq: Seq(seq), at: Timestamp(1000), event });
        }
        let forgotten = expired(&pool, Timestamp(2).after(queue::keep_time(false)), |_| false);
        assert_eq!(forgotten.len(), 6, "one is old, five are too many");
        assert!(forgotten.contains(&Event::OperationForgotten { op: old }));
    }

    #[test]
    fn what_is_old_goes_so_many_at_a_time() {
        let later = Timestamp(1001).after(queue::keep_time(true));
        let forgotten = |pool, now, in_progress: fn(&OpId) -> bool| expired(&pool, now, in_progress).len();
        assert_eq!(forgotten(with(600, 1), later, |_| false), FORGET_BATCH);
        assert_eq!(forgotten(with(600, 1), Timestamp(1000), |_| false), 0);
        let is_begun = |op: &OpId| *op == OpId::Named("begun".to_owned());
        assert_eq!(forgotten(with(3, 1), later, is_begun), 3);
    }
}

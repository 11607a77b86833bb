//! Operations: a mutating request with a client-made id. The same id and content gets the same
//! answer, whether the first is over, under way, or was cut off by a crash.

use std::cmp::Reverse;
use std::sync::{Arc, Weak};
use std::time::Duration;

use pool::OperationState;
use protocol::{ErrorCode, Event, OpId, Refusal, Reply, Request, SessionId, Timestamp, Token};
use tokio::sync::oneshot;

use crate::engine::Turn;
use crate::host::digest::digest;

/// How long random ids are remembered: longer than any client repeats.
pub(crate) const KEEP_RANDOM: Duration = Duration::from_secs(10 * 60);

/// How long ids that a user gave are remembered.
pub(crate) const KEEP_NAMED: Duration = Duration::from_secs(24 * 60 * 60);

/// How many answers are remembered, and how many bytes of them: whoever asks for more makes the oldest forgotten.
const ANSWERS_MAX: usize = 50_000;

const ANSWERS_BYTES: usize = 32 << 20;

/// Forgotten in one turn.
const AT_ONCE: usize = 500;

/// One operation.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    id: OpId,
    digest: u64,
    /// Whoever asked first, as long as it is there.
    asker: Weak<()>,
    /// The user's lock under which it is done.
    pub(crate) under: Option<Token>,
}

/// What is known of an operation when it is asked for.
pub(crate) enum Begin {
    /// Nothing: carry it out.
    Fresh,
    /// It was answered.
    Answered(Reply),
    /// It is under way here.
    Running(oneshot::Receiver<Reply>),
    /// A daemon that ended had begun it; its outcome is what becomes of this session.
    Hanging(SessionId),
}

impl Op {
    /// # Errors
    /// Usage, where there is no usable id.
    pub(crate) fn new(id: Option<OpId>, request: &Request) -> Result<Self, Refusal> {
        let id = usable(id)?;
        let content = match request {
            // Where it was called from does not make it another operation.
            Request::New(new) => {
                let (caller_env, caller_cwd) = (Vec::new(), None);
                Request::New(Box::new(protocol::request::New { caller_env, caller_cwd, ..(**new).clone() }))
            }
            other => other.clone(),
        };
        let bytes = protocol::frame::encode_record(&content)
            .map_err(|e| Refusal::new(ErrorCode::Usage, e.to_string()))?;
        Ok(Self { id, digest: digest(&bytes), asker: Weak::new(), under: None })
    }

    /// The same, asked for by somebody who is there as long as this is kept.
    pub(crate) fn asked_by(self, asker: &Arc<()>) -> Self {
        Self { asker: Arc::downgrade(asker), ..self }
    }

    /// The same, done under a user's lock.
    pub(crate) fn under(self, lock: Option<Token>) -> Self {
        Self { under: lock, ..self }
    }

    /// Whether somebody still waits for what comes of it.
    pub(crate) fn is_awaited(&self, turn: &Turn<'_>) -> bool {
        let repeated = || {
            let running = turn.waiting.operations.get(&self.id);
            running.is_some_and(|(_, waiters)| waiters.iter().any(|waiter| !waiter.is_closed()))
        };
        self.asker.strong_count() > 0 || repeated()
    }

    /// Looks what is known of it, and marks it as under way where that is nothing.
    pub(crate) fn begin(&self, turn: &mut Turn<'_>) -> Begin {
        if let Some((digest, waiters)) = turn.waiting.operations.get_mut(&self.id) {
            if *digest != self.digest {
                return Begin::Answered(Err(reused()));
            }
            let (waiter, answer) = oneshot::channel();
            waiters.push(waiter);
            return Begin::Running(answer);
        }
        let known = turn.pool().operation(&self.id).map(|known| (known.digest, known.state.clone()));
        match known {
            Some((digest, _)) if digest != self.digest => Begin::Answered(Err(reused())),
            Some((_, OperationState::Done(reply))) => Begin::Answered(decode(&reply)),
            Some((_, OperationState::Begun(session))) => Begin::Hanging(session),
            None if turn.pool().sent_by(&self.id).is_some() => Begin::Answered(Err(reused())),
            None => {
                turn.waiting.operations.insert(self.id.clone(), (self.digest, Vec::new()));
                Begin::Fresh
            }
        }
    }

    /// Makes its outcome hang on this session, in the turn of its intent.
    pub(crate) fn begun(&self, turn: &mut Turn<'_>, session: SessionId) {
        let (op, digest, at) = (self.id.clone(), self.digest, turn.now());
        turn.emit(Event::OperationBegun { op, digest, session, at });
    }

    /// Makes this its answer, in the turn of its outcome.
    pub(crate) fn conclude(&self, turn: &mut Turn<'_>, reply: &Reply) {
        // A reply that does not fit a frame could not be sent either.
        if let Ok(reply) = protocol::frame::encode_payload(reply) {
            let (op, digest, at) = (self.id.clone(), self.digest, turn.now());
            turn.emit(Event::OperationDone { op, digest, reply, at });
        }
    }

    /// It is over: whoever repeated it meanwhile gets the answer.
    pub(crate) fn over(&self, turn: &mut Turn<'_>, reply: &Reply) {
        // What was begun and then refused for good is not answered by what becomes of the session.
        let begun = turn
            .pool()
            .operation(&self.id)
            .is_some_and(|known| matches!(known.state, OperationState::Begun(_)));
        if begun && reply.as_ref().is_err_and(|refusal| is_definite(refusal.code)) {
            self.conclude(turn, reply);
        }
        let (_, waiters) = turn.waiting.operations.remove(&self.id).unwrap_or_default();
        for waiter in waiters {
            // A waiter that left needs no answer.
            drop(waiter.send(reply.clone()));
        }
    }
}

/// Whether a repeat could not come to anything else by waiting.
fn is_definite(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Usage | ErrorCode::NotFound | ErrorCode::Conflict | ErrorCode::Refused)
}

pub(crate) fn reused() -> Refusal {
    Refusal::new(ErrorCode::Conflict, "this operation id was used for something else")
}

/// An operation id that may be used.
///
/// # Errors
/// Usage, where there is none.
pub(crate) fn usable(id: Option<OpId>) -> Result<OpId, Refusal> {
    let usage = |message: &str| Err(Refusal::new(ErrorCode::Usage, message));
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
    protocol::frame::decode_record::<Reply>(reply).unwrap_or_else(|e| {
        Err(Refusal::new(ErrorCode::Storage, format!("the stored answer is unreadable: {e}")))
    })
}

/// Operations whose time of being remembered is over, or that are too many: so many at a time, oldest first. What is under
/// way stays.
pub(crate) fn outdated(pool: &pool::Pool, now: Timestamp) -> Vec<Event> {
    let old = |op: &OpId, at: Timestamp| {
        pool.age(now, at) > if matches!(op, OpId::Random(_)) { KEEP_RANDOM } else { KEEP_NAMED }
    };
    let over = pool.operations().filter(|(op, known)| old(op, known.at));
    let mut over: Vec<&OpId> = over.map(|(op, _)| op).take(AT_ONCE).collect();
    if over.is_empty() {
        over = surplus(pool, now, (ANSWERS_MAX, ANSWERS_BYTES));
    }
    over.into_iter().map(|op| Event::OperationForgotten { op: op.clone() }).collect()
}

/// The oldest answers beyond so many, or so many bytes.
fn surplus(pool: &pool::Pool, now: Timestamp, (most, most_bytes): (usize, usize)) -> Vec<&OpId> {
    let size = |state: &OperationState| match state {
        OperationState::Done(reply) => Some(reply.len()),
        OperationState::Begun(_) => None,
    };
    let answers = || pool.operations().filter_map(|(op, known)| Some((known.at, op, size(&known.state)?)));
    let (mut count, mut bytes) =
        answers().fold((0, 0), |(count, bytes), (_, _, size)| (count + 1, bytes + size));
    if count <= most && bytes <= most_bytes {
        return Vec::new();
    }
    let mut oldest: Vec<_> = answers().collect();
    oldest.sort_unstable_by_key(|(at, op, _)| (Reverse(pool.age(now, *at)), *op));
    let is_over = |(_, _, size): &(Timestamp, &OpId, usize)| {
        let over = count > most || bytes > most_bytes;
        (count, bytes) = (count - 1, bytes - size);
        over
    };
    oldest.into_iter().take(AT_ONCE).take_while(is_over).map(|(_, op, _)| op).collect()
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
        assert!(surplus(&pool, Timestamp(2000), (10, 1000)).is_empty());
        assert_eq!(names(surplus(&pool, Timestamp(2000), (8, 1000))), [r#"Named("op9")"#, r#"Named("op8")"#]);
        assert_eq!(surplus(&pool, Timestamp(2000), (10, 799)).len(), 3);
    }

    #[test]
    fn what_is_old_goes_so_many_at_a_time() {
        let later = Timestamp(1001).after(KEEP_NAMED);
        assert_eq!(outdated(&with(600, 1), later).len(), AT_ONCE);
        assert_eq!(outdated(&with(600, 1), Timestamp(1000)).len(), 0);
    }
}

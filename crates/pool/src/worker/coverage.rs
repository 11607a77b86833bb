//! The messages that a worker works: which sessions it covers, and which worker of the pool a message goes to.

use protocol::worker::{ClaimScope, Selection, WorkerQueue, WorkerSpec};
use protocol::{Lifecycle, PROMPT, Reason, Refusal, Session, SessionId, SessionRef};

use crate::pool::Pool;
use crate::session::resolve::resolve;
use crate::worker::state::Workers;

impl Pool {
    /// The sessions of the pool's workers, with their workers.
    pub fn workers(&self) -> impl Iterator<Item = (&Session, &WorkerSpec)> {
        let sessions = self.workers.iter().filter_map(|id| self.sessions.get(id));
        sessions.filter_map(|session| Some((session, session.worker.as_deref()?)))
    }

    pub fn worker(&self, name: &str) -> Option<&Session> {
        self.workers().find(|(_, worker)| worker.name == name).map(|(session, _)| session)
    }

    pub fn user_sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions().filter(|session| session.worker.is_none())
    }
}

/// True if messages of this kind are among `kinds`; all except prompts if there are none.
pub fn takes_kind(kinds: &[String], kind: &str) -> bool {
    if kinds.is_empty() { kind != PROMPT } else { kinds.iter().any(|taken| taken == kind) }
}

/// The existing sessions that are named.
pub(crate) fn named<'a>(
    pool: &'a Pool,
    sessions: &'a [SessionRef],
) -> impl Iterator<Item = &'a Session> + use<'a> {
    sessions.iter().filter_map(|session| resolve(pool, session).ok())
}

pub(crate) fn is_selected(pool: &Pool, selection: &Selection, session: &Session) -> bool {
    match selection {
        Selection::Named(sessions) => named(pool, sessions).any(|named| named.id == session.id),
        Selection::Matching { agent, labels } => {
            session.worker.is_none()
                && agent.as_ref().is_none_or(|agent| session.spec.agent == *agent)
                && labels.iter().all(|(key, value)| session.labels.get(key) == Some(value))
        }
    }
}

/// Checks that a worker has something to work. A selection by properties may match later sessions.
///
/// # Errors
/// Not found: none of the named sessions exists. Conflict: the host is over.
pub fn check_scope(pool: &Pool, scope: &ClaimScope) -> Result<(), Refusal> {
    match scope {
        ClaimScope::Sessions(Selection::Named(sessions)) => match sessions.first() {
            Some(first) if named(pool, sessions).next().is_none() => resolve(pool, first).map(drop),
            Some(_) => Ok(()),
            None => Err(Refusal::usage("no session is named")),
        },
        ClaimScope::Sessions(Selection::Matching { .. }) => Ok(()),
        ClaimScope::Host(tag) => {
            let worker = pool.tagged(*tag).and_then(|session| session.worker.as_deref());
            let why = match worker {
                Some(worker) if worker.removed => format!("worker {} was removed", worker.name),
                Some(_) => return Ok(()),
                None => "this is not the present host of a worker: `poolctl worker` starts them".to_owned(),
            };
            Err(Refusal::conflict(why))
        }
    }
}

/// The session that a worker is listed under: the only one that it works, or that of its host.
pub fn listed_under(pool: &Pool, scope: &ClaimScope) -> Option<SessionId> {
    match scope {
        ClaimScope::Sessions(Selection::Named(sessions)) if sessions.len() == 1 => {
            named(pool, sessions).map(|session| session.id).next()
        }
        ClaimScope::Sessions(_) => None,
        ClaimScope::Host(tag) => pool.tagged(*tag).map(|session| session.id),
    }
}

/// The sessions that a worker works, as text.
pub fn scope_text(pool: &Pool, scope: &ClaimScope) -> String {
    match scope {
        ClaimScope::Sessions(selection) => selection.to_string(),
        ClaimScope::Host(tag) => {
            let worker = pool.tagged(*tag).and_then(|session| session.worker.as_deref());
            worker.map(|worker| worker.sessions.to_string()).unwrap_or_default()
        }
    }
}

/// True if a worker works messages of this kind and session, as long as it does not fail.
pub(crate) fn covers(
    pool: &Pool,
    (host, worker): (&Session, &WorkerSpec),
    session: &Session,
    kind: &str,
) -> bool {
    let of_session = || match &worker.sessions {
        WorkerQueue::Own => session.id == host.id,
        WorkerQueue::Sessions(selection) => is_selected(pool, selection, session),
    };
    !worker.removed && takes_kind(&worker.kinds, kind) && of_session()
}

/// The step of a message along a worker and its fallbacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Assignment<'a> {
    /// The session of the worker that gets it.
    pub(crate) host: &'a Session,
    /// True if this is a fallback's first attempt: other workers caused the failures before it.
    pub(crate) is_first_of_fallback: bool,
}

/// Returns the worker that gets a message of the worker `host` after this many attempts: `host` itself, then its
/// fallbacks in turn. A worker that cannot work is skipped, in favour of a later one or else an earlier one. But if a
/// user has stopped the first worker, a message without attempts waits for it.
pub(crate) fn assigned<'a>(
    pool: &'a Pool,
    (host, worker): (&'a Session, &'a WorkerSpec),
    attempts: u32,
) -> Assignment<'a> {
    let chain: Vec<&Session> = [host].into_iter().chain(fallbacks(pool, worker)).collect();
    let after = worker.fallback_after.max(1);
    let wanted = usize::try_from(attempts / after).unwrap_or(usize::MAX);
    let step = wanted.min(chain.len() - 1);
    let mut order = (step..chain.len()).chain((0..step).rev());
    let waits = step == 0 && is_off(host);
    let at = order.find(|at| waits || is_able(chain[*at])).unwrap_or(step);
    Assignment {
        host: chain[at],
        is_first_of_fallback: at >= step && step > 0 && step == wanted && attempts.is_multiple_of(after),
    }
}

/// The fallbacks of a worker that exist, in turn.
fn fallbacks<'a>(pool: &'a Pool, worker: &'a WorkerSpec) -> impl Iterator<Item = &'a Session> {
    let is_there = |other: &&Session| other.worker.as_ref().is_some_and(|other| !other.removed);
    worker.fallback.iter().filter_map(|name| pool.worker(name)).filter(is_there)
}

/// True if a worker is started for a message: it has not failed too often, and no user stopped it.
fn is_able(host: &Session) -> bool {
    !host.budget.exhausted && !is_off(host)
}

/// True if a worker exists for messages of this kind and session: registered, or one of the pool that can be
/// started.
pub fn is_worked(pool: &Pool, workers: &Workers, session: SessionId, kind: &str) -> bool {
    let Some(session) = pool.session(session) else { return false };
    let registered = workers.iter().filter_map(|(_, worker)| worker.registration());
    let takes = |scope: &ClaimScope| match scope {
        ClaimScope::Sessions(selection) => is_selected(pool, selection, session),
        ClaimScope::Host(_) => false,
    };
    let by_hand =
        registered.filter(|worker| takes_kind(&worker.kinds, kind)).any(|worker| takes(&worker.scope));
    let is_started =
        |of: (&Session, &WorkerSpec)| covers(pool, of, session, kind) && is_able(assigned(pool, of, 0).host);
    by_hand || pool.workers().any(is_started)
}

/// Returns the first worker of the pool for these messages. Called if [`is_worked`] is false: that worker was stopped,
/// or failed too often.
pub fn worker_off<'a>(pool: &'a Pool, session: SessionId, kind: &str) -> Option<&'a str> {
    let session = pool.session(session)?;
    let mut covering = pool.workers().filter(|of| covers(pool, *of, session, kind));
    covering.next().map(|(_, worker)| worker.name.as_str())
}

/// Returns the number of messages that wait for a worker, including those that go to one of its fallbacks; for a worker
/// that was taken out of the configuration, those left in its own queue.
pub fn waiting(pool: &Pool, host: &Session) -> u64 {
    let Some(worker) = host.worker.as_deref() else { return 0 };
    if worker.removed {
        return pool.waiting_kinds(host.id).map(|(_, waiting, _)| waiting).sum();
    }
    let of_session = |session: &Session| -> u64 {
        let kinds = pool.waiting_kinds(session.id);
        kinds
            .filter(|(kind, ..)| covers(pool, (host, worker), session, kind))
            .map(|(_, waiting, _)| waiting)
            .sum()
    };
    pool.sessions().map(of_session).sum()
}

/// True if a user stopped a worker.
pub(crate) fn is_off(host: &Session) -> bool {
    host.lifecycle == Lifecycle::Stopped && host.reason == Some(Reason::Killed)
}

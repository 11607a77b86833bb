//! The next messages for a worker of several sessions: sessions take turns, and within one the priority
//! decides.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use protocol::request::Claim;
use protocol::worker::{ClaimScope, Selection, WorkerSpec};
use protocol::{Lifecycle, MessageId, PROMPT, Session, SessionId, Tag, Timestamp};

use crate::pool::Pool;
use crate::queue::claim::{ClaimQuery, claimable, head_if};
use crate::queue::pending::PendingMessage;
use crate::settings::Settings;
use crate::turn::Turn;
use crate::worker::coverage::{Assignment, assigned, covers, is_selected, named};
use crate::worker::state::Worker;

/// The messages that a worker asks for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The sessions, or the worker of the pool.
    pub scope: &'a ClaimScope,
    /// The kinds; empty for all except prompts. A worker of the pool has its own.
    pub kinds: &'a [String],
    /// Most messages to claim.
    pub max: usize,
    /// The session that was served last: the others come before it.
    pub after: SessionId,
    /// The hosts that ask for messages now; this host may be among them. They share the pool's free handlers, and the
    /// messages that have waited longest come first.
    pub asking: &'a [Tag],
}

/// Maximum size of the bodies in one answer, in bytes. The first body is sent whatever its size.
const BYTES_MAX: usize = 512 * 1024;

/// Returns the messages that the worker at a connection claims now, as [`next_messages`] chooses them. The session
/// that is served last comes last the next time.
pub fn serve(
    turn: &mut Turn<'_>,
    settings: &Settings,
    connection: u64,
    claim: &Claim,
) -> Vec<(SessionId, MessageId)> {
    let workers = &turn.volatile.workers;
    let (after, asking) =
        (workers.get(connection).map_or(SessionId(0), Worker::served), workers.asking_hosts());
    let Claim { scope, kinds, max, .. } = claim;
    let asked = Asked { scope, kinds, max: *max as usize, after, asking: &asking };
    let mut bytes = 0;
    let open = next_messages(turn.pool(), settings, &asked, turn.now());
    let mut fits = |size: u32| {
        let first = bytes == 0;
        bytes += size as usize;
        first || bytes <= BYTES_MAX
    };
    let ids: Vec<_> =
        open.iter().take_while(|open| fits(open.size)).map(|open| (open.session, open.id)).collect();
    if let Some((session, _)) = ids.last() {
        turn.volatile.workers.note_served(connection, *session);
    }
    ids
}

/// The messages that a worker can claim now, of several sessions in turn.
pub fn next_messages<'a>(
    pool: &'a Pool,
    settings: &Settings,
    asked: &Asked<'_>,
    now: Timestamp,
) -> Vec<PendingMessage<'a>> {
    let Asked { scope, kinds, max, after, asking } = *asked;
    let (max, lanes) = match scope {
        ClaimScope::Sessions(selection) => {
            let of = |id: SessionId| claimable(pool, ClaimQuery { session: id, kinds, max }, now);
            (max, selected_with_messages(pool, selection).into_iter().map(|id| (id, of(id))).collect())
        }
        ClaimScope::Host(tag) => {
            let host = pool.tagged(*tag).filter(|host| is_working(host));
            let Some((host, worker)) = host.and_then(|host| Some((host, host.worker.as_deref()?))) else {
                return Vec::new();
            };
            let free = Held::for_host(pool, host.id).free_handlers(settings.max_processes);
            if free == 0 {
                return Vec::new();
            }
            let lanes = host_lanes(pool, (host, worker), now);
            let rivals = asking.iter().filter(|other| *other != tag).filter_map(|other| pool.tagged(*other));
            let share = fair_share((pool, free), (host, &lanes), rivals, now);
            (max.min(share), lanes)
        }
    };
    in_turn(lanes, after, max)
}

/// The next messages of each session that go to this host, within its limit for one session.
fn host_lanes<'a>(
    pool: &'a Pool,
    (host, worker): (&Session, &WorkerSpec),
    now: Timestamp,
) -> Vec<(SessionId, Vec<PendingMessage<'a>>)> {
    let held = Held::for_host(pool, host.id);
    let lanes = with_messages(pool).map(|session| {
        let left = worker.session_concurrency.saturating_sub(held.in_session(session.id));
        (session.id, assigned_heads(pool, host, session, left as usize, now))
    });
    lanes.collect()
}

/// Returns how many messages of a host get one of the pool's `free` handlers, if the messages of this host and its
/// rivals are served in the order of their waiting times.
fn fair_share<'a>(
    (pool, free): (&Pool, usize),
    (host, lanes): (&Session, &[(SessionId, Vec<PendingMessage<'_>>)]),
    rivals: impl Iterator<Item = &'a Session>,
    now: Timestamp,
) -> usize {
    let mine = waiting_times(pool, (host, lanes), now);
    if mine.is_empty() {
        return 0;
    }
    let others = rivals.filter(|rival| is_working(rival)).flat_map(|rival| {
        let lanes = rival.worker.as_deref().map(|worker| host_lanes(pool, (rival, worker), now));
        waiting_times(pool, (rival, &lanes.unwrap_or_default()), now)
    });
    let mut all: Vec<(bool, WaitingTime)> =
        mine.into_iter().map(|time| (true, time)).chain(others.map(|time| (false, time))).collect();
    all.sort_unstable_by_key(|(_, time)| *time);
    all.into_iter().take(free).filter(|(is_mine, _)| *is_mine).count()
}

/// Waiting time of a message, its begin, and the message; the longest time comes first.
type WaitingTime = (Reverse<Duration>, Timestamp, MessageId);

/// The times for which messages of a host wait for a handler, longest first, as many as its worker may start.
fn waiting_times(
    pool: &Pool,
    (host, lanes): (&Session, &[(SessionId, Vec<PendingMessage<'_>>)]),
    now: Timestamp,
) -> Vec<WaitingTime> {
    let since = |message: &PendingMessage<'_>| {
        let since = pool.latest(now, [message.since].into_iter().chain(message.not_before));
        (Reverse(pool.age(now, since)), since, message.id)
    };
    let concurrency = host.worker.as_ref().map_or(0, |worker| worker.concurrency as usize);
    let left = concurrency.saturating_sub(Held::for_host(pool, host.id).of_worker);
    // Only messages that the host would get now count, not older ones that wait behind others of their lane.
    let mut times: Vec<_> = in_turn(lanes.to_vec(), SessionId(0), left).iter().map(since).collect();
    times.sort_unstable();
    times
}

/// True if a message waits that this host would get once a handler is free, so that the host stays for it.
pub fn waits_for_host(pool: &Pool, scope: &ClaimScope, now: Timestamp) -> bool {
    let ClaimScope::Host(tag) = scope else { return false };
    pool.tagged(*tag).is_some_and(|host| is_working(host) && has_message(pool, host, now))
}

/// True if the host of a worker may claim messages.
fn is_working(host: &Session) -> bool {
    matches!(host.lifecycle, Lifecycle::Starting | Lifecycle::Live)
}

/// True if a message waits that would go to this worker now, whatever the number of running handlers.
pub(crate) fn has_message(pool: &Pool, host: &Session, now: Timestamp) -> bool {
    with_messages(pool).any(|session| !assigned_heads(pool, host, session, 1, now).is_empty())
}

/// The sessions with queued messages.
fn with_messages(pool: &Pool) -> impl Iterator<Item = &Session> {
    let waiting = pool.queues.queues().filter(|(_, queue)| queue.waiting() > 0);
    waiting.filter_map(|(session, _)| pool.session(session))
}

fn selected_with_messages(pool: &Pool, selection: &Selection) -> Vec<SessionId> {
    match selection {
        Selection::Named(sessions) => {
            let mut ids: Vec<SessionId> = named(pool, sessions).map(|session| session.id).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        }
        Selection::Matching { .. } => {
            let selected = with_messages(pool).filter(|session| is_selected(pool, selection, session));
            selected.map(|session| session.id).collect()
        }
    }
}

/// The next messages of a session that go to this worker, by priority, then by age.
fn assigned_heads<'a>(
    pool: &'a Pool,
    host: &Session,
    session: &Session,
    max: usize,
    now: Timestamp,
) -> Vec<PendingMessage<'a>> {
    let Some(queue) = pool.queues.queue(session.id).filter(|_| max > 0) else { return Vec::new() };
    let assignment = |message: &PendingMessage<'_>| -> Option<Assignment<'a>> {
        let covering = pool.workers().filter(|of| covers(pool, *of, session, message.kind));
        let mut all = covering.map(|of| assigned(pool, of, message.attempts));
        all.find(|assignment| assignment.host.id == host.id)
    };
    let kinds = queue.kinds().map(|(kind, _)| kind).filter(|kind| *kind != PROMPT);
    let mut heads: Vec<PendingMessage<'a>> = kinds
        .filter_map(|kind| {
            let passes = |message: &PendingMessage<'_>| {
                assignment(message).is_some_and(|assignment| assignment.is_first_of_fallback)
            };
            head_if(pool, session.id, kind, now, passes)
        })
        .filter(|message| assignment(message).is_some())
        .collect();
    heads.sort_by_key(|message| (Reverse(message.priority), message.id));
    heads.truncate(max);
    heads
}

/// Takes one message of each session after the other, beginning behind `after`, until there are `max`.
fn in_turn<'a>(
    mut lanes: Vec<(SessionId, Vec<PendingMessage<'a>>)>,
    after: SessionId,
    max: usize,
) -> Vec<PendingMessage<'a>> {
    lanes.sort_by_key(|(session, _)| (*session <= after, *session));
    let longest = lanes.iter().map(|(_, lane)| lane.len()).max().unwrap_or(0);
    let rounds = (0..longest).flat_map(|round| lanes.iter().filter_map(move |(_, lane)| lane.get(round)));
    rounds.take(max).cloned().collect()
}

/// The claims that workers of the pool hold: each may have a running handler, until the end of its host is
/// proved.
struct Held {
    in_all: usize,
    of_worker: usize,
    of_session: BTreeMap<SessionId, u32>,
}

impl Held {
    fn for_host(pool: &Pool, host: SessionId) -> Self {
        let mut held = Self { in_all: 0, of_worker: 0, of_session: BTreeMap::new() };
        for message in pool.held_messages() {
            let Some(tag) = message.holder.and_then(|holder| holder.host) else { continue };
            held.in_all += 1;
            if pool.tagged(tag).is_some_and(|session| session.id == host) {
                held.of_worker += 1;
                *held.of_session.entry(message.session).or_default() += 1;
            }
        }
        held
    }

    fn in_session(&self, session: SessionId) -> u32 {
        self.of_session.get(&session).copied().unwrap_or(0)
    }

    /// Number of handlers that may be started beside those of all claims.
    fn free_handlers(&self, max_processes: usize) -> usize {
        max_processes.saturating_sub(self.in_all)
    }
}

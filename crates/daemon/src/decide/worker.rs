//! Claims on messages over time: leases that pass, messages that expire, pauses and probes that come, holders that die.

use std::collections::BTreeSet;
use std::time::Duration;

use pool::deadlines::Mono;
use pool::queue::{Gone, Open};
use pool::{Settings, queue};
use protocol::{MessageId, MessageState, ProcId, Tag, Token};

use crate::decide::lock;
use crate::engine::Turn;

/// Longest time between two ticks: wall-clock times are looked at again in case the clock was set.
pub(crate) const TICK_MAX: Duration = Duration::from_secs(30);

/// Shortest time between two ticks.
pub(crate) const TICK_MIN: Duration = Duration::from_millis(10);

/// Delay of a tick that means that the whole daemon stood still: nobody could be heard of meanwhile, and nothing that stood
/// still with it is judged.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// Processes that hold messages and whose end would change what becomes of these at the next tick: holders that the reaper
/// is to end, and those whose leases pass by `asked_at`.
pub(crate) fn suspects(turn: &Turn<'_>, asked_at: Mono) -> BTreeSet<ProcId> {
    let passes = turn.volatile.workers.first_deadline().is_some_and(|first| first <= asked_at);
    let open = |open: &Open<'_>| {
        open.state == MessageState::Revoking || passes && open.state == MessageState::Claimed
    };
    turn.pool().held_messages().filter(open).filter_map(|open| open.holder?.process).collect()
}

/// Does what is due. Returns the time until the next tick. `asked_at`: when it was asked for; what was said before that
/// moment has been heard.
pub(crate) fn tick(turn: &mut Turn<'_>, settings: &Settings, asked_at: Mono) -> Duration {
    let now = turn.now();
    let expired = queue::expired(turn.pool(), now);
    if !expired.is_empty() {
        turn.emit_all(expired);
        turn.wake();
    }
    let late = late(turn, asked_at);
    if late >= STOOD_STILL {
        tracing::warn!(?late, "the daemon stood still; all leases begin again");
        restart_leases(turn);
    }
    for id in turn.volatile.workers.take_lapsed(asked_at) {
        let connected = turn.volatile.workers.is_holder_connected(id);
        let silent = "its worker was silent for longer than the lease";
        lapse(turn, settings, id, if connected { silent } else { "its worker was not heard of any more" });
    }
    // A reaper that left before its verdict gave none.
    let dead = |holder: &ProcId| turn.volatile.reaping.exited().contains(holder);
    let ended: BTreeSet<ProcId> = revoked(turn).map(|(holder, _)| holder).filter(dead).collect();
    ended.into_iter().for_each(|process| died(turn, settings, process));
    let before = turn.volatile.workers.tick(now);
    if queue::came_due(turn.pool(), before, now) {
        // What was to wait may be given out now.
        turn.wake();
    }
    let next = next_tick(turn, asked_at);
    let at = turn.mono().after(next);
    turn.volatile.workers.arm(at);
    next
}

/// Ends the locks that lapsed, and finds the time until the next tick.
fn next_tick(turn: &mut Turn<'_>, asked_at: Mono) -> Duration {
    let lock = lock::lapse(turn, asked_at);
    let (now, mono) = (turn.now(), turn.mono());
    let lease = turn.volatile.workers.first_deadline().map(|at| mono.until(at));
    // A standstill is seen by the tick that it delays.
    let often = lease.or(lock).map(|_| STOOD_STILL);
    let pause = queue::next_due(turn.pool(), now).map(|at| at.since(now));
    let next = lease.into_iter().chain(pause).chain(lock).chain(often).min();
    next.unwrap_or(TICK_MAX).clamp(TICK_MIN, TICK_MAX)
}

/// The delay of a tick behind the first thing that it was to come for.
fn late(turn: &Turn<'_>, asked_at: Mono) -> Duration {
    let workers = &turn.volatile.workers;
    let locks = turn.volatile.user_locks.first_deadline();
    let due = workers.first_deadline().into_iter().chain(locks).chain(workers.armed()).min();
    due.map_or(Duration::ZERO, |due| due.until(asked_at))
}

fn restart_leases(turn: &mut Turn<'_>) {
    let mono = turn.mono();
    let (pool, volatile) = turn.state();
    volatile.workers.restart_leases(pool, mono);
    volatile.user_locks.restart_leases(pool, mono);
}

/// Ends the claim on a message.
fn lapse(turn: &mut Turn<'_>, settings: &Settings, id: MessageId, reason: &str) {
    let now = turn.now();
    let Some(open) = turn.pool().find_open(id).filter(|open| open.state == MessageState::Claimed) else {
        return;
    };
    let process = open.holder.and_then(|holder| holder.process);
    let is_registered = open.holder.is_some_and(|holder| holder.generator.is_some());
    let gone = match process.filter(|_| is_registered) {
        // It keeps its token, by which the reaper finds what it started; that is fenced off by its state.
        Some(process) if !turn.volatile.reaping.exited().contains(&process) => {
            open.token.map_or(Gone::YesOrFenced, Gone::No)
        }
        _ => Gone::YesOrFenced,
    };
    let events = queue::lapsed(turn.pool(), &settings.queue, &open, (gone, reason), now);
    tracing::info!(id = id.0, ?gone, reason, "a claim is over");
    turn.emit_all(events);
    crate::crash::point(match gone {
        Gone::No(_) => "claim-revoked",
        Gone::YesOrFenced => "claim-lapsed",
    });
    // A holder that has to be ended first is a candidate now.
    turn.wake();
}

/// A process is proved dead. What it held is free at once, except where the reaper has to prove its whole tree gone: what it
/// started may live on, and then the verdict frees it.
pub(crate) fn died(turn: &mut Turn<'_>, settings: &Settings, process: ProcId) {
    lock::died(turn, process);
    let reaping = &turn.volatile.reaping;
    let is_withheld = |token: &Token| {
        let tag = Tag::for_claim(*token);
        reaping.is_leased(tag) || reaping.has_survivors(tag)
    };
    let withheld: BTreeSet<Token> = revoked(turn).map(|(_, token)| token).filter(is_withheld).collect();
    free(turn, settings, process, &withheld);
}

/// A process and all that it started is proved gone.
pub(crate) fn ended(turn: &mut Turn<'_>, settings: &Settings, process: ProcId) {
    free(turn, settings, process, &BTreeSet::new());
}

fn free(turn: &mut Turn<'_>, settings: &Settings, process: ProcId, withheld: &BTreeSet<Token>) {
    let waits = |open: &Open<'_>| {
        open.state == MessageState::Revoking && open.token.is_some_and(|token| withheld.contains(&token))
    };
    let events = queue::dead_worker(turn.pool(), &settings.queue, process, waits, turn.now());
    if !events.is_empty() {
        tracing::info!(%process, "a worker died");
        turn.emit_all(events);
        crate::crash::point("worker-died");
        turn.wake();
    }
}

/// Holders that have to be ended before their messages go to others, each with its token.
fn revoked(turn: &Turn<'_>) -> impl Iterator<Item = (ProcId, Token)> {
    let revoking = turn.pool().held_messages().filter(|open| open.state == MessageState::Revoking);
    revoking.filter_map(|open| Some((open.holder?.process?, open.token?)))
}

/// After a start of the daemon: claims keep their tokens and holders, and have their whole lease again. `dead`: holders that
/// are proved to have ended. Returns all holders.
pub(crate) fn recover(turn: &mut Turn<'_>, settings: &Settings, dead: &BTreeSet<ProcId>) -> Vec<ProcId> {
    let mono = turn.mono();
    let (pool, volatile) = turn.state();
    volatile.workers.restart_leases(pool, mono);
    let is_claimed = |open: &Open<'_>| matches!(open.state, MessageState::Claimed | MessageState::Revoking);
    let held = pool.held_messages().filter(is_claimed);
    let holders: Vec<ProcId> = held.filter_map(|open| open.holder?.process).collect();
    holders.iter().filter(|holder| dead.contains(holder)).for_each(|holder| died(turn, settings, *holder));
    holders
}

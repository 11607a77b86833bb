//! Claims and messages over time: leases end, messages expire, pauses end, breakers are probed, holders die.

use std::collections::BTreeSet;
use std::time::Duration;

use pool::deadlines::Mono;
use pool::queue::{LeaseEnd, PendingMessage};
use pool::worker::{SUSPENDED, awaits_proof, lease_end, note_suspension};
use pool::{Settings, queue};
use protocol::{MessageId, MessageState, ProcId, Tag};

use crate::decide::lock;
use crate::engine::Turn;

/// Maximum time between two ticks: wall-clock times are checked again in case the clock was set.
pub(crate) const TICK_MAX: Duration = Duration::from_secs(30);

/// Minimum time between two ticks.
pub(crate) const TICK_MIN: Duration = Duration::from_millis(10);

/// Returns the processes whose end would change the fate of the messages they hold at the next tick: holders
/// that the reaper is to end, and those whose leases end by `asked_at`.
pub(crate) fn suspects(turn: &Turn<'_>, asked_at: Mono) -> BTreeSet<ProcId> {
    let lease_ends = turn.volatile.workers.first_deadline().is_some_and(|first| first <= asked_at);
    let open = |open: &PendingMessage<'_>| {
        open.state == MessageState::Revoking || lease_ends && open.state == MessageState::Claimed
    };
    turn.pool().held_messages().filter(open).filter_map(|open| open.holder?.process).collect()
}

/// Does everything that is due. Returns the time until the next tick. `asked_at` is when the tick was requested:
/// everything that was sent before it has been received.
pub(crate) fn tick(turn: &mut Turn<'_>, settings: &Settings, asked_at: Mono) -> Duration {
    let now = turn.now();
    expire(turn);
    if let Some(late) = note_suspension(turn, asked_at) {
        tracing::warn!(?late, "the daemon was suspended; all leases begin again");
    }
    for id in turn.volatile.workers.take_lapsed(asked_at) {
        let connected = turn.volatile.workers.is_holder_connected(id);
        let silent = "its worker was silent for longer than the lease";
        lapse(turn, settings, id, if connected { silent } else { "its worker disappeared" });
    }
    // A reaper that disconnected before its verdict gave none.
    let dead = |holder: &ProcId| turn.volatile.reaping.exited().contains(holder);
    let ended: BTreeSet<ProcId> = revoked(turn).filter(dead).collect();
    ended.into_iter().for_each(|process| holder_died(turn, settings, process));
    let before = turn.volatile.workers.tick(now);
    if queue::came_due(turn.pool(), before, now) {
        // Messages whose pause is over may be claimed now.
        turn.wake();
    }
    let lock = lock::expire(turn, asked_at);
    let next = next_tick(turn, lock);
    let at = turn.mono().after(next);
    turn.volatile.workers.arm(at);
    next
}

/// Ends messages whose time to live is over, one batch in each turn, before others are given out. Returns true if there
/// are more: the tick continues with these.
pub(crate) fn expire(turn: &mut Turn<'_>) -> bool {
    if turn.begin_expiry() {
        let expired = queue::expired(turn.pool(), turn.now());
        if !expired.is_empty() {
            turn.emit_all(expired);
            turn.wake();
        }
    }
    queue::is_overdue(turn.pool(), turn.now())
}

/// Returns the time until the next tick. `lock` is the time until the first lease of a user's lock ends.
fn next_tick(turn: &Turn<'_>, lock: Option<Duration>) -> Duration {
    let (now, mono) = (turn.now(), turn.mono());
    let lease = turn.volatile.workers.first_deadline().map(|at| mono.until(at));
    // A suspension is detected by a late tick, so ticks are frequent while there are leases.
    let often = lease.or(lock).map(|_| SUSPENDED);
    let pause = queue::next_due(turn.pool(), now).map(|at| at.since(now));
    let next = lease.into_iter().chain(pause).chain(lock).chain(often).min();
    next.unwrap_or(TICK_MAX).clamp(TICK_MIN, TICK_MAX)
}

/// Ends the claim on a message whose lease is over.
fn lapse(turn: &mut Turn<'_>, settings: &Settings, id: MessageId, reason: &str) {
    let now = turn.now();
    let Some(open) = turn.pool().find_held(id).filter(|open| open.state == MessageState::Claimed) else {
        return;
    };
    let Some(end) = lease_end(turn.pool(), &turn.volatile.reaping, &open) else { return };
    let events = queue::lease_ended(turn.pool(), &settings.queue, &open, (end, reason), now);
    tracing::info!(id = id.0, ?end, reason, "a claim is over");
    turn.emit_all(events);
    crate::crash::point(match end {
        LeaseEnd::Revoke(_) => "claim-revoked",
        LeaseEnd::Release => "claim-lapsed",
    });
    // A holder that has to be killed first is a candidate of the reaper now.
    turn.wake();
}

/// Frees what a dead process held.
pub(crate) fn holder_died(turn: &mut Turn<'_>, settings: &Settings, process: ProcId) {
    lock::release_of_dead(turn, process);
    turn.volatile.workers.holder_ended(process);
    free(turn, settings, (process, None));
}

/// Frees what a process held, except messages for which the reaper still has to prove the process tree gone:
/// descendants may live on. The verdict on the claim, `proved`, frees those.
pub(crate) fn free(turn: &mut Turn<'_>, settings: &Settings, (process, proved): (ProcId, Option<Tag>)) {
    let waits = |open: &PendingMessage<'_>| awaits_proof((turn.pool(), settings), open, proved);
    let events = queue::release_dead_worker(turn.pool(), &settings.queue, process, waits, turn.now());
    if !events.is_empty() {
        tracing::info!(%process, "a worker died");
        turn.emit_all(events);
        crate::crash::point("worker-died");
        turn.wake();
    }
}

/// Returns the holders that have to be killed before their messages go to others.
fn revoked(turn: &Turn<'_>) -> impl Iterator<Item = ProcId> {
    let revoking = turn.pool().held_messages().filter(|open| open.state == MessageState::Revoking);
    revoking.filter_map(|open| open.holder?.process)
}

/// Restores the claims after a start of the daemon: they keep their tokens and holders, and get their whole
/// lease again. `dead` are the holders proved to have ended. Returns all holders.
pub(crate) fn recover(turn: &mut Turn<'_>, settings: &Settings, dead: &BTreeSet<ProcId>) -> Vec<ProcId> {
    let mono = turn.mono();
    let (pool, volatile) = turn.state();
    volatile.workers.restart_leases(pool, mono);
    let is_claimed =
        |open: &PendingMessage<'_>| matches!(open.state, MessageState::Claimed | MessageState::Revoking);
    let held = pool.held_messages().filter(is_claimed);
    let holders: Vec<ProcId> = held.filter_map(|open| open.holder?.process).collect();
    holders
        .iter()
        .filter(|holder| dead.contains(holder))
        .for_each(|holder| holder_died(turn, settings, *holder));
    holders
}

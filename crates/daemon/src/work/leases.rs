//! What the passing of time does to queues: leases that are over, messages that expire, pauses and
//! probes that have come. One task, which sleeps until the next of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pool::deadlines::Mono;
use pool::queue::{self, Gone, Open};
use protocol::reap::Outcome;
use protocol::{MessageId, MessageState, ProcId, Tag, Token};
use tokio::time::sleep;

use crate::clock;
use crate::context::Daemon;
use crate::engine::Turn;
use crate::locking;

/// The longest sleep: wall-clock times are looked at again, lest the clock was set.
const SLEEP_MAX: Duration = Duration::from_secs(30);
/// The shortest.
const SLEEP_MIN: Duration = Duration::from_millis(10);

/// A look that comes so much later than it was to come means that the whole daemon stood still: then
/// nobody could be heard of meanwhile, and nothing that stood still with it is judged.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// Keeps time for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let sooner = daemon.engine.sooner();
    loop {
        // What was said before this moment is heard before it is judged by it.
        let (context, asked_at) = (Arc::clone(&daemon), clock::mono(daemon.started));
        let Ok(next) = daemon.engine.turn(move |turn| tick(turn, &context, asked_at)).await else { return };
        tokio::select! {
            () = sleep(next.clamp(SLEEP_MIN, SLEEP_MAX)) => {}
            () = sooner.notified() => {}
        }
    }
}

/// Does what is due. Answers how long until the next.
fn tick(turn: &mut Turn<'_>, daemon: &Daemon, asked_at: Mono) -> Duration {
    let now = turn.now();
    let expired = queue::expired(turn.pool(), now);
    if !expired.is_empty() {
        turn.emit_all(expired);
        turn.stir();
    }
    let late = late(turn, asked_at);
    if late >= STOOD_STILL {
        tracing::warn!(?late, "the daemon stood still; leases begin anew");
        begin_anew(turn);
        locking::begin_anew(turn);
    }
    for id in turn.rest.work.leases.take_passed(asked_at) {
        let connected = turn.rest.work.connection_of(id).is_some();
        let silent = "its worker was silent for longer than the lease";
        lapse(turn, daemon, id, if connected { silent } else { "its worker was not heard of any more" });
    }
    // A reaper that left in the middle gave no verdict.
    let ended: BTreeSet<ProcId> =
        revoked(turn).map(|(holder, _)| holder).filter(|holder| is_dead(*holder)).collect();
    ended.into_iter().for_each(|process| died(turn, daemon, process));
    let before = std::mem::replace(&mut turn.rest.work.ticked_at, now);
    if queue::came_due(turn.pool(), before, now) {
        // What was to wait may be given out now.
        turn.stir();
    }
    let lock = locking::lapse(turn, asked_at);
    let mono = turn.mono();
    let lease = turn.rest.work.leases.first().map(|at| mono.until(at));
    // A standstill is seen by the look that it delays.
    let often = lease.or(lock).map(|_| STOOD_STILL);
    let pause = queue::next_due(turn.pool(), now).map(|at| at.since(now));
    let next = lease
        .into_iter()
        .chain(pause)
        .chain(lock)
        .chain(often)
        .min()
        .unwrap_or(SLEEP_MAX)
        .clamp(SLEEP_MIN, SLEEP_MAX);
    turn.rest.work.armed = mono.after(next);
    next
}

/// How much later a look comes than the first that it was to come for.
fn late(turn: &Turn<'_>, asked_at: Mono) -> Duration {
    let work = &turn.rest.work;
    let armed = Some(work.armed).filter(|armed| *armed != Mono::default());
    let due = work.leases.first().into_iter().chain(locking::first(turn)).chain(armed).min();
    due.map_or(Duration::ZERO, |due| due.until(asked_at))
}

/// All claims have their whole lease before them.
fn begin_anew(turn: &mut Turn<'_>) {
    let mono = turn.mono();
    let claimed = turn.pool().held_messages().filter(|open| open.state == MessageState::Claimed);
    let leases: Vec<(MessageId, u64)> =
        claimed.filter_map(|open| Some((open.id, open.holder?.lease_ms))).collect();
    for (id, lease_ms) in leases {
        turn.rest.work.leases.set(id, mono.after(Duration::from_millis(lease_ms)));
    }
}

/// The claim on a message is over.
pub(crate) fn lapse(turn: &mut Turn<'_>, daemon: &Daemon, id: MessageId, reason: &str) {
    let now = turn.now();
    let Some(open) = turn.pool().find_open(id).filter(|open| open.state == MessageState::Claimed) else {
        return;
    };
    let process = open.holder.and_then(|holder| holder.process);
    let promised = open.holder.is_some_and(|holder| holder.generator.is_some());
    let gone = match process.filter(|_| promised) {
        // It keeps its token, by which the reaper finds what it started; that is fenced off by its state.
        Some(process) if !is_dead(process) => open.token.map_or(Gone::YesOrFenced, Gone::No),
        _ => Gone::YesOrFenced,
    };
    let rules = &daemon.loaded().settings.queue;
    let Some(open) = turn.pool().find_open(id) else { return };
    let events = queue::lapsed(turn.pool(), rules, &open, (gone, reason), now);
    tracing::info!(id = id.0, ?gone, reason, "a claim is over");
    turn.emit_all(events);
    crate::crash::point(match gone {
        Gone::No(_) => "claim-revoked",
        Gone::YesOrFenced => "claim-lapsed",
    });
    // Who has to be ended first is a candidate now.
    turn.stir();
}

/// A process is proved dead: what it held is free at once, but what the reaper is to prove it of: what it
/// started may live on, and then the verdict frees it.
pub(crate) fn died(turn: &mut Turn<'_>, daemon: &Daemon, process: ProcId) {
    locking::died(turn, process);
    let view = &turn.rest.view;
    let is_withheld = |token: Token| {
        let tag = Tag::of(token);
        let left = matches!(view.verdicts.get(&tag), Some(Outcome::Survivors { .. }));
        view.leased.contains_key(&tag) || left
    };
    let withheld: BTreeSet<Token> =
        revoked(turn).map(|(_, token)| token).filter(|t| is_withheld(*t)).collect();
    free(turn, daemon, process, &withheld);
}

/// A process and all that it started is proved gone.
pub(crate) fn ended(turn: &mut Turn<'_>, daemon: &Daemon, process: ProcId) {
    free(turn, daemon, process, &BTreeSet::new());
}

fn free(turn: &mut Turn<'_>, daemon: &Daemon, process: ProcId, withheld: &BTreeSet<Token>) {
    let rules = &daemon.loaded().settings.queue;
    let waits = |open: &Open<'_>| {
        open.state == MessageState::Revoking && open.token.is_some_and(|token| withheld.contains(&token))
    };
    let events = queue::dead_worker(turn.pool(), rules, process, waits, turn.now());
    if !events.is_empty() {
        tracing::info!(%process, "a worker died");
        turn.emit_all(events);
        crate::crash::point("worker-died");
        turn.stir();
    }
}

/// Those who have to be ended before what they hold goes on, each under its token.
fn revoked(turn: &Turn<'_>) -> impl Iterator<Item = (ProcId, Token)> {
    let revoking = turn.pool().held_messages().filter(|open| open.state == MessageState::Revoking);
    revoking.filter_map(|open| Some((open.holder?.process?, open.token?)))
}

/// Whether it is proved dead. What cannot be looked at is not.
pub(crate) fn is_dead(process: ProcId) -> bool {
    process::identity::exited(process).unwrap_or(false)
}

/// After a start: claims keep their token and their holder, and have their whole lease before them.
pub(crate) fn recover(turn: &mut Turn<'_>, daemon: &Daemon) -> Vec<ProcId> {
    begin_anew(turn);
    let held = turn
        .pool()
        .held_messages()
        .filter(|open| matches!(open.state, MessageState::Claimed | MessageState::Revoking));
    let processes: Vec<ProcId> = held.filter_map(|open| open.holder?.process).collect();
    for process in &processes {
        if is_dead(*process) {
            died(turn, daemon, *process);
        }
    }
    processes
}

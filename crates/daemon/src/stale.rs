//! What should be dead: the rules are asked at each interval, with what the processes of running sessions do, and
//! what they say is done, so many times a minute at most.

mod judge;
mod retired;
mod strays;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pool::Settings;
use pool::deadlines::Mono;
use pool::stale::Strays;
use pool::stale::act;
use pool::stale::rules::{self, Signs};
use process::tree::Table;
use protocol::message::PROMPT;
use protocol::reap::{Action, Candidate, CandidateKind, Outcome, Rule};
use protocol::{Event, Lifecycle, ProcId, Session, SessionId, Tag, Timestamp};
use tokio::time::sleep;

pub(crate) use judge::{judge, would_end};

use crate::context::Daemon;
use crate::engine::Turn;
use crate::slow::{self, Purpose};
use crate::{gauge, park, slots, view};

/// The time over which kills are counted.
const MINUTE: Duration = Duration::from_secs(60);
/// A session that used less than this share of one processor since the last look did nothing.
const CALM_PERCENT: u64 = 1;

/// What the daemon remembers of this from look to look.
#[derive(Debug, Default)]
pub(crate) struct Stale {
    /// What incarnations use of what is limited.
    pub(crate) used: BTreeMap<Tag, rules::Used>,
    /// For what incarnations are being ended by a rule.
    pub(crate) evidence: BTreeMap<Tag, String>,
    /// What the command before refused, and when.
    refused: BTreeMap<(Tag, Rule), Mono>,
    /// Marked processes that the reaper left.
    left: BTreeSet<(Tag, ProcId)>,
    /// The processor time of sessions that may hang, when that was read, and since when it has hardly grown.
    calm: BTreeMap<SessionId, (Tag, u64, Timestamp, Timestamp)>,
    unseen: retired::Unseen,
    /// Processes that nothing of the pool's runs any more.
    pub(crate) strays: Strays,
    /// What was told of running sessions, and is so still.
    told: BTreeSet<(Tag, Rule)>,
    /// What was told of what is over.
    reported: BTreeSet<(Tag, Rule)>,
    /// When something was last ended by a rule, within the last minute.
    kills: Vec<Mono>,
    /// How many running sessions would be ended, but for the limit.
    pub(crate) waiting: usize,
    /// What may be ended whatever the limit.
    forced: BTreeSet<Tag>,
}

/// Looks for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    tokio::join!(sessions(&daemon), strays::run(&daemon));
}

async fn sessions(daemon: &Arc<Daemon>) {
    loop {
        sleep(daemon.loaded().life.interval).await;
        if !look_around(daemon, false).await {
            return;
        }
    }
}

/// One look at what runs, and what the rules say is done. Whether the daemon goes on.
pub(crate) async fn look_around(daemon: &Arc<Daemon>, force: bool) -> bool {
    if !look(daemon).await {
        return false;
    }
    let context = Arc::clone(daemon);
    let decide = move |turn: &mut Turn<'_>| {
        let named = view::named(turn, &context);
        report(turn, &context, &named);
        // What became stale by the passing of time alone is told by no event.
        if named.iter().any(|candidate| candidate.kind == CandidateKind::StaleWorker) {
            turn.stir();
        }
        judge(turn, &context, force)
    };
    let Ok(parks) = daemon.engine.turn(decide).await else { return false };
    park_all(daemon, parks);
    true
}

/// One look at what runs, and nothing is done. Whether the daemon goes on.
pub(crate) async fn look(daemon: &Arc<Daemon>) -> bool {
    let suspects = daemon.engine.turn(suspects).await;
    let Ok(suspects) = suspects else { return false };
    let used = if suspects.is_empty() {
        Vec::new()
    } else {
        slow::limited(Purpose::Processes, move || cpu(&suspects)).await.unwrap_or_default()
    };
    let note = move |turn: &mut Turn<'_>| {
        note_cpu(turn, used);
        strays::note_workers(turn);
    };
    daemon.engine.turn(note).await.is_ok()
}

/// Sessions that have something to do: nothing is asked of the processes of any other.
fn suspects(turn: &mut Turn<'_>) -> Vec<Session> {
    let pool = turn.pool();
    let holds: BTreeSet<SessionId> =
        pool.held_messages().filter(|open| open.kind == PROMPT).map(|open| open.session).collect();
    let live = pool.sessions().filter(|s| s.lifecycle == Lifecycle::Live);
    live.filter(|s| holds.contains(&s.id) || pool.prompts(s.id).waiting > 0).cloned().collect()
}

fn cpu(suspects: &[Session]) -> Vec<(SessionId, Tag, u64)> {
    let Ok(table) = Table::look() else { return Vec::new() };
    let cpu = |s: &Session| {
        let tag = s.incarnation.as_ref()?.tag;
        Some((s.id, tag, gauge::usage_in(&table, s)?.cpu_us))
    };
    suspects.iter().filter_map(cpu).collect()
}

/// Since when the processor time of a session has hardly grown.
fn note_cpu(turn: &mut Turn<'_>, used: Vec<(SessionId, Tag, u64)>) {
    let now = turn.now();
    let known = std::mem::take(&mut turn.rest.stale.calm);
    let noted = used.into_iter().map(|(session, tag, cpu)| {
        let before = known.get(&session).filter(|(of, before, ..)| *of == tag && *before <= cpu);
        let calm = before.filter(|(_, before, at, _)| {
            let passed = u64::try_from(turn.age(*at).as_micros()).unwrap_or(u64::MAX);
            (cpu - before) * 100 <= passed * CALM_PERCENT
        });
        (session, (tag, cpu, now, calm.map_or(now, |(.., since)| *since)))
    });
    turn.rest.stale.calm = noted.collect();
}

pub(crate) fn park_all(daemon: &Arc<Daemon>, parks: Vec<(SessionId, Tag)>) {
    for (session, tag) in parks {
        let daemon = Arc::clone(daemon);
        tokio::spawn(async move { drop(park::end_unattended(&daemon, session, tag).await) });
    }
}

/// Does this with what is known of running sessions.
pub(crate) fn with_signs<R>(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    with: impl FnOnce(&Turn<'_>, &Signs<'_>) -> R,
) -> R {
    let stale = &turn.rest.stale;
    let calm_since = stale.calm.iter().map(|(id, (.., since))| (*id, *since)).collect();
    // What an earlier incarnation used is none of this one's.
    let used = turn.pool().sessions().filter_map(|s| {
        let used = stale.used.get(&s.incarnation.as_ref()?.tag)?;
        Some((s.id, *used))
    });
    let used = used.collect();
    slots::with_facts(turn, daemon, |turn, facts| {
        let asks = |s: &&Session| pool::activity::asks(&pool::activity::shown(turn.pool(), s));
        let ask: BTreeSet<SessionId> = turn.pool().sessions().filter(asks).map(|s| s.id).collect();
        with(turn, &Signs { slots: facts, calm_since: &calm_since, used: &used, ask: &ask })
    })
}

/// How many more may be ended by rules now.
pub(crate) fn kills_left(turn: &Turn<'_>, settings: &Settings) -> usize {
    let now = turn.mono();
    let recent = turn.rest.stale.kills.iter().filter(|at| at.until(now) < MINUTE).count();
    (settings.reap.max_kills_per_minute as usize).saturating_sub(recent)
}

/// Something is ended by a rule.
pub(crate) fn count_kill(turn: &mut Turn<'_>) {
    let now = turn.mono();
    let kills = &mut turn.rest.stale.kills;
    kills.retain(|at| at.until(now) < MINUTE);
    kills.push(now);
}

/// Whether ending it counts: processes are ended for a rule's sake. To take away the pane of what is over is none.
pub(crate) fn counts(candidate: &Candidate) -> bool {
    use CandidateKind::{Requested, ZombiePane};
    // What a rule decided on while it ran was counted then.
    candidate.rule.is_some() && !matches!(candidate.kind, Requested | ZombiePane)
}

/// Whether it has to wait, because too much was ended within the last minute.
pub(crate) fn is_held_back(turn: &Turn<'_>, settings: &Settings, candidate: &Candidate) -> bool {
    let may_go = kills_left(turn, settings) > 0 || turn.rest.stale.forced.contains(&candidate.tag);
    counts(candidate) && !may_go
}

/// Lets these be ended whatever the limit.
pub(crate) fn force(turn: &mut Turn<'_>, candidates: &[Candidate]) {
    turn.rest.stale.forced = candidates.iter().map(|candidate| candidate.tag).collect();
    turn.stir();
}

/// Before a lease is given: a worker may have been heard of since it was named.
pub(crate) fn look_again(turn: &mut Turn<'_>) {
    strays::note_workers(turn);
}

/// A reaper has the lease: what a rule found is a fact now, told once.
pub(crate) fn leased(turn: &mut Turn<'_>, candidate: &Candidate) {
    if !counts(candidate) {
        return;
    }
    count_kill(turn);
    tell(turn, candidate, Action::Kill);
}

/// What a rule found of what is over, told once.
fn tell(turn: &mut Turn<'_>, candidate: &Candidate, action: Action) {
    let Some(rule) = candidate.rule else { return };
    if turn.rest.stale.reported.insert((candidate.tag, rule)) {
        let (session, evidence) = (candidate.session, candidate.evidence.clone());
        turn.emit(Event::StaleFound { session, rule, action, evidence });
    }
}

/// It is settled: what was found is looked for anew, but for what was left on purpose.
pub(crate) fn settled(turn: &mut Turn<'_>, candidate: &Candidate, outcome: &Outcome) {
    let (tag, mono) = (candidate.tag, turn.mono());
    let untouched = match outcome {
        Outcome::Gone { killed } | Outcome::Spared { killed, .. } => killed.is_empty(),
        Outcome::Untouched { .. } | Outcome::Refused { .. } => true,
        Outcome::Survivors { .. } => false,
    };
    let stale = &mut turn.rest.stale;
    stale.forced.remove(&tag);
    stale.evidence.remove(&tag);
    if counts(candidate) && untouched {
        // Nothing was ended for it.
        stale.kills.pop();
    }
    let marked = stale.strays.marked.remove(&tag).unwrap_or_default();
    if matches!(outcome, Outcome::Spared { .. }) {
        stale.left.extend(marked.iter().map(|stray| (tag, stray.process)));
    }
    stale.strays.clients.retain(|client| Some(client.process) != candidate.init);
    if let (Outcome::Refused { .. }, Some(rule)) = (outcome, candidate.rule) {
        stale.refused.insert((tag, rule), mono);
        let its = turn.pool().tagged(tag).filter(|_| candidate.kind == CandidateKind::Requested);
        let events = its.map(act::go_on).unwrap_or_default();
        turn.emit_all(events);
    }
}

/// What is remembered of what is gone is forgotten.
pub(crate) fn forget(turn: &mut Turn<'_>, daemon: &Daemon) {
    let named: BTreeSet<Tag> = view::named(turn, daemon).iter().map(|candidate| candidate.tag).collect();
    let live: BTreeSet<Tag> = turn
        .pool()
        .sessions()
        .filter(|s| s.lifecycle.holds_slot())
        .filter_map(|s| s.incarnation.as_ref())
        .map(|run| run.tag)
        .collect();
    let now = turn.mono();
    let stale = &mut turn.rest.stale;
    let is_there = |tag: &Tag| named.contains(tag) || stale.strays.marked.contains_key(tag);
    stale.reported.retain(|(tag, _)| is_there(tag));
    stale.used.retain(|tag, _| live.contains(tag));
    stale.evidence.retain(|tag, _| live.contains(tag));
    stale.refused.retain(|_, at| at.until(now) < MINUTE);
    stale.left.retain(|(_, process)| !process::identity::exited(*process).unwrap_or(false));
}

/// What only is to be reported of what is over, once each.
pub(crate) fn report(turn: &mut Turn<'_>, daemon: &Daemon, named: &[Candidate]) {
    let settings = daemon.settings();
    for candidate in named {
        if !pool::stale::is_to_end(turn.pool(), &settings, candidate) {
            tell(turn, candidate, Action::Report);
        }
    }
}

//! `status`: an overview of the pool, with each problem and what to do about it.

mod queues;
mod server;
mod workers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pool::observe::Peer;
use pool::{Volatile, agent};
use protocol::reap::Outcome;
use protocol::reply::{BreakerView, Component, PendingAsk, Status};
use protocol::{Activity, ActivityState, Lifecycle, Reason, Reply, Response, Session, Timestamp, counted};
use tmux::TmuxError;

use crate::effect::cgroup;
use crate::engine::{BUILD, Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::sense::{machine_capacity, programs};
use crate::verb::{attention, config, down};

/// Maximum number of sessions named in a problem.
const NAMED: usize = 5;

pub(super) async fn status(daemon: &Arc<Daemon>) -> Reply {
    machine_capacity::refresh(daemon).await?;
    cgroup::refresh(daemon).await;
    let mut missing = Vec::from_iter(tmux_problem(daemon).await);
    missing.extend(programs::own_problem(daemon).await);
    missing.extend(reaper_command_problem(daemon).await);
    missing.extend(config_problem(daemon).await);
    let context = Arc::clone(daemon);
    let read = move |turn: &mut Turn<'_>| Response::Status(Box::new(overview(turn, &context, missing)));
    daemon.engine.turn(read).await
}

/// Returns the problem of a tmux program that is missing or too old. Otherwise only the start of a session would find
/// it.
async fn tmux_problem(daemon: &Daemon) -> Option<String> {
    if !programs::is_program(daemon, &daemon.device.binary).await {
        let shown = daemon.device.binary.display();
        return Some(format!("the program tmux is not there ({shown}): install tmux, or set [tmux] binary"));
    }
    match daemon.tmux.check_version().await {
        Err(error @ TmuxError::TooOld { .. }) => Some(format!("{error}; install it, or set [tmux] binary")),
        _ => None,
    }
}

/// Returns the problem of a command that the reaper is to run before an end, and cannot: then rules end nothing.
async fn reaper_command_problem(daemon: &Daemon) -> Option<String> {
    let program = daemon.loaded().config.reaper.before.first()?.clone();
    let is_there = programs::is_program(daemon, Path::new(&program)).await;
    (!is_there).then(|| {
        format!(
            "the reaper cannot run {program} before it ends something, so no rule and no limit ends anything: mend \
             [reaper] before, then `poolctl config reload`"
        )
    })
}

/// Time in which the configuration file is read.
const CONFIG_LIMIT: Duration = Duration::from_millis(500);

/// Returns the problem of a configuration file that was changed or removed.
async fn config_problem(daemon: &Daemon) -> Option<String> {
    let (paths, in_force) = (daemon.paths.clone(), daemon.loaded());
    let look = move || config::problem(&paths, &in_force);
    let place = (Purpose::UserDirs, daemon.paths.config.as_path());
    daemon.blocking.one_at_a_time(place, CONFIG_LIMIT, look).await.flatten()
}

/// Composes the overview. `missing` are the problems of programs that are missing, and of files.
fn overview(turn: &Turn<'_>, daemon: &Daemon, missing: Vec<String>) -> Status {
    let (pool, volatile, capacity) = (turn.pool(), &*turn.volatile, machine_capacity::latest(daemon));
    let tmux = server::status(turn, daemon, capacity);
    let counts = pool.queue_counts(None);
    let rules = &daemon.loaded().settings.queue;
    let stuck = attention::stuck(turn, rules);
    let quarantined = turn.reader().quarantined().unwrap_or_default();
    let mut problems = problems(volatile, tmux.detail.clone(), counts.in_doubt);
    problems.extend(missing_database(daemon));
    problems.extend(removed_database(turn, daemon));
    problems.extend(down::problem(turn));
    problems.extend(queues::problems(turn, daemon, &stuck, (quarantined, capacity.disk)));
    let inbox = attention::items(turn, rules);
    problems.extend(attention::unstarted(&inbox));
    problems.extend(exhausted(pool));
    problems.extend(fail_each_time(turn));
    problems.extend(unread_files(turn));
    problems.extend(hidden_logs(turn));
    problems.extend(workers::problems(pool));
    problems.extend(missing);
    problems.extend(rate_limited(turn, daemon));
    problems.extend(overdue_ends(turn, daemon));
    problems.extend(machine_capacity::admission_problems(daemon));
    problems.extend(machine_capacity::unrelieved(turn, daemon));
    Status {
        pool: daemon.paths.pool.to_string(),
        build: BUILD.to_owned(),
        process: daemon.process,
        epoch: pool.epoch(),
        seq: pool.seq(),
        started_at: daemon.started_at,
        components: components(volatile),
        sessions: lifecycles(pool),
        slots_used: pool.slots_used() as u64,
        slots_max: daemon.settings().max_sessions as u64,
        queue: counts,
        foreign: volatile.observed.foreign().into_iter().flatten().map(|(_, name)| name.clone()).collect(),
        database_bytes: turn.reader().bytes(),
        quarantined,
        free_bytes: capacity.disk,
        breakers: breakers(pool),
        generators: turn.volatile.workers.iter().filter(|(_, worker)| worker.registration().is_some()).count()
            as u64,
        state_dir: daemon.paths.state.clone().into(),
        problems,
        room: machine_capacity::view(turn, daemon),
        asking: pending_asks(pool, &volatile.agents),
        inbox: inbox.len() as u64,
        stuck,
        tmux,
    }
}

/// Returns the problem of a database that was missing at the start, until the next one.
fn missing_database(daemon: &Daemon) -> Option<String> {
    let database = daemon.paths.database.display();
    daemon.database_was_missing.then(|| {
        format!(
            "the database {database} was missing, and an empty one was begun: to go back to a backup, `poolctl down` \
             and put it there; to go on without, `poolctl down` and `poolctl up`"
        )
    })
}

/// Returns the problem of a database whose file was removed or replaced: the open one exists only until this daemon
/// ends.
fn removed_database(turn: &Turn<'_>, daemon: &Daemon) -> Option<String> {
    let database = daemon.paths.database.display();
    turn.reader().is_removed().then(|| {
        format!(
            "the database {database} was removed or replaced, and what is open is lost with the end of poold: \
             `poolctl backup FILE` saves it; then `poolctl down`, and put FILE there"
        )
    })
}

/// Returns the watcher and the reaper, connected or not.
fn components(volatile: &Volatile) -> Vec<Component> {
    let Volatile { observed, reaping, .. } = volatile;
    let component = |name: &str, peer: Option<&Peer>, since: Timestamp| Component {
        name: name.to_owned(),
        connected: peer.is_some(),
        build: peer.map(|p| p.build.clone()),
        pid: peer.and_then(|p| p.pid),
        since,
    };
    vec![
        component("tmux-watch", observed.watcher(), observed.watcher_since()),
        component("reaper", reaping.reapers().next(), reaping.reaper_since()),
    ]
}

/// Returns the kinds that are held back.
fn breakers(pool: &pool::Pool) -> Vec<BreakerView> {
    pool.held_back()
        .filter_map(|(session, kind, breaker)| {
            let name = pool.session(session)?.name.clone();
            Some(BreakerView { session, name, kind: kind.to_owned(), breaker: breaker.clone() })
        })
        .collect()
}

/// Returns the open questions of agents, except dismissed ones; the longest waiting first.
fn pending_asks(pool: &pool::Pool, agents: &agent::Agents) -> Vec<PendingAsk> {
    let asks = |session: &Session| {
        let shown = agent::current_activity(pool, session);
        if agents.is_dismissed(session.id, &shown) {
            return None;
        }
        let Activity { state, since, ask, .. } = shown;
        let (kind, answerable) = (ask.as_ref().map(|ask| ask.kind), ask.is_some_and(|ask| ask.answerable));
        let (session, name) = (session.id, session.name.clone());
        (state == ActivityState::Attention).then_some(PendingAsk { session, name, kind, answerable, since })
    };
    let mut asking: Vec<PendingAsk> = pool.sessions().filter_map(asks).collect();
    asking.sort_by_key(|asking| (asking.since, asking.session));
    asking
}

/// Returns the sessions that are not started automatically: their budget is exhausted, or the pool is a copy
/// or was restored.
fn exhausted(pool: &pool::Pool) -> impl Iterator<Item = String> {
    let stopped = || pool.user_sessions().filter(|s| s.budget.exhausted);
    let names = |of_copy: bool| {
        let of = stopped().filter(move |s| pool::session::is_held_as_copy(s) == of_copy);
        of.map(|s| s.name.to_string()).collect::<Vec<_>>()
    };
    let (often, copied) = (names(false), names(true));
    let often = often.first().map(|name| {
        format!(
            "started by themselves too often, and held back: {}; `poolctl show {name}` and `poolctl logs \
             {name}` tell why, `poolctl restart` starts it",
            listed(&often)
        )
    });
    let copied = copied.first().map(|_| {
        format!(
            "not started by themselves, as this pool is a copy or was restored: {}; `poolctl restart` \
             starts each",
            listed(&copied)
        )
    });
    often.into_iter().chain(copied)
}

/// Returns the problem of sessions that end soon after each start, and are started again all the same.
fn fail_each_time(turn: &Turn<'_>) -> Option<String> {
    let now = turn.now();
    // A session that could not be started is another problem, told with its reason.
    let ran = |s: &&Session| s.lifecycle != Lifecycle::Failed;
    let fails = |s: &&Session| ran(s) && pool::session::fails_each_time(turn.pool(), s, now);
    let failing: Vec<&Session> = turn.pool().user_sessions().filter(fails).collect();
    let name = &failing.first()?.name;
    let list: Vec<String> =
        failing.iter().map(|s| format!("{} ({} in a row)", s.name, s.budget.failures)).collect();
    Some(format!(
        "end within a minute of each start, and are started again: {}; `poolctl logs {name}` tells why, `poolctl kill \
         {name}` stops it",
        listed(&list)
    ))
}

/// Returns the problem of sessions whose limit of the disk does not count all of their files.
fn unread_files(turn: &Turn<'_>) -> Option<String> {
    let is_unread = |s: &&Session| {
        let used = s.tag().and_then(|tag| turn.volatile.reaping.used(tag));
        s.running().is_some() && s.spec.limits.disk.is_some() && used.is_some_and(|used| used.unread)
    };
    let unread = turn.pool().user_sessions().filter(is_unread);
    let names: Vec<String> = unread.map(|s| s.name.to_string()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the disk limit of {} does not count what poold cannot read: let it read all below the session's \
             directory, or move that elsewhere",
            listed(&names)
        )
    })
}

/// Returns the problem of sessions whose logs cannot be examined. Such a session never counts as silent.
fn hidden_logs(turn: &Turn<'_>) -> Option<String> {
    let is_hidden = |s: &&Session| s.tag().is_some_and(|tag| turn.volatile.agents.is_log_hidden(tag));
    let hidden = turn.pool().user_sessions().filter(is_hidden);
    let names: Vec<String> = hidden.map(|s| s.name.to_string()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the log of {} cannot be looked at, so it counts as busy: let poold read all below the session's directory",
            listed(&names)
        )
    })
}

/// Returns the first few of a list of sessions, and the number of the others.
fn listed(sessions: &[String]) -> String {
    let (named, more) = sessions.split_at(sessions.len().min(NAMED));
    match more.len() {
        0 => named.join(", "),
        n => format!("{} and {n} more", named.join(", ")),
    }
}

/// Returns the number of sessions in each state.
fn lifecycles(pool: &pool::Pool) -> Vec<(String, u64)> {
    let count = |state: Lifecycle| pool.user_sessions().filter(|s| s.lifecycle == state).count() as u64;
    Lifecycle::ALL.into_iter().map(|state| (state.as_str().to_owned(), count(state))).collect()
}

/// Time for an end beyond its grace, after which it is a problem.
const END_OVERDUE: Duration = Duration::from_secs(60);

/// Returns the problem of sessions that are being ended, and should have been gone for long.
fn overdue_ends(turn: &Turn<'_>, daemon: &Daemon) -> Option<String> {
    let usual = daemon.settings().grace_ms;
    let is_overdue = |s: &&Session| {
        let grace = Duration::from_millis(s.end_grace_ms.unwrap_or(usual));
        let ends = s.lifecycle == Lifecycle::Draining && s.reason != Some(Reason::Drained);
        ends && turn.age(s.changed_at) >= grace + END_OVERDUE
    };
    let overdue: Vec<&Session> = turn.pool().sessions().filter(is_overdue).collect();
    let name = &overdue.first()?.name;
    let why = |s: &Session| {
        let tag = s.tag();
        match tag.and_then(|tag| turn.volatile.reaping.verdict(tag)) {
            Some(Outcome::Survivors { left }) => left.join(", "),
            Some(Outcome::Refused { why } | Outcome::Untouched { why }) => why.clone(),
            Some(Outcome::Gone { .. } | Outcome::Spared { .. }) | None => {
                "the reaper tells nothing".to_owned()
            }
        }
    };
    let list: Vec<String> = overdue.iter().map(|s| format!("{} ({})", s.name, why(s))).collect();
    Some(format!(
        "being ended for over a minute, and not proved gone: {}; `poolctl reap --explain {name}` and the log of the \
         reaper tell more",
        listed(&list)
    ))
}

/// Returns the problem of candidates of rules that the limit of kills per minute delays.
fn rate_limited(turn: &Turn<'_>, daemon: &Daemon) -> Option<String> {
    let settings = daemon.settings();
    let reaping = &turn.volatile.reaping;
    let named = pool::reap::all_candidates(turn.pool(), turn.volatile, &settings, turn.now());
    let held =
        named.iter().filter(|candidate| reaping.is_held_back(&settings, candidate, turn.mono())).count();
    let waits = held + reaping.held_back();
    let limit = settings.reap.max_kills_per_minute;
    (waits > 0).then(|| {
        format!(
            "the reaper holds {} back: {limit} within a minute are the limit ([reaper] \
             max_kills_per_minute); `poolctl reap --force` goes on",
            counted(waits as u64, "end")
        )
    })
}

/// Returns the problems of the components, of the tmux server, and of messages in doubt.
fn problems(volatile: &Volatile, server: Option<String>, in_doubt: u64) -> Vec<String> {
    let mut problems = Vec::new();
    if volatile.observed.watcher().is_none() {
        problems.push(
            "tmux-watch is not connected: poold looks at tmux itself at each operation, and notices nothing \
             in between; `poolctl up` starts it"
                .to_owned(),
        );
    }
    if !volatile.reaping.has_reaper() {
        problems.push(
            "the reaper is not connected: ended sessions keep their slots; `poolctl up` starts it".to_owned(),
        );
    }
    problems.extend(server);
    if in_doubt > 0 {
        let are = if in_doubt == 1 { "message is" } else { "messages are" };
        problems.push(format!(
            "{in_doubt} {are} in doubt: `poolctl queue ls SESSION`, then `poolctl queue resolve`"
        ));
    }
    problems
}

//! `status`: what runs, what is wrong, and what to do about it.

mod queues;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;

use pool::{activity, queue};
use protocol::reply::{Asking, BreakerView, Component, InboxItem, Status};
use protocol::{Activity, ActivityState, Lifecycle, Reply, Response, Session, Timestamp};

pub(crate) use server::has_room;

use crate::context::{BUILD, Daemon};
use crate::engine::Turn;
use crate::view::{self, Peer, View};
use crate::{room, stale};

/// The most sessions that a problem names.
const NAMED: usize = 5;

pub(super) async fn status(daemon: &Arc<Daemon>) -> Reply {
    let context = Arc::clone(daemon);
    let read = move |turn: &mut Turn<'_>| Response::Status(Box::new(overview(turn, &context)));
    daemon.engine.turn(read).await
}

/// All that waits for a person.
pub(super) async fn inbox(daemon: &Arc<Daemon>) -> Reply {
    daemon.engine.turn(|turn| Ok(Response::Inbox(waiting(turn)))).await?
}

fn waiting(turn: &Turn<'_>) -> Vec<InboxItem> {
    let is_worked = |session, kind: &str| queues::is_worked(turn, session, kind);
    pool::inbox::items(turn.pool(), &turn.rest.agents.waits, is_worked, turn.now())
}

fn overview(turn: &Turn<'_>, daemon: &Daemon) -> Status {
    let (pool, view) = (turn.pool(), &turn.rest.view);
    let tmux = server::status(pool, view, daemon.tmux_socket());
    let counts = queue::counts(pool, None);
    let quarantined = turn.reader().quarantined().unwrap_or_default();
    let mut problems = problems(view, server::problem(pool, view, &tmux), counts.in_doubt);
    problems.extend(queues::problems(turn, daemon, quarantined));
    problems.extend(exhausted(pool));
    problems.extend(without_tmux(daemon));
    problems.extend(held_back(turn, daemon));
    Status {
        pool: daemon.paths.pool.to_string(),
        build: BUILD.to_owned(),
        process: daemon.process,
        epoch: pool.epoch(),
        seq: pool.seq(),
        started_at: daemon.started_at,
        components: components(view),
        sessions: lifecycles(pool),
        slots_used: pool.slots_used() as u64,
        slots_max: daemon.settings().max_sessions as u64,
        queue: counts,
        foreign: view.foreign.iter().flatten().map(|(_, name)| name.clone()).collect(),
        database_bytes: turn.reader().bytes(),
        quarantined,
        free_bytes: process::machine::free_disk(&daemon.paths.state),
        breakers: breakers(pool),
        generators: turn.rest.work.workers().filter(|(_, worker)| worker.generator.is_some()).count() as u64,
        state_dir: daemon.paths.state.clone().into(),
        problems,
        room: room::shown(turn, daemon),
        asking: asking(pool),
        inbox: waiting(turn).len() as u64,
        tmux,
    }
}

fn components(view: &View) -> Vec<Component> {
    let component = |name: &str, peer: Option<&Peer>, since: Timestamp| Component {
        name: name.to_owned(),
        connected: peer.is_some(),
        build: peer.map(|p| p.build.clone()),
        pid: peer.and_then(|p| p.pid),
        since,
    };
    vec![
        component("tmux-watch", view.watcher.as_ref(), view.watcher_since),
        component("reaper", view.reapers.values().next(), view.reaper_since),
    ]
}

fn breakers(pool: &pool::Pool) -> Vec<BreakerView> {
    let open = pool.breakers().filter(|(_, _, breaker)| breaker.is_open());
    open.filter_map(|(session, kind, breaker)| {
        let name = pool.session(session)?.name.clone();
        Some(BreakerView { session, name, kind: kind.to_owned(), breaker: breaker.clone() })
    })
    .collect()
}

fn asking(pool: &pool::Pool) -> Vec<Asking> {
    let asks = |session: &Session| {
        let Activity { state, since, ask, .. } = activity::shown(pool, session);
        let (kind, answerable) = (ask.as_ref().map(|ask| ask.kind), ask.is_some_and(|ask| ask.answerable));
        let (session, name) = (session.id, session.name.clone());
        (state == ActivityState::Attention).then_some(Asking { session, name, kind, answerable, since })
    };
    let mut asking: Vec<Asking> = pool.sessions().filter_map(asks).collect();
    asking.sort_by_key(|asking| (asking.since, asking.session));
    asking
}

/// A watcher needs no tmux program to see that no server is there; a new session does.
fn without_tmux(daemon: &Daemon) -> Option<String> {
    let program = &daemon.device.binary;
    let there = crate::start::in_path(&program.to_string_lossy()).is_file();
    let shown = program.display();
    (!there).then(|| format!("the program tmux is not there ({shown}): install tmux, or set [tmux] binary"))
}

/// What was started by itself too often stays as it is, and so does what a copy or an older state of a pool does not run.
fn exhausted(pool: &pool::Pool) -> impl Iterator<Item = String> {
    let held = || pool.sessions().filter(|s| s.budget.exhausted);
    let names = |of_copy: bool| {
        let of = held().filter(move |s| s.budget.starts.is_empty() == of_copy);
        of.map(|s| s.name.as_str()).take(NAMED).collect::<Vec<_>>()
    };
    let (often, copied) = (names(false), names(true));
    let often = often.first().map(|name| {
        format!(
            "started by themselves too often, and held back: {}; `poolctl logs {name}` may tell why, `poolctl restart` starts it",
            often.join(", ")
        )
    });
    let copied = copied.first().map(|_| {
        format!(
            "not started by themselves, as this pool is a copy or was restored: {}; `poolctl restart` starts each",
            copied.join(", ")
        )
    });
    often.into_iter().chain(copied)
}

fn lifecycles(pool: &pool::Pool) -> Vec<(String, u64)> {
    use Lifecycle::{Draining, Failed, Live, Lost, Parked, Starting, Stopped};
    let words: BTreeMap<Lifecycle, &str> = [
        (Starting, "starting"),
        (Live, "live"),
        (Draining, "draining"),
        (Parked, "parked"),
        (Stopped, "stopped"),
        (Lost, "lost"),
        (Failed, "failed"),
    ]
    .into();
    let count = |state: Lifecycle| pool.sessions().filter(|s| s.lifecycle == state).count() as u64;
    words.into_iter().map(|(state, word)| (word.to_owned(), count(state))).collect()
}

/// What rules found and may not be ended yet.
fn held_back(turn: &Turn<'_>, daemon: &Daemon) -> Option<String> {
    let settings = daemon.settings();
    let named = view::named(turn, daemon);
    let held = named.iter().filter(|candidate| stale::is_held_back(turn, &settings, candidate)).count();
    let waits = held + turn.rest.stale.waiting;
    let limit = settings.reap.max_kills_per_minute;
    (waits > 0).then(|| {
        format!("the reaper holds {waits} ends back: {limit} within a minute are the limit ([reaper] max_kills_per_minute); `poolctl reap --force` goes on")
    })
}

fn problems(view: &View, server: Option<String>, in_doubt: u64) -> Vec<String> {
    let mut problems = Vec::new();
    if view.watcher.is_none() {
        problems.push(
            "tmux-watch is not connected: poold looks at tmux itself at each operation, and notices nothing in \
             between; `poolctl up` starts it"
                .to_owned(),
        );
    }
    if view.reapers.is_empty() {
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

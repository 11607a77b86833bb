//! `status`: what runs, what is wrong, and what to do about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pool::queue;
use protocol::reply::{Component, Status, TmuxStatus};
use protocol::tmux::Server;
use protocol::{Lifecycle, Reply, Response, Timestamp};

use crate::context::{BUILD, Daemon};
use crate::engine::Turn;
use crate::view::{Peer, View};

pub(super) async fn status(daemon: &Arc<Daemon>) -> Reply {
    let context = Arc::clone(daemon);
    let read = move |turn: &mut Turn<'_>| Response::Status(Box::new(overview(turn, &context)));
    daemon.engine.turn(read).await
}

fn overview(turn: &Turn<'_>, daemon: &Daemon) -> Status {
    let (pool, view) = (turn.pool(), &turn.rest.view);
    Status {
        pool: daemon.paths.pool.to_string(),
        build: BUILD.to_owned(),
        process: daemon.process,
        epoch: pool.epoch(),
        seq: pool.seq(),
        started_at: daemon.started_at,
        components: components(view),
        tmux: tmux_status(daemon, view),
        sessions: lifecycles(pool),
        slots_used: pool.slots_used() as u64,
        slots_max: daemon.settings().max_sessions as u64,
        queue: queue::counts(pool, None),
        foreign: foreign(pool, view),
        database_bytes: turn.store().bytes(),
        state_dir: daemon.paths.state.clone().into(),
        problems: problems(pool, view),
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

fn tmux_status(daemon: &Daemon, view: &View) -> TmuxStatus {
    let (state, detail, server) = match &view.state.server {
        Server::Unknown(why) => ("unknown", Some(why.clone()), None),
        Server::Absent => ("absent", None, None),
        Server::Up(server) => ("up", None, Some(*server)),
    };
    TmuxStatus {
        socket: daemon.tmux_socket(),
        state: state.to_owned(),
        detail,
        server,
        seen_at: view.seen_at,
    }
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

/// Names of tmux sessions of which no pane is the pool's.
fn foreign(pool: &pool::Pool, view: &View) -> Vec<String> {
    let known = |tag| pool.tagged(tag).is_some() || pool.retired(tag).is_some();
    let ours: Vec<_> = view
        .state
        .panes
        .values()
        .filter(|pane| pane.tag.is_some_and(known))
        .map(|pane| pane.session)
        .collect();
    let others = view.state.sessions.iter().filter(|(id, _)| !ours.contains(id));
    others.map(|(_, session)| session.name.clone()).collect()
}

fn problems(pool: &pool::Pool, view: &View) -> Vec<String> {
    let mut problems = Vec::new();
    if view.watcher.is_none() {
        problems.push(
            "tmux-watch is not connected: what is shown is unverified; `poolctl up` starts it".to_owned(),
        );
    }
    if view.reapers.is_empty() {
        problems.push(
            "the reaper is not connected: ended sessions keep their slots; `poolctl up` starts it".to_owned(),
        );
    }
    // What was started since tmux was last seen is not missing.
    let is_due = |s: &&protocol::Session| view.seen_at.is_some_and(|at| s.changed_at < at);
    let running = pool.sessions().filter(|s| s.lifecycle.holds_slot()).filter(is_due).count();
    match &view.state.server {
        Server::Unknown(why) => {
            problems.push(format!("the tmux server is not seen: {why}; its sessions are left as they are"));
        }
        Server::Absent if running > 0 => problems.push(format!(
            "nothing answers at the tmux socket, and the server of {running} sessions is not proved dead; \
             if its socket was deleted, send SIGUSR1 to the server"
        )),
        Server::Absent => {}
        Server::Up(server) => {
            let elsewhere = |s: &&protocol::Session| {
                let own = s.incarnation.as_ref().and_then(|run| run.server);
                s.lifecycle.holds_slot() && own.is_some_and(|own| own != *server)
            };
            let elsewhere = pool.sessions().filter(elsewhere).count();
            if elsewhere > 0 {
                problems.push(format!(
                    "another tmux server (pid {}) answers at the socket, and that of {elsewhere} sessions is \
                     not proved dead; they are left as they are",
                    server.process.pid
                ));
            }
        }
    }
    let in_doubt = queue::counts(pool, None).in_doubt;
    if in_doubt > 0 {
        problems.push(format!(
            "{in_doubt} messages are in doubt: `poolctl queue ls SESSION`, then `poolctl queue resolve`"
        ));
    }
    problems
}

//! A server that does not answer, and its diagnosis.

use std::os::unix::net::UnixListener;
use std::path::Path;

use protocol::ServerId;
use protocol::tmux::ServerProblem;

use super::*;

fn trouble(state: &TmuxState) -> Option<ServerProblem> {
    match &state.server {
        Server::Unknown(silence) => Some(silence.trouble),
        Server::Absent | Server::Up(_) => None,
    }
}

fn up(state: &TmuxState) -> Option<ServerId> {
    match state.server {
        Server::Up(server) => Some(server),
        _ => None,
    }
}

#[tokio::test]
async fn t01_silence_is_unknown_and_absence_is_absent() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    let _watcher = poold.watcher();
    let mut peer = poold.welcome(&tmux).await;
    assert!(is_snapshot(&peer.observe().await));
    assert_eq!(peer.state.server, Server::Absent);
    tmux.create("one", "exec sleep 1000").await;
    peer.until("it is there", |state| of(state, "one").is_some()).await;
    let (server, pane) = (up(&peer.state).unwrap(), of(&peer.state, "one").cloned());
    tmux.signal(Signal::SIGSTOP);
    peer.until("silent", |state| trouble(state) == Some(ServerProblem::Stopped)).await;
    assert!(matches!(&peer.state.server, Server::Unknown(silence) if silence.server == Some(server)));
    for _ in 0..3 {
        let observe = peer.observe().await;
        assert!(!observe.complete && observe.view != View::Alive, "{observe:?}");
        assert_eq!(trouble(&peer.state), Some(ServerProblem::Stopped));
        assert_eq!(of(&peer.state, "one").map(|pane| pane.process), pane.as_ref().map(|pane| pane.process));
    }
    // Requested while the server is unknown: that state is the answer.
    peer.command(WatcherCommand::Snapshot { n: 3 }).await;
    while peer.observe().await.asked != 3 {}
    assert_eq!(trouble(&peer.state), Some(ServerProblem::Stopped));
    tmux.signal(Signal::SIGCONT);
    peer.until("it is back", |state| up(state) == Some(server)).await;
    assert!(peer.last().complete && of(&peer.state, "one").is_some());
    tmux.signal(Signal::SIGKILL);
    peer.until("it is gone", |state| state.server == Server::Absent).await;
    assert!(peer.last().complete && peer.state.panes.is_empty());
}

#[tokio::test]
async fn a_server_that_is_stopped_from_the_start_is_recognised() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    tmux.create("one", "exec sleep 1000").await;
    tmux.signal(Signal::SIGSTOP);
    while identity::state(tmux.server.unwrap()).unwrap() != identity::State::Stopped {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _watcher = poold.watcher();
    let mut peer = poold.welcome(&tmux).await;
    let first = peer.observe().await;
    assert!(is_snapshot(&first) && !first.complete);
    assert_eq!(trouble(&peer.state), Some(ServerProblem::Stopped));
    tmux.signal(Signal::SIGCONT);
    peer.until("it is back", |state| of(state, "one").is_some()).await;
    assert_eq!(up(&peer.state).map(|server| server.process), tmux.server);
}

#[tokio::test]
async fn t06_a_server_whose_socket_was_removed_is_reached_again() {
    loses_its_socket(|socket| fs::remove_file(socket).unwrap()).await;
}

#[tokio::test]
async fn t06_a_server_whose_socket_was_replaced_is_reached_again() {
    loses_its_socket(|socket| {
        let dead = socket.with_extension("dead");
        drop(UnixListener::bind(&dead).unwrap());
        fs::rename(&dead, socket).unwrap();
    })
    .await;
}

/// Returns a tmux with the session "one", and its server.
async fn running() -> (Tmux, ServerId) {
    let mut tmux = Tmux::new();
    let started_at = tmux.create("one", "exec sleep 1000").await.pane.server.started_at;
    let process = tmux.server.unwrap();
    (tmux, ServerId { process, started_at })
}

#[tokio::test]
async fn t06_a_server_on_record_that_lost_its_socket_before_it_was_seen_is_reached_again() {
    let ((tmux, server), poold) = (running().await, Poold::new());
    fs::remove_file(&tmux.device.socket).unwrap();
    poold.watcher();
    let mut peer = poold.welcome_to(&tmux, |setup| setup.server = Some(server)).await;
    let first = peer.observe().await;
    assert!(is_snapshot(&first) && !first.complete, "that it is on record does not show it");
    assert_eq!(trouble(&peer.state), Some(ServerProblem::Unreachable));
    peer.until("it is back", |state| up(state) == Some(server)).await;
    assert!(of(&peer.state, "one").is_some());
}

#[tokio::test]
async fn a_server_on_record_that_has_ended_is_absent_and_another_process_is_not_it() {
    let ((tmux, server), poold) = (running().await, Poold::new());
    tmux.end();
    let me = identity::me().unwrap();
    poold.watcher();
    for process in [server.process, ProcId { start: me.start + 1, ..me }] {
        let on_record = Some(ServerId { process, ..server });
        let mut peer = poold.welcome_to(&tmux, |setup| setup.server = on_record).await;
        assert!(peer.observe().await.complete);
        assert_eq!(peer.state.server, Server::Absent);
    }
}

/// Lets a server lose its socket in this way: it is out of reach, keeps what it has, and is back.
async fn loses_its_socket(lose: impl FnOnce(&Path)) {
    let (tmux, _poold, mut peer) = watched(|_| {}).await;
    let server = up(&peer.state).unwrap();
    lose(&tmux.device.socket);
    peer.until("out of reach", |state| trouble(state) == Some(ServerProblem::Unreachable)).await;
    assert!(of(&peer.state, "one").is_some(), "nothing was learnt of it");
    peer.until("it is back", |state| up(state) == Some(server)).await;
    assert!(of(&peer.state, "one").is_some());
}

#[tokio::test]
async fn t03_another_server_at_the_socket_has_its_own_identity_and_stamps() {
    let (mut tmux, _poold, mut peer) = watched(|_| {}).await;
    let (old, ids) = (up(&peer.state).unwrap(), peer.state.panes.clone());
    tmux.end();
    let created = tmux.create("two", "exec sleep 1000").await;
    peer.until("the other", |state| of(state, "two").is_some_and(|pane| pane.process.is_some())).await;
    assert_eq!(
        peer.state.panes.keys().collect::<Vec<_>>(),
        ids.keys().collect::<Vec<_>>(),
        "the same numbers"
    );
    assert_ne!(up(&peer.state), Some(old));
    assert_eq!(up(&peer.state).map(|server| server.process), tmux.server);
    assert_eq!(of(&peer.state, "two").unwrap().process, identity::identify(created.pid).unwrap());
    assert!(of(&peer.state, "one").is_none());
}

#[tokio::test]
async fn a_second_server_that_took_the_path_is_another_while_the_first_lives() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    tmux.create("one", "exec sleep 1000").await;
    let first = tmux.server.unwrap();
    let _watcher = poold.watcher();
    let mut peer = poold.welcome(&tmux).await;
    peer.until("it is there", |state| of(state, "one").is_some()).await;
    let moved = tmux.dir.path().join("moved");
    fs::rename(&tmux.device.socket, moved).unwrap();
    tmux.create("two", "exec sleep 1000").await;
    assert_ne!(tmux.server, Some(first));
    peer.until("the other", |state| of(state, "two").is_some()).await;
    assert_eq!(up(&peer.state).map(|server| server.process), tmux.server);
    assert!(identity::identify(first.pid).unwrap() == Some(first), "it was not signalled");
    Handle::open(first).unwrap().unwrap().signal(Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn without_tmux_that_is_said() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    tmux.device.binary = tmux.dir.path().join("no-tmux");
    let _watcher = poold.watcher();
    let mut peer = poold.welcome_to(&tmux, |setup| setup.means = Some(TmuxTransport::Listings)).await;
    peer.observe().await;
    assert_eq!(trouble(&peer.state), Some(ServerProblem::NoTmux));
}

#[tokio::test]
async fn who_is_to_take_over_says_so_once() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    tmux.create("one", "exec sleep 1000").await;
    let _watcher = poold.watcher_with(|options| options.take_over = true);
    assert_eq!(poold.refuse_any().await, Role::NextWatcher);
    let mut peer = poold.welcome_as(Role::NextWatcher, &tmux).await;
    assert!(is_snapshot(&peer.observe().await));
    drop(peer);
    let mut peer = poold.welcome(&tmux).await;
    assert!(is_snapshot(&peer.observe().await));
}

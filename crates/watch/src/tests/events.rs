//! Changes in tmux are reported when they happen.

use std::time::Instant;

use protocol::diff::Change;
use protocol::tmux::HIDDEN_SESSION;
use protocol::{PaneId, TmuxSessionId};

use super::*;

/// Disables sweeps for the time of a test, so that only events report.
fn no_sweep(setup: &mut WatchSetup) {
    setup.sweep_ms = Some(3_600_000);
    patient(setup);
}

fn named<'a>(state: &'a TmuxState, name: &str) -> Option<&'a TmuxSessionId> {
    state.sessions.iter().find(|(_, session)| session.name == name).map(|(id, _)| id)
}

/// Returns the sessions and panes of a whole listing.
async fn listed(tmux: &Tmux) -> (Vec<TmuxSessionId>, Vec<(PaneId, u32)>) {
    let listing = Device { own: true, ..tmux.device.clone() }.observe().await.unwrap();
    (listing.sessions.keys().copied().collect(), listing.panes.iter().map(|(id, p)| (*id, p.pid)).collect())
}

fn known(state: &TmuxState) -> (Vec<TmuxSessionId>, Vec<(PaneId, u32)>) {
    (state.sessions.keys().copied().collect(), state.panes.iter().map(|(id, p)| (*id, p.pid)).collect())
}

impl Peer {
    /// Returns the frames after that one, each with its changes.
    fn diffs_since(&self, seq: u64) -> Vec<(bool, Vec<Change>)> {
        let since = self.frames.iter().filter(|observe| observe.seq > seq);
        let diff = |observe: &Observe| match &observe.view {
            View::Diff(changes) => Some((observe.complete, changes.clone())),
            _ => None,
        };
        since.filter_map(diff).collect()
    }
}

async fn comes_and_goes(transport: TmuxTransport) {
    let setup = |setup: &mut WatchSetup| {
        no_sweep(setup);
        setup.means = Some(transport);
    };
    let (mut tmux, _poold, mut peer) = watched(setup).await;
    assert_eq!(peer.transport, Some(transport));
    let seq = peer.last().seq;
    let created = tmux.create("two", "exec sleep 1000").await;
    peer.until("it comes", |state| of(state, "two").is_some_and(|pane| pane.process.is_some())).await;
    assert_eq!(of(&peer.state, "two").unwrap().process, identity::identify(created.pid).unwrap());
    tmux.does("rename-session -t =two: three");
    peer.until("its name", |state| named(state, "three").is_some()).await;
    tmux.does("kill-session -t =three:");
    peer.until("it goes", |state| state.sessions.len() == 1 && state.panes.len() == 1).await;
    let diffs = peer.diffs_since(seq);
    assert!(diffs.iter().all(|(complete, _)| !complete), "only what happened was read: {diffs:?}");
    assert!(peer.frames.iter().filter(|observe| observe.seq > seq).all(|o| o.view != View::Unchanged));
    let tells = |changes: &[Change]| changes.iter().any(|change| matches!(change, Change::SessionGone(_)));
    assert_eq!(diffs.iter().filter(|(_, changes)| tells(changes)).count(), 1);
}

#[tokio::test]
async fn what_comes_and_goes_is_told_without_a_sweep() {
    comes_and_goes(TmuxTransport::Native).await;
}

#[tokio::test]
async fn what_comes_and_goes_is_told_over_a_control_client_too() {
    comes_and_goes(TmuxTransport::Control).await;
}

#[tokio::test]
async fn listings_alone_are_enough() {
    let (mut tmux, _poold, mut peer) = watched(|setup| setup.means = Some(TmuxTransport::Listings)).await;
    tmux.create("two", "exec sleep 1000").await;
    peer.until("it comes", |state| of(state, "two").is_some()).await;
    tmux.does("kill-session -t =two:");
    peer.until("it goes", |state| of(state, "two").is_none() && state.sessions.len() == 1).await;
    assert_eq!(peer.transport, Some(TmuxTransport::Listings));
    assert!(!tmux.does("list-sessions").contains(HIDDEN_SESSION));
}

#[tokio::test]
async fn a_server_that_is_not_the_pools_own_is_watched_and_left_as_it_is() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    tmux.create("one", "exec sleep 1000").await;
    let before = tmux.does("list-sessions");
    let _watcher = poold.watcher();
    let setup = |setup: &mut WatchSetup| {
        no_sweep(setup);
        setup.own = false;
    };
    let mut peer = poold.welcome_to(&tmux, setup).await;
    peer.until("it is there", |state| of(state, "one").is_some()).await;
    assert_eq!(peer.transport, Some(TmuxTransport::Native));
    assert_eq!(tmux.does("list-sessions"), before);
    tmux.create("two", "exec sleep 1000").await;
    peer.until("it comes", |state| of(state, "two").is_some()).await;
    tmux.does("kill-session -t =two:");
    peer.until("it goes", |state| state.sessions.len() == 1 && state.panes.len() == 1).await;
    assert_eq!(tmux.does("list-sessions"), before);
}

#[tokio::test]
async fn what_tmux_says_nothing_of_is_found_by_the_sweep() {
    let (tmux, _poold, mut peer) = watched(|_| {}).await;
    tmux.does("split-window -d -t =one: sleep 1000");
    peer.until("both panes", |state| state.panes.len() == 2).await;
    tmux.does("resize-window -t =one: -x 61 -y 19");
    peer.until("its size", |state| of(state, "one").unwrap().width == 61).await;
    assert!(peer.last().complete);
}

#[tokio::test]
async fn the_end_of_a_process_is_known_from_the_kernel() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    let created = tmux.create("one", "exec sleep 1000").await;
    let _watcher = poold.watcher();
    let mut peer = poold.welcome_to(&tmux, no_sweep).await;
    peer.until("it is there", |state| of(state, "one").is_some()).await;
    let seq = peer.last().seq;
    let process = identity::identify(created.pid).unwrap().unwrap();
    Handle::open(process).unwrap().unwrap().signal(Signal::SIGKILL).unwrap();
    peer.until("it ended", |state| of(state, "one").unwrap().exited).await;
    peer.until("how", |state| of(state, "one").unwrap().exit_signal == Some(9)).await;
    peer.until("tmux knows too", |state| of(state, "one").unwrap().dead).await;
    let pane = of(&peer.state, "one").unwrap();
    assert_eq!((pane.process, pane.exit_status, &pane.current_command), (Some(process), None, &None));
    assert!(peer.diffs_since(seq).iter().all(|(complete, _)| !complete));
}

/// True if `sleep` is in the foreground of the pane, in `/usr`.
fn sleeps_in_usr(state: &TmuxState) -> bool {
    let pane = of(state, "one").unwrap();
    (&pane.current_command, &pane.current_dir) == (&Some("sleep".into()), &Some("/usr".into()))
}

#[tokio::test]
async fn what_runs_in_the_foreground_is_known_with_its_directory() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    let go = tmux.dir.path().join("go");
    let script = format!("while [ ! -e '{}' ]; do sleep 0.02; done; cd /usr; exec sleep 1000", go.display());
    tmux.create("one", &script).await;
    let _watcher = poold.watcher();
    let mut peer = poold.welcome_to(&tmux, no_sweep).await;
    peer.until("it is there", |state| of(state, "one").is_some()).await;
    fs::write(go, "").unwrap();
    peer.until("where it is", sleeps_in_usr).await;
}

#[tokio::test]
async fn the_init_of_a_session_is_not_what_runs_in_it() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    let at = |name: &str| tmux.dir.path().join(name);
    let (go, init, starts) = (at("go"), at("reaper"), at("starts"));
    std::os::unix::fs::symlink("/bin/sh", &init).unwrap();
    let waits = format!("while [ ! -e '{}' ]; do sleep 0.02; done; cd /usr; exec sleep 1000", go.display());
    fs::write(&starts, waits).unwrap();
    tmux.create("one", &format!("exec '{}' '{}'", init.display(), starts.display())).await;
    let (runs, late) =
        (|| tmux.does("display-message -p -t =one: #{pane_current_command}"), Instant::now() + LONG);
    while runs().trim() != "reaper" {
        assert!(Instant::now() < late, "it runs {}", runs());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _watcher = poold.watcher();
    let mut peer = poold.welcome_to(&tmux, no_sweep).await;
    peer.until("it is there", |state| of(state, "one").is_some()).await;
    let pane = of(&peer.state, "one").unwrap();
    assert_eq!((&pane.current_command, &pane.current_dir), (&None, &None));
    fs::write(go, "").unwrap();
    peer.until("what it started", sleeps_in_usr).await;
}

#[tokio::test]
async fn the_hidden_session_is_in_no_frame() {
    let (mut tmux, _poold, mut peer) = watched(|_| {}).await;
    assert!(tmux.does("list-sessions").contains(HIDDEN_SESSION), "there is one");
    for n in 0..3 {
        // Killing the hidden session ends the connection, and the session is created again.
        tmux.does(&format!("kill-session -t ={HIDDEN_SESSION}:"));
        let name = format!("n{n}");
        tmux.create(&name, "exec sleep 1000").await;
        peer.until("it comes", |state| of(state, &name).is_some()).await;
    }
    peer.command(WatcherCommand::Snapshot { n: 7 }).await;
    while peer.observe().await.asked != 7 {}
    assert_eq!(peer.state.sessions.len(), 4);
    assert_eq!(known(&peer.state), listed(&tmux).await);
    let told = format!("{:?}", peer.frames);
    assert!(!told.contains(&format!("{HIDDEN_SESSION:?}")), "{told}");
    assert!(peer.state.sessions.values().all(|session| session.attached == 0));
}

#[tokio::test]
async fn a_storm_of_names_ends_with_the_last() {
    let (tmux, _poold, mut peer) = watched(no_sweep).await;
    let seq = peer.last().seq;
    for _ in 0..5 {
        let renames: Vec<String> = (0..100).map(|n| format!("rename-session -t $0 n{n}")).collect();
        tmux.does(&format!("{} ; rename-session -t $0 last", renames.join(" ; ")));
    }
    peer.until("the last name", |state| named(state, "last").is_some()).await;
    peer.command(WatcherCommand::Snapshot { n: 1 }).await;
    while peer.observe().await.asked != 1 {}
    assert!(named(&peer.state, "last").is_some());
    assert!(peer.frames.iter().filter(|observe| observe.seq > seq).count() < 400, "coalesced");
}

#[tokio::test]
async fn a_storm_of_creations_ends_with_the_exact_listing() {
    let (tmux, _poold, mut peer) = watched(no_sweep).await;
    let device = tmux.device.clone();
    let storm = tokio::task::spawn_blocking(move || {
        for batch in 0..20 {
            let news: Vec<String> = (0..10).map(|n| format!("new-session -d -s c{batch}-{n} true")).collect();
            let keeps = "set-option -g remain-on-exit on";
            let kill = format!("kill-session -t =c{batch}-3:");
            tmux.does(&format!("{keeps} ; {} ; {kill}", news.join(" ; ")));
        }
        tmux
    });
    peer.until("all of them", |state| named(state, "c19-9").is_some() && state.sessions.len() == 181).await;
    let tmux = storm.await.unwrap();
    // A state with the same number of panes, all known.
    peer.until("their panes", |state| state.panes.len() == 181).await;
    let listing = Device { own: true, ..device }.observe().await.unwrap();
    assert_eq!(peer.state.sessions, listing.sessions);
    assert_eq!(known(&peer.state), listed(&tmux).await);
    assert!(peer.frames.iter().skip(1).all(|observe| !observe.complete), "by events alone");
}

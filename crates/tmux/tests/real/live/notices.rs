//! Every change is notified, and the connection disturbs no one.

use protocol::tmux::{HIDDEN_SESSION, TmuxTransport};
use tmux::live::{Live, LiveEvent, Notice};

use super::{next_matching, open, other, own, whole};
use crate::support::Rig;

async fn notice(live: &mut Live, wanted: Notice) {
    next_matching(live, |heard| (heard == LiveEvent::Notice(wanted)).then_some(())).await;
}

async fn changes_are_noticed(rig: &Rig, mut live: Live) {
    let created = rig.start("b", "exec sleep 1000").await;
    notice(&mut live, Notice::Sessions).await;
    let pane = created.pane.pane.to_string();
    rig.raw(&["rename-session", "-t", "=b:", "c"]);
    notice(&mut live, Notice::Session(created.session)).await;
    rig.raw(&["split-window", "-t", &pane, "sleep 1000"]);
    notice(&mut live, Notice::Window(created.window)).await;
    rig.raw(&["copy-mode", "-t", &pane]);
    notice(&mut live, Notice::Pane(created.pane.pane)).await;
    rig.raw(&["kill-session", "-t", "=c:"]);
    notice(&mut live, Notice::Sessions).await;
}

#[tokio::test]
async fn changes_of_other_sessions_are_noticed() {
    let (rig, _) = own().await;
    for means in [TmuxTransport::Native, TmuxTransport::Control] {
        let live = Live::open(&rig.device, means).await.unwrap();
        changes_are_noticed(&rig, live).await;
    }
    let mut live = open(&rig).await;
    let created = rig.start("b", "exec sleep 1000").await;
    notice(&mut live, Notice::Window(created.window)).await;
    let second = rig.raw(&["new-window", "-dP", "-F", "#{window_id}", "-t", "=b:", "sleep 1000"]);
    let second = second.trim_end().parse().unwrap();
    notice(&mut live, Notice::Window(second)).await;
    rig.raw(&["kill-window", "-t", "=b:1"]);
    notice(&mut live, Notice::Closed(second)).await;
}

#[tokio::test]
async fn changes_on_another_ones_server_are_noticed() {
    let (rig, _) = other().await;
    let live = open(&rig).await;
    changes_are_noticed(&rig, live).await;
}

#[tokio::test]
async fn clients_that_come_and_go_are_noticed() {
    let (rig, created) = own().await;
    let mut live = open(&rig).await;
    let target = created.session.to_string();
    let mut client = std::process::Command::new("tmux")
        .arg("-NCuS")
        .arg(&rig.device.socket)
        .args(["attach-session", "-t", &target])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    notice(&mut live, Notice::Session(created.session)).await;
    notice(&mut live, Notice::Clients).await;
    assert_eq!(whole(&mut live).await.sessions[&created.session].attached, 1);
    drop(client.stdin.take());
    notice(&mut live, Notice::Clients).await;
    assert_eq!(whole(&mut live).await.sessions[&created.session].attached, 0);
    client.wait().unwrap();
}

#[tokio::test]
async fn who_listens_is_not_noticed() {
    let (rig, _) = own().await;
    rig.start("b", "exec sleep 1000").await;
    let sizes = || rig.raw(&["list-panes", "-aF", "#{session_name} #{pane_width}x#{pane_height}"]);
    let (before, plain) = (sizes(), rig.device.observe().await.unwrap());
    for means in [TmuxTransport::Native, TmuxTransport::Control] {
        let mut live = Live::open(&rig.device, means).await.unwrap();
        assert_eq!(whole(&mut live).await, plain);
        assert_eq!(rig.device.observe().await.unwrap(), plain);
        assert!(plain.sessions.values().all(|session| session.attached == 0));
        let now = sizes();
        let others: String = now.split_inclusive('\n').filter(|line| !line.starts_with("_pool ")).collect();
        assert_eq!(others, before);
        assert_eq!(now.lines().count(), before.lines().count() + 1, "one hidden session: {now}");
        let hidden = format!("={HIDDEN_SESSION}:");
        let facts = [
            "display-message",
            "-p",
            "-t",
            &hidden,
            "#{session_attached} #{client_flags} #{session_windows}",
        ];
        // The one before may not have left yet.
        crate::support::until("it alone is attached there", || rig.raw(&facts).starts_with("1 ")).await;
    }
    crate::support::until("the hidden session has no process", || {
        rig.raw(&["list-panes", "-t", "=_pool:", "-F", "#{pane_dead}"]) == "1\n"
    })
    .await;
}

#[tokio::test]
async fn two_may_listen_at_once() {
    let (rig, _) = own().await;
    let (first, second) = tokio::join!(open(&rig), open(&rig));
    for mut live in [first, second] {
        changes_are_noticed(&rig, live_at_rest(&mut live).await.then_some(live).unwrap()).await;
    }
}

/// Drains the events so far; true if the server has one session.
async fn live_at_rest(live: &mut Live) -> bool {
    whole(live).await.sessions.len() == 1
}

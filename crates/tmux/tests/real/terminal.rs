//! Snapshots of a pane, input as from a keyboard, and resizing.

use tmux::{Answer, Created, PaneRef, Size};

use crate::support::{Rig, eventually};

/// Attaches a client, in a terminal of its own, to the session `a` of this rig.
async fn attach(rig: &Rig, how: &str) -> (Rig, Created) {
    let outer = Rig::new();
    let socket = rig.device.socket.display();
    let script = format!("unset TMUX TMUX_PANE; exec tmux -u -S '{socket}' attach-session {how} -t =a");
    let client = outer.start("outer", &script).await;
    eventually("the client is attached", async || {
        rig.device.observe().await.unwrap().sessions.values().any(|session| session.attached > 0)
    })
    .await;
    (outer, client)
}

#[tokio::test]
async fn a_glance_shows_the_pane_as_it_is() {
    let rig = Rig::new();
    let script =
        "printf '\\033]2;a title\\007\\033[?1049h\\033[2J\\033[3;5H\\033[31mred\\033[?25l'; exec sleep 1000";
    let pane = rig.start("a", script).await.pane;
    let snapshot = async || rig.device.snapshot(pane).await.unwrap();
    eventually("all is shown", async || !snapshot().await.cursor_shown).await;
    let seen = snapshot().await;
    assert_eq!((seen.answer, seen.size), (Answer::Done, Size { width: 80, height: 24 }));
    assert_eq!((seen.cursor, seen.alternate, seen.in_mode, seen.dead), ((7, 2), true, false, false));
    assert_eq!((seen.title.as_str(), seen.typed_at), ("a title", vec![]));
    let screen = String::from_utf8(seen.screen).unwrap();
    assert_eq!(screen.lines().count(), 24);
    assert!(screen.starts_with("\n\n    \x1b[31mred"), "{screen:?}");
    rig.raw(&["copy-mode", "-t", "%0"]);
    assert!(snapshot().await.in_mode);

    let gone = rig.device.snapshot(PaneRef { pane: protocol::ids::PaneId(99), ..pane }).await.unwrap();
    assert_eq!(gone.answer, Answer::Gone);
}

#[tokio::test]
async fn a_dead_pane_is_looked_at_too() {
    let rig = Rig::new();
    let pane = rig.ended("a").await;
    let seen = rig.device.snapshot(pane).await.unwrap();
    assert!(seen.answer == Answer::Done && seen.dead, "{seen:?}");
    assert!(seen.screen.starts_with(b"last words\n"), "{seen:?}");
    assert_eq!(rig.device.input(pane, b"x").await.unwrap(), Answer::Dead);
}

#[tokio::test]
async fn brackets_are_told_where_tmux_knows() {
    let rig = Rig::new();
    let pane = rig.start("a", "printf '\\033[?2004hon'; exec sleep 1000").await.pane;
    let snapshot = async || rig.device.snapshot(pane).await.unwrap();
    eventually("it is on", async || snapshot().await.screen.starts_with(b"on")).await;
    assert_ne!(snapshot().await.bracketed, Some(false));
}

#[tokio::test]
async fn who_types_is_seen_and_who_only_looks_is_not() {
    let rig = Rig::new();
    let pane = rig.start("a", "exec sleep 1000").await.pane;
    let other = rig.start("b", "exec sleep 1000").await.pane;
    let typed_at = async |pane| rig.device.snapshot(pane).await.unwrap().typed_at.into_iter().max();
    let (_onlooker, _) = attach(&rig, "-r").await;
    assert_eq!(typed_at(pane).await, None);
    let (user, client) = attach(&rig, "").await;
    eventually("somebody could type", async || typed_at(pane).await.is_some()).await;
    assert_eq!(typed_at(other).await, None, "nobody is there");
    let never_attached = async |pane| rig.device.snapshot(pane).await.unwrap().never_attached;
    assert!(never_attached(other).await && !never_attached(pane).await);
    let before = typed_at(pane).await;
    eventually("typing is noticed", async || {
        assert_eq!(user.device.keys(client.pane, &["x".parse().unwrap()]).await.unwrap(), Answer::Done);
        typed_at(pane).await > before
    })
    .await;
    // Also in a window in the background: it is the same session.
    rig.raw(&["new-window", "-t", "=a:", "sleep 1000"]);
    assert!(typed_at(pane).await.is_some());
}

#[tokio::test]
async fn input_arrives_exactly_in_copy_mode_too() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    let bytes: Vec<u8> = (0..=255).cycle().take(64 << 10).collect();
    assert_eq!(rig.device.input(pane, &bytes).await.unwrap(), Answer::Done);
    assert!(rig.recorded(bytes.len()).await == bytes);
    rig.raw(&["copy-mode", "-t", "%0"]);
    assert_eq!(rig.device.input(pane, b"\x1b[A\0\xff\n").await.unwrap(), Answer::Done);
    assert!(rig.recorded(bytes.len() + 6).await.ends_with(b"\x1b[A\0\xff\n"));
    rig.raw(&["select-pane", "-d", "-t", "%0"]);
    assert_eq!(rig.device.input(pane, b"lost").await.unwrap(), Answer::InputOff);
    assert!(rig.device.input(pane, b"").await.is_err());
    assert_eq!(rig.raw(&["list-buffers"]), "");
}

#[tokio::test]
async fn input_is_never_bracketed() {
    let rig = Rig::new();
    let script = "stty raw -echo; printf '\\033[?2004hon'; exec cat >\"$d/out\"";
    let pane = rig.start("a", script).await.pane;
    let snapshot = async || rig.device.snapshot(pane).await.unwrap();
    eventually("it is on", async || snapshot().await.screen.starts_with(b"on")).await;
    assert_eq!(rig.device.input(pane, b"hi").await.unwrap(), Answer::Done);
    assert_eq!(rig.device.paste(pane, rig.token(), b"hi").await.unwrap(), Answer::Done);
    assert_eq!(rig.recorded(16).await, b"hi\x1b[200~hi\x1b[201~");
}

#[tokio::test]
async fn a_size_holds_until_somebody_attaches() {
    let rig = Rig::new();
    let pane = rig.start("a", "exec sleep 1000").await.pane;
    let size = async || rig.device.snapshot(pane).await.unwrap().size;
    let small = Size { width: 61, height: 17 };
    assert_eq!(rig.device.resize(pane, small).await.unwrap(), Answer::Done);
    assert_eq!(size().await, small);
    let (user, client) = attach(&rig, "").await;
    eventually("it has the size of who attached", async || size().await.width == 80).await;
    let attached = size().await;
    assert_eq!(rig.device.resize(pane, small).await.unwrap(), Answer::Attached);
    assert_eq!(size().await, attached);
    assert_eq!(user.device.kill_pane(client.pane).await.unwrap(), Answer::Done);
    eventually("it is free again", async || rig.device.resize(pane, small).await.unwrap() == Answer::Done)
        .await;
    assert_eq!(size().await, small);
}

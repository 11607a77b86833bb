//! Only the intended pane is ever touched.

use protocol::{PaneId, Tag};
use tmux::act::Lines;
use tmux::{Adopt, Answer, LogOptions, PaneRef, Size, TmuxError};

use crate::support::Rig;

/// Returns the answers of every guarded effect on this pane.
async fn answers(rig: &Rig, pane: PaneRef, session: protocol::ids::TmuxSessionId) -> Vec<Answer> {
    let device = &rig.device;
    let name = "renamed".parse().unwrap();
    vec![
        device.paste(pane, rig.token(), b"x").await.unwrap(),
        device.enter(pane).await.unwrap(),
        device.input(pane, b"x").await.unwrap(),
        device.snapshot(pane).await.unwrap().answer,
        device.keys(pane, &["x".parse().unwrap()]).await.unwrap(),
        device.rename(pane, session, &name).await.unwrap(),
        device.resize(pane, Size { width: 10, height: 10 }).await.unwrap(),
        device.clear_history(pane).await.unwrap(),
        device.capture(pane, Lines::All, false).await.unwrap().0,
        device.release(pane, false).await.unwrap(),
        device.kill_pane(pane).await.unwrap(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_tag_pane_or_server_is_refused() {
    let rig = Rig::new();
    let created = rig.recorder("a").await;
    let right = created.pane;
    let mut restarted = right;
    restarted.server.started_at += 1;
    let mut other = right;
    other.server.pid += 1;
    let before = rig.device.observe().await.unwrap();
    let wrong = [
        (PaneRef { tag: Tag([1; 16]), ..right }, Answer::NotOurs),
        (PaneRef { pane: PaneId(99), ..right }, Answer::Gone),
        (restarted, Answer::OtherServer),
        (other, Answer::OtherServer),
    ];
    for (pane, expected) in wrong {
        let all = answers(&rig, pane, created.session).await;
        assert_eq!(all, vec![expected; all.len()]);
    }
    assert_eq!(rig.device.observe().await.unwrap(), before);
    assert_eq!(rig.device.paste(right, rig.token(), b"!").await.unwrap(), Answer::Done);
    assert_eq!(rig.recorded(1).await, b"!");
    assert_eq!(rig.raw(&["list-buffers"]), "");
}

#[tokio::test]
async fn t3_recycled_ids_of_a_new_server_are_not_the_old_pane() {
    let rig = Rig::new();
    let old = rig.start("a", "exec sleep 1000").await.pane;
    rig.signal(old, nix::sys::signal::Signal::SIGKILL);
    crate::support::eventually("the server is dead", async || {
        matches!(rig.device.observe().await, Err(TmuxError::NoServer))
    })
    .await;
    let new = rig.start("a", "exec sleep 1000").await.pane;
    assert_eq!((new.pane, new.tag), (old.pane, old.tag), "only the server differs");
    assert_eq!(rig.device.kill_pane(old).await.unwrap(), Answer::OtherServer);
    assert_eq!(rig.device.kill_pane(new).await.unwrap(), Answer::Done);
}

#[tokio::test]
async fn a_pane_split_off_ours_is_not_ours() {
    let rig = Rig::new();
    let pane = rig.start("a", "exec sleep 1000").await.pane;
    rig.raw(&["split-window", "-d", "-t", "%0", "sleep 1000"]);
    let split = PaneRef { pane: PaneId(1), ..pane };
    assert_eq!(rig.device.kill_pane(split).await.unwrap(), Answer::NotOurs);
    assert_eq!(rig.device.kill_pane(pane).await.unwrap(), Answer::Done);
    assert_eq!(rig.device.kill_pane(pane).await.unwrap(), Answer::Gone, "idempotent");
    assert_eq!(rig.device.observe().await.unwrap().panes.len(), 1, "the user's own pane stays");
}

#[tokio::test]
async fn a_tampered_tag_is_read_as_none_and_forges_nothing() {
    let rig = Rig::new();
    let pane = rig.start("a", "exec sleep 1000").await.pane;
    for value in
        ["x\nP\t$0\t@0\t%9\t1\t0\t\t\t0\t1\t1\t-", "x\nP\t$0\t@0\t%9\t1\t0\t\t\t0\t1\t1\t-\nzzz", "", "é"]
    {
        rig.raw(&["set-option", "-p", "-t", "%0", "@pool_id", value]);
        let listing = rig.device.observe().await.unwrap();
        assert_eq!(listing.panes.len(), 1);
        assert_eq!(listing.panes[&pane.pane].tag, None);
        assert_eq!(rig.device.kill_pane(pane).await.unwrap(), Answer::NotOurs);
    }
}

#[tokio::test]
async fn a_name_never_hits_a_longer_one() {
    let rig = Rig::new();
    let long = rig.start("project2", "exec sleep 1000").await;
    let short = rig.start("project", "exec sleep 1000").await;
    let listing = rig.device.observe().await.unwrap();
    assert_eq!(listing.panes[&long.pane.pane].tag, Some(long.pane.tag));
    assert_eq!(listing.panes[&short.pane.pane].tag, Some(short.pane.tag));
    assert_ne!(long.pane.tag, short.pane.tag);
    assert_eq!(rig.device.kill_pane(short.pane).await.unwrap(), Answer::Done);
    let again = rig.device.clients(short.pane, short.session).await;
    assert!(matches!(again, Err(TmuxError::NotFound(_))));
    assert!(rig.device.observe().await.unwrap().panes.contains_key(&long.pane.pane));
}

#[tokio::test]
async fn a_program_that_a_person_started_in_our_pane_is_not_ours() {
    let rig = Rig::new();
    let created = rig.recorder("a").await;
    let (ours, target) = (created.pane, created.pane.pane.to_string());
    assert_eq!(rig.device.disown(ours).await.unwrap(), Answer::NotOurs, "its own program");
    rig.raw(&["respawn-pane", "-k", "-t", &target, "exec sleep 1000"]);
    let listing = rig.device.observe().await.unwrap();
    assert_eq!((listing.panes[&ours.pane].tag, listing.panes[&ours.pane].detached), (None, false));
    let all = answers(&rig, ours, created.session).await;
    assert_eq!(all, vec![Answer::NotOurs; all.len()]);
    assert_eq!(rig.device.disown(PaneRef { tag: Tag([9; 16]), ..ours }).await.unwrap(), Answer::NotOurs);
    assert_eq!(rig.raw(&["display-message", "-p", "-t", &target, "#{pane_pipe}"]), "1\n");
    assert_eq!(rig.device.disown(ours).await.unwrap(), Answer::Done);
    assert_eq!(rig.raw(&["display-message", "-p", "-t", &target, "#{pane_pipe} #{@pool_id}"]), "0 \n");
    assert_eq!(rig.device.disown(ours).await.unwrap(), Answer::NotOurs);
    // A pane that was given back can be adopted like any other.
    let adopt = Adopt {
        tag: Tag([2; 16]),
        token: rig.token(),
        init: rig.path("reaper"),
        log: LogOptions::new(rig.path("log")),
        replace_pipe: false,
    };
    let adopted = rig.device.adopt(ours.server, created.session, ours.pane, &adopt).await.unwrap();
    assert_eq!(adopted, Answer::Done);
    let tag = rig.device.observe().await.unwrap().panes[&ours.pane].tag;
    assert_eq!(tag, Some(adopt.tag));
    assert_eq!(rig.device.kill_pane(PaneRef { tag: adopt.tag, ..ours }).await.unwrap(), Answer::Done);
}

//! Adoption of a user's pane; nothing else about it changes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use protocol::{PaneId, Tag, TmuxSessionId};
use tmux::act::Lines;
use tmux::{Adopt, Answer, LogOptions, PaneRef, ServerRef};

use crate::support::{Rig, until};

const TAG: Tag = Tag([0xad; 16]);

/// Returns a user's session next to one of the pool, and the parameters of its adoption.
async fn rig() -> (Rig, ServerRef, TmuxSessionId, PaneId, Adopt) {
    let rig = Rig::new();
    let server = rig.start("ours", "exec sleep 1000").await.pane.server;
    let ids = rig.raw(&["new-session", "-dP", "-F", "#{session_id} #{pane_id}", "-s", "their own", "cat"]);
    let (session, pane) = ids.trim_end().split_once(' ').unwrap();
    let (session, pane) = (session.parse().unwrap(), pane.parse().unwrap());
    let adopt = Adopt {
        tag: TAG,
        token: rig.token(),
        init: rig.path("init"),
        log: LogOptions::new(rig.dir.path()),
        replace_pipe: false,
    };
    (rig, server, session, pane, adopt)
}

fn facts(rig: &Rig, session: TmuxSessionId) -> String {
    let target = session.to_string();
    rig.raw(&["show-options", "-t", &target])
        + &rig.raw(&["show-options", "-w", "-t", &target])
        + &rig.raw(&["list-panes", "-t", &target, "-F", "#{session_name} #{window_name} #{pane_width}"])
}

#[tokio::test]
async fn an_adopted_pane_has_a_tag_and_a_log_and_is_driven() {
    let (rig, server, session, pane, mut adopt) = rig().await;
    let hostile = rig.dir.path().join(OsStr::from_bytes(b"a 'b\"c$HOME`id`#{pid}%d\\;\xe9\xc3\xa9"));
    fs::create_dir(&hostile).unwrap();
    adopt.log.dir.clone_from(&hostile);
    let before = facts(&rig, session);
    assert_eq!(rig.device.adopt(server, session, pane, &adopt).await.unwrap(), Answer::Done);
    assert_eq!(facts(&rig, session), format!("@pool_session \"{TAG} their own\"\n{before}"));
    let ours = PaneRef { server, pane, tag: TAG };
    assert_eq!(rig.device.observe().await.unwrap().panes[&pane].tag, Some(TAG));
    assert_eq!(rig.device.paste(ours, rig.token(), b"hello").await.unwrap(), Answer::Done);
    until("the log is written", || fs::read(hostile.join("log")).is_ok_and(|log| log == b"hello")).await;
    assert_eq!(rig.device.adopt(server, session, pane, &adopt).await.unwrap(), Answer::Done, "again");
    assert_eq!(rig.device.capture(ours, Lines::Last(1), false).await.unwrap().1, b"hello\n");
    assert_eq!(rig.device.release(ours, true).await.unwrap(), Answer::Done);
    assert_eq!(
        facts(&rig, session),
        format!("@pool_session \"{TAG} their own\"\n{before}"),
        "its user's options stay"
    );
    let listing = rig.device.observe().await.unwrap();
    let left = &listing.panes[&pane];
    assert_eq!((left.tag, left.detached), (None, true));
    assert!(listing.sessions[&session].pooled);
    assert_eq!(rig.device.adopt(server, session, pane, &adopt).await.unwrap(), Answer::Done, "when asked");
    assert!(!rig.device.observe().await.unwrap().panes[&pane].detached);
}

#[tokio::test]
async fn a_pipe_of_the_users_own_is_replaced_only_when_asked() {
    let (rig, server, session, pane, mut adopt) = rig().await;
    rig.raw(&["pipe-pane", "-t", &pane.to_string(), &format!("cat >'{}'", rig.path("theirs").display())]);
    let told = rig.device.pane_use(server, pane).await.unwrap();
    assert!(told.piped && told.active_at > 0);
    assert_eq!(rig.device.adopt(server, session, pane, &adopt).await.unwrap(), Answer::Piped);
    let listing = rig.device.observe().await.unwrap();
    assert_eq!((listing.panes[&pane].tag, listing.sessions[&session].pooled), (None, false));
    rig.raw(&["send-keys", "-t", &pane.to_string(), "hello"]);
    until("the pipe goes on", || fs::read(rig.path("theirs")).is_ok_and(|log| log == b"hello")).await;
    adopt.replace_pipe = true;
    assert_eq!(rig.device.adopt(server, session, pane, &adopt).await.unwrap(), Answer::Done);
    let ours = PaneRef { server, pane, tag: TAG };
    assert_eq!(rig.device.paste(ours, rig.token(), b" there").await.unwrap(), Answer::Done);
    until("the log is written", || fs::read(rig.path("log")).is_ok_and(|log| log == b" there")).await;
}

#[tokio::test]
async fn only_the_pane_that_is_meant_is_adopted() {
    let (rig, server, session, pane, adopt) = rig().await;
    let try_on = async |server, session, pane| rig.device.adopt(server, session, pane, &adopt).await.unwrap();
    let mut other = server;
    other.started_at += 1;
    assert_eq!(try_on(other, session, pane).await, Answer::OtherServer);
    assert_eq!(try_on(server, session, PaneId(99)).await, Answer::Gone);
    assert_eq!(try_on(server, TmuxSessionId(99), pane).await, Answer::Gone);
    assert_eq!(try_on(server, TmuxSessionId(0), pane).await, Answer::Gone, "not in that session");
    assert_eq!(try_on(server, TmuxSessionId(0), PaneId(0)).await, Answer::NotOurs, "has another tag");
    rig.raw(&["set-option", "-w", "-t", &session.to_string(), "remain-on-exit", "on"]);
    rig.raw(&["send-keys", "-t", &pane.to_string(), "C-d"]);
    let dead = PaneRef { server, pane, tag: TAG };
    rig.dead(dead).await;
    assert_eq!(try_on(server, session, pane).await, Answer::Dead);
    assert_eq!(rig.device.observe().await.unwrap().panes[&pane].tag, None);
}

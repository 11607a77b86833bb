//! Creating, observing, renaming and releasing sessions.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use protocol::tmux::Server;
use protocol::{ProcId, TmuxSessionId};
use tmux::act::{Lines, retired_name};
use tmux::{Answer, Create, LogOptions, Size, TmuxError, listing};

use crate::support::{Rig, eventually, executable, until};

/// Starts a client in control mode, which ends with its input.
fn control_client(rig: &Rig, words: &[&str]) -> Child {
    let mut command = Command::new("tmux");
    command.arg("-NCS").arg(&rig.device.socket).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn a_created_session_is_observed_whole() {
    let rig = Rig::new();
    let created = rig.start("a-b_c", "exec sleep 1000").await;
    let listing = rig.device.observe().await.unwrap();
    assert_eq!(listing.server, created.pane.server);
    let session = &listing.sessions[&created.session];
    assert_eq!((session.name.as_str(), session.attached), ("a-b_c", 0));
    let pane = &listing.panes[&created.pane.pane];
    assert_eq!((pane.session, pane.window, pane.pid), (created.session, created.window, created.pid));
    assert_eq!((pane.tag, pane.dead, pane.in_mode), (Some(created.pane.tag), false, false));
    assert_eq!((pane.width, pane.height), (80, 24));
    let state = listing::observed_state(Ok(listing), |pid| Some(ProcId { pid, start: 7 }));
    assert!(matches!(state.server, Server::Up(id) if id.process.pid == created.pane.server.pid));
    assert_eq!(state.panes[&created.pane.pane].process, Some(ProcId { pid: created.pid, start: 7 }));
    assert_eq!(rig.raw(&["show-options", "-gv", "history-limit"]), "2000\n");
    let taken = rig.device.create(&rig.job("a-b_c", "exit")).await.unwrap_err();
    assert!(matches!(taken, TmuxError::Duplicate(_)) && !taken.in_doubt());
}

#[tokio::test]
async fn what_a_hook_of_the_servers_owner_adds_gets_no_tag() {
    let rig = Rig::new();
    rig.start("keeper", "exec sleep 1000").await;
    for (n, hook) in ["split-window", "split-window -b", "new-window"].into_iter().enumerate() {
        rig.raw(&["set-hook", "-g", "after-new-session", hook]);
        let created = rig.start(&format!("s{n}"), "exec sleep 1000").await;
        let listing = rig.device.observe().await.unwrap();
        let of_session = listing.panes.iter().filter(|(_, pane)| pane.session == created.session);
        for (id, pane) in of_session {
            assert_eq!(pane.tag, Some(created.pane.tag).filter(|_| *id == created.pane.pane), "{hook}");
        }
        assert_eq!(listing.panes[&created.pane.pane].pid, created.pid, "{hook}");
    }
}

#[tokio::test]
async fn a_session_to_which_nobody_is_attached_stays() {
    let rig = Rig::new();
    rig.start("keeper", "exec sleep 1000").await;
    rig.raw(&["set-option", "-g", "destroy-unattached", "on"]);
    for hook in ["", "split-window"] {
        rig.raw(&["set-hook", "-g", "after-new-session", hook]);
        let created = rig.start(&format!("web{}", hook.len()), "exec sleep 1000").await;
        let listing = rig.device.observe().await.unwrap();
        assert!(listing.sessions.contains_key(&created.session), "{hook}");
    }
}

#[tokio::test]
async fn hostile_paths_are_only_paths() {
    let rig = Rig::new();
    let canary = rig.path("canary");
    let hostile =
        format!("a b'c\"d$HOME`id`#{{pid}}#[x]##%d%%;-\\#(touch {})", canary.display()).replace('/', "_");
    for (i, end) in ["", ";", "\\;", "\\", "#", "%"].into_iter().enumerate() {
        let dir = rig.path(&format!("{hostile}{end}"));
        fs::create_dir(&dir).unwrap();
        let plain = rig.job(&format!("s{i}"), "echo in the log; exec sleep 1000");
        let job = dir.join(format!("job{end}"));
        fs::copy(&plain.job, &job).unwrap();
        let init = dir.join(format!("init{end}"));
        executable(&init, &fs::read_to_string(&plain.init).unwrap());
        let create = Create { init, job, log: LogOptions::new(dir.clone()), ..plain };
        rig.device.create(&create).await.unwrap();
        until("the log is written", || {
            fs::read(dir.join("log")).is_ok_and(|log| log.starts_with(b"in the log"))
        })
        .await;
    }
    assert!(!canary.exists() && !rig.path("_canary").exists());
}

#[tokio::test]
async fn a_program_that_ends_at_once_is_kept_with_its_status() {
    let rig = Rig::new();
    rig.start("keeper", "exec sleep 1000").await;
    rig.raw(&["set-option", "-g", "remain-on-exit", "off"]);
    let mut panes = Vec::new();
    for i in 0..10 {
        panes.push(rig.start(&format!("s{i}"), "exit 7").await.pane);
    }
    for pane in panes {
        // Some builds of tmux miss the exit of a pane's process until another child exits.
        eventually("the status is there", async || {
            rig.signal(pane, nix::sys::signal::Signal::SIGCHLD);
            let listing = rig.device.observe().await.unwrap();
            let found = &listing.panes[&pane.pane];
            found.dead && found.exit_status == Some(7) && found.tag == Some(pane.tag)
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_without_sessions_is_a_complete_empty_listing() {
    let rig = Rig::new();
    let pane = rig.start("a", "exec sleep 1000").await.pane;
    assert_eq!(rig.device.kill_pane(pane).await.unwrap(), Answer::Done);
    let listing = rig.device.observe().await.unwrap();
    assert_eq!(listing.server, pane.server);
    assert!(listing.sessions.is_empty() && listing.panes.is_empty());
    assert_eq!(rig.device.kill_pane(pane).await.unwrap(), Answer::Gone);
    assert_eq!(rig.device.paste(pane, rig.token(), b"x").await.unwrap(), Answer::Gone);
    let again = rig.start("a", "exec sleep 1000").await;
    assert_eq!(again.pane.server, pane.server);
}

#[tokio::test]
async fn no_server_is_told_from_the_rest_and_none_is_started() {
    let mut rig = Rig::new();
    let absent = rig.device.observe().await;
    assert!(matches!(absent, Err(TmuxError::NoServer)));
    assert_eq!(listing::observed_state(absent, |_| None).server, Server::Absent);
    drop(UnixListener::bind(&rig.device.socket).unwrap());
    assert!(matches!(rig.device.observe().await, Err(TmuxError::NoServer)), "a stale socket");
    rig.device.start_server = false;
    let refused = rig.device.create(&rig.job("a", "exit")).await.unwrap_err();
    assert!(matches!(refused, TmuxError::NoServer) && !refused.in_doubt());
    rig.device.socket = rig.path("missing/socket");
    rig.device.start_server = true;
    let refused = rig.device.create(&rig.job("a", "exit")).await.unwrap_err();
    assert!(matches!(refused, TmuxError::Refused(_) | TmuxError::NoServer), "{refused:?}");
}

#[tokio::test]
async fn grouped_sessions_show_a_pane_once() {
    let rig = Rig::new();
    let created = rig.start("a", "exec sleep 1000").await;
    rig.raw(&["new-session", "-d", "-t", "=a", "-s", "odd name; #{pid}"]);
    let listing = rig.device.observe().await.unwrap();
    assert_eq!((listing.sessions.len(), listing.panes.len()), (2, 1));
    assert_eq!(listing.panes[&created.pane.pane].session, created.session);
    assert!(listing.sessions.contains_key(&TmuxSessionId(created.session.0 + 1)));
}

#[tokio::test]
async fn a_session_is_renamed_resized_and_captured() {
    let rig = Rig::new();
    let script = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; printf '\\033[31mred'; exec sleep 1000";
    let created = rig.start("a", script).await;
    let pane = created.pane;
    let capture = async |lines, ansi| {
        let (answer, text) = rig.device.capture(pane, lines, ansi).await.unwrap();
        assert_eq!(answer, Answer::Done);
        String::from_utf8(text).unwrap()
    };
    eventually("the end is shown", async || capture(Lines::Visible, false).await.contains("red")).await;
    assert_eq!(capture(Lines::Last(2), false).await, "line 299\nred\n");
    assert_eq!(capture(Lines::Last(100), false).await.lines().next(), Some("line 201"));
    assert!(capture(Lines::All, false).await.starts_with("line 0\nline 1\n"));
    assert!(capture(Lines::Last(1), true).await.contains("\x1b[31mred"));

    let size = Size { width: 100, height: 30 };
    assert_eq!(rig.device.resize(pane, size).await.unwrap(), Answer::Done);
    rig.start("taken", "exec sleep 1000").await;
    let taken = rig.device.rename(pane, created.session, &"taken".parse().unwrap()).await;
    assert!(matches!(taken, Err(TmuxError::Duplicate(_))));
    let stale = retired_name(pane.tag);
    assert_eq!(rig.device.rename(pane, created.session, &stale).await.unwrap(), Answer::Done);
    let listing = rig.device.observe().await.unwrap();
    assert_eq!(listing.sessions[&created.session].name, stale.as_str());
    let found = &listing.panes[&pane.pane];
    assert_eq!((found.width, found.height), (100, 30));
    assert_eq!(rig.raw(&["display-message", "-p", "-t", "%0", "#{window_name}"]).trim_end(), stale.as_str());

    assert_eq!(rig.device.clear_history(pane).await.unwrap(), Answer::Done);
    assert!(capture(Lines::All, false).await.lines().count() <= 30);
}

#[tokio::test]
async fn a_released_pane_is_its_users() {
    let rig = Rig::new();
    let alive = rig.start("a", "exec sleep 1000").await.pane;
    let dead = rig.start("b", "exit 0").await.pane;
    rig.dead(dead).await;
    for pane in [alive, dead] {
        assert_eq!(rig.device.release(pane, false).await.unwrap(), Answer::Done);
        assert_eq!(rig.device.release(pane, false).await.unwrap(), Answer::NotOurs);
    }
    let listing = rig.device.observe().await.unwrap();
    for pane in [alive, dead] {
        let pane = &listing.panes[&pane.pane];
        assert_eq!((pane.tag, pane.detached), (None, true));
    }
    let left = rig.raw(&["display-message", "-p", "-t", "%0", "#{pane_pipe} #{remain-on-exit}"]);
    assert_eq!(left.trim_end(), "0 off");
}

#[tokio::test]
async fn a_client_of_a_session_of_the_same_group_is_attached_too() {
    let rig = Rig::new();
    let created = rig.start("web", "exec sleep 1000").await;
    let mut view = control_client(&rig, &["new-session", "-t", "=web", "-s", "view"]);
    eventually("it is attached", async || {
        let sessions = rig.device.observe().await.unwrap().sessions;
        sessions.get(&created.session).is_some_and(|session| session.attached == 1)
    })
    .await;
    assert_eq!(rig.device.kill_unattended(created.pane).await.unwrap(), Answer::Attached);
    drop(view.stdin.take());
    view.wait().unwrap();
}

#[tokio::test]
async fn a_client_that_shows_a_linked_window_is_attached_too() {
    let rig = Rig::new();
    let created = rig.start("web", "exec sleep 1000").await;
    rig.raw(&["new-session", "-d", "-s", "view", "exec sleep 1000"]);
    rig.raw(&["link-window", "-s", "=web:", "-t", "=view:9"]);
    let attached = async || rig.device.observe().await.unwrap().sessions[&created.session].attached;
    assert_eq!(attached().await, 0);
    let mut view = control_client(&rig, &["attach-session", "-t", "=view:9"]);
    eventually("it is attached", async || attached().await == 1).await;
    rig.raw(&["select-window", "-t", "=view:{start}"]);
    eventually("it shows another window", async || attached().await == 0).await;
    drop(view.stdin.take());
    view.wait().unwrap();
}

#[tokio::test]
async fn a_session_of_a_person_with_our_pane_keeps_its_name() {
    let rig = Rig::new();
    let created = rig.start("web", "exec sleep 1000").await;
    rig.raw(&["new-session", "-d", "-s", "main", "exec sleep 1000"]);
    rig.raw(&["join-pane", "-d", "-s", "=web:", "-t", "=main:"]);
    let session = rig.device.observe().await.unwrap().panes[&created.pane.pane].session;
    assert_ne!(session, created.session);
    let named = rig.device.rename(created.pane, session, &"other".parse().unwrap()).await.unwrap();
    assert_eq!(
        (named, rig.raw(&["list-sessions", "-F", "#{session_name}"]).as_str()),
        (Answer::Done, "main\n")
    );
    assert_eq!(rig.device.clients(created.pane, session).await.unwrap(), []);
}

#[tokio::test]
async fn a_session_is_named_by_the_incarnation_for_which_it_was_made() {
    let rig = Rig::new();
    let one = rig.start("one", "exec sleep 1000").await;
    let two = rig.start("two", "exec sleep 1000").await;
    rig.raw(&["join-pane", "-d", "-s", "=two:", "-t", "=one:"]);
    let shown = async || {
        let found = rig.device.observe().await.unwrap().sessions.remove(&one.session).unwrap();
        (found.name, found.made_for == Some(one.pane.tag), found.renamed)
    };
    let rename = async |pane, name: &str| {
        rig.device.rename(pane, one.session, &name.parse().unwrap()).await.unwrap();
        shown().await
    };
    assert_eq!(
        rename(two.pane, "other").await,
        ("one".to_owned(), true, false),
        "it was made for another one"
    );
    assert_eq!(rename(one.pane, "uno").await, ("uno".to_owned(), true, false));
    rig.raw(&["rename-session", "-t", "=uno", "ours, and #{pid}"]);
    let (name, is_its_own, renamed) = shown().await;
    assert!(name.starts_with("ours, and") && is_its_own && renamed, "{name}");
    assert_eq!(rename(one.pane, "one").await, ("one".to_owned(), true, false));
}

#[tokio::test]
async fn a_session_has_its_own_size_while_a_terminal_is_attached_to_another() {
    let rig = Rig::new();
    let other = rig.start("a", "exec sleep 1000").await;
    let mut attached = control_client(&rig, &["attach-session", "-t", &other.session.to_string()]);
    let size = |name: &str| {
        rig.raw(&["display-message", "-p", "-t", name, "#{window_width}x#{window_height} #{window-size}"])
    };
    let mut input = attached.stdin.take().unwrap();
    let mut told = async || {
        // The command has no effect before the client is attached.
        input.write_all(b"refresh-client -C 70x20\n").unwrap();
        size("=a:") == "70x20 latest\n"
    };
    eventually("it has the terminal's size", &mut told).await;
    rig.start("b", "exec sleep 1000").await;
    assert_eq!(size("=b:"), "80x24 latest\n");
    drop(input);
    attached.wait().unwrap();
}

#[tokio::test]
async fn attached_clients_are_listed_and_switched() {
    let rig = Rig::new();
    let from = rig.start("a", "exec sleep 1000").await;
    let to = rig.start("b", "exec sleep 1000").await;
    let server = from.pane.server;
    let mut attached = control_client(&rig, &["attach-session", "-t", &from.session.to_string()]);
    eventually("the client is attached", async || {
        rig.device.clients(from.pane, from.session).await.unwrap().len() == 1
    })
    .await;
    let client = rig.device.clients(from.pane, from.session).await.unwrap().remove(0);
    assert_eq!((client.pid, client.control, client.read_only), (attached.id(), true, false));
    rig.device.switch_client(server, &client.name, to.session).await.unwrap();
    assert!(rig.device.clients(from.pane, from.session).await.unwrap().is_empty());
    assert_eq!(rig.device.clients(to.pane, to.session).await.unwrap(), std::slice::from_ref(&client));
    assert_eq!(rig.device.observe().await.unwrap().sessions[&to.session].attached, 1);
    let nobody = rig.device.switch_client(server, "no;body\"$", from.session).await;
    assert!(matches!(nobody, Err(TmuxError::NotFound(_))), "{nobody:?}");
    let mut old = server;
    old.started_at -= 1;
    assert!(matches!(
        rig.device.switch_client(old, &client.name, from.session).await,
        Err(TmuxError::NotFound(_))
    ));
    drop(attached.stdin.take());
    attached.wait().unwrap();
}

#[tokio::test]
async fn only_the_pools_own_server_is_told_to_end_without_sessions() {
    let mut rig = Rig::new();
    let created = rig.start("a", "exec sleep 1000").await;
    rig.raw(&["set-option", "-s", "exit-empty", "off"]);
    rig.raw(&["kill-session", "-t", &created.session.to_string()]);
    rig.device.end_if_empty().await.unwrap();
    assert_eq!(rig.raw(&["show-options", "-sv", "exit-empty"]), "off\n", "it is its user's");
    rig.device.own = true;
    rig.device.end_if_empty().await.unwrap();
    let ended = async || matches!(rig.device.observe().await, Err(TmuxError::NoServer));
    eventually("its end", ended).await;
}

//! Typed text arrives byte for byte, or not at all.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use tmux::{Answer, Key, Receipt, TmuxError};

use crate::support::{Rig, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i1_every_text_arrives_exactly() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    let canary = rig.path("canary");
    let run = format!("#(touch {})", canary.display());
    let big: String = (0..256 << 10).map(|i| char::from(b' ' + (i % 95) as u8)).collect();
    let texts = [
        "x",
        ";",
        "ends;",
        "a ; kill-server",
        "-",
        "-t %0",
        "--",
        "#{pid}",
        &run,
        "$(id) `id` $HOME ~",
        "\\",
        "\\;",
        "'\"",
        "%d %H",
        "línea ü 漢字 👩‍👩‍👧\u{301}",
        "two\nlines\n\ttab",
        "trailing \n",
        &"y".repeat(4096),
        &big,
    ];
    let mut expected = Vec::new();
    for text in texts {
        assert_eq!(rig.device.paste(pane, rig.token(), text.as_bytes()).await.unwrap(), Answer::Done);
        expected.extend_from_slice(text.as_bytes());
        let got = rig.recorded(expected.len()).await;
        assert!(got == expected, "{:?}", text.chars().take(60).collect::<String>());
    }
    assert!(!canary.exists());
    assert_eq!(rig.raw(&["list-buffers"]), "", "no buffer stays behind");
}

#[tokio::test]
async fn every_byte_arrives_exactly() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(rig.device.paste(pane, rig.token(), &bytes).await.unwrap(), Answer::Done);
    assert_eq!(rig.recorded(256).await, bytes);
}

#[tokio::test]
async fn a_paste_is_bracketed_where_the_program_asks_and_enter_is_not() {
    let rig = Rig::new();
    let script = "stty raw -echo; printf '\\033[?2004h'; touch \"$d/ready\"; exec cat >\"$d/out\"";
    let pane = rig.start("a", script).await.pane;
    let on = || rig.raw(&["capture-pane", "-p", "-t", "%0"]);
    crate::support::until("the program runs", || rig.path("ready").exists() && on().len() > 1).await;
    // The mode is not visible from outside in every version: paste until it is on.
    let mut seen = Vec::new();
    crate::support::eventually("brackets", async || {
        assert_eq!(rig.device.paste(pane, rig.token(), b"hi").await.unwrap(), Answer::Done);
        seen = rig.recorded(seen.len() + 2).await;
        seen.ends_with(b"\x1b[200~hi\x1b[201~")
    })
    .await;
    assert_eq!(rig.device.enter(pane).await.unwrap(), Answer::Done);
    assert!(rig.recorded(seen.len() + 1).await.ends_with(b"\x1b[201~\r"));
}

#[tokio::test]
async fn nothing_is_pasted_for_nothing() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    rig.raw(&["set-buffer", "somebody else's"]);
    let refused = rig.device.paste(pane, rig.token(), b"").await.unwrap_err();
    assert!(matches!(refused, TmuxError::Refused(_)) && !refused.in_doubt());
    assert_eq!(rig.device.paste(pane, rig.token(), b"!").await.unwrap(), Answer::Done);
    assert_eq!(rig.recorded(1).await, b"!");
}

#[tokio::test]
async fn keys_arrive_by_name() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    let mut names: Vec<String> =
        ["C-c", "Enter", "Escape", "F1", "M-x", "Up", "Tab", "C-[", "é"].map(str::to_owned).into();
    let visible: Vec<u8> = (b'!'..=b'~').collect();
    names.extend(visible.iter().map(|byte| char::from(*byte).to_string()));
    let keys: Vec<Key> = names.iter().map(|name| name.parse().unwrap()).collect();
    assert_eq!(rig.device.keys(pane, &keys).await.unwrap(), Answer::Done);
    let expected = [b"\x03\r\x1b\x1bOP\x1bx\x1b[A\t\x1b", "é".as_bytes(), &visible].concat();
    assert_eq!(rig.recorded(expected.len()).await, expected);
}

#[tokio::test]
async fn a_mode_swallows_nothing() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    rig.raw(&["copy-mode", "-t", "%0"]);
    assert_eq!(rig.device.paste(pane, rig.token(), b"lost").await.unwrap(), Answer::InMode);
    assert_eq!(rig.device.keys(pane, &["x".parse().unwrap()]).await.unwrap(), Answer::InMode);
    assert_eq!(rig.device.enter(pane).await.unwrap(), Answer::Done);
    rig.raw(&["send-keys", "-t", "%0", "-X", "cancel"]);
    rig.raw(&["select-pane", "-d", "-t", "%0"]);
    assert_eq!(rig.device.paste(pane, rig.token(), b"lost").await.unwrap(), Answer::InputOff);
    assert_eq!(rig.device.enter(pane).await.unwrap(), Answer::InputOff);
    assert_eq!(rig.recorded(1).await, b"\r");
    assert_eq!(rig.raw(&["list-buffers"]), "");
}

#[tokio::test]
async fn a_dead_pane_takes_nothing_and_the_server_lives() {
    let rig = Rig::new();
    let keeper = rig.start("keeper", "exec sleep 1000").await.pane;
    let pane = rig.ended("a").await;
    assert_eq!(rig.device.paste(pane, rig.token(), b"x").await.unwrap(), Answer::Dead);
    assert_eq!(rig.device.enter(pane).await.unwrap(), Answer::Dead);
    assert_eq!(rig.device.keys(pane, &["x".parse().unwrap()]).await.unwrap(), Answer::Dead);
    assert_eq!(rig.device.observe().await.unwrap().server, keeper.server);
    let (answer, screen) = rig.device.capture(pane, tmux::act::Lines::Visible, false).await.unwrap();
    assert_eq!(answer, Answer::Done);
    assert!(screen.starts_with(b"last words\n"), "{}", String::from_utf8_lossy(&screen));
    until("it is in the log", || fs::read(rig.path("log")).unwrap().starts_with(b"last words")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q06_of_a_paste_that_nobody_answered_the_pane_tells_whether_it_was_typed_and_it_is_typed_once() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    let mut hasty = rig.device.clone();
    hasty.deadline = Duration::from_millis(50);
    let mut expected = Vec::new();
    for round in 0..12_u8 {
        let (text, token) = (format!("<text {round}>"), rig.token());
        // The sender's paste is still on its way when another process queries the token.
        rig.signal(pane, Signal::SIGSTOP);
        let pasted = hasty.paste(pane, token, text.as_bytes()).await;
        assert!(pasted.is_err_and(|error| error.in_doubt()));
        let asked = tokio::spawn({
            let device = rig.device.clone();
            async move { device.revoke(pane, token).await }
        });
        rig.signal(pane, Signal::SIGCONT);
        let (answer, receipt) = asked.await.unwrap().unwrap();
        assert_eq!(answer, Answer::Done);
        match receipt {
            Receipt::Typed => {}
            Receipt::Revoked => {
                let again = rig.device.paste(pane, rig.token(), text.as_bytes()).await.unwrap();
                assert_eq!(again, Answer::Done);
            }
            other => panic!("{other:?}"),
        }
        expected.extend_from_slice(text.as_bytes());
    }
    assert_eq!(rig.device.enter(pane).await.unwrap(), Answer::Done);
    expected.push(b'\r');
    let got = rig.recorded(expected.len()).await;
    assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q06_of_a_paste_that_a_hook_of_the_server_holds_up_nobody_says_that_it_was_not_typed() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    // This command ends when the files of the test are removed, since tmux does not end it.
    let held_up = format!("run-shell 'while [ -e {} ]; do sleep 0.1; done'", rig.path(".").display());
    rig.raw(&["set-hook", "-g", "after-paste-buffer", &held_up]);
    let mut hasty = rig.device.clone();
    // Time to type the text.
    hasty.deadline = Duration::from_secs(4);
    let token = rig.token();
    assert!(hasty.paste(pane, token, b"text").await.is_err_and(|error| error.in_doubt()));
    assert_eq!(rig.recorded(4).await, b"text");
    assert_eq!(rig.device.revoke(pane, token).await.unwrap(), (Answer::Done, Receipt::Unknown));
    assert_eq!(rig.device.paste(pane, token, b"text").await.unwrap(), Answer::Already);
}

//! Calls without a client: the same answers and sessions, and a client only where the server needs one.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use tmux::act::Lines;
use tmux::{Answer, Device, Direct, TmuxError};

use crate::support::{Rig, eventually, executable, in_an_environment, until};

/// Returns a device whose calls fail if they start a client.
fn without_client(rig: &Rig) -> Device {
    Device { binary: "/nonexistent/tmux".into(), ..rig.device.clone() }
}

fn with_client(rig: &Rig) -> Device {
    Device { direct: Direct::never(), ..rig.device.clone() }
}

#[tokio::test]
async fn a_server_that_runs_needs_no_client() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    let device = without_client(&rig);
    let listing = device.observe().await.unwrap();
    assert_eq!(listing, with_client(&rig).observe().await.unwrap());
    assert_eq!(listing.server, pane.server);
    let text = "€x\t".repeat(100_000);
    assert_eq!(device.paste(pane, rig.token(), text.as_bytes()).await.unwrap(), Answer::Done);
    assert_eq!(device.enter(pane).await.unwrap(), Answer::Done);
    assert_eq!(rig.recorded(text.len() + 1).await, format!("{text}\r").as_bytes());
    let created = device.create(&rig.job("b", "exec sleep 1000")).await.unwrap();
    assert!(matches!(device.create(&rig.job("b", "")).await, Err(TmuxError::Duplicate(_))));
    assert_eq!(device.kill_pane(created.pane).await.unwrap(), Answer::Done);
    assert_eq!(device.kill_pane(created.pane).await.unwrap(), Answer::Gone);
    assert_eq!(rig.raw(&["list-clients"]), "");
}

#[tokio::test]
async fn what_is_shown_is_the_same_to_the_byte() {
    let rig = Rig::new();
    let script =
        "printf '%b' '\\033[31m%end 1 1 1\\n\\302\\240é\\001 x\\033[0m\\n'; seq 3000; exec sleep 1000";
    let pane = rig.start("a", script).await.pane;
    let shown = async |device: &Device| device.capture(pane, Lines::All, true).await.unwrap().1;
    let client = with_client(&rig);
    let last = b"\n3000\n";
    crate::support::eventually("all is written", async || {
        shown(&client).await.windows(last.len()).any(|shown| shown == last)
    })
    .await;
    assert_eq!(shown(&without_client(&rig)).await, shown(&client).await);
}

#[tokio::test]
async fn a_call_in_doubt_says_so_and_leaves_nothing() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    let mut device = without_client(&rig);
    device.observe().await.unwrap();
    device.deadline = Duration::from_millis(300);
    rig.signal(pane, Signal::SIGSTOP);
    let pasted = device.paste(pane, rig.token(), b"late").await;
    let observed = device.observe().await;
    rig.signal(pane, Signal::SIGCONT);
    assert!(matches!(&pasted, Err(error @ TmuxError::TimedOut(_)) if error.in_doubt()), "{pasted:?}");
    assert!(matches!(observed, Err(TmuxError::TimedOut(_))), "{observed:?}");
    // Nothing is typed of a text that arrived incomplete.
    assert_eq!(rig.device.enter(pane).await.unwrap(), Answer::Done);
    assert_eq!(rig.recorded(1).await, b"\r");
    assert_eq!(rig.raw(&["list-buffers"]), "");
    device.deadline = crate::support::PATIENCE;
    rig.signal(pane, Signal::SIGSTOP);
    let (died, ()) = tokio::join!(device.observe(), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        rig.signal(pane, Signal::SIGKILL);
    });
    assert!(matches!(&died, Err(error @ TmuxError::ServerExited) if error.in_doubt()), "{died:?}");
    // The server closes its connections one after the other, and its socket may be the last.
    eventually("the server is gone", async || matches!(rig.device.observe().await, Err(TmuxError::NoServer)))
        .await;
}

/// Listens at the socket in place of tmux and answers like this; counts its connections.
fn impostor(socket: &Path, answer: fn(std::os::unix::net::UnixStream)) -> Arc<AtomicUsize> {
    let (listener, count) = (UnixListener::bind(socket).unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            answer(stream);
        }
    });
    count
}

#[tokio::test]
async fn a_server_that_wants_a_client_gets_one() {
    for (name, answer) in [
        ("closes", (|stream| drop(stream)) as fn(std::os::unix::net::UnixStream)),
        ("mutters", |mut stream| drop(std::io::Write::write_all(&mut stream, &[7; 64]))),
        ("is silent", |mut stream| drop(stream.read_to_end(&mut Vec::new()))),
    ] {
        let rig = Rig::new();
        let socket = rig.path("impostor");
        let count = impostor(&socket, answer);
        let noted =
            executable(&rig.path("noted"), "#!/bin/sh\n[ \"$1\" = -V ] || echo run >>\"${0%/*}/runs\"\n");
        let device = Device { binary: noted, socket, deadline: Duration::from_secs(8), ..rig.device.clone() };
        for _ in 0..2 {
            let observed = device.observe().await;
            assert!(matches!(observed, Err(TmuxError::Incomplete)), "{name}: {observed:?}");
        }
        assert_eq!(fs::read_to_string(rig.path("runs")).unwrap(), "run\nrun\n", "{name}");
        // Each call probes the socket, and again before its client; the first makes one attempt more.
        until("all are counted", || count.load(Ordering::Relaxed) >= 5).await;
        assert_eq!(count.load(Ordering::Relaxed), 5, "{name}");
    }
}

#[test]
fn a_session_is_the_same_with_and_without_a_client() {
    let known = [("POOL_SOCKET", "x"), ("TMUX_PANE", "%99"), ("SPOOL_DIR", "x"), ("DISPLAY", ":9")];
    let name = "direct::a_session_is_the_same_with_and_without_a_client";
    in_an_environment(name, &known, in_a_known_environment());
}

async fn in_a_known_environment() {
    let rig = Rig::new();
    rig.start("first", "exec sleep 1000").await;
    // As on a user's own server, and with variables that must not be passed on.
    rig.raw(&[
        "set-option",
        "-g",
        "update-environment",
        "DISPLAY SSH_AUTH_SOCK LC_TEST SPOOL_DIR POOL_SOCKET TMUX_PANE",
    ]);
    let mut seen = Vec::new();
    for (name, device) in [("without", without_client(&rig)), ("with", with_client(&rig))] {
        let script = format!(
            "env | grep -v ^TMUX | sort >\"$d/{name}.part\"; pwd >>\"$d/{name}.part\"; mv \"$d/{name}.part\" \"$d/{name}\"; exec sleep 1000"
        );
        device.create(&rig.job(name, &script)).await.unwrap();
        until("the environment is written", || rig.path(name).exists()).await;
        let of_session = rig.raw(&["show-environment", "-t", &format!("={name}:")]);
        let facts = "#{session_path} #{window_width} #{pane_current_path} #{session_attached}";
        let shown = rig.raw(&["display-message", "-p", "-t", &format!("={name}:"), facts]);
        seen.push((of_session, fs::read_to_string(rig.path(name)).unwrap(), shown));
    }
    assert_eq!(seen[0], seen[1]);
    let of_session: Vec<&str> = seen[0].0.lines().collect();
    assert_eq!(
        of_session,
        ["DISPLAY=:9", "LC_TEST=kept", "-POOL_SOCKET", "-SPOOL_DIR", "-SSH_AUTH_SOCK", "-TMUX_PANE"]
    );
}

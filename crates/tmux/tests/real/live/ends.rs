//! A connection ends with its server, with the hidden session, and with this process; it delays none of
//! them.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::tmux::TmuxTransport;
use tmux::live::{Live, Reading, Scope};
use tmux::{Device, TmuxError};

use super::{ended, open, other, own, read, sessions, whole};
use crate::support::{Rig, eventually, send, until};

async fn no_server(rig: &Rig) {
    eventually("the server is gone", async || matches!(rig.device.observe().await, Err(TmuxError::NoServer)))
        .await;
}

fn exists(pid: u32) -> bool {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), None).is_ok()
}

/// True if the process runs; a zombie that waits for the reaper of orphans does not.
fn alive(pid: u32) -> bool {
    exists(pid) && !fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

#[tokio::test]
async fn where_nothing_listens_there_is_no_server() {
    let mut rig = Rig::new();
    for own in [true, false] {
        rig.device.own = own;
        assert!(matches!(Live::open(&rig.device, TmuxTransport::Native).await, Err(TmuxError::NoServer)));
    }
    rig.device.own = true;
    assert!(matches!(Live::open(&rig.device, TmuxTransport::Control).await, Err(TmuxError::NoServer)));
    assert!(!rig.device.socket.exists(), "none was started");
    drop(UnixListener::bind(&rig.device.socket).unwrap());
    assert!(
        matches!(Live::open(&rig.device, TmuxTransport::Native).await, Err(TmuxError::NoServer)),
        "stale socket"
    );
}

#[tokio::test]
async fn what_is_no_tmux_is_refused() {
    let rig = Rig::new();
    let listener = UnixListener::bind(&rig.device.socket).unwrap();
    let hangs_up = std::thread::spawn(move || listener.incoming().take(2).for_each(drop));
    let opened = Live::open(&rig.device, TmuxTransport::Native).await;
    assert!(matches!(opened, Err(TmuxError::Closed)), "{:?}", opened.err());
    hangs_up.join().unwrap();
    let listens = TmuxTransport::Listings;
    assert!(matches!(Live::open(&rig.device, listens).await, Err(TmuxError::Refused(_))));
}

#[tokio::test]
async fn a_stopped_server_is_given_up_on() {
    let (rig, created) = own().await;
    let (foreign, other) = other().await;
    for (rig, created) in [(rig, created), (foreign, other)] {
        let mut live = open(&rig).await;
        rig.signal(created.pane, Signal::SIGSTOP);
        let hasty = Device { deadline: Duration::from_millis(200), ..rig.device.clone() };
        assert!(matches!(Live::open(&hasty, TmuxTransport::Native).await, Err(TmuxError::TimedOut(_))));
        live.request(Scope::Alive);
        assert!(tokio::time::timeout(Duration::from_millis(100), ended(&mut live)).await.is_err());
        rig.signal(created.pane, Signal::SIGCONT);
        assert_eq!(read(&mut live, Scope::Alive).await, Reading::Alive, "the late answer is the first");
    }
}

#[tokio::test]
async fn killing_the_server_ends_it_at_once() {
    for means in [TmuxTransport::Native, TmuxTransport::Control] {
        for word in ["kill-server", "SIGKILL"] {
            let (rig, created) = own().await;
            let mut live = Live::open(&rig.device, means).await.unwrap();
            match word {
                "kill-server" => drop(rig.raw(&["kill-server"])),
                _ => rig.signal(created.pane, Signal::SIGKILL),
            }
            assert!(matches!(ended(&mut live).await, TmuxError::Closed));
            // The server waits for all its connections, and this one is not dropped yet.
            until("the server's process is gone", || !alive(live.server().pid)).await;
        }
    }
}

#[tokio::test]
async fn another_ones_server_exits_with_its_last_session() {
    let (rig, _) = other().await;
    rig.raw(&["set-option", "-s", "exit-empty", "on"]);
    let mut live = open(&rig).await;
    assert_eq!(whole(&mut live).await.sessions.len(), 1);
    rig.raw(&["kill-session", "-t", "=a:"]);
    assert!(sessions(&mut live).await.is_empty());
    assert!(matches!(ended(&mut live).await, TmuxError::Closed));
    no_server(&rig).await;
    let (rig, _) = other().await;
    let mut live = open(&rig).await;
    rig.raw(&["kill-server"]);
    assert!(matches!(ended(&mut live).await, TmuxError::Closed));
    no_server(&rig).await;
}

#[tokio::test]
async fn a_hidden_session_that_was_killed_is_made_again() {
    let (rig, created) = own().await;
    rig.raw(&["set-option", "-g", "detach-on-destroy", "off"]);
    for means in [TmuxTransport::Native, TmuxTransport::Control, TmuxTransport::Native] {
        let mut live = Live::open(&rig.device, means).await.unwrap();
        rig.raw(&["kill-session", "-t", "=_pool:"]);
        assert!(matches!(ended(&mut live).await, TmuxError::Closed));
        let listing = rig.device.observe().await.unwrap();
        assert_eq!(listing.sessions[&created.session].attached, 0, "nor is another session shown instead");
    }
    assert_eq!(whole(&mut open(&rig).await).await.sessions.len(), 1);
}

#[tokio::test]
async fn what_is_dropped_leaves_nothing_in_the_server() {
    for (rig, created) in [own().await, other().await] {
        drop(open(&rig).await);
        let clients = || rig.raw(&["list-clients", "-F", "#{client_pid}"]);
        until("no client is left", || clients().is_empty()).await;
        if cfg!(target_os = "linux") {
            let pid = created.pane.server.pid;
            let descriptors = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
            let before = descriptors();
            for _ in 0..50 {
                let mut live = open(&rig).await;
                assert_eq!(read(&mut live, Scope::Alive).await, Reading::Alive);
            }
            // The connection of the previous listing may not have been closed yet in `before`.
            until("all descriptors are closed", || descriptors() <= before).await;
        }
    }
}

#[tokio::test]
async fn a_client_in_between_is_ended_and_reaped() {
    let (rig, _) = own().await;
    let live = Live::open(&rig.device, TmuxTransport::Control).await.unwrap();
    let mut found = None;
    until("the client is listed", || {
        found = rig.raw(&["list-clients", "-F", "#{client_pid}"]).trim_end().parse::<u32>().ok();
        found.is_some()
    })
    .await;
    let pid = found.unwrap();
    assert!(alive(pid));
    drop(live);
    until("it is gone, not even a zombie", || !exists(pid)).await;
}

/// Variable with the server's socket, for the subprocess.
const SOCKET: &str = "LIVE_TEST_SOCKET";

/// Not a test by itself: a process that never reads its answers. See [`killing_us_leaves_no_orphan`].
#[tokio::test]
#[ignore = "is run by another test"]
async fn holder() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let mut device = Device::new("tmux", socket);
    device.own = true;
    let mut live = Live::open(&device, TmuxTransport::Native).await.unwrap();
    (0..5000).for_each(|_| live.request(Scope::All));
    live.next().await.unwrap();
    fs::write(device.socket.with_extension("ready"), "").unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

#[tokio::test]
async fn killing_us_leaves_no_orphan() {
    let (rig, created) = own().await;
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "live::ends::holder"])
        .env(SOCKET, &rig.device.socket)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("output is pending", || rig.device.socket.with_extension("ready").exists()).await;
    send(holder.id(), Signal::SIGKILL);
    holder.wait().unwrap();
    until("no client is left", || rig.raw(&["list-clients"]).is_empty()).await;
    rig.raw(&["kill-server"]);
    until("the server's process is gone", || !alive(created.pane.server.pid)).await;
}

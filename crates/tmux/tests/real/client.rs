//! One tmux client: deadlines, caps, and no leftovers.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use tmux::act::Lines;
use tmux::version::{OLDEST, Version};
use tmux::{Device, Direct, TmuxError};

use crate::support::{Rig, executable, in_an_environment, send, until};

/// Returns a device whose clients record their pids before they run `then`; asked for its version alone, it
/// is tmux.
fn noted(rig: &Rig, then: &str) -> Device {
    let pids = rig.path("pids");
    let script =
        format!("#!/bin/sh\n[ \"$1\" = -V ] && exec tmux -V\necho $$ >>'{}'\n{then}\n", pids.display());
    Device { binary: executable(&rig.path("noted"), &script), direct: Direct::never(), ..rig.device.clone() }
}

fn pids(rig: &Rig) -> Vec<u32> {
    let text = fs::read_to_string(rig.path("pids")).unwrap_or_default();
    text.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// True if the process is gone, as a zombie too.
fn is_gone(pid: u32) -> bool {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), None).is_err()
}

#[tokio::test]
async fn t8_a_stopped_server_is_a_time_out_and_the_client_is_reaped() {
    let rig = Rig::new();
    let pane = rig.recorder("a").await.pane;
    let mut device = noted(&rig, "exec tmux \"$@\"");
    // Time for each client to start.
    device.deadline = Duration::from_secs(4);
    rig.signal(pane, Signal::SIGSTOP);
    let observed = device.observe().await;
    let pasted = device.paste(pane, rig.token(), b"late").await;
    let clients = pids(&rig);
    let left: Vec<_> = clients.iter().filter(|pid| !is_gone(**pid)).collect();
    rig.signal(pane, Signal::SIGCONT);
    assert!(matches!(observed, Err(TmuxError::TimedOut(_))), "{observed:?}");
    assert!(matches!(&pasted, Err(error @ TmuxError::TimedOut(_)) if error.in_doubt()), "{pasted:?}");
    assert_eq!(clients.len(), 2);
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(rig.device.observe().await.unwrap().server, pane.server);
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_no_client() {
    let rig = Rig::new();
    let pane = rig.start("a", "exec sleep 1000").await.pane;
    let device = noted(&rig, "exec tmux \"$@\"");
    rig.signal(pane, Signal::SIGSTOP);
    tokio::select! {
        answer = device.observe() => panic!("{answer:?}"),
        () = until("the client runs", || !pids(&rig).is_empty()) => {}
    }
    let client = pids(&rig)[0];
    until("the client is gone", || is_gone(client)).await;
    rig.signal(pane, Signal::SIGCONT);
}

/// As after a crash: nothing drops or kills the client, its parent is just gone.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_ends_with_whoever_started_it() {
    let rig = Rig::new();
    let pane = rig.start("a", "exec sleep 1000").await.pane;
    let device = noted(&rig, "exec tmux \"$@\"");
    rig.signal(pane, Signal::SIGSTOP);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut call = Box::pin(device.observe());
            runtime.block_on(async {
                tokio::select! {
                    answer = &mut call => panic!("{answer:?}"),
                    () = until("the client runs", || !pids(&rig).is_empty()) => {}
                }
            });
            std::mem::forget(call);
        });
    });
    let stat = format!("/proc/{}/stat", pids(&rig)[0]);
    until("the client ended", || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "))).await;
    rig.signal(pane, Signal::SIGCONT);
}

#[tokio::test]
async fn the_exit_is_waited_for_not_the_end_of_output() {
    let rig = Rig::new();
    let device = noted(&rig, "sleep 1000 & echo $! >>\"${0%/*}/holder\"; echo partial; exit 0");
    let answer = device.observe().await;
    let holder = fs::read_to_string(rig.path("holder")).unwrap().trim().parse().unwrap();
    let was_there = !is_gone(holder);
    send(holder, Signal::SIGKILL);
    assert!(was_there, "the output was still open");
    assert!(matches!(answer, Err(TmuxError::Incomplete)), "exit 0 without the mark: {answer:?}");
}

#[tokio::test]
async fn output_has_a_cap() {
    let rig = Rig::new();
    let endless = noted(&rig, "exec yes");
    assert!(matches!(endless.observe().await, Err(TmuxError::TooLong(_))));
    assert!(pids(&rig).into_iter().all(is_gone));
    let pane = rig.start("a", "yes | head -n 500; exec sleep 1000").await.pane;
    let small = Device { output_cap: 600, ..rig.device.clone() };
    crate::support::eventually("the cap is met", async || {
        matches!(small.capture(pane, Lines::All, false).await, Err(TmuxError::TooLong(600)))
    })
    .await;
    assert!(small.observe().await.is_ok());
}

#[tokio::test]
async fn a_missing_binary_is_named() {
    let device = Device::new("/nonexistent/tmux", "/nonexistent/socket");
    let error = device.observe().await.unwrap_err();
    assert!(matches!(&error, TmuxError::Missing(path) if path == Path::new("/nonexistent/tmux")));
    assert!(!error.in_doubt());
}

#[tokio::test]
async fn the_version_is_known() {
    let rig = Rig::new();
    assert!(rig.device.version().await.unwrap() >= OLDEST);
    let odd = Device::new(executable(&rig.path("odd"), "#!/bin/sh\necho tmux openbsd-7.6\n"), rig.path("s"));
    assert!(matches!(odd.version().await, Err(TmuxError::Output(_))));
    odd.check_version().await.unwrap();
    assert_eq!(Version::parse("tmux 3.3a").unwrap().minor, 3);
}

#[tokio::test]
async fn a_tmux_that_is_too_old_is_asked_for_nothing_but_its_version() {
    let rig = Rig::new();
    let script = "#!/bin/sh\necho \"$*\" >>\"${0%/*}/asked\"\ncat \"${0%/*}/version\"\n";
    let device = Device {
        direct: Direct::never(),
        ..Device::new(executable(&rig.path("old"), script), rig.path("s"))
    };
    fs::write(rig.path("version"), "tmux 3.1c\n").unwrap();
    let error = device.observe().await.unwrap_err();
    let wanted = format!("tmux 3.1 is too old ({}): 3.2 or newer is needed", device.binary.display());
    assert_eq!((error.to_string(), error.in_doubt()), (wanted, false));
    assert_eq!(fs::read_to_string(rig.path("asked")).unwrap(), "-V\n");
    // A newer one in its place is found at once, and is not asked again.
    fs::write(rig.path("version"), "tmux 3.2\n").unwrap();
    for _ in 0..2 {
        assert!(!matches!(device.observe().await, Err(TmuxError::TooOld { .. })));
    }
    let asked = fs::read_to_string(rig.path("asked")).unwrap();
    assert_eq!(
        asked.lines().map(|line| line == "-V").collect::<Vec<_>>(),
        [true, true, false, false],
        "{asked}"
    );
}

#[test]
fn private_variables_reach_neither_server_nor_pane() {
    let private = [
        ("POOL_SOCKET", "x"),
        ("NOTIFY_SOCKET", "x"),
        ("LISTEN_FDS", "1"),
        ("ANTHROPIC_API_KEY", "x"),
        ("TMUX", "/elsewhere,1,0"),
        ("TMUX_PANE", "%99"),
    ];
    let name = "client::private_variables_reach_neither_server_nor_pane";
    in_an_environment(name, &private, in_a_private_environment());
}

async fn in_a_private_environment() {
    let rig = Rig::new();
    let script = "env >\"$d/env.part\"; mv \"$d/env.part\" \"$d/env\"; exec sleep 1000";
    let pane = rig.start("a", script).await.pane;
    until("the environment is written", || rig.path("env").exists()).await;
    let of_pane = fs::read_to_string(rig.path("env")).unwrap();
    let of_server = rig.raw(&["show-environment", "-g"]);
    for text in [&of_pane, &of_server] {
        assert!(text.contains("LC_TEST=kept"), "the test's environment got here");
        for private in ["POOL_SOCKET=", "NOTIFY_SOCKET=", "LISTEN_FDS=", "_API_KEY=", "/elsewhere", "%99"] {
            assert!(
                !text.lines().any(|line| line.contains(private) && !line.starts_with('-')),
                "{private}\n{text}"
            );
        }
    }
    assert!(of_pane.contains(&format!("TMUX_PANE={}", pane.pane)));
}

//! Tests with marked child processes.

use std::process::Command;

use super::*;
use crate::identity::identify;
use crate::testing::{Running, wait_until};

const TAG: Tag = Tag([0xc5; 16]);

/// Scans, and returns the result for one process.
fn marked(scanner: &mut MarkerScanner, pid: u32) -> Option<MarkedProcess> {
    scanner.scan().unwrap().into_iter().find(|marked| marked.process.pid == pid)
}

fn sleeper(name: &str, value: &str) -> Command {
    let mut command = Command::new("sleep");
    command.arg("60").env_clear().env(name, value).env("POOL_SOCKET", "/a b");
    command
}

#[test]
fn a_marker_is_found_as_long_as_its_process_lives() {
    let mut scanner = MarkerScanner::default();
    let mut child = Running::start(&mut sleeper("POOL_INCARNATION", &TAG.to_string()));
    let unmarked = Running::start(&mut sleeper("POOL_INCARNATIONS", &TAG.to_string()));
    let process = identify(child.id()).unwrap().unwrap();
    let of_child = |scanner: &mut MarkerScanner| marked(scanner, process.pid);
    // The child may not have called exec yet.
    wait_until("its program", || {
        of_child(&mut scanner).is_some_and(|marked| marked.command == "sleep".into())
    });
    let expected = MarkedProcess {
        process,
        marker: Marker::Incarnation(TAG),
        socket: Some("/a b".into()),
        command: "sleep".into(),
    };
    assert_eq!(of_child(&mut scanner), Some(expected));
    assert_eq!(marked(&mut scanner, unmarked.id()), None);
    drop((child.kill(), child.wait()));
    assert_eq!(of_child(&mut scanner), None);
}

/// The environment of a process is that of its last exec, however old the process is.
#[test]
fn a_marker_appears_and_disappears_by_exec() {
    let mut scanner = MarkerScanner::default();
    let script = format!("read a; exec env POOL_INCARNATION={TAG} sh -c 'read a; exec env -i sleep 60'");
    let mut command = Command::new("sh");
    let mut child = Running::start(command.args(["-c", &script]).stdin(std::process::Stdio::piped()));
    let pid = child.id();
    let mut lines = child.stdin.take().unwrap();
    assert_eq!((marked(&mut scanner, pid), marked(&mut scanner, pid)), (None, None));
    std::io::Write::write_all(&mut lines, b"\n").unwrap();
    wait_until("the marker", || marked(&mut scanner, pid).is_some());
    assert!(marked(&mut scanner, pid).is_some());
    std::io::Write::write_all(&mut lines, b"\n").unwrap();
    wait_until("its end", || marked(&mut scanner, pid).is_none());
    wait_until("the last program", || {
        scanner.scan().unwrap();
        scanner.previous.as_ref().unwrap().entries[&pid].info.comm == "sleep".into()
    });
    assert_eq!(marked(&mut scanner, pid), None);
}

#[test]
fn a_client_is_marked_with_its_owner_but_not_the_server_that_it_started() {
    let mut scanner = MarkerScanner::default();
    let client = Running::start(&mut sleeper("POOL_TMUX_CLIENT", "77.1234"));
    wait_until("its program", || marked(&mut scanner, client.id()).is_some());
    let found = marked(&mut scanner, client.id()).unwrap();
    assert_eq!(found.marker, Marker::Client(ProcId { pid: 77, start: 1234 }));
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", "sleep 60 & echo $!; wait"]).env("POOL_TMUX_CLIENT", "77.1234");
    let mut server = Running::start(command.stdout(std::process::Stdio::piped()));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line)
        .unwrap();
    let job: u32 = line.trim().parse().unwrap();
    let has_markers = |scanner: &mut MarkerScanner, pid| {
        scanner.scan().unwrap();
        scanner.previous.as_ref().unwrap().entries[&pid].markers.is_some()
    };
    wait_until("its program", || has_markers(&mut scanner, job));
    assert_eq!((marked(&mut scanner, server.id()), marked(&mut scanner, job)), (None, None));
    let job = crate::handle::Handle::open(identify(job).unwrap().unwrap()).unwrap().unwrap();
    drop(job.signal(nix::sys::signal::Signal::SIGKILL));
}

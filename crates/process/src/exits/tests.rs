//! Tests with many children that end in every way.

use std::collections::HashMap;
use std::io::PipeWriter;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;
use crate::identity::{State, identify, state};
use crate::testing::{DEADLINE, Running, wait_until};

/// Shells that run their script once they are released.
struct Children {
    all: Vec<Running>,
    start: Option<PipeWriter>,
}

impl Children {
    fn new(scripts: impl IntoIterator<Item = String>) -> Self {
        let (gate, start) = std::io::pipe().unwrap();
        let spawn = |script| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("read line; {script}")]);
            Running::start(command.stdin(Stdio::from(gate.try_clone().unwrap())))
        };
        Self { all: scripts.into_iter().map(spawn).collect(), start: Some(start) }
    }

    fn of(scripts: &[&str]) -> Self {
        Self::new(scripts.iter().map(|script| (*script).to_owned()))
    }

    fn ids(&self) -> Vec<ProcId> {
        self.all.iter().map(|child| identify(child.id()).unwrap().unwrap()).collect()
    }

    fn go(&mut self) {
        self.start = None;
    }
}

fn wait_for_zombies(ids: &[ProcId]) {
    wait_until("their end", || ids.iter().all(|id| state(*id).unwrap() == State::Zombie));
}

fn readable(fd: impl AsFd, timeout: Duration) -> bool {
    let timeout = PollTimeout::try_from(timeout).unwrap();
    poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout).unwrap() > 0
}

fn watching(ids: &[ProcId]) -> ExitWatcher {
    let mut exits = ExitWatcher::new().unwrap();
    assert!(ids.iter().all(|id| exits.watch(*id).unwrap()));
    exits
}

fn code(code: i32) -> Option<ExitStatus> {
    Some(ExitStatus { code: Some(code), signal: None })
}

fn signal(signal: i32) -> Option<ExitStatus> {
    Some(ExitStatus { code: None, signal: Some(signal) })
}

#[test]
fn a_zombie_has_a_status() {
    let mut children = Children::of(&["exit 7", "kill -9 $$", "exit 0", "kill -TERM $$", "exit 255"]);
    let ids = children.ids();
    let mut exits = watching(&ids);
    assert!(!readable(&exits, Duration::ZERO));
    assert_eq!(exits.take().unwrap(), []);
    children.go();
    wait_for_zombies(&ids);
    assert!(readable(&exits, Duration::ZERO));
    let taken: HashMap<_, _> = exits.take().unwrap().into_iter().collect();
    let expected = [code(7), signal(9), code(0), signal(15), code(255)];
    assert_eq!(taken, ids.iter().copied().zip(expected).collect());
    assert!(exits.is_empty() && !readable(&exits, Duration::ZERO), "each exit is reported once");
    assert_eq!(exits.take().unwrap(), []);
}

/// Available since Linux 6.15; an older kernel yields no status.
#[test]
fn a_reaped_process_has_a_status_if_the_kernel_keeps_it() {
    let mut children = Children::of(&["exit 7", "kill -9 $$"]);
    let ids = children.ids();
    let mut exits = watching(&ids);
    children.go();
    for child in &mut children.all {
        child.wait().unwrap();
    }
    let taken: HashMap<_, _> = exits.take().unwrap().into_iter().collect();
    let expected = if keeps_status() { [code(7), signal(9)] } else { [None, None] };
    assert_eq!(taken, ids.iter().copied().zip(expected).collect());
}

fn keeps_status() -> bool {
    let release = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    cfg!(target_os = "macos") || numbers.next().zip(numbers.next()) >= Some((6, 15))
}

#[test]
fn five_hundred_at_once_lose_none() {
    let mut children = Children::new((0..500).map(|n| format!("exit {}", n % 256)));
    let ids = children.ids();
    let mut exits = watching(&ids);
    assert_eq!(exits.len(), 500);
    children.go();
    let mut taken = Vec::new();
    while taken.len() < ids.len() {
        assert!(readable(&exits, DEADLINE), "{} of {}", taken.len(), ids.len());
        taken.extend(exits.take().unwrap());
    }
    assert!(exits.is_empty());
    let expected: HashMap<_, _> = ids.iter().copied().zip((0..500).map(|n| code(n % 256))).collect();
    assert_eq!(taken.len(), 500);
    assert_eq!(taken.into_iter().collect::<HashMap<_, _>>(), expected);
}

#[test]
fn neither_a_reused_pid_nor_an_ended_process_is_watched() {
    let mut children = Children::of(&["exit 0"]);
    let id = children.ids()[0];
    let mut exits = ExitWatcher::new().unwrap();
    assert!(!exits.watch(ProcId { start: id.start + 1, ..id }).unwrap());
    assert!(exits.is_empty());
    children.go();
    wait_for_zombies(&[id]);
    assert!(!exits.watch(id).unwrap(), "a zombie has ended");
    children.all[0].wait().unwrap();
    assert!(!exits.watch(id).unwrap());
    assert!(exits.is_empty() && !readable(&exits, Duration::ZERO));
}

#[test]
fn watching_is_idempotent() {
    let mut children = Children::of(&["exit 3"]);
    let id = children.ids()[0];
    let mut exits = watching(&[id, id]);
    assert_eq!(exits.len(), 1);
    children.go();
    wait_for_zombies(&[id]);
    assert!(exits.watch(id).unwrap(), "its exit is not taken yet");
    assert_eq!(exits.take().unwrap(), [(id, code(3))]);
    assert_eq!(exits.take().unwrap(), []);
}

#[test]
fn a_forgotten_process_is_not_reported() {
    let mut children = Children::of(&["exit 1", "exit 2", "exit 3"]);
    let ids = children.ids();
    let mut exits = watching(&ids);
    exits.forget(ids[0]);
    children.go();
    wait_for_zombies(&ids);
    exits.forget(ids[1]);
    exits.forget(ids[1]);
    assert_eq!(exits.take().unwrap(), [(ids[2], code(3))]);
    assert!(!readable(&exits, Duration::ZERO));
    assert!(exits.is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn another_epoll_wakes_at_each_end() {
    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
    let (mut first, mut second) = (Children::of(&["exit 1"]), Children::of(&["exit 2"]));
    let ids = [first.ids()[0], second.ids()[0]];
    let mut exits = watching(&ids);
    let outer = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    outer.add(&exits, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 1)).unwrap();
    let mut events = [EpollEvent::empty()];
    let mut wakes = |timeout: u16| outer.wait(&mut events, timeout).unwrap() == 1;
    assert!(!wakes(0));
    for (children, expected) in [(&mut first, (ids[0], code(1))), (&mut second, (ids[1], code(2)))] {
        children.go();
        assert!(wakes(30_000));
        assert_eq!(exits.take().unwrap(), [expected]);
    }
    assert!(!wakes(0));
}

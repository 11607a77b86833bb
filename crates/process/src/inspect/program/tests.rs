//! Tests with processes in various directories and terminals.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::pty::openpty;
use nix::sys::signal::Signal;

use super::*;
use crate::handle::Handle;
use crate::identity::{State, identify, read, state};
use crate::testing::{Running, wait_until};

/// A shell script in a terminal that hangs up when the test ends.
struct Terminal {
    shell: Running,
    keys: File,
}

impl Terminal {
    #[expect(clippy::unwrap_used, reason = "a test may stop at a surprise")]
    #[expect(unsafe_code, reason = "the terminal is made the controlling one between fork and exec")]
    fn run(script: &str, dir: &Path) -> Self {
        let ends = openpty(None, None).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(dir).stdin(ends.slave);
        // SAFETY: both calls are async-signal-safe and nothing is allocated.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        Self { shell: Running::start(&mut command), keys: ends.master.into() }
    }

    fn foreground(&self) -> Option<(OsBytes, Option<OsBytes>)> {
        foreground(self.shell.id()).ok().flatten().map(|found| (found.command, found.dir))
    }
}

fn expected(command: &str, dir: &Path) -> Option<(OsBytes, Option<OsBytes>)> {
    Some((command.into(), Some(dir.into())))
}

#[test]
fn the_foreground_program_has_its_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().canonicalize().unwrap();
    fs::create_dir(dir.join("in")).unwrap();
    let alone = Terminal::run("read line; :", &dir);
    wait_until("a shell", || alone.foreground() == expected("sh", &dir));
    let job = Terminal::run("set -m; (cd in; exec sleep 60); :", &dir);
    wait_until("its job", || job.foreground() == expected("sleep", &dir.join("in")));
}

/// The shell is stopped, so that the first program stays a zombie, and is then continued, so that it reaps
/// it.
#[test]
fn a_pipeline_whose_first_program_has_ended_is_named_by_another() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().canonicalize().unwrap();
    let mut terminal = Terminal::run("set -m; head -n 1 | sleep 60; :", &dir);
    let shell = terminal.shell.id();
    wait_until("the pipeline", || terminal.foreground() == expected("head", &dir));
    let leader = read(shell).unwrap().unwrap().tpgid.unwrap();
    let in_group = |name: &str| {
        let all = crate::platform::pids().unwrap().into_iter().filter_map(|pid| read(pid).ok().flatten());
        all.filter(|process| process.pgid == leader).any(|process| process.comm == name.into())
    };
    wait_until("its second program", || in_group("sleep"));
    let handle = Handle::open(identify(shell).unwrap().unwrap()).unwrap().unwrap();
    handle.signal(Signal::SIGSTOP).unwrap();
    wait_until("a stop", || state(handle.id()).unwrap() == State::Stopped);
    terminal.keys.write_all(b"line\n").unwrap();
    wait_until("a zombie", || read(leader).unwrap().unwrap().state == State::Zombie);
    assert_eq!(terminal.foreground(), expected("sleep", &dir));
    handle.signal(Signal::SIGCONT).unwrap();
    wait_until("that it is reaped", || read(leader).unwrap().is_none());
    assert_eq!(terminal.foreground(), expected("sleep", &dir));
}

#[test]
fn without_a_terminal_or_a_process_there_is_no_foreground_program() {
    let mut command = Command::new("sleep");
    command.arg("60");
    let mut alone = crate::runtime::detach::spawn_detached(command).unwrap();
    let pid = alone.id();
    assert_eq!(foreground(pid).unwrap(), None);
    alone.kill().unwrap();
    wait_until("its end", || identify(pid).unwrap().is_none());
    assert_eq!((foreground(pid).unwrap(), current_dir(pid).unwrap()), (None, None), "a zombie");
    alone.wait().unwrap();
    assert_eq!((foreground(pid).unwrap(), current_dir(pid).unwrap()), (None, None), "gone");
}

#[test]
fn a_removed_directory_keeps_its_name_whatever_it_was() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().canonicalize().unwrap();
    for name in [&b"plain"[..], b"x (deleted)", b"a\nb", b"\xff\xfe"] {
        let path = dir.join(OsStr::from_bytes(name));
        fs::create_dir(&path).unwrap();
        let inside = Running::start(Command::new("sleep").arg("60").current_dir(&path));
        let expected = Some(OsBytes::from(path.as_path()));
        assert_eq!(current_dir(inside.id()).unwrap(), expected);
        fs::remove_dir(&path).unwrap();
        assert_eq!(current_dir(inside.id()).unwrap(), expected, "removed");
    }
}

#[test]
fn the_arguments_are_those_of_this_process() {
    let words = ["-c", "sleep 60; :", "", "two words\nand a line", ""];
    let mut running = Running::start(Command::new("sh").args(words));
    let id = identify(running.id()).unwrap().unwrap();
    let expected: Vec<OsBytes> = std::iter::once("sh").chain(words).map(OsBytes::from).collect();
    let expected = Some(expected);
    wait_until("the end of its start", || argv(id).unwrap() == expected);
    assert_eq!(argv(ProcId { start: id.start + 1, ..id }).unwrap(), None);
    running.kill().unwrap();
    wait_until("its end", || identify(id.pid).unwrap().is_none());
    assert_eq!(argv(id).unwrap(), None, "a zombie");
    running.wait().unwrap();
    assert_eq!(argv(id).unwrap(), None);
}

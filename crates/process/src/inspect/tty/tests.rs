//! Tests with programs that never read, in terminals in canonical and in raw mode.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::openpty;
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};

use super::*;
use crate::identity::identify;
use crate::testing::{Running, wait_until};

/// A program in a terminal of its own.
struct Terminal {
    program: Running,
    keys: File,
}

impl Terminal {
    #[expect(clippy::unwrap_used, reason = "a test may stop at a surprise")]
    #[expect(unsafe_code, reason = "the terminal is made the controlling one between fork and exec")]
    fn run(words: &[&str], raw: bool) -> Self {
        let ends = openpty(None, None).unwrap();
        if raw {
            let mut termios = tcgetattr(&ends.slave).unwrap();
            cfmakeraw(&mut termios);
            tcsetattr(&ends.slave, SetArg::TCSANOW, &termios).unwrap();
        }
        fcntl(&ends.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(ends.slave);
        // SAFETY: both calls are async-signal-safe and nothing is allocated.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        Self { program: Running::start(&mut command), keys: ends.master.into() }
    }

    fn unread(&self) -> Option<u32> {
        unread_input(identify(self.program.id()).ok()??).ok()?
    }

    /// Writes as many bytes as the kernel accepts, as tmux does, which keeps the rest.
    fn type_in(&mut self, mut bytes: &[u8]) -> usize {
        let all = bytes.len();
        while let Ok(n @ 1..) = self.keys.write(bytes) {
            bytes = &bytes[n..];
        }
        all - bytes.len()
    }
}

const NEVER_READS: &[&str] = &["sleep", "1000"];

#[test]
fn each_byte_counts_where_the_program_reads_bytes() {
    let mut terminal = Terminal::run(NEVER_READS, true);
    assert_eq!(terminal.unread(), Some(0));
    terminal.type_in(b"ten bytes!");
    wait_until("ten bytes", || terminal.unread() == Some(10));
    assert!(terminal.type_in(&[b'x'; 100_000]) < 100_000, "the kernel holds little");
    wait_until("all that the kernel holds", || terminal.unread() == Some(4095));
}

#[test]
fn only_whole_lines_count_where_the_program_reads_lines() {
    let mut terminal = Terminal::run(NEVER_READS, false);
    terminal.type_in(b"ten bytes!");
    // The echo proves that the input has arrived.
    let mut echoed = Vec::new();
    wait_until("the echo", || {
        let mut piece = [0; 64];
        let read = terminal.keys.read(&mut piece).unwrap_or(0);
        echoed.extend_from_slice(&piece[..read]);
        echoed.ends_with(b"!")
    });
    assert_eq!(terminal.unread(), Some(0));
    terminal.type_in(b"\r");
    wait_until("a line", || terminal.unread() == Some(11));
    terminal.type_in("forty characters of text and a line end\r".repeat(2500).as_bytes());
    wait_until("all that the kernel holds", || terminal.unread().is_some_and(|n| (4000..=4096).contains(&n)));
}

#[test]
fn input_that_was_read_is_not_unread() {
    let mut terminal = Terminal::run(&["cat"], true);
    terminal.type_in(b"ten bytes!");
    wait_until("all is read", || terminal.unread() == Some(0));
}

/// Otherwise the program would end by a hangup, or this process would get a controlling terminal.
#[test]
fn reading_the_state_has_no_side_effects() {
    let terminal = Terminal::run(NEVER_READS, true);
    let ours = || fs::read_to_string("/proc/self/stat").unwrap().split(' ').nth(6).map(str::to_owned);
    let before = ours();
    for _ in 0..1000 {
        assert_eq!(terminal.unread(), Some(0));
    }
    assert_eq!(ours(), before, "no controlling terminal");
    assert!(identify(terminal.program.id()).unwrap().is_some(), "no hangup");
    let mut piece = [0; 8];
    let quiet = (&terminal.keys).read(&mut piece).unwrap_err();
    assert_eq!(quiet.kind(), io::ErrorKind::WouldBlock, "the terminal's other end saw no end");
}

#[test]
fn without_a_terminal_or_a_process_there_is_nothing() {
    let mut command = Command::new("sleep");
    // SAFETY: async-signal-safe.
    #[expect(unsafe_code, reason = "a session without a terminal is made between fork and exec")]
    unsafe {
        command.arg("1000").pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    let alone = Running::start(&mut command);
    let id = identify(alone.id()).unwrap().unwrap();
    assert_eq!(unread_input(id).unwrap(), None);
    let terminal = Terminal::run(NEVER_READS, true);
    let id = identify(terminal.program.id()).unwrap().unwrap();
    assert_eq!(unread_input(ProcId { start: id.start + 1, ..id }).unwrap(), None, "another process");
}

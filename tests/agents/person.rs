//! A person at an attached terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::pty::{Winsize, openpty};

use crate::harness::{PATIENCE, Pool, wait_until};

/// A person at a terminal, attached by `poolctl attach`. The client is killed on drop.
pub(super) struct Person {
    keyboard: File,
    client: Child,
}

impl Person {
    #[track_caller]
    pub(super) fn attached(pool: &Pool, session: &str) -> Self {
        let mut command = pool.poolctl();
        command.args(["attach", session]);
        Self::at(pool, session, command)
    }

    /// A person at a terminal in which a command shows the session.
    #[track_caller]
    pub(super) fn at(pool: &Pool, session: &str, mut command: Command) -> Self {
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        let ends = openpty(Some(&size), None).unwrap();
        let terminal = |end: &OwnedFd| Stdio::from(end.try_clone().unwrap());
        command.stdin(terminal(&ends.slave)).stdout(terminal(&ends.slave)).stderr(terminal(&ends.slave));
        let client = command.spawn().unwrap();
        let keyboard = File::from(ends.master);
        let mut screen = keyboard.try_clone().unwrap();
        // Until the terminal is closed.
        thread::spawn(move || while screen.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {});
        let person = Self { keyboard, client };
        wait_until("a client is attached", PATIENCE, || pool.show(session)["attached_clients"] == 1);
        person
    }

    #[track_caller]
    pub(super) fn types(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.client.kill());
        drop(self.client.wait());
    }
}

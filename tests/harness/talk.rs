//! A running program whose output the test reads while it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::pool::Pool;
use super::wait::{PATIENCE, eventually, wait_until};

/// A running program that prints lines; killed on drop.
#[derive(Debug)]
pub(crate) struct Talk {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<String>>>,
    errors: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Talk {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (lines, errors) = (Arc::default(), Arc::default());
        let readers = vec![
            gather(child.stdout.take().unwrap(), Arc::clone(&lines)),
            gather(child.stderr.take().unwrap(), Arc::clone(&errors)),
        ];
        Self { stdin: child.stdin.take(), child, lines, errors, readers }
    }

    /// A tmux client in control mode, attached to the session until dropped. What it is told before it is attached,
    /// tmux applies to another session or to none.
    #[track_caller]
    pub(crate) fn attached(pool: &Pool, session: &str) -> Self {
        let mut command = pool.command("tmux");
        command.arg("-uN").arg("-C").arg("-S").arg(pool.tmux_socket()).args([
            "attach-session",
            "-t",
            session,
        ]);
        let client = Self::start(&mut command);
        wait_until("a client is attached", PATIENCE, || {
            client.lines().iter().any(|line| line.starts_with("%session-changed "))
        });
        client
    }

    /// Lines printed so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Lines printed so far, from line `first` on.
    pub(crate) fn lines_from(&self, first: usize) -> Vec<String> {
        self.lines.lock().unwrap()[first..].to_vec()
    }

    /// Standard error so far.
    pub(crate) fn errors(&self) -> String {
        self.errors.lock().unwrap().join("\n")
    }

    /// Writes a line to its standard input.
    #[track_caller]
    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        let said = stdin.write_all(format!("{line}\n").as_bytes());
        said.unwrap_or_else(|error| panic!("{error}: {}", self.errors()));
    }

    /// Closes its standard input.
    pub(crate) fn hang_up(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True if it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it ends by itself; returns its exit code.
    #[track_caller]
    pub(crate) fn await_end(&mut self) -> Option<i32> {
        let status = eventually("it ends", PATIENCE, || self.child.try_wait().unwrap());
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        status.code()
    }

    /// True if it runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills it; returns all lines it printed.
    pub(crate) fn end(mut self) -> Vec<String> {
        drop(self.child.kill());
        self.child.wait().unwrap();
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        self.lines()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn gather(from: impl Read + Send + 'static, into: Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            into.lock().unwrap().push(line);
        }
    })
}

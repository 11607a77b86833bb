//! Peer Redis with its append-only file, synced before each answer.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::drive::{Client, Talk, Turn};
use super::subject::{BODY, Server, Work};
use crate::child::Spawned;

pub(super) const PROGRAM: &str = "redis-server";

/// A running server.
pub(super) struct Redis {
    _process: Spawned,
    socket: PathBuf,
}

impl Redis {
    /// Starts a server with its files in this directory.
    pub(super) fn start(dir: &Path) -> Result<Self> {
        let socket = dir.join("redis.sock");
        let mut command = Command::new(PROGRAM);
        // No snapshots and no rewrite of the file, which would cost it time.
        command.args(["--port", "0", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        command.args(["--auto-aof-rewrite-percentage", "0", "--dir"]).arg(dir);
        command.arg("--unixsocket").arg(&socket);
        let process = Spawned::server(&mut command, &socket, &dir.join("redis.out"))?;
        Ok(Self { _process: process, socket })
    }
}

impl Server for Redis {
    fn name(&self) -> &'static str {
        "Redis appendfsync always"
    }

    fn client(&self, work: Work, number: usize) -> Result<Client> {
        let queue = if work == Work::Cycle { format!("q{number}") } else { "q".to_owned() };
        let held = format!("{queue}-held");
        Client::at(UnixStream::connect(&self.socket)?, Resp { work, queue, held, step: Step::Push })
    }
}

/// Its protocol: arrays of strings, answered by numbers and strings.
struct Resp {
    work: Work,
    queue: String,
    /// Name of the list of claimed messages.
    held: String,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Push,
    Move,
    Remove,
}

impl Talk for Resp {
    fn ask(&mut self, to: &mut Vec<u8>) -> Result<()> {
        let (queue, held) = (self.queue.as_bytes(), self.held.as_bytes());
        match self.step {
            Step::Push => command(to, &[b"LPUSH", queue, &BODY]),
            Step::Move => command(to, &[b"LMOVE", queue, held, b"RIGHT", b"LEFT"]),
            Step::Remove => command(to, &[b"LREM", held, b"1", &BODY]),
        }
    }

    fn answer(&mut self, from: &[u8]) -> Result<Option<(usize, Turn)>> {
        let Some(line) = from.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let text = String::from_utf8_lossy(&from[..line]);
        let (next, turn, used) = match (self.step, text.trim_end()) {
            (Step::Push, number) if number.starts_with(':') && self.work == Work::Enqueue => {
                (Step::Push, Turn::Over, line + 1)
            }
            (Step::Push, number) if number.starts_with(':') => (Step::Move, Turn::Further, line + 1),
            (Step::Move, "$256") => (Step::Remove, Turn::Further, line + 1 + BODY.len() + 2),
            (Step::Remove, ":1") => (Step::Push, Turn::Over, line + 1),
            (_, text) => bail!("Redis: {text}"),
        };
        if from.len() < used {
            return Ok(None);
        }
        self.step = next;
        Ok(Some((used, turn)))
    }
}

fn command(to: &mut Vec<u8>, words: &[&[u8]]) -> Result<()> {
    write!(to, "*{}\r\n", words.len())?;
    for word in words {
        write!(to, "${}\r\n", word.len())?;
        to.extend_from_slice(word);
        to.extend(b"\r\n");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_push_move_remove() {
        let (queue, held) = ("q0".to_owned(), "h0".to_owned());
        let mut talk = Resp { work: Work::Cycle, queue, held, step: Step::Push };
        let moved = [b"$256\r\n".as_slice(), &BODY, b"\r\n"].concat();
        let answers: [(&[u8], Turn); 3] =
            [(b":1\r\n", Turn::Further), (&moved, Turn::Further), (b":1\r\n", Turn::Over)];
        for (answer, turn) in answers {
            talk.ask(&mut Vec::new()).unwrap();
            assert_eq!(talk.answer(&answer[..answer.len() - 1]).unwrap(), None);
            assert_eq!(talk.answer(answer).unwrap(), Some((answer.len(), turn)));
        }
        assert!(talk.answer(b"-ERR no\r\n").is_err());
    }

    #[test]
    fn a_command_has_its_lengths() {
        let mut bytes = Vec::new();
        command(&mut bytes, &[b"LREM", b"q", b"1"]).unwrap();
        assert_eq!(bytes, b"*3\r\n$4\r\nLREM\r\n$1\r\nq\r\n$1\r\n1\r\n");
    }
}

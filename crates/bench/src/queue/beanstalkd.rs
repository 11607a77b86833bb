//! Peer beanstalkd with its write-ahead log, synced at each change.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::drive::{Client, Talk, Turn};
use super::subject::{BODY, Server, Work};
use crate::child::Spawned;

pub(super) const PROGRAM: &str = "beanstalkd";

/// A running server.
pub(super) struct Beanstalkd {
    _process: Spawned,
    socket: PathBuf,
}

impl Beanstalkd {
    /// Starts a server with its files in this directory.
    pub(super) fn start(dir: &Path) -> Result<Self> {
        let (socket, logs) = (dir.join("beanstalkd.sock"), dir.join("beanstalkd"));
        std::fs::create_dir(&logs)?;
        let mut command = Command::new(PROGRAM);
        command.args(["-f0", "-l"]).arg(format!("unix:{}", socket.display())).arg("-b").arg(logs);
        let process = Spawned::server(&mut command, &socket, &dir.join("beanstalkd.out"))?;
        Ok(Self { _process: process, socket })
    }
}

impl Server for Beanstalkd {
    fn name(&self) -> &'static str {
        "beanstalkd -f0"
    }

    fn client(&self, work: Work, number: usize) -> Result<Client> {
        let mut socket = UnixStream::connect(&self.socket)?;
        if work == Work::Cycle {
            let tube = format!("use q{number}\r\nwatch q{number}\r\nignore default\r\n");
            socket.write_all(tube.as_bytes())?;
            let expected = format!("USING q{number}\r\nWATCHING 2\r\nWATCHING 1\r\n");
            let mut answer = vec![0; expected.len()];
            socket.read_exact(&mut answer)?;
            ensure!(answer == expected.as_bytes(), "beanstalkd: {}", String::from_utf8_lossy(&answer));
        }
        Client::at(socket, Text { work, step: Step::Put })
    }
}

/// Its text protocol: lines, some followed by a body.
struct Text {
    work: Work,
    step: Step,
}

enum Step {
    Put,
    Reserve,
    Delete(String),
}

impl Talk for Text {
    fn ask(&mut self, to: &mut Vec<u8>) -> Result<()> {
        match &self.step {
            Step::Put => {
                write!(to, "put 0 0 60 {}\r\n", BODY.len())?;
                to.extend(BODY);
            }
            Step::Reserve => to.extend(b"reserve"),
            Step::Delete(id) => write!(to, "delete {id}")?,
        }
        to.extend(b"\r\n");
        Ok(())
    }

    fn answer(&mut self, from: &[u8]) -> Result<Option<(usize, Turn)>> {
        let Some(line) = from.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let text = String::from_utf8_lossy(&from[..line]).into_owned();
        let mut words = text.split_whitespace();
        let (next, turn, used) = match (&self.step, words.next()) {
            (Step::Put, Some("INSERTED")) if self.work == Work::Enqueue => (Step::Put, Turn::Over, line + 1),
            (Step::Put, Some("INSERTED")) => (Step::Reserve, Turn::Further, line + 1),
            (Step::Reserve, Some("RESERVED")) => {
                let id = words.next().context("a job without an id")?;
                (Step::Delete(id.to_owned()), Turn::Further, line + 1 + BODY.len() + 2)
            }
            (Step::Delete(_), Some("DELETED")) => (Step::Put, Turn::Over, line + 1),
            _ => bail!("beanstalkd: {text}"),
        };
        if from.len() < used {
            return Ok(None);
        }
        self.step = next;
        Ok(Some((used, turn)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_put_reserve_delete() {
        let mut talk = Text { work: Work::Cycle, step: Step::Put };
        let mut asked = Vec::new();
        let reserved = [b"RESERVED 7 256\r\n".as_slice(), &BODY, b"\r\n"].concat();
        let answers: [(&[u8], Turn); 3] =
            [(b"INSERTED 7\r\n", Turn::Further), (&reserved, Turn::Further), (b"DELETED\r\n", Turn::Over)];
        for (answer, turn) in answers {
            talk.ask(&mut asked).unwrap();
            assert_eq!(talk.answer(&answer[..answer.len() - 1]).unwrap(), None);
            assert_eq!(talk.answer(answer).unwrap(), Some((answer.len(), turn)));
        }
        assert!(asked.ends_with(b"\r\nreserve\r\ndelete 7\r\n"));
        talk.ask(&mut asked).unwrap();
        assert!(talk.answer(b"OUT_OF_MEMORY\r\n").is_err());
    }
}

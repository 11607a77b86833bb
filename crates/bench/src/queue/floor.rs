//! Floors: the cost of the disk, and the minimum that a server adds to it.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::drive::{Client, Done, Talk, Turn};
use super::server;
use super::subject::{BODY, Load, Server, Subject, Work};
use crate::child::Spawned;
use crate::interrupt;

/// Appends to a file, in this process.
pub(super) struct Append(File);

impl Append {
    /// Creates a file in this directory.
    pub(super) fn in_dir(dir: &Path) -> Result<Self> {
        Ok(Self(File::create(dir.join("append"))?))
    }
}

impl Subject for Append {
    fn name(&self) -> &'static str {
        "append + fdatasync"
    }

    fn can(&self, load: Load) -> bool {
        load == Load { work: Work::Enqueue, clients: 1 }
    }

    fn run(&mut self, _load: Load, time: Duration) -> Result<Done> {
        let (mut done, began) = (Done::default(), Instant::now());
        while began.elapsed() < time {
            interrupt::check()?;
            let begun = Instant::now();
            self.0.write_all(&BODY)?;
            self.0.sync_data()?;
            done.times.push(begun.elapsed());
            done.operations += 1;
        }
        Ok(Done { took: began.elapsed(), ..done })
    }
}

/// The bare log; see [`server`].
pub(super) struct BareLog {
    _process: Spawned,
    socket: PathBuf,
}

impl BareLog {
    /// Starts a server with its file in this directory.
    pub(super) fn start(dir: &Path) -> Result<Self> {
        let socket = dir.join("log.sock");
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(server::WORD).args([&socket, &dir.join("log")]);
        let process = Spawned::server(&mut command, &socket, &dir.join("log.out"))?;
        Ok(Self { _process: process, socket })
    }
}

impl Server for BareLog {
    fn name(&self) -> &'static str {
        "bare log, group commit"
    }

    fn can(&self, load: Load) -> bool {
        load.work == Work::Enqueue
    }

    fn client(&self, _work: Work, _number: usize) -> Result<Client> {
        Client::at(UnixStream::connect(&self.socket)?, Bare)
    }
}

/// Its protocol: a length and a body, answered by a byte.
struct Bare;

impl Talk for Bare {
    fn ask(&mut self, to: &mut Vec<u8>) -> Result<()> {
        to.extend(u32::try_from(BODY.len())?.to_le_bytes());
        to.extend(BODY);
        Ok(())
    }

    fn answer(&mut self, from: &[u8]) -> Result<Option<(usize, Turn)>> {
        let Some(answer) = from.first() else { return Ok(None) };
        ensure!(*answer == server::STORED, "the bare log answers {answer}");
        Ok(Some((1, Turn::Over)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::drive::{Until, drive};
    use super::*;

    #[test]
    fn what_is_appended_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut append = Append::in_dir(dir.path()).unwrap();
        let load = Load { work: Work::Enqueue, clients: 1 };
        let done = append.run(load, Duration::from_millis(1)).unwrap();
        let text = std::fs::read(dir.path().join("append")).unwrap();
        assert_eq!(text, BODY.repeat(done.operations));
    }

    #[test]
    fn the_bare_log_keeps_what_it_answers() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, file) = (dir.path().join("s"), dir.path().join("f"));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let (one, other) = (UnixStream::connect(&socket).unwrap(), UnixStream::connect(&socket).unwrap());
        let log = File::create(&file).unwrap();
        let serving = std::thread::spawn(move || server::serve_until(listener, log, 2));
        let mut clients = [Client::at(one, Bare).unwrap(), Client::at(other, Bare).unwrap()];
        let done = drive(&mut clients, 3, Until::Count(100));
        drop(clients);
        serving.join().unwrap().unwrap();
        assert_eq!(done.unwrap().times.len(), 100);
        assert_eq!(std::fs::read(&file).unwrap().len(), 100 * (4 + BODY.len()));
    }
}

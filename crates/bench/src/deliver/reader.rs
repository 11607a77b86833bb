//! Receiver of what the script has read, with times.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Time after which a text counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lines from a named pipe.
pub(super) struct Reader(Receiver<(Instant, String)>);

impl Reader {
    /// Opens the pipe.
    pub(super) fn open(fifo: &Path) -> Result<Self> {
        // It never reaches its end, because this process is a writer too.
        let pipe = File::options().read(true).write(true).open(fifo)?;
        let (to, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if to.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        Ok(Self(lines))
    }

    /// Waits for this text and returns its time, skipping others; `None` if it does not come.
    pub(super) fn wait(&self, text: &str) -> Option<Instant> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (at, line) = self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
            if line == text {
                return Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn others_before_it_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let reader = Reader::open(&fifo).unwrap();
        let before = Instant::now();
        fs::write(&fifo, "another\n\nthis one\n").unwrap();
        assert!(reader.wait("this one").unwrap() >= before);
        fs::write(&fifo, "the last\n").unwrap();
        let (_, next) = reader.0.recv_timeout(PATIENCE).unwrap();
        assert_eq!(next, "the last");
    }
}

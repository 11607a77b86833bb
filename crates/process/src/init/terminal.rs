//! Gives the terminal back: what is printed last is read to its end before the init ends. tmux takes the end of a
//! pane's first process for the end of its output, and drops what it has not read.

/// Closes the terminal, and waits until tmux has done the same, which it does when it has read everything and
/// has given all of it to the log. Not for ever: somebody else may have it open, or tmux may hang.
#[cfg(target_os = "linux")]
pub(super) fn give_back() {
    if let Ok(Some(terminal)) = linux::close()
        && !linux::await_end(&terminal)
    {
        linux::note(&terminal);
    }
}

/// There is no such look at a terminal elsewhere.
#[cfg(not(target_os = "linux"))]
pub(super) fn give_back() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::{File, OpenOptions};
    use std::io::{self, IsTerminal, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::time::{Duration, Instant};

    use nix::fcntl::OFlag;
    use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

    /// How long it may take.
    const LIMIT: Duration = Duration::from_secs(5);
    /// The first and the longest pause between two looks; they double.
    const PAUSE: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(5));

    /// Whatever is written later goes nowhere. The answer stands for the terminal without holding it open.
    pub(super) fn close() -> io::Result<Option<File>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let terminal =
            OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open("/proc/self/fd/0")?;
        let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&nowhere)?;
        dup2_stdout(&nowhere)?;
        dup2_stderr(&nowhere)?;
        Ok(Some(terminal))
    }

    /// Whether its other side was closed in time: with that its name goes.
    pub(super) fn await_end(terminal: &File) -> bool {
        let start = Instant::now();
        let mut pause = PAUSE.0;
        while terminal.metadata().is_ok_and(|meta| meta.nlink() > 0) {
            if start.elapsed() > LIMIT {
                return false;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE.1);
        }
        true
    }

    /// Says so on it, where it still takes anything.
    pub(super) fn note(terminal: &File) {
        let flags = (OFlag::O_NOCTTY | OFlag::O_NONBLOCK).bits();
        let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
        let opened = OpenOptions::new().write(true).custom_flags(flags).open(path);
        let text = format!("tmux-pool: not read to its end within {LIMIT:?}: the last output may be missing");
        drop(opened.and_then(|mut opened| writeln!(opened, "{text}")));
    }
}

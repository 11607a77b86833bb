//! Waits, before the init exits, until tmux has read the last output. tmux takes the exit of a pane's first
//! process for the end of its output, and discards what it has not read by then.

/// Closes the terminal, and waits until tmux has closed its side, which it does once it has read everything
/// and passed it to the log. Bounded in time, because another process may keep the terminal open, or tmux may
/// hang.
#[cfg(target_os = "linux")]
pub(super) fn close_and_drain() {
    if let Ok(Some(terminal)) = linux::close()
        && !linux::wait_until_closed(&terminal)
    {
        linux::print_timeout(&terminal);
    }
}

/// No effect: other systems do not show whether the master side is closed.
#[cfg(not(target_os = "linux"))]
pub(super) fn close_and_drain() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::{File, OpenOptions};
    use std::io::{self, IsTerminal, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::time::{Duration, Instant};

    use nix::fcntl::OFlag;
    use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

    /// Maximum time to wait for tmux.
    const TIMEOUT: Duration = Duration::from_secs(5);
    /// The first and the longest pause between two checks; each is twice the one before.
    const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(5));

    /// Redirects the standard streams to `/dev/null`. Returns an `O_PATH` descriptor of the terminal, which
    /// does not keep it open; `None` if standard input is not a terminal.
    pub(super) fn close() -> io::Result<Option<File>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let terminal =
            OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open("/proc/self/fd/0")?;
        let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        dup2_stderr(&null)?;
        Ok(Some(terminal))
    }

    /// Waits until the master side is closed, which unlinks the terminal's name; false on timeout.
    pub(super) fn wait_until_closed(terminal: &File) -> bool {
        let start = Instant::now();
        let mut pause = PAUSES.0;
        while terminal.metadata().is_ok_and(|meta| meta.nlink() > 0) {
            if start.elapsed() > TIMEOUT {
                return false;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
        true
    }

    /// Prints a message on the terminal, if it still accepts output.
    pub(super) fn print_timeout(terminal: &File) {
        let flags = (OFlag::O_NOCTTY | OFlag::O_NONBLOCK).bits();
        let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
        let opened = OpenOptions::new().write(true).custom_flags(flags).open(path);
        let text = format!("tmux-pool: output not read within {TIMEOUT:?}; the last of it may be missing");
        drop(opened.and_then(|mut opened| writeln!(opened, "{text}")));
    }
}

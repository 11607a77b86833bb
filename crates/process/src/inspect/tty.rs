//! Unread input of a terminal, and detection of whether a program has read what was typed.

use std::io;

use protocol::ProcId;

/// Returns the number of typed bytes that the terminal of this process holds unread. `None` if the process
/// has ended or has no terminal, and on systems that do not report it (macOS).
///
/// In canonical mode only complete lines count. At most the kernel's buffer of 4 kB; further input waits in
/// tmux. The terminal is opened for the call, without side effects: it does not become a controlling
/// terminal, and a hangup is only delayed until it is closed again.
pub fn unread_input(id: ProcId) -> io::Result<Option<u32>> {
    platform::unread_input(id)
}

/// Detects later reads of a terminal by its access time, which [`arm_read_detector`] has set back; `None` if
/// that was not permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadDetector(Option<(i64, i64)>);

/// State of typed input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputState {
    /// The program has ended, or has another terminal.
    ProcessEnded,
    /// The system does not report it.
    Unsupported,
    /// This many bytes are unread.
    Unread(u32),
    /// Nothing is unread and nothing was read: the input has not arrived yet, or was discarded.
    Missing,
    /// The terminal is in canonical mode, and the input does not end a line.
    PartialLine,
    /// The terminal was read, and nothing is unread.
    Read,
}

/// Arms detection of reads of this process's terminal from now on. `None` if the process has ended or has no
/// terminal.
pub fn arm_read_detector(id: ProcId) -> io::Result<Option<ReadDetector>> {
    platform::arm_read_detector(id)
}

/// Returns the state of the input that was typed since the detector was armed; `ends_line` is true if it
/// ended with Enter. The input must have reached the terminal: tmux has written it once it answers a later
/// request.
pub fn input_state(id: ProcId, detector: ReadDetector, ends_line: bool) -> io::Result<InputState> {
    platform::input_state(id, detector, ends_line)
}

/// State of a shell in its terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShellState {
    /// True if the shell is in the foreground and runs no command in its own process group, as a shell
    /// without job control and `$(…)` do.
    pub in_foreground: bool,
    /// The mode of the terminal's input. A shell with line editing changes it while a command runs.
    pub mode: InputMode,
    /// Number of unread bytes.
    pub unread: u32,
}

/// Mode in which a terminal passes its input on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputMode {
    /// Collects lines, and passes each on with its Enter (canonical mode).
    Lines,
    /// Passes on each key: a program reads them, or the shell itself (`read -n1`, the question of zsh before `rm *`).
    Keys,
    /// Passes on each key to the line editor of a shell, which distinguishes Enter from C-j, as bash and fish do.
    LineEditor,
    /// The same for zsh, whose line editor exchanges the two. zsh asks some of its questions in this mode, too, such as
    /// that about a correction.
    ZshLineEditor,
}

impl ShellState {
    /// True if the shell edits its next line.
    pub fn is_at_line_editor(&self) -> bool {
        self.in_foreground && self.edits_line()
    }

    /// True if the terminal is in the mode of a line editor.
    pub fn edits_line(&self) -> bool {
        matches!(self.mode, InputMode::LineEditor | InputMode::ZshLineEditor)
    }

    /// Returns this state, with the answer to whether zsh is asking a question about the line that it has just taken.
    #[must_use]
    pub fn with_question(self, asks: bool) -> Self {
        let asks = self.mode == InputMode::ZshLineEditor && asks;
        Self { mode: if asks { InputMode::Keys } else { self.mode }, ..self }
    }
}

/// Returns the state of this shell in its terminal; `None` if it has ended or has no terminal, and on systems
/// that do not report it.
pub fn shell_state(id: ProcId) -> io::Result<Option<ShellState>> {
    platform::shell_state(id)
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::io;

    use protocol::ids::ProcId;

    use super::{InputState, ReadDetector, ShellState};

    pub(super) fn unread_input(_: ProcId) -> io::Result<Option<u32>> {
        Ok(None)
    }

    pub(super) fn shell_state(_: ProcId) -> io::Result<Option<ShellState>> {
        Ok(None)
    }

    pub(super) fn arm_read_detector(_: ProcId) -> io::Result<Option<ReadDetector>> {
        Ok(Some(ReadDetector(None)))
    }

    pub(super) fn input_state(id: ProcId, _: ReadDetector, _: bool) -> io::Result<InputState> {
        let ended = crate::identity::exited(id)?;
        Ok(if ended { InputState::ProcessEnded } else { InputState::Unsupported })
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    use nix::errno::Errno;
    use nix::fcntl::OFlag;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::stat::futimens;
    use nix::sys::termios::{InputFlags, LocalFlags, Termios, tcgetattr};
    use nix::sys::time::TimeSpec;
    use protocol::ids::ProcId;

    use super::{InputMode, InputState, ReadDetector, ShellState};
    use crate::platform::{basic_info, children, proc, with_stat};

    /// Major device number of pseudo-terminals (`UNIX98_PTY_SLAVE_MAJOR`).
    const PTS_MAJOR: u32 = 136;
    /// Amount by which an armed detector sets the access time back, in seconds: the kernel updates it only in
    /// steps of 8 s.
    const ATIME_OFFSET: i64 = 12;

    pub(super) fn unread_input(id: ProcId) -> io::Result<Option<u32>> {
        with_terminal(id, unread)
    }

    pub(super) fn arm_read_detector(id: ProcId) -> io::Result<Option<ReadDetector>> {
        with_terminal(id, |file| {
            flush(file)?;
            let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME)?;
            let set = futimens(file, &TimeSpec::new(now.tv_sec() - ATIME_OFFSET, 0), &TimeSpec::UTIME_OMIT);
            // Fails for another user's terminal and on a read-only file system; only unread input is detected
            // then.
            let baseline = if set.is_ok() { Some(access_time(file)?) } else { None };
            Ok(Some(ReadDetector(baseline)))
        })
    }

    pub(super) fn input_state(id: ProcId, detector: ReadDetector, ends_line: bool) -> io::Result<InputState> {
        let found = with_terminal(id, |file| {
            let Some(waiting) = unread(file)? else { return Ok(None) };
            if waiting > 0 {
                return Ok(Some(InputState::Unread(waiting)));
            }
            let termios = tcgetattr(file)?;
            let canonical = termios.local_flags.contains(LocalFlags::ICANON);
            let line_ended = ends_line
                && termios.input_flags.contains(InputFlags::ICRNL)
                && !termios.input_flags.contains(InputFlags::IGNCR);
            if canonical && !line_ended {
                return Ok(Some(InputState::PartialLine));
            }
            let baseline = detector.0;
            let read = baseline.is_none_or(|before| access_time(file).is_ok_and(|now| now != before));
            Ok(Some(if read { InputState::Read } else { InputState::Missing }))
        })?;
        Ok(found.unwrap_or(InputState::ProcessEnded))
    }

    pub(super) fn shell_state(id: ProcId) -> io::Result<Option<ShellState>> {
        with_terminal(id, |file| {
            let Some(unread) = unread(file)? else { return Ok(None) };
            let mode = input_mode(&tcgetattr(file)?);
            let Some(shell) = basic_info(id.pid)?.filter(|found| found.id == id) else { return Ok(None) };
            let is_command = |pid: u32| {
                let child = basic_info(pid).ok().flatten();
                child.is_some_and(|child| child.pgid == shell.pgid && child.is_alive())
            };
            let in_foreground =
                shell.tpgid == Some(shell.pgid) && !children(id.pid).into_iter().any(is_command);
            Ok(Some(ShellState { in_foreground, mode, unread }))
        })
    }

    /// Only line editors turn off the echo and also change how Enter arrives. To read single keys, bash and zsh leave
    /// Enter as it is.
    fn input_mode(termios: &Termios) -> InputMode {
        let (local, input) = (termios.local_flags, termios.input_flags);
        if local.contains(LocalFlags::ICANON) {
            InputMode::Lines
        } else if local.contains(LocalFlags::ECHO) {
            InputMode::Keys
        } else if input.contains(InputFlags::INLCR) {
            InputMode::ZshLineEditor
        } else if input.contains(InputFlags::ICRNL) {
            InputMode::Keys
        } else {
            InputMode::LineEditor
        }
    }

    fn access_time(file: &File) -> io::Result<(i64, i64)> {
        let found = file.metadata()?;
        Ok((found.atime(), found.atime_nsec()))
    }

    /// Waits until the kernel's worker has delivered the bytes that were written to the master side.
    fn flush(file: &File) -> io::Result<()> {
        poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)?;
        Ok(())
    }

    /// Returns the number of unread bytes; `None` if the terminal has hung up.
    fn unread(file: &File) -> io::Result<Option<u32>> {
        flush(file)?;
        match rustix::io::ioctl_fionread(file) {
            Ok(waiting) => Ok(Some(u32::try_from(waiting).unwrap_or(u32::MAX))),
            Err(rustix::io::Errno::IO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the terminal of this process for the call of `read`. While it is open the master side does not
    /// see a hangup, so the call must be short.
    fn with_terminal<T>(
        id: ProcId,
        read: impl FnOnce(&File) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        let Some(tty) = terminal(id)? else { return Ok(None) };
        let Some(number) = pts(tty) else { return Ok(None) };
        let flags = OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        let opened =
            OpenOptions::new().read(true).custom_flags(flags.bits()).open(format!("/dev/pts/{number}"));
        let file = match opened {
            Ok(file) => file,
            Err(error) if is_closed(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        // In another mount namespace this path may be another terminal.
        let device = file.metadata()?.rdev();
        if (nix::sys::stat::major(device), nix::sys::stat::minor(device))
            != (u64::from(PTS_MAJOR), u64::from(number))
        {
            return Ok(None);
        }
        let found = match read(&file) {
            Err(error) if is_closed(&error) => return Ok(None),
            other => other?,
        };
        // Last: it is still the terminal of this process, so everything read before was about it.
        Ok(found.filter(|_| terminal(id).is_ok_and(|now| now == Some(tty))))
    }

    /// Returns the encoded device number of the process's terminal; `None` if it has ended or has none.
    fn terminal(id: ProcId) -> io::Result<Option<u32>> {
        let found = with_stat(id.pid, |bytes| {
            let stat = proc::parse_stat(bytes)?;
            Some((stat.start, stat.tty))
        })?;
        Ok(found.filter(|(start, tty)| *start == id.start && *tty != 0).map(|(_, tty)| tty))
    }

    /// Returns the pseudo-terminal's number; `None` for any other device.
    fn pts(tty: u32) -> Option<u32> {
        let (major, minor) = (tty >> 8 & 0xfff, tty & 0xff | tty >> 12 & 0xfff00);
        (major == PTS_MAJOR).then_some(minor)
    }

    fn is_closed(error: &io::Error) -> bool {
        let closed = [Errno::EIO, Errno::ENXIO, Errno::ENODEV].map(|errno| errno as i32);
        error.kind() == io::ErrorKind::NotFound
            || error.raw_os_error().is_some_and(|code| closed.contains(&code))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_mode_of_a_line_editor_differs_from_that_for_single_keys() {
            let ends = nix::pty::openpty(None, None).unwrap();
            let mut termios = tcgetattr(&ends.slave).unwrap();
            termios.input_flags.insert(InputFlags::ICRNL);
            assert_eq!(input_mode(&termios), InputMode::Lines);
            termios.local_flags.remove(LocalFlags::ICANON);
            assert_eq!(input_mode(&termios), InputMode::Keys, "read -n1");
            termios.local_flags.remove(LocalFlags::ECHO);
            assert_eq!(input_mode(&termios), InputMode::Keys, "read -s -n1");
            termios.input_flags.insert(InputFlags::INLCR);
            assert_eq!(input_mode(&termios), InputMode::ZshLineEditor);
            termios.input_flags.remove(InputFlags::INLCR | InputFlags::ICRNL);
            assert_eq!(input_mode(&termios), InputMode::LineEditor);
        }

        #[test]
        fn a_device_number_is_read() {
            assert_eq!(pts(136 << 8 | 7), Some(7));
            assert_eq!(pts(136 << 8 | 0x34 | 0x12 << 20), Some(0x1234));
            assert_eq!(pts(4 << 8 | 1), None);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;

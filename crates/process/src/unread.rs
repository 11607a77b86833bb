//! What waits in a terminal for its program to read it.

use std::io;

use protocol::ids::ProcId;

/// How many bytes that were typed into the terminal of this process are not read yet. `None` where it has ended, has
/// no terminal, or the system does not tell, as on macOS.
///
/// While its program reads by lines, only whole lines count: those that nobody has ended are nothing. Never more
/// than what the kernel holds for a terminal, 4 kB; what comes on top waits in tmux. The terminal is opened for it,
/// which changes nothing: it becomes nobody's controlling terminal, and it hangs up only when all others have closed it.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn unread_input(id: ProcId) -> io::Result<Option<u32>> {
    platform::unread_input(id)
}

/// When a terminal was last read, as it was set to be told apart; none where that cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Armed(Option<(i64, i64)>);

/// What became of what was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Its program has ended, or has another terminal.
    Ended,
    /// The system does not tell.
    Untold,
    /// So many bytes were not read yet.
    Unread(u32),
    /// Nothing waits, and nobody has read: it is not there yet, or was thrown away.
    Gone,
    /// The terminal is read by lines, and what was typed ends none.
    Line,
    /// Somebody has read, and nothing waits.
    Read,
}

/// Prepares a look: from here on whatever reads the terminal of this process is seen to have read it. `None` where it
/// has ended, or has no terminal.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn arm(id: ProcId) -> io::Result<Option<Armed>> {
    platform::arm(id)
}

/// What became of what was typed since: `ends_line` says whether with Enter. What was typed has to be in the terminal, as
/// it is once its other end answered another request.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn look(id: ProcId, armed: Armed, ends_line: bool) -> io::Result<Look> {
    platform::look(id, armed, ends_line)
}

/// How a shell stands in its terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stand {
    /// It is in the foreground, and runs no command in its own group, as a shell without job control and `$(…)` do.
    pub in_front: bool,
    /// The terminal is read by lines. A shell that edits its lines changes that while a command runs.
    pub by_lines: bool,
    /// Bytes that nobody has read yet.
    pub unread: u32,
}

/// How this very process stands in its terminal; `None` where it has ended, has none, or the system does not tell.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn stand(id: ProcId) -> io::Result<Option<Stand>> {
    platform::stand(id)
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::io;

    use protocol::ids::ProcId;

    use super::{Armed, Look, Stand};

    pub(super) fn unread_input(_: ProcId) -> io::Result<Option<u32>> {
        Ok(None)
    }

    pub(super) fn stand(_: ProcId) -> io::Result<Option<Stand>> {
        Ok(None)
    }

    pub(super) fn arm(_: ProcId) -> io::Result<Option<Armed>> {
        Ok(Some(Armed(None)))
    }

    pub(super) fn look(id: ProcId, _: Armed, _: bool) -> io::Result<Look> {
        Ok(if crate::identity::exited(id)? { Look::Ended } else { Look::Untold })
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
    use nix::sys::termios::{InputFlags, LocalFlags, tcgetattr};
    use nix::sys::time::TimeSpec;
    use protocol::ids::ProcId;

    use super::{Armed, Look, Stand};
    use crate::platform::{children, glance, with_stat};
    use crate::proc;

    /// Of all terminals that a program makes (`UNIX98_PTY_SLAVE_MAJOR`).
    const PTS_MAJOR: u32 = 136;
    /// How far back the time of the last reading is set, in seconds: the kernel keeps it to 8 s.
    const BACK: i64 = 12;

    pub(super) fn unread_input(id: ProcId) -> io::Result<Option<u32>> {
        with_terminal(id, unread)
    }

    pub(super) fn arm(id: ProcId) -> io::Result<Option<Armed>> {
        with_terminal(id, |file| {
            flush(file)?;
            let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME)?;
            let set = futimens(file, &TimeSpec::new(now.tv_sec() - BACK, 0), &TimeSpec::UTIME_OMIT);
            // Another user's terminal, or a system that is not written to: then only what waits is told.
            let armed = if set.is_ok() { Some(read_at(file)?) } else { None };
            Ok(Some(Armed(armed)))
        })
    }

    pub(super) fn look(id: ProcId, armed: Armed, ends_line: bool) -> io::Result<Look> {
        let found = with_terminal(id, |file| {
            let Some(waiting) = unread(file)? else { return Ok(None) };
            if waiting > 0 {
                return Ok(Some(Look::Unread(waiting)));
            }
            let how = tcgetattr(file)?;
            let by_lines = how.local_flags.contains(LocalFlags::ICANON);
            let ended = ends_line
                && how.input_flags.contains(InputFlags::ICRNL)
                && !how.input_flags.contains(InputFlags::IGNCR);
            if by_lines && !ended {
                return Ok(Some(Look::Line));
            }
            let read = armed.0.is_none_or(|before| read_at(file).is_ok_and(|now| now != before));
            Ok(Some(if read { Look::Read } else { Look::Gone }))
        })?;
        Ok(found.unwrap_or(Look::Ended))
    }

    pub(super) fn stand(id: ProcId) -> io::Result<Option<Stand>> {
        with_terminal(id, |file| {
            let Some(unread) = unread(file)? else { return Ok(None) };
            let by_lines = tcgetattr(file)?.local_flags.contains(LocalFlags::ICANON);
            let Some(shell) = glance(id.pid)?.filter(|found| found.id == id) else { return Ok(None) };
            let runs = |pid: u32| {
                let child = glance(pid).ok().flatten();
                child.is_some_and(|child| child.pgid == shell.pgid && child.is_alive())
            };
            let in_front = shell.tpgid == Some(shell.pgid) && !children(id.pid).into_iter().any(runs);
            Ok(Some(Stand { in_front, by_lines, unread }))
        })
    }

    fn read_at(file: &File) -> io::Result<(i64, i64)> {
        let found = file.metadata()?;
        Ok((found.atime(), found.atime_nsec()))
    }

    /// What a master has written is handed over by the kernel's own worker: this waits for that.
    fn flush(file: &File) -> io::Result<()> {
        poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)?;
        Ok(())
    }

    fn unread(file: &File) -> io::Result<Option<u32>> {
        flush(file)?;
        match rustix::io::ioctl_fionread(file) {
            Ok(waiting) => Ok(Some(u32::try_from(waiting).unwrap_or(u32::MAX))),
            Err(rustix::io::Errno::IO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the terminal of this very process, and closes it again: while it is open its other end does not learn that
    /// all others have closed it.
    fn with_terminal<T>(
        id: ProcId,
        read: impl FnOnce(&File) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        let Some(tty) = terminal(id)? else { return Ok(None) };
        let Some(number) = pts(tty) else { return Ok(None) };
        let alone = OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        let opened =
            OpenOptions::new().read(true).custom_flags(alone.bits()).open(format!("/dev/pts/{number}"));
        let file = match opened {
            Ok(file) => file,
            Err(error) if is_closed(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        // It may be seen from elsewhere, where this path is another terminal.
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
        // After the reading: as it is still that process's, what was read is too.
        Ok(found.filter(|_| terminal(id).is_ok_and(|now| now == Some(tty))))
    }

    /// As the kernel writes it; `None` where the process has ended or has none.
    fn terminal(id: ProcId) -> io::Result<Option<u32>> {
        let found = with_stat(id.pid, |bytes| {
            let stat = proc::parse_stat(bytes)?;
            Some((stat.start, stat.tty))
        })?;
        Ok(found.filter(|(start, tty)| *start == id.start && *tty != 0).map(|(_, tty)| tty))
    }

    /// Its number; `None` of any other device.
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
        #[test]
        fn a_device_number_is_read() {
            assert_eq!(super::pts(136 << 8 | 7), Some(7));
            assert_eq!(super::pts(136 << 8 | 0x34 | 0x12 << 20), Some(0x1234));
            assert_eq!(super::pts(4 << 8 | 1), None);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
#[path = "unread_tests.rs"]
mod tests;

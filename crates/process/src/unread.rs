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

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::io;

    use protocol::ids::ProcId;

    pub(super) fn unread_input(_: ProcId) -> io::Result<Option<u32>> {
        Ok(None)
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::fs::OpenOptions;
    use std::io;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    use nix::errno::Errno;
    use nix::fcntl::OFlag;
    use protocol::ids::ProcId;

    use crate::platform::with_stat;
    use crate::proc;

    /// Of all terminals that a program makes (`UNIX98_PTY_SLAVE_MAJOR`).
    const PTS_MAJOR: u32 = 136;

    pub(super) fn unread_input(id: ProcId) -> io::Result<Option<u32>> {
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
        let waiting = match rustix::io::ioctl_fionread(&file) {
            Ok(waiting) => u32::try_from(waiting).unwrap_or(u32::MAX),
            Err(rustix::io::Errno::IO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // After the reading: as it is still that process's, the bytes are too.
        Ok(Some(waiting).filter(|_| terminal(id).is_ok_and(|now| now == Some(tty))))
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

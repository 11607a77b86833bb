//! Replaces this process by another program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::SigSet;

use crate::{Context, Error, exit};

/// Replaces this process by a program, which keeps its process id and receives every signal: signals that the starter
/// had blocked for itself, and that are inherited as blocked, are unblocked. `ends_with` is the process at whose end
/// the program gets TERM, if the system supports that. Returns only on failure, with the exit code that a shell would
/// use.
pub(crate) fn become_program(
    context: &Context,
    command: &[OsString],
    ends_with: Option<u32>,
) -> Result<u8, Error> {
    let [program, rest @ ..] = command else {
        return Err(Error::usage("no program is given"));
    };
    let ready = ends_with.map_or(Ok(()), end_with).and_then(|()| SigSet::all().thread_unblock());
    let error = match ready {
        Ok(()) => Command::new(program).args(rest).exec(),
        Err(errno) => errno.into(),
    };
    let code = if error.kind() == io::ErrorKind::NotFound { exit::NO_PROGRAM } else { exit::NOT_EXECUTED };
    let error = Error::failed(format!("cannot run {}: {error}", program.display()));
    exit::report(&error, context.style.json, code);
    Ok(code)
}

/// Requests TERM at the end of the parent, which may already have ended.
fn end_with(parent: u32) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)?;
    let found = nix::unistd::getppid().as_raw();
    if u32::try_from(found) == Ok(parent) { Ok(()) } else { Err(Errno::ESRCH) }
}

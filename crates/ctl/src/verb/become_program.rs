//! `become`: what `up` starts a daemon through, and `lock` its command. It turns into the program, so the process
//! keeps its number; before that it lets signals through again, which its starter holds back in itself and which
//! would stay held back in whatever it starts.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::SigSet;

use crate::context::Context;
use crate::error::Error;
use crate::exit;

/// Becomes a program that receives every signal
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Gets TERM when this process, which started it, ends; where the system has a means to that
    #[arg(long, value_name = "PID")]
    pub ends_with: Option<u32>,
    /// Which program, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// Does not return where that works.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let [program, rest @ ..] = args.command.as_slice() else {
        return Err(Error::usage("which program?"));
    };
    let ready = args.ends_with.map_or(Ok(()), end_with).and_then(|()| SigSet::all().thread_unblock());
    let error = match ready {
        Ok(()) => Command::new(program).args(rest).exec(),
        Err(errno) => errno.into(),
    };
    let code = if error.kind() == io::ErrorKind::NotFound { exit::NO_PROGRAM } else { exit::NOT_EXECUTED };
    exit::report(
        &Error::failed(format!("cannot run {}: {error}", program.display())),
        context.style.json,
        code,
    );
    Ok(code)
}

/// Asks for TERM at the end of its starter, which may have come before.
fn end_with(parent: u32) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)?;
    let found = nix::unistd::getppid().as_raw();
    if u32::try_from(found) == Ok(parent) { Ok(()) } else { Err(Errno::ESRCH) }
}

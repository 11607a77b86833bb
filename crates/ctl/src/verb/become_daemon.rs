//! `become`: what `up` starts a daemon through. It turns into the daemon, so the process keeps its
//! number; before that it lets signals through again, which `up` holds back in itself and which
//! would stay held back in whatever it starts.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::SigSet;

use crate::error::Error;

/// Becomes a program that receives every signal
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Which program
    pub program: PathBuf,
}

/// Does not return where that works.
pub(crate) fn run(args: &Args) -> Result<u8, Error> {
    let opened = SigSet::all().thread_unblock().map_err(std::io::Error::from);
    let error = opened.map(|()| Command::new(&args.program).exec()).unwrap_or_else(|error| error);
    Err(Error::failed(format!("cannot run {}: {error}", args.program.display())))
}

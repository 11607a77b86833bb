//! `completions`: a script that makes a shell complete `poolctl`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::Error;
use crate::exit;
use crate::show::out;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which shell
    pub shell: Shell,
}

/// Prints it.
pub(crate) fn run(args: &Args) -> Result<u8, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "poolctl", &mut script);
    out::bytes(&script)?;
    Ok(exit::OK)
}

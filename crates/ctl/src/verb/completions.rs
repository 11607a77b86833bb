//! `completions`: a script with which a shell completes `poolctl`.

use clap_complete::Shell;

use crate::Error;
use crate::show::out;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script for this definition of the command line.
pub(crate) fn run(args: &Args, command: &mut clap::Command) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "poolctl", &mut script);
    out::bytes(&script)
}

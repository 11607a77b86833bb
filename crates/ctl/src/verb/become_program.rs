//! `become`: turns into another program. `up` starts each daemon through it, and `lock` its command.

use std::ffi::OsString;

use crate::exec::become_program;
use crate::{Context, Error};

/// Become a program that receives every signal
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Send it TERM when this process, its parent, ends, where the system supports that
    #[arg(long, value_name = "PID")]
    ends_with: Option<u32>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Returns on failure only.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    become_program(context, &args.command, args.ends_with)
}

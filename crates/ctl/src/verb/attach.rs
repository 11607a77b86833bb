//! `attach`: replaces this process by the command that `poold` names.

use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::unistd::ttyname;
use protocol::request::Attach;
use protocol::{OsBytes, Request};

use crate::calls::expected;
use crate::show::{escape, time};
use crate::{Context, Error};

/// Attach the terminal to a session; one that is parked or lost is started first
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
    /// Only watch
    #[arg(long)]
    read_only: bool,
    /// Inside another tmux: open a window there instead of nesting
    #[arg(long)]
    window: bool,
    /// Time to wait for a slot if it is parked or lost; 0: not at all [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    wait_slot: Option<Duration>,
}

/// Returns on failure only.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Error::usage("attach needs a terminal: use `capture`, `logs -f` or `send` in scripts"));
    }
    let attach = Attach {
        session: context.session(&args.session)?,
        read_only: args.read_only,
        terminal: ttyname(io::stdin()).ok().map(OsBytes::from),
        tmux_env: std::env::var_os("TMUX").filter(|value| !value.is_empty()).map(OsBytes::from),
        window: args.window,
        wait_slot_ms: args.wait_slot.map(time::millis),
    };
    // A parked or lost session is started first, which may have to wait for a slot.
    let progress = context.progress(&format!("{} to run", args.session));
    let command = expected!(context.unlimited_client().ask(Request::Attach(attach))?, Attach)?;
    drop(progress);
    if let Some(hint) = command.hint {
        context.tell(&escape::lines(&hint));
    }
    let [program, rest @ ..] = command.argv.as_slice() else {
        return Err(Error::failed("poold returned no command"));
    };
    let error = Command::new(program.as_os_str()).args(rest.iter().map(OsBytes::as_os_str)).exec();
    Err(Error::failed(format!("cannot run {}: {error}", program.to_string_lossy())))
}

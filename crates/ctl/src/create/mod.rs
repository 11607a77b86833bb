//! The creation of a session, which `new` and `run` share: its arguments and its request.

mod environment;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use protocol::request::New;
use protocol::{OpId, OsBytes, Request, SessionView, Size};

use crate::args::{labels, pair};
use crate::client::operation;
use crate::context::absolute;
use crate::lifecycle_args::LifecycleArgs;
use crate::ready::Blocking;
use crate::show::{escape, out, time};
use crate::{Client, Context, Error, Repeat, body, expect_session};

pub(crate) use environment::{environment_help, of_caller, of_flags};

/// The value of `--cwd` for a session's own work directory.
const OWN: &str = "own";
/// Longest time by which a wait for a slot ends before the time limit of the command, so that poold can still answer
/// with the reason.
const SLOT_MARGIN: Duration = Duration::from_millis(500);

/// The arguments of `new` that `run` takes as well.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CreateArgs {
    /// Its name, of a-z 0-9 _ - [default: generated]
    pub name: Option<String>,
    /// The kind of agent that it runs [default: shell; without one if a command is given]
    #[arg(long, value_name = "KIND")]
    pub agent: Option<String>,
    /// The workspace it belongs to [default: its name]
    #[arg(long, value_name = "NAME")]
    pub workspace: Option<String>,
    /// The directory it starts in; own: its own work directory [default: this one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Pass on only PATH, HOME, the language and the like of this environment
    #[arg(long)]
    pub clean_env: bool,
    /// Set a variable; a name alone passes the caller's value on
    #[arg(long, value_name = "K=V")]
    pub env: Vec<OsString>,
    /// Read variables from a file: one per line, taken as it stands, quotes too; # begins a comment line
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Set a label
    #[arg(long, value_name = "K=V", value_parser = pair)]
    pub label: Vec<(String, String)>,
    /// Its first message, queued together with the session
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<OsString>,
    /// Use the session of this workspace if there is one, and start it if it does not run
    #[arg(long)]
    pub reuse: bool,
    /// Size of its terminal while no client is attached
    #[arg(long, value_name = "COLSxROWS", value_parser = size)]
    pub size: Option<Size>,
    /// Keep its standard error off the terminal, in a log of its own (`logs --stderr`): for commands, since
    /// shells and agents draw on it
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Stderr::Terminal)]
    pub stderr: Stderr,
    #[command(flatten)]
    pub blocking: Blocking,
    #[command(flatten)]
    pub lifecycle: LifecycleArgs,
    #[command(flatten)]
    pub repeat: Repeat,
    /// The program and its arguments [default: the agent's]
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// The place of a program's standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stderr {
    /// The terminal.
    Terminal,
    /// A log of its own.
    Separate,
}

fn size(text: &str) -> Result<Size, String> {
    let size =
        text.split_once('x').and_then(|(c, r)| Some(Size { cols: c.parse().ok()?, rows: r.parse().ok()? }));
    size.filter(Size::is_valid).ok_or_else(|| "write it like 200x50, each from 1 to 10000".into())
}

/// Creates a session and returns it once it runs.
pub(crate) fn create(context: &Context, client: &mut Client, args: CreateArgs) -> Result<SessionView, Error> {
    create_as(context, client, operation(&args.repeat)?, args)
}

/// As [`create`], with this operation id.
pub(crate) fn create_as(
    context: &Context,
    client: &mut Client,
    op: OpId,
    args: CreateArgs,
) -> Result<SessionView, Error> {
    // With an operation id of the user's, the request must not depend on the time limit: a repeat has to be the same.
    let limit = context.waiting_limit().filter(|_| args.repeat.op_id.is_none());
    let mut request = request(context, args)?;
    request.wait_slot_ms =
        request.wait_slot_ms.map(|wait| limit.map_or(wait, |limit| wait_within(wait, limit)));
    let given = Some(request.command.clone()).filter(|command| request.reuse && !command.is_empty());
    let progress = context.progress("the session to run");
    let view = expect_session(client.call(Some(op), Request::New(Box::new(request)))?)?;
    drop(progress);
    if given.is_some_and(|command| command != view.session.spec.command) && !context.style.quiet {
        let own: Vec<_> = view.session.spec.command.iter().map(OsBytes::to_string_lossy).collect();
        let (name, own) = (&view.session.name, escape::line(&own.join(" ")));
        out::note(&format!("poolctl: {name} was there already, and runs `{own}`"));
    }
    Ok(view)
}

/// Returns the time to wait for a slot, in milliseconds, within the time limit of the command.
fn wait_within(wait_ms: u64, limit: Duration) -> u64 {
    wait_ms.min(time::millis(limit.saturating_sub(SLOT_MARGIN.min(limit / 4))))
}

fn request(context: &Context, args: CreateArgs) -> Result<New, Error> {
    let env = environment::of_flags(context, &args.env_file, &args.env)?;
    let prompt = args.prompt.map(OsBytes::from).map(body::checked).transpose()?;
    // `./own` is a directory of that name.
    let own = args.cwd.as_deref() == Some(Path::new(OWN));
    let caller_cwd = if args.cwd.is_none() { Some(current_dir()?) } else { None };
    let new = New {
        name: args.name,
        workspace: args.workspace,
        agent: args.agent,
        command: args.command.into_iter().map(OsBytes::from).collect(),
        cwd: args.cwd.filter(|_| !own).map(|cwd| absolute(&cwd)).transpose()?.map(OsBytes::from),
        env,
        caller_env: environment::of_caller(args.clean_env),
        caller_cwd,
        labels: labels(&args.label)?,
        size: args.size,
        reuse: args.reuse,
        prompt,
        separate_stderr: args.stderr == Stderr::Separate,
        ..New::default()
    };
    Ok(args.lifecycle.applied(new))
}

/// The current directory, by the path under which the caller knows it (`PWD`).
pub(crate) fn current_dir() -> Result<OsBytes, Error> {
    let gone = |error| {
        Error::usage(format!("the current directory is gone ({error}): give --cwd DIR, or --cwd {OWN}"))
    };
    let found = std::env::current_dir().map_err(gone)?;
    let identity = |path: &Path| path.metadata().map(|found| process::runtime::untrusted_file::id(&found));
    let named = std::env::var_os("PWD").map(PathBuf::from).filter(|named| named.is_absolute());
    let same = named.filter(|named| matches!((identity(named), identity(&found)), (Ok(a), Ok(b)) if a == b));
    Ok(OsBytes::from(same.unwrap_or(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_bounds() {
        assert_eq!(size("80x24"), Ok(Size { cols: 80, rows: 24 }));
        for bad in ["", "80", "80x", "0x1", "80x10001", "80x24x2", "-1x5", "80X24"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}

//! `update`: change the policy of a session.

use clap::Arg;
use protocol::Request;
use protocol::reap::{Action, Rule};
use protocol::request::Update;

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::life;
use crate::verb::new::{Fate, reaped_or_default};
use crate::verb::{expect_session, print_session};

/// Change the policy of a session; what is not said stays as it is
#[derive(Debug, clap::Args)]
#[command(mut_args(without_default))]
pub(crate) struct Args {
    /// Which session
    pub session: String,
    /// What becomes of it where a rule applies: hung=restart, …; RULE=default: what its agent's table and the
    /// configuration say
    #[arg(long, value_name = "RULE=ACTION", value_parser = reaped_or_default)]
    pub reap: Vec<(Rule, Option<Action>)>,
    #[command(flatten)]
    pub fate: Fate,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// What `new` takes where nothing is said is not taken here.
fn without_default(arg: Arg) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    match help.split_once(" [default: ") {
        Some((help, _)) => arg.help(help.to_owned()),
        None => arg,
    }
}

/// Changes it, and says how it is.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    if args.reap.is_empty() && args.fate == Fate::default() {
        return Err(Error::usage("nothing to change: see `poolctl update --help`"));
    }
    let update = Update {
        session: context.session(&args.session)?,
        restart: args.fate.restart,
        max_restarts: args.fate.max_restarts,
        idle_timeout_ms: args.fate.idle_timeout,
        ttl_ms: args.fate.ttl,
        max_runtime_ms: args.fate.max_runtime,
        reap: args.reap.into_iter().collect(),
    };
    let view = expect_session(context.client().change(&args.repeat, Request::Update(update))?)?;
    let session = &view.session;
    print_session(
        context,
        &view,
        &format!("{}  {}  {}", session.id, session.name, life::policy(&session.policy)),
    )?;
    Ok(exit::OK)
}

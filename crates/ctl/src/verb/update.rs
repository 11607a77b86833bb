//! `update`: changes the policy of sessions.

use std::collections::BTreeMap;

use clap::Arg;
use protocol::Request;
use protocol::reap::{Action, Rule};
use protocol::request::Update;

use crate::lifecycle_args::{PolicyArgs, rule_action_or_default};
use crate::show::lifecycle;
use crate::targets::{Scope, Target, Targets, for_all, print_session};
use crate::{Context, Error, Repeat, expect_session};

/// Change the policy of sessions; what is not given stays as it is
#[derive(Debug, clap::Args)]
#[command(mut_args(without_default))]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Action of the reaper when a rule applies: hung=restart, …; RULE=default: as configured for its agent,
    /// or else for all
    #[arg(long, value_name = "RULE=ACTION", value_parser = rule_action_or_default)]
    reap: Vec<(Rule, Option<Action>)>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    repeat: Repeat,
}

/// Removes the default of `new` from a flag's help: here a flag that is not given changes nothing.
fn without_default(arg: Arg) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    match help.split_once(" [default: ") {
        Some((help, _)) => arg.help(help.to_owned()),
        None => arg,
    }
}

/// Changes the policies, and prints the results.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    if args.reap.is_empty() && args.policy == PolicyArgs::default() {
        return Err(Error::usage("nothing to change: see `poolctl update --help`"));
    }
    let targets = args.targets.find(context, &args.repeat, (Scope::Any, "to update"))?;
    let reap: BTreeMap<_, _> = args.reap.into_iter().collect();
    let ask = |target: &Target| {
        let update = Update {
            session: target.session.clone(),
            restart: args.policy.restart,
            max_restarts: args.policy.max_restarts,
            idle_timeout_ms: args.policy.idle_timeout,
            ttl_ms: args.policy.ttl,
            max_runtime_ms: args.policy.max_runtime,
            reap: reap.clone(),
        };
        expect_session(context.client().change(&args.repeat, Request::Update(update))?)
    };
    for_all(context, (&targets, "to be updated"), ask, |_, view| {
        let session = &view.session;
        let line = format!("{}  {}  {}", session.id, session.name, lifecycle::policy(&session.policy));
        print_session(context, &view, &line)
    })
}

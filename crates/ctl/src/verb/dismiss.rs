//! `dismiss`: takes what sessions ask off the list of what waits for a person.

use protocol::Request;

use crate::args::Repeat;
use crate::calls::expect_session;
use crate::context::Context;
use crate::error::Error;
use crate::targets::{Scope, Target, Targets, for_all, print_session};

/// Take what sessions ask off the inbox, without an answer
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    repeat: Repeat,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let targets = args.targets.find(context, &args.repeat, (Scope::Running, "to dismiss"))?;
    let ask = |target: &Target| {
        expect_session(context.client().change(&args.repeat, Request::Dismiss(target.session.clone()))?)
    };
    for_all(context, (&targets, "to be dismissed"), ask, |_, view| {
        print_session(context, &view, &format!("{}  {}  dismissed", view.session.id, view.session.name))
    })
}

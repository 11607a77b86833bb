//! Pinning, which `pin` and `unpin` share: a pinned session is never parked automatically.

use protocol::Request;
use protocol::request::Pin;

use crate::targets::{Scope, Target, Targets, for_all, print_session};
use crate::{Context, Error, Repeat, expect_session};

/// The arguments of both verbs.
#[derive(Debug, clap::Args)]
pub(crate) struct PinArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    repeat: Repeat,
}

/// Pins the sessions, or unpins them.
pub(crate) fn set(context: &Context, args: &PinArgs, pinned: bool) -> Result<(), Error> {
    let to = if pinned { "to pin" } else { "to unpin" };
    let targets = args.targets.find(context, &args.repeat, (Scope::Any, to))?;
    let ask = |target: &Target| {
        let pin = Pin { session: target.session.clone(), pinned };
        expect_session(context.client().change(&args.repeat, Request::Pin(pin))?)
    };
    for_all(context, (&targets, to), ask, |_, view| {
        let word = if view.session.policy.pinned { "pinned" } else { "not pinned" };
        print_session(context, &view, &format!("{}  {}  {word}", view.session.id, view.session.name))
    })
}

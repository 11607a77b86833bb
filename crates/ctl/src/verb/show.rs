//! `show`: everything about one session.

use serde_json::json;

use crate::show::{escape, out};
use crate::{Context, Error, calls, describe};

/// Show everything about a session
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
    /// Only the plan that its agent last proposed, as text
    #[arg(long)]
    plan: bool,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    if args.plan { plan(context, &args.session) } else { describe::session(context, &args.session) }
}

/// Prints the plan that a session's agent last proposed.
fn plan(context: &Context, session: &str) -> Result<(), Error> {
    let view = calls::session(&mut context.client(), context.session(session)?)?;
    let Some(plan) = &view.plan else {
        let why =
            "no plan of its agent is known: it proposed none since it began, or since the daemon started";
        return Err(Error::not_found(format!("{}: {why}", view.session.name)));
    };
    if context.style.json {
        return out::json(&json!({"session": view.session.id, "plan": plan, "files": view.files}));
    }
    out::text(&format!("{}\n", escape::lines(plan.trim_end())))
}

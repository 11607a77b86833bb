//! `clear`: empties the logs and the terminal histories of sessions.

use protocol::Request;
use serde_json::json;

use crate::show::{escape, out};
use crate::targets::{Scope, Target, Targets, for_all};
use crate::{Context, Error, Repeat, expect_done};

/// Empty the log and the terminal history of sessions; their programs keep running
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    repeat: Repeat,
}

/// Clears them at the same time.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let targets = args.targets.find(context, &args.repeat, (Scope::Running, "to clear"))?;
    let ask = |target: &Target| {
        let clear = Request::Clear(target.session.clone());
        expect_done(&context.client().change(&args.repeat, clear)?)
    };
    for_all(context, (&targets, "to be cleared"), ask, |target, ()| {
        if context.style.json {
            return out::json(&json!({"session": target.session, "cleared": true}));
        }
        context.say(&format!("{}  cleared", escape::line(&target.session.0)))
    })
}

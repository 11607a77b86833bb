//! `clear`: empties the logs and the terminal histories of sessions.

use protocol::Request;
use serde_json::json;

use crate::args::Repeat;
use crate::calls::expect_done;
use crate::context::Context;
use crate::error::Error;
use crate::show::{escape, out};
use crate::targets::{for_each, only_one};

/// Empty the log and the terminal history of sessions; their programs keep running
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sessions
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Clears them one after the other.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    only_one(&args.repeat, args.sessions.len())?;
    let mut client = context.client();
    for_each(context, &args.sessions, |session| {
        let session = context.session(session)?;
        expect_done(&client.change(&args.repeat, Request::Clear(session.clone()))?)?;
        if context.style.json {
            return out::json(&json!({"session": session, "cleared": true}));
        }
        context.say(&format!("{}  cleared", escape::line(&session.0)))
    })
}

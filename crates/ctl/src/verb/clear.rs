//! `clear`: empty the logs and the terminal histories of sessions.

use protocol::Request;
use serde_json::json;

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{escape, out};
use crate::verb::{expect_done, for_each, only_one};

/// Empty the log and the terminal's history of sessions; what they run goes on
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which sessions
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Clears them one after the other.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    only_one(&args.repeat, args.sessions.len())?;
    let mut client = context.client();
    for_each(context, &args.sessions, |session| {
        let session = context.session(session)?;
        expect_done(&client.change(&args.repeat, Request::Clear(session.clone()))?)?;
        if context.style.json {
            return out::json(&json!({"session": session, "cleared": true}));
        }
        context.say(&format!("{}  cleared", escape::line(&session.0)))
    })?;
    Ok(exit::OK)
}

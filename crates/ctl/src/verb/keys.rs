//! `keys`: presses keys at once, bypassing the queue.

use protocol::Request;
use protocol::request::Keys;
use serde_json::json;

use crate::show::out;
use crate::{Context, Error, Repeat, expect_done};

/// Press keys at once, not queued
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
    /// Names as tmux knows them (C-c, Enter, Up), or single characters
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    repeat: Repeat,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let session = context.session(&args.session)?;
    let keys = Keys { session: session.clone(), keys: args.keys.clone() };
    expect_done(&context.client().change(&args.repeat, Request::Keys(keys))?)?;
    if context.style.json {
        out::json(&json!({"session": session, "keys": args.keys}))?;
    }
    Ok(())
}

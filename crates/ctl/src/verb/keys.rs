//! `keys`: raw keys at once, not queued.

use protocol::Request;
use protocol::request::Keys;
use serde_json::json;

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::out;
use crate::verb::expect_done;

/// Press keys at once, not queued
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// In which session
    pub session: String,
    /// Names as tmux knows them (C-c, Enter, Up), or single characters
    #[arg(required = true, value_name = "KEY")]
    pub keys: Vec<String>,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Presses them.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let session = context.session(&args.session)?;
    let keys = Keys { session: session.clone(), keys: args.keys.clone() };
    expect_done(&context.client().change(&args.repeat, Request::Keys(keys))?)?;
    if context.style.json {
        out::json(&json!({"session": session, "keys": args.keys}))?;
    }
    Ok(exit::OK)
}

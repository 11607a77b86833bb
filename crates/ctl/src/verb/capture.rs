//! `capture`: the screen of a session, or its scrollback.

use protocol::Request;
use protocol::request::{Capture, Extent};
use serde_json::json;

use crate::calls::expected;
use crate::show::{escape, out};
use crate::{Context, Error};

/// Print the screen of a session, or its scrollback
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
    /// The last N lines, scrollback included
    #[arg(long, value_name = "N", conflicts_with = "all")]
    lines: Option<u32>,
    /// The whole scrollback
    #[arg(long)]
    all: bool,
    /// Keep colours and attributes
    #[arg(long)]
    ansi: bool,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let session = context.session(&args.session)?;
    let extent = match args.lines {
        Some(lines) => Extent::Last(lines),
        None if args.all => Extent::All,
        None => Extent::Visible,
    };
    let capture = Capture { session: session.clone(), extent, ansi: args.ansi };
    let screen = expected!(context.client().ask(Request::Capture(capture))?, Screen)?;
    if context.style.json {
        out::json(&json!({"session": session, "text": screen.to_string_lossy()}))
    } else if context.style.terminal && !args.ansi {
        out::text(&escape::lines(&screen.to_string_lossy()))
    } else {
        out::bytes(&screen.0)
    }
}

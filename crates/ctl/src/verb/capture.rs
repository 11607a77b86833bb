//! `capture`: what is on the screen, or the scrollback.

use protocol::request::{Capture, Extent};
use protocol::{Request, Response};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{escape, out};

/// Print what is on the screen, or the scrollback
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Of which session
    pub session: String,
    /// The last so many lines, scrollback included
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub lines: Option<u32>,
    /// The whole scrollback
    #[arg(long)]
    pub all: bool,
    /// Keep colours and attributes
    #[arg(long)]
    pub ansi: bool,
}

/// Prints it.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let session = context.session(&args.session)?;
    let extent = match args.lines {
        Some(lines) => Extent::Last(lines),
        None if args.all => Extent::All,
        None => Extent::Visible,
    };
    let capture = Capture { session: session.clone(), extent, ansi: args.ansi };
    let screen = match context.client().ask(Request::Capture(capture))? {
        Response::Screen(screen) => screen,
        other => return Err(Error::unexpected(&other)),
    };
    if context.style.json {
        out::json(&json!({"session": session, "text": screen.to_string_lossy()}))?;
    } else if context.style.terminal && !args.ansi {
        out::text(&escape::lines(&screen.to_string_lossy()))?;
    } else {
        out::bytes(&screen.0)?;
    }
    Ok(exit::OK)
}

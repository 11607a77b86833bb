//! `label`: set and remove a session's labels.

use protocol::Request;
use protocol::request::Label;

use crate::cli::{Repeat, pair};
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::human;
use crate::verb::{expect_session, print_session};

/// Set and remove a session's labels
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which session
    pub session: String,
    /// Set this label
    #[arg(value_name = "K=V", value_parser = pair, required_unless_present = "remove")]
    pub set: Vec<(String, String)>,
    /// Remove this label
    #[arg(long, value_name = "K")]
    pub remove: Vec<String>,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Changes them, and prints them all.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let session = context.session(&args.session)?;
    let label = Label { session, set: args.set.into_iter().collect(), remove: args.remove };
    let view = expect_session(context.client().change(&args.repeat, Request::Label(label))?)?;
    print_session(context, &view, &format!("{}  {}", view.session.id, human::labels(&view.session.labels)))?;
    Ok(exit::OK)
}

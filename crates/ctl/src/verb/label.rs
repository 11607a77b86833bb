//! `label`: sets and removes a session's labels.

use protocol::Request;
use protocol::request::Label;

use crate::args::{Repeat, pair};
use crate::calls::expect_session;
use crate::context::Context;
use crate::error::Error;
use crate::show::session;
use crate::targets::print_session;

/// Set and remove a session's labels
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
    /// Set this label
    #[arg(value_name = "K=V", value_parser = pair, required_unless_present = "remove")]
    set: Vec<(String, String)>,
    /// Remove this label
    #[arg(long, value_name = "K")]
    remove: Vec<String>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Changes the labels, and prints all of them.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let session = context.session(&args.session)?;
    let label = Label { session, set: args.set.into_iter().collect(), remove: args.remove };
    let view = expect_session(context.client().change(&args.repeat, Request::Label(label))?)?;
    print_session(context, &view, &format!("{}  {}", view.session.id, session::labels(&view.session.labels)))
}
